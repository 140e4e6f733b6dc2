//! What operators' verbs need of the scheduler: messages held without a clock, recipients taken out, clocks wound back.
//!
//! **A held message** ([`Scheduler::hold_message`]) is parked wherever the choice of work comes upon it: it leaves the
//! site's (or failing domain's) line, and the place is noted, so that a release puts it back there and nowhere else is
//! searched. Its clocks run on, but nothing of it is handed out, fails or expires, and it is no mailbox's probe. One
//! that is held at the start is not brought to its domains before the release.
//!
//! **A reserved recipient** ([`Scheduler::reserve`]) is neither handed out nor failed until [`Scheduler::removed`] (the
//! verb's batch is durable and applied) or [`Scheduler::unreserve`] (it was refused). It stays where it is; only if it is
//! looked at for a transaction meanwhile it is noted as `met`, and a refusal makes it ready again. One in a transaction
//! may be reserved too: it then does not go a second time, whatever the transaction's end.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::clocks::sender_key;
use super::flows::FlowKey;
use super::lines::oldest;
use super::{Active, SMALL_RECIPIENTS_MAX, Scheduler};
use crate::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

/// Held or finished messages taken out of the front of a site's line before it is looked at again later.
const FRONT_MAX: u32 = 8;
/// Places of a released message that are put back at once; the rest is done by the next ticks.
const RELEASED_AT_ONCE_MAX: u32 = 64;
/// Addresses of a domain up to which a removal looks whether the message has others there.
const DOMAIN_LOOKED_AT_MAX: usize = 64;

/// Where a held message would be.
#[derive(Default)]
pub(super) struct Parked {
    /// It was held when it was heard of: nothing of it is anywhere.
    unseen: bool,
    sites: IdSet,
    /// Domains, as in `Domain::bulk` and `Domain::explicit`.
    bulk: IdSet,
    explicit: IdSet,
}

/// Recipients that an operator is taking out.
#[derive(Default)]
pub(super) struct Reserved {
    ids: IdSet,
    /// Those that were kept back when their turn came.
    met: IdSet,
}

#[derive(Default)]
pub(super) struct Verbs {
    held: usize,
    /// Whether messages have ended that may still stand in lines.
    removals: bool,
    releases: VecDeque<(MessageNo, Parked)>,
    /// Traces of messages that are gone.
    graves: VecDeque<(DomainId, MessageNo)>,
    /// Messages that were held: the last recipient looked at, for mailboxes that they try for others.
    probes: VecDeque<(MessageNo, Option<u32>)>,
}

impl Verbs {
    pub fn has_work(&self) -> bool {
        !self.releases.is_empty() || !self.graves.is_empty() || !self.probes.is_empty()
    }
}

impl Active {
    pub fn is_parked(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.parked.is_some())
    }

    /// Whether an operator keeps the recipient back; that its turn came is noted.
    pub fn meets_reservation(&mut self, id: AddressId) -> bool {
        let Some(reserved) = self.extra.as_mut().and_then(|extra| extra.reserved.as_mut()) else { return false };
        let is_reserved = reserved.ids.contains(id.0);
        if is_reserved {
            reserved.met.insert(id.0);
        }
        is_reserved
    }
}

impl Scheduler {
    /// Nothing more of the message is handed out until [`Scheduler::release_message`]; transactions under way end.
    pub fn hold_message(&mut self, no: MessageNo) {
        let Some(active) = self.messages.begin(no) else { return };
        let extra = active.extra.get_or_insert_default();
        if extra.parked.is_some() {
            return;
        }
        extra.parked = Some(Box::default());
        self.verbs.held += 1;
        if self.has_mailboxes() {
            self.verbs.probes.push_back((no, None));
        }
    }

    /// Ends a hold: the message waits again where it would be without it, behind the clocks that it has.
    pub fn release_message(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let now = self.steady(now);
        let extra = self.messages.get_mut(no).and_then(|active| active.extra.as_mut());
        let Some(parked) = extra.and_then(|extra| extra.parked.take()) else { return };
        self.verbs.held -= 1;
        if parked.unseen {
            let small = store.message(no).is_some_and(|message| message.pending().len() <= SMALL_RECIPIENTS_MAX);
            self.begin(store, no, small, now);
            return;
        }
        self.verbs.releases.push_back((no, *parked));
        if self.verbs.releases.len() == 1 {
            self.releases_on(store, RELEASED_AT_ONCE_MAX, now);
        }
    }

    /// Nothing more goes to the site (by its name, known or not) until it is resumed; what is under way ends.
    pub fn suspend_site(&mut self, name: &str) {
        if self.sites.suspended.iter().any(|n| &**n == name) {
            return;
        }
        self.sites.suspended.push(name.into());
        if let Some(site) = self.sites.named(name) {
            self.sites.get(site).suspended = true;
        }
    }

    pub fn resume_site(&mut self, name: &str) {
        self.sites.suspended.retain(|n| &**n != name);
        if let Some(site) = self.sites.named(name) {
            self.sites.get(site).suspended = false;
            self.sites.mark_dirty(site);
        }
    }

    /// [`Self::suspend_site`], [`Self::suspend_flow`] and their ends, by the names of [`crate::event::Event::Suspend`].
    /// What is not the scheduler's (a subscriber) changes nothing.
    pub fn set_suspended(&mut self, what: &str, suspended: bool) {
        let Some((kind, name)) = what.split_once(':') else { return };
        let key = match kind {
            "list" => FlowKey::List(name.into()),
            "sender" => FlowKey::Sender(name.into()),
            "site" if suspended => return self.suspend_site(name),
            "site" => return self.resume_site(name),
            _ => return,
        };
        if suspended { self.suspend_flow(&key) } else { self.resume_flow(&key) }
    }

    pub fn suspended_sites(&self) -> &[std::sync::Arc<str>] {
        &self.sites.suspended
    }

    /// Of `ids`, those that an operator may take out now, and those in a transaction. Neither are those that failed and
    /// whose report is being made, and those that another verb is taking out.
    pub fn removable(&self, no: MessageNo, ids: &IdSet) -> (IdSet, IdSet) {
        if !self.messages.is_live(no) {
            return (IdSet::new(), IdSet::new());
        }
        let mut free = ids.clone();
        let Some(active) = self.messages.get(no) else { return (free, IdSet::new()) };
        if let Some(extra) = &active.extra {
            free.subtract(extra.failing.ids());
            if let Some(reserved) = &extra.reserved {
                free.subtract(&reserved.ids);
            }
        }
        let in_flight = free.intersection(&active.in_flight);
        free.subtract(&in_flight);
        (free, in_flight)
    }

    /// Keeps recipients back until [`Scheduler::removed`] or [`Scheduler::unreserve`].
    pub fn reserve(&mut self, no: MessageNo, ids: &IdSet) {
        if !ids.is_empty()
            && let Some(active) = self.messages.begin(no)
        {
            active.extra.get_or_insert_default().reserved.get_or_insert_default().ids.union_with(ids);
        }
    }

    /// Of recipients that were reserved in a transaction, those that none has any more and that are pending still. All of
    /// them are reserved again: another verb on them may have ended, and what is free and not reserved is handed out any
    /// moment. Not those that failed in between: they are left to their report.
    pub fn reserve_free(&mut self, store: &Store, no: MessageNo, ids: &IdSet) -> IdSet {
        let Some(message) = store.message(no).filter(|_| self.messages.is_live(no)) else { return IdSet::new() };
        let mut free = message.pending().intersection(ids);
        let active = self.messages.get(no);
        if let Some(extra) = active.and_then(|active| active.extra.as_ref()) {
            free.subtract(extra.failing.ids());
        }
        let in_flight = active.map_or_else(IdSet::new, |active| free.intersection(&active.in_flight));
        self.reserve(no, &free);
        free.subtract(&in_flight);
        free
    }

    /// The verb's batch was refused: the recipients go on as if nothing had been.
    pub fn unreserve(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        for id in &self.end_reservation(no, ids) {
            self.make_ready(store, no, AddressId(id), now);
        }
    }

    /// Answers which of them had their turn meanwhile.
    fn end_reservation(&mut self, no: MessageNo, ids: &IdSet) -> IdSet {
        let Some(extra) = self.messages.get_mut(no).and_then(|active| active.extra.as_mut()) else {
            return IdSet::new();
        };
        let Some(reserved) = extra.reserved.as_mut() else { return IdSet::new() };
        let met = reserved.met.intersection(ids);
        reserved.ids.subtract(ids);
        reserved.met.subtract(ids);
        if reserved.ids.is_empty() {
            extra.reserved = None;
        }
        met
    }

    /// An operator took recipients out (the store has it applied): their clocks and places are forgotten. Work in
    /// proportion to `ids`.
    pub fn removed(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        self.end_reservation(no, ids);
        let is_gone = store.message(no).is_none();
        self.verbs.removals |= is_gone;
        for id in ids {
            self.settle(store, no, AddressId(id), now);
            let Some(domain) = store.book.try_domain(AddressId(id)) else { continue };
            if is_gone || has_nobody_at(store, no, domain) {
                self.forget(store, domain, no, now);
                self.leave_line(domain, no);
            }
        }
        self.report_if_last(store, no);
    }

    fn leave_line(&mut self, domain: DomainId, no: MessageNo) {
        let Some(site) = self.domains.peek(domain).and_then(|d| d.site) else { return };
        let is_single = self.sites.get(site).domains.len() == 1;
        let mut is_last = is_single;
        if !is_single && let Some(domains) = self.waits.at_sites.get_mut(&(site, no)) {
            domains.retain(|d| *d != domain);
            is_last = domains.is_empty();
        }
        if is_last {
            self.waits.at_sites.remove(&(site, no));
            self.sites.get(site).lines.remove_gone(no);
        }
    }

    /// The recipients are tried as soon as a connection is there: their own clocks, their mailboxes', and those of their
    /// sites and domains end. Work in proportion to `ids`, which are neither in flight nor reserved.
    pub fn try_now(&mut self, store: &Store, no: MessageNo, ids: &IdSet, now: Ms) {
        let now = self.steady(now);
        let Some(message) = store.message(no) else { return };
        let sender = sender_key(message.sender());
        for id in ids {
            let domain = store.book.domain(AddressId(id));
            if let Some(site) = self.site_of(domain) {
                if self.sites.get(site).holds > 0 {
                    self.end_holds(site, no, sender, now);
                }
                if self.site_clock(site, now).is_some() {
                    self.end_host_clocks(site);
                }
                // Nobody there has served us since: perhaps its mail goes elsewhere now.
                if self.sites.has_failed(site) {
                    self.look_up_again(domain, now);
                }
            } else {
                self.end_look_up_clock(domain, now);
            }
            self.end_clocks(store, no, AddressId(id), now);
        }
    }

    /// A message that is held when it is heard of.
    pub(super) fn park_unseen(&mut self, no: MessageNo) {
        if let Some(active) = self.messages.begin(no) {
            let parked = Parked { unseen: true, ..Parked::default() };
            active.extra.get_or_insert_default().parked = Some(Box::new(parked));
            self.verbs.held += 1;
        }
    }

    /// Whether the message is held; if so it leaves the site's line and the place is noted.
    pub(super) fn park(&mut self, site: SiteId, no: MessageNo) -> bool {
        if self.verbs.held == 0 {
            return false;
        }
        let extra = self.messages.get_mut(no).and_then(|active| active.extra.as_mut());
        let Some(parked) = extra.and_then(|extra| extra.parked.as_mut()) else { return false };
        parked.sites.insert(site.0);
        if let Some(flow) = self.messages.flow(no) {
            self.sites.get(site).lines.remove(flow, no);
        }
        true
    }

    /// The same for a domain whose waiting recipients fail.
    pub(super) fn park_at_domain(&mut self, domain: DomainId, no: MessageNo) -> bool {
        if self.verbs.held == 0 {
            return false;
        }
        let Some(extra) = self.messages.get_mut(no).and_then(|active| active.extra.as_mut()) else { return false };
        let Some(parked) = extra.parked.as_mut() else { return false };
        let entry = self.domains.get(domain);
        if entry.bulk.remove(no.0) {
            parked.bulk.insert(domain.0);
        }
        if entry.explicit.remove(no.0) {
            parked.explicit.insert(domain.0);
        }
        if let Some(activation) = extra.activation.as_mut() {
            activation.touched.insert(domain.0);
        }
        true
    }

    /// Takes held and finished messages out of the front of a site's line, so that no connection is opened for them.
    /// `false`: there may be more, and the site is looked at again.
    pub(super) fn clear_front(&mut self, site: SiteId) -> bool {
        if self.verbs.held == 0 && !self.verbs.removals {
            return true;
        }
        for _ in 0..FRONT_MAX {
            let mut is_clear = true;
            let mut fronts: SmallVec<[MessageNo; 4]> = SmallVec::new();
            let lines = &self.sites.get(site).lines.list;
            fronts.extend(lines.iter().filter_map(|line| oldest(&line.waiting, self.newest)));
            for no in fronts {
                if !self.messages.is_live(no) {
                    self.bury_at(site, no);
                    is_clear = false;
                } else if self.park(site, no) {
                    is_clear = false;
                }
            }
            if is_clear {
                return true;
            }
        }
        self.sites.mark_dirty(site);
        false
    }

    /// A message that is gone leaves a site's line; what its domains have of it is forgotten by the next ticks.
    pub(super) fn bury_at(&mut self, site: SiteId, no: MessageNo) {
        let entry = self.sites.get(site);
        entry.lines.remove_gone(no);
        if entry.domains.len() == 1
            && let Some(only) = entry.domains.min()
        {
            self.verbs.graves.push_back((DomainId(only), no));
        }
        for domain in self.waits.at_sites.remove(&(site, no)).unwrap_or_default() {
            self.verbs.graves.push_back((domain, no));
        }
    }

    /// A held message has ended.
    pub(super) fn unpark_gone(&mut self, no: MessageNo, parked: &Parked) {
        self.verbs.held -= 1;
        self.verbs.removals = true;
        self.bury_all(no, parked);
    }

    /// What a domain has of a message that is gone is forgotten by the next ticks.
    pub(super) fn bury_at_domain(&mut self, domain: DomainId, no: MessageNo) {
        self.verbs.graves.push_back((domain, no));
    }

    fn bury_all(&mut self, no: MessageNo, parked: &Parked) {
        for site in &parked.sites {
            self.bury_at(SiteId(site), no);
        }
        for domain in parked.explicit.iter().chain(&parked.bulk) {
            self.verbs.graves.push_back((DomainId(domain), no));
        }
    }

    /// Goes on with releases, graves and probes for at most `steps`.
    pub(super) fn verbs_on(&mut self, store: &Store, steps: u32, now: Ms) {
        let mut steps = self.releases_on(store, steps, now);
        while steps > 0
            && let Some((domain, no)) = self.verbs.graves.pop_front()
        {
            steps -= 1;
            if !self.messages.is_live(no) {
                self.forget(store, domain, no, now);
            }
        }
        while steps > 0
            && let Some((no, mut cursor)) = self.verbs.probes.pop_front()
        {
            let Some(message) = store.message(no).filter(|_| self.has_mailboxes()) else { continue };
            let pending = message.pending();
            for id in cursor.map_or_else(|| pending.iter(), |after| pending.iter_from(after)) {
                cursor = Some(id);
                self.end_probe(store, no, AddressId(id), now);
                steps -= 1;
                if steps == 0 {
                    self.verbs.probes.push_front((no, cursor));
                    return;
                }
            }
        }
    }

    fn releases_on(&mut self, store: &Store, mut steps: u32, now: Ms) -> u32 {
        while steps > 0
            && let Some((no, mut parked)) = self.verbs.releases.pop_front()
        {
            let Some((class, flow)) = self.messages.class_and_flow(no) else {
                self.bury_all(no, &parked);
                continue;
            };
            while steps > 0
                && let Some(site) = parked.sites.min()
            {
                steps -= 1;
                parked.sites.remove(site);
                self.sites.get(SiteId(site)).lines.insert(flow, class, no);
                self.sites.mark_dirty(SiteId(site));
            }
            for is_bulk in [true, false] {
                let domains = if is_bulk { &mut parked.bulk } else { &mut parked.explicit };
                while steps > 0
                    && let Some(domain) = domains.min()
                {
                    steps -= 1;
                    domains.remove(domain);
                    let entry = self.domains.get(DomainId(domain));
                    let set = if is_bulk { &mut entry.bulk } else { &mut entry.explicit };
                    set.insert(no.0);
                    self.link(store, DomainId(domain), no, class, now);
                }
            }
            if !(parked.sites.is_empty() && parked.bulk.is_empty() && parked.explicit.is_empty()) {
                self.verbs.releases.push_front((no, parked));
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
