//! Decides how long group commit waits, from the recent behaviour of the disk and of arrivals.
//!
//! Clients in lock step (each waits for its reply before it sends the next message) fall into groups that take turns,
//! each waiting for the other's sync. If a sync is slow, waiting for as many messages as in recent batches merges the
//! groups again. Promise: nobody waits longer than a part of a sync, nor after arrivals have stopped, nor alone.

use std::time::Duration;

/// The longest wait, as a fraction of the sync time.
const PATIENCE_PART: u32 = 2;
/// Arrivals further apart than this fraction of the sync time do not form a group.
const QUIET_PART: u32 = 16;
/// With faster syncs than this, waiting costs more in wake-ups than it gains.
const SYNC_MIN: Duration = Duration::from_millis(4);
/// Upper limit for the wait, however slow the disk is.
const PATIENCE_MAX: Duration = Duration::from_millis(50);

/// Approximate number of commits in the mean: a disk that is slow in bursts counts as slow.
const MEMORY: u32 = 16;
/// Limit for a single commit's time in the mean.
const TOOK_MAX: Duration = Duration::from_millis(100);

/// The pace of an owner that commits for many clients. Record every commit, and check before the next one whether to
/// wait for more.
#[derive(Debug, Default)]
pub struct Pace {
    /// Mean time of a commit.
    sync: Duration,
    /// Messages in recent commits, the latest first.
    batches: [usize; 2],
}

impl Pace {
    /// Records that a batch of `messages` was written and synced in `took`.
    pub fn synced(&mut self, messages: usize, took: Duration) {
        self.sync = (self.sync * (MEMORY - 1) + took.min(TOOK_MAX)) / MEMORY;
        if messages > 0 {
            self.batches = [messages, self.batches[0]];
        }
    }

    /// Whether as many messages have arrived as in recent batches.
    pub fn is_complete(&self, messages: usize) -> bool {
        messages >= self.batches[0].max(self.batches[1])
    }

    /// The longest time to wait for missing messages.
    pub fn patience(&self) -> Duration {
        if self.sync < SYNC_MIN { Duration::ZERO } else { (self.sync / PATIENCE_PART).min(PATIENCE_MAX) }
    }

    /// Time without arrivals after which waiting ends.
    pub fn quiet(&self) -> Duration {
        self.sync.min(2 * PATIENCE_MAX) / QUIET_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(messages: usize, took: Duration, times: usize) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..times {
            pace.synced(messages, took);
        }
        pace
    }

    #[test]
    fn a_fast_disk_and_a_lone_client_wait_for_nobody() {
        assert_eq!(after(20, Duration::from_millis(1), 100).patience(), Duration::ZERO);
        assert!(after(1, Duration::from_millis(15), 100).is_complete(1));
    }

    #[test]
    fn patience_is_a_part_of_a_sync_and_bounded() {
        let pace = after(20, Duration::from_millis(16), 200);
        assert!(!pace.is_complete(19) && pace.is_complete(20));
        assert!(pace.patience() > Duration::from_millis(6) && pace.patience() <= Duration::from_millis(8));
        assert!(pace.quiet() < pace.patience());
        let slowest = after(20, Duration::from_secs(9), 200).patience();
        assert!(slowest <= PATIENCE_MAX && slowest > PATIENCE_MAX * 9 / 10);
    }

    #[test]
    fn a_hiccup_is_forgotten() {
        let mut pace = after(20, Duration::from_millis(1), 100);
        pace.synced(20, Duration::from_secs(3));
        assert!(pace.patience() <= Duration::from_millis(4));
        for _ in 0..40 {
            pace.synced(20, Duration::from_millis(1));
        }
        assert_eq!(pace.patience(), Duration::ZERO);
    }

    #[test]
    fn a_group_that_has_left_is_missed_twice() {
        let mut pace = after(200, Duration::from_millis(15), 10);
        pace.synced(3, Duration::from_millis(15));
        assert!(!pace.is_complete(3));
        // Batches of completions say nothing about arrivals.
        pace.synced(0, Duration::from_millis(15));
        pace.synced(3, Duration::from_millis(15));
        assert!(pace.is_complete(3));
    }
}
