//! Tables that grow without pauses: each growth moves only a small part of the entries.

use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Map for small tables.
pub type Map<K, V> = HashMap<K, V, RandomState>;

/// Number of parts of a map: at a million entries one part of 8,000 entries is moved at a time.
const PARTS: usize = 128;
/// The bits of the hash that choose the part; the maps use the lowest and the highest.
const PART_SHIFT: u32 = 40;
/// Entries in one piece of a list.
const PIECE: usize = 1_024;

/// A hash map in parts.
pub(crate) struct Parts<K, V> {
    hasher: RandomState,
    maps: Vec<HashMap<K, V, RandomState>>,
    len: usize,
}

impl<K, V> Default for Parts<K, V> {
    fn default() -> Self {
        let hasher = RandomState::default();
        let maps = (0..PARTS).map(|_| HashMap::with_hasher(hasher.clone())).collect();
        Parts { hasher, maps, len: 0 }
    }
}

impl<K: Eq + Hash, V> Parts<K, V> {
    fn part(&self, key: &K) -> usize {
        (self.hasher.hash_one(key) >> PART_SHIFT) as usize % PARTS
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        if self.len == 0 { None } else { self.maps[self.part(key)].get(key) }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if self.len == 0 {
            return None;
        }
        let part = self.part(key);
        self.maps[part].get_mut(key)
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let part = self.part(&key);
        let old = self.maps[part].insert(key, value);
        self.len += usize::from(old.is_none());
        old
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        if self.len == 0 {
            return None;
        }
        let part = self.part(key);
        let old = self.maps[part].remove(key);
        self.len -= usize::from(old.is_some());
        old
    }

    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let part = self.part(&key);
        let len = &mut self.len;
        self.maps[part].entry(key).or_insert_with(|| {
            *len += 1;
            make()
        })
    }
}

/// Progress of a visit in slices.
#[derive(Clone, Copy, Default)]
pub(crate) struct PartsCursor {
    part: usize,
    done: usize,
}

impl<K, V> Parts<K, V> {
    /// The next entries, at most `max`, in any order; `None` at the end. Entries that come or go meanwhile may be
    /// visited twice or not at all.
    pub fn slice(&self, at: &mut PartsCursor, max: usize) -> Option<impl Iterator<Item = (&K, &V)>> {
        let map = self.maps.get(at.part)?;
        let from = at.done;
        *at = if map.len() <= from + max {
            PartsCursor { part: at.part + 1, done: 0 }
        } else {
            PartsCursor { done: from + max, ..*at }
        };
        Some(map.iter().skip(from).take(max))
    }
}

/// A growing list in pieces.
pub(crate) struct Pieces<T> {
    list: Vec<Vec<T>>,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { list: Vec::new() }
    }
}

impl<T> Pieces<T> {
    pub fn len(&self) -> usize {
        self.list.last().map_or(0, |last| (self.list.len() - 1) * PIECE + last.len())
    }

    pub fn push(&mut self, value: T) {
        match self.list.last_mut() {
            Some(last) if last.len() < PIECE => last.push(value),
            _ => self.list.push(vec![value]),
        }
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        self.list.get(index / PIECE)?.get(index % PIECE)
    }
}

impl<T> Index<usize> for Pieces<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.list[index / PIECE][index % PIECE]
    }
}

impl<T> IndexMut<usize> for Pieces<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.list[index / PIECE][index % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slices_have_each_entry_once() {
        let mut parts = Parts::default();
        (0..5_000u32).for_each(|key| _ = parts.insert(key, key));
        let (mut at, mut seen) = (PartsCursor::default(), Vec::new());
        while let Some(slice) = parts.slice(&mut at, 7) {
            seen.extend(slice.map(|(key, _)| *key));
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..5_000));
    }

    proptest! {
        #[test]
        fn parts_are_a_map(steps in proptest::collection::vec((0u8..3, 0u16..300, any::<u32>()), 0..2_000)) {
            let (mut parts, mut model) = (Parts::default(), HashMap::new());
            for (kind, key, value) in steps {
                match kind {
                    0 => prop_assert_eq!(parts.insert(key, value), model.insert(key, value)),
                    1 => prop_assert_eq!(parts.remove(&key), model.remove(&key)),
                    _ => prop_assert_eq!(*parts.get_or_insert_with(key, || value), *model.entry(key).or_insert(value)),
                }
                prop_assert_eq!(parts.get(&key), model.get(&key));
                prop_assert_eq!((parts.len(), parts.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }

    #[test]
    fn pieces_are_a_list() {
        let mut pieces = Pieces::default();
        for i in 0..PIECE * 2 + 3 {
            assert_eq!(pieces.len(), i);
            pieces.push(i);
        }
        pieces[PIECE] = 7;
        assert_eq!((pieces[0], pieces[PIECE], pieces[PIECE * 2 + 2]), (0, 7, PIECE * 2 + 2));
        assert_eq!(pieces.get(PIECE * 2 + 3), None);
    }
}
