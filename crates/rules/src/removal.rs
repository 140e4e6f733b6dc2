//! Header fields that a rule takes out of a message: all of a name, or those whose decoded value matches.

use std::fmt;

use regex::Regex;
use stentor_mime::charset::Charset;
use stentor_mime::words;

use crate::content::{ContentError, Pattern};

/// Loops are found by these: a message without them could go round for ever.
const KEPT: [&str; 3] = ["received", "delivered-to", "list-id"];

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Removal {
    field: Box<str>,
    pattern: Option<(Pattern, Regex)>,
}

/// Why a text names no fields to remove.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemovalError {
    #[error("{0:?} is no header field: write Field-Name, or Field-Name: pattern")]
    Field(String),
    #[error("{0} fields are what stops loops, and stay")]
    Kept(String),
    #[error("{0}")]
    Pattern(#[from] ContentError),
}

impl Removal {
    /// `Field-Name`, `Field-Name: pattern`
    ///
    /// # Errors
    /// It is neither, or the field stays.
    pub fn parse(text: &str) -> Result<Removal, RemovalError> {
        let (field, pattern) = match text.split_once(':') {
            Some((field, pattern)) => (field.trim_end(), Some(pattern.trim())),
            None => (text, None),
        };
        if field.is_empty() || !field.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*') {
            return Err(RemovalError::Field(text.to_owned()));
        }
        if KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(field)) {
            return Err(RemovalError::Kept(field.to_owned()));
        }
        let pattern = pattern.filter(|pattern| !pattern.is_empty()).map(Pattern::contained).transpose()?;
        let pattern = pattern.map(|pattern| pattern.regex().map(|regex| (pattern, regex))).transpose()?;
        Ok(Removal { field: field.into(), pattern })
    }

    /// Whether a field is meant; its value may have folds.
    pub fn is_met(&self, name: &[u8], value: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.field.as_bytes())
            && self.pattern.as_ref().is_none_or(|(_, regex)| {
                regex.is_match(&words::decode(&words::unfolded(value), Charset::UNDECLARED).text)
            })
    }

    fn shown(&self) -> Option<&str> {
        self.pattern.as_ref().map(|(pattern, _)| &*pattern.shown)
    }
}

impl PartialEq for Removal {
    fn eq(&self, other: &Removal) -> bool {
        self.field.eq_ignore_ascii_case(&other.field) && self.shown() == other.shown()
    }
}

impl Eq for Removal {}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        self.shown().map_or(Ok(()), |pattern| write!(f, ": {pattern}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_met(removal: &str, name: &str, value: &str) -> bool {
        Removal::parse(removal).unwrap().is_met(name.as_bytes(), value.as_bytes())
    }

    #[test]
    fn fields_are_named_alone_or_with_a_pattern() {
        assert!(is_met("X-Spam", "x-spam", " yes") && !is_met("X-Spam", "X-Spam-Score", " 1"));
        assert!(is_met("X-A: bad", "X-A", " some\r\n BAD thing") && !is_met("X-A: bad", "X-A", " good"));
        assert!(is_met("X-A: /^你/", "X-A", " =?utf-8?B?5L2g5aW9?="));
        assert_eq!(Removal::parse("X-A : /b.d/").unwrap().to_string(), "X-A: /b.d/");
        assert_eq!(Removal::parse("X-A:"), Removal::parse("x-a"));
    }

    #[test]
    fn slips_and_what_stops_loops_are_errors() {
        for text in ["", ":", "*", "X A", "*: x"] {
            assert!(matches!(Removal::parse(text), Err(RemovalError::Field(_))), "{text}");
        }
        for text in ["Received", "received: from x", "Delivered-To", "List-ID"] {
            assert!(matches!(Removal::parse(text), Err(RemovalError::Kept(_))), "{text}");
        }
        assert!(matches!(Removal::parse("X-A: /(/"), Err(RemovalError::Pattern(_))));
    }
}
