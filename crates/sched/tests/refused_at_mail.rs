//! Hosts that refuse some messages of a sender's domain at MAIL, by the sender's address or the size, or all of them:
//! the others are delivered soon, and a host that refuses all sees few attempts.

#[path = "common/agenda.rs"]
mod agenda;
#[path = "common/steps.rs"]
mod steps;

use std::collections::{HashMap, HashSet, VecDeque};

use agenda::{Agenda, Next};
use stentor_mail::Class;
use stentor_queue::event::{Accept, Fate};
use stentor_queue::ids::{ConnId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::queue_only::Scope;
use stentor_queue::site::Resolution;
use stentor_queue::store::Store;
use stentor_sched::{
    CloseReason, Effect, FlowKey, NoSession, SchedConfig, Scheduler, ScopeOwner, SnapshotProgress, SourceConfig,
    SourceNo, Stage, Work,
};
use steps::{Answer, plan, target};

const START: Ms = 1_800_000_000_000;
const SECOND: Ms = 1_000;
const MINUTE: Ms = 60 * SECOND;
const HOUR: Ms = 60 * MINUTE;
/// Round-trip time to the hosts.
const RTT: Ms = 50;

/// What distinguishes the refused messages.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// All have the same sender, others another one.
    Mailbox,
    /// Each message has its own sender.
    Mailboxes,
    /// All messages have the same sender.
    Size,
}
const KINDS: [Kind; 3] = [Kind::Mailbox, Kind::Mailboxes, Kind::Size];

#[derive(Clone, Copy)]
enum Ev {
    Resolved(DomainId),
    Session(ConnId),
    Reply(ConnId),
    Closed(ConnId),
}

struct Conn {
    host: usize,
    source: SourceNo,
    errors: usize,
    must_close: bool,
    open: VecDeque<Work>,
}

/// Recipients of this sender's mail are refused for good at RCPT.
const GONE: &str = "gone";

/// Whether a host refuses a sender and size at a time.
type Rule = fn(usize, &str, u64, Ms) -> bool;

fn refuses_bad(_: usize, sender: &str, size: u64, _: Ms) -> bool {
    sender.starts_with("bad") || size > 1_000_000
}

struct World {
    store: Store,
    sched: Scheduler,
    seed: u64,
    now: Ms,
    /// Age of mail that is accepted: it was held until now.
    age: Ms,
    /// Client of mail that is accepted.
    origin: &'static str,
    agenda: Agenda<Ev>,
    rule: Rule,
    hosts: usize,
    dead: HashSet<usize>,
    /// Host that takes this long for each reply.
    slow: Option<(usize, Ms)>,
    /// Host that takes this long to greet.
    greets_late: Option<(usize, Ms)>,
    /// Connections from this source are refused.
    refused_source: Option<SourceNo>,
    pipeline: usize,
    /// A connection gets 421 after this many errors in a row.
    errors_max: usize,
    conns: HashMap<ConnId, Conn>,
    connects: Vec<Ms>,
    /// Each MAIL: time, host, message, whether it was refused.
    asked: Vec<(Ms, usize, MessageNo, bool)>,
    delivered: HashMap<MessageNo, usize>,
    expired: usize,
}

impl World {
    fn new(rule: Rule, hosts: usize, seed: u64) -> World {
        World {
            store: Store::new(),
            sched: Scheduler::new(SchedConfig::default(), seed),
            seed,
            now: START,
            age: 0,
            origin: "local",
            agenda: Agenda::new(),
            rule,
            hosts,
            dead: HashSet::new(),
            slow: None,
            greets_late: None,
            refused_source: None,
            pipeline: 1,
            errors_max: usize::MAX,
            conns: HashMap::new(),
            connects: Vec::new(),
            asked: Vec::new(),
            delivered: HashMap::new(),
            expired: 0,
        }
    }

    fn mail(&mut self, local: &str, size: u64) -> MessageNo {
        self.post(local, size, None)
    }

    /// A post to a list is a flow of its own.
    fn post(&mut self, local: &str, size: u64, list: Option<&str>) -> MessageNo {
        let id = self.store.next_message_id(self.now);
        let (to, _) = self.store.book.intern(&format!("u{}@site.example", id.0 % 97)).unwrap();
        let origin = self.origin.to_owned();
        let sender = if local.contains('@') { local.to_owned() } else { format!("{local}@same.example") };
        let recipients = IdSet::one(to.0);
        let (class, list) = (if list.is_some() { Class::Bulk } else { Class::Ordinary }, list.map(str::to_owned));
        let accept = Accept { size, sender, class, list, recipients, origin, ..Accept::bare(id, self.now - self.age) };
        steps::accept(&mut self.store, &mut self.sched, accept, self.now)
    }

    /// The n-th message of a kind. Refused ones are not always the larger ones.
    fn mail_of(&mut self, kind: Kind, n: usize, is_good: bool) -> MessageNo {
        let prefix = if is_good { "good" } else { "bad" };
        let size = 1_000 + 7 * (n as u64 * 13 % 29);
        match kind {
            Kind::Mailbox => self.mail(prefix, size),
            Kind::Mailboxes => self.mail(&format!("{prefix}{n}"), size),
            Kind::Size => self.mail("ann", if is_good { size } else { size + 2_000_000 }),
        }
    }

    /// Messages come in an order. Returns the good ones.
    fn mails(&mut self, kind: Kind, order: &[bool]) -> Vec<MessageNo> {
        let all: Vec<_> = order.iter().enumerate().map(|(n, good)| (self.mail_of(kind, n, *good), *good)).collect();
        all.into_iter().filter(|(_, good)| *good).map(|(no, _)| no).collect()
    }

    fn restart(&mut self, away: Ms) {
        let (mut at, mut text) = (SnapshotProgress::default(), String::new());
        while self.sched.write_learned(&self.store, &mut at, &mut text, self.now) {}
        let written = self.now;
        self.now += away;
        self.sched = Scheduler::new(SchedConfig::default(), self.seed);
        (self.agenda, self.conns) = (Agenda::new(), HashMap::new());
        assert_eq!(self.sched.recall(&self.store, &text, written, self.now), 0, "{text}");
        let live: Vec<MessageNo> = self.store.messages().map(|(no, _)| no).collect();
        for no in live {
            self.sched.accepted(&self.store, no, self.now);
        }
    }

    fn run(&mut self, ms: Ms) {
        let until = self.now + ms;
        self.obey();
        while let Some(next) = self.agenda.next_at(&self.sched, self.now).filter(|at| *at <= until) {
            let what = self.agenda.take(next, &self.sched, self.now);
            self.now = self.now.max(next);
            match what {
                Some(Next::Event(ev)) => self.happen(ev),
                Some(Next::Tick) => self.sched.tick(&self.store, self.now),
                None => {}
            }
            self.obey();
        }
        self.now = until;
    }

    /// How long it takes until these are delivered.
    fn run_until_delivered(&mut self, all: &[MessageNo], ms_max: Ms) -> Ms {
        let begun = self.now;
        while self.now < begun + ms_max && !all.iter().all(|no| self.delivered.contains_key(no)) {
            self.run(100);
        }
        self.now - begun
    }

    fn obey(&mut self) {
        loop {
            let effects: Vec<Effect> = self.sched.effects().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Resolve { domain } => self.at(1, Ev::Resolved(domain)),
                    Effect::Connect { conn, target, source, .. } => {
                        let host = usize::from(target.addr.port()) - 1;
                        self.connects.push(self.now);
                        let open = VecDeque::new();
                        self.conns.insert(conn, Conn { host, source, errors: 0, must_close: false, open });
                        let after = self.greets_late.filter(|(late, _)| *late == host).map_or(RTT, |(_, ms)| ms);
                        self.at(after, Ev::Session(conn));
                    }
                    Effect::Work { conn } => self.fill(conn),
                    Effect::Close { conn } => {
                        if let Some(entry) = self.conns.get_mut(&conn) {
                            entry.must_close = true;
                        }
                        self.at(1, Ev::Closed(conn));
                    }
                    Effect::Bounce { no, failures } => {
                        let ids: IdSet = failures.iter().map(|failure| failure.id.0).collect();
                        self.store.record_fate(no, Fate::Expired, &ids, None, self.now, &mut Vec::new());
                        self.expired += failures.iter().filter(|failure| failure.expired).count();
                        self.sched.bounced(no, &failures.iter().map(|failure| failure.id).collect::<Vec<_>>());
                        self.sched.finished(no);
                    }
                    _ => {}
                }
            }
        }
    }

    fn at(&mut self, after: Ms, ev: Ev) {
        self.agenda.plan(self.now + after, ev);
    }

    fn happen(&mut self, ev: Ev) {
        match ev {
            Ev::Resolved(domain) => {
                let hosts = 0..self.hosts as u16;
                let plan = plan("mx", hosts.map(|host| target(host, format!("mx{host}.example"), host + 1)));
                self.sched.resolved(&self.store, domain, Resolution::Site(plan), self.now);
            }
            Ev::Session(conn) => {
                let Conn { host, source, .. } = self.conns[&conn];
                if self.dead.contains(&host) || self.refused_source == Some(source) {
                    self.conns.remove(&conn);
                    return self.sched.connect_failed(&self.store, conn, NoSession::Failed, "dead", self.now);
                }
                self.sched.connected(conn, self.now);
                self.fill(conn);
            }
            Ev::Reply(conn) => self.reply(conn),
            Ev::Closed(conn) => {
                if self.conns.remove(&conn).is_some() {
                    self.sched.closed(&self.store, conn, &CloseReason::Normal, self.now);
                }
            }
        }
    }

    fn fill(&mut self, conn: ConnId) {
        while self.conns.get(&conn).is_some_and(|c| !c.must_close && c.open.len() < self.pipeline) {
            let Some(work) = self.sched.take_work(&self.store, conn, self.now) else { return };
            let entry = self.conns.get_mut(&conn).unwrap();
            entry.open.push_back(work);
            let after = self.slow.filter(|(host, _)| *host == entry.host).map_or(RTT, |(_, ms)| ms);
            self.at(after, Ev::Reply(conn));
        }
    }

    fn reply(&mut self, conn: ConnId) {
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        let Some(work) = entry.open.pop_front() else { return };
        let message = self.store.message(work.no).unwrap();
        let is_refused = (self.rule)(entry.host, message.sender(), message.size(), self.now);
        self.asked.push((self.now, entry.host, work.no, is_refused));
        entry.errors = if is_refused { entry.errors + 1 } else { 0 };
        let is_enough = entry.errors >= self.errors_max;
        let is_gone = message.sender().starts_with(GONE);
        let (stage, code) = match (is_enough, is_refused) {
            (true, _) => (Stage::Mail, 421),
            (_, true) => (Stage::Mail, 451),
            _ if is_gone => (Stage::Rcpt, 550),
            _ => (Stage::Final, 250),
        };
        let dsn = stentor_mail::reply::Enhanced::parse("4.7.1").filter(|_| code == 451);
        if code == 250 {
            self.delivered.insert(work.no, entry.host);
        }
        let answer = Answer { stage, code, dsn, text: "said" };
        steps::end(&mut self.store, &mut self.sched, conn, &work, &answer, self.now);
        if is_enough {
            let why = CloseReason::Refused { text: "too many errors".into() };
            self.conns.remove(&conn);
            return self.sched.closed(&self.store, conn, &why, self.now);
        }
        self.fill(conn);
    }

    /// Number of MAIL commands at a host between two times after the start.
    fn asked_within(&self, host: usize, from: Ms, to: Ms) -> usize {
        let times = START + from..START + to;
        self.asked.iter().filter(|(at, of, ..)| *of == host && times.contains(at)).count()
    }
}

/// Orders of arrival: refused ones first, last, among the others, and at random.
fn orders(bad: usize, good: usize, seed: u64) -> [Vec<bool>; 4] {
    let first: Vec<bool> = (0..bad + good).map(|n| n >= bad).collect();
    let last: Vec<bool> = first.iter().rev().copied().collect();
    let among = (0..bad + good).map(|n| n % (bad / good + 1) == bad / good).collect();
    let mut random = first.clone();
    fastrand::Rng::with_seed(seed).shuffle(&mut random);
    [first, last, among, random]
}

#[test]
fn good_messages_go_within_seconds_whatever_the_order() {
    for kind in KINDS {
        for seed in 0..20 {
            for (order, all) in orders(20, 5, seed).iter().enumerate() {
                for (pipeline, errors_max) in [(1, usize::MAX), (8, usize::MAX), (1, 20)] {
                    let mut world = World::new(refuses_bad, 1, seed);
                    (world.pipeline, world.errors_max) = (pipeline, errors_max);
                    let good = world.mails(kind, all);
                    let took = world.run_until_delivered(&good, HOUR);
                    let name = format!("{kind:?}, seed {seed}, order {order}, {pipeline} at a time");
                    assert!(took <= 15 * SECOND, "{name}: {took} ms");
                    world.run(HOUR);
                    let asked = world.asked.len();
                    assert!(asked <= 5 + 20 * 8, "{name}: {asked} attempts in an hour");
                }
            }
        }
    }
}

/// A size, or an address, is found among any number. Among many addresses it is found in the first minute, or it waits
/// for a probe.
#[test]
fn good_messages_are_found_among_many() {
    for kind in KINDS {
        let mut slow = 0;
        for seed in 0..10 {
            for order in orders(200, 5, seed) {
                let mut world = World::new(refuses_bad, 1, seed);
                let good = world.mails(kind, &order);
                let took = world.run_until_delivered(&good, 10 * MINUTE);
                slow += usize::from(took > 3 * MINUTE);
                assert!(took < 10 * SECOND || matches!(kind, Kind::Mailboxes), "{kind:?}: {took} ms");
            }
        }
        assert!(slow <= 12, "{kind:?}: {slow} of 40");
    }
}

fn refuses_all(_: usize, _: &str, _: u64, _: Ms) -> bool {
    true
}

/// A row of trials for the different addresses, and then one probe per clock, as if there were one message.
#[test]
fn a_host_that_refuses_the_whole_domain_sees_few_attempts() {
    for hosts in [1, 2] {
        for pipeline in [1, 8] {
            for (kind, most) in [(Kind::Mailbox, 8), (Kind::Size, 8), (Kind::Mailboxes, 96)] {
                let mut world = World::new(refuses_all, hosts, 7);
                world.pipeline = pipeline;
                world.mails(kind, &[false; 2_000]);
                world.run(24 * HOUR);
                for host in 0..hosts {
                    let name = format!("{kind:?}, host {host} of {hosts}, {pipeline} at a time");
                    let at_once = world.asked_within(host, 0, 2 * SECOND);
                    assert!(at_once <= most.min(16) + 8, "{name}: {at_once} at once");
                    let first = world.asked_within(host, 0, MINUTE);
                    assert!(first <= most + 8, "{name}: {first} in the first minute");
                    // After 2, 4, 8, 16, 32 minutes, then each hour, or a quarter less.
                    let hour = world.asked_within(host, MINUTE, HOUR);
                    assert!(hour <= 5, "{name}: {hour} in the rest of the hour");
                    let day = world.asked_within(host, MINUTE, 24 * HOUR);
                    assert!((20..=37).contains(&day), "{name}: {day} in the rest of the day");
                }
            }
        }
    }
}

/// New messages of such a domain cause no attempts if they are like the refused ones.
#[test]
fn more_mail_of_a_refused_domain_causes_no_more_attempts() {
    let mut world = World::new(refuses_all, 1, 7);
    for n in 0..3_600 {
        world.mail(if n % 2 == 0 { "one" } else { "two" }, 1_000 + n % 10);
        world.run(SECOND);
    }
    let (first, later) = (world.asked_within(0, 0, MINUTE), world.asked_within(0, MINUTE, HOUR));
    assert!(first <= 12 && later <= 12, "{first} in the first minute, {later} in the rest of the hour");
}

#[test]
fn a_restart_forgets_neither_trials_nor_what_was_refused() {
    for kind in KINDS {
        for seed in 0..10 {
            for stop in [60, 120, 300, 600, 2_000] {
                let mut world = World::new(refuses_bad, 1, seed);
                let good = world.mails(kind, &orders(20, 5, seed)[0]);
                world.run(stop);
                world.restart(5 * SECOND);
                let took = world.run_until_delivered(&good, HOUR);
                assert!(took <= 15 * SECOND, "{kind:?}, seed {seed}, stop after {stop} ms: {took} ms");
            }
        }
    }
    let mut world = World::new(refuses_all, 1, 7);
    world.mails(Kind::Mailboxes, &[false; 200]);
    for _ in 0..20 {
        world.run(5 * SECOND);
        world.restart(5 * SECOND);
    }
    let asked = world.asked.len();
    assert!(asked <= 1 + 96 + 2, "{asked} attempts over 20 restarts");
    let mut refused: Vec<_> = world.asked.iter().map(|(_, _, no, _)| *no).collect();
    refused.sort_unstable();
    refused.dedup();
    assert!(refused.len() + 2 >= asked, "{} of {asked} are different messages", refused.len());
}

/// Waiting mail that may not go costs no trial.
#[test]
fn held_and_suspended_mail_among_the_waiting_keeps_no_other_back() {
    for seed in 0..20 {
        let mut world = World::new(refuses_bad, 1, seed);
        let key = FlowKey::List("news".into());
        let mut stopped = Vec::new();
        for n in 0..200 {
            stopped.push(world.post(&format!("good-bulk{n}"), 500, Some("news")));
            let held = world.mail(&format!("good-held{n}"), 500);
            world.sched.hold_message(held);
            stopped.push(held);
        }
        world.sched.suspend_flow(&key);
        let good = world.mails(Kind::Mailboxes, &orders(20, 5, seed)[0]);
        // They were among the waiting when they were stopped.
        let late = world.post("good-late", 400, Some("news"));
        let took = world.run_until_delivered(&good, HOUR);
        assert!(took <= 15 * SECOND, "seed {seed}: {took} ms");
        assert_eq!(world.delivered.len(), 5, "seed {seed}: the others are stopped");
        world.sched.resume_flow(&key);
        let took = world.run_until_delivered(&[late], HOUR);
        assert!(took <= 15 * SECOND, "seed {seed}: {took} ms after the resumption");
    }
}

/// Mail that waits at the refusal when it is stopped.
#[test]
fn mail_that_is_stopped_while_it_waits_keeps_no_other_back() {
    let mut world = World::new(refuses_all, 1, 1);
    let stopped: Vec<_> = (0..5).map(|_| world.post("good", 1_000, Some("news"))).collect();
    world.run(SECOND);
    let key = FlowKey::List("news".into());
    world.sched.suspend_flow(&key);
    world.rule = refuses_bad;
    let good: Vec<_> = (0..5).map(|_| world.mail("good", 2_000)).collect();
    let took = world.run_until_delivered(&good, HOUR);
    assert!(took <= 3 * MINUTE, "{took} ms: as one message");
    assert_eq!(world.delivered.len(), 5);
    world.sched.resume_flow(&key);
    world.run_until_delivered(&stopped, HOUR);
    assert_eq!(world.delivered.len(), 10);
}

fn first_refuses_bad(host: usize, sender: &str, size: u64, now: Ms) -> bool {
    host == 0 && refuses_bad(host, sender, size, now)
}

#[test]
fn a_second_host_is_asked_and_both_are_searched() {
    for kind in KINDS {
        for seed in 0..10 {
            for order in orders(20, 5, seed) {
                // The second host takes everything: the first is not asked again.
                let mut world = World::new(first_refuses_bad, 2, seed);
                world.mails(kind, &order);
                world.run(10 * SECOND);
                assert_eq!(world.delivered.len(), 25, "{kind:?}, seed {seed}");
                let at_first = world.asked.iter().filter(|(_, host, _, refused)| *host == 0 && *refused).count();
                assert!(at_first <= 6, "{kind:?}, seed {seed}: {at_first} refused");
                // Both refuse the same; the second one may be dead.
                for dead in [false, true] {
                    let mut world = World::new(refuses_bad, 2, seed);
                    world.dead.extend([1].into_iter().filter(|_| dead));
                    let good = world.mails(kind, &order);
                    let took = world.run_until_delivered(&good, HOUR);
                    assert!(took <= 15 * SECOND, "{kind:?}, seed {seed}, dead {dead}: {took} ms");
                }
            }
        }
    }
}

/// A message that the first host refuses, and the second would take, is tried there when that is back.
#[test]
fn what_the_first_host_refuses_goes_when_the_second_is_back() {
    let mut world = World::new(first_refuses_bad, 2, 1);
    world.dead.insert(1);
    let large = world.mail("ann", 5_000_000);
    for _ in 0..60 {
        world.mail("ann", 1_000);
        world.run(MINUTE);
    }
    assert_eq!(world.delivered.len(), 60);
    let asked = world.asked.iter().filter(|(_, _, no, _)| *no == large).count();
    assert!(asked <= 16, "{asked} attempts of the large message in an hour");
    world.dead.clear();
    world.run(2 * HOUR);
    assert_eq!(world.delivered.get(&large), Some(&1));
}

/// The refused messages stay; new mail of the domain does not wait for them.
#[test]
fn later_mail_does_not_wait_for_what_is_refused() {
    for kind in KINDS {
        let mut world = World::new(refuses_bad, 1, 3);
        world.mails(kind, &orders(20, 5, 3)[0]);
        world.run(HOUR);
        for n in 100..110 {
            let good = world.mail_of(kind, n, true);
            let took = world.run_until_delivered(&[good], HOUR);
            assert!(took <= 15 * SECOND, "{kind:?}: {took} ms");
            world.mail_of(kind, n, false);
            world.run(20 * MINUTE);
        }
    }
}

#[test]
fn one_large_message_among_many_has_its_own_clock() {
    let mut world = World::new(refuses_bad, 1, 1);
    let large = world.mail("ann", 5_000_000);
    let good: Vec<_> = (0..500).map(|_| world.mail("ann", 1_000)).collect();
    let took = world.run_until_delivered(&good, HOUR);
    assert!(took <= 30 * SECOND, "{took} ms");
    for _ in 0..(6 * 60) {
        world.mail("ann", 1_000);
        world.run(MINUTE);
    }
    assert_eq!(world.delivered.len(), 860);
    let asked = world.asked.iter().filter(|(_, _, no, _)| *no == large).count();
    assert!((8..=18).contains(&asked), "{asked} attempts in six hours");
}

/// Refuses each address for the first five minutes.
fn greylists(_: usize, _: &str, _: u64, now: Ms) -> bool {
    now < START + 5 * MINUTE
}

#[test]
fn a_host_that_greylists_senders_is_not_asked_for_the_same_again_and_again() {
    for kind in KINDS {
        let mut world = World::new(greylists, 1, 1);
        let all = world.mails(kind, &[false; 50]);
        assert!(all.is_empty());
        world.run(5 * MINUTE);
        let mut times: HashMap<(String, u64), usize> = HashMap::new();
        for (_, _, no, _) in &world.asked {
            let message = world.store.message(*no).expect("it waits");
            *times.entry((message.sender().to_owned(), message.size())).or_default() += 1;
        }
        let most = times.values().max().copied().unwrap_or(0);
        assert!(most <= 3, "{kind:?}: {most} times");
        world.run(6 * MINUTE);
        assert_eq!(world.delivered.len(), 50, "{kind:?}");
    }
}

/// Mail like the refused expires with it, not one message per clock. Other mail has its own attempt before.
#[test]
fn overdue_mail_of_a_refused_sender_expires_together() {
    for kind in [Kind::Mailbox, Kind::Size] {
        let mut world = World::new(refuses_all, 1, 1);
        world.mails(kind, &[false; 500]);
        world.run(5 * 24 * HOUR - MINUTE);
        assert_eq!(world.expired, 0, "{kind:?}");
        world.run(4 * HOUR);
        assert_eq!(world.expired, 500, "{kind:?}");
        world.run(4 * HOUR);
        assert_eq!(world.sched.load().clocks, 0, "{kind:?}: all is forgotten");
    }
}

/// Refuses the good address for an hour, the bad ones for ever.
fn refuses_good_for_an_hour(_: usize, sender: &str, _: u64, now: Ms) -> bool {
    sender.starts_with("bad") || now < START + HOUR
}

/// That a host refuses one address in the end is no attempt for mail of another, which it refused days ago.
#[test]
fn overdue_mail_does_not_expire_for_an_address_that_is_taken_now() {
    for seed in 0..20 {
        let mut world = World::new(refuses_good_for_an_hour, 1, seed);
        for n in 0..120 {
            world.mail_of(Kind::Mailboxes, n, false);
        }
        let mut good: Vec<MessageNo> = (0..3).map(|_| world.mail("good", 1_000)).collect();
        world.run(10 * MINUTE);
        good.extend((0..30).map(|_| world.mail("good", 1_000)));
        for n in 0..14 {
            world.run(12 * HOUR);
            for more in 0..20 {
                world.mail_of(Kind::Mailboxes, 200 + 20 * n + more, false);
            }
        }
        let lost = good.iter().filter(|no| !world.delivered.contains_key(no) && world.store.message(**no).is_none());
        assert_eq!(lost.count(), 0, "seed {seed}");
    }
}

fn refuses_at_the_first(host: usize, _: &str, _: u64, _: Ms) -> bool {
    host == 0
}

#[test]
fn overdue_mail_that_one_host_refuses_goes_to_the_next() {
    for seed in 0..20 {
        let mut world = World::new(refuses_at_the_first, 2, seed);
        // Time is watched from the first message on; by its clock nothing expires for ten minutes.
        world.mail("bob", 1_000);
        world.run(3 * HOUR);
        world.age = 6 * 24 * HOUR;
        let all: Vec<MessageNo> = (0..3).map(|_| world.mail("ann", 1_000)).collect();
        world.run_until_delivered(&all, 2 * HOUR);
        assert_eq!((world.delivered.len(), world.expired), (4, 0), "seed {seed}");
    }
}

fn refuses_bad_for_minutes(_: usize, sender: &str, _: u64, now: Ms) -> bool {
    sender.starts_with("bad") && now < START + 5 * MINUTE
}

/// MAIL of another address that is accepted ends the clock early and does not lengthen the next one.
#[test]
fn accepted_mail_of_others_does_not_lengthen_the_clock() {
    for seed in 0..10 {
        let mut world = World::new(refuses_bad_for_minutes, 1, seed);
        let bad = [world.mail("bad", 1_000)];
        for n in 0..27 {
            world.mail(&format!("{GONE}{n}"), 1_000);
            world.run(10 * SECOND);
        }
        // The clocks are 2, 4 and 8 minutes.
        let took = 270 * SECOND + world.run_until_delivered(&bad, 24 * HOUR);
        assert!(took <= 15 * MINUTE, "seed {seed}: {took} ms");
    }
}

/// Queue-only mail has had no attempt, whatever other mail of its domain has met.
#[test]
fn overdue_queue_only_mail_waits_for_its_own_attempt() {
    for seed in 0..10 {
        let mut world = World::new(refuses_all, 1, seed);
        world.mail("bob", 1_000);
        world.run(3 * HOUR);
        world.age = 6 * 24 * HOUR;
        world.mail("ann", 1_000);
        world.run(SECOND);
        world.origin = "192.0.2.7";
        let kept: Vec<MessageNo> = (0..5).map(|_| world.mail("ann", 1_000)).collect();
        world.origin = "local";
        let others: Vec<MessageNo> = (0..5).map(|_| world.mail("ann", 1_000)).collect();
        let scope = Scope::of_name("queue_only:client:192.0.2.7").expect("a scope");
        world.sched.set_queue_only(&scope, Some(""), ScopeOwner::Operator);
        world.run(2 * HOUR);
        let is_live = |no: &MessageNo| world.store.message(*no).is_some();
        assert!(kept.iter().all(is_live), "seed {seed}");
        assert!(!others.iter().any(is_live), "seed {seed}: all other mail has expired");
    }
}

/// The first host refuses all but one address, the second some others.
fn takes_one_address(host: usize, sender: &str, _: u64, _: Ms) -> bool {
    if host == 0 { !sender.starts_with("good") } else { sender.ends_with("late.example") }
}

/// More domains than one look covers wait for the slow second host. Mail that the second host refuses must still be
/// tried at the first.
#[test]
fn a_trial_is_not_delayed_by_many_deferrals_for_another_host() {
    for seed in 0..10 {
        let mut world = World::new(takes_one_address, 2, seed);
        world.slow = Some((1, 30 * SECOND));
        world.mail("bad0@late.example", 1_000);
        world.run(40 * SECOND);
        for n in 0..150 {
            world.mail(&format!("ann@home{n}.example"), 1_000);
            world.mail(&format!("bob@home{n}.example"), 1_000);
        }
        world.run(15 * SECOND);
        // Its trial moves the domain behind all others.
        world.mail("bad1@late.example", 1_000);
        world.run(SECOND);
        let good = [world.mail("good@late.example", 1_000)];
        let took = world.run_until_delivered(&good, 12 * HOUR);
        assert!(took <= 10 * SECOND, "seed {seed}: {took} ms");
    }
}

fn takes_all(_: usize, _: &str, _: u64, _: Ms) -> bool {
    false
}

/// Delivers a first message, then ten that were held until they were overdue. Returns how many were delivered in all.
fn overdue_mail_delivered(mut world: World, seed: u64) -> usize {
    world.mail("bob", 1_000);
    world.run(3 * HOUR);
    world.age = 6 * 24 * HOUR;
    for n in 0..10 {
        world.mail(&format!("ann{n}"), 1_000);
    }
    world.run(2 * HOUR);
    assert_eq!(world.expired, 0, "seed {seed}");
    world.delivered.len()
}

#[test]
fn overdue_mail_does_not_expire_while_another_host_is_connected_to() {
    for seed in 0..20 {
        let mut world = World::new(takes_all, 2, seed);
        world.dead.insert(0);
        world.greets_late = Some((1, 6 * SECOND));
        assert_eq!(overdue_mail_delivered(world, seed), 11, "seed {seed}");
    }
}

#[test]
fn overdue_mail_does_not_expire_while_another_source_may_send_it() {
    for seed in 0..20 {
        for refused in 0..2 {
            let mut world = World::new(takes_all, 1, seed);
            let source = |name: &str| SourceConfig { name: name.to_owned(), ..SourceConfig::default() };
            let cfg = SchedConfig { sources: vec![source("one"), source("two")], ..SchedConfig::default() };
            world.sched = Scheduler::new(cfg, seed);
            world.refused_source = Some(refused);
            assert_eq!(overdue_mail_delivered(world, seed), 11, "seed {seed}, source {refused}");
        }
    }
}

/// Overdue mail that has no other way does expire, together.
#[test]
fn overdue_mail_expires_when_all_hosts_have_failed() {
    for hosts in 1..3 {
        let mut world = World::new(takes_all, hosts, 5);
        world.mail("bob", 1_000);
        world.run(3 * HOUR);
        world.age = 6 * 24 * HOUR;
        world.dead = HashSet::from([0, 1]);
        for n in 0..10 {
            world.mail(&format!("ann{n}"), 1_000);
        }
        world.run(2 * HOUR);
        assert_eq!((world.delivered.len(), world.expired), (1, 10), "{hosts} hosts");
    }
}
