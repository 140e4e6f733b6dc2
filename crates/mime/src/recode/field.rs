//! Rewrites header fields with octets over 127, NULs or overlong words. They are encoded where a standard allows it
//! (RFC 2047, RFC 2231; for length alone only where readers are known to decode it); otherwise the octets become `?`,
//! and long words are left for [`super::fold`] to break.
//!
//! Addresses are never changed: mail to a changed address would go to another recipient.

use crate::quoted::escaped;

use super::fold::{self, Syntax};
use super::text::{self, Needs, TextContext};
use super::{ConvertError, Octets, addresses, params, without_end};

/// Maximum length of a name that is escaped, so that the line stays below 998 octets.
const NAME_BYTES_MAX: usize = 150;

/// Fields of addresses and phrases: only the phrases and comments are encoded.
const ADDRESS_FIELDS: [&str; 18] = [
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "resent-from",
    "resent-sender",
    "resent-to",
    "resent-cc",
    "resent-bcc",
    "resent-reply-to",
    "mail-followup-to",
    "mail-reply-to",
    "disposition-notification-to",
    "errors-to",
    "return-receipt-to",
    "apparently-to",
];
/// Fields with a value and parameters.
const PARAMETER_FIELDS: [&str; 2] = ["content-type", "content-disposition"];
/// Fields read by programs, which would not decode an encoding.
const MACHINE_FIELDS: [&str; 14] = [
    "received",
    "return-path",
    "message-id",
    "in-reply-to",
    "references",
    "date",
    "mime-version",
    "content-id",
    "content-transfer-encoding",
    "dkim-signature",
    "authentication-results",
    "arc-seal",
    "arc-message-signature",
    "arc-authentication-results",
];

/// Name prefixes of other fields read by programs.
const MACHINE_BEGINS: [&str; 4] = ["resent-", "content-", "list-", "arc-"];

/// Whether a field is read by programs: its value is never decoded as a whole, since a word of a name could become an
/// address.
pub fn is_structured(name: &[u8]) -> bool {
    let is_in = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let begins = |with: &&str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()));
    let is_for_programs = is_in(&ADDRESS_FIELDS) || is_in(&MACHINE_FIELDS) || MACHINE_BEGINS.iter().any(begins);
    is_for_programs && !is_in(&TEXT_FIELDS)
}

/// Splits a field into name and value.
pub(super) fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b':', field)?;
    Some((field[..at].trim_ascii_end(), &field[at + 1..]))
}

/// Appends a field (including folds and line end) with only the allowed octets, in lines that are not too long.
///
/// # Errors
/// An address would need octets that are not allowed. With [`Octets::Lossy`] it gets `?`.
pub(super) fn write(raw: &[u8], octets: Octets, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    // The line end is not part of the value: unclosed quotes must not include it.
    let text = without_end(raw);
    let end = &raw[text.len()..];
    let mut field = Vec::with_capacity(raw.len() + raw.len() / 8);
    let Some((name, value)) = split(text) else {
        // Not a field at all.
        octets.push(raw, &mut field);
        fold::write(&field, Syntax::Text, out);
        return Ok(());
    };
    write_name(name, octets, &mut field);
    field.push(b':');
    let is_in = |names: &[&str]| names.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()));
    if is_in(&MACHINE_FIELDS) {
        octets.push(value, &mut field);
    } else if is_in(&PARAMETER_FIELDS) {
        params::write(value, octets, &mut field);
    } else if is_in(&ADDRESS_FIELDS) {
        let start = field.len();
        match addresses::write(value, octets, &mut field) {
            Err(_) if octets == Octets::Lossy => {
                field.truncate(start);
                octets.push(value, &mut field);
            }
            written => written?,
        }
    } else {
        let needs = if is_in(&TEXT_FIELDS) { Needs::of(octets) } else { Needs::of_any_length(octets) };
        text::write(value, needs, TextContext::Value, &mut field);
    }
    field.extend_from_slice(end);
    fold::write(&field, syntax(name), out);
    Ok(())
}

/// Where a field may be folded.
fn syntax(name: &[u8]) -> Syntax {
    let is_in = |names: &[&str]| names.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()));
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    let is_signature = || name.to_ascii_lowercase().ends_with(b"dkim-signature");
    if is_in(&ID_FIELDS) {
        Syntax::Ids
    } else if is_in(&TAG_FIELDS) || is_signature() {
        Syntax::Tags
    } else if is_in(&PARAMETER_FIELDS) {
        Syntax::Parameters
    } else if is_in(&ADDRESS_FIELDS) || begins(LIST) {
        // Of white space within the URLs of `List-` fields RFC 2369 section 2 says that readers skip it.
        Syntax::Addresses
    } else if is_in(&MACHINE_FIELDS) {
        Syntax::Structured
    } else {
        Syntax::Text
    }
}

/// Fields of identifiers (RFC 5322 section 3.6.4).
const ID_FIELDS: [&str; 5] = ["message-id", "in-reply-to", "references", "content-id", "resent-message-id"];
/// Fields of tags (RFC 6376 section 3.2), beside those whose names end with that of DKIM's.
const TAG_FIELDS: [&str; 2] = ["arc-seal", "arc-message-signature"];

/// Fields of text for people, whose readers decode it (RFC 2047 section 5). In any other a long word may be for a
/// program, such as a key in base64, which an encoding would destroy.
const TEXT_FIELDS: [&str; 4] = ["subject", "comments", "keywords", "content-description"];

/// Prefix of the fields of RFC 2369 and RFC 2919.
const LIST: &[u8] = b"List-";

/// RFC 5322 2.2 and RFC 6532 both require 7-bit names. Any other name is escaped reversibly, so that different names
/// stay different.
fn write_name(name: &[u8], octets: Octets, out: &mut Vec<u8>) {
    if octets == Octets::Keep || name.len() > NAME_BYTES_MAX {
        return octets.push(name, out);
    }
    for &b in name {
        match b {
            1..0x80 => out.push(b),
            _ => out.extend_from_slice(&escaped(b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(field: &str) -> String {
        let mut out = Vec::new();
        write(format!("{field}\r\n").as_bytes(), Octets::SevenBit, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn text_becomes_encoded_words() {
        assert_eq!(converted("Subject: a é ü b"), "Subject: a =?utf-8?Q?=C3=A9_=C3=BC?= b");
        assert_eq!(converted("X-A: é\r\n é  c\r\n d"), "X-A: =?utf-8?Q?=C3=A9_=C3=A9?=  c\r\n d");
        let long = converted(&format!("Subject: {}", "é".repeat(50)));
        assert!(long.split("\r\n").all(|line| line.len() < 90) && long.matches("=?utf-8?Q?").count() > 4);
        let mut out = Vec::new();
        write(b"Subject: \xff\r\n", Octets::SevenBit, &mut out).unwrap();
        assert_eq!(out, b"Subject: =?unknown-8bit?Q?=FF?=\r\n");
    }

    #[test]
    fn addresses_are_kept() {
        assert_eq!(
            converted("From: \"Ré, \\\"x\" <a@b.org>, Zoé Q <c@d.org> (né é), e@f.org"),
            "From: =?utf-8?Q?R=C3=A9=2C_=22x?= <a@b.org>, =?utf-8?Q?Zo=C3=A9?= Q <c@d.org> \
             (=?utf-8?Q?n=C3=A9_=C3=A9?=), e@f.org"
        );
        for bad in ["To: é@b.org", "To: x <é@b.org>", "To: \"é\"@b.org", "To: a@é.org"] {
            let result = write(bad.as_bytes(), Octets::SevenBit, &mut Vec::new());
            assert_eq!(result, Err(ConvertError::EightBitAddress), "{bad}");
            let mut out = Vec::new();
            write(bad.as_bytes(), Octets::Lossy, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), bad.replace('é', "??"));
        }
    }

    #[test]
    fn parameters_are_extended() {
        assert_eq!(
            converted("Content-Disposition: attachment; filename=\"é;.txt\"; size=1"),
            "Content-Disposition: attachment; filename*=utf-8''%C3%A9%3B.txt; size=1"
        );
        assert_eq!(
            converted("Content-Type: text/plain;\r\n name=ü"),
            "Content-Type: text/plain;\r\n name*=utf-8''%C3%BC"
        );
        let long = converted(&format!("Content-Type: x/y; name=\"{}\"", "é".repeat(900)));
        assert!(long.contains("name*0*=utf-8''%C3") && long.contains("\r\n name*8*=%C3"));
        assert!(long.split("\r\n").all(|line| line.len() < 998));
    }

    #[test]
    fn lines_that_grow_are_folded() {
        for field in [
            format!("X-A: {} é", "a ".repeat(450)),
            format!("From: {} <a@b>", "é\"é\"".repeat(150)),
            format!("Content-Type: a/b{}; c=é", "; d=e".repeat(170)),
        ] {
            let converted = converted(&field);
            assert!(converted.split("\r\n").all(|line| line.len() < 998), "{converted}");
            assert!(converted.split("\r\n").skip(1).all(|line| line.starts_with(' ') && line.len() > 2));
        }
    }

    /// Two names written with `?` could become equal, and the original would be lost.
    #[test]
    fn names_stay_apart() {
        assert_eq!(converted("X-é: a"), "X-=C3=A9: a");
        assert_eq!(converted("X-è : é"), "X-=C3=A8: =?utf-8?Q?=C3=A9?=");
        assert_eq!(converted("X-\0: a\0b c"), "X-=00: =?utf-8?Q?a=00b?= c");
        let long = converted(&format!("{}: a", "é".repeat(490)));
        assert!(long.is_ascii() && long.len() < 998 && long.ends_with("?: a"), "{}", long.len());
    }

    #[test]
    fn what_programs_read_is_masked() {
        assert_eq!(converted("Received: from é (x)"), "Received: from ?? (x)");
        assert_eq!(converted("no field é"), "no field ??");
    }
}
