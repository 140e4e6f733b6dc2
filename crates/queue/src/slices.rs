//! Slices of a checkpoint that later checkpoints can keep, and which of them are still valid.
//!
//! Promise: durable state that has not changed since it was written is not written again: a checkpoint refers to its
//! slice. The state is divided into pages (ids of addresses, domains, numbers of messages; each list is one), so that a
//! change rewrites one page at most. A page that changes drops its slice at once. Abandoning a checkpoint needs no
//! clean-up, since its slices cannot be kept ([`Slices::keep`]).
//!
//! History is soft. A page in which only history has changed counts as aged. Each checkpoint writes some of the aged
//! pages in turn, and of the others only the histories that have changed since they were written.

use crate::ids::ContentId;
use crate::idset::IdSet;

/// Smallest number of aged pages that a checkpoint writes.
pub const AGED_MIN: usize = 16;
/// Number of checkpoints that together write all aged pages.
pub const ROUNDS: usize = 16;

/// Reference to a slice in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceRef {
    pub content: ContentId,
    pub checksum: u64,
}

/// The output of a checkpoint, one batch at a time.
pub trait Slices {
    /// Writes an ordinary record.
    fn record(&mut self, record: &[u8]);
    /// Writes a record as a slice that can be kept; `None` if it was written as an ordinary record and cannot be kept.
    fn write(&mut self, record: &[u8]) -> Option<SliceRef>;
    /// Keeps a slice that was written before; `false` if it is gone.
    fn keep(&mut self, slice: SliceRef) -> bool;
    /// Whether the batch has no room for another part of up to `next_bytes_max` bytes.
    fn is_full(&self, next_bytes_max: usize) -> bool;
}

/// Collects every slice as an ordinary record; keeps none, and takes one per step.
#[derive(Debug, Default)]
pub struct Records {
    pub records: Vec<Vec<u8>>,
}

impl Slices for Records {
    fn record(&mut self, record: &[u8]) {
        self.records.push(record.to_vec());
    }

    fn write(&mut self, record: &[u8]) -> Option<SliceRef> {
        self.record(record);
        None
    }

    fn keep(&mut self, _: SliceRef) -> bool {
        false
    }

    fn is_full(&self, _: usize) -> bool {
        !self.records.is_empty()
    }
}

/// Sizes of the pages. Tests use smaller pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paging {
    /// Base-2 logarithm of the addresses or domains in a page.
    pub ids_shift: u32,
    /// Base-2 logarithm of the message numbers in a page.
    pub messages_shift: u32,
    /// Base-2 logarithm of the queue ids in a page of the quarantine; they grow by 2^24 a second.
    pub quarantine_shift: u32,
    /// Slices smaller than this, in octets, are written as ordinary records.
    pub kept_bytes_min: usize,
}

impl Default for Paging {
    fn default() -> Paging {
        Paging { ids_shift: 9, messages_shift: 8, quarantine_shift: 34, kept_bytes_min: 512 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    slice: Option<SliceRef>,
    is_aged: bool,
}

/// The pages of a numbered table.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Page>,
    /// Where the choice of aged pages continues.
    next_aged: usize,
}

impl Pages {
    fn page_mut(&mut self, page: usize) -> &mut Page {
        if page >= self.pages.len() {
            self.pages.resize(page + 1, Page::default());
        }
        &mut self.pages[page]
    }

    /// Drops the page's slice because the page has changed.
    #[inline]
    pub fn changed(&mut self, page: usize) {
        self.page_mut(page).slice = None;
    }

    /// Marks a page whose history has changed.
    #[inline]
    pub fn aged(&mut self, page: usize) {
        self.page_mut(page).is_aged = true;
    }

    /// The slice that shows the page, except perhaps the newest history.
    pub fn slice(&self, page: usize) -> Option<SliceRef> {
        self.pages.get(page)?.slice
    }

    /// Called when the page is written.
    pub fn written(&mut self, page: usize, slice: Option<SliceRef>) {
        *self.page_mut(page) = Page { slice, is_aged: false };
    }

    /// Restores the page's slice in replay of a checkpoint.
    pub fn found(&mut self, page: usize, slice: SliceRef) {
        self.page_mut(page).slice = Some(slice);
    }

    /// Chooses the aged pages that the new checkpoint writes.
    pub fn choose_aged(&mut self) -> IdSet {
        let count = self.pages.len();
        let max = AGED_MIN.max(count.div_ceil(ROUNDS));
        let (first, mut chosen) = (self.next_aged, IdSet::new());
        for page in (first..count).chain(0..first.min(count)) {
            if self.pages[page].is_aged {
                chosen.insert(page as u32);
                if chosen.len() >= max {
                    self.next_aged = page + 1;
                    break;
                }
            }
        }
        chosen
    }

    /// Number of bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Page>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aged_pages_take_turns_and_few_do_not_wait() {
        let mut pages = Pages::default();
        (0..AGED_MIN).for_each(|page| pages.aged(10 * page));
        assert_eq!(pages.choose_aged().len(), AGED_MIN);
        let count = 40 * ROUNDS;
        (0..count).for_each(|page| pages.aged(page));
        let mut seen = IdSet::new();
        for _ in 0..ROUNDS {
            let chosen = pages.choose_aged();
            assert_eq!(chosen.len(), 40);
            for page in &chosen {
                pages.written(page as usize, None);
                pages.aged(page as usize);
            }
            seen.union_with(&chosen);
        }
        assert_eq!(seen.len(), count);
    }
}
