//! The quotes of a local part (RFC 5321 section 4.1.2) in a key that was cut out of an address.
//!
//! Only local parts that are quoted for their dots (`"a..b"`, as some carriers use) have a second spelling. Others
//! keep their quotes and are not split at a plus: a comma, for example, would be a separator in a table's value.
//!
//! A key begins with the opening quote. The closing one may be missing if a detail was cut off.

use std::borrow::Cow;

/// Whether a text begins with a local part whose quotes contain only atoms and dots (RFC 5322 section 3.2.3).
pub(super) fn are_for_dots(text: &[u8]) -> bool {
    let inner = text.strip_prefix(b"\"").and_then(|rest| Some(&rest[..rest.iter().position(|&octet| octet == b'"')?]));
    let is_atext =
        |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(octet) || *octet >= 0x80;
    inner.is_some_and(|inner| !inner.is_empty() && inner.iter().all(is_atext))
}

/// Adds the closing quote to a key that begins with a quote.
pub(super) fn close(key: &[u8]) -> Cow<'_, [u8]> {
    if !key.starts_with(b"\"") || key[1..].contains(&b'"') {
        return Cow::Borrowed(key);
    }
    Cow::Owned([key, b"\""].concat())
}

/// Removes the quotes.
pub(super) fn remove(key: &[u8]) -> Vec<u8> {
    key.iter().copied().filter(|&octet| octet != b'"').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_closed_and_removed() {
        for (key, closed, plain) in
            [(r#""a..b"@x"#, r#""a..b"@x"#, "a..b@x"), (r#""a..b"#, r#""a..b""#, "a..b"), ("a.b@x", "a.b@x", "a.b@x")]
        {
            assert_eq!(&*close(key.as_bytes()), closed.as_bytes(), "{key}");
            assert_eq!(remove(key.as_bytes()), plain.as_bytes(), "{key}");
        }
    }

    #[test]
    fn what_else_needs_quotes_keeps_them() {
        for key in [r#""a..b"@x"#, r#"".""#, "\"a..\u{fc}+x/y\"@x"] {
            assert!(are_for_dots(key.as_bytes()), "{key}");
        }
        for key in [
            r#""a b"@x"#,
            r#""a,b"@x"#,
            r#""a\"b"@x"#,
            r#""a@b"@x"#,
            r#"""@x"#,
            r#""a..b"#,
            "a..b@x",
            r#""a:b"@x"#,
            r#""(a)"@x"#,
            r#""a\b"@x"#,
        ] {
            assert!(!are_for_dots(key.as_bytes()), "{key}");
        }
    }
}
