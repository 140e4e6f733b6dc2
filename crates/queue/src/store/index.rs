//! A hash index of 32-bit positions whose keys lie elsewhere (arena, slab), in shards.
//!
//! Promise: about 10 bytes per entry, and growth never stops the caller for longer than one shard's rehash (1/256 of
//! the entries). Several entries may have equal keys. The owner passes hashes and comparisons.

use hashbrown::HashTable;

const SHARDS: usize = 256;
/// The shard is taken from hash bits that neither the bucket (low bits) nor the tag (top 7 bits) use.
const SHARD_SHIFT: u32 = 44;

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
    fn shard(hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize % SHARDS
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The first entry of that hash for which `eq` says yes.
    #[inline]
    pub fn find(&self, hash: u64, mut eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards[Self::shard(hash)].find(hash, |entry| eq(*entry)).copied()
    }

    /// Adds an entry, whether or not one with an equal key is there. `hash_of` recomputes hashes of entries.
    #[inline]
    pub fn insert(&mut self, hash: u64, entry: u32, hash_of: impl Fn(u32) -> u64) {
        self.shards[Self::shard(hash)].insert_unique(hash, entry, |entry| hash_of(*entry));
        self.len += 1;
    }

    /// Whether `entry` was there.
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

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.shards.iter().map(HashTable::allocation_size).sum()
    }

    pub fn clear(&mut self) {
        *self = Index::default();
    }
}
