//! Measurements used only for metrics: distributions, and refusals by code.
//!
//! Promise: an observation is a few atomic additions; refusals, which are rare, take a lock of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_mail::reply::Enhanced;
use stentor_records::record::Stat;

/// Distinct kinds of refusals counted; further ones are summed under code 0.
pub const REFUSALS_MAX: usize = 100;

/// Upper bounds of buckets in microseconds, for syncs: from a fast disk to the longest that clients tolerate.
pub const SYNC_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000,
];
/// Upper bounds of buckets in microseconds, for attempts: from a nearby host to one about to time out.
pub const ATTEMPT_US: [u64; 12] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
];
/// Upper bounds of buckets in messages.
pub const MESSAGES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1_024];

/// Counts by size. The last count is of values above all bounds.
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    counts: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    fn new(bounds: &'static [u64; N]) -> Histogram<N> {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Histogram { bounds, counts, above: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Adds a time to a histogram in microseconds.
    pub fn observe(&self, time: Duration) {
        self.observe_value(time.as_micros() as u64);
    }

    pub fn observe_value(&self, value: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        bucket.map_or(&self.above, |at| &self.counts[at]).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns each bound with the number of values up to it, then the number and sum of all values.
    pub fn read(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let mut total = 0;
        let mut buckets = Vec::with_capacity(N);
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            buckets.push((*bound, total));
        }
        (buckets, total + self.above.load(Ordering::Relaxed), self.sum.load(Ordering::Relaxed))
    }
}

pub struct Measures {
    /// Time of an attempt up to its last reply, in microseconds.
    pub attempt: Histogram<12>,
    /// Recipients of attempts, failed sessions and failed look-ups, by outcome.
    pub sent: AtomicU64,
    pub deferred: AtomicU64,
    pub bounced: AtomicU64,
    pub connect_failures: AtomicU64,
    /// Sessions with hosts, by TLS state, in the order of [`TLS_SESSIONS`].
    pub tls_sessions: [AtomicU64; 4],
    /// TLS sessions that were resumed.
    pub tls_resumed: AtomicU64,
    /// Failed handshakes, including failures before the handshake.
    pub tls_failures: AtomicU64,
    /// Certificates whose last request to the CA failed.
    pub certificates_failing: AtomicU64,
    /// How long a client waits for its 250, from the end of its data to the commit, in microseconds.
    pub commit_wait: Histogram<16>,
    /// Duration of a commit including its sync, in microseconds.
    pub sync: Histogram<16>,
    /// Messages per commit, counting only commits with messages.
    pub batch_messages: Histogram<10>,
    refusals: Mutex<HashMap<(u16, Option<Enhanced>), u64>>,
}

impl Default for Measures {
    fn default() -> Measures {
        Measures {
            attempt: Histogram::new(&ATTEMPT_US),
            sent: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            bounced: AtomicU64::new(0),
            connect_failures: AtomicU64::new(0),
            tls_sessions: Default::default(),
            tls_resumed: AtomicU64::new(0),
            tls_failures: AtomicU64::new(0),
            certificates_failing: AtomicU64::new(0),
            commit_wait: Histogram::new(&SYNC_US),
            sync: Histogram::new(&SYNC_US),
            batch_messages: Histogram::new(&MESSAGES),
            refusals: Mutex::default(),
        }
    }
}

/// TLS states of a session with a host: host proven, not proven, no TLS, TLS not used on purpose.
pub const TLS_SESSIONS: [&str; 4] = ["proven", "unproven", "clear", "none"];

impl Measures {
    /// Counts a new session with a host; `kind` is an index into [`TLS_SESSIONS`].
    pub fn tls_session(&self, kind: usize, is_resumed: bool) {
        self.tls_sessions[kind].fetch_add(1, Ordering::Relaxed);
        self.tls_resumed.fetch_add(u64::from(is_resumed), Ordering::Relaxed);
    }

    /// Counts an ended transaction of a delivery.
    pub fn attempt(&self, took_ms: u64, outcomes: impl Iterator<Item = Stat>) {
        self.attempt.observe_value(took_ms.saturating_mul(1_000));
        let (mut sent, mut deferred, mut bounced) = (0, 0, 0);
        for stat in outcomes {
            match stat {
                Stat::Sent => sent += 1,
                Stat::Deferred => deferred += 1,
                _ => bounced += 1,
            }
        }
        for (counter, count) in [(&self.sent, sent), (&self.deferred, deferred), (&self.bounced, bounced)] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Counts a failed session or look-up that deferred `waiting` recipients.
    pub fn unreached(&self, waiting: u64) {
        self.deferred.fetch_add(waiting, Ordering::Relaxed);
    }

    /// Counts a 4xx or 5xx reply to a client.
    pub fn refused(&self, code: u16, dsn: Option<Enhanced>) {
        let mut refusals = self.refusals.lock();
        let is_new = !refusals.contains_key(&(code, dsn));
        let key = if is_new && refusals.len() >= REFUSALS_MAX { (0, None) } else { (code, dsn) };
        *refusals.entry(key).or_default() += 1;
    }

    /// Returns refusals by reply code and enhanced code.
    pub fn refusals(&self) -> Vec<((u16, Option<Enhanced>), u64)> {
        let mut all: Vec<_> = self.refusals.lock().iter().map(|(key, count)| (*key, *count)).collect();
        all.sort_by_key(|((code, dsn), _)| (*code, dsn.map(|dsn| (dsn.class, dsn.subject, dsn.detail))));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::new(&MESSAGES);
        for value in [0, 1, 2, 3, 5_000] {
            histogram.observe_value(value);
        }
        let (buckets, count, sum) = histogram.read();
        assert_eq!((&buckets[..3], count, sum), (&[(1, 2), (2, 3), (4, 4)][..], 5, 5_006));
        assert_eq!(buckets[9], (1_024, 4));
    }

    #[test]
    fn kinds_of_refusals_are_bounded() {
        let measures = Measures::default();
        for code in 0..2 * REFUSALS_MAX as u16 {
            measures.refused(400 + code, None);
        }
        let all = measures.refusals();
        assert_eq!((all.len(), all[0]), (REFUSALS_MAX + 1, ((0, None), REFUSALS_MAX as u64)));
    }
}
