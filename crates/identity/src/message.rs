//! A message as it will leave: header fields that large receivers require, size, one-click unsubscribing (RFC 8058),
//! and its signatures.
//!
//! The signatures are made with the keys in use and verified with their public halves; that these are the published
//! ones is a check of [`crate::dkim`].

use stentor_dkim::{BodyDigest, MessageHash, Signer, Times, is_signed_by, sign};
use stentor_mail::address::Address;
use stentor_mime::field;

use crate::check::{Check, Findings};
use crate::lookups::{Lookup, Lookups};

/// Gmail and Outlook.com accept up to 25 MB.
const BYTES_MAX: u64 = 25_000_000;
/// Fields of which a message has exactly one (RFC 5322 section 3.6, Gmail's rules).
const SINGLE_FIELDS: [&str; 3] = ["From", "Date", "Message-ID"];
/// Maximum links of one message that are tried.
const LINKS_MAX: usize = 3;

/// A message with all fields that it leaves with, but without its signatures.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// Header section without the empty line.
    header: Vec<u8>,
    body: BodyDigest,
    bytes: u64,
    /// Seconds since 1970, for the signatures.
    now_s: u64,
}

impl Rendered {
    /// Takes a message with lines that end in CRLF. `now_s`: seconds since 1970.
    pub fn new(message: &[u8], now_s: u64) -> Rendered {
        let mut hash = MessageHash::default();
        hash.push(message);
        let (header, body) = hash.finish();
        Rendered { header, body, bytes: message.len() as u64, now_s }
    }

    /// A message of which only the header is known, and its size.
    #[must_use]
    pub fn with_bytes(self, bytes: u64) -> Rendered {
        Rendered { bytes, ..self }
    }

    /// The domain in From; `None` if it has not exactly one valid address.
    pub fn author_domain(&self) -> Option<String> {
        let values = self.values("From");
        let [value] = values.as_slice() else { return None };
        author(value).map(|address| address.domain().to_owned())
    }

    /// Values of all fields of a name, unfolded.
    fn values(&self, name: &str) -> Vec<String> {
        let fields = field::lines(&self.header).filter_map(field::split);
        let named = fields.filter(|(other, _)| other.trim_ascii_end().eq_ignore_ascii_case(name.as_bytes()));
        named.map(|(_, value)| String::from_utf8_lossy(value).replace(['\r', '\n'], "").trim().to_owned()).collect()
    }

    /// Whether receivers treat it as bulk mail.
    fn is_bulk(&self) -> bool {
        let has_list_field = field::lines(&self.header)
            .filter_map(field::split)
            .any(|(name, _)| name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"list-")));
        let precedence = self.values("Precedence");
        has_list_field || precedence.iter().any(|word| ["list", "bulk"].contains(&&*word.to_ascii_lowercase()))
    }
}

/// Judges a message from the domain.
pub(crate) fn examine(lookups: &Lookups, domain: &str, message: &Rendered, signers: &[&Signer], out: &mut Findings) {
    for name in SINGLE_FIELDS {
        let count = message.values(name).len();
        if count != 1 {
            let what = if count == 0 { "is missing".to_owned() } else { format!("occurs {count} times") };
            let next = format!("let the program that writes the message set exactly one {name}");
            out.add(Check::MessageField, name, format!("the header field {name} {what}"), next);
        }
    }
    from(domain, message, out);
    if message.bytes > BYTES_MAX {
        let what = format!("the message has {} octets; large receivers accept {BYTES_MAX}", message.bytes);
        out.add(Check::MessageSize, domain, what, "send a link instead of the attachment");
    }
    signatures(domain, message, signers, out);
    if message.is_bulk() {
        let end = bulk(lookups, domain, message, out);
        out.end(domain, "the unsubscribe link", end);
    }
}

fn from(domain: &str, message: &Rendered, out: &mut Findings) {
    let values = message.values("From");
    let [value] = values.as_slice() else { return };
    let next = "let From have one address, at the domain that sends";
    match author(value) {
        None => out.add(Check::MessageFrom, domain, format!("From has not exactly one valid address: {value}"), next),
        Some(address) if address.domain() != domain => {
            let what = format!("From has an address at {}, not at {domain}", address.domain());
            out.add(Check::MessageFrom, domain, what, next);
        }
        Some(_) => {}
    }
}

/// The only address of From.
fn author(value: &str) -> Option<Address> {
    let address = match value.rsplit_once('<') {
        Some((name, _)) if name.contains('<') => return None,
        Some((_, rest)) => rest.split_once('>').filter(|(_, behind)| behind.trim().is_empty())?.0,
        None if value.matches('@').count() == 1 => value,
        None => return None,
    };
    Address::parse(address.trim().as_bytes(), true).ok()
}

fn signatures(domain: &str, message: &Rendered, signers: &[&Signer], out: &mut Findings) {
    if signers.is_empty() {
        return;
    }
    let Rendered { header, body, now_s, .. } = message;
    let owned: Vec<Signer> = signers.iter().map(|signer| (*signer).clone()).collect();
    let next = "see docs/operate/dkim.md";
    match sign(header, *body, &owned, Times { signed: *now_s, expires: None }) {
        Ok(fields) => {
            let signed = [&*fields, header].concat();
            for signer in signers.iter().filter(|signer| !is_signed_by(&signed, *body, signer, *now_s)) {
                let what = format!("the signature of {} with {} is not valid", signer.domain, signer.selector);
                out.add(Check::MessageSignature, domain, what, next);
            }
        }
        // Without From there is already a finding.
        Err(stentor_dkim::SignError::NoFrom) => {}
        Err(error) => out.add(Check::MessageSignature, domain, format!("the message cannot be signed: {error}"), next),
    }
}

fn bulk(lookups: &Lookups, domain: &str, message: &Rendered, out: &mut Findings) -> Lookup<()> {
    if message.values("List-Id").is_empty() {
        let next = "set `List-Id: <NAME.DOMAIN>` in the program that writes the message";
        out.add(Check::ListId, domain, "bulk mail without List-Id", next);
    }
    let links = message.values("List-Unsubscribe").join(",");
    if links.is_empty() {
        let next = "set `one_click = true` for the list ([lists.NAME]) or its sender domain ([senders])";
        let what = "bulk mail without List-Unsubscribe: Gmail, Yahoo and Outlook.com require it of large senders";
        out.add(Check::Unsubscribe, domain, what, next);
        return Ok(());
    }
    let urls = links.split('<').filter_map(|part| part.split('>').next()).map(str::trim);
    let urls: Vec<&str> =
        urls.filter(|url| url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))).collect();
    let posts = message.values("List-Unsubscribe-Post");
    let is_one_click =
        posts.iter().any(|value| value.replace(' ', "").eq_ignore_ascii_case("List-Unsubscribe=One-Click"));
    if urls.is_empty() || !is_one_click {
        let lacks = if urls.is_empty() { "no https link" } else { "no List-Unsubscribe-Post" };
        let next = "set `one_click = true` for the list ([lists.NAME]) or its sender domain ([senders])";
        out.add(Check::OneClick, domain, format!("no one-click unsubscribing: {lacks}"), next);
        return Ok(());
    }
    let answers: Vec<_> = urls.iter().take(LINKS_MAX).map(|url| (url, lookups.page(url))).collect();
    for (url, answer) in answers {
        let why = match answer? {
            Ok(status) if status < 500 => continue,
            Ok(status) => format!("status {status}"),
            Err(why) => why.to_owned(),
        };
        let next = "let the web server answer from outside, with a certificate that is valid for its name";
        out.add(Check::UnsubscribeLink, domain, format!("the unsubscribe link {url} does not work: {why}"), next);
    }
    Ok(())
}
