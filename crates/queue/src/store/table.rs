//! Messages by number, packed.
//!
//! Promise: numbers grow, wrap at 2^32 and skip those in use, so that cyclic order from the oldest is insertion order.
//! A page holds the live messages of 64 numbers without gaps, so a long-lived message costs its own page of 40 bytes,
//! and nothing for neighbours that are gone. Look-up searches pages and counts bits; removal moves at most 63 messages
//! of 56 bytes.

use std::collections::BTreeMap;

use crate::ids::MessageNo;
use crate::message::Message;

const PAGE_SHIFT: u32 = 6;
const PAGE_MASK: u32 = (1 << PAGE_SHIFT) - 1;
/// Unused room in a page above which half of it is given back.
const SLACK_MIN: usize = 16;

#[derive(Debug, Default)]
struct Page {
    present: u64,
    messages: Vec<Message>,
}

impl Page {
    fn rank(&self, no: u32) -> usize {
        (self.present & ((1 << (no & PAGE_MASK)) - 1)).count_ones() as usize
    }

    fn position(&self, no: u32) -> Option<usize> {
        (self.present >> (no & PAGE_MASK) & 1 == 1).then(|| self.rank(no))
    }
}

/// Messages by number; see the module's head.
#[derive(Debug, Default)]
pub(super) struct Table {
    pages: BTreeMap<u32, Page>,
    len: usize,
    /// The number that is tried first for the next message.
    next: u32,
}

impl Table {
    /// An empty table whose numbers begin at `next`.
    #[cfg(test)]
    pub fn starting_at(next: u32) -> Table {
        Table { next, ..Table::default() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The number that is tried first for the next message; all live ones come before it, cyclically.
    pub fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    pub fn get(&self, no: u32) -> Option<&Message> {
        let page = self.pages.get(&(no >> PAGE_SHIFT))?;
        page.position(no).map(|at| &page.messages[at])
    }

    pub fn get_mut(&mut self, no: u32) -> Option<&mut Message> {
        let page = self.pages.get_mut(&(no >> PAGE_SHIFT))?;
        page.position(no).map(|at| &mut page.messages[at])
    }

    /// Adds a message under the next free number.
    pub fn push(&mut self, message: Message) -> MessageNo {
        while self.get(self.next).is_some() {
            self.next = self.next.wrapping_add(1);
        }
        let no = self.next;
        self.next = no.wrapping_add(1);
        let page = self.pages.entry(no >> PAGE_SHIFT).or_default();
        let at = page.rank(no);
        page.messages.insert(at, message);
        page.present |= 1 << (no & PAGE_MASK);
        self.len += 1;
        MessageNo(no)
    }

    pub fn remove(&mut self, no: u32) -> Option<Message> {
        let page = self.pages.get_mut(&(no >> PAGE_SHIFT))?;
        let at = page.position(no)?;
        let message = page.messages.remove(at);
        page.present &= !(1 << (no & PAGE_MASK));
        self.len -= 1;
        if page.messages.is_empty() {
            self.pages.remove(&(no >> PAGE_SHIFT));
        } else if page.messages.capacity() >= SLACK_MIN && page.messages.len() * 4 <= page.messages.capacity() {
            page.messages.shrink_to(page.messages.capacity() / 2);
        }
        Some(message)
    }

    /// Messages with numbers from `first` to `last`, both included, `first <= last`.
    fn range(&self, first: u32, last: u32) -> impl Iterator<Item = (MessageNo, &Message)> {
        self.pages
            .range(first >> PAGE_SHIFT..=last >> PAGE_SHIFT)
            .flat_map(|(page_no, page)| {
                let base = page_no << PAGE_SHIFT;
                let mut present = page.present;
                page.messages.iter().map(move |message| {
                    let bit = present.trailing_zeros();
                    present &= present - 1;
                    (MessageNo(base + bit), message)
                })
            })
            .filter(move |(no, _)| (first..=last).contains(&no.0))
    }

    /// All messages, in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (MessageNo, &Message)> {
        let tail = self.next.checked_sub(1).map(|last| self.range(0, last));
        self.range(self.next, u32::MAX).chain(tail.into_iter().flatten())
    }

    /// Messages with numbers from `first` on, cyclically, and before `until`; none if the two are equal.
    pub fn between(&self, first: u32, until: u32) -> impl Iterator<Item = (MessageNo, &Message)> {
        let wraps = first > until;
        let head = (first != until).then(|| self.range(first, if wraps { u32::MAX } else { until - 1 }));
        let tail = (wraps && until > 0).then(|| self.range(0, until - 1));
        head.into_iter().flatten().chain(tail.into_iter().flatten())
    }

    /// Removes and returns all messages.
    pub fn drain(&mut self) -> impl Iterator<Item = Message> + use<> {
        let pages = std::mem::take(&mut self.pages);
        *self = Table::default();
        pages.into_values().flat_map(|page| page.messages)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::message;

    fn numbers<'a>(iter: impl Iterator<Item = (MessageNo, &'a Message)>) -> Vec<(u32, u64)> {
        iter.map(|(no, m)| (no.0, m.id().0)).collect()
    }

    proptest! {
        #[test]
        fn order_of_insertion_across_the_wrap(
            before_wrap in 0u32..200, steps in vec((any::<bool>(), any::<prop::sample::Index>()), 0..400),
        ) {
            let mut table = Table { next: u32::MAX - before_wrap, ..Table::default() };
            let mut model: Vec<(u32, u64)> = Vec::new();
            for (id, (insert, which)) in steps.into_iter().enumerate() {
                if insert || model.is_empty() {
                    let no = table.push(message(id as u64));
                    model.push((no.0, id as u64));
                } else {
                    let (no, id) = model.remove(which.index(model.len()));
                    prop_assert_eq!(table.remove(no).map(|m| m.id().0), Some(id));
                    prop_assert!(table.remove(no).is_none());
                }
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(&numbers(table.iter()), &model);
            for (no, id) in &model {
                prop_assert_eq!(table.get(*no).map(|m| m.id().0), Some(*id));
                prop_assert_eq!(table.get_mut(*no).map(|m| m.id().0), Some(*id));
            }
            for at in 0..model.len() {
                prop_assert_eq!(&numbers(table.between(model[at].0, table.next())), &model[at..]);
                prop_assert_eq!(&numbers(table.between(model[0].0, model[at].0)), &model[..at]);
            }
            prop_assert_eq!(table.drain().count(), model.len());
            prop_assert_eq!((table.len(), table.iter().count()), (0, 0));
        }
    }

    #[test]
    fn numbers_in_use_are_skipped() {
        let mut table = Table::default();
        let first = table.push(message(1));
        table.next = first.0.wrapping_sub(1);
        assert_eq!(table.push(message(2)), MessageNo(u32::MAX));
        assert_eq!(table.push(message(3)), MessageNo(first.0 + 1));
    }
}
