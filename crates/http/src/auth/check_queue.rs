//! The queue of passwords to check: one at a time, since a check takes milliseconds and tens of megabytes.
//!
//! Promise: the queue is bounded, and so are the places of one address, so that others find some. A caller without a
//! place is refused at once. After a wrong password the queue pauses for the duration of the check, so guesses use at
//! most half a processor; further delays of a guesser do not block the queue.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_policy::counted_as;
use tokio::sync::Semaphore;

pub(super) struct CheckQueue {
    turn: Semaphore,
    waiting: Mutex<WaitCounts>,
    places_max: usize,
    places_of_address_max: usize,
}

#[derive(Default)]
struct WaitCounts {
    count: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A place in the queue, released on drop.
pub(super) struct Place<'l> {
    queue: &'l CheckQueue,
    address: IpAddr,
}

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

impl CheckQueue {
    pub fn new(places_max: usize, places_of_address_max: usize) -> CheckQueue {
        CheckQueue { turn: Semaphore::new(1), waiting: Mutex::default(), places_max, places_of_address_max }
    }

    pub(super) fn place(&self, address: IpAddr) -> Result<Place<'_>, QueueFull> {
        let address = counted_as(address);
        let mut waiting = self.waiting.lock();
        let own = waiting.by_address.get(&address).copied().unwrap_or_default();
        if waiting.count >= self.places_max || own >= self.places_of_address_max {
            return Err(QueueFull);
        }
        waiting.count += 1;
        waiting.by_address.insert(address, own + 1);
        Ok(Place { queue: self, address })
    }

    /// Waits for a turn, then runs the check and returns its result. If `may_check` returns `None`, the check is
    /// skipped.
    pub async fn check<T, E: From<QueueFull>>(
        &self,
        address: IpAddr,
        may_check: impl FnOnce() -> Result<(), E>,
        check: impl AsyncFnOnce() -> CheckResult<T>,
    ) -> Result<T, E> {
        let place = self.place(address)?;
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await.map_err(|_| QueueFull)?;
        drop(place);
        may_check()?;
        let begun = Instant::now();
        let checked = check().await;
        if checked.is_wrong {
            tokio::time::sleep(begun.elapsed().min(REST_MAX)).await;
        }
        Ok(checked.found)
    }
}

/// The result of a check, and whether a password was wrong.
pub(super) struct CheckResult<T> {
    pub found: T,
    pub is_wrong: bool,
}

/// Longest pause, so that a stalled machine does not delay everyone.
const REST_MAX: Duration = Duration::from_millis(100);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock();
        waiting.count = waiting.count.saturating_sub(1);
        if let Some(own) = waiting.by_address.get_mut(&self.address) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                waiting.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_for_an_address() {
        let queue = CheckQueue::new(3, 2);
        let address = |text: &str| text.parse().unwrap();
        let first = queue.place(address("2001:db8::1")).ok().unwrap();
        let _second = queue.place(address("2001:db8::2")).ok().unwrap();
        assert!(queue.place(address("2001:db8::3")).is_err(), "the same /64");
        let third = queue.place(address("192.0.2.1")).ok().unwrap();
        assert!(queue.place(address("192.0.2.2")).is_err(), "all are taken");
        drop(first);
        assert!(queue.place(address("2001:db8::3")).is_ok());
        drop(third);
        assert_eq!(queue.waiting.lock().by_address.len(), 1);
    }

    #[tokio::test]
    async fn one_check_at_a_time_in_the_order_of_arrival() {
        let queue = CheckQueue::new(8, 8);
        let order = Mutex::new(Vec::new());
        let one = async |no: u32| {
            let check = async || {
                order.lock().push(no);
                tokio::task::yield_now().await;
                order.lock().push(no);
                CheckResult { found: no, is_wrong: no == 1 }
            };
            queue.check("192.0.2.1".parse().unwrap(), || Ok::<(), QueueFull>(()), check).await.unwrap()
        };
        assert_eq!(tokio::join!(one(1), one(2), one(3)), (1, 2, 3));
        assert_eq!(*order.lock(), [1, 1, 2, 2, 3, 3]);
        assert_eq!(queue.waiting.lock().count, 0);
    }
}
