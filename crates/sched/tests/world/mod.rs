//! One seeded world: a store, the scheduler, hosts with moods, and the checks.
//!
//! The world alone decides each recipient's end, so that the test knows it beforehand: removed, bounced (a 5xx for it,
//! or a domain that does not exist), expired (no host ever answers), otherwise delivered.

mod hosts;
mod quarantine;
mod queue_only;
mod rules;
#[path = "../common/truth.rs"]
mod truth;
mod verbs;

use std::collections::{HashMap, HashSet};

use stentor_mail::Class;
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{AddressId, ConnId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::standing_bounces::StandingBounce;
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::{
    Backoff, Census, CloseReason, Effect, FailedRcpt, NoSession, RcptOutcome, SchedConfig, Scheduler, Stage,
    Strategies, Work,
};

use super::agenda::{Agenda, Next};
use hosts::{DomainKind, Hosts};
use quarantine::QuarantineModel;
use truth::Truth;
use verbs::Verb;

const START: Ms = 1_800_000_000_000;
const MINUTE: Ms = 60_000;
const HOUR: Ms = 60 * MINUTE;
const LIFETIME: Ms = 24 * HOUR;
const HORIZON: Ms = 4 * LIFETIME;

enum Ev {
    Post,
    Resolved(stentor_queue::ids::DomainId, u64),
    Session(ConnId, u64),
    Reply(ConnId, u64),
    Closed(ConnId, u64),
    Restart,
    Flush,
    Verb(verbs::Verb),
}

struct Conn {
    site: SiteId,
    host: usize,
    done: u32,
    work: Option<Work>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Delivered,
    Bounced,
    Expired,
    Removed,
    /// Bounced by a standing bounce.
    BouncedForATime,
}

pub struct World {
    pub forget_deliveries: bool,
    store: Store,
    sched: Scheduler,
    cfg: SchedConfig,
    rng: fastrand::Rng,
    now: Ms,
    hosts: Hosts,
    agenda: Agenda<Ev>,
    conns: HashMap<ConnId, Conn>,
    gave_way: HashSet<ConnId>,
    in_flight: HashSet<(MessageNo, AddressId)>,
    ends: HashMap<(u64, AddressId), End>,
    copies: HashMap<(u64, AddressId), u32>,
    /// Recipients that may get a second copy: lost after the dot, or in flight at a restart.
    doubtful: HashSet<(u64, AddressId)>,
    accepted: Vec<(u64, AddressId, Ms)>,
    /// Recipients kept back by a removal that is not durable yet.
    reserved: HashSet<(u64, AddressId)>,
    /// All standing bounces so far, and the recipients that one covered when they arrived in this run.
    bounces_begun: Vec<StandingBounce>,
    covered: HashSet<(u64, AddressId)>,
    /// Recipients in the queue when it was last run, and how often each was handed out since.
    in_run: HashMap<(u64, AddressId), u32>,
    /// Messages whose delay was reported in this run.
    delayed: HashSet<u64>,
    posts_left: u32,
    /// Number of restarts so far: connections of earlier runs are gone.
    run: u64,
    seed: u64,
    stopped: bool,
    truth: Truth,
    kept: QuarantineModel,
}

fn config(rng: &mut fastrand::Rng) -> SchedConfig {
    SchedConfig {
        connections_max: rng.usize(2..30),
        slow_connections_max: rng.usize(0..10),
        connections_per_site_max: rng.usize(1..6),
        recipients_per_transaction_max: rng.usize(1..60),
        transactions_per_connection_max: rng.u32(1..20),
        resolves_max: rng.usize(1..8),
        recipient_retry: Backoff::new(5 * MINUTE, HOUR),
        lifetime_ms: LIFETIME,
        warn_ms: Some(rules::WARN),
        ordinary_reserve: rng.usize(0..4),
        sources: (0..rng.usize(0..4)).map(rules::source).collect(),
        strategies: Strategies {
            order: rng.u32(0..4) > 0,
            lanes: rng.u32(0..4) > 0,
            memory: true,
            adaptation: rng.u32(0..4) > 0,
        },
        ..SchedConfig::default()
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cfg = config(&mut rng);
        let hosts = Hosts::new(&mut rng, START);
        let mut world = World {
            forget_deliveries: false,
            store: Store::new(),
            sched: Scheduler::new(cfg.clone(), seed),
            cfg,
            now: START,
            hosts,
            agenda: Agenda::new(),
            conns: HashMap::new(),
            gave_way: HashSet::new(),
            in_flight: HashSet::new(),
            ends: HashMap::new(),
            copies: HashMap::new(),
            doubtful: HashSet::new(),
            accepted: Vec::new(),
            reserved: HashSet::new(),
            bounces_begun: Vec::new(),
            covered: HashSet::new(),
            in_run: HashMap::new(),
            delayed: HashSet::new(),
            posts_left: rng.u32(5..40),
            run: 0,
            seed,
            stopped: false,
            truth: Truth::new(seed),
            kept: QuarantineModel::new(seed),
            rng,
        };
        world.at(1, Ev::Post);
        for (share, ev) in [(3, Ev::Restart), (3, Ev::Flush)] {
            if world.rng.u32(0..share) == 0 {
                let after = world.rng.u64(1..3 * HOUR);
                world.at(after, ev);
            }
        }
        rules::set(&mut world.sched);
        world.plan_verbs();
        world
    }

    fn at(&mut self, after: Ms, ev: Ev) {
        self.agenda.plan(self.now + after, ev);
    }

    /// Runs the world to its end. Returns the checks of the views on the way.
    pub fn run(mut self) -> Truth {
        self.run_until(START + HORIZON);
        self.check_ends();
        self.truth
    }

    pub fn run_and_stop(mut self) {
        let stop_at = START + self.rng.u64(1..30_000);
        self.run_until(stop_at);
        self.sched.stop();
        self.stopped = true;
        let Agenda { times, events, .. } = &mut self.agenda;
        times.retain(|next| !matches!(events[&next.0.1], Ev::Post | Ev::Restart | Ev::Flush));
        self.obey();
        self.run_until(stop_at + HOUR);
        assert_eq!((self.sched.open_connections(), self.conns.len()), (0, 0), "seed {}", self.seed);
        assert!(self.in_flight.is_empty());
    }

    fn run_until(&mut self, end: Ms) {
        while self.now < end {
            let next = self.agenda.next_at(&self.sched, self.now);
            let Some(next) = next.filter(|next| *next < end) else { break };
            let what = self.agenda.take(next, &self.sched, self.now);
            self.now = self.now.max(next);
            match what.expect("each time has its event") {
                Next::Event(event) => self.happen(&event),
                Next::Tick => self.sched.tick(&self.store, self.now),
            }
            self.obey();
            self.check_bounds();
            if self.truth.event(&self.sched, &self.store, self.now) {
                self.truth.quarantined += self.kept.check(&self.store, self.seed);
            }
        }
    }

    fn happen(&mut self, ev: &Ev) {
        match *ev {
            Ev::Verb(ref verb) => self.verb(verb),
            Ev::Post => self.post(),
            Ev::Resolved(domain, run) if run == self.run => {
                let name = self.store.book.domain_name(domain).to_owned();
                let answer = self.hosts.resolve(&name, self.now);
                self.sched.resolved(&self.store, domain, answer, self.now);
            }
            Ev::Session(conn, run) if run == self.run => self.session(conn),
            Ev::Reply(conn, run) if run == self.run => self.reply(conn),
            Ev::Closed(conn, run) if run == self.run => {
                if let Some(gone) = self.conns.remove(&conn) {
                    self.give_up(&gone);
                    self.hosts.left(gone.host);
                    self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now);
                }
            }
            Ev::Resolved(..) | Ev::Session(..) | Ev::Reply(..) | Ev::Closed(..) => {}
            Ev::Restart => self.restart(),
            Ev::Flush if self.rng.bool() => self.sched.flush_all(),
            Ev::Flush => self.sched.flush_site(SiteId(0)),
        }
    }

    fn post(&mut self) {
        let mut recipients = IdSet::new();
        let count = match self.rng.u32(0..10) {
            0..=4 => 1,
            5..=8 => self.rng.u32(2..60),
            _ => self.rng.u32(300..900),
        };
        for _ in 0..count {
            let address = format!("u{}@{}", self.rng.u32(0..2_000), self.hosts.domain(&mut self.rng));
            if let Some((id, _)) = self.store.book.intern(&address) {
                recipients.insert(id.0);
            }
        }
        let id = self.store.next_message_id(self.now);
        let accept = Accept {
            size: 1_000,
            sender: format!("list@s{}.example", self.rng.u32(0..3)),
            class: if self.rng.bool() { Class::Bulk } else { Class::Ordinary },
            list: rules::list(&mut self.rng),
            recipients,
            ..Accept::bare(id, self.now)
        };
        if let Some(accept) = self.keep_some(accept) {
            self.accepted.extend(accept.recipients.iter().map(|r| (id.0, AddressId(r), self.now)));
            let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) else {
                panic!("not accepted")
            };
            self.sched.accepted(&self.store, no, self.now);
            self.note_covered(no);
        }
        self.posts_left -= 1;
        if self.posts_left > 0 {
            let after = if self.rng.bool() { 1 } else { self.rng.u64(1..20 * MINUTE) };
            self.at(after, Ev::Post);
        }
    }

    fn obey(&mut self) {
        let run = self.run;
        // Performing effects may add more.
        while let Some(effects) = Some(self.sched.effects().collect::<Vec<_>>()).filter(|e| !e.is_empty()) {
            for effect in effects {
                self.obey_one(effect, run);
            }
        }
    }

    fn obey_one(&mut self, effect: Effect, run: u64) {
        match effect {
            Effect::Resolve { domain } => {
                let after = self.rng.u64(1..500);
                self.at(after, Ev::Resolved(domain, run));
            }
            Effect::Connect { conn, site, target, .. } => {
                assert!(!self.stopped, "connects after the stop");
                let host = Hosts::index(&target.addr);
                let after = self.hosts.connect_ms(host, &mut self.rng);
                self.hosts.joined(host);
                assert!(self.conns.insert(conn, Conn { site, host, done: 0, work: None }).is_none());
                self.at(after, Ev::Session(conn, run));
            }
            Effect::Work { conn } => self.next_work(conn),
            // The scheduler asked for this before it knew the answer to its earlier request.
            Effect::Close { conn } if self.gave_way.contains(&conn) => {}
            Effect::Close { conn } => {
                assert!(self.conns[&conn].work.is_none(), "closed with an open transaction");
                self.at(20, Ev::Closed(conn, run));
            }
            // Every look-up here is answered before it counts as silent.
            Effect::ForgetLookUp { .. } => panic!("a look-up gave way"),
            Effect::GiveWay { conn } => self.give_way(conn),
            Effect::Delayed { no } => self.delayed(no),
            Effect::FastDone { no, pending } => {
                let there = self.store.message(no).map_or(0, |m| m.pending().len());
                assert!(pending as usize >= there, "more stragglers than were said");
            }
            Effect::Suspend { id, posts, list, .. } => {
                assert!(Hosts::is_unknown_user(id) && posts == rules::SUSPEND_POSTS && &*list == rules::SUSPENDS);
            }
            Effect::Coalesce { list, posts, ids } => self.coalesce(&list, &posts, &ids),
            Effect::Bounce { no, failures } => self.bounce(no, failures),
        }
    }

    fn session(&mut self, conn: ConnId) {
        let Some(host) = self.conns.get(&conn).map(|c| c.host) else { return };
        if let Some(why) = self.hosts.refuses(host, self.now) {
            self.conns.remove(&conn);
            self.hosts.left(host);
            let cause = match why {
                "connection refused" => NoSession::Unreachable,
                "timed out" => NoSession::Failed,
                _ => NoSession::Reply { code: 421, dsn: None },
            };
            self.sched.connect_failed(&self.store, conn, cause, why, self.now);
            return;
        }
        self.sched.connected(conn, self.now);
        self.next_work(conn);
    }

    /// The next transaction. Now and then some or all of its recipients are taken out before it begins, as suppressed
    /// ones are.
    fn take_work(&mut self, conn: ConnId) -> Option<Work> {
        loop {
            let mut work = self.sched.take_work(&self.store, conn, self.now)?;
            if self.forget_deliveries || self.rng.u32(0..30) > 0 || std::env::var_os("NO_WITHDRAW").is_some() {
                return Some(work);
            }
            let share = self.rng.usize(1..4);
            let ids: IdSet = work.ids.iter().step_by(share).map(|id| id.0).collect();
            let message = self.store.message(work.no).expect("work of a live message").id();
            self.note_taken_out(message, ids.iter().map(AddressId));
            let finished = self.record_fate(work.no, Fate::Removed, End::Removed, &ids);
            let are_left = self.sched.withdraw(&self.store, conn, &mut work, &ids, self.now);
            assert_eq!(are_left, !work.ids.is_empty());
            if finished {
                self.sched.finished(work.no);
            }
            if are_left {
                return Some(work);
            }
        }
    }

    fn next_work(&mut self, conn: ConnId) {
        let Some(work) = self.take_work(conn) else { return };
        let is_alone = self.store.message(work.no).is_some_and(|message| message.list() == Some(rules::SHORT));
        assert!(!is_alone || work.ids.len() == 1, "copies of their own share a transaction");
        assert!(!self.stopped && !work.ids.is_empty());
        self.check_verbs(&work);
        assert!(work.ids.len() <= self.cfg.recipients_per_transaction_max);
        for id in &work.ids {
            assert!(self.in_flight.insert((work.no, *id)), "handed out twice at a time");
            assert!(self.store.message(work.no).is_some_and(|m| m.pending().contains(id.0)), "not pending");
        }
        let entry = self.conns.get_mut(&conn).expect("work for an open connection");
        assert!(entry.work.replace(work).is_none());
        let after = self.rng.u64(20..400) + if self.rng.u32(0..50) == 0 { 20_000 } else { 0 };
        let run = self.run;
        self.at(after, Ev::Reply(conn, run));
    }

    fn reply(&mut self, conn: ConnId) {
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        let Some(work) = entry.work.take() else { return };
        entry.done += 1;
        let (done, host) = (entry.done, entry.host);
        let queue_id = self.store.message(work.no).map(|m| m.id().0);
        let answer = self.hosts.answer(host, queue_id.unwrap_or(0), &work.ids, done, self.now, &mut self.rng);
        let mut delivered = IdSet::new();
        for id in &work.ids {
            self.in_flight.remove(&(work.no, *id));
        }
        for outcome in &answer.outcomes {
            let Some(queue_id) = queue_id else { continue };
            let key = (queue_id, outcome.id);
            if outcome.stage == Stage::LostAfterDot {
                self.doubtful.insert(key);
            }
            if outcome.stage == Stage::Final && outcome.code == 250 {
                delivered.insert(outcome.id.0);
                let copies = self.copies.entry(key).or_default();
                *copies += 1;
                assert!(!self.covered.contains(&key), "delivered, and accepted while a standing bounce covered it");
                assert!(*copies == 1 || self.doubtful.contains(&key), "delivered twice: {key:?}");
            }
        }
        let finished =
            !self.forget_deliveries && self.record_fate(work.no, Fate::Delivered, End::Delivered, &delivered);
        let outcomes: &[RcptOutcome] = if self.forget_deliveries { &[] } else { &answer.outcomes };
        self.sched.work_done(&self.store, conn, work.tx, outcomes, self.now);
        if finished {
            self.sched.finished(work.no);
        }
        match answer.close {
            None => self.next_work(conn),
            Some(why) => {
                self.conns.remove(&conn);
                self.hosts.left(host);
                self.sched.closed(&self.store, conn, &why, self.now);
            }
        }
    }

    /// Ends a silent connection, unless the end of its data has been sent.
    fn give_way(&mut self, conn: ConnId) {
        let entry = &self.conns[&conn];
        if entry.work.is_some() && self.rng.bool() {
            self.sched.stays(conn, self.now);
            return;
        }
        let is_session = entry.work.is_some() || entry.done > 0;
        let gone = self.conns.remove(&conn).expect("an open connection gives way");
        self.gave_way.insert(conn);
        self.give_up(&gone);
        self.hosts.left(gone.host);
        if is_session {
            let why = CloseReason::Lost { text: "gave way".into() };
            self.sched.closed(&self.store, conn, &why, self.now);
        } else {
            self.sched.connect_failed(&self.store, conn, NoSession::Failed, "gave way", self.now);
        }
    }

    fn record_fate(&mut self, no: MessageNo, fate: Fate, end: End, ids: &IdSet) -> bool {
        let Some(queue_id) = self.store.message(no).map(|m| m.id().0) else { return false };
        for id in ids {
            if self.store.message(no).is_some_and(|m| m.pending().contains(id)) {
                assert!(self.ends.insert((queue_id, AddressId(id)), end).is_none(), "a second end");
            }
        }
        let applied = self.store.record_fate(no, fate, ids, None, self.now, &mut Vec::new());
        matches!(applied, EventEffect::Finished { .. })
    }

    fn bounce(&mut self, no: MessageNo, failures: Vec<FailedRcpt>) {
        if self.rng.u32(0..10) == 0 {
            self.sched.bounce_refused(no, failures, self.now);
            return;
        }
        let all: Vec<AddressId> = failures.iter().map(|f| f.id).collect();
        let mut finished = false;
        let ends = [
            (false, false, Fate::Bounced, End::Bounced),
            (false, true, Fate::Bounced, End::BouncedForATime),
            (true, false, Fate::Expired, End::Expired),
        ];
        for (expired, by_operator, fate, end) in ends {
            let mut ids = IdSet::new();
            let of_kind = |f: &&FailedRcpt| (f.expired, &*f.text == verbs::BOUNCE_REASON) == (expired, by_operator);
            for failure in failures.iter().filter(of_kind) {
                let message = self.store.message(no).expect("failures of a live message");
                let age = self.now - message.accepted();
                let lifetime = if message.list() == Some(rules::SHORT) { rules::SHORT_LIFETIME } else { LIFETIME };
                if by_operator {
                    self.check_bounced(message, failure.id);
                }
                assert!(!expired || age > lifetime, "expired at the age of {age} ms: {failure:?}");
                assert!(!self.in_flight.contains(&(no, failure.id)));
                assert!(!self.reserved.contains(&(message.id().0, failure.id)), "failed while it was taken out");
                ids.insert(failure.id.0);
            }
            finished |= !ids.is_empty() && self.record_fate(no, fate, end, &ids);
        }
        self.sched.bounced(no, &all);
        if finished {
            self.sched.finished(no);
        }
    }

    /// Discards and rebuilds the scheduler; connections and their transactions are gone.
    fn restart(&mut self) {
        self.run += 1;
        for (_, conn) in std::mem::take(&mut self.conns) {
            self.give_up(&conn);
            self.hosts.left(conn.host);
        }
        assert!(self.in_flight.is_empty());
        self.gave_way.clear();
        self.reserved.clear();
        self.covered.clear();
        self.sched = Scheduler::new(self.cfg.clone(), self.seed + 1);
        rules::set(&mut self.sched);
        self.in_run.clear();
        for (name, _, reason) in self.store.standing_bounces().chain(self.store.queue_only()) {
            self.sched.set_suspended(name, true, Ms::MAX, reason);
        }
        let live: Vec<MessageNo> = self.store.messages().map(|(no, _)| no).collect();
        for no in live {
            self.sched.accepted(&self.store, no, self.now);
            self.note_covered(no);
        }
    }

    fn give_up(&mut self, conn: &Conn) {
        let Some(work) = &conn.work else { return };
        for id in &work.ids {
            self.in_flight.remove(&(work.no, *id));
        }
    }

    fn check_bounds(&mut self) {
        let load = self.sched.load();
        assert!(load.connections_fast <= self.cfg.connections_max, "fast budget exceeded");
        assert!(load.connections_slow <= self.cfg.slow_connections_max, "slow lane exceeded");
        assert_eq!(load.connections_fast + load.connections_slow, self.conns.len(), "a connection is not in the books");
        let mut per_site: HashMap<SiteId, usize> = HashMap::new();
        for conn in self.conns.values() {
            *per_site.entry(conn.site).or_default() += 1;
        }
        // Each of up to three hosts may have silent connections in addition.
        let max = self.cfg.connections_per_site_max * 3 * self.cfg.sources.len().max(1);
        assert!(per_site.values().all(|n| *n <= max), "a site's limit exceeded");
    }

    fn check_ends(&mut self) {
        if self.forget_deliveries {
            return;
        }
        for (queue_id, id, _) in &self.accepted {
            let end = self.ends.get(&(*queue_id, *id));
            let name = self.store.book.text(*id);
            let expected = match self.hosts.kind_of(name) {
                DomainKind::None => End::Bounced,
                DomainKind::NeverAnswers => End::Expired,
                DomainKind::Site if self.hosts.is_dead(name) => End::Expired,
                DomainKind::Site if Hosts::is_unknown_user(*id) => End::Bounced,
                DomainKind::Site => End::Delivered,
            };
            // With one recipient per transaction and a host that refuses every other one, a day may not be enough. Nor
            // if an unknown user's transactions lose their connection, or a hold took part of the day.
            let unlucky = matches!(expected, End::Delivered | End::Bounced) && self.hosts.is_chancy(name);
            let no = self.store.messages().find(|(_, m)| m.id().0 == *queue_id).map(|(no, _)| no);
            let status = no.map(|no| self.sched.recipient_status(&self.store, no, *id, self.now));
            assert!(
                end == Some(&expected)
                    || matches!(end, Some(End::Removed | End::BouncedForATime))
                    || (end == Some(&End::Expired) && unlucky),
                "{name}: {end:?} instead of {expected:?}; {:?}; {status:?}",
                self.hosts.moods_of(name)
            );
        }
        self.kept.check(&self.store, self.seed);
        assert!(self.store.is_empty() && self.store.is_balanced());
        let load = self.sched.load();
        assert_eq!(load.messages, 0, "left behind");
        let sites: Vec<SiteId> = self.sched.sites(self.now).map(|status| status.site).collect();
        assert_eq!(sites.len(), load.sites);
        for site in sites {
            let why = self.sched.explain_site(site, self.now).expect("a known site");
            assert!(why.flows.is_empty(), "messages left behind: {why:?}");
        }
        assert_eq!(load.lists, 0, "lists left behind: {load:?}");
        assert_eq!(load.clocks, 0, "clocks left behind: {load:?}");
        assert!(self.conns.is_empty(), "idle connections stay open");
        let mut census = Census::default();
        assert!(census.step(&self.sched, &self.store, 1, self.now) && census.sites().next().is_none());
    }
}
