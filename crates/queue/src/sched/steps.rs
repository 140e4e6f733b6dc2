//! What is done over time, in slices: clocks that run out, large messages on their way to their domains, domains on
//! their way to their sites, failing domains, flushes, and sites to look at again.

use super::timers::Timer;
use super::{STEPS_MAX, Scheduler};
use crate::ids::{AddressId, DomainId, Ms, SiteId};
use crate::store::Store;

/// Timers fired per tick, and slots of the calendar searched per tick by a flush.
const TIMERS_MAX: u32 = 1_024;
const FLUSH_SLOTS_MAX: u32 = 64;
const DIRTY_MAX: u32 = 512;

/// An operator's "try now", on its way through the calendar.
pub(super) struct Flush {
    site: Option<SiteId>,
    /// The next slot to search.
    slot: u64,
}

impl Scheduler {
    /// One slice of what is due. Call at [`Scheduler::next_tick`], and again while that says 0.
    pub fn tick(&mut self, store: &Store, now: Ms) {
        let now = self.steady(now);
        for _ in 0..TIMERS_MAX {
            let Some(timer) = self.timers.pop(now) else { break };
            self.fire(store, timer, now);
        }
        if self.stopped {
            return;
        }
        self.relink(store, STEPS_MAX / 2, now);
        self.refresh_on(STEPS_MAX / 4, now);
        let mut steps = STEPS_MAX;
        while steps > 0
            && let Some(no) = self.activating.front().copied()
        {
            steps = self.activate(store, no, steps, now);
        }
        self.drain(store, STEPS_MAX / 4, now);
        self.flush_on(store);
        self.resume_on(now);
        self.coalesce_on(store, now);
        self.verbs_on(store, STEPS_MAX / 2, now);
        self.look_at_dirty(DIRTY_MAX, now);
        self.serve_wanting(now);
    }

    pub(super) fn look_at_dirty(&mut self, sites_max: u32, now: Ms) {
        for _ in 0..sites_max {
            let Some(site) = self.sites.dirty.pop_front() else { return };
            self.sites.get(site).dirty = false;
            self.consider(site, now);
        }
    }

    fn fire(&mut self, store: &Store, timer: Timer, now: Ms) {
        match timer {
            Timer::Domain(domain) => self.domain_due(domain, now),
            Timer::LookUps => self.look_ups_due(now),
            Timer::Site(site) => {
                let entry = self.sites.get(site);
                if entry.timer_at <= now {
                    entry.timer_at = 0;
                }
                self.consider(site, now);
            }
            Timer::Vacant(site) => self.vacant_due(site, now),
            Timer::VacantHost(host) => self.vacant_host_due(host, now),
            Timer::Hold(slot) => self.hold_due(slot, now),
            Timer::Mailbox(id) => self.mailbox_due(store, id, now),
            Timer::Recipient(no, id) => self.recipient_due(store, no, id, now),
            Timer::Conn(slot) => self.conn_due(slot, now),
            Timer::Bounce(no) => self.report_due(no),
            Timer::Warnings => self.warnings_due(store, now),
            Timer::Warn(no) => self.warn(no),
            Timer::Stragglers(no) => self.stragglers_due(store, no, now),
        }
    }

    /// Sites with lines of flows that were suspended until now.
    fn resume_on(&mut self, now: Ms) {
        let Some(first) = self.resuming else { return };
        let end = (first + DIRTY_MAX).min(self.sites.list.len() as u32);
        for site in first..end {
            if self.sites.get(SiteId(site)).lines.bring_back(&self.flows) {
                self.consider(SiteId(site), now);
            }
        }
        self.resuming = (end < self.sites.list.len() as u32).then_some(end);
    }

    /// Try everything of a site now: the clocks of its hosts, and of whatever waits for it. Done by the next ticks.
    pub fn flush_site(&mut self, site: SiteId) {
        if site.0 as usize >= self.sites.list.len() {
            return;
        }
        self.end_host_clocks(site);
        self.refresh(site, true);
        self.flushes.push_back(Flush { site: Some(site), slot: 0 });
    }

    /// Try everything now.
    pub fn flush_all(&mut self) {
        for site in 0..self.sites.list.len() {
            self.end_host_clocks(SiteId(site as u32));
            self.refresh(SiteId(site as u32), true);
        }
        self.flushes.push_back(Flush { site: None, slot: 0 });
    }

    pub(super) fn end_host_clocks(&mut self, site: SiteId) {
        for source in 0..self.sites.get(site).paths.len() {
            for target in 0..self.sites.get(site).paths[source].hosts.len() {
                let host = self.sites.get(site).paths[source].hosts[target];
                self.sites.host(host).until = 0;
            }
        }
        self.sites.mark_dirty(site);
    }

    fn flush_on(&mut self, store: &Store) {
        let Some(mut flush) = self.flushes.pop_front() else { return };
        let (domains, clocks, timers) = (&mut self.domains, &mut self.clocks, &mut self.timers);
        let at_site = |site: Option<SiteId>, domain: Option<DomainId>, domains: &super::domains::Domains| {
            site.is_none() || domain.and_then(|d| domains.peek(d)).is_some_and(|d| d.site == site)
        };
        for _ in 0..FLUSH_SLOTS_MAX {
            let mut hastened = Vec::new();
            let next = timers.hasten(flush.slot, |timer| {
                let domain_of = |id: AddressId| store.book.try_domain(id);
                let chosen = match timer {
                    Timer::Mailbox(id) | Timer::Recipient(_, id) => at_site(flush.site, domain_of(id), domains),
                    Timer::Hold(slot) => flush.site.is_none() || clocks.hold_site(slot) == flush.site,
                    Timer::Domain(_) => flush.site.is_none(),
                    _ => false,
                };
                if chosen {
                    hastened.push(timer);
                }
                chosen
            });
            for timer in hastened {
                match timer {
                    Timer::Mailbox(id) => clocks.hasten_mailbox(id),
                    Timer::Recipient(no, id) => clocks.hasten_recipient(no, id),
                    Timer::Hold(slot) => clocks.hasten_hold(slot),
                    Timer::Domain(domain) => domains.hasten(domain),
                    _ => {}
                }
            }
            let Some(slot) = next else { return };
            flush.slot = slot;
        }
        self.flushes.push_front(flush);
    }
}
