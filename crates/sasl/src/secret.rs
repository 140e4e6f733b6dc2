//! Secrets in memory: wiped when dropped, hidden, compared in constant time.

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A password or token. `Debug` only shows that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: String) -> Secret {
        Secret(Zeroizing::new(text))
    }

    /// The secret itself, for checking or sending it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Converts octets, if they are UTF-8. The caller must wipe the octets.
    pub fn from_utf8(octets: &[u8]) -> Option<Secret> {
        std::str::from_utf8(octets).ok().map(Secret::from)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

/// Whether both are the same, in a time that only depends on their lengths.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::from("pencil")), "Secret(..)");
        assert_eq!(Secret::from_utf8(b"pencil").unwrap().expose(), "pencil");
        assert_eq!(Secret::from_utf8(b"\xff"), None);
    }

    #[test]
    fn octets_are_compared() {
        assert!(is_same(b"abc", b"abc"));
        assert!(!is_same(b"abc", b"abd"));
        assert!(!is_same(b"abc", b"abcd"));
        assert!(is_same(b"", b""));
    }
}
