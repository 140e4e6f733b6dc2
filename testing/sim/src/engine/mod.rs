//! The discrete-event loop: virtual time, the real scheduler and store, and connections as the real server makes them.
//!
//! Costs: a look-up its domain's latency; a connection one round trip for TCP, one for the banner, one for EHLO; a
//! transaction one round trip where PIPELINING and CHUNKING are offered (several may be in progress; the server
//! processes them one after the other), two with DATA, one per command without PIPELINING; QUIT one. The client's
//! timeouts are those of the real session. All delays come from the network, so that a site alone answers as it does
//! among others.

mod wire;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stentor_mail::Class;
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{AddressId, ConnId, ContentId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::{EventEffect, Store};
use stentor_sched::{CloseReason, Effect, FailedRcpt, SchedConfig, Scheduler};
use wire::Wire;

use crate::meter::Meter;
use crate::net::Net;

/// When a simulation begins: some day.
pub const START: Ms = 1_800_000_000_000;

/// Something to send.
#[derive(Clone)]
pub struct Post {
    pub at: Ms,
    pub recipients: IdSet,
    pub class: Class,
    pub list: Option<String>,
    /// A message of its own for each recipient, as list managers inject them.
    pub copies: bool,
    /// Recipients whose delays are kept.
    pub watched: IdSet,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ev {
    Post(usize),
    Resolved(DomainId),
    Refused(ConnId, &'static str),
    Ready(ConnId),
    Reply(ConnId),
    Progress(ConnId),
    Lost(ConnId),
    Closed(ConnId),
}

struct Due {
    at: Ms,
    seq: u64,
    ev: Ev,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// Counters of a run.
#[derive(Default, Clone, Copy, Debug)]
pub struct Counts {
    pub events: u64,
    pub connects: u64,
    pub connect_failures: u64,
    pub transactions: u64,
    pub delivered: u64,
    pub failed: u64,
    /// Delivery reports that were made.
    pub reports: u64,
    pub cut: u64,
}

pub struct Sim {
    pub store: Store,
    pub sched: Scheduler,
    pub net: Net,
    pub now: Ms,
    pub posts: Vec<Post>,
    /// Per post: milliseconds from the post to each watched recipient's delivery, and whose it is.
    pub delays: Vec<Vec<(u32, u32)>>,
    pub counts: Counts,
    pub meter: Meter,
    /// When each transaction of a watched host ended, and whether the host took it; for rates.
    pub log: Option<Vec<(Ms, u32, bool)>>,
    pub(crate) wires: HashMap<ConnId, Wire>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) pipelines: usize,
    events: BinaryHeap<Reverse<Due>>,
    seq: u64,
    record: Vec<u8>,
}

impl Sim {
    pub fn new(net: Net, cfg: SchedConfig, seed: u64) -> Sim {
        Sim {
            store: Store::new(),
            sched: Scheduler::new(cfg, seed),
            net,
            now: START,
            posts: Vec::new(),
            delays: Vec::new(),
            counts: Counts::default(),
            meter: Meter::default(),
            log: None,
            wires: HashMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            pipelines: 16,
            events: BinaryHeap::new(),
            seq: 0,
            record: Vec::new(),
        }
    }

    /// Transactions under way on one connection at a time: 1 switches their pipelining off.
    pub fn pipeline(&mut self, transactions_max: usize) {
        self.pipelines = transactions_max;
    }

    pub fn subscriber(&mut self, number: u32, domain: u32) -> Option<AddressId> {
        self.store.book.intern(&format!("u{number}@d{domain}.example")).map(|(id, _)| id)
    }

    pub fn post(&mut self, post: Post) {
        let at = post.at;
        self.posts.push(post);
        self.delays.push(Vec::new());
        self.at(at.max(self.now), Ev::Post(self.posts.len() - 1));
    }

    pub(crate) fn at(&mut self, at: Ms, ev: Ev) {
        self.seq += 1;
        self.events.push(Reverse(Due { at, seq: self.seq, ev }));
    }

    pub(crate) fn call<T>(&mut self, kind: &'static str, call: impl FnOnce(&mut Scheduler, &Store, Ms) -> T) -> T {
        let (sched, store, now) = (&mut self.sched, &self.store, self.now);
        self.meter.time(kind, || call(sched, store, now))
    }

    /// Runs until `end`, or until nothing happens any more; whether something is left.
    pub fn run_until(&mut self, end: Ms) -> bool {
        loop {
            let event = self.events.peek().map(|e| e.0.at);
            let tick = self.sched.next_tick().map(|at| at.max(self.now));
            let Some(next) = event.into_iter().chain(tick).min() else { return false };
            if next >= end {
                self.now = end;
                return true;
            }
            self.now = self.now.max(next);
            if tick == Some(next) {
                self.call("tick", Scheduler::tick);
            } else if let Some(Reverse(due)) = self.events.pop() {
                self.counts.events += 1;
                self.happen(due.ev);
            }
            self.obey();
        }
    }

    /// Runs until the queue is empty or `end` is reached.
    pub fn run_empty(&mut self, end: Ms) {
        const STEP_MS: Ms = 1_000;
        while (!self.store.is_empty() || self.posts.iter().any(|p| p.at >= self.now)) && self.now < end {
            let step = (self.now + STEP_MS).min(end);
            if !self.run_until(step) {
                return;
            }
        }
    }

    fn happen(&mut self, ev: Ev) {
        match ev {
            Ev::Post(post) => self.accept_post(post),
            Ev::Resolved(domain) => {
                let resolution = self.net.resolve(self.store.book.domain_name(domain));
                self.call("resolved", |sched, store, now| sched.resolved(store, domain, resolution, now));
            }
            Ev::Refused(conn, why) => self.refused(conn, why),
            Ev::Ready(conn) => self.ready(conn),
            Ev::Reply(conn) => self.reply(conn),
            Ev::Progress(conn) => self.progress(conn),
            Ev::Lost(conn) => self.lost(conn, "timed out"),
            Ev::Closed(conn) => self.closed(conn, &CloseReason::Normal),
        }
    }

    fn accept_post(&mut self, index: usize) {
        let post = self.posts[index].clone();
        if post.copies {
            for id in &post.recipients {
                self.accept(index, IdSet::one(id), &post);
            }
        } else {
            self.accept(index, post.recipients.clone(), &post);
        }
    }

    fn accept(&mut self, index: usize, recipients: IdSet, post: &Post) {
        let id = self.store.next_message_id(self.now);
        let accept = Accept {
            content: ContentId(index as u64),
            size: 8_192,
            sender: "list-bounces@lists.example".into(),
            class: post.class,
            list: post.list.clone(),
            recipients,
            ..Accept::bare(id, self.now)
        };
        if let EventEffect::New(no) = self.store.apply(Event::Accept(Box::new(accept))) {
            self.call("accepted", |sched, store, now| sched.accepted(store, no, now));
        }
    }

    fn obey(&mut self) {
        loop {
            let effects: Vec<Effect> = self.sched.effects().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.obey_one(effect);
            }
        }
    }

    fn obey_one(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve { domain } => {
                let number = Net::number(self.store.book.domain_name(domain));
                let ms = number.and_then(|n| self.net.domains.get(n)).map_or(10, |d| d.look_up_ms);
                self.at(self.now + ms, Ev::Resolved(domain));
            }
            Effect::Connect { conn, target, .. } => self.connect(conn, &target.addr),
            Effect::Work { conn } => self.fill(conn),
            Effect::Close { conn } => self.close(conn),
            // Every look-up here is answered.
            Effect::ForgetLookUp { .. } | Effect::FastDone { .. } | Effect::Delayed { .. } | Effect::Suspend { .. } => {
            }
            Effect::Coalesce { posts, ids, .. } => {
                let ids: IdSet = ids.iter().map(|id| id.0).collect();
                for no in posts {
                    self.call("unreserve", |sched, store, now| sched.unreserve(store, no, &ids, now));
                }
            }
            Effect::GiveWay { conn } => self.give_way(conn),
            Effect::Bounce { no, failures } => self.bounce(no, &failures),
        }
    }

    fn bounce(&mut self, no: MessageNo, failures: &[FailedRcpt]) {
        let mut finished = false;
        self.counts.reports += 1;
        for (expired, fate) in [(false, Fate::Bounced), (true, Fate::Expired)] {
            let ids: IdSet = failures.iter().filter(|f| f.expired == expired).map(|f| f.id.0).collect();
            self.counts.failed += ids.len() as u64;
            finished |= self.record_fate(no, fate, &ids);
        }
        let all: Vec<AddressId> = failures.iter().map(|f| f.id).collect();
        self.call("bounced", |sched, _, _| sched.bounced(no, &all));
        if finished {
            self.call("finished", |sched, _, _| sched.finished(no));
        }
    }

    /// Whether the message has ended.
    pub(crate) fn record_fate(&mut self, no: MessageNo, fate: Fate, ids: &IdSet) -> bool {
        self.record.clear();
        let applied = self.store.record_fate(no, fate, ids, None, self.now, &mut self.record);
        matches!(applied, EventEffect::Finished { .. })
    }

    /// Notes delays of watched recipients.
    pub(crate) fn delivered(&mut self, no: MessageNo, ids: &IdSet) {
        self.counts.delivered += ids.len() as u64;
        let Some(index) = self.store.message(no).map(|m| m.content().0 as usize) else { return };
        let post = &self.posts[index];
        let delay = (self.now - post.at) as u32;
        self.delays[index].extend(ids.iter().filter(|id| post.watched.contains(*id)).map(|id| (delay, id)));
    }
}
