//! The process's clock, in two scales, both in ms since the Unix epoch.
//!
//! - [`Clock::now`] is wall-clock time. It dates mail, logs and the journal, and drives the queue. It is read from the
//!   system clock at startup and then advances with the monotonic clock. It is set again when the system clock differs
//!   by more than [`JUMP_MS_MIN`] ([`Clock::jump`], [`Clock::follow`]): a machine without a battery starts in 1970, and
//!   NTP sets it later.
//! - [`Clock::steady`] starts at the same time and never jumps. Deadlines and intervals use it.
//!
//! The committer follows jumps between two batches and under the hub's lock, so that the queue's times move with the
//! clock in one step (`core/committer/mod.rs`). The server reads the time here; pure crates get `now` as an
//! argument.
//!
//! A manual clock stands still until it is set; the crash campaign uses one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stentor_queue::ids::Ms;

/// Smaller differences are ignored: nothing here needs more accurate dates.
const JUMP_MS_MIN: u64 = 1_000;

#[derive(Clone, Debug)]
pub struct Clock {
    anchor: Instant,
    /// Wall-clock time at the anchor, corrected by each jump.
    wall_ms: Arc<AtomicU64>,
    /// Wall-clock time at the anchor as read at startup.
    steady_ms: Ms,
    manual: Option<Arc<AtomicU64>>,
}

impl Clock {
    pub fn start() -> Clock {
        Clock::starting_at(system())
    }

    fn starting_at(now: Ms) -> Clock {
        Clock { anchor: Instant::now(), wall_ms: Arc::new(AtomicU64::new(now)), steady_ms: now, manual: None }
    }

    /// Creates a clock that shows the value of `time`, in ms since the Unix epoch; it must never be set back.
    pub fn manual(time: Arc<AtomicU64>) -> Clock {
        let now = time.load(Ordering::Relaxed);
        Clock { manual: Some(time), ..Clock::starting_at(now) }
    }

    fn elapsed_ms(&self) -> Ms {
        self.anchor.elapsed().as_millis() as Ms
    }

    /// Current wall-clock time.
    pub fn now(&self) -> Ms {
        match &self.manual {
            None => self.wall_ms.load(Ordering::Relaxed) + self.elapsed_ms(),
            Some(time) => time.load(Ordering::Relaxed),
        }
    }

    /// Current time on the scale that never jumps.
    pub fn steady(&self) -> Ms {
        match &self.manual {
            None => self.steady_ms + self.elapsed_ms(),
            Some(time) => time.load(Ordering::Relaxed),
        }
    }

    /// Returns how far the system clock has been set since it was last followed, if it was.
    pub fn jump(&self) -> Option<i64> {
        if self.manual.is_some() { None } else { self.jump_to(system()) }
    }

    fn jump_to(&self, system: Ms) -> Option<i64> {
        let by = system.cast_signed() - self.now().cast_signed();
        (by.unsigned_abs() >= JUMP_MS_MIN).then_some(by)
    }

    /// Shifts [`Clock::now`] by `by` from here on.
    pub fn follow(&self, by: i64) {
        let wall_ms = self.wall_ms.load(Ordering::Relaxed).saturating_add_signed(by);
        self.wall_ms.store(wall_ms, Ordering::Relaxed);
    }

    /// Returns the instant at which [`Clock::now`] reaches `at`. A manual clock is treated as running from its start.
    pub fn instant(&self, at: Ms) -> tokio::time::Instant {
        self.after(at.saturating_sub(self.wall_ms.load(Ordering::Relaxed)))
    }

    /// Returns the instant at which [`Clock::steady`] reaches `at`.
    pub fn steady_instant(&self, at: Ms) -> tokio::time::Instant {
        self.after(at.saturating_sub(self.steady_ms))
    }

    fn after(&self, ms: Ms) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.anchor + Duration::from_millis(ms))
    }
}

/// Reads the system clock. A clock before 1970 is broken: count from 0 rather than fail.
fn system() -> Ms {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as Ms
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Ms = 1_795_000_000_000;

    #[test]
    fn the_wall_is_followed_and_the_steady_time_is_not_moved() {
        let clock = Clock::starting_at(5_000);
        let other = clock.clone();
        assert_eq!(clock.jump_to(5_000 + JUMP_MS_MIN / 2), None, "NTP's small steps are no jump");
        let by = clock.jump_to(TODAY).unwrap();
        clock.follow(by);
        assert!((TODAY..TODAY + 60_000).contains(&other.now()), "all copies follow");
        assert!((5_000..65_000).contains(&other.steady()));
        assert_eq!(clock.jump_to(clock.now()), None);
        let back = clock.jump_to(TODAY - 7_200_000).unwrap();
        assert!((-7_300_000..=-7_200_000).contains(&back), "back too: a clock that was in local time");
        clock.follow(back);
        assert!((TODAY - 7_200_000..TODAY - 7_100_000).contains(&clock.now()));
        assert!((5_000..65_000).contains(&clock.steady()));
    }

    #[test]
    fn instants_of_both_scales_are_the_same_while_nothing_jumped() {
        let clock = Clock::starting_at(TODAY);
        assert_eq!(clock.instant(TODAY + 1_000), clock.steady_instant(TODAY + 1_000));
        clock.follow(3_600_000);
        assert_eq!(clock.instant(TODAY + 3_601_000), clock.steady_instant(TODAY + 1_000));
    }
}
