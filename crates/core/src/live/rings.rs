//! Rings of counts for each of the last seconds and minutes. A point is as late as the ticker was: it covers the time
//! since the previous one.

use std::collections::VecDeque;

use stentor_queue::ids::Ms;
use stentor_records::now::{Counts, Point};

/// Seconds in a quarter of an hour.
pub const SECONDS: usize = 900;
/// Minutes in two days.
pub const MINUTES: usize = 2_880;

#[derive(Default)]
pub struct Rings {
    pub seconds: VecDeque<Point>,
    pub minutes: VecDeque<Point>,
    /// The totals at the last point.
    totals: Counts,
    /// Counts of the current minute.
    minute: Counts,
}

impl Rings {
    /// Adds the point of a second. Returns whether a minute of the clock has ended.
    pub fn push(&mut self, at: Ms, totals: Counts) -> bool {
        let counts = totals.since(&self.totals);
        let last = self.seconds.back().map(|point| point.at);
        self.totals = totals;
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(Point { at, counts });
        self.minute = self.minute.plus(&counts);
        let ends = last.is_some_and(|last| last / 60_000 != at / 60_000);
        if ends {
            if self.minutes.len() == MINUTES {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Point { at: at - at % 60_000, counts: std::mem::take(&mut self.minute) });
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_minutes_and_both_are_bounded() {
        let mut rings = Rings::default();
        let ended = (0..200_000u64).filter(|s| rings.push(s * 1_000, Counts { delivered: s * 2, ..Counts::default() }));
        assert_eq!(ended.count(), 3_333);
        assert_eq!((rings.seconds.len(), rings.minutes.len()), (SECONDS, MINUTES));
        assert!(rings.seconds.iter().all(|point| point.counts.delivered == 2));
        assert!(rings.minutes.iter().all(|point| point.counts.delivered == 120 && point.at % 60_000 == 0));
    }
}
