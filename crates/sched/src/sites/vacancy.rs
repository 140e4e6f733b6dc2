//! Frees the places of sites and hosts that are no longer referred to.
//!
//! A site is vacant when it has no domain, message, deferral, connection or job; a host when no site has it, no
//! connection is open and its clock has long run out, so that a failed host keeps its clock for the next site that uses
//! it. There is no scan: when a site loses its last domain, or a host its last site, a timer checks it, and again until
//! it is vacant.
//!
//! A stale reference to a place (a timer, an operator's query) finds an empty site or another one, never a gap:
//! checking a site once too often is harmless.

use stentor_queue::ids::{DomainId, Ms, SiteId};

use super::{Host, HostNo, Site, Sites};
use crate::flows::lines::Line;
use crate::timers::{Timer, Timers};

/// Delay before a site or host that lost its last reference is checked, and between checks: DNS answers may alternate,
/// and the entry should survive that.
pub const VACANT_MS: Ms = 3_600_000;

impl Site {
    fn is_in_use(&self, now: Ms) -> bool {
        let wants = self.lines.list.iter().any(|line: &Line| line.wants);
        let is_paused = |pace: &super::pace::Pace| pace.paused_until(now).is_some();
        let is_path_in_use =
            self.paths.iter().any(|path| path.conns > 0 || path.pace.as_deref().is_some_and(is_paused));
        let has_jobs = self.dirty || self.refreshing || self.deferrals > 0;
        has_jobs || wants || is_path_in_use || !self.lines.is_empty() || !self.lines.aside.is_empty()
    }
}

impl Host {
    /// Until when the host is kept without a site.
    fn kept_until(&self, retry_max_ms: Ms) -> Ms {
        // The count of failures is remembered for the length of the longest clock after the clock ends.
        let clock = if self.fails > 0 { self.until + retry_max_ms } else { self.until };
        clock.max(self.grow_at)
    }
}

impl Sites {
    /// Removes a domain from a site, which may be vacant at time `at`.
    pub fn leave(&mut self, timers: &mut Timers, site: SiteId, domain: DomainId, at: Ms) {
        let entry = self.get(site);
        // The last two entries stay, even if stale: a site that has had several domains is treated as one of several
        // from then on.
        if entry.domains.len() > 2 {
            entry.domains.remove(domain.0);
        }
        entry.members -= 1;
        if entry.members == 0 && !entry.is_leaving {
            entry.is_leaving = true;
            timers.set(at, Timer::Vacant(site));
        }
    }

    /// Frees a site if it is vacant. `is_busy`: some job may name it.
    pub fn vacant_due(&mut self, timers: &mut Timers, site: SiteId, is_busy: bool, now: Ms) {
        let entry = self.get(site);
        if entry.members > 0 {
            entry.is_leaving = false;
        } else if is_busy || entry.is_in_use(now) {
            timers.set(now + VACANT_MS, Timer::Vacant(site));
        } else {
            for host in self.free(site) {
                self.host_left(timers, host, now);
            }
        }
    }

    /// Called when a site no longer has the host.
    pub fn host_left(&mut self, timers: &mut Timers, host: HostNo, now: Ms) {
        let entry = self.host(host);
        if entry.sites.is_empty() && !entry.is_leaving {
            entry.is_leaving = true;
            timers.set(now + VACANT_MS, Timer::VacantHost(host));
        }
    }

    /// Frees a host if it is vacant.
    pub fn vacant_host_due(&mut self, timers: &mut Timers, host: HostNo, retry_max_ms: Ms, now: Ms) {
        let entry = self.host(host);
        let until = entry.kept_until(retry_max_ms);
        if !entry.sites.is_empty() {
            entry.is_leaving = false;
        } else if entry.conns > 0 || until > now {
            timers.set(until.max(now + VACANT_MS), Timer::VacantHost(host));
        } else {
            self.free_host(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheduler;
    use crate::{CloseReason, Effect, NoSession, RcptOutcome, SchedConfig, Stage};
    use stentor_queue::event::{Event, Fate};
    use stentor_queue::ids::AddressId;
    use stentor_queue::idset::IdSet;
    use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};
    use stentor_queue::store::{EventEffect, Store};

    const NOW: Ms = 1_800_000_000_000;
    const DEAD: u32 = u32::MAX;

    struct World {
        store: Store,
        sched: Scheduler,
        now: Ms,
        mail: u64,
        connects: usize,
    }

    impl World {
        fn new() -> World {
            let (store, sched) = (Store::new(), Scheduler::new(SchedConfig::default(), 1));
            World { store, sched, now: NOW, mail: 0, connects: 0 }
        }

        /// The domain has a site and a host of its own number; domains from `DEAD` downwards share a dead host.
        fn plan(&self, domain: DomainId) -> Resolution {
            let name = self.store.book.domain_name(domain);
            let number: u32 = name[1..].parse().unwrap();
            let host = if number > DEAD / 2 { DEAD } else { number };
            let addr = Endpoint::by_port((std::net::Ipv4Addr::from_bits(host), 25));
            let target = Target { preference: 0, host: "mx".into(), addr, lmtp: false, posture: None };
            let (key, limits) = (format!("mx.{name}").into(), SiteLimits::default());
            Resolution::Site(SitePlan { key, targets: vec![target], mixes_domains: false, limits, ttl_s: 60 })
        }

        fn mail_to(&mut self, domain: u32) -> (stentor_queue::ids::MessageNo, AddressId) {
            let (id, _) = self.store.book.intern(&format!("ann@d{domain}")).unwrap();
            self.mail += 1;
            let accept = crate::fixture::accept(self.mail, &[id.0]);
            let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
            self.sched.accepted(&self.store, no, self.now);
            (no, id)
        }

        fn run(&mut self, ms: Ms) {
            let until = self.now + ms;
            loop {
                for effect in self.sched.effects().collect::<Vec<_>>() {
                    self.obey(effect);
                }
                let Some(at) = self.sched.next_tick().filter(|at| *at <= until) else { break };
                self.now = self.now.max(at);
                self.sched.tick(&self.store, self.now);
            }
            self.now = until;
        }

        fn obey(&mut self, effect: Effect) {
            match effect {
                Effect::Resolve { domain } => {
                    let plan = self.plan(domain);
                    self.sched.resolved(&self.store, domain, plan, self.now);
                }
                Effect::Connect { conn, target, .. } => {
                    self.connects += 1;
                    if target.addr.ip() == Some(std::net::Ipv4Addr::from_bits(DEAD).into()) {
                        return self.sched.connect_failed(&self.store, conn, NoSession::Failed, "dead", self.now);
                    }
                    self.sched.connected(conn, self.now);
                    while let Some(work) = self.sched.take_work(&self.store, conn, self.now) {
                        let ids: IdSet = work.ids.iter().map(|id| id.0).collect();
                        self.store.record_fate(work.no, Fate::Delivered, &ids, None, self.now, &mut Vec::new());
                        let ok = |id: &AddressId| RcptOutcome {
                            id: *id,
                            stage: Stage::Final,
                            code: 250,
                            dsn: None,
                            text: "ok".into(),
                        };
                        let outcomes: Vec<_> = work.ids.iter().map(ok).collect();
                        self.sched.work_done(&self.store, conn, work.tx, &outcomes, self.now);
                        self.sched.finished(work.no);
                    }
                }
                Effect::Close { conn } => self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now),
                _ => {}
            }
        }

        /// Makes the address book forget an address and its domain.
        fn forget(&mut self, id: AddressId) {
            let domain = self.store.book.domain(id);
            self.store.apply(Event::Forget { ids: IdSet::one(id.0) });
            assert!(self.sched.forget_domain(domain));
            self.store.book.forget_domain(domain);
        }
    }

    #[test]
    fn what_passes_through_leaves_nothing_behind() {
        let mut world = World::new();
        for round in 0..200 {
            let mail: Vec<_> = (0..50).map(|n| world.mail_to(round * 50 + n)).collect();
            world.run(10_000);
            for (_, id) in mail {
                world.forget(id);
            }
            world.run(3 * VACANT_MS);
        }
        assert_eq!((world.mail, world.connects), (10_000, 10_000));
        let sites = &world.sched.state.sites;
        assert_eq!(sites.known(), (0, 0));
        assert!(sites.list.len() <= 50 && sites.hosts.len() <= 50, "{} {}", sites.list.len(), sites.hosts.len());
        assert_eq!(world.sched.state.timers.len(), 0);
    }

    #[test]
    fn a_host_in_penalty_keeps_its_clock_without_a_site() {
        let mut world = World::new();
        let host_retry = crate::Backoff::new(4 * VACANT_MS, 4 * VACANT_MS);
        world.sched.configure(SchedConfig { host_retry, ..SchedConfig::default() });
        let (no, id) = world.mail_to(DEAD);
        world.run(60_000);
        let before = world.connects;
        // An operator removes the mail, and the domain is forgotten.
        world.store.record_fate(no, Fate::Removed, &IdSet::one(id.0), None, world.now, &mut Vec::new());
        world.sched.finished(no);
        world.sched.removed(&world.store, no, &IdSet::one(id.0), world.now);
        world.run(0);
        world.forget(id);
        // Past the time at which the host is checked for vacancy.
        world.run(VACANT_MS + 60_000);
        assert_eq!(world.sched.state.sites.known(), (0, 1));
        world.mail_to(DEAD - 1);
        world.run(60_000);
        assert_eq!(world.connects, before, "another site finds the host with its clock");
        world.run(4 * VACANT_MS);
        assert!(world.connects > before);
    }
}
