//! Sends spans to the collector in batches; a failed batch is retried a few times, then dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_http_client::Url;
use tokio::sync::mpsc;

use super::span::{Span, request};
use crate::client::{PushClient, PushRequest};

/// Maximum spans in one request.
const BATCH_MAX: usize = 512;
/// Maximum time to fill a batch.
const BATCH_WAIT: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts per batch, with a pause that doubles.
const TRIES: u32 = 4;
const PAUSE_MIN: Duration = Duration::from_secs(1);

pub(super) struct Exporter {
    pub core: Arc<Core>,
    pub client: Arc<PushClient>,
    pub hostname: String,
}

impl Exporter {
    /// Exports spans to the collector until the last sender is dropped.
    pub async fn run(self, endpoint: Url, mut spans: mpsc::Receiver<Span>) {
        let url = match endpoint.join("/v1/traces") {
            Ok(url) => url,
            Err(why) => {
                tracing::error!(%endpoint, why, "spans cannot be sent");
                return;
            }
        };
        let mut is_failing = false;
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
            if batch.len() < BATCH_MAX {
                tokio::time::sleep(BATCH_WAIT).await;
                while batch.len() < BATCH_MAX
                    && let Ok(span) = spans.try_recv()
                {
                    batch.push(span);
                }
            }
            let body = Bytes::from(request(&self.hostname, &batch).to_string());
            match self.send(&url, &body).await {
                Ok(()) => is_failing = false,
                Err(why) => {
                    self.core.limits.hit_times(Limit::TraceQueue, batch.len() as u64, self.core.clock.now());
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(%url, why, "the collector does not accept spans");
                    }
                }
            }
            batch.clear();
        }
    }

    async fn send(&self, url: &Url, body: &Bytes) -> Result<(), String> {
        let mut pause = PAUSE_MIN;
        let mut why = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let request = PushRequest { url, addresses: None, headers, body: body.clone(), timeout: TIMEOUT };
            match self.client.send(request).await {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(()),
                // Temporary errors (OTLP specification, retryable response codes).
                Ok(answer) if matches!(answer.status, 429 | 502 | 503 | 504) => {
                    why = format!("it answered {}", answer.status);
                }
                Ok(answer) => return Err(format!("it answered {}", answer.status)),
                Err(error) => why = error,
            }
        }
        Err(why)
    }
}
