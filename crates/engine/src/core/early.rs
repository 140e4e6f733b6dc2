//! Clients that were sent away since they spoke before the greeting: counted, and logged.
//!
//! Promise: anybody can be one at will, so there is at most one line in ten seconds ([`Seldom`]), with how many there were and the last.

use std::net::IpAddr;

use parking_lot::Mutex;
use stentor_queue::ids::Ms;
use stentor_stats::seldom::Seldom;

/// See the module's documentation.
#[derive(Default)]
pub struct EarlyTalkers {
    seldom: Seldom,
    last: Mutex<Option<IpAddr>>,
}

impl EarlyTalkers {
    /// One has been sent away.
    pub fn sent_away(&self, client: IpAddr, now: Ms) {
        *self.last.lock() = Some(client);
        self.seldom.count(1);
        self.log(now);
    }

    /// Logs what was not logged, where the last line was long enough ago.
    pub fn log(&self, now: Ms) {
        if let Some(times) = self.seldom.due(now)
            && let Some(client) = *self.last.lock()
        {
            tracing::info!(%client, times, "a client that spoke before the greeting was sent away with 554");
        }
    }
}
