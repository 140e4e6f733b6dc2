//! Counts clients' failed TLS handshakes by cause, and logs them.
//!
//! Promise: any client can cause failures at will, so each cause is logged at most once in ten seconds
//! ([`LogLimiter`]), with the number of failures and the last client. Memory is one row per cause.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_records::log_limiter::LogLimiter;
use stentor_tls::TlsError;

struct Row {
    seldom: LogLimiter,
    /// Client of the last failure.
    client: IpAddr,
    why: Box<str>,
}

impl Row {
    fn log(&self, cause: &str, now: Ms) {
        if let Some(times) = self.seldom.due(now) {
            let (client, error) = (self.client, &self.why);
            tracing::info!(%client, cause, times, %error, "a client's TLS handshake failed");
        }
    }
}

/// Failed handshakes by the cause's keyword.
#[derive(Default)]
pub struct FailedHandshakes(Mutex<BTreeMap<&'static str, Row>>);

impl FailedHandshakes {
    /// Counts a failed handshake of a client.
    pub fn failed(&self, client: IpAddr, error: &TlsError, now: Ms) {
        let (cause, why) = (error.cause.key(), error.text.clone());
        let mut rows = self.0.lock();
        let row = rows.entry(cause).or_insert_with(|| Row { seldom: LogLimiter::default(), client, why: why.clone() });
        (row.client, row.why) = (client, why);
        row.seldom.count(1);
        row.log(cause, now);
    }

    /// Logs pending counts, if the last line was long enough ago.
    pub fn log_all(&self, now: Ms) {
        for (cause, row) in &*self.0.lock() {
            row.log(cause, now);
        }
    }

    /// Returns the failures since the server started, by cause.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(cause, row)| (*cause, row.seldom.times())).collect()
    }
}
