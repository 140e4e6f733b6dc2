//! DNS records of keys as zone text.

use std::fmt::Write as _;

/// Octets of a string in a TXT record (RFC 1035 section 3.3.14). Verifiers join the strings (RFC 6376 section 3.6.2.2).
const STRING_BYTES_MAX: usize = 255;

/// Returns the name at which the key of a selector is published.
pub fn record_name(selector: &str, domain: &str) -> String {
    format!("{selector}._domainkey.{domain}")
}

/// Returns the record as a line of a zone file, with the text split into strings.
pub fn zone_text(selector: &str, domain: &str, record: &str) -> String {
    let mut text = format!("{}. IN TXT (", record_name(selector, domain));
    let mut rest = record;
    while !rest.is_empty() {
        let (string, more) = rest.split_at(rest.len().min(STRING_BYTES_MAX));
        let _ = write!(text, " \"{string}\"");
        rest = more;
    }
    text.push_str(" )\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, SigningKey};

    #[test]
    fn long_records_are_split() {
        let rsa = SigningKey::generate(Algorithm::RsaSha256).unwrap().key.record();
        let text = zone_text("s1", "example.org", &rsa);
        let strings: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
        assert_eq!((strings.len(), strings[0].len(), strings.concat()), (2, STRING_BYTES_MAX, rsa));
        assert!(text.starts_with("s1._domainkey.example.org. IN TXT ( \"v=DKIM1; k=rsa; p=MII"), "{text}");
        let short = zone_text("e", "example.org", "v=DKIM1; k=ed25519; p=AA==");
        assert_eq!(short, "e._domainkey.example.org. IN TXT ( \"v=DKIM1; k=ed25519; p=AA==\" )\n");
    }
}
