//! A distribution of numbers in little memory. Percentiles are accurate to a step of a logarithmic scale; minimum and
//! maximum are exact.
//!
//! `STEP_BITS`: 2^`STEP_BITS` steps an octave, so that a percentile is at most 1/2^`STEP_BITS` above the true value;
//! numbers below 2^`STEP_BITS` are exact. Up to `EXACT_MAX` values are stored themselves, so that their percentiles are
//! exact.
//!
//! Values are plain numbers; the owner defines the unit.

use serde::{Deserialize, Serialize};

/// Greater values count as this one, so that the top of a step fits a `u64`.
const GREATEST: u64 = 1 << 62;

/// Accurate to a sixteenth: for delays of deliveries, with a histogram for each of many hosts and days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram<const STEP_BITS: u32 = 4, const EXACT_MAX: usize = 0> {
    few: Vec<u64>,
    steps: Vec<u64>,
    count: u64,
    sum: u64,
    least: u64,
    greatest: u64,
}

/// Accurate to a 128th, and exact up to 64 values: for measurements.
pub type Fine = Histogram<7, 64>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DelayPercentiles {
    pub p50_ms: u64,
    pub p90_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

/// The step of a value, on a scale with 2^`bits` steps an octave.
pub const fn step_of(value: u64, bits: u32) -> usize {
    let steps = 1 << bits;
    if value < steps {
        return value as usize;
    }
    let shift = value.ilog2() - bits;
    ((shift as u64 + 1) * steps + ((value >> shift) - steps)) as usize
}

/// The largest value of a step.
pub const fn top_of(step: usize, bits: u32) -> u64 {
    let (step, steps) = (step as u64, 1 << bits);
    if step < steps {
        return step;
    }
    ((step % steps + steps + 1) << (step / steps - 1)) - 1
}

impl<const STEP_BITS: u32, const EXACT_MAX: usize> Histogram<STEP_BITS, EXACT_MAX> {
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    pub fn add_times(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let value = value.min(GREATEST);
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.greatest = self.greatest.max(value);
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        self.count += times;
        if self.steps.is_empty() && self.count <= EXACT_MAX as u64 {
            self.few.extend(std::iter::repeat_n(value, times as usize));
        } else {
            self.spread();
            self.bump(step_of(value, STEP_BITS), times);
        }
    }

    /// Converts stored values to steps.
    fn spread(&mut self) {
        for value in std::mem::take(&mut self.few) {
            self.bump(step_of(value, STEP_BITS), 1);
        }
    }

    fn bump(&mut self, step: usize, times: u64) {
        if step >= self.steps.len() {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] += times;
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.greatest = self.greatest.max(other.greatest);
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
        self.few.extend_from_slice(&other.few);
        for (step, &times) in other.steps.iter().enumerate().filter(|(_, times)| **times > 0) {
            self.bump(step, times);
        }
        if !self.steps.is_empty() || self.few.len() > EXACT_MAX {
            self.spread();
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all values; saturates at the largest number.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Exact mean; 0 without values.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    pub fn least(&self) -> u64 {
        self.least
    }

    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// The value that this share (0.0 to 1.0) of all values does not exceed; 0 without values.
    pub fn percentile(&self, share: f64) -> u64 {
        self.percentile_if_any(share).unwrap_or_default()
    }

    pub fn percentile_if_any(&self, share: f64) -> Option<u64> {
        let last = self.count.checked_sub(1)?;
        // Counted from 0.
        let rank = ((share * self.count as f64).ceil() as u64).saturating_sub(1).min(last);
        if rank == last {
            return Some(self.greatest);
        }
        if self.steps.is_empty() {
            let mut sorted = self.few.clone();
            sorted.sort_unstable();
            return sorted.get(rank as usize).copied();
        }
        let mut up_to = 0;
        let step = self.steps.iter().position(|times| {
            up_to += times;
            up_to > rank
        });
        Some(step.map_or(self.greatest, |step| top_of(step, STEP_BITS).min(self.greatest)))
    }

    pub fn percentiles(&self) -> Option<DelayPercentiles> {
        Some(DelayPercentiles {
            p50_ms: self.percentile_if_any(0.5)?,
            p90_ms: self.percentile_if_any(0.9)?,
            p99_ms: self.percentile_if_any(0.99)?,
            max_ms: self.greatest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_begins_where_the_one_before_ends() {
        for bits in [3, 4, 7] {
            let mut last = 0;
            for value in (0..100_000u64).chain((17..62).map(|n| (1 << n) + 12_345)).chain([GREATEST]) {
                let step = step_of(value, bits);
                let top = top_of(step, bits);
                assert!(step >= last && top >= value && top - value <= (value >> bits) + 1, "{bits} {value} {top}");
                assert!(step == 0 || top_of(step - 1, bits) < value, "{bits} {value}");
                last = step;
            }
        }
    }

    #[test]
    fn percentiles_are_within_a_step() {
        fn check<const BITS: u32, const EXACT: usize>(within: f64) {
            let mut histogram = Histogram::<BITS, EXACT>::default();
            (0..100_000).for_each(|n| histogram.add(n));
            for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
                let exact = 100_000.0 * share - 1.0;
                let found = histogram.percentile(share) as f64;
                assert!(found >= exact && found <= exact * (1.0 + within) + 1.0, "{share}: {found} for {exact}");
            }
        }
        check::<4, 0>(1.0 / 16.0);
        check::<7, 64>(1.0 / 128.0);
        assert_eq!(Fine::default().percentile_if_any(0.5), None);
        assert_eq!((Fine::default().percentile(0.5), Fine::default().percentiles()), (0, None));
    }

    #[test]
    fn few_are_exact_and_stay_so_when_merged() {
        let of = |values: std::ops::RangeInclusive<u64>| {
            let mut histogram = Fine::default();
            values.for_each(|value| histogram.add(value * 1000 + 7));
            histogram
        };
        let mut both = of(1..=30);
        both.merge(&of(31..=64));
        assert_eq!((both.percentile(0.0), both.percentile(0.5), both.percentile(1.0)), (1007, 32_007, 64_007));
        assert_eq!(both, of(1..=64));
        both.merge(&of(65..=65));
        let mut all = of(1..=65);
        assert_eq!((both.clone(), both.count(), both.percentile(0.5) > 33_007), (all.clone(), 65, true));
        // Into a histogram with steps, and from one.
        all.merge(&of(66..=70));
        let mut turned = of(66..=70);
        turned.merge(&of(1..=65));
        assert_eq!((&all, all.sum()), (&turned, (1..=70).map(|n| n * 1000 + 7).sum()));
    }

    #[test]
    fn least_and_greatest_are_exact() {
        let mut many = Fine::default();
        // The step of 10,000 and 10,001 also holds greater values.
        (10_000..10_200).for_each(|n| many.add(n));
        many.merge(&Fine::default());
        assert_eq!((many.least(), many.greatest(), many.mean().to_bits()), (10_000, 10_199, 10_099.5_f64.to_bits()));
        let text = serde_json::to_string(&many).unwrap();
        assert_eq!(serde_json::from_str::<Fine>(&text).unwrap(), many);
        let mut delays = Histogram::<4, 0>::default();
        delays.add_times(u64::MAX, 3);
        delays.add_times(5, 0);
        assert_eq!((delays.count(), delays.percentile(0.5), delays.least()), (3, GREATEST, GREATEST));
    }
}
