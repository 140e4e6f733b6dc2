//! Texts of the mail that answers commands, in each [`Language`].
//!
//! A text is a subject, an empty line and a body, with values in braces. A line of the body is left out if one of its
//! values is empty. Promise: a value is text on one line; it cannot begin a header field or another line.

use crate::commands::Language;

/// Characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 200;

/// The texts of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    ConfirmJoin,
    ConfirmLeave,
    /// Help for somebody who is not a member.
    HelpToJoin,
    /// Help for a member.
    HelpToLeave,
    Welcome,
    Goodbye,
}

impl ReplyKind {
    pub const ALL: [ReplyKind; 6] = [
        ReplyKind::ConfirmJoin,
        ReplyKind::ConfirmLeave,
        ReplyKind::HelpToJoin,
        ReplyKind::HelpToLeave,
        ReplyKind::Welcome,
        ReplyKind::Goodbye,
    ];
}

/// Values of a text, by their names in braces.
pub(super) type TextValues<'a> = [(&'static str, &'a str)];

/// A text with its values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilledText {
    pub subject: String,
    /// With CRLF line ends.
    pub body: String,
}

macro_rules! texts {
    ($language:literal, $kind:expr) => {
        match $kind {
            ReplyKind::ConfirmJoin => include_str!(concat!("../texts/", $language, "/confirm_join.txt")),
            ReplyKind::ConfirmLeave => include_str!(concat!("../texts/", $language, "/confirm_leave.txt")),
            ReplyKind::HelpToJoin => include_str!(concat!("../texts/", $language, "/help_to_join.txt")),
            ReplyKind::HelpToLeave => include_str!(concat!("../texts/", $language, "/help_to_leave.txt")),
            ReplyKind::Welcome => include_str!(concat!("../texts/", $language, "/welcome.txt")),
            ReplyKind::Goodbye => include_str!(concat!("../texts/", $language, "/goodbye.txt")),
        }
    };
}

fn template(language: Language, kind: ReplyKind) -> &'static str {
    match language {
        Language::English => texts!("en", kind),
        Language::German => texts!("de", kind),
    }
}

/// Fills in a text.
pub(super) fn fill(language: Language, kind: ReplyKind, values: &TextValues<'_>) -> FilledText {
    let (subject, body) = template(language, kind).split_once("\n\n").unwrap_or_default();
    let lines = body.lines().filter_map(|line| filled(line, values));
    let body = lines.fold(String::new(), |body, line| body + &line + "\r\n");
    FilledText { subject: filled(subject.trim(), values).unwrap_or_default(), body }
}

/// A line with its values; `None` if one of them is empty.
fn filled(line: &str, values: &TextValues<'_>) -> Option<String> {
    let mut out = String::with_capacity(line.len() + 64);
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        let (_, value) = values.iter().find(|(known, _)| *known == name)?;
        if value.is_empty() {
            return None;
        }
        out.push_str(before);
        out.extend(value.chars().take(VALUE_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }));
        rest = behind;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 10] =
        ["list", "address", "description", "person", "owner", "members", "link", "leave", "request", "days"];

    #[test]
    fn every_text_has_a_subject_and_known_values_on_short_lines() {
        for (tag, language) in Language::ALL {
            assert_eq!(language.tag(), tag);
            for kind in ReplyKind::ALL {
                let text = template(language, kind);
                let values = NAMES.map(|name| (name, "x"));
                let filled = fill(language, kind, &values);
                assert!(!filled.subject.is_empty() && !filled.body.is_empty(), "{tag} {kind:?}");
                assert!(!filled.subject.contains('{') && !filled.body.contains('{'), "{tag} {kind:?}");
                let count = text.split_once("\n\n").unwrap().1.lines().count();
                assert_eq!(filled.body.lines().count(), count, "{tag} {kind:?}: an unknown value");
                assert!(text.lines().all(|line| line.chars().count() <= 78), "{tag} {kind:?}");
            }
        }
    }

    #[test]
    fn a_line_without_its_value_is_left_out() {
        let values = [("a", "1"), ("b", "")];
        assert_eq!(filled("{a} and {a}", &values).as_deref(), Some("1 and 1"));
        assert_eq!(filled("{a} and {b}", &values), None);
        assert_eq!(filled("plain", &values).as_deref(), Some("plain"));
    }

    proptest! {
        #[test]
        fn no_value_makes_a_line(value in any::<String>()) {
            for kind in ReplyKind::ALL {
                let values = NAMES.map(|name| (name, value.as_str()));
                let filled = fill(Language::German, kind, &values);
                prop_assert!(!filled.subject.contains(['\r', '\n']));
                prop_assert!(!filled.body.replace("\r\n", "").contains(['\r', '\n']));
            }
        }
    }
}
