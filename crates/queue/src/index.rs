//! A hash index of 32-bit positions whose keys lie elsewhere (arena, slab), in shards.
//!
//! Promise: about 8 bytes per entry, and growth never stops the caller for longer than one shard's rehash (1/192 of the
//! entries). Several entries may have equal keys. The owner passes hashes and comparisons.
//!
//! A shard doubles when it is full. Shards get different shares of the entries, spread evenly between one and two, so
//! that they do not all double at the same time. This spreads out the pauses, and the empty space after doubling.

use hashbrown::HashTable;

const SHARDS: u32 = 256;
/// The shard is taken from hash bits that neither the bucket (low bits) nor the tag (top 7 bits) use.
const SHARD_SHIFT: u32 = 40;
const SHARD_BITS: u32 = 16;
const _: () = assert!(SHARDS * SHARDS == 1 << SHARD_BITS);

#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[HashTable<u32>]>,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Index { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }
}

impl Index {
    /// The shard of a hash; the i-th shard gets a share of about `SHARDS + i`.
    fn shard(hash: u64) -> usize {
        let even = (hash >> SHARD_SHIFT) as u32 % (1 << SHARD_BITS);
        (SHARDS * SHARDS + 3 * even).isqrt() as usize - SHARDS as usize
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The first entry with that hash for which `eq` returns true.
    #[inline]
    pub fn find(&self, hash: u64, mut eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards[Self::shard(hash)].find(hash, |entry| eq(*entry)).copied()
    }

    /// Adds an entry, even if one with an equal key is there. `hash_of` recomputes hashes of entries.
    #[inline]
    pub fn insert(&mut self, hash: u64, entry: u32, hash_of: impl Fn(u32) -> u64) {
        self.shards[Self::shard(hash)].insert_unique(hash, entry, |entry| hash_of(*entry));
        self.len += 1;
    }

    /// Removes an entry. Returns whether it was there.
    #[inline]
    pub fn remove(&mut self, hash: u64, entry: u32) -> bool {
        match self.shards[Self::shard(hash)].find_entry(hash, |e| *e == entry) {
            Ok(found) => {
                found.remove();
                self.len -= 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Number of bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.shards.iter().map(HashTable::allocation_size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_differ_evenly_from_one_to_two() {
        let mut counts = vec![0u32; SHARDS as usize];
        for even in 0..1u64 << SHARD_BITS {
            counts[Index::shard(even << SHARD_SHIFT)] += 1;
        }
        let (first, last) = (f64::from(counts[0]), f64::from(counts[counts.len() - 1]));
        assert!((1.9..2.1).contains(&(last / first)), "{first} to {last}");
        assert!(counts.windows(2).all(|pair| pair[0] <= pair[1] + 1), "{counts:?}");
    }

    #[test]
    fn entries_are_found_until_they_are_removed() {
        let (mut index, hash) = (Index::default(), |entry: u32| u64::from(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for entry in 0..20_000 {
            index.insert(hash(entry), entry, hash);
        }
        assert!((0..20_000).all(|entry| index.find(hash(entry), |e| e == entry) == Some(entry)));
        assert!((0..20_000).step_by(2).all(|entry| index.remove(hash(entry), entry)));
        assert_eq!((index.len(), index.find(hash(4), |e| e == 4), index.remove(hash(4), 4)), (10_000, None, false));
    }
}
