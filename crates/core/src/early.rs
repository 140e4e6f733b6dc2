//! Counts and logs clients that were disconnected because they spoke before the greeting.
//!
//! Promise: any client can do this at will, so at most one line is logged in ten seconds ([`LogLimiter`]), with the
//! number of such clients and the last one.

use std::net::IpAddr;

use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_records::log_limiter::LogLimiter;

/// Counter of early talkers; see the module documentation.
#[derive(Default)]
pub struct EarlyTalkers {
    seldom: LogLimiter,
    last: Mutex<Option<IpAddr>>,
}

impl EarlyTalkers {
    /// Counts a client that was disconnected.
    pub fn sent_away(&self, client: IpAddr, now: Ms) {
        *self.last.lock() = Some(client);
        self.seldom.count(1);
        self.log(now);
    }

    /// Logs pending counts, if the last line was long enough ago.
    pub fn log(&self, now: Ms) {
        if let Some(times) = self.seldom.due(now)
            && let Some(client) = *self.last.lock()
        {
            tracing::info!(%client, times, "refused an early talker with 554");
        }
    }
}
