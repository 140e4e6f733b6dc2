//! When messages arrive at the server: whenever a connection is free, or on a schedule fixed in advance.
//!
//! A schedule is a stream of times that does not depend on the server. It is not stored: two cursors run over the same
//! seeded stream, one over messages begun and one over messages due; their distance is the backlog.

use std::time::Duration;

const NS_PER_S: f64 = 1e9;
/// More cannot be told apart by the clock, and no machine sends it.
const RATE_MAX: f64 = 10_000_000.0;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// Closed loop: the next message when the last one is answered.
    WhenFree,
    /// Open loop: so many a second, evenly.
    Constant(f64),
    /// Open loop: so many a second on average, independent of one another (exponential distances).
    Poisson(f64),
}

impl Arrivals {
    pub(super) fn check(self) -> Result<(), String> {
        match self {
            Arrivals::Constant(rate) | Arrivals::Poisson(rate) if !(rate > 0.0 && rate <= RATE_MAX) => {
                Err(format!("invalid rate of {rate} messages/s; choose one above 0 and at most {RATE_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// Messages per second, if it is an open loop.
    pub fn rate(self) -> Option<f64> {
        match self {
            Arrivals::WhenFree => None,
            Arrivals::Constant(rate) | Arrivals::Poisson(rate) => Some(rate),
        }
    }

    /// One worker's part of the schedule, which ends after `end`; all parts together are the whole of it.
    pub(super) fn schedule(self, seed: u64, worker: usize, workers: usize, end: Option<Duration>) -> Option<Schedule> {
        let rate = self.rate()?;
        let distance_ns = NS_PER_S * workers as f64 / rate;
        let mut cursor = Cursor {
            is_poisson: matches!(self, Arrivals::Poisson(_)),
            distance_ns,
            next_ns: NS_PER_S * worker as f64 / rate,
            count: 0,
            rng: super::people::rng(seed, worker as u64, 3),
        };
        if cursor.is_poisson {
            cursor.next_ns = 0.0;
            cursor.advance();
            cursor.count = 0;
        }
        let end_ns = end.map_or(u64::MAX, |end| end.as_nanos() as u64);
        Some(Schedule { begun: cursor.clone(), due: cursor, end_ns })
    }
}

#[derive(Clone, Debug)]
struct Cursor {
    is_poisson: bool,
    distance_ns: f64,
    next_ns: f64,
    count: u64,
    rng: fastrand::Rng,
}

impl Cursor {
    fn advance(&mut self) {
        self.count += 1;
        self.next_ns += if self.is_poisson {
            // The logarithm of 0 is no time.
            -(1.0 - self.rng.f64()).max(f64::MIN_POSITIVE).ln() * self.distance_ns
        } else {
            self.distance_ns
        };
    }
}

/// Times in nanoseconds from the start, ascending.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    begun: Cursor,
    due: Cursor,
    end_ns: u64,
}

impl Schedule {
    /// When the first message that has not been begun was to arrive; none if the schedule has ended.
    pub fn next(&self) -> Option<u64> {
        Some(self.begun.next_ns as u64).filter(|at| *at < self.end_ns)
    }

    /// Takes that message, if it is due: when it was to arrive.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let at = self.next().filter(|at| *at <= now_ns)?;
        self.begun.advance();
        Some(at)
    }

    /// How many were to arrive until now, and have not been begun. `now_ns` never goes back.
    pub fn backlog(&mut self, now_ns: u64) -> u64 {
        let until = now_ns.min(self.end_ns.saturating_sub(1));
        while (self.due.next_ns as u64) <= until {
            self.due.advance();
        }
        self.due.count.saturating_sub(self.begun.count)
    }

    /// How many were to arrive until the `now_ns` of the last call of `backlog`.
    pub fn arrived(&self) -> u64 {
        self.due.count
    }
}
