//! Keys and values in one byte arena, indexed by a hash table of 32-bit positions.
//!
//! Promise: besides its own bytes, an entry takes about three for lengths and line, and five to ten in the hash
//! table. Of several entries with one key the first is kept, as in postmap and makemap. A table is immutable once
//! built.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;

use crate::diagnostic::{FileReport, TableProblem};
use crate::fold::Fold;

/// Maximum size of the arena: positions have 32 bits.
const ARENA_BYTES_MAX: usize = u32::MAX as usize;

#[derive(Debug)]
pub(crate) struct Keyed {
    arena: Vec<u8>,
    index: HashTable<u32>,
    fold: Fold,
}

/// An entry that was found. Line 0 means that there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub line: u32,
}

/// Why an entry was not added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    NotUtf8,
    Duplicate { first: u32 },
    Full,
}

impl NotAdded {
    /// Reports the reason for this line. Returns false if no more entries fit.
    pub fn report(&self, report: &mut FileReport<'_>, line: u32, key: &[u8]) -> bool {
        let problem = match self {
            Self::NotUtf8 => TableProblem::NotUtf8,
            Self::Duplicate { first } => {
                TableProblem::Duplicate { key: String::from_utf8_lossy(key).into_owned(), first: *first }
            }
            Self::Full => TableProblem::TooManyEntries { max: crate::ENTRIES_MAX },
        };
        report.add(line, problem);
        !matches!(self, Self::Full)
    }
}

impl Keyed {
    /// `bytes` is the estimated size of keys and values.
    pub fn new(fold: Fold, bytes: usize) -> Self {
        Self { arena: Vec::with_capacity(bytes.min(ARENA_BYTES_MAX)), index: HashTable::new(), fold }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory used.
    pub fn bytes(&self) -> usize {
        self.arena.capacity() + self.index.allocation_size()
    }

    /// Adds an entry unless its key exists. `folded` is a reusable buffer.
    pub fn add(&mut self, key: &[u8], value: &[u8], line: u32, folded: &mut Vec<u8>) -> Result<(), NotAdded> {
        self.fold.fold(key, folded).map_err(|_| NotAdded::NotUtf8)?;
        let place = self.arena.len();
        if self.index.len() >= crate::ENTRIES_MAX || place + folded.len() + value.len() + 15 > ARENA_BYTES_MAX {
            return Err(NotAdded::Full);
        }
        let arena = &self.arena;
        let rehash = |place: &u32| hash(hit(arena, *place).key);
        match self.index.entry(hash(folded), |place| hit(arena, *place).key == folded.as_slice(), rehash) {
            Entry::Occupied(there) => {
                return Err(NotAdded::Duplicate { first: hit(arena, *there.get()).line });
            }
            Entry::Vacant(free) => free.insert(place as u32),
        };
        push_number(&mut self.arena, line);
        push_number(&mut self.arena, folded.len() as u32);
        push_number(&mut self.arena, value.len() as u32);
        self.arena.extend_from_slice(folded);
        self.arena.extend_from_slice(value);
        Ok(())
    }

    /// Frees reserved memory that is not used.
    pub fn finish(mut self) -> Self {
        self.arena.shrink_to_fit();
        let arena = &self.arena;
        self.index.shrink_to_fit(|place| hash(hit(arena, *place).key));
        self
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = Hit<'_>> {
        self.index.iter().map(|place| hit(&self.arena, *place))
    }

    pub fn get(&self, key: &[u8], folded: &mut Vec<u8>) -> Option<Hit<'_>> {
        self.fold.fold(key, folded).ok()?;
        self.get_folded(folded, hash(folded))
    }

    /// Looks up a key that is already folded as in this table, with its [`hash`].
    pub fn get_folded(&self, folded: &[u8], hash: u64) -> Option<Hit<'_>> {
        let is_it = |place: &u32| hit(&self.arena, *place).key == folded;
        self.index.find(hash, is_it).map(|place| hit(&self.arena, *place))
    }
}

/// Hashes a key without a seed: the network supplies only lookups, and keys come from the administrator.
pub(crate) fn hash(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}

/// The entry at a position written by [`Keyed::add`].
fn hit(arena: &[u8], place: u32) -> Hit<'_> {
    let mut rest = &arena[place as usize..];
    let line = number(&mut rest);
    let key_bytes = number(&mut rest) as usize;
    let value_bytes = number(&mut rest) as usize;
    let (key, rest) = rest.split_at(key_bytes);
    Hit { key, value: &rest[..value_bytes], line }
}

/// Appends a number, seven bits to a byte, the lowest first.
fn push_number(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(rest: &mut &[u8]) -> u32 {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let Some((&byte, after)) = rest.split_first() else { break };
        *rest = after;
        number |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_of_a_key_stays() {
        let (mut keyed, mut buffer) = (Keyed::new(Fold::Unicode, 0), Vec::new());
        assert_eq!(keyed.add(b"Key", b"1", 300, &mut buffer), Ok(()));
        assert_eq!(keyed.add(b"kEY", b"2", 301, &mut buffer), Err(NotAdded::Duplicate { first: 300 }));
        assert_eq!(keyed.add(b"\xff", b"2", 302, &mut buffer), Err(NotAdded::NotUtf8));
        let keyed = keyed.finish();
        let found = keyed.get(b"KEY", &mut buffer).unwrap();
        assert_eq!((found.key, found.value, found.line), (&b"key"[..], &b"1"[..], 300));
        assert_eq!((keyed.get(b"", &mut buffer), keyed.get(b"\xff", &mut buffer), keyed.len()), (None, None, 1));
    }

    proptest! {
        #[test]
        fn it_is_a_map(entries in proptest::collection::vec(("[a-d]{0,3}", ".{0,200}", any::<u32>()), 0..200)) {
            let (mut keyed, mut buffer) = (Keyed::new(Fold::Ascii, 0), Vec::new());
            let mut model: HashMap<&str, (&str, u32)> = HashMap::new();
            for (key, value, line) in &entries {
                let added = keyed.add(key.as_bytes(), value.as_bytes(), *line, &mut buffer);
                let first = model.get(key.as_str()).map(|&(_, first)| first);
                prop_assert_eq!(added, first.map_or(Ok(()), |first| Err(NotAdded::Duplicate { first })));
                model.entry(key).or_insert((value, *line));
            }
            let keyed = keyed.finish();
            prop_assert_eq!(keyed.len(), model.len());
            for (key, (value, line)) in model {
                let found = keyed.get(key.as_bytes(), &mut buffer).unwrap();
                prop_assert_eq!((found.value, found.line), (value.as_bytes(), line));
            }
            prop_assert_eq!(keyed.get(b"abcd", &mut buffer), None);
        }
    }
}
