//! `SASLprep` (RFC 4013): maps names and passwords that look the same to the same octets.

use std::borrow::Cow;

/// Why a text cannot be a name or password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {0} octets")]
    TooLong(usize),
    /// Control characters, private use, mixed directions, or characters outside Unicode 3.2, the version that clients
    /// support.
    #[error("it contains characters that other programs may encode differently (RFC 4013): {0}")]
    Forbidden(String),
}

/// The text in the form for comparison, at most `bytes_max` octets before and after.
pub fn prepare(text: &str, bytes_max: usize) -> Result<Cow<'_, str>, PrepError> {
    if text.len() > bytes_max {
        return Err(PrepError::TooLong(bytes_max));
    }
    let prepared = stringprep::saslprep(text).map_err(|error| PrepError::Forbidden(error.to_string()))?;
    if prepared.is_empty() {
        return Err(PrepError::Empty);
    }
    if prepared.len() > bytes_max {
        return Err(PrepError::TooLong(bytes_max));
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_4013() {
        for (text, wanted) in
            [("I\u{ad}X", "IX"), ("user", "user"), ("USER", "USER"), ("\u{aa}", "a"), ("\u{2168}", "IX")]
        {
            assert_eq!(prepare(text, 255).unwrap(), wanted, "{text:?}");
        }
        assert!(matches!(prepare("\u{7}", 255), Err(PrepError::Forbidden(_))));
        assert!(matches!(prepare("\u{627}\u{31}", 255), Err(PrepError::Forbidden(_))));
    }

    #[test]
    fn nothing_is_no_name_and_lengths_are_limited_before_and_after() {
        assert_eq!(prepare("", 255), Err(PrepError::Empty));
        assert_eq!(prepare("\u{ad}", 255), Err(PrepError::Empty));
        assert_eq!(prepare("abcd", 3), Err(PrepError::TooLong(3)));
        // One character of three octets, which expands to eighteen characters of 33 octets.
        assert_eq!(prepare("\u{fdfa}", 10), Err(PrepError::TooLong(10)));
    }

    proptest! {
        #[test]
        fn preparing_twice_changes_nothing(text in "\\PC{0,40}") {
            if let Ok(once) = prepare(&text, 255) {
                prop_assert_eq!(prepare(&once, 255).unwrap(), once.clone());
            }
        }
    }
}
