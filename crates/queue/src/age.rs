//! Ages in doubling buckets, as in Postfix's qshape.

use crate::ids::Ms;

/// Number of buckets.
pub const BUCKETS: usize = 10;
/// Upper ends of the buckets, in minutes; the last bucket has none.
pub const MINUTES: [u64; BUCKETS - 1] = [5, 10, 20, 40, 80, 160, 320, 640, 1_280];

/// The bucket of an age.
pub fn bucket(age_ms: Ms) -> usize {
    MINUTES.iter().take_while(|minutes| age_ms >= **minutes * 60_000).count()
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
