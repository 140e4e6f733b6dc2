//! Percentiles in bounded memory: exact up to 64 values, then logarithmic buckets that are at most 1/128 wide.
//!
//! Values are plain numbers; the owner says the unit. The least and greatest are always exact.

use serde::{Deserialize, Serialize};

const FEW_MAX: usize = 64;
/// Buckets per power of two; below this the buckets are exact.
const STEPS: u64 = 128;
const STEPS_LOG: u32 = STEPS.ilog2();

/// A distribution of `u64` values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Histogram {
    few: Vec<u64>,
    buckets: Vec<u32>,
    count: u64,
    sum: u64,
    least: u64,
    greatest: u64,
}

fn bucket_of(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS_LOG;
    ((u64::from(shift) + 1) * STEPS + ((value >> shift) - STEPS)) as usize
}

/// The greatest value that falls into the bucket.
fn bucket_top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << shift) - 1
}

impl Histogram {
    pub fn add(&mut self, value: u64) {
        // Beyond 2^62 nothing is told apart, so that bucket_top cannot overflow.
        let value = value.min(1 << 62);
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.greatest = self.greatest.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        if self.buckets.is_empty() {
            if self.few.len() < FEW_MAX {
                self.few.push(value);
                return;
            }
            for few in std::mem::take(&mut self.few) {
                self.bump(few);
            }
        }
        self.bump(value);
    }

    fn bump(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Of all values; ends at the greatest number.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Exact, 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    pub fn least(&self) -> u64 {
        self.least
    }

    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// The value that `share` (0.0 to 1.0) of all values do not exceed; 0 when there are none.
    pub fn percentile(&self, share: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        if rank == self.count {
            return self.greatest;
        }
        if self.buckets.is_empty() {
            let mut sorted = self.few.clone();
            sorted.sort_unstable();
            return sorted[rank as usize - 1];
        }
        let mut below = 0u64;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            below += u64::from(count);
            if below >= rank {
                return bucket_top(bucket).clamp(self.least, self.greatest);
            }
        }
        self.greatest
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let sum = self.sum.saturating_add(other.sum);
        let least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        for &value in &other.few {
            self.add(value);
        }
        for (bucket, &count) in other.buckets.iter().enumerate() {
            for _ in 0..count {
                self.add(bucket_top(bucket).clamp(other.least, other.greatest));
            }
        }
        (self.sum, self.least) = (sum, least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_monotonous_and_tight() {
        let mut last = 0;
        for value in (0..100_000u64).chain((17..62).map(|n| (1 << n) + 12_345)) {
            let bucket = bucket_of(value);
            assert!(bucket >= last);
            last = bucket;
            let top = bucket_top(bucket);
            assert!(top >= value && top - value <= value / STEPS + 1, "{value} {top}");
        }
    }

    #[test]
    fn percentiles_exact_for_few_and_near_for_many() {
        let mut few = Histogram::default();
        for n in [5, 1, 9] {
            few.add(n);
        }
        assert_eq!((few.percentile(0.0), few.percentile(0.5), few.percentile(1.0)), (1, 5, 9));
        let mut many = Histogram::default();
        for n in 1..=10_000 {
            many.add(n);
        }
        assert_eq!(many.count(), 10_000);
        assert!((4950..=5050).contains(&many.percentile(0.5)), "{}", many.percentile(0.5));
        assert_eq!(many.percentile(1.0), 10_000);
        let mut both = Histogram::default();
        both.merge(&many);
        both.merge(&few);
        assert_eq!(both.count(), 10_003);
        assert_eq!(both.least(), 1);
        assert!((both.mean() - (50_005_000.0 + 15.0) / 10_003.0).abs() < 1e-6, "{}", both.mean());
        assert_eq!(Histogram::default().percentile(0.5), 0);
    }

    #[test]
    fn least_and_greatest_stay_exact_when_merged() {
        let mut many = Histogram::default();
        // In the bucket of 10,000 and 10,001 there are greater values.
        (10_000..10_200).for_each(|n| many.add(n));
        let mut all = Histogram::default();
        all.merge(&many);
        assert_eq!((all.least(), all.greatest(), all.count()), (10_000, 10_199, 200));
        all.merge(&Histogram::default());
        assert_eq!(all.least(), 10_000);
        let text = serde_json::to_string(&all).unwrap();
        let again: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!((again.percentile(0.5), again.least()), (all.percentile(0.5), 10_000));
    }
}
