//! Measures how long the hub's lock is held: the longest time since the last query, and where in the source.
//!
//! Two readings of the clock per hold, some 50 ns; everything waits for that lock, so a long hold should be easy to
//! locate.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

#[derive(Default)]
pub struct LongestHold {
    ns: AtomicU64,
    place: Mutex<Option<&'static Location<'static>>>,
}

impl LongestHold {
    /// To be called by the one who holds the lock.
    pub(super) fn note(&self, held: Duration, place: &'static Location<'static>) {
        let ns = held.as_nanos() as u64;
        if ns > self.ns.load(Ordering::Relaxed) {
            self.ns.store(ns, Ordering::Relaxed);
            *self.place.lock() = Some(place);
        }
    }

    /// The longest hold and its place in the source, as `FILE:LINE`; resets it.
    pub fn take(&self) -> (Duration, String) {
        let ns = self.ns.swap(0, Ordering::Relaxed);
        let place = self.place.lock().take();
        (Duration::from_nanos(ns), place.map_or_else(String::new, |place| format!("{}:{}", place.file(), place.line())))
    }
}
