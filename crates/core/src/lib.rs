//! The core of the running server: queue and scheduler behind one lock, the committer's intake, and the resulting
//! effects; memory budgets and live counters.
//!
//! Promise: the lock is held for microseconds and never across I/O; effects are performed in order after it is
//! released. Data flows session -> intake -> committer -> hub -> deliveries -> hub -> committer.

pub mod archives;
pub mod assignment;
pub mod audit;
pub mod bodies;
pub mod call_ahead;
pub mod clock;
pub mod committer;
pub mod complaints;
pub mod copies;
pub mod dkim;
pub mod early;
pub mod envelope;
pub mod facts_file;
pub mod files;
pub mod forget;
pub mod handshakes;
mod held;
pub mod hold_notices;
pub mod host_knowledge;
pub mod hub;
pub mod intake;
pub mod interner;
pub mod lists;
pub mod live;
pub mod local_members;
pub mod log;
pub mod measures;
pub mod membership;
pub mod memory;
pub mod name_servers;
pub mod next_hops;
pub mod observer;
pub mod own;
pub mod people;
pub mod pins;
mod reach;
pub mod received_reports;
pub mod replay;
pub mod reputation_alarms;
pub mod resend;
mod roster;
pub mod rotating_keys;
pub mod route;
pub mod secret_key;
pub mod security;
pub mod settings;
mod signing;
pub mod stored_message;
pub mod sts;
mod sts_fetch;
pub mod submissions;
pub mod subscriber_names;
pub mod suppression;
pub mod ticker;
pub mod tls_seen;
pub mod unreached;
pub mod verb;
mod watch;

pub use stentor_logs::limits;

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use stentor_domain_reports::dmarc::DmarcCounts;
use stentor_history::History;
use stentor_journal::{ContentReader, Space, Statistics};
use stentor_logs::Logs;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::{Guesses, SenderRates, Slowness};
use stentor_queue::event::MessageIdAt;
use stentor_queue::ids::{ContentId, MessageId, Ms};
use stentor_registry::AddressRegistry;
use stentor_reputation::{Greylist, Rates};
use stentor_resolve::Resolver;
use stentor_tls_policy::tlsrpt::Counts;
use tokio::sync::Notify;

use self::call_ahead::CallAhead;
pub use self::held::LongestHold;
use self::hub::{Act, Hub};
use self::intake::{Intake, IntakeRefusal};
use self::limits::{Limit, LimitHits};
use self::lists::Lists;
use self::measures::Measures;
use self::security::Security;
pub use self::settings::Settings;
use crate::clock::Clock;
use crate::live::Live;
use crate::memory::{Memory, MemoryGroup, Pressure, bodies_bytes};
use crate::observer::Observer;

/// Counters since the server started, for `stentor status` and the demo's summary.
#[derive(Default)]
pub struct Counters {
    pub refused_connections: AtomicU64,
    pub connections: AtomicU64,
    pub transactions: AtomicU64,
    pub reports_noted: AtomicU64,
    /// The longest time until an outcome was durable: the window that a crash would have repeated.
    pub outcome_sync_ms_max: AtomicU64,
    /// Waiting recipients bounced by standing bounces; the scheduler counts the others.
    pub standing_bounced: AtomicU64,
    /// Recipients removed because they are suppressed.
    pub suppressed: AtomicU64,
    /// A caller waits for the journal's current figures.
    pub space_wanted: AtomicBool,
}

/// Limits probing for posters: after five questions without a post, a client is refused for an hour or more as if no
/// address could post.
const POSTER_GUESSES: Slowness =
    Slowness { free: 5, wait_ms_min: 3_600_000, wait_ms_max: 86_400_000, forgotten_ms: 86_400_000 };

/// Limits requests to join or leave lists: a client that sends more unproven ones waits, ever longer, up to an hour.
const LIST_REQUESTS: Slowness =
    Slowness { free: 60, wait_ms_min: 60_000, wait_ms_max: 3_600_000, forgotten_ms: 3_600_000 };

/// Figures of the journal after the last batch.
#[derive(Clone, Copy, Default)]
pub struct JournalFigures {
    pub statistics: Statistics,
    /// Slightly older when batches follow each other closely.
    pub space: Space,
    pub is_checkpointing: bool,
}

pub struct Core {
    pub clock: Clock,
    settings: RwLock<Arc<Settings>>,
    /// TLS and AUTH for clients.
    security: RwLock<Arc<Security>>,
    hub: Mutex<Hub>,
    pub intake: Intake,
    pub reader: ContentReader,
    pub memory: Memory,
    /// Volume submitted by each sender; no other lock is taken while this is held.
    pub senders: Mutex<SenderRates>,
    /// Untrusted clients that named lists beside other recipients, to limit what they can learn about who may post.
    pub poster_guesses: Mutex<Guesses>,
    /// Clients that sent requests to join or leave lists without a proof of the person.
    pub list_requests: Mutex<Guesses>,
    /// Notices about held posts.
    pub hold_notices: Mutex<hold_notices::HoldNoticeLimiter>,
    pub lists: Lists,
    pub log: Logs,
    /// Mail events, kept for a limited time.
    pub history: History,
    pub live: Live,
    pub limits: LimitHits,
    /// Empty unless a component wants to observe each transaction.
    pub observer: OnceLock<Box<dyn Observer>>,
    pub measures: Measures,
    /// Clients that did not wait for the greeting.
    pub early: early::EarlyTalkers,
    /// Failed TLS handshakes of clients.
    pub handshakes: handshakes::FailedHandshakes,
    /// Replaced when the system's name servers change.
    resolver: RwLock<Resolver>,
    /// How often clients connect; counted if rules use it.
    pub rates: Mutex<Rates>,
    /// Mail that must be tried again.
    pub greylist: Mutex<Greylist>,
    /// Submissions waiting in the submission folder.
    pub submissions: Mutex<submissions::Submissions>,
    /// Answers of next hops about recipients of relay domains.
    pub call_ahead: Arc<CallAhead>,
    pub counters: Counters,
    /// Written by the committer after each batch; no other lock is taken while this is held.
    journal: Mutex<JournalFigures>,
    /// Set by the committer while the disk has no room beyond the reserve.
    pub disk_full: AtomicBool,
    /// A standing bounce is in force: new mail must be compared with it.
    pub standing: AtomicBool,
    /// Set while the process is near the memory limit of its control group.
    pub memory_full: AtomicBool,
    /// Permits one transaction to begin anyway until memory is checked again.
    memory_pass: AtomicBool,
    /// Memory limit for incoming bodies: the configured octets, or fewer under a memory limit.
    pub body_bytes_max: u64,
    /// Set when the address book holds `addresses_max`.
    pub addresses_full: AtomicBool,
    last_message_id: AtomicU64,
    last_content_id: AtomicU64,
    /// Wakes the ticker when the scheduler's next time becomes earlier.
    pub ticker: Notify,
    /// Wakes the drain of the submission folder, which publishes some settings.
    pub reloaded: Notify,
    actor: Arc<dyn Actor>,
    /// The longest hold of the hub's lock.
    pub held: LongestHold,
    /// Limits DSNs being built at once: each may hold a copy of a whole message.
    pub reports: tokio::sync::Semaphore,
    /// Held while DMARC reports of others are read, one message at a time: they are small on the wire and large in
    /// memory.
    pub report_reading: Arc<tokio::sync::Semaphore>,
    /// MTA-STS policies of domains.
    pub policies: self::sts::StsPolicies,
    /// Access tokens for smart hosts.
    pub tokens: stentor_oauth::Tokens,
    /// Hosts that refuse extensions they offer or fail at TLS, and properties of contents.
    pub known: self::host_knowledge::HostKnowledge,
    /// Sessions counted for TLS reports to domains that request them.
    pub tls_counts: Mutex<Counts>,
    /// Messages counted for DMARC reports to domains that request them.
    pub dmarc_counts: Mutex<DmarcCounts>,
    /// TLS states of sessions with hosts.
    pub tls_seen: tls_seen::HostTlsStates,
    /// Replies about our reputation.
    pub reputation_alarms: reputation_alarms::ReputationAlarms,
    /// Complaint rates.
    pub complaints: complaints::Complaints,
    /// Body hashes and threads of DKIM signing.
    pub dkim: dkim::DkimWork,
    /// Last text of the file of learned facts.
    pub learned: facts_file::WrittenDigest,
    /// Suppressed addresses.
    pub registry: Arc<AddressRegistry>,
}

/// How often the control group's memory usage is read.
const MEMORY_POLL: Duration = Duration::from_millis(100);
/// Maximum octets read for a Message-ID if the journal gives a wrong position.
const MESSAGE_ID_BYTES_MAX: u32 = 4096;
/// How often `stentor status` polls for fresh figures: a batch may be on its way to the disk.
const SPACE_POLLS: u32 = 100;
const SPACE_POLL: Duration = Duration::from_millis(2);
/// Clients with known rates, 200 octets each; as many of the previous hour are kept.
const RATE_CLIENTS_MAX: usize = 50_000;
/// DSNs built at once.
const REPORTS_MAX: usize = 32;

/// Performs the scheduler's effects. The real one opens sockets; the crash campaign's invents outcomes.
pub trait Actor: Send + Sync + 'static {
    fn act(&self, core: &Arc<Core>, act: Act);
}

/// The arguments of [`Core::new`].
pub struct Parts {
    pub clock: Clock,
    pub settings: Arc<Settings>,
    pub hub: Hub,
    pub reader: ContentReader,
    pub log: Logs,
    pub history: History,
    pub resolver: Resolver,
    pub next_content_id: u64,
    pub actor: Arc<dyn Actor>,
    pub registry: Arc<AddressRegistry>,
    /// The memory limit to stay under, if there is one.
    pub memory_limit: Option<u64>,
}

impl Core {
    pub fn new(parts: Parts) -> Arc<Core> {
        let config = &parts.settings.config;
        let commit_delay = Duration::from_micros(config.journal.commit_delay_us);
        let bodies_max = parts.memory_limit.map_or(u64::MAX, bodies_bytes);
        let body_bytes_max = config.listen.body_bytes_max.min(bodies_max);
        let is_standing = parts.hub.store.standing_bounces().next().is_some();
        Arc::new(Core {
            senders: Mutex::new(SenderRates::new(parts.clock.now())),
            poster_guesses: Mutex::new(Guesses::new(POSTER_GUESSES, parts.clock.now())),
            list_requests: Mutex::new(Guesses::new(LIST_REQUESTS, u64::from_ne_bytes(stentor_config::keys::random()))),
            hold_notices: Mutex::default(),
            clock: parts.clock,
            intake: Intake::new(
                commit_delay,
                (config.journal.batch_bytes_max as usize).min(config.journal.segment_bytes as usize / 4),
            ),
            memory: Memory::new(body_bytes_max, config.listen.streamed_bytes_max, config.message_size_bytes_max),
            body_bytes_max,
            memory_full: AtomicBool::new(false),
            memory_pass: AtomicBool::new(false),
            lists: Lists::default(),
            reader: parts.reader,
            log: parts.log,
            history: parts.history,
            live: Live::new(parts.hub.posts.posts()),
            limits: LimitHits::default(),
            observer: OnceLock::new(),
            measures: Measures::default(),
            early: early::EarlyTalkers::default(),
            handshakes: handshakes::FailedHandshakes::default(),
            resolver: RwLock::new(parts.resolver),
            rates: Mutex::new(Rates::new(RATE_CLIENTS_MAX)),
            greylist: Mutex::default(),
            submissions: Mutex::default(),
            call_ahead: Arc::default(),
            counters: Counters::default(),
            journal: Mutex::default(),
            disk_full: AtomicBool::new(false),
            standing: AtomicBool::new(is_standing),
            addresses_full: AtomicBool::new(false),
            last_message_id: AtomicU64::new(parts.hub.store.last_id().0),
            last_content_id: AtomicU64::new(parts.next_content_id),
            hub: Mutex::new(parts.hub),
            settings: RwLock::new(parts.settings),
            security: RwLock::new(Arc::new(Security::none())),
            ticker: Notify::new(),
            reloaded: Notify::new(),
            actor: parts.actor,
            held: LongestHold::default(),
            reports: tokio::sync::Semaphore::new(REPORTS_MAX),
            report_reading: Arc::new(tokio::sync::Semaphore::new(1)),
            policies: self::sts::StsPolicies::default(),
            tokens: stentor_oauth::Tokens::default(),
            known: self::host_knowledge::HostKnowledge::default(),
            tls_counts: Mutex::default(),
            dmarc_counts: Mutex::default(),
            tls_seen: tls_seen::HostTlsStates::default(),
            reputation_alarms: reputation_alarms::ReputationAlarms::default(),
            complaints: complaints::Complaints::default(),
            dkim: dkim::DkimWork::default(),
            learned: facts_file::WrittenDigest::default(),
            registry: parts.registry,
        })
    }

    /// Returns the configuration in force; a session keeps the one it began with.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// Returns the resolver in force. A look-up keeps it until it ends.
    pub fn resolver(&self) -> Resolver {
        self.resolver.read().clone()
    }

    pub(crate) fn replace_resolver(&self, resolver: Resolver) {
        *self.resolver.write() = resolver;
    }

    pub fn replace_settings(&self, settings: Arc<Settings>) {
        *self.settings.write() = settings;
        self.reloaded.notify_one();
    }

    /// Returns the offers of TLS and AUTH; a session keeps those it began with.
    pub fn security(&self) -> Arc<Security> {
        self.security.read().clone()
    }

    /// Replaces the offers for new sessions. Logins from another user source end.
    pub fn replace_security(&self, security: Arc<Security>) {
        let mut current = self.security.write();
        let before = std::mem::replace(&mut *current, security);
        let retired = before.auth().filter(|auth| !current.auth().is_some_and(|now| now.is(auth)));
        drop(current);
        if let Some(auth) = retired {
            auth.retire();
        }
    }

    /// Returns a new message id. Ids are never reused by this store: they grow with time, also across restarts.
    pub fn next_message_id(&self) -> MessageId {
        let now = self.clock.now();
        let next = |last| Some(MessageId::next(MessageId(last), now).0);
        // The closure always returns a value, so this cannot fail.
        let last = self.last_message_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|l| l);
        MessageId::next(MessageId(last), now)
    }

    pub fn next_content_id(&self) -> ContentId {
        ContentId(self.last_content_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the journal's figures.
    pub fn journal(&self) -> JournalFigures {
        *self.journal.lock()
    }

    /// Asks the committer for the journal's current figures, and waits for them briefly.
    pub async fn refresh_space(&self) {
        self.counters.space_wanted.store(true, Ordering::Release);
        self.intake.completions(Duration::ZERO);
        for _ in 0..SPACE_POLLS {
            if !self.counters.space_wanted.load(Ordering::Acquire) {
                break;
            }
            tokio::time::sleep(SPACE_POLL).await;
        }
    }

    /// Reads a Message-ID that is not kept in memory from the stored content; empty if that cannot be read. Must not be
    /// called under the hub's lock.
    pub fn message_id(&self, content: ContentId, at: MessageIdAt) -> String {
        let mut bytes = vec![0; at.len.min(MESSAGE_ID_BYTES_MAX) as usize];
        let read = self.reader.read_at(content.0, at.offset.into(), &mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Returns why no new transaction may begin now, if so.
    pub fn push_back(&self) -> Option<Reply> {
        if self.disk_full.load(Ordering::Relaxed) {
            self.refused(IntakeRefusal::Full);
            return Some(IntakeRefusal::Full.reply());
        }
        if self.memory_full.load(Ordering::Relaxed) && !self.memory_pass.swap(false, Ordering::Relaxed) {
            self.limits.hit(Limit::MemoryGroup, self.clock.now());
            return Some(Reply::fixed(452, Enhanced::new(4, 3, 1), "Not enough memory, try again later"));
        }
        let is_full = self.addresses_full.load(Ordering::Relaxed);
        is_full.then(|| {
            self.refused(IntakeRefusal::AddressesFull);
            IntakeRefusal::AddressesFull.reply()
        })
    }

    /// Counts a refusal of mail, where the reason is a limit.
    pub fn refused(&self, why: IntakeRefusal) {
        let limit = match why {
            IntakeRefusal::Full => Limit::DiskReserve,
            IntakeRefusal::AddressesFull => Limit::AddressBook,
            // Counted where they arose, or not limits.
            IntakeRefusal::Crowded
            | IntakeRefusal::Io
            | IntakeRefusal::TooLarge
            | IntakeRefusal::ListGone
            | IntakeRefusal::Table
            | IntakeRefusal::Stopping => return,
        };
        self.limits.hit(limit, self.clock.now());
    }

    /// Describes why no mail is accepted now; empty if it is.
    pub fn troubles(&self) -> Vec<&'static str> {
        let all = [
            (&self.disk_full, "the disk is nearly full"),
            (&self.memory_full, "memory is nearly full"),
            (&self.addresses_full, "the address book is full"),
        ];
        all.iter().filter(|(flag, _)| flag.load(Ordering::Relaxed)).map(|(_, why)| *why).collect()
    }

    /// Runs `f` under the lock, then performs its effects.
    #[track_caller]
    pub fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut Hub, Ms) -> R) -> R {
        let mut acts: SmallVec<[Act; 8]> = SmallVec::new();
        let now;
        let (result, follow_up) = {
            let mut hub = self.hub.lock();
            // Read under the lock, under which the clock is set: the queue never sees a time from before.
            now = self.clock.now();
            let since = Instant::now();
            let result = f(&mut hub, now);
            let follow_up = hub.collect_acts(&mut acts);
            self.held.note(since.elapsed(), Location::caller());
            (result, follow_up)
        };
        if follow_up.tick {
            self.ticker.notify_one();
        }
        if let Some(since) = follow_up.completions {
            // Outcomes left over from a batch have already waited.
            let within = self.settings.read().config.journal.completion_sync_ms_max;
            self.intake.completions(Duration::from_millis(within.saturating_sub(now.saturating_sub(since))));
        }
        for act in acts {
            self.actor.act(self, act);
        }
        result
    }

    /// Refuses mail with 452 before the control group's memory is used up, and accepts it again later. Runs until the
    /// process ends.
    pub async fn watch_memory(self: Arc<Self>, group: MemoryGroup) {
        let mut pressure = Pressure::None;
        loop {
            let before = pressure;
            pressure = group.pressure(self.body_bytes_max, before);
            self.memory_pass.store(pressure == Pressure::Slow, Ordering::Relaxed);
            self.memory_full.store(pressure != Pressure::None, Ordering::Relaxed);
            if before == Pressure::None && pressure != Pressure::None {
                tracing::warn!("memory is nearly full: most new mail gets 452 4.3.1; deliveries continue");
            } else if before != Pressure::None && pressure == Pressure::None {
                tracing::info!("memory is free again: accepting mail");
            }
            tokio::time::sleep(MEMORY_POLL).await;
        }
    }

    /// Drives the scheduler's clocks until the process ends.
    pub async fn tick(self: Arc<Self>) {
        loop {
            let next = self.with(|hub, now| {
                hub.tick(now);
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
