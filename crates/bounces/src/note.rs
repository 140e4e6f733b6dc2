//! The line about one recipient of a bounce or complaint about mail of a list or manager: written to log and history,
//! and read from the history for complaint rates and webhooks.
//!
//! ```text
//! report: list=news, to=<ann@host.example>, proven, action=complained, cause=content, rule=none, from=l.example,
//! sender=<news-bounces@l.example>, post=<1@l.example>: abuse
//! ```
//!
//! Mail of managers has `sender=<...>` in place of the list. Empty fields after `from` are omitted.
//!
//! Promise: what [`ReportNote::write`] wrote, [`ReportNote::read`] reads; names and addresses are escaped, so that a
//! report cannot forge a field. Lines of older versions, with fewer fields after `rule`, are read, too.

use std::borrow::Cow;
use std::fmt::Write as _;

use stentor_records::escape::{field, unescaped};
use stentor_records::record::REPORT;

use crate::message::ReportAction;

/// Longest text, address or name in a line, in octets.
const FIELD_BYTES_MAX: usize = 512;
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

/// What a report says about one recipient of a post.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportNote<'a> {
    /// Empty if a manager sent the post.
    pub list: Cow<'a, str>,
    /// Envelope sender of the post; empty in lines of older versions.
    pub sender: Cow<'a, str>,
    pub recipient: Cow<'a, str>,
    pub proof: ReportProof,
    /// A name of [`ReportAction`].
    pub action: &'a str,
    /// A name of [`crate::BounceCause`].
    pub cause: &'a str,
    /// How sure the cause is, in percent; 0 in lines of older versions.
    pub confidence: u8,
    /// The rule that named the cause; may be empty.
    pub rule: Cow<'a, str>,
    /// Domain of the sender; empty in lines of older versions.
    pub sender_domain: Cow<'a, str>,
    /// Enhanced status code (RFC 3463); may be empty.
    pub dsn: Cow<'a, str>,
    /// Message-ID of the post, without angle brackets; may be empty.
    pub post: Cow<'a, str>,
    /// X-Listmonk-Campaign of the post; may be empty.
    pub campaign: Cow<'a, str>,
    pub text: &'a str,
}

impl<'a> ReportNote<'a> {
    pub fn write(&self) -> String {
        let name = |text: &str| field(text, FIELD_BYTES_MAX);
        let text = &self.text[..self.text.floor_char_boundary(FIELD_BYTES_MAX)];
        let sender = format!("sender=<{}>", name(&self.sender));
        let mut line = REPORT.to_owned();
        // Writing into a string cannot fail.
        let _ = match &*self.list {
            "" => write!(line, "{sender}"),
            list => write!(line, "list={}", name(list)),
        };
        let _ = write!(
            line,
            ", to=<{}>, {}, action={}, cause={}, rule={}, from={}",
            name(&self.recipient),
            self.proof.name(),
            self.action,
            self.cause,
            if self.rule.is_empty() { NO_RULE.to_owned() } else { name(&self.rule) },
            name(&self.sender_domain)
        );
        if !self.list.is_empty() {
            let _ = write!(line, ", {sender}");
        }
        if self.confidence > 0 {
            let _ = write!(line, ", confidence={}", self.confidence);
        }
        for (key, value) in [("dsn", &self.dsn), ("post", &self.post), ("campaign", &self.campaign)] {
            if !value.is_empty() {
                let _ = write!(line, ", {key}=<{}>", name(value));
            }
        }
        let _ = write!(line, ": {text}");
        line
    }

    /// Reads a line; `None`: it is another note.
    pub fn read(line: &'a str) -> Option<ReportNote<'a>> {
        let (fields, text) = line.strip_prefix(REPORT)?.split_once(": ")?;
        let in_brackets = |value: &'a str| value.strip_prefix('<')?.strip_suffix('>').map(unescaped);
        let mut fields = fields.split(", ");
        let (list, sender) = match fields.next()?.split_once('=')? {
            ("list", list) => (unescaped(list), Cow::default()),
            ("sender", sender) => (Cow::default(), in_brackets(sender)?),
            _ => return None,
        };
        let recipient = in_brackets(fields.next()?.strip_prefix("to=")?)?;
        let proof = match fields.next()? {
            "proven" => ReportProof::Proven,
            "unproven" => ReportProof::Unproven,
            "repeated" => ReportProof::Repeated,
            _ => return None,
        };
        let action = fields.next()?.strip_prefix("action=")?;
        let cause = fields.next()?.strip_prefix("cause=")?;
        let rule = fields.next()?.strip_prefix("rule=").filter(|rule| *rule != NO_RULE).unwrap_or_default();
        let mut note = ReportNote {
            list,
            sender,
            recipient,
            proof,
            action,
            cause,
            confidence: 0,
            rule: unescaped(rule),
            sender_domain: Cow::default(),
            dsn: Cow::default(),
            post: Cow::default(),
            campaign: Cow::default(),
            text,
        };
        for (key, value) in fields.filter_map(|field| field.split_once('=')) {
            match key {
                "from" => note.sender_domain = unescaped(value),
                "sender" => note.sender = in_brackets(value).unwrap_or_default(),
                "confidence" => note.confidence = value.parse().unwrap_or_default(),
                "dsn" => note.dsn = in_brackets(value).unwrap_or_default(),
                "post" => note.post = in_brackets(value).unwrap_or_default(),
                "campaign" => note.campaign = in_brackets(value).unwrap_or_default(),
                _ => {}
            }
        }
        Some(note)
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
        for other in [
            "",
            "report: list=news, from=<x>, relay=[::1], noted",
            "report: list=news, to=<a>, maybe: x",
            "report: sender=x, to=<a>, proven, action=failed, cause=full, rule=none: x",
        ] {
            assert_eq!(ReportNote::read(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_field_can_be_forged(
            list in "[^\r\n]{0,20}",
            recipient in any::<String>(),
            post in "[ -~]{0,30}",
            text in "[ -~]{0,30}",
        ) {
            let note = ReportNote {
                list: list.as_str().into(),
                sender: "a, to=<b>@x.example".into(),
                recipient: recipient.into(),
                proof: ReportProof::Unproven,
                action: "failed",
                cause: "full",
                confidence: 90,
                rule: "a, b: c".into(),
                sender_domain: "x.example".into(),
                dsn: "5.2.2".into(),
                post: post.as_str().into(),
                campaign: "".into(),
                text: &text,
            };
            let line = note.write();
            let read = ReportNote::read(&line).unwrap();
            prop_assert_eq!((read.proof, read.action, &*read.rule), (note.proof, "failed", "a, b: c"));
            prop_assert_eq!((&*read.sender, &*read.sender_domain), (&*note.sender, "x.example"));
            prop_assert_eq!((read.confidence, &*read.dsn, &*read.post), (90, "5.2.2", post.as_str()));
            prop_assert_eq!((read.text, read.list.is_empty()), (text.as_str(), list.is_empty()));
        }
    }
}
