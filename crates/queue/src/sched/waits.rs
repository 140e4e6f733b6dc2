//! Who waits where, and the choice of the next transaction.
//!
//! Two levels: a domain knows the messages that wait for it (`bulk`: not looked at; `explicit`: with a list of ready
//! recipients in `lists`), a site knows the messages that wait at any of its domains (`Site::waiting`). For sites of many
//! domains, `at_sites` has the domains at which a message waits there, four bytes each. Each recipient is looked at once
//! when its domain is touched and once per return from a clock.

use smallvec::SmallVec;

use super::flows::FlowNo;
use super::lines::oldest;
use super::sites::HostNo;
use super::tables::Parts;
use super::{Active, Ids, STEPS_MAX, Scheduler, SourceNo};
use crate::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

/// Above this many on the smaller side, the recipients of a message at a domain are found by bitmap arithmetic.
const LISTED_MAX: usize = 2_048;

/// The ready recipients of one message at one domain.
#[derive(Default)]
struct List {
    ids: SmallVec<[AddressId; 4]>,
    rest: Option<Box<Rest>>,
}

/// Many recipients of one message at one domain, handed out in order.
struct Rest {
    set: IdSet,
    cursor: Option<u32>,
}

impl List {
    fn pop(&mut self) -> Option<AddressId> {
        if let Some(id) = self.ids.pop() {
            return Some(id);
        }
        let rest = self.rest.as_mut()?;
        let next = rest.cursor.map_or_else(|| rest.set.min(), |after| rest.set.iter_from(after).next());
        match next {
            Some(id) => rest.cursor = Some(id),
            None => self.rest = None,
        }
        next.map(AddressId)
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
            && self
                .rest
                .as_ref()
                .is_none_or(|r| r.cursor.is_some_and(|after| r.set.max().is_none_or(|max| max <= after)))
    }
}

/// Of one message at one site of many domains: where it waits. A domain may be named twice, or in vain.
pub(super) type AtSite = SmallVec<[DomainId; 4]>;

#[derive(Default)]
pub(super) struct Waits {
    lists: Parts<(DomainId, MessageNo), List>,
    pub at_sites: Parts<(SiteId, MessageNo), AtSite>,
}

impl Waits {
    pub fn lists_len(&self) -> usize {
        self.lists.len()
    }
}

impl Scheduler {
    /// The recipient may be sent to as soon as a connection is there.
    pub(super) fn make_ready(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        let Some((class, flow)) = self.messages.class_and_flow(no) else { return };
        // An address that was forgotten since has nothing pending anywhere.
        let Some(domain) = store.book.try_domain(id) else { return };
        self.waits.lists.get_or_insert_with((domain, no), List::default).ids.push(id);
        if self.domains.get(domain).explicit.insert(no.0) {
            self.link(store, domain, no, class, now);
        } else if let Some(site) = self.domains.get(domain).site
            && !self.park(site, no)
        {
            self.stand_in_line(store, site, no, (flow, class), now);
            self.consider(site, now);
        }
    }

    /// Enters (site, message): untouched recipients of a domain, or a list.
    pub(super) fn wait_at(
        &mut self,
        store: &Store,
        site: SiteId,
        domain: DomainId,
        no: MessageNo,
        class: usize,
        now: Ms,
    ) {
        let parked = self.park(site, no);
        if let Some(flow) = self.messages.flow(no).filter(|_| !parked) {
            self.stand_in_line(store, site, no, (flow, class), now);
        }
        let entry = self.sites.get(site);
        if entry.domains.len() > 1 {
            self.waits.at_sites.get_or_insert_with((site, no), AtSite::new).push(domain);
        }
    }

    /// In the site's line, or at the hold that keeps it back: no connection is opened to see that.
    fn stand_in_line(&mut self, store: &Store, site: SiteId, no: MessageNo, (flow, class): (FlowNo, usize), now: Ms) {
        if self.sites.get(site).holds == 0 || !self.held_back(store, site, no, now) {
            self.sites.get(site).lines.insert(flow, class, no);
        }
    }

    /// The next slice of a large message's way to its domains.
    pub(super) fn activate(&mut self, store: &Store, no: MessageNo, mut steps: u32, now: Ms) -> u32 {
        let (Some(class), Some(active)) = (self.messages.class(no), self.messages.get_mut(no)) else {
            self.activating.pop_front();
            return steps;
        };
        let activation = active.extra.as_mut().and_then(|extra| extra.activation.take());
        let (Some(mut activation), Some(message)) = (activation, store.message(no)) else {
            self.activating.pop_front();
            return steps;
        };
        let pending = message.pending();
        let mut ids = activation.cursor.map_or_else(|| pending.iter(), |after| pending.iter_from(after));
        let mut last = None;
        let mut done = false;
        while steps > 0 {
            let Some(id) = ids.next() else {
                done = true;
                break;
            };
            activation.cursor = Some(id);
            steps -= 1;
            let domain = store.book.domain(AddressId(id));
            if last == Some(domain) || activation.touched.contains(domain.0) {
                continue;
            }
            last = Some(domain);
            if self.domains.get(domain).bulk.insert(no.0) {
                self.link(store, domain, no, class, now);
                steps = steps.saturating_sub(1);
            }
        }
        if done {
            self.activating.pop_front();
        } else if let Some(active) = self.messages.get_mut(no) {
            active.extra.get_or_insert_default().activation = Some(activation);
        }
        steps
    }

    /// The next transaction for a host of a site, its recipients marked as in flight.
    pub(super) fn select(
        &mut self,
        store: &Store,
        site: SiteId,
        source: SourceNo,
        host: HostNo,
        now: Ms,
    ) -> Option<(MessageNo, Ids)> {
        let entry = self.sites.get(site);
        let given = entry.limits.recipients_per_transaction_max.map(|max| (max as usize).max(1));
        let given = given.unwrap_or(self.cfg.recipients_per_transaction_max);
        let max = given.min(entry.paths[source as usize].recipients_max);
        if entry.offers.is_empty() {
            return self.select_in_line(store, site, source, max, now);
        }
        // By turns.
        entry.offer_served = !entry.offer_served;
        if entry.offer_served {
            let found = self.select_offered(store, (site, source, host), max, now);
            return found.or_else(|| self.select_in_line(store, site, source, max, now));
        }
        let found = self.select_in_line(store, site, source, max, now);
        found.or_else(|| self.select_offered(store, (site, source, host), max, now))
    }

    fn select_in_line(
        &mut self,
        store: &Store,
        site: SiteId,
        source: SourceNo,
        max: usize,
        now: Ms,
    ) -> Option<(MessageNo, Ids)> {
        let mut steps = STEPS_MAX;
        while steps > 0 {
            steps -= 1;
            let newest = self.newest;
            let entry = self.sites.get(site);
            let classes = entry.classes(self.cfg.ordinary_per_bulk);
            let lines = &mut entry.lines;
            let flow = classes.into_iter().find_map(|class| lines.choose(class, source, &self.flows))?;
            let line = lines.line(flow)?;
            let (class, no) = (line.class, oldest(&line.waiting, newest)?);
            if entry.holds > 0 && self.held_back(store, site, no, now) {
                continue;
            }
            if self.park(site, no) {
                continue;
            }
            let mut ids = Ids::new();
            self.gather(store, site, no, max, &mut ids, &mut steps, now);
            if !ids.is_empty() {
                let entry = self.sites.get(site);
                entry.class_served(class);
                entry.lines.served(flow, ids.len());
                return Some((no, ids));
            }
        }
        // Out of steps, and perhaps there is more.
        self.sites.mark_dirty(site);
        None
    }

    /// Takes up to `max` recipients of a message at a site: of one domain, or of several where the site mixes them.
    #[allow(clippy::too_many_arguments)] // one loop's state; a struct for it would only be taken apart again
    pub(super) fn gather(
        &mut self,
        store: &Store,
        site: SiteId,
        no: MessageNo,
        max: usize,
        out: &mut Ids,
        steps: &mut u32,
        now: Ms,
    ) {
        let Some(flow) = self.messages.flow(no) else {
            self.bury_at(site, no);
            return;
        };
        let (mixes, single) = {
            let entry = self.sites.get(site);
            let only = entry.domains.min().filter(|_| entry.domains.len() == 1);
            (entry.mixes_domains, only.map(DomainId))
        };
        if let Some(domain) = single {
            let elsewhere = self.domains.get(domain).site != Some(site);
            if elsewhere || self.take(store, domain, no, max, out, steps, now) {
                self.sites.get(site).lines.remove(flow, no);
            }
            return;
        }
        let mut domains = self.waits.at_sites.remove(&(site, no)).unwrap_or_default();
        while *steps > 0
            && out.len() < max
            && (mixes || out.is_empty())
            && let Some(domain) = domains.last().copied()
        {
            *steps -= 1;
            let elsewhere = self.domains.get(domain).site != Some(site);
            if elsewhere || self.take(store, domain, no, max - out.len(), out, steps, now) {
                domains.pop();
            }
        }
        if let Some(new) = self.waits.at_sites.remove(&(site, no)) {
            domains.extend(new);
        }
        if domains.is_empty() {
            self.sites.get(site).lines.remove(flow, no);
        } else {
            self.waits.at_sites.insert((site, no), domains);
        }
    }

    /// Takes recipients of a message at a domain, marking them as in flight. Returns whether none is left there.
    #[allow(clippy::too_many_arguments)] // as above
    pub(super) fn take(
        &mut self,
        store: &Store,
        domain: DomainId,
        no: MessageNo,
        max: usize,
        out: &mut Ids,
        steps: &mut u32,
        now: Ms,
    ) -> bool {
        let (Some(active), Some(message)) = (self.messages.begin(no), store.message(no)) else {
            self.forget(store, domain, no, now);
            return true;
        };
        let entry = self.domains.get(domain);
        let mut fresh = List::default();
        if entry.bulk.remove(no.0) {
            fresh = touch(active, domain, store, message.pending(), steps);
        }
        let mut known = if entry.explicit.contains(no.0) { self.waits.lists.get_mut(&(domain, no)) } else { None };
        if let Some(known) = known.as_deref_mut() {
            known.ids.extend(fresh.ids.drain(..));
            known.rest = fresh.rest.take().or(known.rest.take());
        }
        let is_known = known.is_some();
        let list = known.unwrap_or(&mut fresh);
        let mut gone = Ids::new();
        let full = out.len() + max;
        while out.len() < full && *steps > 0 {
            let Some(id) = list.pop() else { break };
            *steps -= 1;
            if !message.pending().contains(id.0) {
                gone.push(id);
            } else if active.meets_reservation(id) {
                // The verb's end says what becomes of it.
            } else if self.clocks.keeps_back(id, no, now) || active.is_failing(id) {
                // The mailbox's clock (or the report) brings it back.
            } else if active.in_flight.insert(id.0) {
                out.push(id);
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
        self.messages.rest(no);
        for id in gone {
            self.settle(store, no, id, now);
        }
        // What `settle` brought back, if it did, is linked anew.
        empty && !self.domains.get(domain).explicit.contains(no.0)
    }

    /// A message that is gone: its traces at a domain.
    pub(super) fn forget(&mut self, store: &Store, domain: DomainId, no: MessageNo, now: Ms) {
        let entry = self.domains.get(domain);
        entry.bulk.remove(no.0);
        entry.explicit.remove(no.0);
        if let Some(list) = self.waits.lists.remove(&(domain, no)) {
            for id in list.ids {
                self.settle(store, no, id, now);
            }
        }
    }

    /// The oldest message that waits at a domain, for drains.
    pub(super) fn oldest_at_domain(&mut self, domain: DomainId) -> Option<MessageNo> {
        let newest = self.newest;
        let entry = self.domains.get(domain);
        let (bulk, explicit) = (oldest(&entry.bulk, newest), oldest(&entry.explicit, newest));
        // Cyclic order: the distance from the oldest possible number.
        [bulk, explicit].into_iter().flatten().min_by_key(|no| no.0.wrapping_sub(newest).wrapping_sub(1))
    }
}

/// The recipients of a message at a domain that nobody has looked at.
fn touch(active: &mut Active, domain: DomainId, store: &Store, pending: &IdSet, steps: &mut u32) -> List {
    if let Some(activation) = active.extra.as_mut().and_then(|extra| extra.activation.as_mut()) {
        activation.touched.insert(domain.0);
    }
    let here = store.book.addresses_of(domain);
    let mut list = List::default();
    let smaller = here.len().min(pending.len());
    if smaller > LISTED_MAX {
        list.rest = Some(Box::new(Rest { set: pending.intersection(here), cursor: None }));
        *steps = steps.saturating_sub(STEPS_MAX / 8);
        return list;
    }
    *steps = steps.saturating_sub(smaller as u32 / 2);
    if here.len() <= pending.len() {
        list.ids.extend(here.iter().filter(|id| pending.contains(*id)).map(AddressId));
    } else {
        list.ids.extend(pending.iter().filter(|id| here.contains(*id)).map(AddressId));
    }
    list
}
