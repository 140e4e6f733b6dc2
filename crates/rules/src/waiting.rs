//! The rules of one message's recipients that wait for its content, from RCPT to the end of the data.
//!
//! The data has one reply for all recipients, so a client that is not trusted names one kind of recipients at a time: those whose
//! waiting rules could end otherwise are put off to another transaction (RFC 5321 section 4.5.3.1.10). A trusted client, which may be
//! a mail program that shows its user an error, is not: there the first refusal is that of the message.

use std::collections::HashMap;

use stentor_mail::address::Address;
use stentor_mail::reply::Reply;

use crate::action::{Action, Verdict};
use crate::book::Rulebook;
use crate::content::{Hits, SCAN_BYTES_MAX, Scan};
use crate::decision::Marks;
use crate::explain::{Step, note, would, yes};
use crate::hop::NextHop;
use crate::rule::Does;

/// Recipients whose waiting rules differ, of one message.
const KINDS_MAX: usize = 100;
/// Octets of fields that are put before a header.
const FIELDS_BYTES_MAX: usize = 8 * 1024;
const OTHER_RULES: Reply =
    Reply::fixed(452, (4, 5, 3), "Other rules hold for this recipient; send it in another transaction");

/// See the module's documentation.
#[derive(Default)]
pub struct Waiting {
    /// The rules of each kind of recipient, in their order, and the first of it.
    kinds: Vec<(Box<[u16]>, Box<str>)>,
    /// Recipients of kinds, if there are several.
    of: HashMap<Box<str>, usize>,
    /// Those that end the rules, of the first recipient.
    ends: Option<Vec<u16>>,
    scan: Option<Scan>,
    /// What was found in the content: the data is over.
    hits: Option<Hits>,
    /// The data is over.
    is_over: bool,
}

/// What the waiting rules of one recipient say of a content, with the rule that says so.
#[derive(Debug, Default)]
pub struct Found {
    pub refusal: Option<(Reply, usize)>,
    pub discard: Option<(Box<str>, usize)>,
    pub marks: Marks,
}

/// What waiting rules say of a content.
#[derive(Debug, Default)]
pub struct ContentSaid {
    /// With the rule that says so.
    pub refusal: Option<(Reply, usize)>,
    /// With the first of the kind of recipients whose rule it is.
    pub discards: Vec<(Box<str>, usize, Box<str>)>,
    /// What is asked of the message for each kind of recipients, and the first of it.
    pub kinds: Vec<(Marks, Box<str>)>,
    of: HashMap<Box<str>, usize>,
}

impl Waiting {
    /// Whether a recipient whose rules wait can be taken. One that comes when the content was searched is by itself: see [`Waiting::refusal`].
    ///
    /// # Errors
    /// It is to be sent in another transaction.
    pub fn admits(&self, rules: &Rulebook, is_trusted: bool, open: &[u16]) -> Result<(), Reply> {
        if rules.content.is_empty() || self.is_over {
            return Ok(());
        }
        let is_other = |first: &Vec<u16>| !first.iter().copied().eq(ends(rules, open));
        if !is_trusted && self.ends.as_ref().is_some_and(is_other) {
            return Err(OTHER_RULES);
        }
        let is_known = self.kinds.iter().any(|(kind, _)| **kind == *open);
        if is_known || self.kinds.len() < KINDS_MAX { Ok(()) } else { Err(OTHER_RULES) }
    }

    /// It is taken, as [`Waiting::admits`] allows.
    pub fn add(&mut self, rules: &Rulebook, to: &Address, open: Vec<u16>) {
        if rules.content.is_empty() || self.is_over && self.hits.is_none() {
            return;
        }
        self.ends.get_or_insert_with(|| ends(rules, &open).collect());
        let kind = self.kinds.iter().position(|(kind, _)| **kind == *open).unwrap_or_else(|| {
            self.kinds.push((open.into(), to.as_str().into()));
            self.kinds.len() - 1
        });
        self.of.insert(to.as_str().into(), kind);
    }

    /// Some rule of some recipient waits.
    fn is_any(&self) -> bool {
        self.kinds.iter().any(|(kind, _)| !kind.is_empty())
    }

    /// The data begins, behind so many octets of ours. With `may_grow` recipients may come when it is over, whose rules are not known yet.
    pub fn begin(&mut self, rules: &Rulebook, ours: usize, may_grow: bool) {
        if self.is_any() || may_grow && !rules.content.is_empty() {
            self.scan = Some(Scan::new(rules.content.clone(), ours, false));
        }
    }

    /// Whether the data is over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Memory that the search of the content may take.
    pub fn bytes(&self) -> u64 {
        if self.scan.is_some() { SCAN_BYTES_MAX } else { 0 }
    }

    /// The next octets of the data.
    pub fn push(&mut self, octets: &[u8]) {
        if let Some(scan) = &mut self.scan {
            scan.push(octets);
        }
    }

    /// Why the content's rules refuse a recipient that comes when the data is over, and the rule that does.
    pub fn refusal(&self, rules: &Rulebook, open: &[u16]) -> Option<(Reply, usize)> {
        rules.by_content(open, self.hits.as_ref()?, &mut None).refusal
    }

    /// The data is over; or it was, and recipients have come since, whom alone the answer concerns. `None`: nothing was searched for.
    pub fn finish(&mut self, rules: &Rulebook) -> Option<ContentSaid> {
        self.is_over = true;
        if let Some(scan) = self.scan.take() {
            self.hits = Some(scan.finish());
        }
        let hits = self.hits.as_ref()?;
        let mut all = ContentSaid { of: std::mem::take(&mut self.of), ..ContentSaid::default() };
        for (kind, first) in std::mem::take(&mut self.kinds) {
            let Found { refusal, discard, marks } = rules.by_content(&kind, hits, &mut None);
            all.refusal = all.refusal.or(refusal);
            all.discards.extend(discard.map(|(text, at)| (text, at, first.clone())));
            all.kinds.push((marks, first));
        }
        Some(all)
    }
}

/// Of the rules that wait, those that end the rules.
fn ends(rules: &Rulebook, open: &[u16]) -> impl Iterator<Item = u16> {
    open.iter().copied().filter(|at| rules.ends_by_content(usize::from(*at)))
}

impl ContentSaid {
    /// What is asked for a recipient: the next hop that a rule names, others that get a copy.
    pub fn of(&self, to: &Address) -> Option<&Marks> {
        self.kinds.get(*self.of.get(to.as_str())?).map(|(marks, _)| marks)
    }

    /// The next hop that a rule names for a recipient, or for those that it stands for.
    pub fn route(&self, to: &Address) -> Option<&NextHop> {
        self.of(to)?.route.as_ref()
    }

    /// The fields that are put before the header, as the wire has them.
    pub fn fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut all: Vec<&str> = Vec::new();
        for field in self.kinds.iter().flat_map(|(marks, _)| &marks.prepend) {
            if !all.contains(&&**field) && out.len() + field.len() < FIELDS_BYTES_MAX {
                all.push(field);
                out.extend_from_slice(field.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        out
    }
}

impl Rulebook {
    /// What the waiting rules of a recipient say, in their order; `steps` gets what was asked.
    pub fn by_content(&self, open: &[u16], hits: &Hits, steps: &mut Option<&mut Vec<Step>>) -> Found {
        let mut said = Found::default();
        for at in open.iter().map(|at| usize::from(*at)) {
            let Some(rule) = self.rules.get(at) else { continue };
            let failing = rule.when.content.failing(hits);
            let failing = failing.or_else(|| rule.unless.content.holding(hits).map(|_| "not"));
            if let Some(key) = failing {
                note(steps, || (self.rule_name(at), rule.place.to_string(), format!("no: {key}")));
                continue;
            }
            let Does::Actions(actions) = &rule.does else { continue };
            for action in actions {
                note(steps, || {
                    let met = rule.when.content.met_by(hits);
                    let met = if met.is_empty() { String::new() } else { format!(" ({met})") };
                    (self.rule_name(at), rule.place.to_string(), format!("{}{met}", yes(rule, action)))
                });
            }
            let mut is_end = false;
            if rule.is_warning {
                let would = actions.iter().map(|action| (would(action, "").into(), at));
                said.marks.would.extend(would);
                continue;
            }
            for action in actions {
                match action {
                    Action::End(Verdict::Refuse(reply)) => said.refusal = Some((reply.clone(), at)),
                    Action::End(Verdict::Discard(text)) => said.discard = Some((text.clone(), at)),
                    Action::Route(hop) if said.marks.route.is_none() => {
                        // The policy of its acceptance names the next hop that it had before.
                        said.marks.did.push((format!("routed by its content to {hop}").into(), at));
                        said.marks.route = Some(hop.clone());
                    }
                    Action::Prepend(field) => {
                        let name = field.split(':').next().unwrap_or_default();
                        said.marks.did.push((format!("prepended {name}").into(), at));
                        said.marks.add(action.clone(), at);
                    }
                    other => said.marks.add(other.clone(), at),
                }
                is_end |= matches!(action, Action::End(_));
            }
            if is_end {
                break;
            }
        }
        said
    }

    /// Whether a rule that waits ends the rules of its recipient.
    fn ends_by_content(&self, at: usize) -> bool {
        self.rules.get(at).is_some_and(|rule| match &rule.does {
            _ if rule.is_warning => false,
            Does::Actions(actions) => actions.iter().any(|action| matches!(action, Action::End(_))),
            Does::Table => false,
        })
    }
}
