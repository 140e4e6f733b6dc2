//! DNS records of keys as zone text.

use std::fmt::Write as _;

use crate::verify::KeyRecord;

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

/// Whether a TXT record publishes the key of `record`, a text that [`SigningKey::record`](crate::SigningKey::record)
/// has made. Other tags that leave the key usable are accepted: operators add `t=s` or `n=`.
pub fn is_published_by(record: &str, text: &[u8]) -> bool {
    let (Ok(ours), Ok(theirs)) = (KeyRecord::parse(record.as_bytes()), KeyRecord::parse(text)) else { return false };
    let is_usable = theirs.hashes_without_sha256().is_none() && theirs.services_without_email().is_none();
    is_usable && !ours.key.is_empty() && ours.key_type() == theirs.key_type() && ours.key == theirs.key
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

    #[test]
    fn a_record_with_the_same_key_publishes_it() {
        let record = SigningKey::generate(Algorithm::RsaSha256).unwrap().key.record();
        let (start, end) = record.split_at(100);
        let (_, public) = record.split_once("p=").unwrap();
        for text in [
            record.clone(),
            format!("{start} {end}"),
            format!("{record};"),
            format!("{record}; t=s; n=ours"),
            format!("p={public}"),
            format!("v=DKIM1; h=sha256; s=email; p={public}"),
        ] {
            assert!(is_published_by(&record, text.as_bytes()), "{text}");
        }
        for text in [
            String::new(),
            "v=DKIM1; k=rsa; p=".to_owned(),
            format!("v=DKIM1; k=ed25519; p={public}"),
            format!("v=DKIM1; k=rsa; p={}", &public[..public.len() - 4]),
            format!("v=DKIM1; h=sha1; p={public}"),
            format!("v=DKIM1; s=other; p={public}"),
            format!("p={public}; v=DKIM1"),
            format!("v=DKIM2; p={public}"),
        ] {
            assert!(!is_published_by(&record, text.as_bytes()), "{text}");
        }
        assert!(!is_published_by(&record, b"\xff"));
        assert!(!is_published_by("v=DKIM1; p=", b"v=DKIM1; p="), "a revoked key");
    }
}
