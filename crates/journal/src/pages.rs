//! A packed map whose keys are numbers assigned in order.
//!
//! Promise: a page packs the entries of 64 numbers without gaps, so that an entry of a page in use costs its own size
//! and a byte or two (an ordered map fills its nodes half when keys come in order: three times as much). A lone entry
//! costs its page's 48 bytes. Iteration is by number; removal moves at most 63 entries.

use std::collections::BTreeMap;
use std::ops::Range;

const PAGE_SHIFT: u32 = 6;
const PAGE_MASK: u64 = (1 << PAGE_SHIFT) - 1;
/// A page with this much unused capacity releases half of it.
const SLACK_MIN: usize = 16;

#[derive(Debug)]
struct Page<T> {
    present: u64,
    entries: Vec<T>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Page { present: 0, entries: Vec::new() }
    }
}

impl<T> Page<T> {
    /// The index of the entry, present or not, and whether it is present.
    fn place(&self, id: u64) -> (usize, bool) {
        let bit = id & PAGE_MASK;
        ((self.present & ((1 << bit) - 1)).count_ones() as usize, self.present >> bit & 1 == 1)
    }

    fn numbered(&self, page: u64) -> impl Iterator<Item = (u64, &T)> {
        let mut present = self.present;
        self.entries.iter().map(move |entry| {
            let bit = present.trailing_zeros();
            present &= present - 1;
            (page << PAGE_SHIFT | u64::from(bit), entry)
        })
    }
}

/// A packed map; see the module's head.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    pages: BTreeMap<u64, Page<T>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T> Pages<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, id: u64) -> Option<&T> {
        let page = self.pages.get(&(id >> PAGE_SHIFT))?;
        let (at, is_there) = page.place(id);
        is_there.then(|| &page.entries[at])
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let page = self.pages.get_mut(&(id >> PAGE_SHIFT))?;
        let (at, is_there) = page.place(id);
        is_there.then(|| &mut page.entries[at])
    }

    pub fn insert(&mut self, id: u64, entry: T) {
        let page = self.pages.entry(id >> PAGE_SHIFT).or_default();
        let (at, is_there) = page.place(id);
        if is_there {
            page.entries[at] = entry;
        } else {
            page.entries.insert(at, entry);
            page.present |= 1 << (id & PAGE_MASK);
            self.len += 1;
        }
    }

    pub fn remove(&mut self, id: u64) -> Option<T> {
        let page = self.pages.get_mut(&(id >> PAGE_SHIFT))?;
        let (at, is_there) = page.place(id);
        if !is_there {
            return None;
        }
        let entry = page.entries.remove(at);
        page.present &= !(1 << (id & PAGE_MASK));
        self.len -= 1;
        if page.entries.is_empty() {
            self.pages.remove(&(id >> PAGE_SHIFT));
        } else if page.entries.capacity() >= SLACK_MIN && page.entries.len() * 4 <= page.entries.capacity() {
            page.entries.shrink_to(page.entries.capacity() / 2);
        }
        Some(entry)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(u64, &T) -> bool) {
        let len = &mut self.len;
        self.pages.retain(|number, page| {
            let mut ids = page.present;
            page.entries.retain(|entry| {
                let bit = ids.trailing_zeros();
                ids &= ids - 1;
                let kept = keep(number << PAGE_SHIFT | u64::from(bit), entry);
                if !kept {
                    page.present &= !(1 << bit);
                    *len -= 1;
                }
                kept
            });
            page.present != 0
        });
    }

    /// Entries in order of number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pages.iter().flat_map(|(number, page)| page.numbered(*number))
    }

    /// Entries with numbers in `ids`, in order of number.
    pub fn range(&self, ids: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        let last = ids.end.saturating_sub(1).max(ids.start);
        let pages = self.pages.range(ids.start >> PAGE_SHIFT..=last >> PAGE_SHIFT);
        pages.flat_map(|(number, page)| page.numbered(*number)).filter(move |(id, _)| ids.contains(id))
    }

    pub fn last_id(&self) -> Option<u64> {
        let (number, page) = self.pages.last_key_value()?;
        Some(number << PAGE_SHIFT | u64::from(page.present.ilog2()))
    }

    pub fn get_or_insert_with(&mut self, id: u64, make: impl FnOnce() -> T) -> &mut T {
        let page = self.pages.entry(id >> PAGE_SHIFT).or_default();
        let (at, is_there) = page.place(id);
        if !is_there {
            page.entries.insert(at, make());
            page.present |= 1 << (id & PAGE_MASK);
            self.len += 1;
        }
        &mut page.entries[at]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_are_a_map(steps in proptest::collection::vec((0u8..5, 0u64..300, any::<u16>()), 0..800), base in any::<u32>()) {
            let (mut pages, mut model) = (Pages::default(), BTreeMap::new());
            for (kind, id, value) in steps {
                let id = u64::from(base) + id;
                match kind {
                    0 | 1 => {
                        pages.insert(id, value);
                        model.insert(id, value);
                    }
                    2 => prop_assert_eq!(pages.remove(id), model.remove(&id)),
                    3 => prop_assert_eq!(*pages.get_or_insert_with(id, || value), *model.entry(id).or_insert(value)),
                    _ => {
                        pages.retain(|id, value| (id ^ u64::from(*value)) % 5 > 0);
                        model.retain(|id, value| (*id ^ u64::from(*value)) % 5 > 0);
                    }
                }
                prop_assert_eq!(pages.get(id), model.get(&id));
                prop_assert_eq!(pages.get_mut(id), model.get_mut(&id));
                prop_assert_eq!((pages.len(), pages.last_id()), (model.len(), model.keys().next_back().copied()));
            }
            prop_assert!(pages.iter().eq(model.iter().map(|(id, value)| (*id, value))));
            let part = u64::from(base) + 50..u64::from(base) + 150;
            prop_assert!(pages.range(part.clone()).eq(model.range(part).map(|(id, value)| (*id, value))));
            prop_assert_eq!(pages.range(5..5).count(), 0);
        }
    }
}
