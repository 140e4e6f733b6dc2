//! Chooses the next transaction: which message, and which of its recipients.
//!
//! A free connection gets the oldest message of the flow whose turn it is (`flows::lines`), alternating with offers to
//! its host (`offers`). Each recipient is looked at once when its domain is touched and once per return from a clock. A
//! message or recipient that cannot go leaves its place: for a deferral, the mailbox's clock or the operator's hold, or
//! for good if the message is gone.

mod bounced;
mod drain;
mod offers;
pub mod ready;
pub mod waits;

use stentor_queue::ids::{DomainId, MessageNo, Ms, SiteId};
use stentor_queue::store::Store;
use waits::{ReadyList, Waits, touch};

use crate::STEPS_MAX;
use crate::domains::Domains;
use crate::effects::Ids;
use crate::failure::FailureState;
use crate::flows::lines::oldest;
use crate::sites::Hop;
use crate::state::SchedState;

/// Takes recipients from where they wait.
pub struct Choice<'a> {
    pub state: &'a mut SchedState,
    pub failure: &'a mut FailureState,
    pub domains: &'a mut Domains,
    pub waits: &'a mut Waits,
    pub store: &'a Store,
    pub now: Ms,
}

/// Recipients of one message that were taken, marked as in flight.
pub struct TakenRecipients<'s> {
    pub ids: Ids,
    pub max: usize,
    /// Elementary steps left.
    pub steps: &'s mut u32,
    /// Whether these recipients are to fail: then mailbox clocks do not keep them back.
    pub is_final: bool,
}

impl TakenRecipients<'_> {
    pub fn up_to(max: usize, steps: &mut u32) -> TakenRecipients<'_> {
        TakenRecipients { ids: Ids::new(), max, steps, is_final: false }
    }
}

impl Choice<'_> {
    /// The next transaction for a host of a site, with its recipients marked as in flight.
    pub fn select(&mut self, hop: Hop) -> Option<(MessageNo, Ids)> {
        let entry = self.state.sites.get(hop.site);
        let given = entry.limits.recipients_per_transaction_max.map(|max| (max as usize).max(1));
        let given = given.unwrap_or(self.state.cfg.recipients_per_transaction_max);
        let max = given.min(entry.paths[hop.source as usize].recipients_max);
        if entry.offers.is_empty() {
            return self.select_in_line(hop, max);
        }
        // Offers and lines take turns.
        entry.offer_served = !entry.offer_served;
        if entry.offer_served {
            let found = self.select_offered(hop, max);
            return found.or_else(|| self.select_in_line(hop, max));
        }
        let found = self.select_in_line(hop, max);
        found.or_else(|| self.select_offered(hop, max))
    }

    fn select_in_line(&mut self, hop: Hop, max: usize) -> Option<(MessageNo, Ids)> {
        let (site, mut steps) = (hop.site, STEPS_MAX);
        while steps > 0 {
            steps -= 1;
            let entry = self.state.sites.get(site);
            let classes = entry.classes(self.state.cfg.ordinary_per_bulk);
            let lines = &mut entry.lines;
            let flow = classes.into_iter().find_map(|class| lines.choose(class, hop.source, &self.state.flows))?;
            let line = lines.line(flow)?;
            let (class, no) = (line.class, oldest(&line.waiting, self.state.newest)?);
            let has_deferrals = entry.deferrals > 0;
            if has_deferrals && self.failure.deferrals.keeps_back(self.state, self.store, site, no, self.now) {
                continue;
            }
            if self.is_stopped(site, no) {
                continue;
            }
            let mut taken = TakenRecipients::up_to(max, &mut steps);
            self.gather(site, no, &mut taken);
            if !taken.ids.is_empty() {
                let entry = self.state.sites.get(site);
                entry.class_served(class);
                entry.lines.served(flow, taken.ids.len());
                return Some((no, taken.ids));
            }
        }
        // Out of steps; there may be more.
        self.state.sites.mark_dirty(site);
        None
    }

    /// Takes recipients of a message at a site: from one domain, or from several where the site mixes them.
    pub fn gather(&mut self, site: SiteId, no: MessageNo, taken: &mut TakenRecipients<'_>) {
        let Some(flow) = self.state.messages.flow(no) else {
            return self.waits.remove_gone_at(&mut self.state.sites, site, no);
        };
        if !taken.is_final {
            let has_own_copies = self.store.message(no).is_some_and(|message| message.envelope().has_own_copies());
            let max = self.state.flows.get(flow).rules.recipients_max.or(has_own_copies.then_some(1));
            taken.max = taken.max.min(max.map_or(usize::MAX, |max| max.max(1)));
        }
        let entry = self.state.sites.get(site);
        let only = entry.domains.min().filter(|_| entry.domains.len() == 1).map(DomainId);
        let mixes = entry.mixes_domains;
        if let Some(domain) = only {
            if !self.is_tried(site, domain, no) || self.take(domain, no, taken) {
                self.state.sites.get(site).lines.remove(flow, no);
            }
            return;
        }
        let mut domains = self.waits.at_sites.remove(&(site, no)).unwrap_or_default();
        while *taken.steps > 0
            && taken.ids.len() < taken.max
            && (mixes || taken.ids.is_empty())
            && let Some(domain) = domains.last().copied()
        {
            *taken.steps -= 1;
            if !self.is_tried(site, domain, no) || self.take(domain, no, taken) {
                domains.pop();
            }
        }
        if domains.is_empty() {
            self.state.sites.get(site).lines.remove(flow, no);
        } else {
            self.waits.at_sites.insert((site, no), domains);
        }
    }

    /// Whether a message's recipients at a domain may go at this site: the domain is still at this site, no standing
    /// bounce covers them, and the domain is not queue-only.
    fn is_tried(&mut self, site: SiteId, domain: DomainId, no: MessageNo) -> bool {
        let is_here = self.domains.get(domain).site == Some(site);
        is_here && !self.bounce_at(domain, no) && !self.state.keeps_at_domain(self.store, Some(site), domain, no)
    }

    /// Takes recipients of a message at a domain. Returns whether none is left there.
    pub fn take(&mut self, domain: DomainId, no: MessageNo, taken: &mut TakenRecipients<'_>) -> bool {
        let (Some(active), Some(message)) = (self.state.messages.begin(no), self.store.message(no)) else {
            self.forget(domain, no);
            return true;
        };
        let entry = self.domains.get(domain);
        let mut fresh = ReadyList::default();
        if entry.bulk.remove(no.0) {
            fresh = touch(active, domain, self.store, message.pending(), taken.steps);
        }
        let mut known = if entry.explicit.contains(no.0) { self.waits.lists.get_mut(&(domain, no)) } else { None };
        if let Some(known) = known.as_deref_mut() {
            known.ids.extend(fresh.ids.drain(..));
            known.rest = fresh.rest.take().or(known.rest.take());
        }
        let is_known = known.is_some();
        let list = known.unwrap_or(&mut fresh);
        while taken.ids.len() < taken.max && *taken.steps > 0 {
            let Some(id) = list.pop() else { break };
            *taken.steps -= 1;
            if !message.pending().contains(id.0) {
                self.waits.gone.push((no, id));
            } else if active.meets_reservation(id) {
                // The end of the operator's action decides what becomes of the recipient.
            } else if !taken.is_final && self.failure.keeps_back(no, id, self.now) || active.is_failing(id) {
                // Its clock or report brings it back.
            } else if active.in_flight.insert(id.0) {
                taken.ids.push(id);
            }
        }
        let empty = list.is_empty();
        if empty {
            if is_known {
                self.waits.lists.remove(&(domain, no));
            }
            entry.explicit.remove(no.0);
        } else if !is_known {
            self.waits.lists.insert((domain, no), fresh);
            entry.explicit.insert(no.0);
        }
        self.state.messages.rest(no);
        empty
    }

    /// Forgets a finished message at a domain.
    pub fn forget(&mut self, domain: DomainId, no: MessageNo) {
        let entry = self.domains.get(domain);
        entry.bulk.remove(no.0);
        entry.explicit.remove(no.0);
        if let Some(list) = self.waits.lists.remove(&(domain, no)) {
            self.waits.gone.extend(list.ids.iter().map(|id| (no, *id)));
        }
    }
}
