//! Domains: their look-ups, and the messages that wait for them.
//!
//! `Never -> Queued -> Asked -> Known (a site, until the TTL) | Clock (temporary failure) | Never (permanent: all
//! waiting mail fails)`. A known domain keeps its site while it is looked up again, also if that fails temporarily: a
//! dead name server stops no mail whose site is known. An answer moves waiting mail to the (new) site in slices.
//! Suspended and queue-only mail does not fail: while some waits, its domain has a clock after a permanent failure too.

pub mod look_ups;

use std::collections::VecDeque;

use look_ups::LookUps;
use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::site::{Resolution, SitePlan};
use stentor_queue::store::Store;

use crate::failure::drains::{Drain, DrainWhat};
use crate::kept::KeptClock;
use crate::reasons::{HostReply, Reason};
use crate::sites::Sites;
use crate::sites::history::known;
use crate::sites::vacancy::VACANT_MS;
use crate::state::SchedState;
use crate::tables::Pieces;
use crate::timers::Timer;

/// Bounds on the TTLs that are used.
const TTL_MS_MIN: Ms = 60_000;
const TTL_MS_MAX: Ms = 24 * 3_600_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LookUp {
    #[default]
    Never,
    Queued,
    Asked,
    Known,
    Clock,
}

#[derive(Default)]
pub struct Domain {
    /// Messages whose recipients here have not been looked at.
    pub bulk: IdSet,
    /// Messages with an entry in `waits`.
    pub explicit: IdSet,
    pub site: Option<SiteId>,
    pub look_up: LookUp,
    pub fails: u8,
    /// End of the TTL (Known) or of the clock (Clock).
    pub until: Ms,
    pub reason: Reason,
}

/// Moves a domain's messages to its site.
pub struct RelinkProgress {
    pub domain: DomainId,
    /// The last message linked, in `bulk` and then in `explicit`.
    pub cursor: Option<u32>,
    pub in_explicit: bool,
}

#[derive(Default)]
pub struct Domains {
    list: Pieces<Domain>,
    pub look_ups: LookUps,
    pub relinks: VecDeque<RelinkProgress>,
}

impl Domains {
    pub fn get(&mut self, domain: DomainId) -> &mut Domain {
        let index = domain.0 as usize;
        while index >= self.list.len() {
            self.list.push(Domain::default());
        }
        &mut self.list[index]
    }

    /// Ends a domain's clock early (a flush); the caller fires its timer.
    pub fn hasten(&mut self, domain: DomainId) {
        let entry = self.get(domain);
        if entry.look_up == LookUp::Clock {
            // An extra try does not lengthen the clock.
            (entry.until, entry.fails) = (0, entry.fails.saturating_sub(1));
        }
    }

    pub fn peek(&self, domain: DomainId) -> Option<&Domain> {
        self.list.get(domain.0 as usize)
    }
}

/// What the answer to a look-up changes.
pub enum LookUpOutcome {
    Nothing,
    /// The domain has moved to another site; waiting messages are linked there.
    Moved,
    /// Waiting mail fails, or the part of it that is past its lifetime.
    Drain(Drain),
}

impl Domains {
    /// Called when something new waits at a domain. Returns its site if known, and starts the look-up if needed.
    pub fn site_or_ask(&mut self, state: &mut SchedState, domain: DomainId, now: Ms) -> Option<SiteId> {
        let entry = self.get(domain);
        let site = entry.site;
        let ask = match entry.look_up {
            LookUp::Never => true,
            LookUp::Known => entry.until <= now,
            LookUp::Queued | LookUp::Asked | LookUp::Clock => false,
        };
        if ask {
            self.look_up(state, domain, now);
        }
        site
    }

    /// Whether a domain's look-up is outstanding.
    pub fn is_asked(&mut self, domain: DomainId) -> bool {
        self.get(domain).look_up == LookUp::Asked
    }

    /// Ends the clock of a domain's look-up.
    pub fn end_clock(&mut self, state: &mut SchedState, domain: DomainId, now: Ms) {
        let entry = self.get(domain);
        if entry.look_up == LookUp::Clock {
            (entry.until, entry.fails) = (0, 0);
            self.look_up(state, domain, now);
        }
    }

    /// Looks every domain up again that is at a site or whose look-up waits for its clock, after the operator changed
    /// the routes. Until the answer comes, its mail takes the known route.
    pub fn routes_changed(&mut self, state: &mut SchedState, now: Ms) {
        for index in 0..self.list.len() {
            let domain = DomainId(index as u32);
            let entry = self.get(domain);
            entry.until = 0;
            if entry.look_up == LookUp::Clock {
                entry.fails = entry.fails.saturating_sub(1);
            }
            if matches!(entry.look_up, LookUp::Known | LookUp::Clock) {
                self.look_up(state, domain, now);
            }
        }
    }

    /// Continues with the sites whose domains are to be looked up again, for at most `steps` domains.
    pub fn refresh_on(&mut self, state: &mut SchedState, mut steps: u32, now: Ms) {
        while steps > 0
            && let Some(job) = state.sites.refreshes.front()
        {
            steps -= 1;
            let (site, is_asked, at) = (job.site, job.is_asked, job.last);
            let domains = &state.sites.get(site).domains;
            let next = at.map_or_else(|| domains.min(), |after| domains.iter_from(after).next());
            let Some(domain) = next.map(DomainId) else {
                state.sites.refreshes.pop_front();
                state.sites.get(site).refreshing &= is_asked;
                continue;
            };
            if let Some(job) = state.sites.refreshes.front_mut() {
                job.last = next;
            }
            let entry = self.get(domain);
            let is_waited_for = !entry.bulk.is_empty() || !entry.explicit.is_empty();
            let is_of_site = entry.look_up == LookUp::Known && entry.site == Some(site);
            if is_of_site && is_waited_for && (is_asked || entry.until <= now) {
                self.look_up(state, domain, now);
            }
        }
    }

    /// Looks a domain up again because an operator wants a recipient tried whose site is down.
    pub fn look_up_again(&mut self, state: &mut SchedState, domain: DomainId, now: Ms) {
        if self.get(domain).look_up == LookUp::Known {
            self.look_up(state, domain, now);
        }
    }

    /// Handles the response to [`crate::Effect::Resolve`].
    pub fn resolved(
        &mut self,
        state: &mut SchedState,
        store: &Store,
        domain: DomainId,
        resolution: Resolution,
        now: Ms,
    ) -> LookUpOutcome {
        self.look_ups.end(domain);
        match resolution {
            Resolution::Site(plan) if plan.targets.is_empty() => {
                let reply = failure(Cause::Dns, Enhanced::new(4, 4, 4), "no address of any host".to_owned());
                self.failed(state, domain, &reply, now).map_or(LookUpOutcome::Nothing, LookUpOutcome::Drain)
            }
            Resolution::Site(plan) => self.found(state, store, domain, plan, now),
            Resolution::Temporary { cause, dsn, text } => self
                .failed(state, domain, &failure(cause, dsn, text), now)
                .map_or(LookUpOutcome::Nothing, LookUpOutcome::Drain),
            // Its mail is suspended: it neither goes nor fails.
            Resolution::Permanent { dsn, text } if self.is_suspended(state, domain) => self
                .failed(state, domain, &failure(Cause::Dns, dsn, text), now)
                .map_or(LookUpOutcome::Nothing, LookUpOutcome::Drain),
            Resolution::Permanent { dsn, text } => {
                let entry = self.get(domain);
                entry.look_up = LookUp::Never;
                if let Some(before) = entry.site.take() {
                    state.sites.leave(&mut state.timers, before, domain, now + VACANT_MS);
                }
                let reply = failure(Cause::Dns, dsn, text);
                self.get(domain).reason = state.reasons.keep(reply.clone());
                LookUpOutcome::Drain(Drain::all(DrainWhat::Domain(domain), &reply))
            }
        }
    }

    /// Whether the domain's site is suspended.
    fn is_suspended(&self, state: &SchedState, domain: DomainId) -> bool {
        let site = self.peek(domain).and_then(|entry| entry.site).and_then(|site| state.sites.peek(site));
        site.is_some_and(|site| site.suspended)
    }

    /// Whether an operator or the configuration keeps a message back for this recipient.
    pub fn keeps(&self, state: &SchedState, store: &Store, no: MessageNo, id: AddressId) -> bool {
        let domain = store.book.try_domain(id);
        let site = domain.and_then(|domain| self.peek(domain)).and_then(|entry| entry.site);
        state.is_kept(store, no, site, domain)
    }

    /// Called when the mail of a domain that does not exist has failed. If some is kept, the domain is looked up again
    /// and again, until that mail may fail.
    pub fn retry_for_kept(&mut self, state: &mut SchedState, domain: DomainId, now: Ms) {
        let entry = self.get(domain);
        if entry.look_up != LookUp::Never {
            return;
        }
        if entry.bulk.is_empty() && entry.explicit.is_empty() {
            entry.fails = 0;
            return;
        }
        entry.fails = entry.fails.saturating_add(1);
        entry.until = now + state.cfg.domain_retry.delay_ms(entry.fails, &mut state.rng);
        entry.look_up = LookUp::Clock;
        state.timers.set(entry.until, Timer::Domain(domain));
    }

    fn found(
        &mut self,
        state: &mut SchedState,
        store: &Store,
        domain: DomainId,
        plan: SitePlan,
        now: Ms,
    ) -> LookUpOutcome {
        let ttl_ms = (Ms::from(plan.ttl_s) * 1_000).clamp(TTL_MS_MIN, TTL_MS_MAX);
        let (site, left) = state.sites.of_plan(plan, now);
        for host in left {
            state.sites.host_left(&mut state.timers, host, now);
        }
        let entry = self.get(domain);
        (entry.look_up, entry.until, entry.fails) = (LookUp::Known, now + ttl_ms, 0);
        if entry.site == Some(site) {
            return LookUpOutcome::Nothing;
        }
        if let Some(before) = entry.site.replace(site) {
            state.sites.leave(&mut state.timers, before, domain, now + VACANT_MS);
        }
        let entry = state.sites.get(site);
        entry.members += 1;
        if let Some(mut known) = known(store, domain) {
            known.at = state.time.steady(known.at);
            entry.history.learn(known, now);
        }
        let domains = &mut entry.domains;
        let first = domains.min().filter(|_| domains.len() == 1);
        // Not new: the domain was here before, or its id belonged to a forgotten domain that was.
        let is_new = domains.insert(domain.0);
        // A site of one domain keeps no list of domains per message; build it now.
        for domain in first.filter(|_| is_new).map(DomainId).into_iter().chain([domain]) {
            self.relinks.push_back(RelinkProgress { domain, cursor: None, in_explicit: false });
        }
        LookUpOutcome::Moved
    }

    /// Handles a look-up that failed temporarily. Mail past its lifetime has had its chance and expires.
    fn failed(&mut self, state: &mut SchedState, domain: DomainId, reply: &HostReply, now: Ms) -> Option<Drain> {
        let reason = state.reasons.keep(reply.clone());
        let entry = self.get(domain);
        entry.fails = entry.fails.saturating_add(1);
        entry.reason = reason;
        entry.until = now + state.cfg.domain_retry.delay_ms(entry.fails, &mut state.rng);
        if entry.site.is_some() {
            entry.look_up = LookUp::Known;
            return None;
        }
        entry.look_up = LookUp::Clock;
        state.timers.set(entry.until, Timer::Domain(domain));
        Some(Drain::expired(DrainWhat::Domain(domain), reply))
    }

    /// Restores a look-up that failed before the start: its count of failures, and its clock if that has not run out.
    pub(crate) fn recall(&mut self, state: &mut SchedState, domain: DomainId, clock: KeptClock, now: Ms) {
        let entry = self.get(domain);
        (entry.fails, entry.reason) = (clock.fails, clock.reason);
        if clock.until > now {
            (entry.look_up, entry.until) = (LookUp::Clock, clock.until);
            state.timers.set(clock.until, Timer::Domain(domain));
        }
    }

    /// A domain's clock has run out.
    pub fn due(&mut self, state: &mut SchedState, domain: DomainId, now: Ms) {
        let entry = self.get(domain);
        if entry.look_up != LookUp::Clock || entry.until > now {
            return;
        }
        if entry.bulk.is_empty() && entry.explicit.is_empty() {
            entry.look_up = LookUp::Never;
        } else {
            self.look_up(state, domain, now);
        }
    }

    /// Releases a domain without addresses that is to be forgotten. Returns whether nothing here refers to it any more.
    pub fn forget(&mut self, state: &mut SchedState, domain: DomainId) -> bool {
        let Some(entry) = self.peek(domain) else { return true };
        let is_asking = matches!(entry.look_up, LookUp::Queued | LookUp::Asked);
        if is_asking || !entry.bulk.is_empty() || !entry.explicit.is_empty() {
            return false;
        }
        if let Some(site) = entry.site {
            state.sites.leave(&mut state.timers, site, domain, 0);
        }
        *self.get(domain) = Domain::default();
        true
    }

    /// The next message of the first domain on its way to its site: domain, site and message.
    pub fn next_to_relink(&mut self, sites: &mut Sites) -> Option<(DomainId, SiteId, MessageNo)> {
        while let Some(job) = self.relinks.front_mut() {
            let entry = &mut self.list[job.domain.0 as usize];
            let set = if job.in_explicit { &entry.explicit } else { &entry.bulk };
            let next = job.cursor.map_or_else(|| set.min(), |after| set.iter_from(after).next());
            match (next, entry.site) {
                (Some(next), Some(site)) => {
                    job.cursor = Some(next);
                    return Some((job.domain, site, MessageNo(next)));
                }
                (None, Some(_)) if !job.in_explicit => (job.in_explicit, job.cursor) = (true, None),
                (_, site) => {
                    self.relinks.pop_front();
                    if let Some(site) = site {
                        sites.mark_dirty(site);
                    }
                }
            }
        }
        None
    }
}

fn failure(cause: Cause, dsn: Enhanced, text: String) -> HostReply {
    HostReply { code: 0, dsn: Some(dsn), text: text.into(), cause, host: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Scheduler;
    use crate::{Effect, RcptOutcome, SchedConfig, Stage};
    use stentor_queue::event::Event;
    use stentor_queue::site::{Endpoint, SiteLimits, SitePlan, Target};
    use stentor_queue::store::{EventEffect, Store};

    const NOW: Ms = 1_800_000_000_000;

    fn plan() -> Resolution {
        let addr = Endpoint::by_port(([192, 0, 2, 1], 25));
        let target = Target { preference: 0, host: "mx".into(), addr, lmtp: false, posture: None };
        let limits = SiteLimits::default();
        Resolution::Site(SitePlan { key: "mx".into(), targets: vec![target], mixes_domains: false, limits, ttl_s: 60 })
    }

    /// Accepts mail to one address, resolves its domain if asked, and delivers it.
    fn deliver(store: &mut Store, sched: &mut Scheduler, number: u64, text: &str) -> AddressId {
        let (id, _) = store.book.intern(text).unwrap();
        let accept = crate::fixture::accept(number, &[id.0]);
        let EventEffect::New(no) = store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
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
                    store.record_fate(
                        no,
                        stentor_queue::event::Fate::Delivered,
                        &IdSet::one(id.0),
                        None,
                        NOW,
                        &mut Vec::new(),
                    );
                    sched.work_done(store, conn, work.tx, &[result], NOW);
                    sched.finished(no);
                }
            }
            sched.tick(store, NOW);
        }
        assert!(store.message(no).is_none(), "{text} was delivered");
        id
    }

    /// One message to each of `domains` domains, all at one site that refuses connections.
    fn at_a_dead_site(domains: u64) -> (Store, Scheduler) {
        let (mut store, mut sched) = (Store::new(), Scheduler::new(SchedConfig::default(), 1));
        for number in 1..=domains {
            let (id, _) = store.book.intern(&format!("u@d{number}.example")).unwrap();
            let mut accept = crate::fixture::accept(number, &[id.0]);
            accept.accepted = NOW;
            let EventEffect::New(no) = store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
            sched.accepted(&store, no, NOW);
        }
        for _ in 0..20 {
            for effect in sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => sched.resolved(&store, domain, plan(), NOW),
                    Effect::Connect { conn, .. } => {
                        sched.connect_failed(&store, conn, crate::NoSession::Failed, "timed out", NOW);
                    }
                    _ => {}
                }
            }
            sched.tick(&store, NOW);
        }
        (store, sched)
    }

    /// Number of domains that are looked up while the site goes on failing.
    fn asked_for(store: &Store, sched: &mut Scheduler, mut now: Ms, until: Ms) -> usize {
        let mut asked = std::collections::HashSet::new();
        while now < until {
            sched.tick(store, now);
            for effect in sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => assert!(asked.insert(domain), "asked for twice at a time"),
                    Effect::Connect { conn, .. } => {
                        sched.connect_failed(store, conn, crate::NoSession::Failed, "timed out", now);
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
        // An operator has them looked up at once.
        let (store, mut sched) = at_a_dead_site(100);
        sched.flush_site(SiteId(0));
        assert_eq!(asked_for(&store, &mut sched, NOW + 1, NOW + 1_000), 100);
        let (store, mut sched) = at_a_dead_site(100);
        for (no, message) in store.messages() {
            sched.try_now(&store, no, message.pending(), NOW + 1);
        }
        assert_eq!(asked_for(&store, &mut sched, NOW + 1, NOW + 1_000), 100);
    }

    /// Domains come and go at one site, reusing the ids of earlier ones.
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
        assert!(sched.state.sites.list[0].domains.len() <= 6);
    }

    #[test]
    fn a_new_address_of_a_dead_site_is_tried_when_it_is_known() {
        let (store, mut sched) = at_a_dead_site(1);
        let (mut now, mut known) = (NOW + 1, None);
        let moved = || {
            let Resolution::Site(mut plan) = plan() else { panic!("a site") };
            plan.targets[0].addr = Endpoint::by_port(([192, 0, 2, 2], 25));
            Resolution::Site(plan)
        };
        while now < NOW + 48 * 3_600_000 {
            sched.tick(&store, now);
            for effect in sched.effects().collect::<Vec<_>>() {
                match effect {
                    Effect::Resolve { domain } => {
                        if known.is_none() && now > NOW + 12 * 3_600_000 {
                            known = Some(now);
                        }
                        let answer = if known.is_some() { moved() } else { plan() };
                        sched.resolved(&store, domain, answer, now);
                    }
                    Effect::Connect { conn, .. } => {
                        if let Some(at) = known {
                            assert!(now - at < 5_000, "{} ms after it was known", now - at);
                            return;
                        }
                        sched.connect_failed(&store, conn, crate::NoSession::Failed, "timed out", now);
                    }
                    _ => {}
                }
            }
            now = sched.next_tick().map_or(NOW + 48 * 3_600_000, |at| at.max(now + 1));
        }
        panic!("it was never tried");
    }
}
