//! Edits of header fields: a rule removes fields or replaces their values, for all fields of a name or those whose
//! value matches.
//!
//! A new value may contain parts of the old one (`$1`). It is one line of text, so that it cannot start another
//! field, and is encoded by RFC 2047 if it is not ASCII. Structured fields, such as those with addresses, are matched
//! undecoded and get ASCII only: otherwise a decoded word of a name could become an address.

use std::fmt;

use regex::Regex;
use stentor_mime::charset::Charset;
use stentor_mime::field::Edit;
use stentor_mime::words::{self, CharsetLabel, Form};

use crate::content::{ContentConditionError, Pattern};

/// Fields that cannot be edited: loop detection needs them.
const KEPT: [&str; 4] = ["received", "delivered-to", "list-id", "x-original-list-id"];

/// Maximum parts of the old value in a new one.
const PARTS_MAX: usize = 8;
/// Maximum length of values; longer ones are not changed.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// One edit; see the module documentation.
#[derive(Debug, Clone)]
pub struct FieldEdit {
    field: Box<str>,
    pattern: Option<(Pattern, Regex)>,
    /// New value; `None`: the field is removed.
    value: Option<Box<str>>,
}

/// Why a text is not a valid edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldEditError {
    #[error("{0:?} is not a valid header field name; write Field-Name, or Field-Name: pattern")]
    Field(String),
    #[error("{0} fields cannot be edited: loop detection needs them")]
    Kept(String),
    #[error("{0}")]
    Pattern(#[from] ContentConditionError),
    #[error("write Field-Name: /pattern/ VALUE on one line, with at most {PARTS_MAX} references such as $1")]
    Value,
    #[error("${0}: the pattern has no such group; write ${{1}}x before letters or digits, and $$ for a dollar sign")]
    Group(String),
}

impl FieldEdit {
    /// Parses a removal: `Field-Name` or `Field-Name: pattern`.
    ///
    /// # Errors
    /// The text is not a removal, or the field cannot be edited.
    pub fn removal(text: &str) -> Result<FieldEdit, FieldEditError> {
        match text.split_once(':') {
            Some((field, pattern)) => FieldEdit::new(field.trim_end(), Some(pattern.trim())),
            None => FieldEdit::new(text, None),
        }
    }

    /// Parses a replacement: `Field-Name: /pattern/ value`.
    ///
    /// # Errors
    /// The text is not a replacement, or the field cannot be edited.
    pub fn replacement(text: &str) -> Result<FieldEdit, FieldEditError> {
        let (field, rest) = text.split_once(':').ok_or(FieldEditError::Value)?;
        let rest = rest.trim();
        let end = rest.match_indices("/ ").map(|(at, _)| at).find(|at| *at > 0 && !rest[..*at].ends_with('\\'));
        let (pattern, value) = end.filter(|_| rest.starts_with('/')).map_or((rest, ""), |at| rest.split_at(at + 1));
        let value = value.trim();
        if value.is_empty() || value.contains(char::is_control) || value.matches('$').count() > PARTS_MAX {
            return Err(FieldEditError::Value);
        }
        let edit = FieldEdit { value: Some(value.into()), ..FieldEdit::new(field.trim_end(), Some(pattern))? };
        match edit.pattern.as_ref().and_then(|(_, regex)| unknown_group(regex, value)) {
            Some(group) => Err(FieldEditError::Group(group)),
            None => Ok(edit),
        }
    }

    fn new(field: &str, pattern: Option<&str>) -> Result<FieldEdit, FieldEditError> {
        if field.is_empty() || !field.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*') {
            return Err(FieldEditError::Field(field.to_owned()));
        }
        if KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(field)) {
            return Err(FieldEditError::Kept(field.to_owned()));
        }
        let pattern = pattern.filter(|pattern| !pattern.is_empty()).map(Pattern::contained).transpose()?;
        let pattern = pattern.map(|pattern| pattern.regex().map(|regex| (pattern, regex))).transpose()?;
        Ok(FieldEdit { field: field.into(), pattern, value: None })
    }

    /// Result for a field, whose value may be folded.
    pub fn of(&self, name: &[u8], value: &[u8]) -> Edit {
        if !name.eq_ignore_ascii_case(self.field.as_bytes()) {
            return Edit::None;
        }
        let Some((_, regex)) = &self.pattern else { return Edit::Remove };
        let Some(new) = &self.value else {
            let text = words::decode(&words::unfolded(value), Charset::UNDECLARED).text;
            return if regex.is_match(&text) { Edit::Remove } else { Edit::None };
        };
        if value.len() > VALUE_BYTES_MAX {
            return Edit::None;
        }
        let is_structured = stentor_mime::recode::is_structured(self.field.as_bytes());
        let raw = words::unfolded(value);
        let decoded = (!is_structured).then(|| words::decode(&raw, Charset::UNDECLARED));
        // Words that we cannot decode are passed on unchanged: other programs may decode them.
        let is_as_it_came =
            decoded.as_ref().is_none_or(|decoded| decoded.is_broken || decoded.text.as_bytes() == &*raw);
        let text = decoded.map_or_else(|| String::from_utf8_lossy(&raw).trim().to_owned(), |decoded| decoded.text);
        let Some(found) = regex.captures(&text) else { return Edit::None };
        let mut expanded = String::new();
        found.expand(new, &mut expanded);
        let line = one_line(&expanded);
        if line.len() > VALUE_BYTES_MAX || is_structured && !line.is_ascii() {
            return Edit::None;
        }
        // A decoded text that looks like an encoded word would become one.
        if line.is_ascii() && (is_as_it_came || !line.contains("=?")) {
            return Edit::Replace(line.into_bytes());
        }
        words::encode(&line, CharsetLabel { charset: Charset::UTF_8, label: "utf-8" }, Form::Q)
            .map_or(Edit::None, |words| Edit::Replace(words.into_bytes()))
    }

    /// Name of the fields.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Whether the edit removes fields.
    pub fn is_removal(&self) -> bool {
        self.value.is_none()
    }

    /// Whether the edit removes all fields of this name.
    pub fn removes(&self, name: &str) -> bool {
        self.of(name.as_bytes(), b"") == Edit::Remove
    }

    fn shown(&self) -> Option<&str> {
        self.pattern.as_ref().map(|(pattern, _)| &*pattern.shown)
    }
}

/// The first reference in a value that is not a group of the pattern, by the rules of [`regex::Captures::expand`].
fn unknown_group(regex: &Regex, value: &str) -> Option<String> {
    let mut rest = value;
    while let Some((_, behind)) = rest.split_once('$') {
        if let Some(behind) = behind.strip_prefix('$') {
            rest = behind;
            continue;
        }
        let braced = behind.strip_prefix('{').and_then(|open| open.split_once('}')).map(|(name, _)| name);
        let bare = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
        let name = braced.unwrap_or(&behind[..bare]);
        let is_known = match name.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => name.is_empty() || regex.capture_names().flatten().any(|known| known == name),
        };
        if !is_known {
            return Some(name.to_owned());
        }
        rest = behind;
    }
    None
}

/// Makes a value a single line, so that it cannot start another field.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

impl PartialEq for FieldEdit {
    fn eq(&self, other: &FieldEdit) -> bool {
        self.field.eq_ignore_ascii_case(&other.field) && self.shown() == other.shown() && self.value == other.value
    }
}

impl Eq for FieldEdit {}

impl fmt::Display for FieldEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        self.shown().map_or(Ok(()), |pattern| write!(f, ": {pattern}"))?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, " {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_met(removal: &str, name: &str, value: &str) -> bool {
        FieldEdit::removal(removal).unwrap().of(name.as_bytes(), value.as_bytes()) == Edit::Remove
    }

    #[test]
    fn fields_are_named_alone_or_with_a_pattern() {
        assert!(is_met("X-Spam", "x-spam", " yes") && !is_met("X-Spam", "X-Spam-Score", " 1"));
        assert!(is_met("X-A: bad", "X-A", " some\r\n BAD thing") && !is_met("X-A: bad", "X-A", " good"));
        assert!(is_met("X-A: /^你/", "X-A", " =?utf-8?B?5L2g5aW9?="));
        assert_eq!(FieldEdit::removal("X-A : /b.d/").unwrap().to_string(), "X-A: /b.d/");
        assert_eq!(FieldEdit::removal("X-A:"), FieldEdit::removal("x-a"));
    }

    #[test]
    fn slips_and_what_stops_loops_are_errors() {
        for text in ["", ":", "*", "X A", "*: x"] {
            assert!(matches!(FieldEdit::removal(text), Err(FieldEditError::Field(_))), "{text}");
        }
        for text in ["Received", "received: from x", "Delivered-To", "List-ID"] {
            assert!(matches!(FieldEdit::removal(text), Err(FieldEditError::Kept(_))), "{text}");
        }
        assert!(matches!(FieldEdit::removal("X-A: /(/"), Err(FieldEditError::Pattern(_))));
    }

    fn replaced(edit: &str, name: &str, value: &str) -> Option<String> {
        match FieldEdit::replacement(edit).unwrap().of(name.as_bytes(), value.as_bytes()) {
            Edit::Replace(value) => Some(String::from_utf8(value).unwrap()),
            Edit::None => None,
            Edit::Remove => panic!("it stays"),
        }
    }

    #[test]
    fn a_value_is_replaced_by_one_line_of_text() {
        for (edit, name, value, new) in [
            ("Mime-Version: /^1\\.0/ 1.0", "MIME-Version", " 1.0 (Mail 1.2)", Some("1.0")),
            ("X-Host: /^(\\w+)\\.lan$/ ${1}.example.org", "x-host", " db7.lan", Some("db7.example.org")),
            ("X-Host: /^(\\w+)\\.lan$/ $1", "X-Host", " db7.wan", None),
            ("X-Host: /a/ b", "X-Other", " a", None),
            ("X-A: /a\\/ b/ c", "X-A", " a/ b", Some("c")),
            (
                "Subject: /^(.*)$/ [x] $1",
                "Subject",
                " =?utf-8?Q?Gr=C3=BC=C3=9Fe?=",
                Some("=?utf-8?Q?=5Bx=5D_Gr=C3=BC=C3=9Fe?="),
            ),
            // Text that looks like an encoded word remains text, also when decoded again.
            (
                "Subject: /^(.*)$/ $1",
                "Subject",
                " =?utf-8?Q?=3D=3Futf-8=3FQ=3Foffer=3F=3D?=",
                Some("=?utf-8?Q?=3D=3Futf-8=3FQ=3Foffer=3F=3D?="),
            ),
            ("Subject: /^(.*)$/ [x] $1", "Subject", " =?cp850?Q?Gr=81=E1e?=", Some("[x] =?cp850?Q?Gr=81=E1e?=")),
            ("Subject: /^(.*)$/ [x] $1", "Subject", " =?utf-8?Q?100=_off?=", Some("[x] =?utf-8?Q?100=_off?=")),
            (
                "Return-Receipt-To: /^(.*)$/ $1",
                "Return-Receipt-To",
                " =?utf-8?Q?a=40b.test?=",
                Some("=?utf-8?Q?a=40b.test?="),
            ),
            // Untrusted text cannot start a field.
            ("Subject: /^(.*)/ $1", "Subject", " =?utf-8?Q?a=0D=0ABcc:_eve=40x?=", Some("a")),
            ("Subject: /(?s)^(.*)/ $1", "Subject", " =?utf-8?Q?a=0D=0ABcc:_eve=40x?=", Some("a  Bcc: eve@x")),
        ] {
            assert_eq!(replaced(edit, name, value).as_deref(), new, "{edit} {value}");
        }
        // A display name does not become an address, nor an address a word.
        for from in [" =?utf-8?Q?Gr=C3=BC=C3=9Fe?= <eve@x.test>", " =?utf-8?Q?ceo=40bank.test,?= <eve@x.test>"] {
            assert_eq!(replaced("From: /^(.*)$/ $1", "From", from).as_deref(), Some(from.trim()));
        }
        assert_eq!(replaced("From: /^.*$/ Gr\u{fc}\u{df}e <a@x.test>", "From", " a@x.test"), None);
        assert_eq!(replaced("X-A: /^(.*)$/ [x] $1", "X-A", &"y".repeat(VALUE_BYTES_MAX + 1)), None);
        assert_eq!(replaced("X-A: /^(.*)$/ $1$1", "X-A", &"y".repeat(VALUE_BYTES_MAX)), None);
        for text in ["", "X-A", "X-A: y z", "X-A: /y/", "X-A: /y/ ", "X-A: /y/ a\nb", "X-A: /y/ $1$1$1$1$1$1$1$1$1"] {
            assert_eq!(FieldEdit::replacement(text), Err(FieldEditError::Value), "{text}");
        }
        for (text, group) in [("X-A: /(a)/ $2", "2"), ("X-A: /(a)/ $1b", "1b"), ("X-A: /(?<n>a)/ ${m}", "m")] {
            assert_eq!(FieldEdit::replacement(text), Err(FieldEditError::Group(group.to_owned())), "{text}");
        }
        for text in ["X-A: /(a)/ ${1}b $$ 5", "X-A: /(?<n>a)/ $n $0", "X-A: /a/ 5 $ each"] {
            assert!(FieldEdit::replacement(text).is_ok(), "{text}");
        }
        assert!(matches!(FieldEdit::replacement("Received: /x/ y"), Err(FieldEditError::Kept(_))));
        assert_eq!(FieldEdit::replacement("X-A: /b/  c d").unwrap().to_string(), "X-A: /b/ c d");
    }
}
