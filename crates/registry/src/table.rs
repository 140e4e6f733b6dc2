//! A compact map from 64-bit hashes to the end and reason of a suppression: 13 octets a slot, at most 80 % full.
//!
//! Open addressing with linear probing; a removal moves later entries back, so that there are no marks to clean up. The
//! table grows by a fifth: with hash maps that double, ten million entries would take up to twice the memory.
//!
//! Hash 0 marks an empty slot; the caller never passes it.

/// Slots of a table's first allocation.
const SLOTS_MIN: usize = 8;
/// A table is at most this part full.
const FULL: Fraction = Fraction { of: 4, parts: 5 };
/// It grows to this multiple.
const GROWTH: Fraction = Fraction { of: 6, parts: 5 };

struct Fraction {
    of: usize,
    parts: usize,
}

impl Fraction {
    fn times(&self, n: usize) -> usize {
        n * self.of / self.parts
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Unix time in seconds; 0: never.
    pub ends_s: u32,
    pub reason: u8,
}

#[derive(Default)]
pub struct Table {
    hashes: Vec<u64>,
    ends_s: Vec<u32>,
    reasons: Vec<u8>,
    len: usize,
}

impl Table {
    /// Position at which the search for a hash begins.
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.hashes.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.hashes.len() { 0 } else { at + 1 }
    }

    /// Slots from the home of the entry at `at` to `at`.
    fn distance(&self, home: usize, at: usize) -> usize {
        if at >= home { at - home } else { at + self.hashes.len() - home }
    }

    /// Returns the slot of a hash, or the empty one where it would be.
    fn find(&self, hash: u64) -> Option<usize> {
        if self.hashes.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        // A fifth of the slots is empty.
        while self.hashes[at] != 0 && self.hashes[at] != hash {
            at = self.next(at);
        }
        Some(at)
    }

    pub fn get(&self, hash: u64) -> Option<IndexEntry> {
        let at = self.find(hash).filter(|at| self.hashes[*at] == hash)?;
        Some(IndexEntry { ends_s: self.ends_s[at], reason: self.reasons[at] })
    }

    /// Inserts or replaces an entry. Returns whether it is new.
    pub fn insert(&mut self, hash: u64, entry: IndexEntry) -> bool {
        if self.len + 1 > FULL.times(self.hashes.len()) {
            self.grow();
        }
        let Some(at) = self.find(hash) else { return false };
        let is_new = self.hashes[at] != hash;
        self.len += usize::from(is_new);
        self.hashes[at] = hash;
        self.ends_s[at] = entry.ends_s;
        self.reasons[at] = entry.reason;
        is_new
    }

    /// Removes an entry. Returns whether it was there.
    pub fn remove(&mut self, hash: u64) -> bool {
        let Some(mut hole) = self.find(hash).filter(|at| self.hashes[*at] == hash) else { return false };
        let mut at = self.next(hole);
        while self.hashes[at] != 0 {
            // An entry may move back if the hole is not before its home.
            let home = self.home(self.hashes[at]);
            if self.distance(home, at) >= self.distance(hole, at) {
                self.hashes[hole] = self.hashes[at];
                self.ends_s[hole] = self.ends_s[at];
                self.reasons[hole] = self.reasons[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.hashes[hole] = 0;
        self.len -= 1;
        true
    }

    fn grow(&mut self) {
        let slots = GROWTH.times(self.hashes.len()).max(self.hashes.len() + SLOTS_MIN);
        let larger = Table { hashes: vec![0; slots], ends_s: vec![0; slots], reasons: vec![0; slots], len: self.len };
        let smaller = std::mem::replace(self, larger);
        for (at, hash) in smaller.hashes.iter().enumerate().filter(|(_, hash)| **hash != 0) {
            if let Some(to) = self.find(*hash) {
                self.hashes[to] = *hash;
                self.ends_s[to] = smaller.ends_s[at];
                self.reasons[to] = smaller.reasons[at];
            }
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>() + self.ends_s.capacity() * size_of::<u32>() + self.reasons.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few different hashes, near each other and at both ends, so that runs collide and wrap around.
        #[test]
        fn a_table_is_a_map(steps in proptest::collection::vec((0u64..60, 0u8..4, any::<u32>()), 0..400)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (n, what, ends_s) in steps {
                let hash = if n < 30 { u64::MAX - n } else { n };
                if what == 0 {
                    prop_assert_eq!(table.remove(hash), map.remove(&hash).is_some());
                } else {
                    let entry = IndexEntry { ends_s, reason: what };
                    prop_assert_eq!(table.insert(hash, entry), map.insert(hash, entry).is_none());
                }
                prop_assert_eq!(table.len, map.len());
                for n in 0..60 {
                    let hash = if n < 30 { u64::MAX - n } else { n };
                    prop_assert_eq!(table.get(hash), map.get(&hash).copied());
                }
            }
        }
    }

    #[test]
    fn the_memory_of_ten_million_entries_is_bounded() {
        let (mut table, mut hash) = (Table::default(), 0u64);
        let mut most = 0.0f64;
        for n in 1..=200_000u32 {
            hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
            table.insert(hash, IndexEntry { ends_s: n, reason: 1 });
            if n > 10_000 {
                most = most.max(table.heap_bytes() as f64 / f64::from(n));
            }
        }
        assert!(most * 1e7 <= 200.0 * 1024.0 * 1024.0, "{most} octets an entry");
    }
}
