//! The addresses that a user may send as.
//!
//! Forms: an address (`ann@example.org`), a domain (`@example.org`), or either with `*` for any characters: in the
//! local part `*-bounces@example.org`, in the domain `@*.example.org` (all subdomains, but not itself); `*` alone is
//! any address. A `*` does not match the `@`. Case is ignored, also in local parts: the owner of `ann@` owns `Ann@`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use stentor_mail::address::{Address, PATH_BYTES_MAX, unquote};

/// An address or pattern that a user may send as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendAs {
    /// In lower case; `None` for any.
    local: Option<Box<str>>,
    domain: Option<Box<str>>,
}

/// Why a text is not one of the forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendAsError {
    #[error("{0:?} is neither an address nor @domain, *@domain or *")]
    Form(String),
    #[error("the address is longer than {PATH_BYTES_MAX} octets")]
    TooLong,
}

/// Whether the text matches the pattern. Only the last `*` is retried, so the cost is at most the product of both
/// lengths, some ten thousand.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // The place of the last `*`, and the end of its match.
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, swallowed)) = star {
            star = Some((at, swallowed + 1));
            (p, t) = (at + 1, swallowed + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|octet| *octet == b'*')
}

impl SendAs {
    /// The address of a user whose name is an address. Names are not patterns, whoever chose them: `*` owns nothing,
    /// and neither does `@example.org`.
    pub fn of_name(name: &str) -> Option<SendAs> {
        let is_pattern = name.contains('*') || name.starts_with('@');
        name.parse().ok().filter(|_| !is_pattern)
    }

    /// Whether the user may send as this address.
    pub fn covers(&self, address: &Address) -> bool {
        let fits_text = |local: &str, text: &str| {
            // Nearly all are already in lower case.
            if text.bytes().any(|octet| octet.is_ascii_uppercase()) || !text.is_ascii() {
                fits(local, &text.to_lowercase())
            } else {
                fits(local, text)
            }
        };
        // People write `a..b@` for what a session calls `"a..b"@`.
        let bare = unquote(address.local());
        let fits_local = |local: &str| {
            fits_text(local, address.local()) || matches!(&bare, Cow::Owned(bare) if fits_text(local, bare))
        };
        self.domain.as_deref().is_none_or(|domain| fits(domain, address.domain()))
            && self.local.as_deref().is_none_or(fits_local)
    }
}

impl FromStr for SendAs {
    type Err = SendAsError;

    fn from_str(text: &str) -> Result<SendAs, SendAsError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(SendAsError::TooLong);
        }
        let form = || SendAsError::Form(text.to_owned());
        if text == "*" {
            return Ok(SendAs { local: None, domain: None });
        }
        let (local, domain) = text.rsplit_once('@').ok_or_else(form)?;
        // A valid pattern becomes an address if each `*` is replaced by a letter.
        let example = format!("{}@{}", if local.is_empty() { "x" } else { local }, domain).replace('*', "x");
        let canonical: Address = example.parse().map_err(|_| form())?;
        let is_pattern = text.contains('*');
        let domain = if is_pattern { domain.to_ascii_lowercase() } else { canonical.domain().to_owned() };
        // A pattern is not converted to A-labels; it must have them.
        if !domain.is_ascii() || domain.is_empty() {
            return Err(form());
        }
        let local = match local {
            "" | "*" => None,
            some if is_pattern => Some(some.to_lowercase().into_boxed_str()),
            _ => Some(canonical.local().to_lowercase().into_boxed_str()),
        };
        Ok(SendAs { local, domain: Some(domain.into_boxed_str()).filter(|domain| **domain != *"*") })
    }
}

impl fmt::Display for SendAs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.local, &self.domain) {
            (None, None) => out.write_str("*"),
            (None, Some(domain)) => write!(out, "@{domain}"),
            (Some(local), domain) => write!(out, "{local}@{}", domain.as_deref().unwrap_or("*")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covers(pattern: &str, address: &str) -> bool {
        pattern.parse::<SendAs>().unwrap().covers(&address.parse().unwrap())
    }

    #[test]
    fn an_address_is_itself_and_a_domain_all_of_it() {
        assert!(covers("ann@example.org", "ann@example.org") && covers("Ann@Example.org", "aNN@eXample.ORG"));
        assert!(!covers("ann@example.org", "bob@example.org") && !covers("ann@example.org", "ann@sub.example.org"));
        assert!(!covers("ann@example.org", "ann+x@example.org"));
        assert!(covers("@example.org", "any@example.org") && !covers("@example.org", "any@sub.example.org"));
        assert!(covers("ann@b\u{fc}cher.example", "ann@xn--bcher-kva.example"));
        assert!(covers("*", "any@where.example"));
        for (pattern, address) in [
            ("a..b@x.example", "\"a..b\"@x.example"),
            ("\"a..b\"@x.example", "A..b@x.example"),
            ("a..*@x.example", "a..b@x.example"),
            ("\"a..*\"@x.example", "a..b@x.example"),
            ("*.@x.example", "a.@x.example"),
        ] {
            assert!(covers(pattern, address), "{pattern} {address}");
        }
    }

    #[test]
    fn a_name_is_an_address_and_no_pattern() {
        assert_eq!(SendAs::of_name("ann@example.org"), "ann@example.org".parse().ok());
        for name in ["*", "@example.org", "*@example.org", "ann@*", "@*.example.org", "ann"] {
            assert_eq!(SendAs::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_star_stands_for_characters_of_its_part() {
        assert!(covers("*-bounces@example.org", "list-bounces@example.org"));
        assert!(!covers("*-bounces@example.org", "list-bounces@evil.example"));
        assert!(covers("ann+*@example.org", "ann+x@example.org") && !covers("ann+*@example.org", "ann@example.org"));
        assert!(covers("@*.example.org", "a@b.example.org") && !covers("@*.example.org", "a@example.org"));
        assert!(!covers("@*.example.org", "a@evilexample.org"));
        assert!(covers("list-*-*@example.org", "list-a-b-c@example.org"));
        assert!(covers("news@*", "news@any.example") && !covers("news@*", "bob@any.example"));
        assert!(!covers("*@example.org", "\"a@example.org\"@evil.example"));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in ["", "ann", "@", "ann@", "a b@example.org", "ann@exa mple.org", "@b\u{fc}*.example", "a@b@c", "**"] {
            assert!(bad.parse::<SendAs>().is_err(), "{bad:?}");
        }
        assert_eq!(format!("{}@x.example", "a".repeat(300)).parse::<SendAs>(), Err(SendAsError::TooLong));
    }

    /// The definition, as a reference for the test.
    fn fits_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                fits_slowly(&pattern[1..], text) || (!text.is_empty() && fits_slowly(pattern, &text[1..]))
            }
            (Some(p), Some(t)) => p == t && fits_slowly(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_fit_as_defined(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(fits(&pattern, &text), fits_slowly(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn what_is_shown_is_read_back(text in "[a-z*+.]{0,8}@[a-z*.]{1,12}") {
            if let Ok(one) = text.parse::<SendAs>() {
                prop_assert_eq!(one.to_string().parse::<SendAs>().unwrap(), one);
            }
        }
    }
}
