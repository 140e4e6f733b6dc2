//! Domains: their look-ups and what waits for them.
//!
//! `Never -> Queued -> Asked -> Known (a site, until the TTL) | Clock (temporary failure) | Never (permanent: all that
//! waits fails)`. A known domain keeps its site while it is looked up again and while that fails temporarily: a dead
//! name server stops no mail whose way is known. An answer moves what waits to the (new) site in slices.

use std::collections::VecDeque;

use super::failing::{Drain, DrainWhat};
use super::look_ups::LookUps;
use super::reasons::{ReasonNo, Reply};
use super::tables::Pieces;
use super::timers::Timer;
use super::vacancy::VACANT_MS;
use super::{Dsn, STEPS_MAX, Scheduler};
use crate::ids::{DomainId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::site::Resolution;
use crate::store::Store;

/// Bounds of a believed TTL.
const TTL_MS_MIN: Ms = 60_000;
const TTL_MS_MAX: Ms = 24 * 3_600_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LookUp {
    #[default]
    Never,
    Queued,
    Asked,
    Known,
    Clock,
}

#[derive(Default)]
pub(super) struct Domain {
    /// Messages whose recipients here have not been looked at.
    pub bulk: IdSet,
    /// Messages with an entry in `waits`.
    pub explicit: IdSet,
    pub site: Option<SiteId>,
    pub look_up: LookUp,
    pub fails: u8,
    /// End of the TTL (Known) or of the clock (Clock).
    pub until: Ms,
    pub reason: ReasonNo,
}

/// A domain's messages on their way to its site.
pub(super) struct Relink {
    domain: DomainId,
    /// The last message linked, in `bulk` and then in `explicit`.
    cursor: Option<u32>,
    in_explicit: bool,
}

/// Domains of a site on their way to being looked up again: perhaps their hosts have moved.
pub(super) struct Refresh {
    site: SiteId,
    /// The last of the site's domains that was looked at.
    last: Option<u32>,
    /// An operator wants it: their TTL need not be over.
    is_asked: bool,
}

#[derive(Default)]
pub(super) struct Domains {
    list: Pieces<Domain>,
    pub look_ups: LookUps,
    pub relinks: VecDeque<Relink>,
    pub refreshes: VecDeque<Refresh>,
}

impl Domains {
    pub fn get(&mut self, domain: DomainId) -> &mut Domain {
        let index = domain.0 as usize;
        while index >= self.list.len() {
            self.list.push(Domain::default());
        }
        &mut self.list[index]
    }

    /// Ends a domain's clock early (a flush: its timer is fired by the caller).
    pub fn hasten(&mut self, domain: DomainId) {
        let entry = self.get(domain);
        if entry.look_up == LookUp::Clock {
            entry.until = 0;
        }
    }

    pub fn peek(&self, domain: DomainId) -> Option<&Domain> {
        self.list.get(domain.0 as usize)
    }
}

impl Scheduler {
    /// Something new of `no` waits at `domain`: brings it to the domain's site, and sees to the look-up.
    pub(super) fn link(&mut self, store: &Store, domain: DomainId, no: MessageNo, class: usize, now: Ms) {
        let entry = self.domains.get(domain);
        let ask = match entry.look_up {
            LookUp::Never => true,
            LookUp::Known => entry.until <= now,
            LookUp::Queued | LookUp::Asked | LookUp::Clock => false,
        };
        let site = entry.site;
        if ask {
            self.look_up(domain, now);
        }
        if let Some(site) = site {
            self.wait_at(store, site, domain, no, class, now);
            self.consider(site, now);
        }
    }

    /// Ends the clock of a domain's look-up.
    pub(super) fn end_look_up_clock(&mut self, domain: DomainId, now: Ms) {
        let entry = self.domains.get(domain);
        if entry.look_up == LookUp::Clock {
            (entry.until, entry.fails) = (0, 0);
            self.look_up(domain, now);
        }
    }

    /// The operator changed the routes: every domain whose way is known, or whose look-up waits for its clock, is
    /// looked up again. Until the answer comes its mail goes the way that is known.
    pub fn routes_changed(&mut self, now: Ms) {
        let now = self.steady(now);
        for index in 0..self.domains.list.len() {
            let domain = DomainId(index as u32);
            let entry = self.domains.get(domain);
            entry.until = 0;
            if matches!(entry.look_up, LookUp::Known | LookUp::Clock) {
                self.look_up(domain, now);
            }
        }
    }

    /// A site fails, or an operator wants it tried: all of its domains where mail waits are looked up again, if their TTL
    /// is over or that is asked for. Done by the next ticks.
    pub(super) fn refresh(&mut self, site: SiteId, is_asked: bool) {
        let entry = self.sites.get(site);
        if is_asked || !std::mem::replace(&mut entry.refreshing, true) {
            self.domains.refreshes.push_back(Refresh { site, last: None, is_asked });
        }
    }

    /// Goes on with that for at most `steps` domains.
    pub(super) fn refresh_on(&mut self, mut steps: u32, now: Ms) {
        while steps > 0
            && let Some(job) = self.domains.refreshes.front()
        {
            steps -= 1;
            let (site, is_asked, at) = (job.site, job.is_asked, job.last);
            let domains = &self.sites.get(site).domains;
            let next = at.map_or_else(|| domains.min(), |after| domains.iter_from(after).next());
            let Some(domain) = next.map(DomainId) else {
                self.domains.refreshes.pop_front();
                self.sites.get(site).refreshing &= is_asked;
                continue;
            };
            if let Some(job) = self.domains.refreshes.front_mut() {
                job.last = next;
            }
            let entry = self.domains.get(domain);
            let is_waited_for = !entry.bulk.is_empty() || !entry.explicit.is_empty();
            let is_of_site = entry.look_up == LookUp::Known && entry.site == Some(site);
            if is_of_site && is_waited_for && (is_asked || entry.until <= now) {
                self.look_up(domain, now);
            }
        }
    }

    /// An operator wants a recipient tried whose site is down.
    pub(super) fn look_up_again(&mut self, domain: DomainId, now: Ms) {
        if self.domains.get(domain).look_up == LookUp::Known {
            self.look_up(domain, now);
        }
    }

    /// The answer to [`super::Effect::Resolve`].
    pub fn resolved(&mut self, store: &Store, domain: DomainId, resolution: Resolution, now: Ms) {
        let now = self.steady(now);
        if self.domains.get(domain).look_up != LookUp::Asked {
            return;
        }
        self.domains.look_ups.end(domain);
        match resolution {
            Resolution::Site(plan) if plan.targets.is_empty() => {
                self.look_up_failed(domain, "4.4.4", "no address of any host".into(), now);
            }
            Resolution::Site(plan) => {
                let ttl_ms = (Ms::from(plan.ttl_s) * 1_000).clamp(TTL_MS_MIN, TTL_MS_MAX);
                let (site, left) = self.sites.of_plan(plan, now);
                for host in left {
                    self.host_left(host, now);
                }
                let entry = self.domains.get(domain);
                (entry.look_up, entry.until, entry.fails) = (LookUp::Known, now + ttl_ms, 0);
                if entry.site != Some(site) {
                    if let Some(before) = entry.site.replace(site) {
                        self.leave_site(before, domain, now + VACANT_MS);
                    }
                    self.sites.get(site).members += 1;
                    if let Some(mut known) = super::history::known(store, domain) {
                        known.at = self.steady(known.at);
                        self.sites.get(site).history.learn(known, now);
                    }
                    self.join(store, domain, site, now);
                }
            }
            Resolution::Temporary { dsn, text } => self.look_up_failed(domain, dsn, text, now),
            Resolution::Permanent { dsn, text } => {
                let entry = self.domains.get(domain);
                (entry.look_up, entry.fails) = (LookUp::Never, 0);
                if let Some(before) = entry.site.take() {
                    self.leave_site(before, domain, now + VACANT_MS);
                }
                let entry = self.domains.get(domain);
                let reply = Reply { code: 0, dsn: Dsn::parse(dsn), text: text.into(), host: None };
                entry.reason = self.reasons.keep(reply.clone());
                self.drains.push_back(Drain { what: DrainWhat::Domain(domain), expired_only: false, reply });
            }
        }
        self.ask(now);
        self.look_at_dirty(STEPS_MAX / 64, now);
    }

    pub(super) fn look_up_failed(&mut self, domain: DomainId, dsn: &str, text: String, now: Ms) {
        let reply = Reply { code: 0, dsn: Dsn::parse(dsn), text: text.into(), host: None };
        let reason = self.reasons.keep(reply.clone());
        let entry = self.domains.get(domain);
        entry.fails = entry.fails.saturating_add(1);
        entry.reason = reason;
        entry.until = now + self.cfg.domain_retry.delay_ms(entry.fails, &mut self.rng);
        if entry.site.is_some() {
            entry.look_up = LookUp::Known;
            return;
        }
        entry.look_up = LookUp::Clock;
        let until = entry.until;
        self.timers.set(until, Timer::Domain(domain));
        self.drains.push_back(Drain { what: DrainWhat::Domain(domain), expired_only: true, reply });
    }

    /// A domain's clock has run out.
    pub(super) fn domain_due(&mut self, domain: DomainId, now: Ms) {
        let entry = self.domains.get(domain);
        if entry.look_up != LookUp::Clock || entry.until > now {
            return;
        }
        if entry.bulk.is_empty() && entry.explicit.is_empty() {
            entry.look_up = LookUp::Never;
        } else {
            self.look_up(domain, now);
        }
    }

    /// A domain without addresses is to be forgotten: lets go of it, and answers whether nothing here knows it any more.
    /// Its id may be another domain's from then on.
    pub fn forget_domain(&mut self, domain: DomainId) -> bool {
        let Some(entry) = self.domains.peek(domain) else { return true };
        let is_asking = matches!(entry.look_up, LookUp::Queued | LookUp::Asked);
        // These queues are short-lived: whether the domain is in them need not be asked.
        let is_busy = !self.domains.relinks.is_empty() || !self.drains.is_empty() || self.verbs.has_work();
        if is_asking || is_busy || !entry.bulk.is_empty() || !entry.explicit.is_empty() {
            return false;
        }
        if let Some(site) = entry.site {
            self.leave_site(site, domain, 0);
        }
        *self.domains.get(domain) = Domain::default();
        true
    }

    fn join(&mut self, store: &Store, domain: DomainId, site: SiteId, now: Ms) {
        let domains = &mut self.sites.get(site).domains;
        let first = domains.min().filter(|_| domains.len() == 1);
        if !domains.insert(domain.0) {
            // It was here before, or the id is that of a forgotten domain that was.
            self.domains.relinks.push_back(Relink { domain, cursor: None, in_explicit: false });
            return self.relink(store, STEPS_MAX / 4, now);
        }
        // A site of one domain keeps no list of domains per message: it is made up for now.
        for domain in first.map(DomainId).into_iter().chain([domain]) {
            self.domains.relinks.push_back(Relink { domain, cursor: None, in_explicit: false });
        }
        self.relink(store, STEPS_MAX / 4, now);
    }

    /// Brings what waits at domains to their sites, for at most `steps` messages.
    pub(super) fn relink(&mut self, store: &Store, mut steps: u32, now: Ms) {
        while steps > 0
            && let Some(mut job) = self.domains.relinks.pop_front()
        {
            let site = self.domains.get(job.domain).site;
            while let Some(site) = site
                && steps > 0
            {
                let entry = self.domains.get(job.domain);
                let set = if job.in_explicit { &entry.explicit } else { &entry.bulk };
                let next = job.cursor.map_or_else(|| set.min(), |after| set.iter_from(after).next());
                let Some(next) = next else {
                    if job.in_explicit {
                        break;
                    }
                    (job.in_explicit, job.cursor) = (true, None);
                    continue;
                };
                job.cursor = Some(next);
                steps -= 1;
                let no = MessageNo(next);
                if let Some(class) = self.messages.class(no) {
                    self.wait_at(store, site, job.domain, no, class, now);
                } else {
                    // An operator took out what was here, and it ended before the answer came.
                    self.bury_at_domain(job.domain, no);
                }
            }
            if let Some(site) = site {
                self.sites.mark_dirty(site);
                if steps == 0 {
                    self.domains.relinks.push_front(job);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::Event;
    use crate::ids::AddressId;
    use crate::sched::{Effect, RcptOutcome, SchedConfig, Stage};
    use crate::site::{SiteLimits, SitePlan, Target};
    use crate::store::{Applied, Store};

    const NOW: Ms = 1_800_000_000_000;

    fn plan() -> Resolution {
        let addr = std::net::SocketAddr::from(([192, 0, 2, 1], 25));
        let target = Target { preference: 0, host: "mx".into(), addr, lmtp: false };
        let limits = SiteLimits::default();
        Resolution::Site(SitePlan { key: "mx".into(), targets: vec![target], mixes_domains: false, limits, ttl_s: 60 })
    }

    /// Mail to one address, resolved if asked for and delivered.
    fn deliver(store: &mut Store, sched: &mut Scheduler, number: u64, text: &str) -> AddressId {
        let (id, _) = store.book.intern(text).unwrap();
        let accept = crate::store::tests::accept(number, &[id.0]);
        let Applied::New(no) = store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
        sched.accepted(store, no, NOW);
        for _ in 0..20 {
            for effect in sched.effects().collect::<Vec<_>>() {
                let conn = match effect {
                    Effect::Resolve { domain } => {
                        assert_eq!(store.book.domain(id), domain);
                        assert!(!sched.forget_domain(domain), "its look-up is under way");
                        sched.resolved(store, domain, plan(), NOW);
                        continue;
                    }
                    Effect::Connect { conn, .. } => {
                        sched.connected(conn, NOW);
                        conn
                    }
                    Effect::Work { conn } => conn,
                    _ => continue,
                };
                while let Some(work) = sched.take_work(store, conn, NOW) {
                    assert_eq!(work.ids[..], [id]);
                    assert!(!sched.forget_domain(store.book.domain(id)) || store.message(no).is_some());
                    let ok: Arc<str> = "ok".into();
                    let result = RcptOutcome { id, stage: Stage::Final, code: 250, dsn: None, text: ok };
                    store.settle(no, crate::event::Fate::Delivered, &IdSet::one(id.0), None, NOW, &mut Vec::new());
                    sched.work_done(store, conn, work.tx, &[result], NOW);
                    sched.finished(no);
                }
            }
            sched.tick(store, NOW);
        }
        assert!(store.message(no).is_none(), "{text} was delivered");
        id
    }

    /// One message to each of so many domains, all at one site that refuses connections.
    fn at_a_dead_site(domains: u64) -> (Store, Scheduler) {
        let (mut store, mut sched) = (Store::new(), Scheduler::new(SchedConfig::default(), 1));
        for number in 1..=domains {
            let (id, _) = store.book.intern(&format!("u@d{number}.example")).unwrap();
            let mut accept = crate::store::tests::accept(number, &[id.0]);
            accept.accepted = NOW;
            let Applied::New(no) = store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
            sched.accepted(&store, no, NOW);
        }
        for _ in 0..20 {
            for effect in sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => sched.resolved(&store, domain, plan(), NOW),
                    Effect::Connect { conn, .. } => {
                        sched.connect_failed(&store, conn, crate::sched::NoSession::Failed, "timed out", NOW);
                    }
                    _ => {}
                }
            }
            sched.tick(&store, NOW);
        }
        (store, sched)
    }

    /// The domains that are asked for while the site goes on failing.
    fn asked_for(store: &Store, sched: &mut Scheduler, mut now: Ms, until: Ms) -> usize {
        let mut asked = std::collections::HashSet::new();
        while now < until {
            sched.tick(store, now);
            for effect in sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => assert!(asked.insert(domain), "asked for twice at a time"),
                    Effect::Connect { conn, .. } => {
                        sched.connect_failed(store, conn, crate::sched::NoSession::Failed, "timed out", now);
                    }
                    _ => {}
                }
            }
            now = sched.next_tick().map_or(until, |at| at.max(now + 1));
        }
        asked.len()
    }

    #[test]
    fn every_domain_of_a_dead_site_is_looked_up_again() {
        let (store, mut sched) = at_a_dead_site(100);
        assert_eq!(asked_for(&store, &mut sched, NOW + 1, NOW + 10_000), 0, "their TTL is not over");
        assert_eq!(asked_for(&store, &mut sched, NOW + 10_000, NOW + 600_000), 100);
        // By an operator, at once.
        let (store, mut sched) = at_a_dead_site(100);
        sched.flush_site(SiteId(0));
        assert_eq!(asked_for(&store, &mut sched, NOW + 1, NOW + 1_000), 100);
        let (store, mut sched) = at_a_dead_site(100);
        for (no, message) in store.messages() {
            sched.try_now(&store, no, message.pending(), NOW + 1);
        }
        assert_eq!(asked_for(&store, &mut sched, NOW + 1, NOW + 1_000), 100);
    }

    /// Domains come and go at one site, with the ids of those before them.
    #[test]
    fn a_forgotten_domain_leaves_its_id_to_another() {
        let (mut store, mut sched) = (Store::new(), Scheduler::new(SchedConfig::default(), 1));
        let mut number = 0;
        for round in 0..20 {
            let mut ids = Vec::new();
            for n in 0..=(round % 5) {
                number += 1;
                ids.push(deliver(&mut store, &mut sched, number, &format!("u@d{round}-{n}.example")));
            }
            for id in ids {
                store.apply(Event::Forget { ids: IdSet::one(id.0) });
                sched.forget_addresses(&IdSet::one(id.0));
                assert!(!sched.knows_address(id));
            }
            for domain in store.book.emptied_domains(None, 99) {
                assert!(sched.forget_domain(domain), "nothing waits there");
                store.book.forget_domain(domain);
            }
        }
        assert!(store.book.domains() <= 5, "{} ids for 60 domains", store.book.domains());
        assert!(sched.sites.list[0].domains.len() <= 6);
    }
}
