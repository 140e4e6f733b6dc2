//! The octets of AUTH: base64 lines (RFC 4954 section 4), and secret values that are never printed.
//!
//! Promise: only canonical base64 with its padding is accepted (RFC 4648 section 3.5), so a response has one form. A
//! [`SecretBytes`] is never shown, and is overwritten on drop.

use std::fmt;

use base64ct::{Base64, Encoding};
use zeroize::Zeroize;

/// Longest line of an exchange in octets, including its CRLF (RFC 4954 section 4).
pub const AUTH_LINE_BYTES_MAX: usize = 12_288;

/// Octets that may be a password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    pub fn new(octets: Vec<u8>) -> Self {
        Self(octets)
    }

    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Decodes a response; `None` if it is not base64.
pub(super) fn decode(text: &[u8]) -> Option<SecretBytes> {
    let text = std::str::from_utf8(text).ok()?;
    Base64::decode_vec(text).ok().map(SecretBytes)
}

/// Decodes the initial response of an AUTH command: `=` is an empty one.
pub(super) fn decode_initial(text: &[u8]) -> Option<SecretBytes> {
    if text == b"=" { Some(SecretBytes::default()) } else { decode(text).filter(|response| !response.0.is_empty()) }
}

/// Appends the 334 with a challenge.
pub(super) fn write_challenge(challenge: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"334 ");
    out.extend_from_slice(Base64::encode_string(challenge).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_form_of_each_response() {
        assert_eq!(decode(b"AGFubgB4"), Some(SecretBytes::new(b"\0ann\0x".to_vec())));
        assert_eq!(decode(b""), Some(SecretBytes::default()));
        assert_eq!(decode_initial(b"="), Some(SecretBytes::default()));
        for bad in
            [&b"="[..], b"YQ", b"YQ=", b"YR==", b"YQ==YQ==", b"Y Q=", b" YQ==", b"YQ==\0", b"*", b"\xff", b"YQ-_"]
        {
            assert_eq!(decode(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(decode_initial(b""), None);
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", decode(b"c2VjcmV0")), "Some(Secret(..))");
    }

    proptest! {
        #[test]
        fn what_is_decoded_was_encoded(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut line = Vec::new();
            write_challenge(&octets, &mut line);
            prop_assert_eq!(decode(&line[4..line.len() - 2]), Some(SecretBytes::new(octets)));
        }

        #[test]
        fn decoding_never_panics_and_has_an_inverse(text in "[A-Za-z0-9+/= *]{0,24}") {
            if let Some(secret) = decode(text.as_bytes()) {
                prop_assert_eq!(Base64::encode_string(secret.octets()), text);
            }
        }
    }
}
