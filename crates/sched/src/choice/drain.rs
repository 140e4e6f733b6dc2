//! Takes recipients of failing domains and sites out of the places where they wait, in slices.

use stentor_queue::ids::{DomainId, MessageNo, SiteId};

use super::{Choice, TakenRecipients};
use crate::STEPS_MAX;
use crate::effects::{Ids, SourceNo};
use crate::failure::drains::{Drain, DrainWhat};
use crate::flows::lines::oldest;

impl Choice<'_> {
    /// The message and recipients that a drain takes next. `None`: the drain is done, if steps are left. `line` is the
    /// site's line that was examined last, `None` at first.
    pub fn next_of(&mut self, drain: &Drain, line: &mut Option<usize>, steps: &mut u32) -> Option<(MessageNo, Ids)> {
        match drain.what {
            DrainWhat::Domain(domain) => self.next_at_domain(domain, drain.expired_only, steps),
            DrainWhat::Site(site, source) => self.next_at_site(site, source, drain.expired_only, line, steps),
            DrainWhat::Message(site, no) => self.next_of_message(site, no, steps),
            DrainWhat::Waiting(domain, no) => self.next_waiting(domain, no, steps),
        }
    }

    fn is_young(&self, no: MessageNo) -> bool {
        self.state.messages.is_live(no) && !self.state.is_over_age(self.store, no, self.now)
    }

    fn next_at_domain(&mut self, domain: DomainId, expired_only: bool, steps: &mut u32) -> Option<(MessageNo, Ids)> {
        while *steps > 0 {
            *steps -= 1;
            let mut no = self.oldest_at_domain(domain)?;
            if expired_only && self.is_young(no) && self.state.lifetimes_differ() {
                let entry = self.domains.get(domain);
                let all: Vec<u32> = entry.bulk.iter().chain(&entry.explicit).take(STEPS_MAX as usize).collect();
                *steps = steps.saturating_sub(all.len() as u32 / 8);
                no = MessageNo(all.into_iter().find(|no| !self.is_young(MessageNo(*no)))?);
            }
            if self.keep_at_domain_if_held(domain, no) {
                continue;
            }
            if expired_only && self.is_young(no) {
                return None;
            }
            let mut taken = TakenRecipients::up_to(STEPS_MAX as usize, steps);
            self.take(domain, no, &mut taken);
            return Some((no, taken.ids));
        }
        None
    }

    fn next_at_site(
        &mut self,
        site: SiteId,
        source: SourceNo,
        expired_only: bool,
        line: &mut Option<usize>,
        steps: &mut u32,
    ) -> Option<(MessageNo, Ids)> {
        // From the back: a line that becomes empty may be removed.
        let last = line.unwrap_or(self.state.sites.get(site).lines.list.len());
        for at in (0..=last).rev() {
            *line = Some(at);
            if !self.has_no_other_source(site, source, at, expired_only) {
                continue;
            }
            while let Some(line) = self.state.sites.get(site).lines.list.get(at)
                && let Some(no) = oldest(&line.waiting, self.state.newest)
            {
                if *steps == 0 {
                    return None;
                }
                *steps -= 1;
                if self.is_stopped(site, no) {
                    continue;
                }
                if expired_only && self.is_young(no) {
                    break;
                }
                let mut taken = TakenRecipients::up_to(STEPS_MAX as usize, steps);
                self.gather(site, no, &mut taken);
                return Some((no, taken.ids));
            }
        }
        None
    }

    /// Whether a line's mail fails when this source's path fails, because none of its sources has a usable host.
    fn has_no_other_source(&self, site: SiteId, source: SourceNo, line: usize, expired_only: bool) -> bool {
        let Some(entry) = self.state.sites.peek(site) else { return false };
        let Some(line) = entry.lines.list.get(line) else { return false };
        let (flow, len) = (self.state.flows.get(line.flow), self.state.sources());
        // Suspended mail is kept from failures too: what is to become of it is decided when it is resumed.
        if entry.suspended || flow.suspended {
            return false;
        }
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
        if self.is_stopped(site, no) || !self.state.is_over_age(self.store, no, self.now) {
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

    /// The oldest message that waits at a domain.
    fn oldest_at_domain(&mut self, domain: DomainId) -> Option<MessageNo> {
        let newest = self.state.newest;
        let entry = self.domains.get(domain);
        let (bulk, explicit) = (oldest(&entry.bulk, newest), oldest(&entry.explicit, newest));
        // Cyclic order: the distance from the oldest possible number.
        [bulk, explicit].into_iter().flatten().min_by_key(|no| no.0.wrapping_sub(newest).wrapping_sub(1))
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
