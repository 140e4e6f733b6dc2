//! The task of one endpoint.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use stentor_config::WebhookFormat;
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_core::live::health::{ConditionTexts, Name};
use stentor_history::{Position, Reader};

use super::request_size::{FailureCause, FailureStep, REFUSALS_MAX, RequestSize};
use super::{BACKOFF_MAX, BACKOFF_MIN, State, WebhookConfig, event, listmonk, open, position, signature};
use crate::client::{PushClient, PushRequest};

/// Interval of checks for new records.
const POLL: Duration = Duration::from_millis(500);
/// Write interval for a position that only skipped unwanted records.
const IDLE_WRITE: Duration = Duration::from_secs(10);
/// Maximum records scanned at once.
const SCAN_MAX: usize = 50_000;
/// Maximum octets of events in one batch.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Octets read of a file with the value of `Authorization`.
const AUTHORIZATION_BYTES_MAX: u64 = 4096;
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
    /// Events dropped after refusals and not yet reported to the endpoint.
    pub dropped: u64,
    pub size: RequestSize,
    /// The endpoint refused a request without events.
    pub refuses_all: bool,
    /// The pause after the next failure, before jitter.
    pub backoff: Duration,
}

/// What follows a request.
enum DeliveryStep {
    /// The events were accepted or dropped.
    Next,
    /// Another request after this pause.
    Again(Duration),
    /// The endpoint wants no more events.
    End,
}

/// A request that was not accepted, or got no answer.
struct RequestFailure {
    why: String,
    cause: FailureCause,
    retry_after: Duration,
}

/// The result of one scan.
struct Batch {
    events: Vec<Value>,
    /// The position after each event.
    ends: Vec<Position>,
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
        let (reader, config, settings) = (reader.clone(), self.config.clone(), self.core.settings());
        let read = tokio::task::spawn_blocking(move || {
            let (mut events, mut ends, mut bytes, mut scanned) = (Vec::new(), Vec::new(), 0, 0);
            let mut is_end = true;
            let followed = reader.follow(at, &mut |record, next| {
                scanned += 1;
                let event = match config.format {
                    WebhookFormat::Events => event::event(&config, record, next),
                    WebhookFormat::Listmonk => listmonk::event(&config, settings.bounce_rules(), record, next),
                };
                if let Some(event) = event {
                    // About its size as text.
                    bytes += 256
                        + event["reply"].as_str().map_or(0, str::len)
                        + 64 * event["recipients"].as_array().map_or(0, Vec::len);
                    events.push(event);
                    ends.push(next);
                }
                if events.len() >= config.batch_max || bytes >= BATCH_BYTES_MAX || scanned >= SCAN_MAX {
                    is_end = false;
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            std::io::Result::Ok((Batch { events, ends, next: followed.next, is_end }, followed.lost))
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

    /// Sends a batch until all of it is accepted or dropped; `false` if the endpoint is gone for good.
    async fn deliver(&mut self, batch: &Batch) -> bool {
        let (mut from, mut attempt) = (0, 1);
        while from < batch.events.len() {
            let to = (from + self.size.events_max()).min(batch.events.len());
            let events = &batch.events[from..to];
            let step = match self.post(events, attempt).await {
                Ok(()) => {
                    self.record_acceptance(events.len(), attempt);
                    DeliveryStep::Next
                }
                Err(failure) => self.handle_failure(events, &failure).await,
            };
            match step {
                DeliveryStep::Again(pause) => {
                    attempt += 1;
                    tokio::time::sleep(pause).await;
                }
                DeliveryStep::Next => {
                    (from, attempt, self.backoff) = (to, 1, BACKOFF_MIN);
                    // The caller stores the position after the last one.
                    if to < batch.events.len() {
                        self.is_at(batch.ends[to - 1]);
                        self.keep(batch.ends[to - 1]).await;
                    }
                }
                DeliveryStep::End => return false,
            }
        }
        true
    }

    fn record_acceptance(&mut self, events: usize, attempt: u64) {
        self.state.events.fetch_add(events as u64, Ordering::Relaxed);
        self.state.batches.fetch_add(1, Ordering::Relaxed);
        self.size.after_acceptance();
        (self.lost, self.dropped, self.refuses_all) = (0, 0, false);
        self.state.last.lock().success = Some(self.core.clock.now());
        if self.clear_failure() {
            tracing::info!(webhook = self.config.name, attempt, "the webhook accepts events again");
        }
    }

    /// Ends the current failure. Returns whether there was one.
    fn clear_failure(&self) -> bool {
        self.core.live.health.report(Name::Webhook, &self.config.name, None);
        let mut last = self.state.last.lock();
        last.error.clear();
        last.failing_since.take().is_some()
    }

    /// Records or logs a failed request and returns the next step.
    async fn handle_failure(&mut self, events: &[Value], failure: &RequestFailure) -> DeliveryStep {
        self.state.failures.fetch_add(1, Ordering::Relaxed);
        let why = &failure.why;
        let retry_after = failure.retry_after.min(RETRY_AFTER_MAX);
        let was_reduced = self.size.is_reduced();
        if failure.cause == FailureCause::Gone {
            self.record_failure(failure);
            self.state.is_enabled.store(false, Ordering::Relaxed);
            let webhook = &self.config.name;
            tracing::error!(webhook, why, "the webhook answered 410; disabled until the server restarts");
            return DeliveryStep::End;
        }
        let mut step = self.size.after_failure(failure.cause, events.len());
        if step == FailureStep::Probe {
            step = self.probe().await;
        }
        let webhook = &self.config.name;
        match step {
            FailureStep::Halve => {
                if !was_reduced {
                    let count = events.len();
                    tracing::warn!(webhook, why, events = count, "the webhook refused a batch; sending smaller ones");
                }
                DeliveryStep::Again(retry_after)
            }
            FailureStep::Retry | FailureStep::Probe => {
                if self.record_failure(failure) {
                    tracing::warn!(webhook, why, "the webhook does not accept events; will retry");
                }
                // Between half and all of it, so that many servers do not return at once.
                let jittered = self.backoff.mul_f32(0.5 + fastrand::f32() / 2.0);
                self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
                DeliveryStep::Again(jittered.max(retry_after))
            }
            FailureStep::Drop => {
                self.drop_event(&events[0], why);
                DeliveryStep::Next
            }
        }
    }

    /// Sends a request without events, to see whether the endpoint refuses this event or everything.
    async fn probe(&mut self) -> FailureStep {
        let cause = self.post(&[], 1).await.err().map(|failure| failure.cause);
        if cause.is_none() {
            // It has reported the losses.
            (self.lost, self.dropped) = (0, 0);
        }
        self.refuses_all = cause == Some(FailureCause::Ambiguous);
        match cause {
            // Any other answer about the events comes from behind the firewall: it dislikes only their absence.
            None | Some(FailureCause::Events) => FailureStep::Drop,
            Some(_) => FailureStep::Retry,
        }
    }

    /// Logs and counts an event that was refused too often. The endpoint's failure ends with it.
    fn drop_event(&mut self, event: &Value, why: &str) {
        let (id, message) = (event["id"].as_str(), event["message"].as_str());
        let webhook = &self.config.name;
        tracing::error!(
            webhook,
            event = id,
            message,
            why,
            "the webhook refused this event {REFUSALS_MAX} times; dropped"
        );
        self.dropped += 1;
        self.state.lost.fetch_add(1, Ordering::Relaxed);
        self.clear_failure();
    }

    /// Records a failure. Returns whether a period of failure begins.
    fn record_failure(&self, failure: &RequestFailure) -> bool {
        let why = &failure.why;
        let next = match failure.cause {
            FailureCause::Events => format!(
                "check why the endpoint refuses this event; it is dropped after {REFUSALS_MAX} refusals \
                 (docs/operate/webhooks.md)"
            ),
            FailureCause::Ambiguous if !self.refuses_all => format!(
                "check the endpoint's access rules and this event; after {REFUSALS_MAX} refusals it is dropped, unless \
                 the endpoint refuses an empty request too (docs/operate/webhooks.md)"
            ),
            FailureCause::Ambiguous => {
                "an empty request was not accepted either: check the endpoint's access rules, the URL and the secret; \
                 events are resent automatically while the history keeps them"
                    .to_owned()
            }
            FailureCause::Gone => {
                "correct the endpoint, then restart the server; or remove the webhook from the configuration".to_owned()
            }
            FailureCause::NoAuthorization => {
                let file = self.config.authorization_file.as_deref().unwrap_or(Path::new(""));
                format!(
                    "mend the file {}, which the server's user must be able to read; events are resent automatically while \
                     the history keeps them",
                    file.display()
                )
            }
            FailureCause::Temporary => {
                "check the endpoint; events are resent automatically while the history keeps them".to_owned()
            }
        };
        let what = match failure.cause {
            FailureCause::NoAuthorization => format!("webhook {} cannot be sent events: {why}", self.config.name),
            _ => format!("webhook {} does not accept events: {why}", self.config.name),
        };
        self.core.live.health.report(Name::Webhook, &self.config.name, Some(ConditionTexts::new(what, next)));
        let mut last = self.state.last.lock();
        why.clone_into(&mut last.error);
        let is_first = last.failing_since.is_none();
        last.failing_since.get_or_insert(self.core.clock.now());
        is_first
    }

    async fn post(&self, events: &[Value], attempt: u64) -> Result<(), RequestFailure> {
        let now = self.core.clock.now();
        let mut body = json!({
            "webhook": self.config.name,
            "hostname": self.hostname,
            "sent_at": now,
            "attempt": attempt,
            "events": events,
        });
        if self.lost + self.dropped > 0 {
            body["lost"] = (self.lost + self.dropped).into();
        }
        if self.config.format == WebhookFormat::Listmonk {
            // One event; none to see whether listmonk refuses everything.
            body = events.first().map_or_else(|| json!({}), |event| event["body"].clone());
        }
        let body = Bytes::from(body.to_string());
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, value(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
        headers.insert("stentor-webhook", value(&self.config.name));
        if !self.config.secret.is_empty() {
            headers.insert("stentor-signature", value(&signature(&self.config.secret, now / 1000, &body)));
        }
        if let Some(path) = self.config.authorization_file.clone() {
            headers.insert(header::AUTHORIZATION, authorization(path).await?);
        }
        let timeout = Duration::from_millis(self.config.timeout_ms);
        let request = PushRequest { url: &self.config.url, addresses: None, headers, body, timeout };
        match self.client.send(request).await {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
            Ok(answer) => {
                let retry_after = Duration::from_secs(answer.retry_after_s.unwrap_or(0));
                let cause = FailureCause::of_status(answer.status);
                Err(RequestFailure { why: format!("it answered {}", answer.status), cause, retry_after })
            }
            Err(why) => Err(RequestFailure { why, cause: FailureCause::Temporary, retry_after: Duration::ZERO }),
        }
    }
}

/// Reads the value of `Authorization`. It is read for each request, so that it can be replaced.
async fn authorization(path: PathBuf) -> Result<HeaderValue, RequestFailure> {
    let file = path.clone();
    let value = tokio::task::spawn_blocking(move || read_authorization(&file)).await;
    let value = value.unwrap_or_else(|error| Err(io::Error::other(error)));
    value.map_err(|error| {
        let why = format!("authorization_file {}: {error}", path.display());
        RequestFailure { why, cause: FailureCause::NoAuthorization, retry_after: Duration::ZERO }
    })
}

fn read_authorization(path: &Path) -> io::Result<HeaderValue> {
    let mut text = String::new();
    File::open(path)?.take(AUTHORIZATION_BYTES_MAX).read_to_string(&mut text)?;
    let mut value = HeaderValue::from_str(text.trim()).map_err(io::Error::other)?;
    if value.is_empty() {
        return Err(io::Error::other("it is empty; write the value of the header field, such as `token USER:TOKEN`"));
    }
    value.set_sensitive(true);
    Ok(value)
}
