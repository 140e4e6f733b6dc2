//! The system's CAs, kept once there are any.
//!
//! Promise: an empty set is never kept. The bundle may be missing while its package is upgraded, or until a volume is
//! mounted; it is used from the first look-up after it appears, without a reload. While it is missing it is looked for
//! at most once per [`READ_INTERVAL`], and the warning is logged at most once per [`WARN_INTERVAL`].

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Roots;

/// Minimum time between two looks for certificates while there are none.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two warnings that there are none.
const WARN_INTERVAL: Duration = Duration::from_hours(1);

/// The system's CAs, read at first use.
pub struct SystemRoots {
    roots: OnceLock<Roots>,
    missing: Mutex<LastMissing>,
    read: fn() -> Roots,
    read_interval: Duration,
}

/// When the system was last found without certificates, and when that was last logged.
#[derive(Default)]
struct LastMissing {
    read_at: Option<Instant>,
    warned_at: Option<Instant>,
}

impl Default for SystemRoots {
    fn default() -> SystemRoots {
        SystemRoots::with_reader(Roots::of_system, READ_INTERVAL)
    }
}

impl SystemRoots {
    /// Replaces the reader and the time between two looks, for tests.
    #[doc(hidden)]
    pub fn with_reader(read: fn() -> Roots, read_interval: Duration) -> SystemRoots {
        SystemRoots { roots: OnceLock::new(), missing: Mutex::default(), read, read_interval }
    }

    /// Returns the system's CAs; there may be none yet. Reads files until there are some.
    pub fn get(&self) -> Roots {
        self.get_at(Instant::now())
    }

    fn get_at(&self, now: Instant) -> Roots {
        if let Some(roots) = self.roots.get() {
            return roots.clone();
        }
        let mut missing = self.missing.lock();
        // Another thread may have read them meanwhile.
        if let Some(roots) = self.roots.get() {
            return roots.clone();
        }
        let is_recent = |then: Option<Instant>, pause| then.is_some_and(|then| now.duration_since(then) < pause);
        if is_recent(missing.read_at, self.read_interval) {
            return Roots::none();
        }
        let roots = (self.read)();
        if roots.is_empty() {
            missing.read_at = Some(now);
            if !is_recent(missing.warned_at, WARN_INTERVAL) {
                missing.warned_at = Some(now);
                tracing::warn!(
                    "the system has no CA certificates, so no host can be proven by a CA; install them (package \
                     ca-certificates); they are used as soon as they appear"
                );
            }
            return roots;
        }
        if missing.warned_at.is_some() {
            tracing::info!(certificates = roots.len(), "the system has CA certificates now");
        }
        self.roots.get_or_init(|| roots).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static READS: AtomicUsize = AtomicUsize::new(0);

    /// A system whose certificates appear at the third look.
    fn late() -> Roots {
        if READS.fetch_add(1, Ordering::Relaxed) < 2 {
            return Roots::none();
        }
        let made = rcgen::generate_simple_self_signed(["ca.example".to_owned()]).unwrap();
        Roots::from_certificates(vec![made.cert.der().clone()]).unwrap()
    }

    #[test]
    fn certificates_that_appear_later_are_used_and_kept() {
        let (roots, start) = (SystemRoots::with_reader(late, READ_INTERVAL), Instant::now());
        let reads = |at: Duration| (roots.get_at(start + at).len(), READS.load(Ordering::Relaxed));
        assert_eq!(reads(Duration::ZERO), (0, 1));
        assert_eq!(reads(READ_INTERVAL / 2), (0, 1), "not at each connection");
        assert_eq!(reads(READ_INTERVAL), (0, 2));
        assert_eq!(reads(READ_INTERVAL * 2), (1, 3));
        assert_eq!(reads(READ_INTERVAL * 3), (1, 3), "kept");
    }
}
