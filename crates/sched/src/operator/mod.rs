//! Operators' actions: hold and release messages, take recipients out, retry now; suspend and resume sites, lists and senders.
//!
//! **A held message** ([`Scheduler::hold_message`]) leaves the line of a site (or failing domain) when the scheduler comes
//! across it there. The place is noted, so that a release puts it back without a search. Its retry clocks go on, but nothing
//! of it is handed out, fails or expires, and it is no mailbox's probe. A message that is held at the start is not brought to
//! its domains before the release. A standing bounce goes before a hold: what it covers is bounced, a held message at the
//! start too.
//!
//! **A reserved recipient** ([`Scheduler::reserve`]) is neither handed out nor failed until [`Scheduler::removed`] (the
//! batch is durable and applied) or [`Scheduler::unreserve`] (it was refused).

mod flush;
mod queue_only;
mod suspend;

use std::collections::VecDeque;

use flush::Flush;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::failure::deferrals::sender_key;
use crate::failure::reports::report_if_last;
use crate::messages::Held;
use crate::{SMALL_RECIPIENTS_MAX, Scheduler};

/// Places of a released message that are put back at once; the rest is done by the next ticks.
const RELEASED_AT_ONCE_MAX: u32 = 64;
/// Addresses of a domain up to which a removal looks whether the message has others there.
const DOMAIN_LOOKED_AT_MAX: usize = 64;

/// Verbs that are carried out in slices.
#[derive(Default)]
pub struct Operator {
    releases: VecDeque<(MessageNo, Held)>,
    /// Messages that were held: the last recipient looked at, for mailboxes that they try for others.
    probes: VecDeque<(MessageNo, Option<u32>)>,
    flushes: VecDeque<Flush>,
    /// A flow was resumed: sites from here on are looked at again.
    resuming: Option<u32>,
    /// Domains that are queue-only no more, or that a run of the queue is to let pass.
    relinks: Vec<Box<str>>,
    /// It is time to look whether a run is over.
    pub look_at_run: bool,
}

impl Operator {
    /// Whether messages are being held or released.
    pub fn has_holds(&self) -> bool {
        !self.releases.is_empty() || !self.probes.is_empty()
    }

    pub fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    pub fn is_resuming(&self) -> bool {
        self.resuming.is_some()
    }
}

impl Scheduler {
    /// Nothing more of the message is handed out until [`Scheduler::release_message`]; transactions in flight end.
    pub fn hold_message(&mut self, no: MessageNo) {
        if self.core.messages.hold(no) && !self.failure.mailboxes.is_empty() {
            self.operator.probes.push_back((no, None));
        }
    }

    /// Ends a hold: the message waits again where it would be without it, behind the clocks that it has.
    pub fn release_message(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let now = self.steady(now);
        let Some(held) = self.core.messages.release(no) else { return };
        if held.unseen {
            let small = store.message(no).is_some_and(|message| message.pending().len() <= SMALL_RECIPIENTS_MAX);
            return self.begin(store, no, small, now);
        }
        self.operator.releases.push_back((no, held));
        if self.operator.releases.len() == 1 {
            self.releases_on(store, RELEASED_AT_ONCE_MAX, now);
        }
    }

    /// Of `ids`, those that an operator may take out now, and those in a transaction. Neither are those that failed and
    /// whose report is being made, and those that another verb is taking out.
    pub fn removable(&self, no: MessageNo, ids: &IdSet) -> (IdSet, IdSet) {
        self.core.messages.removable(no, ids)
    }

    /// Keeps recipients back until [`Scheduler::removed`] or [`Scheduler::unreserve`].
    pub fn reserve(&mut self, no: MessageNo, ids: &IdSet) {
        self.core.messages.reserve(no, ids);
    }

    /// Of recipients that were reserved in a transaction, those that none has any more and that are pending still. All of
    /// them are reserved again: another verb on them may have ended, and what is free and not reserved is handed out any
    /// moment. Not those that failed in between: they are left to their report.
    pub fn reserve_free(&mut self, store: &Store, no: MessageNo, ids: &IdSet) -> IdSet {
        store.message(no).map(|message| self.core.messages.reserve_free(no, message, ids)).unwrap_or_default()
    }

    /// The verb's batch was refused: the recipients go on as if nothing had been.
    pub fn unreserve(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        for id in &self.core.messages.end_reservation(no, ids) {
            self.make_ready(store, no, AddressId(id), now);
        }
    }

    /// An operator took recipients out (the store has it applied): their clocks and places are forgotten. Work in
    /// proportion to `ids`.
    pub fn removed(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        self.core.messages.end_reservation(no, ids);
        let is_gone = store.message(no).is_none();
        self.waits.removals |= is_gone;
        for id in ids {
            self.end_clocks(store, no, AddressId(id), now);
            let Some(domain) = store.book.try_domain(AddressId(id)) else { continue };
            if is_gone || has_nobody_at(store, no, domain) {
                self.choice(store, now).forget(domain, no);
                self.end_clocks_of_gone(store, now);
                self.leave_line(domain, no);
            }
        }
        report_if_last(&mut self.core, store, no);
    }

    fn leave_line(&mut self, domain: DomainId, no: MessageNo) {
        let Some(site) = self.domains.peek(domain).and_then(|d| d.site) else { return };
        let is_single = self.core.sites.get(site).domains.len() == 1;
        let mut is_last = is_single;
        if !is_single && let Some(domains) = self.waits.at_sites.get_mut(&(site, no)) {
            domains.retain(|d| *d != domain);
            is_last = domains.is_empty();
        }
        if is_last {
            self.waits.at_sites.remove(&(site, no));
            self.core.sites.get(site).lines.remove_gone(no);
        }
    }

    /// The recipients are tried as soon as a connection is there: their own clocks, their mailboxes', and those of their
    /// sites and domains end. Work in proportion to `ids`, which are neither in flight nor reserved.
    pub fn try_now(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        let Some(message) = store.message(no) else { return };
        let sender = sender_key(message.sender());
        for id in ids.iter().map(AddressId) {
            let domain = store.book.domain(id);
            if let Some(site) = self.site_of(domain) {
                self.try_site_now(site, domain, (no, sender), now);
            } else {
                self.domains.end_clock(&mut self.core, domain, now);
            }
            self.failure.mailboxes.end_strikes(id);
            if self.failure.recipients.forget(no, id) {
                self.make_ready(store, no, id, now);
            }
            for no in self.failure.mailboxes.try_now(&self.core, no, id, now) {
                self.make_ready(store, no, id, now);
            }
        }
    }

    fn try_site_now(&mut self, site: SiteId, domain: DomainId, (no, sender): (MessageNo, u64), now: Ms) {
        if self.core.sites.get(site).deferrals > 0 {
            self.failure.deferrals.end(&mut self.core, site, no, sender, now);
        }
        if self.core.sites.clock(site, now).is_some() {
            self.core.sites.end_host_clocks(site);
        }
        // All hosts of the site have failed: perhaps the domain has moved.
        if self.core.sites.has_failed(site) {
            self.domains.look_up_again(&mut self.core, domain, now);
        }
    }

    /// A held message has ended: what its places have of it is forgotten by the next ticks.
    pub(crate) fn held_is_gone(&mut self, no: MessageNo, held: &Held) {
        self.core.messages.held -= 1;
        self.waits.removals = true;
        self.remove_gone_held(no, held);
    }

    fn remove_gone_held(&mut self, no: MessageNo, held: &Held) {
        for site in &held.sites {
            self.waits.remove_gone_at(&mut self.core.sites, SiteId(site), no);
        }
        for domain in held.explicit.iter().chain(&held.bulk) {
            self.waits.traces.push_back((DomainId(domain), no));
        }
    }

    /// Goes on with releases, traces of messages that are gone, and probes, for at most `steps`.
    pub(crate) fn holds_on(&mut self, store: &Store, steps: u32, now: Ms) {
        let mut steps = self.releases_on(store, steps, now);
        while steps > 0
            && let Some((domain, no)) = self.waits.traces.pop_front()
        {
            steps -= 1;
            if !self.core.messages.is_live(no) {
                self.choice(store, now).forget(domain, no);
                self.end_clocks_of_gone(store, now);
            }
        }
        while steps > 0
            && let Some((no, mut cursor)) = self.operator.probes.pop_front()
        {
            let has_mailboxes = !self.failure.mailboxes.is_empty();
            let Some(message) = store.message(no).filter(|_| has_mailboxes) else { continue };
            let pending = message.pending();
            for id in cursor.map_or_else(|| pending.iter(), |after| pending.iter_from(after)) {
                cursor = Some(id);
                for other in self.failure.mailboxes.end_probe(&self.core, no, AddressId(id), now) {
                    self.make_ready(store, other, AddressId(id), now);
                }
                steps -= 1;
                if steps == 0 {
                    self.operator.probes.push_front((no, cursor));
                    return;
                }
            }
        }
    }

    fn releases_on(&mut self, store: &Store, mut steps: u32, now: Ms) -> u32 {
        while steps > 0
            && let Some((no, mut held)) = self.operator.releases.pop_front()
        {
            let Some((class, flow)) = self.core.messages.class_and_flow(no) else {
                self.remove_gone_held(no, &held);
                continue;
            };
            while steps > 0
                && let Some(site) = held.sites.min()
            {
                steps -= 1;
                held.sites.remove(site);
                self.core.enter_line(SiteId(site), (flow, class), no);
                self.core.sites.mark_dirty(SiteId(site));
            }
            for is_bulk in [true, false] {
                let domains = if is_bulk { &mut held.bulk } else { &mut held.explicit };
                while steps > 0
                    && let Some(domain) = domains.min()
                {
                    steps -= 1;
                    domains.remove(domain);
                    let entry = self.domains.get(DomainId(domain));
                    let set = if is_bulk { &mut entry.bulk } else { &mut entry.explicit };
                    set.insert(no.0);
                    self.link(store, DomainId(domain), (no, class), false, now);
                }
            }
            if !(held.sites.is_empty() && held.bulk.is_empty() && held.explicit.is_empty()) {
                self.operator.releases.push_front((no, held));
            }
        }
        steps
    }
}

/// Whether no pending recipient of a message is at a domain, as far as that is cheap to know.
fn has_nobody_at(store: &Store, no: MessageNo, domain: DomainId) -> bool {
    let (here, Some(message)) = (store.book.addresses_of(domain), store.message(no)) else { return false };
    here.len() <= DOMAIN_LOOKED_AT_MAX && !here.iter().any(|id| message.pending().contains(id))
}
