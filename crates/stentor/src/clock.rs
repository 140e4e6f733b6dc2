//! The process's clock: wall time at the start plus monotonic time since, so that it never runs backwards and a jump of
//! the system's clock neither expires mail nor fires retries. Only the shell reads it; everything below gets `now`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stentor_queue::ids::Ms;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: Instant,
    anchor_ms: Ms,
}

impl Clock {
    pub fn start() -> Clock {
        // A system clock before 1970 is a broken clock: count from 0 rather than fail.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { anchor: Instant::now(), anchor_ms: wall.as_millis() as Ms }
    }

    /// Milliseconds since the Unix epoch.
    pub fn now(&self) -> Ms {
        self.anchor_ms + self.anchor.elapsed().as_millis() as Ms
    }

    /// The instant at which [`Clock::now`] reaches `at`.
    pub fn instant(&self, at: Ms) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.anchor + Duration::from_millis(at.saturating_sub(self.anchor_ms)))
    }
}
