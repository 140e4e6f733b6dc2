//! What the rules of a message's recipients ask of the message together, and the words that log, history and views have for it.
//!
//! Promise: what the first recipient's rules ask stays; everything asked names the rule with its place, and for whom it was
//! asked. Bounded: [`BCC_MAX`] copies, [`FIELDS_MAX`] fields, [`TOLD_MAX`] remarks of [`WHO_MAX`] recipients each.

use std::fmt::Write;

use stentor_mail::Class;
use stentor_mail::address::Address;

use crate::book::Rulebook;
use crate::decision::{BCC_MAX, Marks, Why};
use crate::removal::Removal;

/// Fields before a message's header.
const FIELDS_MAX: usize = 100;
/// Kinds of fields that are taken out of it.
const REMOVALS_MAX: usize = 100;
/// Things that are said of a message, and recipients that are named for each.
const TOLD_MAX: usize = 20;
const WHO_MAX: usize = 5;
/// What is kept with a message of the rule that holds it.
const HELD_BY_BYTES_MAX: usize = 500;

/// See the module's page.
#[derive(Debug, Default)]
pub struct Wishes {
    /// It is taken and dropped.
    is_discarded: bool,
    /// Who holds it: the rule with its place, and its text.
    pub hold: Option<Box<str>>,
    /// The same of who keeps it from some recipient.
    pub quarantine: Option<Box<str>>,
    pub redirect: Option<Address>,
    pub bcc: Vec<Address>,
    pub class: Option<Class>,
    prepend: Vec<Box<str>>,
    /// Fields of its header that go.
    pub remove: Vec<Removal>,
    told: Vec<Told>,
}

/// The rule that holds or keeps a message, with its place and its text.
pub fn keeper(rules: &Rulebook, (text, at): &(Box<str>, usize)) -> Box<str> {
    let by = rules.shown(&Why::Rule(*at));
    let mut who = if text.is_empty() { by } else { format!("{by}: {text}") };
    who.truncate(who.floor_char_boundary(HELD_BY_BYTES_MAX));
    who.into()
}

/// Something that is done, and for which recipients.
#[derive(Debug)]
struct Told {
    what: String,
    who: Vec<Box<str>>,
    more: u64,
}

impl Wishes {
    /// Takes the marks of one recipient.
    pub fn add(&mut self, rules: &Rulebook, marks: Marks, recipient: &str) {
        let by = |at| rules.shown(&Why::Rule(at));
        if let Some(hold) = &marks.hold {
            let who = keeper(rules, hold);
            self.told(format!("held by {who}"), recipient);
            self.hold.get_or_insert(who);
        }
        if let Some(quarantine) = &marks.quarantine {
            let who = keeper(rules, quarantine);
            self.told(format!("quarantined by {who}"), recipient);
            self.quarantine.get_or_insert(who);
        }
        if let Some((to, at)) = marks.redirect
            && self.redirect.as_ref().is_none_or(|known| *known == to)
        {
            self.told(format!("redirected to {to} by {}", by(at)), recipient);
            self.redirect = Some(to);
        }
        for (to, at) in marks.bcc {
            self.told(format!("copied to {to} by {}", by(at)), recipient);
            self.bcc(to);
        }
        for (hop, at) in marks.copies {
            self.told(format!("copied to {hop} by {}", by(at)), recipient);
        }
        for (did, at) in marks.did {
            self.told(format!("{did} by {}", by(at)), recipient);
        }
        for (would, at) in marks.would {
            self.told(format!("{would} by {}, which only warns", by(at)), recipient);
        }
        self.class = self.class.or(marks.class);
        marks.prepend.into_iter().for_each(|field| self.field(field));
        marks.remove.into_iter().for_each(|removal| self.removal(removal));
    }

    /// Takes what the rules of a further recipient ask.
    pub fn merge(&mut self, more: Wishes) {
        let is_other = self.redirect.is_some() && more.redirect != self.redirect;
        let redirected = more.redirect.as_ref().filter(|_| is_other).map(|to| format!("redirected to {to} "));
        self.is_discarded |= more.is_discarded;
        self.hold = self.hold.take().or(more.hold);
        self.quarantine = self.quarantine.take().or(more.quarantine);
        self.redirect = self.redirect.take().or(more.redirect);
        self.class = self.class.or(more.class);
        more.bcc.into_iter().for_each(|to| self.bcc(to));
        more.prepend.into_iter().for_each(|field| self.field(field));
        more.remove.into_iter().for_each(|removal| self.removal(removal));
        for Told { what, who, more } in more.told {
            // Of two addresses the first one is taken.
            if !redirected.as_ref().is_some_and(|other| what.starts_with(other)) {
                for who in &who {
                    self.told(what.clone(), who);
                }
                self.told.iter_mut().filter(|told| told.what == what).for_each(|told| told.more += more);
            }
        }
    }

    /// It is to be taken and dropped: why, and for whom.
    pub fn discard(&mut self, reason: String, recipient: &str) {
        self.told(reason, recipient);
        self.is_discarded = true;
    }

    /// Whether it is to be taken and dropped.
    pub fn is_discarded(&self) -> bool {
        self.is_discarded
    }

    /// Says of a recipient what is done.
    pub fn told(&mut self, what: String, recipient: &str) {
        let has_room = self.told.len() < TOLD_MAX;
        match self.told.iter_mut().find(|told| told.what == what) {
            Some(told) if told.who.len() < WHO_MAX => told.who.push(recipient.into()),
            Some(told) => told.more += 1,
            None if has_room => {
                self.told.push(Told { what, who: vec![recipient.into()], more: 0 });
            }
            None => {}
        }
    }

    /// What is done with the message, and for whom: `sales@x.example: redirected to a@y.example by rule 1 (stentor.toml:9)`.
    pub fn words(&self) -> String {
        let mut out = String::new();
        for Told { what, who, more } in &self.told {
            let end = if out.is_empty() { "" } else { "; " };
            let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
            // Writing into a string cannot fail.
            let _ = write!(out, "{end}{}{more}: {what}", who.join(", "));
        }
        out
    }

    /// How many fields go before the header.
    pub fn fields_count(&self) -> usize {
        self.prepend.len()
    }

    /// The fields that go before the header, as the wire has them.
    pub fn fields(&self, out: &mut Vec<u8>) {
        for field in &self.prepend {
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    fn bcc(&mut self, to: Address) {
        if self.bcc.len() < BCC_MAX && !self.bcc.contains(&to) {
            self.bcc.push(to);
        }
    }

    fn removal(&mut self, removal: Removal) {
        if self.remove.len() < REMOVALS_MAX && !self.remove.contains(&removal) {
            self.remove.push(removal);
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

    fn told(wishes: &mut Wishes, what: &str, who: &str) {
        let redirect = what.strip_prefix("redirected to ").and_then(|to| to.split(' ').next()?.parse().ok());
        let mut more = Wishes { redirect, ..Wishes::default() };
        more.told(what.to_owned(), who);
        wishes.merge(more);
    }

    #[test]
    fn each_thing_is_said_once_and_for_whom() {
        let mut all = Wishes::default();
        for n in 1..=7 {
            told(&mut all, "held by rule 1 (f:2)", &format!("{n}@x.example"));
        }
        told(&mut all, "redirected to a@y.example by rule 2 (f:4)", "1@x.example");
        told(&mut all, "redirected to b@y.example by rule 3 (f:6)", "2@x.example");
        assert_eq!(
            all.words(),
            "1@x.example, 2@x.example, 3@x.example, 4@x.example, 5@x.example and 2 more: held by rule 1 (f:2); \
             1@x.example: redirected to a@y.example by rule 2 (f:4)"
        );
        assert_eq!(all.redirect.as_ref().map(Address::as_str), Some("a@y.example"), "the first one counts");
        for n in 0..100 {
            told(&mut all, &format!("copied to {n}@y.example by rule 4 (f:8)"), "1@x.example");
        }
        assert!(all.words().matches("copied").count() == TOLD_MAX - 2 && Wishes::default().words().is_empty());
    }
}
