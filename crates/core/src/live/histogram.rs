//! Histogram on a logarithmic scale, eight steps an octave: a percentile is within 7 % of the true value, adding a
//! number takes one atomic operation, and the whole histogram takes 1 KiB.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stentor_records::histogram::{step_of, top_of};
use stentor_records::now::Percentiles;

/// Steps per octave, as a power of two.
const STEP_BITS: u32 = 3;
/// Largest value: ten hours in microseconds, a year in milliseconds. Larger ones count as this.
const VALUE_MAX: u64 = (1 << 35) - 1;
const BUCKETS: usize = step_of(VALUE_MAX, STEP_BITS) + 1;

pub struct Histogram {
    buckets: Box<[AtomicU32]>,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

fn bucket(value: u64) -> usize {
    step_of(value.min(VALUE_MAX), STEP_BITS)
}

/// The smallest number of a bucket.
fn low(bucket: usize) -> u64 {
    if bucket == 0 { 0 } else { top_of(bucket - 1, STEP_BITS) + 1 }
}

impl Histogram {
    pub fn add(&self, value: u64, times: u32) {
        // A full bucket saturates: counts beyond 4 thousand million are not needed.
        self.buckets[bucket(value)].fetch_add(times, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    /// The largest number so far.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// The non-empty buckets, with their counts.
    pub fn filled(&self) -> impl Iterator<Item = (usize, u32)> {
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0)
    }

    /// Restores the result of [`Histogram::filled`] from before a restart; nonexistent buckets are skipped.
    pub fn restore(&self, filled: impl Iterator<Item = (usize, u32)>, max: u64) {
        for (bucket, count) in filled {
            if let Some(known) = self.buckets.get(bucket) {
                known.fetch_add(count, Ordering::Relaxed);
            }
        }
        self.max.fetch_max(max, Ordering::Relaxed);
    }

    pub fn read(&self) -> Distribution {
        let buckets = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Distribution { buckets, max: self.max.load(Ordering::Relaxed) }
    }
}

/// Snapshot of a histogram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    buckets: Vec<u32>,
    /// The largest number so far.
    pub max: u64,
}

impl Distribution {
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|count| u64::from(*count)).sum()
    }

    /// The difference from `before`; its maximum is that of the highest bucket.
    #[must_use]
    pub fn since(&self, before: &Distribution) -> Distribution {
        let buckets: Vec<u32> = self.buckets.iter().zip(&before.buckets).map(|(now, b)| now.wrapping_sub(*b)).collect();
        let highest = buckets.iter().rposition(|count| *count > 0);
        let max = highest.map_or(0, |bucket| (low(bucket + 1) - 1).min(self.max));
        Distribution { buckets, max }
    }

    /// The number that `parts` percent of all numbers do not exceed, interpolated within its step; 0 if there are none.
    pub fn percentile(&self, parts: f64) -> u64 {
        let total = self.count();
        if total == 0 {
            return 0;
        }
        if parts >= 100.0 {
            return self.max;
        }
        let wanted = (total as f64 * parts / 100.0).max(1.0);
        let mut below = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let here = f64::from(*count);
            if below + here >= wanted {
                let (from, to) = (low(bucket) as f64, low(bucket + 1) as f64);
                let value = from + (to - from) * ((wanted - below) / here).clamp(0.0, 1.0);
                return (value as u64).min(self.max);
            }
            below += here;
        }
        self.max
    }

    /// The usual percentiles.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            count: self.count(),
            p50: self.percentile(50.0),
            p90: self.percentile(90.0),
            p95: self.percentile(95.0),
            p99: self.percentile(99.0),
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_numbers() {
        for value in (0..100_000).chain((17..64).map(|bits| 1u64 << bits)).chain([u64::MAX]) {
            let at = bucket(value);
            assert!(at < BUCKETS, "{value}");
            assert!(low(at) <= value, "{value}");
            assert!(at + 1 == BUCKETS || value < low(at + 1), "{value}");
        }
    }

    #[test]
    fn percentiles_are_near() {
        let histogram = Histogram::default();
        for value in 1..=10_000u64 {
            histogram.add(value, 1);
        }
        let counted = histogram.read();
        for (parts, wanted) in [(1.0, 100.0), (50.0, 5_000.0), (95.0, 9_500.0), (99.0, 9_900.0)] {
            let found = counted.percentile(parts) as f64;
            assert!((found / wanted - 1.0).abs() < 0.07, "{parts}: {found}");
        }
        assert_eq!((counted.count(), counted.percentile(100.0)), (10_000, 10_000));
        histogram.add(70, 3);
        let since = histogram.read().since(&counted);
        assert_eq!(since.count(), 3);
        assert!((64..=72).contains(&since.percentile(50.0)) && since.max >= 70, "{since:?}");
        assert_eq!(Histogram::default().read().percentiles(), Percentiles::default());
    }
}
