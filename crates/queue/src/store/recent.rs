//! Messages by a key (queue id, content id): a small table of recent ones in front of an [`Index`] of all others.
//!
//! Promise: most mail leaves within moments. A message that leaves before [`LATELY_MAX`] others have arrived is found,
//! added and removed in a table that stays in the processor's cache, however many messages wait. Older ones are moved
//! to the index, at most [`MOVED_PER_INSERT`] per insertion, so that no call is long. Keys mostly grow: a key above all
//! that were moved is not looked up in the index. Several messages may have equal keys.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::index::Index;

/// Number of later arrivals after which a message is moved to the index.
const LATELY_MAX: usize = 1_024;
/// More than one, so that the backlog shrinks after many arrivals at once.
const MOVED_PER_INSERT: usize = 2;

/// A key and its message's number.
type Entry = (u64, u32);

/// Messages by key; see the module's head.
#[derive(Debug, Default)]
pub(super) struct RecentMessages {
    hasher: RandomState,
    lately: HashTable<Entry>,
    /// Entries in order of arrival; some may be gone.
    line: VecDeque<Entry>,
    behind: Index,
    /// All keys in `behind` are below this.
    behind_below: u64,
}

impl RecentMessages {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lately.len() + self.behind.len()
    }

    pub fn clear(&mut self) {
        *self = RecentMessages::default();
    }

    /// The number of a message with this key. `key_of` returns the key of a message's number.
    #[inline]
    pub fn find(&self, key: u64, key_of: impl Fn(u32) -> Option<u64>) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        if let Some((_, no)) = self.lately.find(hash, |(known, _)| *known == key) {
            return Some(*no);
        }
        if key >= self.behind_below {
            return None;
        }
        self.behind.find(hash, |no| key_of(no) == Some(key))
    }

    /// Adds a message, even if one with an equal key is there.
    pub fn insert(&mut self, key: u64, no: u32, key_of: impl Fn(u32) -> Option<u64>) {
        let hasher = &self.hasher;
        self.lately.insert_unique(hasher.hash_one(key), (key, no), |(key, _)| hasher.hash_one(key));
        self.line.push_back((key, no));
        for _ in 0..MOVED_PER_INSERT {
            if self.line.len() <= LATELY_MAX {
                break;
            }
            let Some(oldest) = self.line.pop_front() else { break };
            let hash = self.hasher.hash_one(oldest.0);
            let Ok(found) = self.lately.find_entry(hash, |entry| *entry == oldest) else { continue };
            found.remove();
            // Every entry in `behind` is an existing message.
            self.behind.insert(hash, oldest.1, |no| key_of(no).map_or(0, |key| self.hasher.hash_one(key)));
            self.behind_below = self.behind_below.max(oldest.0.saturating_add(1));
        }
    }

    /// Removes a message. Returns whether it was there.
    pub fn remove(&mut self, key: u64, no: u32) -> bool {
        let hash = self.hasher.hash_one(key);
        match self.lately.find_entry(hash, |entry| *entry == (key, no)) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => key < self.behind_below && self.behind.remove(hash, no),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Numbers grow, and keys mostly do; most messages go soon, some stay, some share a key.
        #[test]
        fn what_is_there_is_found(
            steps in proptest::collection::vec((0u8..8, 0u64..40, any::<prop::sample::Index>()), 0..6_000),
        ) {
            let (mut recent, mut model) = (RecentMessages::default(), BTreeMap::<u32, u64>::new());
            for (no, (kind, back, which)) in steps.into_iter().enumerate() {
                let no = no as u32;
                if kind < 5 || model.is_empty() {
                    let key = u64::from(no).saturating_sub(back);
                    model.insert(no, key);
                    recent.insert(key, no, |no| model.get(&no).copied());
                } else {
                    let at = if kind < 7 { model.len() - 1 - which.index(model.len().min(9)) } else { which.index(model.len()) };
                    let (no, key) = model.iter().nth(at).map(|(no, key)| (*no, *key)).unwrap();
                    model.remove(&no);
                    prop_assert!(recent.remove(key, no));
                    prop_assert!(!recent.remove(key, no));
                    let found = recent.find(key, |no| model.get(&no).copied());
                    prop_assert_eq!(found.is_some(), model.values().any(|known| *known == key));
                }
                prop_assert_eq!(recent.len(), model.len());
                prop_assert!(recent.line.len() <= LATELY_MAX && recent.lately.len() <= LATELY_MAX);
            }
            for key in model.values() {
                let found = recent.find(*key, |no| model.get(&no).copied());
                prop_assert_eq!(found.and_then(|no| model.get(&no)), Some(key));
            }
        }
    }

    #[test]
    fn what_goes_soon_leaves_nothing_behind_however_many_wait() {
        let mut recent = RecentMessages::default();
        let waiting = 10 * LATELY_MAX as u32;
        (0..waiting).for_each(|no| recent.insert(no.into(), no, |no| Some(no.into())));
        let behind = recent.behind.len();
        assert_eq!(behind, waiting as usize - LATELY_MAX);
        for no in waiting..3 * waiting {
            recent.insert(no.into(), no, |no| Some(no.into()));
            assert!(recent.remove(no.into(), no));
        }
        assert_eq!((recent.lately.len(), recent.behind.len()), (0, waiting as usize));
        // Nor are new keys looked up there.
        assert_eq!(recent.behind_below, u64::from(waiting));
    }
}
