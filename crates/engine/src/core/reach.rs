//! What the hub does when a site or domain is not reached: history and scheduler hear of it, and who waited is counted.
//!
//! Promise: bounded work under the hub's lock, [`LOOKED_MAX`] domains looked at, [`NAMED_MAX`] named.

use std::cmp::Reverse;

use stentor_queue::book::SiteAttempt;
use stentor_queue::ids::{ConnId, DomainId, Ms, SiteId};
use stentor_queue::site::Resolution;
use stentor_sched::NoSession;

use super::hub::Hub;
use super::unreached::{LookUpFailed, Unreached};

/// Domains of a site that are looked at; the recipients at further ones are missing from the record.
const LOOKED_MAX: usize = 16_384;
/// Domains in a record, those with most recipients.
const NAMED_MAX: usize = 16;

impl Hub {
    /// A failed session. Returns who waited for it: they are deferred by the failure that leaves the site without a host
    /// that may be tried.
    pub fn connect_failed(&mut self, conn: ConnId, why: NoSession, text: &str, now: Ms) -> Unreached {
        for domain in self.sched.domains_of(conn) {
            self.store.book.site_attempt(domain, now, SiteAttempt::Failed);
        }
        let site = self.site_of_connection(conn);
        let was_open = site.is_some_and(|site| !self.is_behind_clock(site, now));
        self.sched.connect_failed(&self.store, conn, why, text, now);
        let Some(site) = site else { return Unreached::default() };
        self.unreached(site, was_open && self.is_behind_clock(site, now))
    }

    /// The site that a connection was opened to; `None` if we are closing it.
    pub(super) fn site_of_connection(&mut self, conn: ConnId) -> Option<SiteId> {
        let domain = *self.sched.domains_of(conn).first()?;
        self.sched.site_of(domain)
    }

    /// Whether no host of the site may be tried before a clock runs out.
    pub(super) fn is_behind_clock(&self, site: SiteId, now: Ms) -> bool {
        self.sched.glance(site, now).is_some_and(|glance| glance.until.is_some())
    }

    /// Who waits at a site. Unless `is_deferred`, another of its hosts may still be tried, and nobody is counted.
    pub(super) fn unreached(&self, site: SiteId, is_deferred: bool) -> Unreached {
        // Who is deferred already is not deferred anew: then a few names will do.
        let looked = if is_deferred { LOOKED_MAX } else { NAMED_MAX };
        let counts = self.sched.domains_at(site).take(looked);
        let mut counts: Vec<(u32, DomainId)> =
            counts.map(|domain| (self.store.waiting_at(domain), domain)).filter(|(waiting, _)| *waiting > 0).collect();
        let waiting = counts.iter().map(|(waiting, _)| u64::from(*waiting)).sum();
        let order = |(waiting, domain): &(u32, DomainId)| (Reverse(*waiting), domain.0);
        if counts.len() > NAMED_MAX {
            counts.select_nth_unstable_by_key(NAMED_MAX - 1, order);
        }
        let named = counts.len().min(NAMED_MAX);
        counts[..named].sort_unstable_by_key(order);
        let count = |waiting: u32| if is_deferred { waiting.into() } else { 0 };
        let name = |domain: DomainId| self.store.book.domain_name_alone(domain).to_owned();
        Unreached {
            site: self.sched.site_name(site).unwrap_or_default().to_owned(),
            waiting: if is_deferred { waiting } else { 0 },
            domains: counts[..named].iter().map(|(waiting, domain)| (name(*domain), count(*waiting))).collect(),
        }
    }

    /// The answer to [`super::hub::Act::Resolve`]. Returns the failure and who waits for the domain, if nothing is known of
    /// it: one whose site is known goes on being served.
    pub fn resolved(&mut self, domain: DomainId, resolution: Resolution, now: Ms) -> Option<LookUpFailed> {
        let failure = match &resolution {
            Resolution::Temporary { dsn, text } => Some((*dsn, text.clone())),
            Resolution::Site(plan) if plan.targets.is_empty() => Some(("4.4.4", "no address of any host".to_owned())),
            Resolution::Site(_) | Resolution::Permanent { .. } => None,
        };
        self.sched.resolved(&self.store, domain, resolution, now);
        let (dsn, text) = failure.filter(|_| self.sched.site_of(domain).is_none())?;
        let waiting = self.store.waiting_at(domain).into();
        let domains = vec![(self.store.book.domain_name_alone(domain).to_owned(), waiting)];
        Some(LookUpFailed { dsn, text, unreached: Unreached { site: String::new(), waiting, domains } })
    }
}

#[cfg(test)]
mod tests {
    use stentor_queue::event::Event;
    use stentor_queue::site::{SiteLimits, SitePlan, Target};
    use stentor_queue::store::{Applied, Store};
    use stentor_sched::{Effect, NoSession, SchedConfig, Scheduler};

    use super::*;
    use crate::core::hub::tests::accept;

    const NOW: Ms = 1_800_000_000_000;

    fn plan(hosts: &[u8]) -> Resolution {
        let target = |n: &u8| Target {
            preference: (*n).into(),
            host: format!("mx{n}.example").into(),
            addr: ([192, 0, 2, *n], 25).into(),
            lmtp: false,
        };
        let (targets, limits) = (hosts.iter().map(target).collect(), SiteLimits::default());
        Resolution::Site(SitePlan { key: "mx.example".into(), targets, mixes_domains: true, limits, ttl_s: 60 })
    }

    /// A hub whose mail to these addresses waits.
    fn hub(addresses: &[&str]) -> Hub {
        let mut hub = Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0);
        for (n, address) in addresses.iter().enumerate() {
            let (id, _) = hub.store.book.intern(address).expect("room");
            let message = accept(n as u64 + 1, &[id.0], NOW);
            let Applied::New(no) = hub.apply(Event::Accept(Box::new(message))) else { panic!("not new") };
            hub.sched.accepted(&hub.store, no, NOW);
        }
        hub
    }

    /// Every look-up finds these hosts and every connection fails: what is recorded.
    fn all_fail(hub: &mut Hub, hosts: &[u8]) -> Vec<Unreached> {
        let mut seen = Vec::new();
        for _ in 0..20 {
            for effect in hub.sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => assert!(hub.resolved(domain, plan(hosts), NOW).is_none()),
                    Effect::Connect { conn, .. } => {
                        seen.push(hub.connect_failed(conn, NoSession::Unreachable, "Connection refused", NOW));
                    }
                    _ => {}
                }
            }
            hub.tick(NOW);
        }
        seen
    }

    #[test]
    fn a_dead_site_defers_each_recipient_once() {
        let mut hub = hub(&["a@one.example", "b@one.example", "c@two.example", "d@one.example"]);
        let seen = all_fail(&mut hub, &[1, 2]);
        assert!(seen.len() >= 2, "both hosts were tried: {seen:?}");
        assert!(seen.iter().all(|unreached| unreached.site == "mx.example"), "{seen:?}");
        let counted: Vec<&Unreached> = seen.iter().filter(|unreached| unreached.waiting > 0).collect();
        let [counted] = counted[..] else { panic!("once: {seen:?}") };
        assert_eq!(counted.waiting, 4);
        assert_eq!(counted.domains, [("one.example".to_owned(), 3), ("two.example".to_owned(), 1)]);
        assert!(seen[0].domains.iter().all(|(_, waiting)| *waiting == 0), "the other host may take it: {seen:?}");
    }

    #[test]
    fn a_look_up_that_fails_defers_who_waits_for_it() {
        let mut hub = hub(&["a@one.example", "b@one.example"]);
        let Some(Effect::Resolve { domain }) = hub.sched.effects().next() else { panic!("a look-up") };
        let failed = Resolution::Temporary { dsn: "4.4.3", text: "SERVFAIL".to_owned() };
        let failed = hub.resolved(domain, failed, NOW).expect("a failure");
        assert_eq!((failed.dsn, failed.text.as_str(), failed.unreached.waiting), ("4.4.3", "SERVFAIL", 2));
        assert_eq!(failed.unreached.domains, [("one.example".to_owned(), 2)]);
    }
}
