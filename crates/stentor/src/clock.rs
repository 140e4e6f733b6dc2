//! The process's clock: wall time at the start plus monotonic time since, so that it never runs backwards and a jump of
//! the system's clock neither expires mail nor fires retries. Only the shell reads it; everything below gets `now`.
//!
//! A manual clock stands until it is set: the crash campaign's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stentor_queue::ids::Ms;

#[derive(Clone, Debug)]
pub struct Clock {
    anchor: Instant,
    anchor_ms: Ms,
    manual: Option<Arc<AtomicU64>>,
}

impl Clock {
    pub fn start() -> Clock {
        // A system clock before 1970 is a broken clock: count from 0 rather than fail.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { anchor: Instant::now(), anchor_ms: wall.as_millis() as Ms, manual: None }
    }

    /// A clock that shows what is stored in `time`, ms since the Unix epoch; it must never be set back.
    pub fn manual(time: Arc<AtomicU64>) -> Clock {
        Clock { anchor: Instant::now(), anchor_ms: time.load(Ordering::Relaxed), manual: Some(time) }
    }

    /// Milliseconds since the Unix epoch.
    pub fn now(&self) -> Ms {
        match &self.manual {
            None => self.anchor_ms + self.anchor.elapsed().as_millis() as Ms,
            Some(time) => time.load(Ordering::Relaxed),
        }
    }

    /// The instant at which [`Clock::now`] reaches `at`; of a manual clock, as if it ran from where it began.
    pub fn instant(&self, at: Ms) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.anchor + Duration::from_millis(at.saturating_sub(self.anchor_ms)))
    }
}
