//! Takes recipients of failing domains and sites out of the places where they wait, in slices.
//!
//! Promise: mail that is kept back ([`crate::state::SchedState::is_kept`]) stays where it is or is put aside; every
//! kind of drain asks that one question. Mail within its lifetime stays when only overdue mail fails.
//!
//! Cost: messages are visited in the order of their age, and the visit of a part ends at the first one within its
//! lifetime. Where lifetimes differ, the mail of each lifetime is a part of its own: a class's, and bounces. Messages
//! that stay are passed over once, by a cursor that lasts over all slices. Only lists' and senders' own lifetimes make
//! the visit of a domain without a site complete.

use stentor_queue::ids::{DomainId, MessageNo, SiteId};
use stentor_queue::idset::IdSet;

use super::{Choice, TakenRecipients};
use crate::STEPS_MAX;
use crate::effects::{Ids, SourceNo};
use crate::failure::drains::{Drain, DrainCursor, DrainWhat};
use crate::flows::ORDINARY;
use crate::flows::lines::next_oldest;

/// Messages that are visited together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Class(usize),
    /// Mail from the null sender.
    Bounces,
}

const ALL: &[Part] = &[Part::All];
/// The parts of a line, whose mail is of one class.
const OF_LINE: &[Part] = &[Part::All, Part::Bounces];
const OF_DOMAIN: &[Part] = &[Part::Class(ORDINARY), Part::Class(1), Part::Bounces];

impl Choice<'_> {
    /// The message and recipients that a drain takes next. `None`: the drain is done, if steps are left.
    pub fn next_of(&mut self, drain: &mut Drain, steps: &mut u32) -> Option<(MessageNo, Ids)> {
        let (cursor, expired_only) = (&mut drain.cursor, drain.expired_only);
        match drain.what {
            DrainWhat::Domain(domain) => self.next_at_domain(domain, expired_only, cursor, steps),
            DrainWhat::Site(site, source) => self.next_at_site(site, source, expired_only, cursor, steps),
            DrainWhat::Message(site, no) => self.next_of_message(site, no, steps),
            DrainWhat::Waiting(domain, no) => self.next_waiting(domain, no, steps),
        }
    }

    fn is_young(&self, no: MessageNo) -> bool {
        self.state.messages.is_live(no) && !self.state.is_over_age(self.store, no, self.now)
    }

    fn next_at_domain(
        &mut self,
        domain: DomainId,
        expired_only: bool,
        cursor: &mut DrainCursor,
        steps: &mut u32,
    ) -> Option<(MessageNo, Ids)> {
        let has_own_lifetimes = self.state.flows.lifetimes;
        let parts = if expired_only && !has_own_lifetimes && self.state.lifetimes_differ() { OF_DOMAIN } else { ALL };
        // First the messages that nobody has looked at, then those with a list.
        while *steps > 0 && cursor.part < 2 * parts.len() {
            let (part, is_bulk) = (parts[cursor.part % parts.len()], cursor.part < parts.len());
            let entry = self.domains.peek(domain)?;
            let set = if is_bulk { &entry.bulk } else { &entry.explicit };
            let Some(no) = self.next_in(set, part, cursor, steps) else {
                if *steps > 0 {
                    cursor.next_part();
                }
                continue;
            };
            if self.keep_at_domain_if_held(domain, no) {
                continue;
            }
            let is_young = expired_only && self.is_young(no);
            if is_young && !has_own_lifetimes && !self.state.outlives_others(no) {
                cursor.next_part();
            } else if is_young || self.state.is_kept(self.store, no, None, Some(domain)) {
                cursor.after = Some(no.0);
            } else {
                let mut taken = TakenRecipients::up_to(STEPS_MAX as usize, steps);
                self.take(domain, no, &mut taken);
                return Some((no, taken.ids));
            }
        }
        None
    }

    /// The next message of a part of a set, oldest first. `None`: there is none, if steps are left.
    fn next_in(&self, set: &IdSet, part: Part, cursor: &mut DrainCursor, steps: &mut u32) -> Option<MessageNo> {
        let messages = &self.state.messages;
        let of_part = match part {
            Part::All => None,
            Part::Class(class) => Some(messages.of_class(class)),
            Part::Bounces => Some(messages.bounces()),
        };
        let newest = self.state.newest;
        while *steps > 0 {
            *steps -= 1;
            let next = next_oldest(set, cursor.after, newest)?;
            let Some(of_part) = of_part.filter(|of_part| !of_part.contains(next)) else {
                return Some(MessageNo(next));
            };
            // Whichever set is sparser decides how far it goes.
            let other = next_oldest(of_part, Some(next), newest)?;
            if set.contains(other) {
                return Some(MessageNo(other));
            }
            cursor.after = Some(other);
        }
        None
    }

    fn next_at_site(
        &mut self,
        site: SiteId,
        source: SourceNo,
        expired_only: bool,
        cursor: &mut DrainCursor,
        steps: &mut u32,
    ) -> Option<(MessageNo, Ids)> {
        let entry = self.state.sites.get(site);
        if self.state.flows.any_kept() {
            entry.lines.set_aside(&self.state.flows);
        }
        if entry.suspended {
            return None;
        }
        let differs = expired_only && self.state.cfg.bounce_lifetime_ms.is_some();
        let parts = if differs { OF_LINE } else { ALL };
        // From the back: a line that becomes empty may be removed, and the last one takes its place.
        while *steps > 0 {
            *steps -= 1;
            let at = self.line_at(site, cursor)?;
            while *steps > 0
                && cursor.part < parts.len()
                && self.has_no_other_source(site, source, at, expired_only)
                && let Some(line) = self.state.sites.peek(site).and_then(|entry| entry.lines.list.get(at))
                && Some(line.flow) == cursor.flow
            {
                let Some(no) = self.next_in(&line.waiting, parts[cursor.part], cursor, steps) else {
                    if *steps > 0 {
                        cursor.next_part();
                    }
                    continue;
                };
                if self.is_stopped(site, no) {
                    continue;
                }
                let is_young = expired_only && self.is_young(no);
                if is_young && !self.state.outlives_others(no) {
                    cursor.next_part();
                } else if is_young || self.state.is_kept(self.store, no, Some(site), None) {
                    cursor.after = Some(no.0);
                } else {
                    let mut taken = TakenRecipients::up_to(STEPS_MAX as usize, steps);
                    self.gather(site, no, &mut taken);
                    return Some((no, taken.ids));
                }
            }
            if *steps > 0 {
                if at == 0 {
                    return None;
                }
                *cursor = DrainCursor { line: Some(at - 1), ..DrainCursor::default() };
            }
        }
        None
    }

    /// The line that a drain has come to.
    fn line_at(&self, site: SiteId, cursor: &mut DrainCursor) -> Option<usize> {
        let lines = &self.state.sites.peek(site)?.lines.list;
        let last = lines.len().checked_sub(1)?;
        let at = cursor.line.map_or(last, |at| at.min(last));
        if cursor.flow != Some(lines[at].flow) {
            *cursor = DrainCursor { line: Some(at), flow: Some(lines[at].flow), ..DrainCursor::default() };
        }
        Some(at)
    }

    /// Whether a line's mail fails when this source's path fails, because none of its sources has a usable host.
    fn has_no_other_source(&self, site: SiteId, source: SourceNo, line: usize, expired_only: bool) -> bool {
        let Some(entry) = self.state.sites.peek(site) else { return false };
        let Some(line) = entry.lines.list.get(line) else { return false };
        let (flow, len) = (self.state.flows.get(line.flow), self.state.sources());
        let sources = flow.sources;
        let sites = &self.state.sites;
        let has_no_way = if expired_only {
            sites.is_shut(site, sources, len, self.now)
        } else {
            sites.is_closed(site, sources, len, self.now)
        };
        sources.has(source) && has_no_way
    }

    fn next_of_message(&mut self, site: SiteId, no: MessageNo, steps: &mut u32) -> Option<(MessageNo, Ids)> {
        *steps = steps.checked_sub(1)?;
        let is_over_age = self.state.is_over_age(self.store, no, self.now);
        if !is_over_age || self.is_stopped(site, no) || self.state.is_kept(self.store, no, Some(site), None) {
            return None;
        }
        let mut taken = TakenRecipients::up_to(STEPS_MAX as usize, steps);
        self.gather(site, no, &mut taken);
        Some((no, taken.ids)).filter(|(_, ids)| !ids.is_empty())
    }

    fn next_waiting(&mut self, domain: DomainId, no: MessageNo, steps: &mut u32) -> Option<(MessageNo, Ids)> {
        *steps = steps.checked_sub(1)?;
        let mut taken = TakenRecipients { is_final: true, ..TakenRecipients::up_to(STEPS_MAX as usize, steps) };
        self.take(domain, no, &mut taken);
        Some((no, taken.ids)).filter(|(_, ids)| !ids.is_empty())
    }

    /// Whether an operator holds the message; if so it leaves the domain, and its place is noted.
    fn keep_at_domain_if_held(&mut self, domain: DomainId, no: MessageNo) -> bool {
        if self.state.messages.held == 0 {
            return false;
        }
        let Some(extra) = self.state.messages.get_mut(no).and_then(|active| active.extra.as_mut()) else {
            return false;
        };
        let Some(held) = extra.held.as_mut() else { return false };
        let entry = self.domains.get(domain);
        if entry.bulk.remove(no.0) {
            held.bulk.insert(domain.0);
        }
        if entry.explicit.remove(no.0) {
            held.explicit.insert(domain.0);
        }
        if let Some(activation) = extra.activation.as_mut() {
            activation.touched.insert(domain.0);
        }
        true
    }
}
