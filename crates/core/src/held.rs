//! Measures how long the hub's lock is held: the longest hold since the last query, and its place in the source.
//!
//! Each hold costs two clock readings, some 50 ns. All work waits for this lock, so a long hold should be easy to find.

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
    /// Notes one hold; called by the holder of the lock.
    pub(super) fn note(&self, held: Duration, place: &'static Location<'static>) {
        let ns = held.as_nanos() as u64;
        if ns > self.ns.load(Ordering::Relaxed) {
            self.ns.store(ns, Ordering::Relaxed);
            *self.place.lock() = Some(place);
        }
    }

    /// Returns the longest hold and its place in the source as `FILE:LINE`, and resets it.
    pub fn take(&self) -> (Duration, String) {
        let ns = self.ns.swap(0, Ordering::Relaxed);
        let place = self.place.lock().take();
        (Duration::from_nanos(ns), place.map_or_else(String::new, |place| format!("{}:{}", place.file(), place.line())))
    }
}
