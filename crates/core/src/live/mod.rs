//! Live counters: for `realstat`, delivery reports, metrics and the console.
//!
//! Promise: an event costs a few atomic additions, but no lock of the hub and no allocation; only watching costs more.
//! A ticker stores the counters' differences once a second in rings of a fixed size ([`rings`]), and samples the
//! system's load once a minute, or every few seconds while somebody watches ([`machine`]). All of it is volatile and
//! starts with the server; the history has the permanent records.
//!
//! Failures: values missing from `/proc` are zero; the control socket drops a watcher that does not read.

pub mod action;
pub mod events;
pub mod filters;
pub mod health;
pub mod histogram;
pub mod machine;
pub mod posts;
pub mod rings;
pub mod traffic;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use stentor_queue::event::Accept;
use stentor_queue::ids::Ms;
use stentor_queue::site::Target;
use stentor_records::now::{Counts, MachineNow, Totals};
use stentor_sched::verdict::Judge;
use stentor_sched::{FailedRcpt, RcptOutcome, SessionSoFar};

use self::action::CurrentAction;

use self::events::Events;
use self::filters::Filters;
use self::health::Health;
use self::histogram::Histogram;
use self::posts::Posts;
use self::rings::Rings;
use self::traffic::Traffic;

/// Callback that counts the open sessions of clients.
pub type Sessions = Box<dyn Fn() -> SessionCounts + Send + Sync>;

/// Open sessions of clients, by the role of their listener: each role has its own pool.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SessionCounts {
    /// Through `smtp`.
    pub relay: usize,
    /// Through `smtps` and `submission`.
    pub users: usize,
}

impl SessionCounts {
    pub fn total(self) -> usize {
        self.relay + self.users
    }
}

/// Statistics of the committer, batch by batch.
#[derive(Default)]
pub struct Syncs {
    /// Duration of write and sync in microseconds.
    pub us: Histogram,
    pub messages: AtomicU64,
    pub bytes: AtomicU64,
}

#[derive(Default)]
pub struct Live {
    totals: Totals,
    /// Octets of SMTP in both directions, exchanged with clients and hosts.
    pub net_in: AtomicU64,
    pub net_out: AtomicU64,
    pub syncs: Syncs,
    pub posts: Arc<Posts>,
    pub filters: Filters,
    pub events: Events,
    /// The server's health.
    pub health: Health,
    /// The operator action in progress.
    pub action: CurrentAction,
    /// Watchers of sessions.
    pub traffic: Traffic,
    rings: Mutex<Rings>,
    machine: Mutex<MachineNow>,
    /// Number of watchers; while there are any, the machine is sampled every few seconds.
    pub watchers: AtomicUsize,
    sessions: OnceLock<Sessions>,
}

impl Live {
    pub fn new(posts: Arc<Posts>) -> Live {
        Live { posts, ..Live::default() }
    }

    /// Sums since the start.
    pub fn totals(&self) -> Counts {
        self.totals.read()
    }

    /// The last 15 minutes second by second, and the last 48 hours minute by minute.
    pub fn rings<R>(&self, read: impl FnOnce(&Rings) -> R) -> R {
        read(&self.rings.lock())
    }

    /// The newest sample.
    pub fn machine(&self) -> MachineNow {
        *self.machine.lock()
    }

    /// Called once a second. Returns whether a minute of the clock has ended.
    pub fn second(&self, now: Ms) -> bool {
        self.filters.prune();
        let totals = self.totals();
        self.rings.lock().push(now, totals)
    }

    pub fn set_machine(&self, sample: MachineNow) {
        *self.machine.lock() = sample;
    }

    /// Sets the callback that counts sessions; call it once.
    pub fn count_sessions(&self, sessions: Sessions) {
        // A second callback would count the same.
        let _ = self.sessions.set(sessions);
    }

    /// Number of connections of clients.
    pub fn connections_in(&self) -> usize {
        self.sessions().total()
    }

    pub fn sessions(&self) -> SessionCounts {
        self.sessions.get().map_or_else(SessionCounts::default, |count| count())
    }

    /// Counts a message that became durable.
    pub fn accepted(&self, accept: &Accept) {
        let add = |totals: &Totals| {
            totals.accepted.fetch_add(1, Ordering::Relaxed);
            totals.accepted_recipients.fetch_add(accept.recipients.len() as u64, Ordering::Relaxed);
            totals.accepted_bytes.fetch_add(accept.size, Ordering::Relaxed);
        };
        add(&self.totals);
        if self.filters.are_there() {
            let list = accept.list.as_deref().filter(|_| !accept.is_archive);
            self.filters.each(|filter| filter.is_of(list, None).then(|| add(&filter.totals)));
        }
    }

    /// Counts a transaction that ended.
    ///
    /// `list` is empty for other mail; `size` is in octets on the wire.
    pub fn attempt(&self, list: &str, size: u64, outcomes: &[RcptOutcome], target: &Target, session: SessionSoFar) {
        let judge = Judge::of(outcomes, session);
        let is_deferred = |o: &&RcptOutcome| !judge.verdict(o).is_final();
        let delivered = outcomes.iter().filter(|o| o.is_delivered()).count() as u64;
        let failed = outcomes.len() as u64 - delivered;
        let deferred = if failed > 0 { outcomes.iter().filter(is_deferred).count() as u64 } else { 0 };
        let add = |totals: &Totals| {
            if delivered > 0 {
                totals.delivered.fetch_add(delivered, Ordering::Relaxed);
                totals.delivered_bytes.fetch_add(size, Ordering::Relaxed);
            }
            if failed > 0 {
                totals.failed.fetch_add(failed, Ordering::Relaxed);
                totals.deferred.fetch_add(deferred, Ordering::Relaxed);
            }
        };
        add(&self.totals);
        if self.filters.are_there() {
            let list = Some(list).filter(|list| !list.is_empty());
            self.filters.each(|filter| filter.is_of(list, Some(&target.addr)).then(|| add(&filter.totals)));
        }
    }

    /// Counts a failed session, or without a target a failed look-up, that deferred `waiting` recipients. Their lists
    /// are not known, so no list's watcher counts them.
    pub fn unreached(&self, target: Option<&Target>, waiting: u64) {
        let add = |totals: &Totals| {
            totals.failed.fetch_add(waiting, Ordering::Relaxed);
            totals.deferred.fetch_add(waiting, Ordering::Relaxed);
        };
        add(&self.totals);
        if self.filters.are_there() {
            let host = target.map(|target| &target.addr);
            self.filters.each(|filter| filter.is_of(None, host).then(|| add(&filter.totals)));
        }
    }

    /// Counts recipients whose attempts are over.
    pub fn given_up(&self, failures: &[FailedRcpt]) {
        let expired = failures.iter().filter(|failure| failure.expired).count();
        self.totals.expired.fetch_add(expired as u64, Ordering::Relaxed);
        self.totals.bounced.fetch_add((failures.len() - expired) as u64, Ordering::Relaxed);
    }

    /// Reports an event to watchers; `text` is called only if there are any.
    pub fn event(&self, at: Ms, kind: &str, text: impl FnOnce() -> String) {
        if self.watchers.load(Ordering::Relaxed) > 0 {
            self.events.push(at, kind, &text());
        }
    }

    /// Counts a synced batch.
    pub fn synced(&self, messages: usize, bytes: usize, took: Duration) {
        self.syncs.us.add(took.as_micros() as u64, 1);
        self.syncs.messages.fetch_add(messages as u64, Ordering::Relaxed);
        self.syncs.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn received(&self, bytes: usize) {
        self.net_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn sent(&self, bytes: usize) {
        self.net_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
