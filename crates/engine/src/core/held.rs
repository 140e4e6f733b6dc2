//! How long the hub's lock is held: the longest time since it was last asked for, and by whom.
//!
//! Two readings of the clock per hold, some 50 ns; everybody waits for that lock, so a defect here is worth knowing
//! where it happens.

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

    /// The longest hold and where in the source it was, as `FILE:LINE`; begins anew.
    pub fn take(&self) -> (Duration, String) {
        let ns = self.ns.swap(0, Ordering::Relaxed);
        let place = self.place.lock().take();
        (Duration::from_nanos(ns), place.map_or_else(String::new, |place| format!("{}:{}", place.file(), place.line())))
    }
}
