//! One small world of hosts that misbehave, the real scheduler and store, and the rules that must hold whatever the
//! hosts do.

mod hosts;
mod ledger;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::Ipv4Addr;

use stentor_mail::Class;
use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{AddressId, ConnId, DomainId, MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::{
    CloseReason, Effect, FailedRcpt, NoSession, RcptOutcome, SchedConfig, Scheduler, SourceConfig, Stage, Strategies,
    Work,
};

use super::agenda::{Agenda, Next};
use hosts::{Host, Welcome};
use ledger::{End, Ledger};

const START: Ms = 1_800_000_000_000;
const MINUTE: Ms = 60_000;
const HOUR: Ms = 60 * MINUTE;
const LIFETIME: Ms = 12 * HOUR;
/// The lifetime, the longest clock, and the time to report.
const HORIZON: Ms = 3 * LIFETIME;
/// Largest number of events in one millisecond; a loop without a clock would be endless.
const AT_ONCE_MAX: u32 = 4_000;

/// Counts of the events in a world.
#[derive(Debug, Default, Clone, Copy)]
pub struct EventCounts {
    pub connections: u64,
    pub transactions: u64,
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
}

impl EventCounts {
    pub fn add(&mut self, other: &EventCounts) {
        self.connections += other.connections;
        self.transactions += other.transactions;
        self.delivered += other.delivered;
        self.bounced += other.bounced;
        self.expired += other.expired;
    }
}

#[derive(Clone, Copy)]
enum Ev {
    Post,
    Resolved(DomainId),
    Session(ConnId),
    Reply(ConnId),
    Closed(ConnId),
    Flush,
}

struct Conn {
    site: SiteId,
    host: usize,
    is_ready: bool,
    must_close: bool,
    done: u32,
    open: VecDeque<Work>,
}

pub struct World {
    /// Whether the ledger is not told of ended messages.
    pub forgets: bool,
    rng: fastrand::Rng,
    store: Store,
    sched: Scheduler,
    now: Ms,
    hosts: Vec<Host>,
    /// The sites that each domain may be at, with their hosts.
    domains: Vec<Vec<(Vec<usize>, bool)>>,
    /// Percentages of look-ups that fail, and that say that there is no such domain.
    look_up_faults: (u32, u32),
    pipelines: usize,
    connections_max: usize,
    lmtp: bool,
    agenda: Agenda<Ev>,
    conns: HashMap<ConnId, Conn>,
    in_flight: HashSet<(MessageNo, AddressId)>,
    accepted: Vec<(u64, AddressId)>,
    doubtful: HashSet<(u64, AddressId)>,
    refused: HashSet<(u64, AddressId)>,
    no_domain: bool,
    posts: u32,
    ledger: Ledger,
    at_once: u32,
    good_at: Ms,
}

fn config(rng: &mut fastrand::Rng) -> SchedConfig {
    SchedConfig {
        connections_max: rng.usize(1..8),
        slow_connections_max: rng.usize(0..3),
        connections_per_site_max: rng.usize(1..4),
        recipients_per_transaction_max: if rng.u32(0..8) == 0 { 100 } else { rng.usize(1..8) },
        transactions_per_connection_max: rng.u32(1..20),
        lifetime_ms: LIFETIME,
        ordinary_reserve: rng.usize(0..2),
        sources: vec![SourceConfig::default(); rng.usize(0..2)],
        strategies: Strategies { lanes: rng.u32(0..4) > 0, adaptation: rng.u32(0..8) > 0, ..Strategies::default() },
        ..SchedConfig::default()
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cfg = config(&mut rng);
        let hosts_max = rng.usize(1..4);
        let good_at = if rng.u32(0..4) == 0 { START + HORIZON } else { START + rng.u64(1..LIFETIME / 2) };
        let hosts = (0..hosts_max).map(|_| Host::new(&mut rng, START, good_at)).collect();
        let site = |rng: &mut fastrand::Rng| {
            let mut all: Vec<usize> = (0..rng.usize(1..=hosts_max)).map(|_| rng.usize(0..hosts_max)).collect();
            all.sort_unstable();
            all.dedup();
            (all, rng.bool())
        };
        let moves = rng.u32(0..4) == 0;
        let domains: Vec<Vec<(Vec<usize>, bool)>> =
            (0..rng.usize(1..4)).map(|_| (0..if moves { 2 } else { 1 }).map(|_| site(&mut rng)).collect()).collect();
        let sites_per_host = domains.iter().map(Vec::len).sum();
        let mut world = World {
            forgets: false,
            store: Store::new(),
            connections_max: cfg.connections_max + cfg.slow_connections_max,
            sched: Scheduler::new(cfg, seed),
            now: START,
            hosts,
            domains,
            look_up_faults: if rng.u32(0..5) == 0 { (rng.u32(0..60), rng.u32(0..3)) } else { (0, 0) },
            pipelines: rng.usize(1..6),
            lmtp: rng.u32(0..4) == 0,
            agenda: Agenda::new(),
            conns: HashMap::new(),
            in_flight: HashSet::new(),
            accepted: Vec::new(),
            doubtful: HashSet::new(),
            refused: HashSet::new(),
            no_domain: false,
            posts: if rng.u32(0..3) == 0 { 1 } else { rng.u32(1..12) },
            ledger: Ledger::new(sites_per_host),
            at_once: 0,
            good_at,
            rng,
        };
        world.at(0, Ev::Post);
        if world.rng.u32(0..8) == 0 {
            let after = world.rng.u64(0..HOUR);
            world.at(after, Ev::Flush);
        }
        world
    }

    fn at(&mut self, after: Ms, ev: Ev) {
        self.agenda.plan(self.now + after, ev);
    }

    /// Runs the world to its end. `Err`: the rule that was broken.
    pub fn run(mut self) -> Result<EventCounts, String> {
        let end = START + HORIZON;
        loop {
            let Some(next) = self.agenda.next_at(&self.sched, self.now) else {
                if self.store.is_empty() {
                    break;
                }
                return Err("mail waits, and nothing will ever happen".to_owned());
            };
            if next >= end {
                break;
            }
            self.at_once = if next > self.now { 0 } else { self.at_once + 1 };
            if self.at_once > AT_ONCE_MAX {
                return Err(format!("a loop without a clock at {} ms", self.now - START));
            }
            let what = self.agenda.take(next, &self.sched, self.now);
            self.now = self.now.max(next);
            match what {
                Some(Next::Event(event)) => self.happen(event)?,
                Some(Next::Tick) => self.sched.tick(&self.store, self.now),
                None => {}
            }
            self.obey()?;
        }
        self.check_ends()
    }

    fn happen(&mut self, ev: Ev) -> Result<(), String> {
        match ev {
            Ev::Post => self.post(),
            Ev::Resolved(domain) => {
                let answer = self.resolve(domain);
                self.sched.resolved(&self.store, domain, answer, self.now);
            }
            Ev::Session(conn) => return self.session(conn),
            Ev::Reply(conn) => return self.reply(conn),
            Ev::Closed(conn) => {
                if self.conns.get(&conn).is_some_and(|c| c.open.is_empty()) {
                    self.conns.remove(&conn);
                    self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now);
                }
            }
            Ev::Flush => {
                self.ledger.flushes.push(self.now);
                self.sched.flush_all();
            }
        }
        Ok(())
    }

    fn post(&mut self) {
        let mut recipients = IdSet::new();
        let people = if self.rng.u32(0..24) == 0 { 200 } else { 8 };
        for _ in 0..if people > 8 { people } else { self.rng.u32(1..6) } {
            let address = format!("u{}@d{}.example", self.rng.u32(0..people), self.rng.usize(0..self.domains.len()));
            recipients.extend(self.store.book.intern(&address).map(|(id, _)| id.0));
        }
        let id = self.store.next_message_id(self.now);
        self.accepted.extend(recipients.iter().map(|r| (id.0, AddressId(r))));
        self.ledger.arrivals.push(self.now);
        self.ledger.recipients += recipients.len();
        let accept = Accept {
            size: 1_000,
            sender: format!("list@s{}.example", self.rng.u32(0..3)),
            class: if self.rng.bool() { Class::Bulk } else { Class::Ordinary },
            recipients,
            ..Accept::bare(id, self.now)
        };
        if let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) {
            self.sched.accepted(&self.store, no, self.now);
        }
        self.posts -= 1;
        if self.posts > 0 {
            let after = [0, self.rng.u64(0..1_000), self.rng.u64(0..20 * MINUTE)][self.rng.usize(0..3)];
            self.at(after, Ev::Post);
        }
    }

    fn resolve(&mut self, domain: DomainId) -> Resolution {
        let name = self.store.book.domain_name(domain);
        let number: usize = name.trim_start_matches('d').trim_end_matches(".example").parse().unwrap_or(0);
        let draw = self.rng.u32(0..100);
        if draw < self.look_up_faults.0 && self.now < self.good_at {
            return Resolution::Temporary { cause: Cause::Dns, dsn: Enhanced::new(4, 4, 3), text: "SERVFAIL".into() };
        }
        if draw + self.look_up_faults.1 >= 100 {
            self.no_domain = true;
            return Resolution::Permanent { dsn: Enhanced::new(5, 1, 10), text: "null MX".into() };
        }
        let plans = &self.domains[number];
        let (hosts, equal) = &plans[self.rng.usize(0..plans.len())];
        let targets = hosts.iter().enumerate().map(|(i, host)| Target {
            preference: if *equal { 10 } else { i as u16 },
            host: format!("h{host}.example").into(),
            addr: Endpoint::by_port((Ipv4Addr::LOCALHOST, *host as u16 + 1)),
            lmtp: self.lmtp,
            posture: None,
        });
        Resolution::Site(SitePlan {
            key: format!("{equal}{hosts:?}").into(),
            targets: targets.collect(),
            mixes_domains: false,
            limits: SiteLimits::default(),
            ttl_s: 60,
        })
    }

    fn obey(&mut self) -> Result<(), String> {
        loop {
            let effects: Vec<Effect> = self.sched.effects().collect();
            if effects.is_empty() {
                return Ok(());
            }
            self.at_once += effects.len() as u32;
            if self.at_once > AT_ONCE_MAX {
                return Err(format!("a loop without a clock at {} ms", self.now - START));
            }
            for effect in effects {
                self.obey_one(effect)?;
            }
        }
    }

    fn obey_one(&mut self, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::Resolve { domain } => {
                let after = self.rng.u64(0..50);
                self.at(after, Ev::Resolved(domain));
            }
            Effect::Connect { conn, site, target, .. } => {
                let host = usize::from(target.addr.port()) - 1;
                self.ledger.connect(host, self.now)?;
                let new = Conn { site, host, is_ready: false, must_close: false, done: 0, open: VecDeque::new() };
                self.conns.insert(conn, new);
                let after = self.hosts[host].delay_ms(&mut self.rng);
                self.at(after, Ev::Session(conn));
            }
            Effect::Work { conn } => return self.fill(conn),
            Effect::Close { conn } => {
                if let Some(entry) = self.conns.get_mut(&conn) {
                    entry.must_close = true;
                    self.at(1, Ev::Closed(conn));
                }
            }
            Effect::GiveWay { conn } => return self.give_way(conn),
            Effect::Bounce { no, failures } => return self.bounce(no, failures),
            // A look-up that gave way still gets its answer.
            Effect::ForgetLookUp { .. }
            | Effect::Delayed { .. }
            | Effect::FastDone { .. }
            | Effect::Suspend { .. }
            | Effect::Coalesce { .. } => {}
        }
        Ok(())
    }

    fn session(&mut self, conn: ConnId) -> Result<(), String> {
        let Some(host) = self.conns.get(&conn).map(|c| c.host) else { return Ok(()) };
        match self.hosts[host].welcome(self.now, &mut self.rng) {
            Welcome::None(why) => {
                self.conns.remove(&conn);
                self.sched.connect_failed(&self.store, conn, why, "no session", self.now);
                return Ok(());
            }
            Welcome::Session => {}
        }
        self.sched.connected(conn, self.now);
        if let Some(entry) = self.conns.get_mut(&conn) {
            entry.is_ready = true;
        }
        if self.rng.bool()
            && let Some(why) = self.hosts[host].slams(self.now, &mut self.rng)
        {
            return self.hang_up(conn, &why);
        }
        self.fill(conn)
    }

    /// Takes as many transactions as may be in flight.
    fn fill(&mut self, conn: ConnId) -> Result<(), String> {
        loop {
            let Some(entry) = self.conns.get(&conn).filter(|c| c.is_ready && !c.must_close) else { return Ok(()) };
            if entry.open.len() >= self.pipelines {
                return Ok(());
            }
            let Some(work) = self.sched.take_work(&self.store, conn, self.now) else { break };
            let message = self.store.message(work.no).ok_or("work of a message that is gone")?;
            for id in &work.ids {
                if !self.in_flight.insert((work.no, *id)) || !message.pending().contains(id.0) {
                    return Err(format!("{id:?} is handed out twice, or has ended"));
                }
                self.ledger.attempt((message.id().0, *id), self.now)?;
            }
            let Some(entry) = self.conns.get_mut(&conn) else { break };
            entry.open.push_back(work);
            let after = self.hosts[entry.host].delay_ms(&mut self.rng);
            self.at(after, Ev::Reply(conn));
        }
        // The host may close a connection that has nothing to do.
        let idle = self.conns.get(&conn).filter(|c| c.open.is_empty() && !c.must_close).map(|c| c.host);
        if let Some(host) = idle
            && let Some(why) = self.hosts[host].slams(self.now, &mut self.rng)
        {
            return self.hang_up(conn, &why);
        }
        Ok(())
    }

    fn reply(&mut self, conn: ConnId) -> Result<(), String> {
        let Some(entry) = self.conns.get_mut(&conn) else { return Ok(()) };
        let Some(work) = entry.open.pop_front() else { return Ok(()) };
        entry.done += 1;
        let (done, host) = (entry.done, entry.host);
        let message = self.store.message(work.no).map_or(0, |m| m.id().0);
        let (outcomes, why) = self.hosts[host].answer(&work, message, done, self.now, &mut self.rng);
        self.work_done(conn, host, &work, &outcomes)?;
        match why {
            Some(why) => self.hang_up(conn, &why),
            None => self.fill(conn),
        }
    }

    fn work_done(&mut self, conn: ConnId, host: usize, work: &Work, outcomes: &[RcptOutcome]) -> Result<(), String> {
        let Some(message) = self.store.message(work.no).map(|m| m.id().0) else { return Err("it is gone".into()) };
        for id in &work.ids {
            self.in_flight.remove(&(work.no, *id));
        }
        let mut delivered = IdSet::new();
        for outcome in outcomes {
            let key = (message, outcome.id);
            match (outcome.stage, outcome.code) {
                (Stage::Final, 200..300) => {
                    self.ledger.delivered(host, key, self.now);
                    delivered.insert(outcome.id.0);
                }
                (Stage::LostAfterDot, _) => _ = self.doubtful.insert(key),
                (Stage::Content, _) | (_, 500..) => _ = self.refused.insert(key),
                _ => {}
            }
        }
        let is_end = |o: &RcptOutcome| o.code == 421 || matches!(o.stage, Stage::Lost | Stage::LostAfterDot);
        if !delivered.is_empty()
            && let Some(site) = self.conns.get(&conn).map(|c| c.site)
        {
            if delivered.len() == work.ids.len() {
                self.ledger.whole.entry((message, site)).or_default().push(self.now);
            } else if outcomes.iter().any(is_end) {
                self.ledger.dealt((message, site), self.pipelines * self.connections_max, self.now)?;
            }
        }
        let finished = self.record_fate(work.no, Fate::Delivered, End::Delivered, &delivered)?;
        self.sched.work_done(&self.store, conn, work.tx, outcomes, self.now);
        if finished {
            self.sched.finished(work.no);
        }
        Ok(())
    }

    /// Closes the connection, with the transactions that were open on it.
    fn hang_up(&mut self, conn: ConnId, why: &CloseReason) -> Result<(), String> {
        let Some(entry) = self.conns.remove(&conn) else { return Ok(()) };
        let tells = self.rng.u32(0..4) > 0;
        for work in entry.open {
            let outcomes = Host::left_open(why, &work, &mut self.rng);
            if tells {
                self.work_done(conn, entry.host, &work, &outcomes)?;
            } else {
                for id in &work.ids {
                    self.in_flight.remove(&(work.no, *id));
                }
            }
        }
        self.sched.closed(&self.store, conn, why, self.now);
        Ok(())
    }

    fn give_way(&mut self, conn: ConnId) -> Result<(), String> {
        let Some(entry) = self.conns.get(&conn) else { return Ok(()) };
        if !entry.open.is_empty() && self.rng.bool() {
            self.sched.stays(conn, self.now);
            return Ok(());
        }
        if entry.is_ready {
            return self.hang_up(conn, &CloseReason::Lost { text: "gave way".into() });
        }
        self.conns.remove(&conn);
        self.sched.connect_failed(&self.store, conn, NoSession::Failed, "gave way", self.now);
        Ok(())
    }

    /// Records a fate. Returns whether the message has ended.
    fn record_fate(&mut self, no: MessageNo, fate: Fate, end: End, ids: &IdSet) -> Result<bool, String> {
        let Some(message) = self.store.message(no) else { return Ok(false) };
        let queue_id = message.id().0;
        for id in ids {
            if !self.forgets && message.pending().contains(id) {
                self.ledger.end((queue_id, AddressId(id)), end)?;
            }
        }
        let applied = self.store.record_fate(no, fate, ids, None, self.now, &mut Vec::new());
        Ok(matches!(applied, EventEffect::Finished { .. }))
    }

    fn bounce(&mut self, no: MessageNo, failures: Vec<FailedRcpt>) -> Result<(), String> {
        let Some(message) = self.store.message(no) else { return Err("a report of a message that is gone".into()) };
        let (queue_id, age) = (message.id().0, self.now - message.accepted());
        if self.rng.u32(0..10) == 0 {
            self.sched.bounce_refused(no, failures, self.now);
            return Ok(());
        }
        let mut finished = false;
        for (expired, fate, end) in [(false, Fate::Bounced, End::Bounced), (true, Fate::Expired, End::Expired)] {
            let of_kind: Vec<&FailedRcpt> = failures.iter().filter(|f| f.expired == expired).collect();
            for failure in &of_kind {
                let is_refused =
                    self.refused.contains(&(queue_id, failure.id)) || self.no_domain || failure.code == 521;
                if expired && age <= LIFETIME {
                    return Err(format!("expired at the age of {age} ms: {failure:?}"));
                }
                if !expired && !is_refused {
                    return Err(format!("bounced although nobody refused it: {failure:?}"));
                }
            }
            let ids: IdSet = of_kind.iter().map(|f| f.id.0).collect();
            finished |= !ids.is_empty() && self.record_fate(no, fate, end, &ids)?;
        }
        self.sched.bounced(no, &failures.iter().map(|f| f.id).collect::<Vec<_>>());
        if finished {
            self.sched.finished(no);
        }
        Ok(())
    }

    fn check_ends(self) -> Result<EventCounts, String> {
        let mut seen = EventCounts {
            connections: self.ledger.connections,
            transactions: self.ledger.transactions,
            ..EventCounts::default()
        };
        for key in &self.accepted {
            match self.ledger.ends.get(key) {
                Some(End::Delivered) => seen.delivered += 1,
                Some(End::Bounced) => seen.bounced += 1,
                Some(End::Expired) => seen.expired += 1,
                None => {
                    let no = self.store.messages().find(|(_, m)| m.id().0 == key.0).map(|(no, _)| no);
                    let status = no.map(|no| self.sched.recipient_status(&self.store, no, key.1, self.now));
                    return Err(format!("{key:?} has no end: {status:?}"));
                }
            }
        }
        let load = self.sched.load();
        if !self.store.is_empty() || load.messages + load.lists + load.clocks > 0 {
            return Err(format!("left behind: {load:?}"));
        }
        if !self.conns.is_empty() {
            return Err("connections stay open".to_owned());
        }
        Ok(seen)
    }
}
