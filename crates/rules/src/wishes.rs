//! Combined actions of all recipients' rules on a message, and their descriptions for log, history and views.
//!
//! Promise: the first recipient's actions take precedence; every action names its rule with its place, and the
//! recipients concerned. Bounded: [`BCC_MAX`] copies, [`FIELDS_MAX`] fields, [`REMARKS_MAX`] remarks of [`WHO_MAX`]
//! recipients each.

use std::fmt::{self, Write};

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mime::recode::RecodeTarget;

use crate::book::Rulebook;
use crate::decision::{BCC_MAX, DecisionReason, Marks};
use crate::field_edit::FieldEdit;

/// Maximum fields added before a message's header, and maximum octets of those kept with its envelopes.
const FIELDS_MAX: usize = 100;
const FIELDS_BYTES_MAX: usize = 8 * 1024;
/// Maximum kinds of removed fields.
const EDITS_MAX: usize = 100;
/// Maximum remarks on a message, and maximum recipients named in each.
const REMARKS_MAX: usize = 20;
const WHO_MAX: usize = 5;
/// Maximum length of the stored text about the rule that holds a message.
const HELD_BY_BYTES_MAX: usize = 500;

/// Actions on a message; see the module documentation.
#[derive(Debug, Default)]
pub struct Wishes {
    /// The message is accepted and dropped.
    is_discarded: bool,
    /// Reason for holding the message: the rule with its place, and its text.
    pub hold: Option<Box<str>>,
    /// Reason for withholding the message from some recipient.
    pub quarantine: Option<Box<str>>,
    pub redirect: Option<Address>,
    pub bcc: Vec<Address>,
    pub class: Option<Class>,
    prepend: Vec<Box<str>>,
    /// Number of fields written before the content.
    written: usize,
    /// Edits of its header fields.
    pub edits: Vec<FieldEdit>,
    /// Transfer encoding of its texts.
    pub transfer_encoding: Option<RecodeTarget>,
    remarks: Vec<(ActionRemark, RemarkRecipients)>,
}

/// A remark on an action on a message; `by`: the rule or milter with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionRemark {
    Held {
        by: Box<str>,
    },
    Quarantined {
        by: Box<str>,
    },
    Redirected {
        to: Address,
        by: String,
    },
    /// Copied to an address or a next hop.
    Copied {
        to: String,
        by: String,
    },
    /// Another action of rules on content.
    Did {
        what: Box<str>,
        by: String,
    },
    /// Fields of this name were removed or changed.
    Edited {
        field: Box<str>,
        is_removal: bool,
    },
    /// Stored in this transfer encoding; this number of encoded texts stay encoded.
    Recoded {
        to: &'static str,
        stayed: usize,
    },
    /// Not re-encoded: all its encoded texts stay encoded.
    StaysEncoded {
        to: &'static str,
        stayed: usize,
    },
    /// Action of a rule that only warns.
    Would {
        what: String,
        by: String,
    },
    RewrittenSender {
        to: Address,
    },
    Rewritten {
        to: Address,
    },
    Discarded {
        by: String,
    },
    /// Milters removed the last recipient.
    RemovedByMilters,
}

impl fmt::Display for ActionRemark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActionRemark::Held { by } => write!(out, "held by {by}"),
            ActionRemark::Quarantined { by } => write!(out, "quarantined by {by}"),
            ActionRemark::Redirected { to, by } => write!(out, "redirected to {to} by {by}"),
            ActionRemark::Copied { to, by } => write!(out, "copied to {to} by {by}"),
            ActionRemark::Did { what, by } => write!(out, "{what} by {by}"),
            ActionRemark::Edited { field, is_removal: true } => write!(out, "removed {field}"),
            ActionRemark::Edited { field, is_removal: false } => write!(out, "replaced {field}"),
            ActionRemark::Recoded { to, stayed: 0 } => write!(out, "in transfer encoding {to}"),
            ActionRemark::Recoded { to, stayed } => {
                write!(out, "in transfer encoding {to} except for {}", texts(*stayed))
            }
            ActionRemark::StaysEncoded { to, stayed } => {
                write!(out, "unchanged, not in transfer encoding {to}: it has {}", texts(*stayed))
            }
            ActionRemark::Would { what, by } => write!(out, "{what} by {by}, but it only warns"),
            ActionRemark::RewrittenSender { to } => write!(out, "rewritten to {to}, as the sender"),
            ActionRemark::Rewritten { to } => write!(out, "rewritten to {to}"),
            ActionRemark::Discarded { by } => write!(out, "discarded by {by}"),
            ActionRemark::RemovedByMilters => out.write_str("removed by milters"),
        }
    }
}

impl ActionRemark {
    /// Whether the remark also applies to a discarded message, which nobody else receives.
    fn is_of_discarded(&self) -> bool {
        !matches!(self, ActionRemark::Redirected { .. } | ActionRemark::Copied { .. })
    }
}

fn texts(count: usize) -> String {
    if count == 1 { "1 encoded text".to_owned() } else { format!("{count} encoded texts") }
}

/// Recipients concerned by a remark: the first ones, and the number of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemarkRecipients {
    who: Vec<Box<str>>,
    more: u64,
}

impl RemarkRecipients {
    pub fn one(who: &str) -> RemarkRecipients {
        RemarkRecipients { who: vec![who.into()], more: 0 }
    }

    /// For remarks on the whole message.
    pub fn all() -> RemarkRecipients {
        RemarkRecipients::one("all recipients")
    }

    pub(crate) fn add(&mut self, who: &str) {
        if self.who.len() < WHO_MAX { self.who.push(who.into()) } else { self.more += 1 }
    }

    fn join(&mut self, others: &RemarkRecipients) {
        others.who.iter().for_each(|who| self.add(who));
        self.more += others.more;
    }
}

impl fmt::Display for RemarkRecipients {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.who.join(", "))?;
        if self.more > 0 { write!(out, " and {} more", self.more) } else { Ok(()) }
    }
}

/// Describes the rule that holds or quarantines a message, with its place and text.
pub fn decided_by(rules: &Rulebook, text: &str, by: &DecisionReason) -> Box<str> {
    let by = rules.shown(by);
    let mut who = if text.is_empty() { by } else { format!("{by}: {text}") };
    who.truncate(who.floor_char_boundary(HELD_BY_BYTES_MAX));
    who.into()
}

impl Wishes {
    /// Adds the actions for recipients.
    pub fn add(&mut self, rules: &Rulebook, marks: Marks, who: &RemarkRecipients) {
        let by = |by: &DecisionReason| rules.shown(by);
        if let Some((text, by)) = &marks.hold {
            let by = decided_by(rules, text, by);
            self.remark(ActionRemark::Held { by: by.clone() }, who);
            self.hold.get_or_insert(by);
        }
        if let Some((text, by)) = &marks.quarantine {
            let by = decided_by(rules, text, by);
            self.remark(ActionRemark::Quarantined { by: by.clone() }, who);
            self.quarantine.get_or_insert(by);
        }
        if let Some((to, why)) = marks.redirect
            && self.redirect.as_ref().is_none_or(|known| *known == to)
        {
            self.remark(ActionRemark::Redirected { to: to.clone(), by: by(&why) }, who);
            self.redirect = Some(to);
        }
        for (to, why) in marks.bcc {
            self.remark(ActionRemark::Copied { to: to.to_string(), by: by(&why) }, who);
            self.bcc(to);
        }
        for (hop, why) in marks.copies {
            self.remark(ActionRemark::Copied { to: hop.to_string(), by: by(&why) }, who);
        }
        for (did, why) in marks.did {
            self.remark(ActionRemark::Did { what: did, by: by(&why) }, who);
        }
        for (would, why) in marks.would {
            self.remark(ActionRemark::Would { what: would.to_string(), by: by(&why) }, who);
        }
        self.transfer_encoding = self.transfer_encoding.or(marks.transfer_encoding);
        self.class = self.class.or(marks.class);
        marks.prepend.into_iter().for_each(|field| self.field(field));
        marks.edits.into_iter().for_each(|edit| self.edit(edit));
    }

    /// Adds the actions for a further recipient.
    pub fn merge(&mut self, more: Wishes) {
        self.is_discarded |= more.is_discarded;
        self.hold = self.hold.take().or(more.hold);
        self.quarantine = self.quarantine.take().or(more.quarantine);
        self.redirect = self.redirect.take().or(more.redirect);
        self.transfer_encoding = self.transfer_encoding.or(more.transfer_encoding);
        self.class = self.class.or(more.class);
        more.bcc.into_iter().for_each(|to| self.bcc(to));
        more.prepend.into_iter().for_each(|field| self.field(field));
        more.edits.into_iter().for_each(|edit| self.edit(edit));
        for (remark, who) in more.remarks {
            // Of two addresses the first takes precedence.
            let is_lost = matches!(&remark, ActionRemark::Redirected { to, .. } if self.redirect.as_ref() != Some(to));
            if !is_lost {
                self.remark(remark, &who);
            }
        }
    }

    /// Discards the message, with the reason and the recipients concerned.
    pub fn discard(&mut self, remark: ActionRemark, who: &RemarkRecipients) {
        self.remark(remark, who);
        self.is_discarded = true;
    }

    /// Whether the message is discarded.
    pub fn is_discarded(&self) -> bool {
        self.is_discarded
    }

    /// Records a remark for recipients.
    pub fn remark(&mut self, remark: ActionRemark, who: &RemarkRecipients) {
        let has_room = self.remarks.len() < REMARKS_MAX;
        match self.remarks.iter_mut().find(|(known, _)| *known == remark) {
            Some((_, named)) => named.join(who),
            None if has_room => self.remarks.push((remark, who.clone())),
            None => {}
        }
    }

    /// Describes all actions and the recipients concerned: `sales@x.example: redirected to a@y.example by rule 1
    /// (stentor.toml:9)`.
    pub fn words(&self) -> String {
        let mut out = String::new();
        for (remark, who) in self.remarks.iter().filter(|(remark, _)| !self.is_discarded || remark.is_of_discarded()) {
            let end = if out.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(out, "{end}{who}: {remark}");
        }
        out
    }

    /// Writes the fields that precede the header, in wire format.
    pub fn write_fields(&mut self, out: &mut Vec<u8>) {
        for field in &self.prepend[self.written..] {
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        self.written = self.prepend.len();
    }

    /// Number of fields written before the content.
    pub fn fields_written(&self) -> usize {
        self.written
    }

    /// Writes the fields that were added after the content began; they are stored with the envelopes, before others
    /// there.
    pub fn write_late_fields(&mut self, out: &mut Vec<u8>) {
        for field in &self.prepend[self.written..] {
            if out.len() + field.len() < FIELDS_BYTES_MAX {
                out.extend_from_slice(field.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        self.written = self.prepend.len();
    }

    fn bcc(&mut self, to: Address) {
        if self.bcc.len() < BCC_MAX && !self.bcc.contains(&to) {
            self.bcc.push(to);
        }
    }

    fn edit(&mut self, edit: FieldEdit) {
        if self.edits.len() < EDITS_MAX && !self.edits.contains(&edit) {
            self.edits.push(edit);
        }
    }

    fn field(&mut self, field: Box<str>) {
        if self.prepend.len() < FIELDS_MAX && !self.prepend.contains(&field) {
            self.prepend.push(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(wishes: &mut Wishes, remark: ActionRemark, who: &str) {
        let redirect = match &remark {
            ActionRemark::Redirected { to, .. } => Some(to.clone()),
            _ => None,
        };
        let mut more = Wishes { redirect, ..Wishes::default() };
        more.remark(remark, &RemarkRecipients::one(who));
        wishes.merge(more);
    }

    #[test]
    fn each_thing_is_said_once_and_for_whom() {
        let mut all = Wishes::default();
        for n in 1..=7 {
            merged(&mut all, ActionRemark::Held { by: "rule 1 (f:2)".into() }, &format!("{n}@x.example"));
        }
        let redirected = |to: &str, by: &str| ActionRemark::Redirected { to: to.parse().unwrap(), by: by.to_owned() };
        merged(&mut all, redirected("a@y.example", "rule 2 (f:4)"), "1@x.example");
        merged(&mut all, redirected("b@y.example", "rule 3 (f:6)"), "2@x.example");
        assert_eq!(
            all.words(),
            "1@x.example, 2@x.example, 3@x.example, 4@x.example, 5@x.example and 2 more: held by rule 1 (f:2); \
             1@x.example: redirected to a@y.example by rule 2 (f:4)"
        );
        assert_eq!(all.redirect.as_ref().map(Address::as_str), Some("a@y.example"), "the first one counts");
        for n in 0..100 {
            let remark = ActionRemark::Copied { to: format!("{n}@y.example"), by: "rule 4 (f:8)".to_owned() };
            merged(&mut all, remark, "1@x.example");
        }
        assert!(all.words().matches("copied").count() == REMARKS_MAX - 2 && Wishes::default().words().is_empty());
    }

    #[test]
    fn of_a_discarded_message_nothing_is_said_that_was_not_done() {
        let mut all = Wishes::default();
        merged(
            &mut all,
            ActionRemark::Copied { to: "arch@y.example".to_owned(), by: "rule 1 (f:2)".to_owned() },
            "1@x.example",
        );
        let to = "b@y.example".parse().unwrap();
        merged(&mut all, ActionRemark::Redirected { to, by: "rule 1 (f:2)".to_owned() }, "1@x.example");
        all.discard(ActionRemark::Discarded { by: "rule 2 (f:4)".to_owned() }, &RemarkRecipients::one("1@x.example"));
        assert_eq!(all.words(), "1@x.example: discarded by rule 2 (f:4)");
    }

    #[test]
    fn what_became_of_encoded_texts_is_said() {
        assert_eq!(ActionRemark::Recoded { to: "8bit", stayed: 0 }.to_string(), "in transfer encoding 8bit");
        assert_eq!(
            ActionRemark::Recoded { to: "8bit", stayed: 2 }.to_string(),
            "in transfer encoding 8bit except for 2 encoded texts"
        );
        let stays = ActionRemark::StaysEncoded { to: "8bit", stayed: 1 }.to_string();
        assert_eq!(stays, "unchanged, not in transfer encoding 8bit: it has 1 encoded text");
    }

    #[test]
    fn fields_are_written_once_before_the_content_or_with_the_envelopes() {
        let mut all = Wishes::default();
        all.field("X-A: 1".into());
        let (mut before, mut late) = (Vec::new(), Vec::new());
        all.write_fields(&mut before);
        all.field("X-A: 1".into());
        all.field("X-B: 2".into());
        all.write_late_fields(&mut late);
        all.write_late_fields(&mut late);
        assert_eq!((before.as_slice(), late.as_slice()), (&b"X-A: 1\r\n"[..], &b"X-B: 2\r\n"[..]));
        let large = format!("X-C: {}", "x".repeat(FIELDS_BYTES_MAX));
        all.field(large.into());
        all.write_late_fields(&mut late);
        assert_eq!(late.len(), 8, "bounded");
    }
}
