//! One milter: its settings, idle connections, circuits and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stentor_records::health::ServiceOutcomes;
use tokio::time::Instant;

use crate::circuit::{Circuit, CircuitClient, MilterAccess};
use crate::connection::{Connection, MilterFailure};
use crate::protocol::{DATA_BYTES_MAX, FailureKind, MilterSettings, OnFailure};

/// Maximum idle connections, and how long each is kept.
const IDLE_MAX: usize = 32;
const IDLE_TIME: Duration = Duration::from_secs(20);
/// After this number of messages without a decision at MAIL, none is expected.
const MAILS_SEEN: u32 = 100;
const MAIL_DECIDES: u32 = u32::MAX;
/// Minimum interval between two log lines about shortened events: clients could fill the log.
const SHORTENED_INTERVAL: Duration = Duration::from_mins(1);

/// Outcome of a message or recipient at a milter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MilterResult {
    Accept,
    Reject,
    Tempfail,
    Discard,
    Quarantine,
    Change,
    Unreachable,
    Timeout,
    Error,
}

impl MilterResult {
    /// All results, in the order of their numbers.
    pub const ALL: [MilterResult; 9] = {
        use MilterResult::{Accept, Change, Discard, Error, Quarantine, Reject, Tempfail, Timeout, Unreachable};
        [Accept, Reject, Tempfail, Discard, Quarantine, Change, Unreachable, Timeout, Error]
    };

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            MilterResult::Accept => "accept",
            MilterResult::Reject => "reject",
            MilterResult::Tempfail => "tempfail",
            MilterResult::Discard => "discard",
            MilterResult::Quarantine => "quarantine",
            MilterResult::Change => "change",
            MilterResult::Unreachable => "unreachable",
            MilterResult::Timeout => "timeout",
            MilterResult::Error => "error",
        }
    }
}

impl From<FailureKind> for MilterResult {
    fn from(failure: FailureKind) -> MilterResult {
        match failure {
            FailureKind::Unreachable => MilterResult::Unreachable,
            FailureKind::Timeout => MilterResult::Timeout,
            FailureKind::Broken => MilterResult::Error,
        }
    }
}

#[derive(Debug, Default)]
pub struct Counters([AtomicU64; MilterResult::ALL.len()]);

impl Counters {
    pub(crate) fn count(&self, result: MilterResult) {
        self.0[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All counts with their names.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        MilterResult::ALL.into_iter().map(MilterResult::name).zip(counts)
    }
}

pub struct Milter {
    pub settings: MilterSettings,
    pub counters: Counters,
    /// Health: outcomes of sessions and probes.
    pub outcomes: ServiceOutcomes,
    /// Circuits of trusted and of untrusted clients.
    trusted: Mutex<Circuit>,
    untrusted: Mutex<Circuit>,
    idle: Mutex<Vec<(Instant, Connection)>>,
    /// Whether a task is closing connections that have been idle too long.
    has_reaper: AtomicBool,
    /// Whether it has ended a message before it had answered for all content sent.
    has_decided_early: AtomicBool,
    /// Number of messages on which it did not decide at MAIL; [`MAIL_DECIDES`] once it did.
    mails: AtomicU32,
    /// When a shortened event was last logged.
    shortened: Mutex<Option<Instant>>,
}

/// A session's trial of a milter after a pause. Dropping it lets another session of the client try.
pub(crate) struct Trial {
    milter: Arc<Milter>,
    client: CircuitClient,
    since: Instant,
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.milter.circuit(self.client).lock().give_back(self.client.address, self.since);
    }
}

impl Milter {
    pub fn new(settings: MilterSettings) -> Milter {
        Milter {
            settings,
            counters: Counters::default(),
            outcomes: ServiceOutcomes::default(),
            trusted: Mutex::default(),
            untrusted: Mutex::default(),
            idle: Mutex::default(),
            has_reaper: AtomicBool::new(false),
            has_decided_early: AtomicBool::new(false),
            mails: AtomicU32::new(0),
            shortened: Mutex::default(),
        }
    }

    pub(crate) fn command_limit(&self) -> Duration {
        Duration::from_millis(self.settings.command_timeout_ms)
    }

    pub(crate) fn content_limit(&self) -> Duration {
        Duration::from_millis(self.settings.content_timeout_ms)
    }

    /// Whether header and body are sent without waiting for each answer.
    pub(crate) fn is_told_at_once(&self) -> bool {
        self.settings.pipelining && !self.has_decided_early.load(Ordering::Relaxed)
    }

    /// Whether MAIL is sent together with the first recipient.
    pub(crate) fn takes_mail_late(&self) -> bool {
        self.settings.pipelining && (MAILS_SEEN..MAIL_DECIDES).contains(&self.mails.load(Ordering::Relaxed))
    }

    /// Records its answer to MAIL, and to a recipient sent with it; `is_over`: with a decision on the message.
    pub(crate) fn has_answered_mail(&self, is_over: bool) {
        // A count lost between sessions only delays the optimisation by a message; a decision is not lost.
        let mails = self.mails.load(Ordering::Relaxed);
        if is_over {
            self.mails.store(MAIL_DECIDES, Ordering::Relaxed);
        } else if mails < MAILS_SEEN {
            let _ = self.mails.compare_exchange(mails, mails + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Records that it decided on a message while more answers were owed.
    pub(crate) fn decides_early(&self) {
        self.has_decided_early.store(true, Ordering::Relaxed);
    }

    fn circuit(&self, client: CircuitClient) -> &Mutex<Circuit> {
        if client.is_trusted { &self.trusted } else { &self.untrusted }
    }

    /// A connection to it for a client's session, which another session may have used if `may_reuse`. After a pause,
    /// the session also gets a trial, to be kept until its transaction ends.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        client: CircuitClient,
        may_reuse: bool,
    ) -> Result<(Connection, Option<Trial>), MilterFailure> {
        let access = self.circuit(client).lock().admits(client.address, Instant::now());
        let trial = match access {
            MilterAccess::Refused => return Err(MilterFailure::untried()),
            MilterAccess::Admitted => None,
            MilterAccess::Trial(since) => Some(Trial { milter: self.clone(), client, since }),
        };
        // A trial shows whether it negotiates.
        if may_reuse
            && trial.is_none()
            && let Some(connection) = self.take_idle()
        {
            return Ok((connection, None));
        }
        let connection = Connection::open(&self.settings).await?;
        self.circuit(client).lock().connected();
        if self.is_healthy() {
            self.outcomes.success();
        }
        Ok((connection, trial))
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let oldest = Instant::now().checked_sub(IDLE_TIME);
        while let Some((since, mut connection)) = idle.pop() {
            if oldest.is_none_or(|oldest| since > oldest) && connection.is_idle() {
                return Some(connection);
            }
        }
        None
    }

    /// Returns a session's connection, which is kept idle or closed.
    pub(crate) fn give_back(self: &Arc<Self>, mut connection: Connection) {
        let is_kept = self.settings.reuse && connection.session.quit_new();
        if !is_kept {
            connection.session.quit();
        }
        connection.write_now();
        if is_kept && connection.is_idle() {
            connection.is_reused = true;
            let mut idle = self.idle.lock();
            if idle.len() < IDLE_MAX {
                idle.push((Instant::now(), connection));
                drop(idle);
                self.reap();
            }
        }
    }

    /// Closes connections that have been idle too long, as long as there are any.
    fn reap(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.has_reaper.swap(true, Ordering::AcqRel) {
            return;
        }
        let milter = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TIME / 2).await;
                let Some(milter) = milter.upgrade() else { return };
                let mut idle = milter.idle.lock();
                let now = Instant::now();
                idle.retain_mut(|(since, connection)| now.duration_since(*since) < IDLE_TIME && connection.is_idle());
                if idle.is_empty() {
                    // Set under the lock, so that a connection returned later starts another task.
                    milter.has_reaper.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    /// Whether health sees no failure. Those on untrusted mail count only once they began a pause, since clients choose
    /// what their mail contains. A milter that fails during messages may still accept every connection.
    fn is_healthy(&self) -> bool {
        !self.trusted.lock().is_failing() && !self.untrusted.lock().is_open()
    }

    /// Records a decision on a client's message.
    pub(crate) fn succeeded(&self, client: CircuitClient) {
        self.circuit(client).lock().succeeded();
        if self.is_healthy() {
            self.outcomes.success();
        }
    }

    /// Tests connection and negotiation, within a time limit, while no session does.
    pub async fn probe(&self, limit: Duration) {
        match tokio::time::timeout(limit, Connection::open(&self.settings)).await {
            Ok(Ok(mut connection)) => {
                connection.session.quit();
                connection.write_now();
                self.trusted.lock().connected();
                self.untrusted.lock().connected();
                if self.is_healthy() { self.outcomes.success() } else { self.outcomes.probed() }
            }
            Ok(Err(failed)) => self.outcomes.failure(failed.why),
            Err(_) => self.outcomes.failure(format_args!("no answer in {} s", limit.as_secs_f64())),
        }
    }

    /// The action for the last failure on trusted clients' mail, else on untrusted clients'.
    pub fn failure_action(&self) -> OnFailure {
        let trusted = self.trusted.lock().last_failure();
        let last = trusted.or_else(|| self.untrusted.lock().last_failure());
        // Without either, only a probe has failed.
        self.settings.action(last.unwrap_or(FailureKind::Unreachable))
    }

    /// Counts and logs a failure in a client's session. Failures on untrusted mail do not count as bad health until
    /// they begin a pause: otherwise anybody could make load balancers avoid this server.
    pub(crate) fn failed(&self, client: CircuitClient, failed: &MilterFailure) {
        self.counters.count(failed.failure.into());
        if failed.is_untried {
            return;
        }
        let (pause, is_open) = {
            let mut circuit = self.circuit(client).lock();
            (circuit.failed(client.address, failed, Instant::now()), circuit.is_open())
        };
        if client.is_trusted || is_open {
            self.outcomes.failure(&failed.why);
        }
        let clients = if client.is_trusted { "trusted" } else { "untrusted" };
        let paused = pause
            .map_or_else(String::new, |pause| format!("; not used for {} s by {clients} clients", pause.as_secs()));
        tracing::warn!(milter = %self.settings.name, client = %client.address, "milter failed: {}{paused}", failed.why);
    }

    /// Logs that it got only a part of an event of a client.
    pub(crate) fn log_shortened(&self, client: CircuitClient, event: &str) {
        let now = Instant::now();
        let mut last = self.shortened.lock();
        if last.is_none_or(|last| now.duration_since(last) >= SHORTENED_INTERVAL) {
            *last = Some(now);
            drop(last);
            tracing::warn!(
                milter = %self.settings.name, client = %client.address,
                "{event} or its macros exceed the {DATA_BYTES_MAX} octets of a milter packet; the milter gets only a part"
            );
        }
    }

    /// Tests whether it can be reached and speaks the protocol, for `check`.
    ///
    /// # Errors
    /// The reason, and the action on mail meanwhile.
    pub async fn try_out(settings: &MilterSettings) -> Result<(), (String, OnFailure)> {
        let opened = Connection::open(settings).await;
        let mut connection = opened.map_err(|failed| (failed.why, settings.action(failed.failure)))?;
        connection.session.quit();
        connection.write_now();
        Ok(())
    }
}
