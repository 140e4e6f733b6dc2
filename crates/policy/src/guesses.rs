//! Delays after wrong passwords: each wrong one beyond the first few doubles the wait, up to a limit.
//!
//! Promise: memory is allocated once, [`ENTRIES_MAX`] entries of 24 bytes; a call examines [`WAYS`] of them. If all
//! of these are in use, the one with the fewest wrong guesses is evicted, the oldest first: single guesses from very
//! many places displace each other, but no persistent guesser. Each kind of key has its own table, so that a flood of
//! one kind does not displace the other. Times are monotonic; if they go backwards, no wait exceeds the maximum.

use std::hash::{BuildHasher as _, Hash};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use stentor_mail::Ms;

/// Maximum keys remembered.
pub const ENTRIES_MAX: usize = 16_384;
/// Entries that a key may occupy.
const WAYS: usize = 8;

/// The delays for wrong guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowness {
    /// Wrong guesses without a delay.
    pub free: u32,
    /// The first delay; it doubles with each wrong guess.
    pub wait_ms_min: u64,
    pub wait_ms_max: u64,
    /// Time without wrong guesses after which the count restarts.
    pub forgotten_ms: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Hash of the key; 0: free.
    key: u64,
    last: Ms,
    wrong: u32,
}

/// Counts of wrong guesses by key.
#[derive(Debug)]
pub struct Guesses {
    hasher: SeedableRandomState,
    entries: Box<[Entry]>,
    slowness: Slowness,
}

impl Guesses {
    /// A random `seed` keeps attackers from choosing the keys that share a set.
    pub fn new(slowness: Slowness, seed: u64) -> Guesses {
        Guesses {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            entries: vec![Entry::default(); ENTRIES_MAX].into_boxed_slice(),
            slowness,
        }
    }

    fn set(&self, key: &impl Hash) -> (u64, usize) {
        let hash = self.hasher.hash_one(key).max(1);
        (hash, (hash as usize % (ENTRIES_MAX / WAYS)) * WAYS)
    }

    /// Number of wrong guesses that count at this time.
    fn counted(&self, entry: &Entry, now: Ms) -> u32 {
        let is_old = now.saturating_sub(entry.last) >= self.slowness.forgotten_ms;
        if entry.key == 0 || is_old { 0 } else { entry.wrong }
    }

    /// Remaining delay of the key, if there is one.
    pub fn wait_ms(&self, key: &impl Hash, now: Ms) -> Option<u64> {
        let (hash, first) = self.set(key);
        let entry = self.entries[first..first + WAYS].iter().find(|entry| entry.key == hash)?;
        let doublings = self.counted(entry, now).checked_sub(self.slowness.free)?;
        let wait_ms = self.slowness.wait_ms_min.saturating_mul(1 << doublings.min(20)).min(self.slowness.wait_ms_max);
        let left = (entry.last.min(now) + wait_ms).saturating_sub(now);
        (left > 0).then_some(left)
    }

    /// Counts a wrong guess.
    pub fn wrong(&mut self, key: &impl Hash, now: Ms) {
        let (hash, first) = self.set(key);
        let order = |entry: &Entry| (self.counted(entry, now), entry.last);
        let set = &self.entries[first..first + WAYS];
        let known = set.iter().position(|entry| entry.key == hash);
        let place = known.or_else(|| (0..WAYS).min_by_key(|place| order(&set[*place]))).unwrap_or(0);
        let before = if known.is_some() { self.counted(&set[place], now) } else { 0 };
        self.entries[first + place] = Entry { key: hash, last: now, wrong: before.saturating_add(1) };
    }

    /// Forgets the wrong guesses of a key.
    pub fn right(&mut self, key: &impl Hash) {
        let (hash, first) = self.set(key);
        if let Some(entry) = self.entries[first..first + WAYS].iter_mut().find(|entry| entry.key == hash) {
            *entry = Entry::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOWNESS: Slowness = Slowness { free: 5, wait_ms_min: 1_000, wait_ms_max: 60_000, forgotten_ms: 900_000 };

    #[test]
    fn who_guesses_waits_longer_and_longer_and_others_do_not() {
        let mut guesses = Guesses::new(SLOWNESS, 1);
        for n in 0..5 {
            assert_eq!(guesses.wait_ms(&"ann", 0), None, "{n}");
            guesses.wrong(&"ann", 0);
        }
        assert_eq!(guesses.wait_ms(&"ann", 0), Some(1_000));
        guesses.wrong(&"ann", 1_000);
        assert_eq!(guesses.wait_ms(&"ann", 1_000), Some(2_000));
        assert_eq!(guesses.wait_ms(&"ann", 2_500), Some(500));
        assert_eq!(guesses.wait_ms(&"ann", 3_000), None);
        for _ in 0..100 {
            guesses.wrong(&"ann", 3_000);
        }
        assert_eq!(guesses.wait_ms(&"ann", 3_000), Some(60_000));
        assert_eq!(guesses.wait_ms(&"bob", 3_000), None);
        // The clock is set back.
        assert_eq!(guesses.wait_ms(&"ann", 1_000), Some(60_000));
        guesses.right(&"ann");
        assert_eq!(guesses.wait_ms(&"ann", 3_000), None);
    }

    #[test]
    fn guesses_are_forgotten_in_time() {
        let mut guesses = Guesses::new(SLOWNESS, 1);
        (0..6).for_each(|_| guesses.wrong(&"ann", 0));
        guesses.wrong(&"ann", 900_000);
        assert_eq!(guesses.wait_ms(&"ann", 900_000), None);
    }

    #[test]
    fn a_flood_of_single_guesses_forgets_no_one_who_goes_on() {
        let mut guesses = Guesses::new(SLOWNESS, 7);
        (0..10).for_each(|_| guesses.wrong(&u64::MAX, 0));
        (0..8 * ENTRIES_MAX as u64).for_each(|n| guesses.wrong(&n, 1));
        assert!(guesses.wait_ms(&u64::MAX, 2).is_some());
        assert_eq!(guesses.entries.len() * size_of::<Entry>(), ENTRIES_MAX * 24);
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_the_longest(steps in proptest::collection::vec((0u8..3, 0u64..2_000_000), 0..60)) {
            let mut guesses = Guesses::new(SLOWNESS, 3);
            for (key, now) in steps {
                guesses.wrong(&key, now);
                for at in [0, now, now + 70_000] {
                    prop_assert!(guesses.wait_ms(&key, at).unwrap_or(0) <= SLOWNESS.wait_ms_max);
                }
                prop_assert_eq!(guesses.wait_ms(&key, now + 60_000), None);
            }
        }
    }
}
