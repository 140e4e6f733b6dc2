//! DKIM (RFC 6376 section 3.6.1): the published record of each selector belongs to the key in use.
//!
//! Records are parsed as receivers do ([`KeyRecord`]); of one that they can read, all faults are reported at once.

use stentor_dkim::{Algorithm, KeyRecord, KeyRecordError, Signer, record_name, zone_text};

use crate::check::{Check, Findings};
use crate::lookups::{Lookup, Lookups};

/// Tags of key records (RFC 6376 section 3.6.1, RFC 4871 for `g`).
const KNOWN_TAGS: [&str; 8] = ["v", "h", "k", "n", "p", "s", "t", "g"];

/// Judges the records of all keys that sign mail of the domain.
pub(crate) fn examine(lookups: &Lookups, domain: &str, signers: &[&Signer], out: &mut Findings) {
    if signers.is_empty() {
        let next = format!("`stentor dkim new {domain}` makes keys and prints their records (docs/operate/dkim.md)");
        out.add(Check::DkimUnsigned, domain, format!("mail from {domain} is not signed"), next);
        return;
    }
    if signers.iter().all(|signer| signer.key.algorithm() != Algorithm::RsaSha256) {
        let next = format!("`stentor dkim new {domain} --rsa --selector NAME` makes an RSA key; use both");
        let what = "there is only an Ed25519 key, which some receivers cannot verify";
        out.add(Check::DkimRsa, domain, what, next);
    }
    for signer in signers {
        let name = record_name(&signer.selector, &signer.domain);
        let end = one(lookups, signer, &name, out);
        out.end(&name, "the DKIM record", end);
    }
}

fn one(lookups: &Lookups, signer: &Signer, name: &str, out: &mut Findings) -> Lookup<()> {
    let wanted = signer.key.record();
    let publish = format!("publish `{}`", zone_text(&signer.selector, &signer.domain, &wanted).trim_end());
    let record = match lookups.texts(name)? {
        [record] => record,
        [] => {
            out.add(Check::DkimMissing, name, format!("the key in use is not published at {name}"), publish);
            return Ok(());
        }
        several => {
            let what = format!("{name} has {} TXT records; receivers may use any of them", several.len());
            out.add(Check::DkimSeveral, name, what, format!("remove the others, and {publish}"));
            return Ok(());
        }
    };
    let what = match KeyRecord::parse(record) {
        Ok(record) => {
            judge(&record, signer, &Published { name, publish: &publish }, out);
            return Ok(());
        }
        Err(KeyRecordError::Tags(error)) => format!("the record at {name} is not valid: {error}"),
        Err(error) => format!("the record at {name} is not valid: {error}"),
    };
    out.add(Check::DkimSyntax, name, what, publish);
    Ok(())
}

/// A key record under examination.
struct Published<'a> {
    name: &'a str,
    /// How to publish the right one.
    publish: &'a str,
}

fn judge(record: &KeyRecord, signer: &Signer, published: &Published<'_>, out: &mut Findings) {
    let Published { name, publish } = *published;
    let mut fault = |check, what: String| out.add(check, name, what, publish);
    let (key_type, own_type) = (record.key_type(), signer.key.algorithm().key_type());
    let own = signer.key.record();
    let own_key = own.rsplit_once("p=").map_or("", |(_, key)| key);
    if record.key.is_empty() {
        fault(Check::DkimRevoked, format!("the key at {name} is revoked: `p` is empty"));
    } else if key_type != own_type {
        fault(Check::DkimType, format!("the record at {name} has k={key_type}; the key in use is {own_type}"));
    } else if record.key != own_key {
        fault(Check::DkimKey, format!("the key at {name} is not the key in use"));
    }
    if let Some(list) = record.hashes_without_sha256() {
        fault(Check::DkimHash, format!("the record at {name} permits only h={list}; signatures use sha256"));
    }
    if let Some(list) = record.services_without_email() {
        fault(Check::DkimService, format!("the record at {name} is only for s={list}, not for mail"));
    }
    if record.has_flag("y") {
        fault(Check::DkimTesting, format!("the record at {name} has t=y: receivers may ignore the signature"));
    }
    let unknown: Vec<&str> = record.tag_names().filter(|tag| !KNOWN_TAGS.contains(tag)).collect();
    if !unknown.is_empty() {
        fault(Check::DkimTag, format!("the record at {name} has unknown tags: {}", unknown.join(", ")));
    }
}
