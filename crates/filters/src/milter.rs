//! One milter: its settings, the connections that wait for a session, whether it is left alone, and what is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stentor_milter::{Failure, MilterSettings};
use tokio::time::Instant;

use crate::circuit::Circuit;
use crate::connection::{Connection, Failed};

/// Connections that wait for a session, and how long each does.
const IDLE_MAX: usize = 32;
const IDLE_TIME: Duration = Duration::from_secs(20);

/// What became of messages and recipients, by their names in [`Counters::read`].
pub const COUNTED: [&str; 9] =
    ["accept", "reject", "tempfail", "discard", "quarantine", "change", "unreachable", "timeout", "error"];

#[derive(Debug, Default)]
pub struct Counters([AtomicU64; COUNTED.len()]);

impl Counters {
    pub(crate) fn count(&self, name: &str) {
        if let Some(at) = COUNTED.iter().position(|known| *known == name) {
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each with its name.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTED.into_iter().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

pub struct Milter {
    pub settings: MilterSettings,
    pub counters: Counters,
    circuit: Mutex<Circuit>,
    idle: Mutex<Vec<(Instant, Connection)>>,
    /// A task closes those that wait too long.
    has_reaper: AtomicBool,
}

impl Milter {
    pub fn new(settings: MilterSettings) -> Milter {
        Milter {
            settings,
            counters: Counters::default(),
            circuit: Mutex::default(),
            idle: Mutex::default(),
            has_reaper: AtomicBool::new(false),
        }
    }

    pub(crate) fn command_limit(&self) -> Duration {
        Duration::from_millis(self.settings.command_timeout_ms)
    }

    pub(crate) fn content_limit(&self) -> Duration {
        Duration::from_millis(self.settings.content_timeout_ms)
    }

    /// A connection to it, which may have served another session.
    pub(crate) async fn connect(&self) -> Result<Connection, Failed> {
        if !self.circuit.lock().admits(Instant::now()) {
            return Err(Failed::untried());
        }
        if let Some(connection) = self.take_idle() {
            return Ok(connection);
        }
        let connection = Connection::open(&self.settings).await?;
        self.circuit.lock().connected();
        Ok(connection)
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

    /// The session ends: the connection waits for another, or is closed.
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

    /// Closes those that wait too long, as long as there are any.
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
                    // Under the lock: who gives one back later starts another.
                    milter.has_reaper.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    /// It has answered for a message.
    pub(crate) fn succeeded(&self) {
        self.circuit.lock().succeeded();
    }

    /// Counts and logs a failure.
    pub(crate) fn failed(&self, failed: &Failed) {
        let name = match failed.failure {
            Failure::Unreachable => "unreachable",
            Failure::Timeout => "timeout",
            Failure::Broken => "error",
        };
        self.counters.count(name);
        if failed.is_untried {
            return;
        }
        let pause = self.circuit.lock().failed(failed.failure, Instant::now());
        let paused = pause.map_or_else(String::new, |pause| format!("; not asked for {} s", pause.as_secs()));
        tracing::warn!(milter = %self.settings.name, "milter failed: {}{paused}", failed.why);
    }

    /// Whether it can be reached and speaks the protocol, for `check`.
    ///
    /// # Errors
    /// Why not.
    pub async fn try_out(settings: &MilterSettings) -> Result<(), String> {
        let mut connection = Connection::open(settings).await.map_err(|failed| failed.why)?;
        connection.session.quit();
        connection.write_now();
        Ok(())
    }
}
