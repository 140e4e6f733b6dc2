//! Operators' actions: hold and release messages, take recipients out, retry now; suspend and resume sites, lists and
//! senders.
//!
//! **A held message** ([`Scheduler::hold_message`]) leaves the line of a site (or failing domain) when the scheduler
//! comes across it there. The place is noted, so that a release puts it back without a search. Its retry clocks go on,
//! but none of its recipients is handed out, fails or expires, and it is not used as a mailbox's probe. A message that
//! is held at the start is not linked to its domains before the release. A standing bounce takes precedence over a
//! hold: recipients that it covers are bounced, also those of a message held at the start.
//!
//! **A reserved recipient** ([`Scheduler::reserve`]) is neither handed out nor failed until [`Scheduler::removed`] (the
//! batch is durable and applied) or [`Scheduler::unreserve`] (it was refused).

mod flush;
mod queue_only;
mod regroup;
mod suspend;

use std::collections::VecDeque;

use flush::Flush;
use regroup::Regrouping;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use crate::failure::deferrals::sender_key;
use crate::failure::mailboxes::MailboxTurn;
use crate::failure::reports::report_if_last;
use crate::messages::PlacesIfReleased;
use crate::state::SchedState;
use crate::{SMALL_RECIPIENTS_MAX, Scheduler};

/// Places of a released message that are restored at once; the next ticks do the rest.
const RELEASED_AT_ONCE_MAX: u32 = 64;
/// Domains of up to this many addresses are searched by a removal for other recipients of the message.
const DOMAIN_LOOKED_AT_MAX: usize = 64;

/// Operators' actions that are carried out in slices.
#[derive(Default)]
pub struct OperatorTasks {
    releases: VecDeque<(MessageNo, PlacesIfReleased)>,
    /// Messages that were held, with the last recipient examined: the mailboxes that they probe for others need a new
    /// probe.
    probes: VecDeque<(MessageNo, Option<u32>)>,
    flushes: VecDeque<Flush>,
    /// A flow was resumed: sites from this one on are looked at again.
    resuming: Option<u32>,
    pub regrouping: Regrouping,
    /// Domains that are no longer queue-only, or that a run of the queue is to let pass.
    relinks: Vec<Box<str>>,
    /// Whether it is time to check if a run is over.
    pub look_at_run: bool,
}

impl OperatorTasks {
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
    /// Hands out no more of the message until [`Scheduler::release_message`]; transactions in flight finish.
    pub fn hold_message(&mut self, no: MessageNo) {
        if self.state.messages.hold(no) && !self.failure.mailboxes.is_empty() {
            self.operator.probes.push_back((no, None));
        }
    }

    /// Ends a hold: the message waits again where it would be without it, behind its clocks.
    pub fn release_message(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let now = self.steady(now);
        let Some(held) = self.state.messages.release(no) else { return };
        if held.unseen {
            let small = store.message(no).is_some_and(|message| message.pending().len() <= SMALL_RECIPIENTS_MAX);
            return self.begin(store, no, small, now);
        }
        self.operator.releases.push_back((no, held));
        if self.operator.releases.len() == 1 {
            self.releases_on(store, RELEASED_AT_ONCE_MAX, now);
        }
    }

    /// Splits `ids` into recipients that an operator may take out now and recipients in a transaction. Failed
    /// recipients whose report is being made, and those that another action is taking out, are in neither.
    pub fn removable(&self, no: MessageNo, ids: &IdSet) -> (IdSet, IdSet) {
        self.state.messages.removable(no, ids)
    }

    /// Keeps recipients back until [`Scheduler::removed`] or [`Scheduler::unreserve`].
    pub fn reserve(&mut self, no: MessageNo, ids: &IdSet) {
        self.state.messages.reserve(no, ids);
    }

    /// Reserves again those of `ids` that are still pending and no longer in a transaction, and returns them. They were
    /// reserved in a transaction, but another action on them may have ended, and free recipients without a reservation
    /// may be handed out at any moment. Recipients that failed in between are left to their report.
    pub fn reserve_free(&mut self, store: &Store, no: MessageNo, ids: &IdSet) -> IdSet {
        store.message(no).map(|message| self.state.messages.reserve_free(no, message, ids)).unwrap_or_default()
    }

    /// Called when the action's batch was refused: the recipients go on as before.
    pub fn unreserve(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        for id in &self.state.messages.end_reservation(no, ids) {
            self.make_ready(store, no, AddressId(id), now);
        }
    }

    /// Called when an operator took recipients out and the store has applied it: forgets their clocks and places. Work
    /// is proportional to `ids`.
    pub fn removed(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        self.state.messages.end_reservation(no, ids);
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
        report_if_last(&mut self.state, store, no);
    }

    fn leave_line(&mut self, domain: DomainId, no: MessageNo) {
        let Some(site) = self.domains.peek(domain).and_then(|d| d.site) else { return };
        let is_single = self.state.sites.get(site).domains.len() == 1;
        let mut is_last = is_single;
        if !is_single && let Some(domains) = self.waits.at_sites.get_mut(&(site, no)) {
            domains.retain(|d| *d != domain);
            is_last = domains.is_empty();
        }
        if is_last {
            self.waits.at_sites.remove(&(site, no));
            self.state.sites.get(site).lines.remove_gone(no);
        }
    }

    /// Tries the recipients as soon as there is a connection: ends their own clocks and those of their mailboxes, sites
    /// and domains. Work is proportional to `ids`, which are neither in flight nor reserved.
    pub fn try_now(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        let Some(message) = store.message(no) else { return };
        let sender = sender_key(message.sender());
        for id in ids.iter().map(AddressId) {
            let domain = store.book.domain(id);
            if let Some(site) = self.site_of(domain) {
                self.try_site_now(site, domain, no, sender, now);
            } else {
                self.domains.end_clock(&mut self.state, domain, now);
            }
            self.failure.mailboxes.end_strikes(id);
            if self.failure.recipients.forget(no, id) {
                self.make_ready(store, no, id, now);
            }
            let is_kept = |state: &SchedState, no| self.domains.keeps(state, store, no, id);
            let turn = MailboxTurn { state: &self.state, id, is_kept, now };
            for no in self.failure.mailboxes.try_now(no, &turn) {
                self.make_ready(store, no, id, now);
            }
        }
    }

    fn try_site_now(&mut self, site: SiteId, domain: DomainId, no: MessageNo, sender: u64, now: Ms) {
        if self.state.sites.get(site).deferrals > 0 {
            self.failure.deferrals.end(&mut self.state, site, no, sender);
        }
        if self.state.sites.clock(site, now).is_some() {
            self.state.sites.end_host_clocks(site);
        }
        // All hosts of the site have failed: the domain may have moved.
        if self.state.sites.has_failed(site) {
            self.domains.look_up_again(&mut self.state, domain, now);
        }
    }

    /// Called when a held message has ended: the next ticks make its places forget it.
    pub(crate) fn held_is_gone(&mut self, no: MessageNo, held: &PlacesIfReleased) {
        self.state.messages.held -= 1;
        self.waits.removals = true;
        self.remove_gone_held(no, held);
    }

    fn remove_gone_held(&mut self, no: MessageNo, held: &PlacesIfReleased) {
        for site in &held.sites {
            self.waits.remove_gone_at(&mut self.state.sites, SiteId(site), no);
        }
        for domain in held.explicit.iter().chain(&held.bulk) {
            self.waits.traces.push_back((DomainId(domain), no));
        }
    }

    /// Continues with releases, forgetting of finished messages, and probes, for at most `steps`.
    pub(crate) fn holds_on(&mut self, store: &Store, steps: u32, now: Ms) {
        let mut steps = self.releases_on(store, steps, now);
        while steps > 0
            && let Some((domain, no)) = self.waits.traces.pop_front()
        {
            steps -= 1;
            if !self.state.messages.is_live(no) {
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
                let id = AddressId(id);
                let is_kept = |state: &SchedState, no| self.domains.keeps(state, store, no, id);
                let turn = MailboxTurn { state: &self.state, id, is_kept, now };
                for other in self.failure.mailboxes.end_probe(no, &turn) {
                    self.make_ready(store, other, id, now);
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
            let Some((class, flow)) = self.state.messages.class_and_flow(no) else {
                self.remove_gone_held(no, &held);
                continue;
            };
            while steps > 0
                && let Some(site) = held.sites.min()
            {
                steps -= 1;
                held.sites.remove(site);
                self.state.enter_line(SiteId(site), flow, class, no);
                self.state.sites.mark_dirty(SiteId(site));
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
                    self.link(store, DomainId(domain), no, class, false, now);
                }
            }
            if !(held.sites.is_empty() && held.bulk.is_empty() && held.explicit.is_empty()) {
                self.operator.releases.push_front((no, held));
            }
        }
        steps
    }
}

/// Whether no pending recipient of a message is at a domain, as far as that is cheap to find out.
fn has_nobody_at(store: &Store, no: MessageNo, domain: DomainId) -> bool {
    let (here, Some(message)) = (store.book.addresses_of(domain), store.message(no)) else { return false };
    here.len() <= DOMAIN_LOOKED_AT_MAX && !here.iter().any(|id| message.pending().contains(id))
}
