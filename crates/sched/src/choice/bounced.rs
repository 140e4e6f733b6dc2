//! Removes recipients that an operator keeps out of transactions. A standing bounce takes precedence over a hold, here
//! and in every view (`crate::status::place`): a drain fails the recipients that it covers, and a hold keeps the
//! others.

use stentor_queue::ids::{DomainId, MessageNo, SiteId};

use super::Choice;
use crate::failure::drains::{Drain, DrainWhat};

impl Choice<'_> {
    /// Whether nothing of a message may go at a site because it is held, or its sender or client is queue-only. Such a
    /// message is taken out of the line once. For other messages each domain is checked when its recipients are taken,
    /// so the cost here does not depend on their number.
    pub fn is_stopped(&mut self, site: SiteId, no: MessageNo) -> bool {
        self.state.messages.is_held(no) && (self.leaves_to_bounce(site, no) || self.state.keep_if_held(site, no))
            || self.state.keep_if_queue_only(self.store, site, no)
    }

    /// Whether a standing bounce covers a message's waiting recipients at a domain; if so they fail, in slices.
    pub fn bounce_at(&mut self, domain: DomainId, no: MessageNo) -> bool {
        if self.state.bounces.is_empty() {
            return false;
        }
        let Some(message) = self.store.message(no) else { return false };
        let site = self.domains.peek(domain).and_then(|entry| entry.site);
        let site = site.and_then(|site| self.state.sites.peek(site)).map(|site| &*site.key);
        let now = self.state.time.wall(self.now);
        let Some(reply) = self.state.bounces.reply(self.store, message, domain, site, now) else { return false };
        let what = DrainWhat::Waiting(domain, no);
        if self.failure.drains.back().is_none_or(|last| last.what != what) {
            self.failure.drains.push_back(Drain::all(what, &reply));
        }
        true
    }

    /// Bounces the covered recipients of a message at all domains of a site. Returns whether none are left in line
    /// there.
    fn leaves_to_bounce(&mut self, site: SiteId, no: MessageNo) -> bool {
        let is_about = |message| self.state.bounces.are_of(message);
        if !self.store.message(no).is_some_and(is_about) {
            return false;
        }
        let Some(flow) = self.state.messages.flow(no) else { return false };
        let entry = self.state.sites.get(site);
        let only = entry.domains.min().filter(|_| entry.domains.len() == 1).map(DomainId);
        let is_left = if let Some(domain) = only {
            !self.bounce_at(domain, no)
        } else {
            let mut domains = self.waits.at_sites.remove(&(site, no)).unwrap_or_default();
            domains.retain(|domain| !self.bounce_at(*domain, no));
            let is_left = !domains.is_empty();
            if is_left {
                self.waits.at_sites.insert((site, no), domains);
            }
            is_left
        };
        if !is_left {
            self.state.sites.get(site).lines.remove(flow, no);
        }
        !is_left
    }
}
