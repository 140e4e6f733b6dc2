//! Fingerprints of certificates, as written by the operator.

use std::fmt;

/// Length of a SHA-256.
pub const SHA256_BYTES: usize = 32;

/// SHA-256 of a certificate or of its public key (`SubjectPublicKeyInfo`), both in DER. It may be either, since one
/// hash cannot match both: a host is proven if one of the two is equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; SHA256_BYTES]);

/// The text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a SHA-256 fingerprint: write 64 hexadecimal digits, with or without colons (`openssl x509 \
     -fingerprint -sha256`)"
)]
pub struct FingerprintError(String);

impl Fingerprint {
    /// Parses 64 hexadecimal digits in either case, with or without colons between pairs, optionally after `sha256:`
    /// or openssl's `sha256 Fingerprint=`.
    pub fn parse(text: &str) -> Result<Fingerprint, FingerprintError> {
        let error = || FingerprintError(text.chars().take(120).collect());
        let digits = without_prefix(text.trim(), "sha256 fingerprint=");
        let digits = without_prefix(digits, "sha256:");
        let has_colons = digits.contains(':');
        let mut hash = [0; SHA256_BYTES];
        let mut octets = hash.iter_mut();
        let mut rest = digits.as_bytes();
        loop {
            let (&[high, low], after) = rest.split_first_chunk::<2>().ok_or_else(error)?;
            *octets.next().ok_or_else(error)? = digit(high).ok_or_else(error)? << 4 | digit(low).ok_or_else(error)?;
            rest = match after {
                [] => break,
                [b':', after @ ..] if has_colons => after,
                after if !has_colons => after,
                _ => return Err(error()),
            };
        }
        if octets.next().is_some() { Err(error()) } else { Ok(Fingerprint(hash)) }
    }
}

fn without_prefix<'a>(text: &'a str, prefix: &str) -> &'a str {
    match text.get(..prefix.len()) {
        Some(start) if start.eq_ignore_ascii_case(prefix) => text[prefix.len()..].trim_start(),
        _ => text,
    }
}

fn digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).map(|d| d as u8)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, octet) in self.0.iter().enumerate() {
            write!(out, "{}{octet:02X}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_of_openssl_and_postfix_are_read() {
        let plain = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
        let first = Fingerprint::parse(plain).unwrap();
        assert_eq!(first.0[..3], [0x00, 0x11, 0x22]);
        let colons = first.to_string();
        assert_eq!(colons.len(), 95);
        for form in
            [colons.clone(), format!("sha256 Fingerprint={colons}"), format!("SHA256:{plain}"), format!(" {plain} ")]
        {
            assert_eq!(Fingerprint::parse(&form), Ok(first), "{form}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let plain = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        let mixed = format!("00:11{}", &plain[4..]);
        for bad in [
            "",
            "00",
            &plain[2..],
            &plain[1..],
            &format!("{plain}00"),
            &mixed,
            &format!("{plain}:"),
            &plain.replace('a', "g"),
            "é",
        ] {
            assert!(Fingerprint::parse(bad).is_err(), "{bad}");
        }
        // SHA-1, Postfix's former default.
        assert!(Fingerprint::parse("AF:45:8B:1B:16:F2:5D:1D:26:71:A3:55:8E:11:54:50:A6:A8:C4:E0").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,100}") {
            let _ = Fingerprint::parse(&text);
        }

        #[test]
        fn what_is_printed_is_read_again(hash: [u8; SHA256_BYTES]) {
            prop_assert_eq!(Fingerprint::parse(&Fingerprint(hash).to_string()), Ok(Fingerprint(hash)));
        }
    }
}
