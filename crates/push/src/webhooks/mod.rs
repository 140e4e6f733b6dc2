//! Webhooks: outcomes of mail, posted to HTTP endpoints as they happen.
//!
//! Promise: every event of the history that an endpoint selected and accepts reaches it at least once, in order, with
//! an id that stays the same when repeated. Events count as delivered when the endpoint answers 2xx; only then is the
//! position after them written (atomically, synced). A slow or unreachable endpoint delays no other: each has its own
//! task and position, and its pending events are in the history's files, not in memory.
//!
//! States of an endpoint: reading -> gathering (`batch_wait_ms`) -> posting -> advanced, or waiting (the back-off
//! doubles up to [`BACKOFF_MAX`]) and posting the same again. A refusal that may be about the events halves the request
//! ([`request_size`]). 410 stops it until the next start. If the history was truncated past an endpoint's position, or
//! an event was refused too often by an endpoint that accepts others, it loses events: counted, logged, and reported in
//! the next request as `lost`.

mod event;
mod listmonk;
mod position;
mod request_size;
mod sender;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use stentor_config::WebhookConfig;
use stentor_core::Core;
use stentor_history::Reader;
use stentor_queue::ids::Ms;

pub use self::event::signature;

use self::request_size::RequestSize;
use self::sender::Sender;
use crate::client::PushClient;

/// The first wait after a failure, and the longest.
pub const BACKOFF_MIN: Duration = Duration::from_secs(1);
pub const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// State of one endpoint.
#[derive(Default)]
pub struct State {
    pub name: String,
    pub lists: Vec<String>,
    pub senders: Vec<String>,
    /// Name of the format.
    pub format: &'static str,
    pub is_enabled: AtomicBool,
    /// Events that the endpoint accepted.
    pub events: AtomicU64,
    pub batches: AtomicU64,
    pub failures: AtomicU64,
    /// The number of the first history record that it has not accepted; [`UNKNOWN`] until its task starts.
    pub position: AtomicU64,
    /// Events deleted from the history before they were sent, or dropped after the endpoint refused them.
    pub lost: AtomicU64,
    pub last: Mutex<LastResponses>,
}

/// There is no position yet.
const UNKNOWN: u64 = u64::MAX;
/// Interval of reading the history's end, for the endpoints' backlogs.
const END_EVERY: Duration = Duration::from_secs(1);

/// The last responses of an endpoint.
#[derive(Clone, Default)]
pub struct LastResponses {
    pub success: Option<Ms>,
    /// Start and reason of the current failure; empty if there is none.
    pub failing_since: Option<Ms>,
    pub error: String,
}

/// An endpoint as shown to operators.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct WebhookView {
    /// Name of the endpoint.
    pub name: String,
    /// Lists whose events it gets; events of all mail without `lists` and `senders`.
    pub lists: Vec<String>,
    /// Domains of envelope senders whose events it gets.
    pub senders: Vec<String>,
    /// Form of the requests: `events` or `listmonk`.
    pub format: String,
    /// Events are sent to it.
    pub enabled: bool,
    /// Events accepted by the endpoint.
    pub events: u64,
    /// Requests accepted by the endpoint.
    pub batches: u64,
    /// Requests not accepted by the endpoint.
    pub failures: u64,
    /// History records not yet sent to the endpoint.
    pub lag_records: u64,
    /// Events deleted from the history before they were sent, or dropped after the endpoint refused them.
    pub lost: u64,
    /// When the endpoint last accepted a request.
    pub last_success: Option<Ms>,
    /// When the current failure began; null if there is none.
    pub failing_since: Option<Ms>,
    /// Its reason; empty if there is none.
    pub last_error: String,
}

/// All endpoints.
#[derive(Default)]
pub struct Registry {
    all: RwLock<Vec<Arc<State>>>,
    /// The number of the history's next record.
    end: AtomicU64,
}

impl Registry {
    pub fn all(&self) -> Vec<Arc<State>> {
        self.all.read().clone()
    }

    /// Endpoints that receive or accept nothing, each with the reason.
    pub fn troubled(&self) -> Vec<String> {
        let trouble = |view: &WebhookView| match (view.enabled, view.failing_since) {
            (false, _) if view.last_error.is_empty() => Some(format!("{}: disabled", view.name)),
            (false, _) => Some(format!("{}: disabled, {}", view.name, view.last_error)),
            (true, Some(_)) => Some(format!("{}: {}, {} records behind", view.name, view.last_error, view.lag_records)),
            (true, None) => None,
        };
        self.views().iter().filter_map(trouble).collect()
    }

    pub fn views(&self) -> Vec<WebhookView> {
        let end = self.end.load(Ordering::Relaxed);
        self.all.read().iter().map(|state| state.view(end)).collect()
    }

    /// Follows the history's end until the runtime ends: a failing endpoint reads nothing, but its backlog grows.
    async fn follow_end(self: Arc<Self>, history: std::path::PathBuf) {
        let mut reader = None;
        loop {
            reader = reader.or_else(|| open(&history));
            if let Some(reader) = reader.clone()
                && let Ok(Ok(end)) = tokio::task::spawn_blocking(move || reader.end()).await
            {
                self.end.store(end.record, Ordering::Relaxed);
            }
            tokio::time::sleep(END_EVERY).await;
        }
    }
}

impl State {
    fn new(config: &WebhookConfig) -> State {
        let position = UNKNOWN.into();
        State {
            name: config.name.clone(),
            lists: config.lists.clone(),
            senders: config.senders.clone(),
            format: config.format.name(),
            is_enabled: config.enabled.into(),
            position,
            ..State::default()
        }
    }

    /// Number of history records up to `end` that it has not accepted.
    fn lag(&self, end: u64) -> u64 {
        match self.position.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            position => end.saturating_sub(position),
        }
    }

    fn view(&self, end: u64) -> WebhookView {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let last = self.last.lock().clone();
        WebhookView {
            name: self.name.clone(),
            lists: self.lists.clone(),
            senders: self.senders.clone(),
            format: self.format.to_owned(),
            enabled: self.is_enabled.load(Ordering::Relaxed),
            events: read(&self.events),
            batches: read(&self.batches),
            failures: read(&self.failures),
            lag_records: self.lag(end),
            lost: read(&self.lost),
            last_success: last.success,
            failing_since: last.failing_since,
            last_error: last.error,
        }
    }
}

/// Starts a task for each configured endpoint; they end with the runtime.
pub(crate) fn start(core: &Arc<Core>, client: &Arc<PushClient>) -> Arc<Registry> {
    let registry = Arc::new(Registry::default());
    let settings = core.settings();
    let folder = settings.config.data_dir.join("webhooks");
    let history = settings.config.data_dir.join("history");
    for config in &settings.config.webhooks {
        let state = Arc::new(State::new(config));
        registry.all.write().push(state.clone());
        if config.enabled {
            let hostname = settings.config.hostname.clone();
            let (core, client, config) = (core.clone(), client.clone(), config.clone());
            let path = folder.join(format!("{}.position", config.name));
            let (size, backoff) = (RequestSize::new(config.batch_max), BACKOFF_MIN);
            let (lost, dropped, refuses_all) = (0, 0, false);
            let sender =
                Sender { core, client, config, hostname, state, path, lost, dropped, size, refuses_all, backoff };
            tokio::spawn(sender.run(history.clone()));
        } else {
            tracing::warn!(webhook = config.name, "the webhook is disabled");
        }
    }
    if settings.config.webhooks.iter().any(|config| config.enabled) {
        tokio::spawn(registry.clone().follow_end(history));
    }
    registry
}

/// Opens the history; its directory is missing until the first record.
fn open(folder: &Path) -> Option<Reader> {
    Reader::open(folder).ok()
}
