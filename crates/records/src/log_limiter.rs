//! Rate limit for log lines about events that others can cause at will.
//!
//! Promise: the first line is due at once, then at most one every [`INTERVAL_MS`], with the number of events since the
//! previous line. So an attacker cannot fill the disk with them. Counting costs an atomic addition.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::Ms;

/// Minimum time between two lines about the same event.
pub const INTERVAL_MS: Ms = 10_000;

/// Number of events, and the number that has been logged.
#[derive(Default, Debug)]
pub struct LogLimiter {
    times: AtomicU64,
    logged: AtomicU64,
    /// Time of the last line plus one; 0: never.
    logged_at: AtomicU64,
}

impl LogLimiter {
    pub fn count(&self, times: u64) {
        self.times.fetch_add(times, Ordering::Relaxed);
    }

    /// Total number of events.
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Number of events to log now, if a line is due; they then count as logged.
    pub fn due(&self, now: Ms) -> Option<u64> {
        let logged_at = self.logged_at.load(Ordering::Relaxed);
        let times = self.times();
        if times == self.logged.load(Ordering::Relaxed) || (logged_at > 0 && now + 1 < logged_at + INTERVAL_MS) {
            return None;
        }
        // Of several concurrent threads, one logs.
        self.logged_at.compare_exchange(logged_at, now + 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let since = times - self.logged.swap(times, Ordering::Relaxed).min(times);
        (since > 0).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_rest_in_sum() {
        let seldom = LogLimiter::default();
        assert_eq!(seldom.due(0), None);
        seldom.count(1);
        assert_eq!(seldom.due(0), Some(1));
        seldom.count(3);
        assert_eq!(seldom.due(INTERVAL_MS - 1), None);
        seldom.count(1);
        assert_eq!((seldom.due(INTERVAL_MS), seldom.due(9 * INTERVAL_MS)), (Some(4), None));
        assert_eq!(seldom.times(), 5);
    }
}
