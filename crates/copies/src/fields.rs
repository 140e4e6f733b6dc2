//! Header fields with values of the copy, such as `Feedback-ID: {list}:example`, and the removal of fields that a copy
//! has of its own.
//!
//! Promise: whatever the values, a field is one line of ASCII. Failure: a template that cannot be a field is refused
//! with the configuration ([`FieldError`]).

use stentor_mime::field;

use crate::is_printable;
use crate::template::{CopyTemplateError, CopyValues, Template, Value};
use crate::unsubscribe::UNSUBSCRIBE_FIELDS;

/// Longest line (RFC 5322 section 2.1.1).
const LINE_BYTES_MAX: usize = 998;
const FIELDS_MAX: usize = 20;
/// Fields that only this server writes, beside its own `X-Stentor-...`.
const OF_SERVER: [&str; 3] = ["List-Id", "X-Original-To", "X-Original-From"];

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("`{0}` is not a field; write, for instance, `Feedback-ID: {{list}}:example`")]
    NoColon(String),
    #[error(
        "`{0}` cannot be set for each copy; possible: To, Feedback-ID, names that begin with `X-` or \
        `List-`, except those that this server writes"
    )]
    Name(String),
    #[error("the value has a line break or another control character")]
    Control,
    #[error("`{0}` is set twice")]
    Twice(String),
    #[error("`{{tag}}` is only for `verp`")]
    Tag,
    #[error("more than {FIELDS_MAX} fields")]
    TooMany,
    #[error(transparent)]
    Template(#[from] CopyTemplateError),
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTemplate {
    name: String,
    value: Template,
}

impl FieldTemplate {
    /// Parses `Name: value`, with values of the copy in braces.
    ///
    /// # Errors
    /// The name must not differ by copy, or the value is invalid.
    pub fn parse(text: &str) -> Result<FieldTemplate, FieldError> {
        let (name, value) = text.split_once(':').ok_or_else(|| FieldError::NoColon(text.to_owned()))?;
        let is_token = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let begins = |prefix: &str| {
            name.len() > prefix.len() && name.as_bytes()[..prefix.len()].eq_ignore_ascii_case(prefix.as_bytes())
        };
        let is_named = ["To", "Feedback-ID"].iter().any(|known| name.eq_ignore_ascii_case(known));
        let is_own = is_named || begins("X-") || begins("List-");
        // Lists recognize their own posts by the first; people and programs trust that this server wrote the others.
        let is_kept = OF_SERVER.iter().any(|kept| name.eq_ignore_ascii_case(kept)) || begins("X-Stentor-");
        if !is_token || !is_own || is_kept {
            return Err(FieldError::Name(name.to_owned()));
        }
        if value.chars().any(char::is_control) {
            return Err(FieldError::Control);
        }
        let value = Template::parse(value.trim())?;
        if value.has(Value::Tag) {
            return Err(FieldError::Tag);
        }
        Ok(FieldTemplate { name: name.to_owned(), value })
    }

    /// Whether it is a field of one-click unsubscribing.
    pub fn is_unsubscribe(&self) -> bool {
        UNSUBSCRIBE_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(&self.name))
    }

    /// Whether its value has something that only a list has: its name, or names of its subscribers.
    pub fn needs_list(&self) -> bool {
        self.value.has(Value::List) || self.has_names()
    }

    fn has_names(&self) -> bool {
        self.value.has(Value::Mailbox)
    }
}

/// The fields of a list's or sender's copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyFields {
    fields: Vec<FieldTemplate>,
}

impl CopyFields {
    /// # Errors
    /// There are too many.
    pub fn new(fields: Vec<FieldTemplate>) -> Result<CopyFields, FieldError> {
        if fields.len() > FIELDS_MAX {
            return Err(FieldError::TooMany);
        }
        for (position, field) in fields.iter().enumerate() {
            if fields[..position].iter().any(|other| other.name.eq_ignore_ascii_case(&field.name)) {
                return Err(FieldError::Twice(field.name.clone()));
            }
        }
        Ok(CopyFields { fields })
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| &*field.name)
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether a value has the subscriber's name.
    pub fn uses_names(&self) -> bool {
        self.fields.iter().any(FieldTemplate::has_names)
    }

    /// Whether a value is the list's.
    pub fn uses_list(&self) -> bool {
        self.fields.iter().any(FieldTemplate::needs_list)
    }

    /// Whether a field sets List-Unsubscribe or List-Unsubscribe-Post.
    pub fn has_unsubscribe_field(&self) -> bool {
        self.fields.iter().any(FieldTemplate::is_unsubscribe)
    }

    /// Whether a field describes the list (RFC 2369, RFC 2919).
    pub fn has_list_field(&self) -> bool {
        self.names().any(|name| name.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("List-")))
    }

    pub(crate) fn without_unsubscribe(self) -> CopyFields {
        CopyFields { fields: self.fields.into_iter().filter(|field| !field.is_unsubscribe()).collect() }
    }

    /// Appends the fields of a copy, each one line, folded between encoded words. A field with a character that is not
    /// printable ASCII, or that is too long, is left out: such values are in no address that fits in one.
    pub fn render(&self, values: &CopyValues<'_>, out: &mut Vec<u8>) {
        for field in &self.fields {
            let value = field.value.render(values, "");
            if is_printable(&value) && field.name.len() + 2 + value.len() <= LINE_BYTES_MAX {
                // RFC 2047 section 2: lines with encoded words have at most 76 octets.
                let value = if field.has_names() { value.replace("?= ", "?=\r\n ") } else { value };
                out.extend_from_slice(format!("{}: {value}\r\n", field.name).as_bytes());
            }
        }
    }
}

/// Returns the names of the fields of a header section.
pub(crate) fn names(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    field::lines(header).filter_map(|whole| field::split(whole).map(|(name, _)| name))
}

/// Returns the lines of a header section without the fields of these names; `None` if it has none of them.
pub fn without(header: &[u8], is_removed: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let is_removed = |whole: &[u8]| field::split(whole).is_some_and(|(name, _)| is_removed(name));
    if !field::lines(header).any(&is_removed) {
        return None;
    }
    Some(field::lines(header).filter(|whole| !is_removed(whole)).flatten().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_copys_values() {
        let values = CopyValues {
            sender: "b@l.example",
            membership_sender: "b@l.example",
            recipient: "ann@x.example",
            name: "",
            list: "news",
            message: "9F",
        };
        let fields = ["Feedback-ID: {message}:{list}:example", "X-To:{recipient}"];
        let fields = fields.map(|text| FieldTemplate::parse(text).unwrap());
        let own = CopyFields::new(fields.to_vec()).unwrap();
        let mut out = Vec::new();
        own.render(&values, &mut out);
        assert_eq!(out, b"Feedback-ID: 9F:news:example\r\nX-To: ann@x.example\r\n");
        let mut out = Vec::new();
        own.render(&CopyValues { recipient: "\u{fc}\r\nBcc: x@y", ..values }, &mut out);
        assert_eq!(out, b"Feedback-ID: 9F:news:example\r\n");
    }

    #[test]
    fn names_are_encoded_and_folded_and_add_no_field() {
        let own = CopyFields::new(vec![FieldTemplate::parse("To: {mailbox}").unwrap()]).unwrap();
        assert!(own.uses_names());
        let written = |name: &str, recipient: &str| {
            let values = CopyValues {
                sender: "b@l.example",
                membership_sender: "b@l.example",
                recipient,
                name,
                list: "news",
                message: "9F",
            };
            let mut out = Vec::new();
            own.render(&values, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written("Ann Lee", "ann@x.example"), "To: Ann Lee <ann@x.example>\r\n");
        assert_eq!(written("", "ann@x.example"), "To: ann@x.example\r\n");
        assert_eq!(written("J\u{fc}rgen", "j@x.example"), "To: =?utf-8?Q?J=C3=BCrgen?=\r\n <j@x.example>\r\n");
        let long = written(&"\u{fc}".repeat(60), "j@x.example");
        assert!(long.lines().count() > 2 && long.lines().all(|line| line.len() <= 80), "{long}");
        let hostile = written("x\r\nBcc: y@z", "j@x.example");
        assert!(!hostile.contains("\r\nBcc") && hostile.ends_with("<j@x.example>\r\n"), "{hostile}");
        assert_eq!(written("Ann", "\u{fc}@x.example"), "", "the address does not fit");
    }

    #[test]
    fn wrong_fields() {
        for wrong in [
            "Subject: x",
            "X-: a",
            "X a: b",
            "X-A",
            "From: {recipient}",
            "X-A: {who}",
            "X-A: a\r\nBcc: b",
            "List-Id: <x>",
            "x-stentor-copies: verp=off",
            "X-Stentor-Report: subscriber=<a@b>; list=news",
            "X-STENTOR-Anything: x",
            "x-original-to: a@b",
            "X-Original-From: a@b",
            "X-A: {tag}",
        ] {
            assert!(FieldTemplate::parse(wrong).is_err(), "{wrong}");
        }
        let one = FieldTemplate::parse("X-A: b").unwrap();
        assert_eq!(CopyFields::new(vec![one.clone(); FIELDS_MAX + 1]), Err(FieldError::TooMany));
        assert_eq!(CopyFields::new(vec![one; 2]), Err(FieldError::Twice("X-A".into())));
    }

    #[test]
    fn named_fields_are_removed_with_their_folds() {
        let header = b"A: 1\r\nList-Unsubscribe: <x>,\r\n <y>\r\nB: 2\r\n";
        let is_removed = |name: &[u8]| name.eq_ignore_ascii_case(b"list-unsubscribe");
        assert_eq!(without(header, is_removed).unwrap(), b"A: 1\r\nB: 2\r\n");
        assert_eq!(without(b"A: 1\r\n", is_removed), None);
    }
}
