//! The line about one recipient of a bounce or complaint that came to a list: written to log and history, and read from
//! the history for complaint rates.
//!
//! ```text
//! report: list=news, to=<ann@host.example>, proven, action=complained, cause=content, rule=none, from=l.example: abuse
//! ```
//!
//! Promise: what [`ReportNote::write`] wrote, [`ReportNote::read`] reads; names and addresses are escaped, so that a
//! report cannot forge a field. Lines of versions without `from` are read, too.

use std::borrow::Cow;

use stentor_records::escape::{field, unescaped};

use crate::message::ReportAction;

/// Longest text, address or name in a line, in octets.
const FIELD_BYTES_MAX: usize = 512;
const PREFIX: &str = "report: list=";
const NO_RULE: &str = "none";

/// Whether the tag of the return path proves that the recipient got a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportProof {
    Proven,
    /// Anybody may have sent the report.
    Unproven,
    /// A proven complaint of somebody who has complained before.
    Repeated,
}

impl ReportProof {
    pub fn name(self) -> &'static str {
        match self {
            ReportProof::Proven => "proven",
            ReportProof::Unproven => "unproven",
            ReportProof::Repeated => "repeated",
        }
    }
}

/// What a message to a list's bounce address says about one recipient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportNote<'a> {
    pub list: Cow<'a, str>,
    pub recipient: Cow<'a, str>,
    pub proof: ReportProof,
    /// A name of [`ReportAction`].
    pub action: &'a str,
    /// A name of [`crate::BounceCause`].
    pub cause: &'a str,
    /// The rule that named the cause; may be empty.
    pub rule: Cow<'a, str>,
    /// Domain of the list's sender; empty in lines of older versions.
    pub sender_domain: Cow<'a, str>,
    pub text: &'a str,
}

impl<'a> ReportNote<'a> {
    pub fn write(&self) -> String {
        let name = |text: &str| field(text, FIELD_BYTES_MAX);
        let text = &self.text[..self.text.floor_char_boundary(FIELD_BYTES_MAX)];
        format!(
            "{PREFIX}{}, to=<{}>, {}, action={}, cause={}, rule={}, from={}: {text}",
            name(&self.list),
            name(&self.recipient),
            self.proof.name(),
            self.action,
            self.cause,
            if self.rule.is_empty() { NO_RULE.to_owned() } else { name(&self.rule) },
            name(&self.sender_domain)
        )
    }

    /// Reads a line; `None`: it is another note.
    pub fn read(line: &'a str) -> Option<ReportNote<'a>> {
        let (fields, text) = line.strip_prefix(PREFIX)?.split_once(": ")?;
        let mut fields = fields.split(", ");
        let list = unescaped(fields.next()?);
        let recipient = unescaped(fields.next()?.strip_prefix("to=<")?.strip_suffix('>')?);
        let proof = match fields.next()? {
            "proven" => ReportProof::Proven,
            "unproven" => ReportProof::Unproven,
            "repeated" => ReportProof::Repeated,
            _ => return None,
        };
        let action = fields.next()?.strip_prefix("action=")?;
        let cause = fields.next()?.strip_prefix("cause=")?;
        let rule = fields.next()?.strip_prefix("rule=").filter(|rule| *rule != NO_RULE).unwrap_or_default();
        let sender_domain = fields.next().and_then(|from| from.strip_prefix("from=")).unwrap_or_default();
        let (rule, sender_domain) = (unescaped(rule), unescaped(sender_domain));
        Some(ReportNote { list, recipient, proof, action, cause, rule, sender_domain, text })
    }

    pub fn is_complaint(&self) -> bool {
        self.action == ReportAction::Complained.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_older_versions_are_read() {
        let line = "report: list=news, to=<a@b.example>, proven, action=complained, cause=content, rule=none: abuse";
        let note = ReportNote::read(line).unwrap();
        assert!(note.is_complaint() && note.sender_domain.is_empty() && note.rule.is_empty());
        for other in ["", "report: list=news, from=<x>, relay=[::1], noted", "report: list=news, to=<a>, maybe: x"] {
            assert_eq!(ReportNote::read(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_field_can_be_forged(list in "[^\r\n]{0,20}", recipient in any::<String>(), text in "[ -~]{0,30}") {
            let note = ReportNote {
                list: list.into(),
                recipient: recipient.into(),
                proof: ReportProof::Unproven,
                action: "failed",
                cause: "full",
                rule: "a, b: c".into(),
                sender_domain: "x.example".into(),
                text: &text,
            };
            let line = note.write();
            let read = ReportNote::read(&line).unwrap();
            prop_assert_eq!((read.proof, read.action, &*read.rule), (note.proof, "failed", "a, b: c"));
            prop_assert_eq!(read.text, text.as_str());
        }
    }
}
