//! Index of addresses with capitals by their lower-case form: local parts are case-sensitive (RFC 5321 section 2.4),
//! but people do not always spell theirs the same way.
//!
//! Promise: a look-up sees at most [`SPELLINGS_MAX`] ids, however many spellings were interned; later spellings of an
//! address are not indexed. Addresses without capitals, nearly all, take no space here.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::idset::IdSet;

/// Number of spellings of one address that are remembered.
pub(super) const SPELLINGS_MAX: usize = 16;

/// Ids by the hash of their folded text. The hash is keyed, so that nobody can create collisions on purpose.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    by_hash: HashMap<u64, Vec<u32>, foldhash::fast::RandomState>,
    /// All ids of addresses with capitals, also those that are not indexed.
    ids: IdSet,
}

pub(super) fn has_capitals(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

impl Spellings {
    pub fn insert(&mut self, hash: u64, id: u32) {
        let ids = self.by_hash.entry(hash).or_insert_with(|| Vec::with_capacity(1));
        if ids.len() < SPELLINGS_MAX {
            ids.push(id);
        }
        self.ids.insert(id);
    }

    pub fn remove(&mut self, hash: u64, id: u32) {
        self.ids.remove(id);
        if let Entry::Occupied(mut entry) = self.by_hash.entry(hash) {
            entry.get_mut().retain(|other| *other != id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Ids with this hash for which `is_it` returns true: another address may have the same hash.
    pub fn of(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        self.by_hash.get(&hash).into_iter().flatten().copied().filter(move |id| is_it(*id))
    }

    pub fn ids(&self) -> &IdSet {
        &self.ids
    }

    pub fn heap_bytes(&self) -> usize {
        let lists: usize = self.by_hash.values().map(|ids| ids.capacity() * size_of::<u32>()).sum();
        self.by_hash.allocation_size() + lists + self.ids.heap_bytes()
    }
}
