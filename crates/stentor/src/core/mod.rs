//! The middle of the server: queue and scheduler behind one lock, the committer's intake, and the effects that follow.
//!
//! Promise: the lock is held for microseconds and never across I/O; effects are carried out after it is released, in
//! the order in which they arose. Data flows session -> intake -> committer -> hub -> deliveries -> hub -> committer.

pub mod bodies;
pub mod committer;
pub mod envelope;
pub mod hub;
pub mod intake;
pub mod log;
pub mod memory;
pub mod settings;
pub mod verb;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use stentor_journal::ContentReader;
use stentor_mail::reply::Reply;
use stentor_queue::ids::{ContentId, MessageId, Ms};
use tokio::sync::Notify;

use self::hub::{Act, Hub};
use self::intake::{Intake, Refused};
use self::memory::Memory;
pub use self::settings::Settings;
use crate::attempt_log::AttemptLog;
use crate::clock::Clock;
use crate::lists::Lists;
use crate::resolve::Resolver;

/// What is counted since the start, for `stentor status` and the demo's summary.
#[derive(Default)]
pub struct Counters {
    pub refused_connections: AtomicU64,
    pub connections: AtomicU64,
    pub transactions: AtomicU64,
    pub syncs: AtomicU64,
    pub batches: AtomicU64,
    pub bytes_written: AtomicU64,
    pub reports_noted: AtomicU64,
    pub segments: AtomicU64,
    pub content_bytes: AtomicU64,
    pub disk_free_bytes: AtomicU64,
}

pub struct Core {
    pub clock: Clock,
    settings: RwLock<Arc<Settings>>,
    hub: Mutex<Hub>,
    pub intake: Intake,
    pub reader: ContentReader,
    pub memory: Memory,
    pub lists: Lists,
    pub log: AttemptLog,
    pub resolver: Resolver,
    pub counters: Counters,
    /// Set by the committer while the disk has no room beyond the reserve.
    pub disk_full: AtomicBool,
    /// Set when the address book is at `addresses_max`.
    pub addresses_full: AtomicBool,
    last_message_id: AtomicU64,
    last_content_id: AtomicU64,
    /// Wakes the ticker when the scheduler's next time moved nearer.
    pub ticker: Notify,
    actor: Arc<dyn Actor>,
    /// Delivery reports being made: each may hold a copy of a whole message.
    pub reports: tokio::sync::Semaphore,
}

/// How many delivery reports are made at a time.
const REPORTS_MAX: usize = 32;

/// Carries out what the scheduler wants of the world. The real one opens sockets; the crash campaign's makes outcomes up.
pub trait Actor: Send + Sync + 'static {
    fn act(&self, core: &Arc<Core>, act: Act);
}

/// What [`Core::new`] is made of.
pub struct Parts {
    pub clock: Clock,
    pub settings: Arc<Settings>,
    pub hub: Hub,
    pub reader: ContentReader,
    pub log: AttemptLog,
    pub resolver: Resolver,
    pub next_content_id: u64,
    pub actor: Arc<dyn Actor>,
}

impl Core {
    pub fn new(parts: Parts) -> Arc<Core> {
        let config = &parts.settings.config;
        let commit_delay = Duration::from_micros(config.journal.commit_delay_us);
        Arc::new(Core {
            clock: parts.clock,
            intake: Intake::new(
                commit_delay,
                (config.journal.batch_bytes_max as usize).min(config.journal.segment_bytes as usize / 4),
            ),
            memory: Memory::new(config.listen.body_bytes_max),
            lists: Lists::default(),
            reader: parts.reader,
            log: parts.log,
            resolver: parts.resolver,
            counters: Counters::default(),
            disk_full: AtomicBool::new(false),
            addresses_full: AtomicBool::new(false),
            last_message_id: AtomicU64::new(parts.hub.store.last_id().0),
            last_content_id: AtomicU64::new(parts.next_content_id),
            hub: Mutex::new(parts.hub),
            settings: RwLock::new(parts.settings),
            ticker: Notify::new(),
            actor: parts.actor,
            reports: tokio::sync::Semaphore::new(REPORTS_MAX),
        })
    }

    /// The configuration in force; a session keeps the one that it began with.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    pub fn replace_settings(&self, settings: Arc<Settings>) {
        *self.settings.write() = settings;
    }

    /// Never given out twice by this store: ids grow with the time, across restarts too.
    pub fn next_message_id(&self) -> MessageId {
        let now = self.clock.now();
        let next = |last| Some(MessageId::next(MessageId(last), now).0);
        // The closure always gives a value, so that this cannot fail.
        let last = self.last_message_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|l| l);
        MessageId::next(MessageId(last), now)
    }

    pub fn next_content_id(&self) -> ContentId {
        ContentId(self.last_content_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Why no new transaction may begin now, if so.
    pub fn push_back(&self) -> Option<Reply> {
        if self.disk_full.load(Ordering::Relaxed) {
            return Some(Refused::Full.reply());
        }
        self.addresses_full.load(Ordering::Relaxed).then(|| Refused::AddressesFull.reply())
    }

    /// Runs `f` under the lock, then carries out what it caused.
    pub fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut Hub, Ms) -> R) -> R {
        let now = self.clock.now();
        let mut acts: SmallVec<[Act; 8]> = SmallVec::new();
        let (result, follow_up) = {
            let mut hub = self.hub.lock();
            let result = f(&mut hub, now);
            (result, hub.settle(&mut acts, now))
        };
        if follow_up.tick {
            self.ticker.notify_one();
        }
        if follow_up.completions {
            self.intake.completions(Duration::from_millis(self.settings.read().config.journal.completion_sync_ms_max));
        }
        for act in acts {
            self.actor.act(self, act);
        }
        result
    }

    /// Drives the scheduler's clocks until the process ends.
    pub async fn tick(self: Arc<Self>) {
        loop {
            let next = self.with(|hub, now| {
                hub.sched.tick(&hub.store, now);
                hub.next_tick()
            });
            match next {
                Some(at) if at <= self.clock.now() => tokio::task::yield_now().await,
                Some(at) => {
                    tokio::select! {
                        () = self.ticker.notified() => {}
                        () = tokio::time::sleep_until(self.clock.instant(at)) => {}
                    }
                }
                None => self.ticker.notified().await,
            }
        }
    }
}
