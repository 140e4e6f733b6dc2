//! Measures the scheduler: microseconds per delivery and the longest single calls, in a world that answers at once.
//!
//! Each run is repeated and deterministic, so the cost of the n-th call is its shortest time over the rounds, free of
//! other load on the machine. One clock reading per call is included.
//!
//! `cargo run --release -p stentor-sched --example sched_cost [relay] [list]`
//!
//! (a) relay of one-recipient messages to a route `*` (one site of 2,000 domains); (b) a list of 1,000,000 at 50,000
//! domains, each a site; (c) the same list with every recipient greylisted once. The store's own work (accepting,
//! recording fates) is not counted.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use stentor_mail::Class;
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{ConnId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::{CloseReason, Effect, RcptOutcome, SchedConfig, Scheduler, Stage};

const START: Ms = 1_800_000_000_000;

struct Bench {
    store: Store,
    sched: Scheduler,
    now: Ms,
    ready: VecDeque<ConnId>,
    route: bool,
    /// Recipients that were refused once; set if the hosts greylist.
    greylisted: Option<IdSet>,
    deliveries: u64,
    /// Nanoseconds and name of each call, in order.
    calls: Vec<(u32, &'static str)>,
    ok: Arc<str>,
    outcomes: Vec<RcptOutcome>,
    record: Vec<u8>,
}

impl Bench {
    fn new(route: bool) -> Bench {
        Bench {
            store: Store::new(),
            sched: Scheduler::new(SchedConfig::default(), 1),
            now: START,
            ready: VecDeque::new(),
            route,
            greylisted: None,
            deliveries: 0,
            calls: Vec::with_capacity(3_000_000),
            ok: "ok".into(),
            outcomes: Vec::new(),
            record: Vec::new(),
        }
    }

    fn timed<T>(&mut self, name: &'static str, call: impl FnOnce(&mut Scheduler, &Store, Ms) -> T) -> T {
        let begun = Instant::now();
        let value = call(&mut self.sched, &self.store, self.now);
        self.calls.push((begun.elapsed().as_nanos() as u32, name));
        value
    }

    fn accept(&mut self, recipients: IdSet, class: Class) {
        let id = self.store.next_message_id(self.now);
        let accept =
            Accept { size: 4_096, sender: "a@b.example".into(), class, recipients, ..Accept::bare(id, self.now) };
        let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) else { return };
        self.timed("accepted", |sched, store, now| sched.accepted(store, no, now));
    }

    fn plan(&self, domain: u32) -> Resolution {
        let n = if self.route { 0 } else { domain };
        let addr = Endpoint::by_port((Ipv4Addr::from(0x7f00_0000 + n), 25));
        let target = Target { preference: 0, host: "host".into(), addr, lmtp: false, posture: None };
        let key = format!("site {n}").into();
        Resolution::Site(SitePlan {
            key,
            targets: vec![target],
            mixes_domains: self.route,
            limits: SiteLimits::default(),
            ttl_s: 86_400,
        })
    }

    /// Performs all effects and lets each ready connection do one transaction.
    fn turn(&mut self) {
        if self.sched.next_tick().is_some_and(|at| at <= self.now) {
            self.timed("tick", Scheduler::tick);
        }
        let effects: Vec<Effect> = self.timed("effects", |sched, _, _| sched.effects().collect());
        for effect in effects {
            match effect {
                Effect::Resolve { domain } => {
                    let plan = self.plan(domain.0);
                    self.timed("resolved", |sched, store, now| sched.resolved(store, domain, plan, now));
                }
                Effect::Connect { conn, .. } => {
                    self.timed("connected", |sched, _, now| sched.connected(conn, now));
                    self.ready.push_back(conn);
                }
                Effect::Work { conn } => self.ready.push_back(conn),
                Effect::Close { conn } => {
                    self.timed("closed", |sched, store, now| sched.closed(store, conn, &CloseReason::Normal, now));
                }
                Effect::GiveWay { conn } => println!("unexpected silence of {conn:?}"),
                Effect::Delayed { .. } | Effect::FastDone { .. } | Effect::ForgetLookUp { .. } => {}
                Effect::Suspend { .. } | Effect::Coalesce { .. } => println!("unexpected: no list has rules"),
                Effect::Bounce { no, .. } => println!("unexpected bounce of {no:?}"),
            }
        }
        for _ in 0..self.ready.len() {
            let Some(conn) = self.ready.pop_front() else { break };
            self.transact(conn);
        }
    }

    fn transact(&mut self, conn: ConnId) {
        let work = self.timed("take_work", |sched, store, now| sched.take_work(store, conn, now));
        let Some(work) = work else { return };
        self.ready.push_back(conn);
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        let mut delivered = IdSet::new();
        for id in &work.ids {
            let text = self.ok.clone();
            if self.greylisted.as_mut().is_some_and(|seen| seen.insert(id.0)) {
                outcomes.push(RcptOutcome { id: *id, stage: Stage::Rcpt, code: 451, dsn: None, text });
                continue;
            }
            delivered.insert(id.0);
            outcomes.push(RcptOutcome { id: *id, stage: Stage::Final, code: 250, dsn: None, text });
        }
        self.deliveries += delivered.len() as u64;
        self.record.clear();
        let applied = self.store.record_fate(work.no, Fate::Delivered, &delivered, None, self.now, &mut self.record);
        self.timed("work_done", |sched, store, now| sched.work_done(store, conn, work.tx, &outcomes, now));
        self.outcomes = outcomes;
        if matches!(applied, EventEffect::Finished { .. }) {
            let no: MessageNo = work.no;
            self.timed("finished", |sched, _, _| sched.finished(no));
        }
    }
}

const ROUNDS: usize = 5;

fn measure(name: &str, run: impl Fn() -> Bench) {
    let mut best = run();
    for _ in 1..ROUNDS {
        let other = run();
        assert_eq!(best.calls.len(), other.calls.len(), "rounds differ");
        for (best, other) in best.calls.iter_mut().zip(&other.calls) {
            best.0 = best.0.min(other.0);
        }
    }
    let total: f64 = best.calls.iter().map(|c| f64::from(c.0)).sum();
    let each = total / 1e3 / best.deliveries.max(1) as f64;
    println!("{name}: {} deliveries, {each:.3} us each; {} calls", best.deliveries, best.calls.len());
    println!("  {:?}", best.sched.load());
    let mut names: Vec<&str> = best.calls.iter().map(|c| c.1).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mut times: Vec<u32> = best.calls.iter().filter(|c| c.1 == name).map(|c| c.0).collect();
        times.sort_unstable();
        let us = |ns: u32| f64::from(ns) / 1e3;
        let sum: f64 = times.iter().map(|t| us(*t)).sum();
        let last = times.len() - 1;
        println!(
            "  {name:>10} {:>8} calls, mean {:.3} us, 99.99 % under {:.1}, longest {:.1}",
            times.len(),
            sum / times.len() as f64,
            us(times[last - times.len() / 10_000]),
            us(times[last])
        );
    }
}

fn clock_us() -> f64 {
    const READINGS: u32 = 100_000;
    let begun = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(READINGS)
}

/// Relays messages; new ones keep coming while fewer than `backlog` are in the queue.
fn relay(messages: u32, backlog: u32) -> Bench {
    const DOMAINS: u32 = 2_000;
    let mut bench = Bench::new(true);
    let ids: Vec<u32> = (0..messages.min(50_000))
        .filter_map(|i| bench.store.book.intern(&format!("u{i}@d{}.example", i % DOMAINS)))
        .map(|(id, _)| id.0)
        .collect();
    let mut posted = 0;
    while !bench.store.is_empty() || posted < messages {
        while posted < messages && (bench.store.len() as u32) < backlog {
            bench.accept(IdSet::one(ids[posted as usize % ids.len()]), Class::Ordinary);
            posted += 1;
        }
        bench.now += 1;
        bench.turn();
    }
    bench
}

fn list(greylists: bool) -> Bench {
    const RECIPIENTS: u32 = 1_000_000;
    const DOMAINS: u32 = 50_000;
    let mut bench = Bench::new(false);
    let mut recipients = IdSet::new();
    let mut rng = fastrand::Rng::with_seed(7);
    for i in 0..RECIPIENTS {
        let domain = rng.u32(0..DOMAINS);
        if let Some((id, _)) = bench.store.book.intern(&format!("subscriber{i}@d{domain}.example")) {
            recipients.insert(id.0);
        }
    }
    bench.greylisted = greylists.then(IdSet::new);
    bench.accept(recipients, Class::Bulk);
    while !bench.store.is_empty() {
        bench.now += 1;
        if bench.ready.is_empty() {
            bench.now = bench.now.max(bench.sched.next_tick().unwrap_or(0));
        }
        bench.turn();
    }
    bench
}

fn main() {
    println!("a reading of the clock: {:.3} us", clock_us());
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let runs = |name: &str| chosen.is_empty() || chosen.iter().any(|c| c == name);
    if runs("relay") {
        measure("relay, 10 in the queue", || relay(300_000, 10));
        measure("relay, 10,000 in the queue", || relay(300_000, 10_000));
    }
    if runs("list") {
        measure("list of 1,000,000 at 50,000 domains", || list(false));
        measure("the same, all greylisted once", || list(true));
    }
}
