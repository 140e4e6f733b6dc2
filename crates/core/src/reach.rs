//! Handles a site or domain that cannot be reached: reports it to history and scheduler, and counts the waiting
//! recipients.
//!
//! Promise: the work under the hub's lock is bounded. [`LOOKED_MAX`] domains are noted and then counted in slices of
//! [`SLICE`] messages; [`NAMED_MAX`] are named. Recipients that were held, suspended, queue-only or waiting for a clock
//! of their own do not count as waiting for the site.

use std::cmp::Reverse;
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::book::SiteAttempt;
use stentor_queue::ids::{ConnId, DomainId, Ms, SiteId};
use stentor_queue::site::Resolution;
use stentor_sched::{CloseReason, NoSession, Waiters};

use super::Core;
use super::hub::Hub;
use super::unreached::UnreachedRcpts;

/// Domains of a site that are counted; recipients at further ones are missing from the record.
const LOOKED_MAX: usize = 16_384;
/// Domains in a record: those with the most waiting recipients.
const NAMED_MAX: usize = 16;
/// Messages, or domains without a message, counted at once.
const SLICE: usize = 2_048;

/// A running count of the recipients waiting for a site, or for a domain without one.
#[must_use]
pub struct WaitingTally {
    site: String,
    left: Vec<Waiters>,
    counts: Vec<(u64, DomainId)>,
}

/// A look-up that failed temporarily.
pub struct LookUpFailure {
    pub dsn: Enhanced,
    pub text: String,
    pub tally: WaitingTally,
}

impl WaitingTally {
    /// Finishes the count in slices. Every caller is about to end, so nothing waits for it.
    pub async fn count(mut self, core: &Arc<Core>) -> UnreachedRcpts {
        while !core.with(|hub, now| hub.count_on(&mut self, now)) {
            tokio::task::yield_now().await;
        }
        core.with(|hub, _| self.named(hub))
    }

    fn named(mut self, hub: &Hub) -> UnreachedRcpts {
        let waiting = self.counts.iter().map(|(waiting, _)| waiting).sum();
        let order = |(waiting, domain): &(u64, DomainId)| (Reverse(*waiting), domain.0);
        if self.counts.len() > NAMED_MAX {
            self.counts.select_nth_unstable_by_key(NAMED_MAX - 1, order);
            self.counts.truncate(NAMED_MAX);
        }
        self.counts.sort_unstable_by_key(order);
        let name = |domain: DomainId| hub.store.book.domain_name_alone(domain).to_owned();
        let domains = self.counts.iter().map(|(waiting, domain)| (name(*domain), *waiting)).collect();
        UnreachedRcpts { site: self.site, waiting, domains }
    }
}

impl Hub {
    /// Reports a failed session. Returns the count of its waiting recipients, who are deferred if the site now has no
    /// host left to try.
    pub fn connect_failed(&mut self, conn: ConnId, why: NoSession, text: &str, now: Ms) -> WaitingTally {
        self.failed(conn, now, |hub| hub.sched.connect_failed(&hub.store, conn, why, text, now))
    }

    /// Reports the end of a session. Returns the count of its waiting recipients if it ended before MAIL: no other
    /// record of it exists then.
    pub fn closed(
        &mut self,
        conn: ConnId,
        reason: &CloseReason,
        is_before_mail: bool,
        now: Ms,
    ) -> Option<WaitingTally> {
        let close = |hub: &mut Hub| hub.sched.closed(&hub.store, conn, reason, now);
        if !is_before_mail {
            close(self);
            return None;
        }
        Some(self.failed(conn, now, close))
    }

    /// Reports a failed session, to history directly and to the scheduler through `report`.
    fn failed(&mut self, conn: ConnId, now: Ms, report: impl FnOnce(&mut Hub)) -> WaitingTally {
        for domain in self.sched.domains_of(conn) {
            self.store.book.site_attempt(domain, now, SiteAttempt::Failed);
        }
        let site = self.site_of_connection(conn);
        let was_open = site.is_some_and(|site| !self.is_behind_clock(site, now));
        report(self);
        let none = WaitingTally { site: String::new(), left: Vec::new(), counts: Vec::new() };
        site.map_or(none, |site| self.tally(site, was_open && self.is_behind_clock(site, now)))
    }

    /// Returns the site that a connection was opened to; `None` if we are closing it.
    pub(super) fn site_of_connection(&mut self, conn: ConnId) -> Option<SiteId> {
        let domain = *self.sched.domains_of(conn).first()?;
        self.sched.site_of(domain)
    }

    /// Whether no host of the site may be tried until a clock runs out.
    pub(super) fn is_behind_clock(&self, site: SiteId, now: Ms) -> bool {
        self.sched.glance(site, now).is_some_and(|glance| glance.until.is_some())
    }

    /// Begins the count of recipients waiting at a site. Unless `is_deferred`, only a few domains are named and nothing
    /// is counted: another host may still be tried, or the recipients are deferred already.
    pub(super) fn tally(&self, site: SiteId, is_deferred: bool) -> WaitingTally {
        let waits = |domain: &DomainId| self.store.waiting_at(*domain) > 0;
        let domains = self.sched.domains_at(site).take(if is_deferred { LOOKED_MAX } else { NAMED_MAX }).filter(waits);
        let (left, counts) = if is_deferred {
            (domains.map(Waiters::at).collect(), Vec::new())
        } else {
            (Vec::new(), domains.map(|domain| (0, domain)).collect())
        };
        WaitingTally { site: self.sched.site_name(site).unwrap_or_default().to_owned(), left, counts }
    }

    /// Counts one slice. Returns whether the count is complete.
    fn count_on(&self, tally: &mut WaitingTally, now: Ms) -> bool {
        let mut steps = SLICE;
        while let Some(waiters) = tally.left.last_mut() {
            if steps == 0 || !self.sched.count_waiters(&self.store, waiters, &mut steps, now) {
                return false;
            }
            if waiters.count > 0 {
                tally.counts.push((waiters.count, waiters.domain));
            }
            tally.left.pop();
            steps = steps.saturating_sub(1);
        }
        true
    }

    /// Handles the answer to [`super::hub::Act::Resolve`]. Returns the failure and the count of waiting recipients,
    /// unless the domain has a known site, which is still used.
    pub fn resolved(&mut self, domain: DomainId, resolution: Resolution, now: Ms) -> Option<LookUpFailure> {
        let failure = match &resolution {
            Resolution::Temporary { dsn, text, .. } => Some((*dsn, text.clone())),
            Resolution::Site(plan) if plan.targets.is_empty() => {
                Some((Enhanced::new(4, 4, 4), "no address of any host".to_owned()))
            }
            Resolution::Site(_) | Resolution::Permanent { .. } => None,
        };
        self.sched.resolved(&self.store, domain, resolution, now);
        let (dsn, text) = failure.filter(|_| self.sched.site_of(domain).is_none())?;
        let tally = WaitingTally { site: String::new(), left: vec![Waiters::at(domain)], counts: Vec::new() };
        Some(LookUpFailure { dsn, text, tally })
    }
}

#[cfg(test)]
mod tests {
    use stentor_queue::cause::Cause;
    use stentor_queue::event::Event;
    use stentor_queue::ids::MessageNo;
    use stentor_queue::queue_only::Scope;
    use stentor_queue::site::{Endpoint, SiteLimits, SitePlan, Target};
    use stentor_queue::store::{EventEffect, Store};
    use stentor_sched::{Effect, NoSession, SchedConfig, Scheduler, ScopeOwner};

    use super::*;
    use crate::hub::tests::accept;

    const NOW: Ms = 1_800_000_000_000;

    fn plan(hosts: &[u8]) -> Resolution {
        let target = |n: &u8| Target {
            preference: (*n).into(),
            host: format!("mx{n}.example").into(),
            addr: Endpoint::by_port(([192, 0, 2, *n], 25)),
            lmtp: false,
            posture: None,
        };
        let (targets, limits) = (hosts.iter().map(target).collect(), SiteLimits::default());
        Resolution::Site(SitePlan { key: "mx.example".into(), targets, mixes_domains: true, limits, ttl_s: 60 })
    }

    /// Creates a hub with waiting mail to these addresses.
    fn hub(addresses: &[&str]) -> Hub {
        let mut hub = Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0);
        for (n, address) in addresses.iter().enumerate() {
            let (id, _) = hub.store.book.intern(address).expect("room");
            let message = accept(n as u64 + 1, &[id.0], NOW);
            let EventEffect::New(no) = hub.apply(Event::Accept(Box::new(message))) else { panic!("not new") };
            hub.sched.accepted(&hub.store, no, NOW);
        }
        hub
    }

    fn counted(hub: &Hub, mut tally: WaitingTally) -> UnreachedRcpts {
        assert!(hub.count_on(&mut tally, NOW), "they are few");
        tally.named(hub)
    }

    /// Makes every look-up find these hosts and every connection fail; returns the records.
    fn all_fail(hub: &mut Hub, hosts: &[u8]) -> Vec<UnreachedRcpts> {
        let mut seen = Vec::new();
        for _ in 0..20 {
            for effect in hub.sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => assert!(hub.resolved(domain, plan(hosts), NOW).is_none()),
                    Effect::Connect { conn, .. } => {
                        let tally = hub.connect_failed(conn, NoSession::Unreachable, "Connection refused", NOW);
                        seen.push(counted(hub, tally));
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
        let counted: Vec<&UnreachedRcpts> = seen.iter().filter(|unreached| unreached.waiting > 0).collect();
        let [counted] = counted[..] else { panic!("once: {seen:?}") };
        assert_eq!(counted.waiting, 4);
        assert_eq!(counted.domains, [("one.example".to_owned(), 3), ("two.example".to_owned(), 1)]);
        assert!(seen[0].domains.iter().all(|(_, waiting)| *waiting == 0), "the other host may take it: {seen:?}");
    }

    #[test]
    fn a_look_up_that_fails_defers_who_waits_for_it() {
        let mut hub = hub(&["a@one.example", "b@one.example"]);
        let Some(Effect::Resolve { domain }) = hub.sched.effects().next() else { panic!("a look-up") };
        let failed =
            Resolution::Temporary { cause: Cause::Dns, dsn: Enhanced::new(4, 4, 3), text: "SERVFAIL".to_owned() };
        let failed = hub.resolved(domain, failed, NOW).expect("a failure");
        assert_eq!((failed.dsn, failed.text.as_str()), (Enhanced::new(4, 4, 3), "SERVFAIL"));
        let unreached = counted(&hub, failed.tally);
        assert_eq!((unreached.waiting, unreached.domains), (2, vec![("one.example".to_owned(), 2)]));
    }

    #[test]
    fn who_is_held_or_queue_only_does_not_wait_for_the_site() {
        let mut hub = hub(&["a@one.example", "b@one.example", "c@two.example", "d@three.example"]);
        hub.sched.hold_message(MessageNo(0));
        hub.sched.set_queue_only(&Scope::Domain("two.example".to_owned()), Some(""), ScopeOwner::Operator);
        let seen = all_fail(&mut hub, &[1]);
        let counted: Vec<&UnreachedRcpts> = seen.iter().filter(|unreached| unreached.waiting > 0).collect();
        let [counted] = counted[..] else { panic!("once: {seen:?}") };
        let expected = [("one.example".to_owned(), 1), ("three.example".to_owned(), 1)];
        assert_eq!((counted.waiting, &counted.domains[..]), (2, &expected[..]));
    }

    #[test]
    fn a_look_up_defers_nobody_whose_mail_is_queue_only() {
        let mut hub = hub(&["a@one.example"]);
        let Some(Effect::Resolve { domain }) = hub.sched.effects().next() else { panic!("a look-up") };
        hub.sched.set_queue_only(&Scope::All, Some(""), ScopeOwner::Configuration);
        let failed =
            Resolution::Temporary { cause: Cause::Dns, dsn: Enhanced::new(4, 4, 3), text: "SERVFAIL".to_owned() };
        let failed = hub.resolved(domain, failed, NOW).expect("a failure");
        let unreached = counted(&hub, failed.tally);
        assert_eq!((unreached.waiting, unreached.domains), (0, Vec::new()));
    }
}
