//! The task of one endpoint.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_core::live::health::{ConditionTexts, Name};
use stentor_history::{Position, Reader};

use super::{BACKOFF_MAX, BACKOFF_MIN, State, WebhookConfig, event, open, position, signature};
use crate::client::{PushClient, PushRequest};

/// Interval of checks for new records.
const POLL: Duration = Duration::from_millis(500);
/// Write interval for a position that only skipped unwanted records.
const IDLE_WRITE: Duration = Duration::from_secs(10);
/// Maximum records scanned at once.
const SCAN_MAX: usize = 50_000;
/// Maximum octets of events in one batch.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum accepted Retry-After.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

pub(super) struct Sender {
    pub core: Arc<Core>,
    pub client: Arc<PushClient>,
    pub config: WebhookConfig,
    pub hostname: String,
    pub state: Arc<State>,
    /// Where the position is stored.
    pub path: PathBuf,
    /// Events that the history dropped and that were not yet reported to the endpoint.
    pub lost: u64,
}

/// The result of one scan.
struct Batch {
    events: Vec<Value>,
    next: Position,
    /// Whether the scan reached the end.
    is_end: bool,
}

impl Sender {
    /// Runs until the runtime or the endpoint ends.
    pub async fn run(mut self, history: PathBuf) {
        let reader = loop {
            if let Some(reader) = open(&history) {
                break reader;
            }
            tokio::time::sleep(POLL).await;
        };
        let mut at = match position::read(&self.path) {
            Some(at) => at,
            // A new endpoint starts at the present end.
            None => self.begin(&reader).await,
        };
        self.is_at(at);
        let mut written = tokio::time::Instant::now();
        loop {
            let Some(mut batch) = self.read(&reader, at).await else {
                tokio::time::sleep(POLL).await;
                continue;
            };
            let is_whole = batch.events.len() >= self.config.batch_max || !batch.is_end;
            if batch.events.is_empty() {
                at = batch.next;
                self.is_at(at);
                if written.elapsed() > IDLE_WRITE {
                    self.keep(at).await;
                    written = tokio::time::Instant::now();
                }
                if batch.is_end {
                    tokio::time::sleep(POLL).await;
                }
                continue;
            }
            if !is_whole && self.config.batch_wait_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.config.batch_wait_ms)).await;
                batch = self.read(&reader, at).await.unwrap_or(batch);
            }
            if !self.deliver(&batch).await {
                return;
            }
            at = batch.next;
            self.is_at(at);
            self.keep(at).await;
            written = tokio::time::Instant::now();
        }
    }

    /// Records that everything before this position was accepted or skipped.
    fn is_at(&self, at: Position) {
        self.state.position.store(at.record, Ordering::Relaxed);
    }

    async fn begin(&self, reader: &Reader) -> Position {
        let reader = reader.clone();
        let end = tokio::task::spawn_blocking(move || reader.end()).await;
        let at = end.ok().and_then(Result::ok).unwrap_or(Position::OLDEST);
        self.keep(at).await;
        at
    }

    async fn keep(&self, at: Position) {
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || position::write(&path, at)).await;
        if let Ok(Err(error)) = written {
            // Accepted events will be sent again after a restart.
            tracing::error!(webhook = self.config.name, %error, "the position could not be written");
        }
    }

    /// Reads the next events from a position.
    async fn read(&mut self, reader: &Reader, at: Position) -> Option<Batch> {
        let (reader, config) = (reader.clone(), self.config.clone());
        let read = tokio::task::spawn_blocking(move || {
            let (mut events, mut bytes, mut scanned) = (Vec::new(), 0, 0);
            let mut is_end = true;
            let followed = reader.follow(at, &mut |record, next| {
                scanned += 1;
                if let Some(event) = event::event(&config, record, next) {
                    // About its size as text.
                    bytes += 256
                        + event["reply"].as_str().map_or(0, str::len)
                        + 64 * event["recipients"].as_array().map_or(0, Vec::len);
                    events.push(event);
                }
                if events.len() >= config.batch_max || bytes >= BATCH_BYTES_MAX || scanned >= SCAN_MAX {
                    is_end = false;
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            std::io::Result::Ok((Batch { events, next: followed.next, is_end }, followed.lost))
        });
        match read.await {
            Ok(Ok((batch, lost))) => {
                if lost > self.lost {
                    let more = lost - self.lost;
                    self.lost = lost;
                    self.state.lost.fetch_add(more, Ordering::Relaxed);
                    self.core.limits.hit_times(Limit::WebhookBacklog, more, self.core.clock.now());
                }
                Some(batch)
            }
            Ok(Err(error)) => {
                tracing::warn!(webhook = self.config.name, %error, "the history cannot be read");
                None
            }
            Err(_) => None,
        }
    }

    /// Sends a batch until it is accepted; `false` if the endpoint is gone for good.
    async fn deliver(&mut self, batch: &Batch) -> bool {
        let mut backoff = BACKOFF_MIN;
        for attempt in 1_u64.. {
            let wait = match self.post(batch, attempt).await {
                Ok(()) => {
                    self.state.events.fetch_add(batch.events.len() as u64, Ordering::Relaxed);
                    self.state.batches.fetch_add(1, Ordering::Relaxed);
                    let mut last = self.state.last.lock();
                    if last.failing_since.take().is_some() {
                        tracing::info!(webhook = self.config.name, attempt, "the webhook accepts events again");
                    }
                    self.core.live.health.report(Name::Webhook, &self.config.name, None);
                    last.success = Some(self.core.clock.now());
                    last.error.clear();
                    self.lost = 0;
                    return true;
                }
                Err(refused) => refused,
            };
            let (why, is_gone, retry_after) = wait;
            self.state.failures.fetch_add(1, Ordering::Relaxed);
            let is_first = {
                let mut last = self.state.last.lock();
                last.error.clone_from(&why);
                let is_first = last.failing_since.is_none();
                last.failing_since.get_or_insert(self.core.clock.now());
                is_first
            };
            let next = "check the endpoint; events are resent automatically while the history keeps them";
            let what = format!("webhook {} does not accept events: {why}", self.config.name);
            self.core.live.health.report(Name::Webhook, &self.config.name, Some(ConditionTexts::new(what, next)));
            if is_gone {
                self.state.is_enabled.store(false, Ordering::Relaxed);
                tracing::error!(
                    webhook = self.config.name,
                    why,
                    "the webhook answered 410; disabled until the server restarts"
                );
                return false;
            }
            if is_first {
                tracing::warn!(webhook = self.config.name, why, "the webhook does not accept events; will retry");
            }
            // Between half and all of it, so that many servers do not return at once.
            let jittered = backoff.mul_f32(0.5 + fastrand::f32() / 2.0);
            tokio::time::sleep(jittered.max(retry_after.min(RETRY_AFTER_MAX))).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
        true
    }

    async fn post(&self, batch: &Batch, attempt: u64) -> Result<(), (String, bool, Duration)> {
        let now = self.core.clock.now();
        let mut body = json!({
            "webhook": self.config.name,
            "hostname": self.hostname,
            "sent_at": now,
            "attempt": attempt,
            "events": batch.events,
        });
        if self.lost > 0 {
            body["lost"] = self.lost.into();
        }
        let body = Bytes::from(body.to_string());
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, value(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
        headers.insert("stentor-webhook", value(&self.config.name));
        headers.insert("stentor-signature", value(&signature(&self.config.secret, now / 1000, &body)));
        let timeout = Duration::from_millis(self.config.timeout_ms);
        let request = PushRequest { url: &self.config.url, addresses: None, headers, body, timeout };
        match self.client.send(request).await {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
            Ok(answer) => {
                let retry_after = Duration::from_secs(answer.retry_after_s.unwrap_or(0));
                Err((format!("it answered {}", answer.status), answer.status == 410, retry_after))
            }
            Err(why) => Err((why, false, Duration::ZERO)),
        }
    }
}
