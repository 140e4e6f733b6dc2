//! DKIM (RFC 6376 section 3.6.1): the published record of each selector belongs to the key in use.

use stentor_dkim::{Algorithm, Signer, record_name, zone_text};

use crate::check::{Check, Findings};
use crate::lookups::{Lookup, Lookups};
use crate::tags::Tags;

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
    match Tags::parse(record) {
        Ok(tags) => judge(&tags, signer, &Published { name, publish: &publish }, out),
        Err(why) => out.add(Check::DkimSyntax, name, format!("the record at {name} is not valid: {why}"), publish),
    }
    Ok(())
}

/// A key record under examination.
struct Published<'a> {
    name: &'a str,
    /// How to publish the right one.
    publish: &'a str,
}

fn judge(tags: &Tags, signer: &Signer, published: &Published<'_>, out: &mut Findings) {
    let Published { name, publish } = *published;
    let mut fault = |check, what: String| out.add(check, name, what, publish);
    let is_version = tags.get("v").is_none_or(|value| value == "DKIM1")
        && tags.first().is_some_and(|first| first.name == "v" || tags.get("v").is_none());
    if !is_version {
        return fault(Check::DkimSyntax, format!("the record at {name} does not begin with v=DKIM1"));
    }
    let Some(key) = tags.get("p") else {
        return fault(Check::DkimSyntax, format!("the record at {name} has no `p`"));
    };
    let key: String = key.split_ascii_whitespace().collect();
    let (kind, own_kind) = (tags.get("k").unwrap_or("rsa"), signer.key.algorithm().key_type());
    let own = signer.key.record();
    let own_key = own.rsplit_once("p=").map_or("", |(_, key)| key);
    if key.is_empty() {
        fault(Check::DkimRevoked, format!("the key at {name} is revoked: `p` is empty"));
    } else if kind != own_kind {
        fault(Check::DkimType, format!("the record at {name} has k={kind}; the key in use is {own_kind}"));
    } else if key != own_key {
        fault(Check::DkimKey, format!("the key at {name} is not the key in use"));
    }
    let lists = |tag: &str, wanted: &[&str]| {
        let value = tags.get(tag)?;
        let has = value.split(':').any(|word| wanted.contains(&word.trim()));
        (!has).then(|| value.to_owned())
    };
    if let Some(value) = lists("h", &["sha256"]) {
        fault(Check::DkimHash, format!("the record at {name} permits only h={value}; signatures use sha256"));
    }
    if let Some(value) = lists("s", &["*", "email"]) {
        fault(Check::DkimService, format!("the record at {name} is only for s={value}, not for mail"));
    }
    if tags.get("t").is_some_and(|flags| flags.split(':').any(|flag| flag.trim() == "y")) {
        fault(Check::DkimTesting, format!("the record at {name} has t=y: receivers may ignore the signature"));
    }
    let unknown: Vec<&str> = tags.names().filter(|tag| !KNOWN_TAGS.contains(tag)).collect();
    if !unknown.is_empty() {
        fault(Check::DkimTag, format!("the record at {name} has unknown tags: {}", unknown.join(", ")));
    }
}
