//! Pending recipients by site and age: `ages`, as qshape shows them.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

/// Rows of an answer.
const ROWS_DEFAULT: u32 = 20;
/// Buckets of a row.
pub const BUCKETS: usize = 10;
/// The ages at which buckets end, in minutes; the last has no end.
pub const MINUTES: [u64; BUCKETS - 1] = [5, 10, 20, 40, 80, 160, 320, 640, 1_280];

/// Which bucket an age is in.
pub fn bucket(age_ms: Ms) -> usize {
    MINUTES.iter().take_while(|minutes| age_ms >= **minutes * 60_000).count()
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct AgesOptions {
    pub rows_max: u32,
}

impl Default for AgesOptions {
    fn default() -> AgesOptions {
        AgesOptions { rows_max: ROWS_DEFAULT }
    }
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Ages {
    pub hostname: String,
    pub now: Ms,
    /// Pending recipients of the queue, and those that were counted: the oldest, if there are too many.
    pub recipients: u64,
    pub counted: u64,
    pub sites_total: u64,
    /// Where the buckets end, minutes.
    pub minutes: Vec<u64>,
    pub total: [u64; BUCKETS],
    /// Those with most recipients first.
    pub rows: Vec<AgesRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AgesRow {
    pub site: String,
    pub recipients: u64,
    pub by_age: [u64; BUCKETS],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double() {
        let minute = 60_000;
        let ages = [
            0,
            5 * minute - 1,
            5 * minute,
            10 * minute,
            79 * minute,
            80 * minute,
            1_279 * minute,
            1_280 * minute,
            Ms::MAX,
        ];
        assert_eq!(ages.map(bucket), [0, 0, 1, 2, 4, 5, 8, 9, 9]);
    }
}
