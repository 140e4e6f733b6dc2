//! Two time scales: the caller's wall clock, and a steady one for everything that is kept here.
//!
//! The wall clock is set now and then (NTP after a start, an operator). Clocks, connections and rates use a steady
//! scale that begins at the wall clock's time and never jumps. Each call of the scheduler's interface converts its
//! `now` to that scale, and times in answers are converted back. So a jump fires no clock and lengthens none.
//!
//! Ages use the wall clock: messages of earlier runs were accepted by it, and the store moves those of this run with
//! it. Messages expire only by a clock that has been watched for a while: nothing expires within `BELIEVED_MS` of the
//! start and of each jump, so that a wrong clock can be corrected before the queue is returned.

use stentor_queue::ids::Ms;

/// How long a clock is watched before mail is returned by it.
const BELIEVED_MS: Ms = 10 * 60_000;
/// 2020-01-01: a message that seems to be older was accepted by a clock that nobody had set.
const EARLIEST_MS: Ms = 1_577_836_800_000;

#[derive(Clone, Copy, Default)]
pub(crate) struct Time {
    /// Wall-clock time minus steady time.
    skew: i64,
    /// When the first message was accepted (steady, like the next field).
    started: Option<Ms>,
    /// When the start or the last jump was.
    believed_from: Ms,
}

impl Time {
    pub fn steady(self, wall: Ms) -> Ms {
        wall.saturating_add_signed(-self.skew)
    }

    pub fn wall(self, steady: Ms) -> Ms {
        steady.saturating_add_signed(self.skew)
    }

    /// Begins to watch time. Returns the steady `now`.
    pub fn begin(&mut self, now: Ms) -> Ms {
        let now = self.steady(now);
        if self.started.is_none() {
            (self.started, self.believed_from) = (Some(now), now);
        }
        now
    }

    /// Called when the wall clock has jumped; `now` is after the jump.
    pub fn moved(&mut self, by: i64, now: Ms) {
        self.skew += by;
        self.believed_from = self.steady(now);
    }

    /// Whether a message accepted at that time has outlived its lifetime.
    pub fn is_over_age(self, accepted: Ms, lifetime_ms: Ms, now: Ms) -> bool {
        let age_ms = if accepted < EARLIEST_MS {
            now.saturating_sub(self.started.unwrap_or(now))
        } else {
            self.wall(now).saturating_sub(accepted)
        };
        age_ms > lifetime_ms && now.saturating_sub(self.believed_from) >= lifetime_ms.min(BELIEVED_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Ms = 3_600_000;
    const YEARS: i64 = 56 * 365 * 24 * 3_600_000;
    const TODAY: Ms = 1_795_000_000_000;
    const LIFETIME: Ms = 120 * HOUR;

    #[test]
    fn a_jump_moves_no_clock() {
        let mut time = Time::default();
        let until = time.begin(5_000) + HOUR;
        time.moved(YEARS, 6_000 + YEARS as u64);
        assert_eq!(time.steady(6_000 + YEARS as u64), 6_000);
        assert_eq!(time.wall(until), until + YEARS as u64);
        time.moved(-YEARS, 7_000);
        assert_eq!((time.steady(7_000), time.wall(until)), (7_000, until));
    }

    #[test]
    fn nothing_is_given_up_before_the_clock_is_believed() {
        let mut time = Time::default();
        let (old, now) = (TODAY - 2 * LIFETIME, time.begin(TODAY));
        assert!(!time.is_over_age(old, LIFETIME, now), "a start");
        assert!(time.is_over_age(old, LIFETIME, now + BELIEVED_MS));
        assert!(!time.is_over_age(TODAY, LIFETIME, now + BELIEVED_MS));
        time.moved(YEARS, TODAY + HOUR + YEARS as u64);
        assert!(!time.is_over_age(TODAY, LIFETIME, TODAY + HOUR), "a clock that was set wrong by hand");
        time.moved(-YEARS, TODAY + HOUR);
        assert!(!time.is_over_age(TODAY, LIFETIME, TODAY + 2 * HOUR), "and right again");
        assert!(time.is_over_age(old, LIFETIME, TODAY + 2 * HOUR));
    }

    #[test]
    fn what_a_clock_at_1970_accepted_is_as_old_as_this_run() {
        let mut time = Time::default();
        let now = time.begin(TODAY);
        assert!(!time.is_over_age(5_000, LIFETIME, now + HOUR));
        assert!(time.is_over_age(5_000, LIFETIME, now + LIFETIME + HOUR));
    }
}
