//! 4xx at MAIL leads to the next host (RFC 5321 section 5.1: the addresses of a destination are tried in order).
//!
//! A refusal is one host's, from one source, for one sender's domain. It has a clock that grows with each refusal in a row and
//! ends with a delivery by that host. While one runs at a site, the sender's messages wait at the hold of (site, sender)
//! instead of in the site's line, and the hold is offered to each host of the site that has not refused: its connections
//! take from the holds offered to it by turns with the line, and if no connection is there one is opened. When no host is
//! left, the messages wait for the first of the clocks.
//!
//! An offer may be in vain (the hold has become empty, or the host has refused since): it is dropped when it is met.

use super::Scheduler;
use super::clocks::{Hold, HoldKey};
use super::conns::Slot;
use super::lines::oldest;
use super::reasons::{ReasonNo, Reply};
use super::sites::{HostNo, ORDINARY, Pick};
use super::timers::Timer;
use super::{Ids, STEPS_MAX, SourceNo, SourceSet};
use crate::ids::{MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::store::Store;

/// A host's 4xx at MAIL to a sender.
pub(super) struct Refusal {
    host: HostNo,
    until: Ms,
    /// In a row.
    fails: u8,
}

/// Holds whose messages may go to a host.
pub(super) struct Offers {
    pub host: HostNo,
    holds: IdSet,
    /// The hold that was served last.
    last: u32,
}

impl Hold {
    fn is_refused_by(&self, host: HostNo, now: Ms) -> bool {
        self.refusals.iter().any(|refusal| refusal.host == host && refusal.until > now)
    }

    /// An operator wants the sender's mail tried.
    pub(super) fn end_refusals(&mut self, forget: bool) {
        for refusal in &mut self.refusals {
            refusal.until = 0;
            refusal.fails = if forget { 0 } else { refusal.fails };
        }
    }
}

impl Scheduler {
    /// A host has refused a sender at MAIL for now.
    pub(super) fn sender_refused(&mut self, site: SiteId, host: HostNo, sender: u64, reply: &Reply, now: Ms) {
        let slot = self.hold_slot(site, HoldKey::Sender(sender), reply);
        let hosts = self.sites.get(site).paths.iter().flat_map(|path| &path.hosts);
        let Some(hold) = self.clocks.holds[slot as usize].as_mut() else { return };
        hold.refusals.retain(|refusal| hosts.clone().any(|host| *host == refusal.host));
        let at = hold.refusals.iter().position(|refusal| refusal.host == host).unwrap_or_else(|| {
            hold.refusals.push(Refusal { host, until: 0, fails: 0 });
            hold.refusals.len() - 1
        });
        let refusal = &mut hold.refusals[at];
        // Otherwise the clock already runs: attempts under way at the same time have failed too.
        if refusal.until <= now {
            refusal.fails = refusal.fails.saturating_add(1);
            refusal.until = now + self.cfg.site_retry.delay_ms(refusal.fails, &mut self.rng);
            hold.until = hold.until.max(refusal.until);
            self.timers.set(refusal.until, Timer::Hold(slot));
        }
    }

    /// The host has taken mail of the sender.
    pub(super) fn sender_taken(&mut self, site: SiteId, host: HostNo, sender: u64) {
        let key = HoldKey::Sender(sender);
        let Some(slot) = self.clocks.hold_by_key.get(&(site, key)) else { return };
        let Some(hold) = self.clocks.holds[*slot as usize].as_mut() else { return };
        hold.refusals.retain(|refusal| refusal.host != host);
        if hold.refusals.is_empty() {
            self.drop_hold(site, key);
        }
    }

    /// When a sender's mail may be tried at a site all of whose hosts, from these sources, have refused it.
    pub(super) fn sender_wait(&self, site: SiteId, sender: u64, sources: SourceSet, now: Ms) -> Option<(Ms, ReasonNo)> {
        let slot = *self.clocks.hold_by_key.get(&(site, HoldKey::Sender(sender)))?;
        let hold = self.clocks.holds[slot as usize].as_ref()?;
        let paths = self.sites.list.get(site.0 as usize)?.paths.iter().enumerate();
        let mut hosts = paths.filter(|(source, _)| sources.has(*source as SourceNo)).flat_map(|(_, path)| &path.hosts);
        let until = hold.refusals.iter().map(|refusal| refusal.until).filter(|until| *until > now).min()?;
        hosts.all(|host| hold.is_refused_by(*host, now)).then_some((until, hold.reason))
    }

    /// Offers what waits at a sender's hold to the hosts that have not refused it.
    pub(super) fn offer(&mut self, slot: u32, now: Ms) {
        let Some(Some(hold)) = self.clocks.holds.get(slot as usize) else { return };
        if matches!(hold.key, HoldKey::Message(_)) {
            return;
        }
        let site = self.sites.get(hold.site);
        for (source, path) in site.paths.iter().enumerate() {
            let may = |flow| {
                let flow = self.flows.get(flow);
                flow.rules.sources.has(source as SourceNo) && !flow.suspended
            };
            if !hold.waiters.iter().any(|(flow, ..)| may(*flow)) {
                continue;
            }
            for host in path.hosts.iter().filter(|host| !hold.is_refused_by(**host, now)) {
                match site.offers.iter_mut().find(|offers| offers.host == *host) {
                    Some(offers) => _ = offers.holds.insert(slot),
                    None => site.offers.push(Offers { host: *host, holds: IdSet::one(slot), last: 0 }),
                }
            }
        }
        let site = hold.site;
        self.sites.mark_dirty(site);
    }

    /// The next hold that a host is offered, and which of its waiters: ordinary mail first.
    fn offered(&mut self, site: SiteId, source: SourceNo, host: HostNo, now: Ms) -> Option<(u32, usize)> {
        loop {
            let entry = self.sites.get(site);
            let at = entry.offers.iter().position(|offers| offers.host == host)?;
            let offers = &entry.offers[at];
            let Some(slot) = offers.holds.iter_from(offers.last).next().or_else(|| offers.holds.min()) else {
                entry.offers.swap_remove(at);
                return None;
            };
            let hold = self.clocks.holds.get_mut(slot as usize).and_then(Option::as_mut);
            let hold = hold.filter(|hold| hold.site == site && !hold.is_refused_by(host, now));
            if let Some(hold) = hold.filter(|hold| matches!(hold.key, HoldKey::Sender(_))) {
                if self.flows.any_suspended() {
                    // Where a resumption finds them.
                    for (flow, class, set) in &hold.waiters {
                        if self.flows.is_suspended(*flow) {
                            entry.lines.insert_all(*flow, *class, set);
                        }
                    }
                    hold.waiters.retain(|(flow, ..)| !self.flows.is_suspended(*flow));
                    entry.lines.set_aside(&self.flows);
                }
                let may = |flow| self.flows.get(flow).rules.sources.has(source);
                let fitting = hold.waiters.iter().enumerate().filter(|(_, (flow, ..))| may(*flow));
                if let Some((waiter, _)) = fitting.min_by_key(|(_, (_, class, _))| *class != ORDINARY) {
                    return Some((slot, waiter));
                }
            }
            entry.offers[at].holds.remove(slot);
        }
    }

    /// The next transaction for a host out of what it is offered, its recipients marked as in flight.
    pub(super) fn select_offered(
        &mut self,
        store: &Store,
        (site, source, host): (SiteId, SourceNo, HostNo),
        max: usize,
        now: Ms,
    ) -> Option<(MessageNo, Ids)> {
        let mut steps = STEPS_MAX;
        while steps > 0 {
            steps -= 1;
            let (slot, at) = self.offered(site, source, host, now)?;
            let hold = self.clocks.holds[slot as usize].as_mut()?;
            let (flow, class, mut set) = hold.waiters.remove(at);
            let Some(no) = oldest(&set, self.newest) else { continue };
            set.remove(no.0);
            if !set.is_empty() {
                // Behind the other flows.
                hold.waiters.push((flow, class, set));
            }
            if self.keeps_at(site, HoldKey::Message(no), (flow, class), no, now) || self.park(site, no) {
                continue;
            }
            self.sites.get(site).lines.insert(flow, class, no);
            let mut ids = Ids::new();
            self.gather(store, site, no, max, &mut ids, &mut steps, now);
            if self.waits_in_line(site, no) {
                self.held_back(store, site, no, now);
            }
            if !ids.is_empty() {
                if let Some(offers) = self.sites.get(site).offers.iter_mut().find(|offers| offers.host == host) {
                    offers.last = slot;
                }
                return Some((no, ids));
            }
        }
        self.sites.mark_dirty(site);
        None
    }

    /// Sees to it that a connection takes what hosts of a path are offered, one at a time. Whether one was woken or opened.
    pub(super) fn consider_offers(&mut self, site: SiteId, source: SourceNo, now: Ms) -> bool {
        let adapts = self.cfg.strategies.adaptation;
        let path = &mut self.sites.get(site).paths[source as usize];
        let is_coming = path.offered_conn.is_some_and(|slot| self.conns.at(slot).is_some_and(|conn| !conn.silent));
        if is_coming || adapts && !path.may_begin() {
            return false;
        }
        if let Some(until) = path.wait(self.cfg.sources.get(source as usize), self.time, now) {
            self.look_again_at(site, until, now);
            return false;
        }
        let hosts = path.hosts.clone();
        let mut offered = hosts.clone();
        offered.retain(|host| self.offered(site, source, *host, now).is_some());
        let Some((slot, at)) = offered.first().and_then(|host| self.offered(site, source, *host, now)) else {
            return false;
        };
        let Some((flow, class, _)) = self.clocks.holds[slot as usize].as_ref().and_then(|hold| hold.waiters.get(at))
        else {
            return false;
        };
        let (flow, class) = (*flow, *class);
        let path = &self.sites.get(site).paths[source as usize];
        let mut is_theirs = |slot: &Slot| self.conns.at(*slot).is_some_and(|conn| offered.contains(&conn.host));
        if let Some(at) = path.idle.iter().position(&mut is_theirs) {
            let slot = self.path(site, source).idle.remove(at);
            self.path(site, source).offered_conn = Some(slot);
            self.wake(site, source, slot, now);
            return true;
        }
        let target = match self.sites.pick_of(site, source, now, &mut self.rng, |host| offered.contains(&host)) {
            Pick::Target(target) => target,
            Pick::Wait(Some(until)) | Pick::Full(until) => {
                self.look_again_at(site, until, now);
                return false;
            }
            Pick::Wait(None) => return false,
        };
        let default = self.cfg.connections_per_site_max;
        let max = self.sites.get(site).connections_max(default);
        let is_new = self.sites.host(hosts[target]).conns == 0;
        let path = self.path(site, source);
        let open = path.conns - path.silent;
        // One to a host without any may be beyond the window: those in it may be busy at the host that has refused.
        if open >= max || open >= path.allowed(max, adapts) + usize::from(is_new) {
            if let Some(slot) = path.idle.first().copied().filter(|_| is_new) {
                self.close(slot);
            }
            return false;
        }
        let slot = self.open_in_budget(site, source, target, class == ORDINARY, now);
        self.path(site, source).offered_conn = slot;
        if slot.is_none() && self.sites.get(site).lines.begin_to_want(flow, class) {
            self.flows.want(flow, site, now);
        }
        slot.is_some()
    }

    /// A connection is not on its way to work any more.
    pub(super) fn forget_offered_conn(&mut self, site: SiteId, source: SourceNo, slot: Slot) {
        let entry = self.sites.get(site);
        let path = &mut entry.paths[source as usize];
        if path.offered_conn == Some(slot) {
            path.offered_conn = None;
        }
        if !entry.offers.is_empty() {
            self.sites.mark_dirty(site);
        }
    }
}
