//! Durations in buckets that grow with them: percentiles to within a sixteenth, for any number of values, in little
//! memory.

/// Buckets within a doubling.
const STEPS: u64 = 16;
const STEPS_LOG2: u32 = STEPS.trailing_zeros();
/// Longer ones (194 days) fall into the last bucket.
const LONGEST_MS: u64 = (1 << 34) - 1;

/// Counts of durations in milliseconds. At most 4 KiB.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Histogram {
    pub fn add(&mut self, ms: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = bucket(ms.min(LONGEST_MS));
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += times;
        self.total += times;
        self.longest = self.longest.max(ms);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours += theirs;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    /// The duration that this share (0 to 1) of all values did not exceed, to within a sixteenth; `None` without
    /// values.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(highest_of(bucket).min(self.longest));
            }
        }
        Some(self.longest)
    }

    pub fn percentiles(&self) -> Option<Percentiles> {
        Some(Percentiles {
            p50_ms: self.percentile(0.5)?,
            p90_ms: self.percentile(0.9)?,
            p99_ms: self.percentile(0.99)?,
            max_ms: self.longest,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Percentiles {
    pub p50_ms: u64,
    pub p90_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

fn bucket(ms: u64) -> usize {
    if ms < STEPS {
        return ms as usize;
    }
    let power = ms.ilog2() - STEPS_LOG2;
    ((u64::from(power) + 1) * STEPS + (ms >> power) - STEPS) as usize
}

/// The longest duration that falls into this bucket.
fn highest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let power = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_sixteenth() {
        let mut histogram = Histogram::default();
        for ms in 0..100_000u64 {
            histogram.add(ms, 1);
        }
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = 100_000.0 * share - 1.0;
            let found = histogram.percentile(share).unwrap() as f64;
            assert!(found >= exact && found <= exact * 1.0625 + 1.0, "{share}: {found} for {exact}");
        }
        assert_eq!(Histogram::default().percentile(0.5), None);
    }

    #[test]
    fn each_bucket_begins_where_the_one_before_ends() {
        for ms in (0..5000).chain([LONGEST_MS - 1, LONGEST_MS]) {
            assert!(highest_of(bucket(ms)) >= ms && (ms == 0 || highest_of(bucket(ms) - 1) < ms), "{ms}");
        }
        let mut histogram = Histogram::default();
        histogram.add(u64::MAX, 1);
        assert_eq!(histogram.percentile(0.5), Some(LONGEST_MS));
    }
}
