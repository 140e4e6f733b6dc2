//! Slices of a checkpoint that later checkpoints can keep, and which of them are still valid.
//!
//! Promise: durable state that has not changed since it was written is not written again: a checkpoint names its slice. The
//! state is cut into pages (ids of addresses, domains, numbers of messages; a list is one), so that a change rewrites one
//! page at most. A page that changes drops its slice at once. Giving up a checkpoint needs no clean-up, since its slices
//! cannot be kept ([`Slices::keep`]).
//!
//! History is soft. A page in which only history has changed counts as aged: each checkpoint writes some of the aged pages in
//! turn, and of the others the histories that have changed since they were written.

use crate::ids::ContentId;
use crate::idset::IdSet;

/// Aged pages that a checkpoint writes in any case.
pub const AGED_MIN: usize = 16;
/// So many checkpoints write all aged pages.
pub const ROUNDS: usize = 16;

/// A slice as the journal keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceRef {
    pub content: ContentId,
    pub checksum: u64,
}

/// Where a checkpoint goes, a batch's part at a time.
pub trait Slices {
    /// A record as it is.
    fn record(&mut self, record: &[u8]);
    /// The same as a slice of its own, to be kept; `None` if it was put there as a record and cannot be kept.
    fn write(&mut self, record: &[u8]) -> Option<SliceRef>;
    /// What was written there before counts again; `false` if it is gone.
    fn keep(&mut self, slice: SliceRef) -> bool;
    /// The batch is full, at least for something of up to `next_bytes_max` bytes.
    fn is_full(&self, next_bytes_max: usize) -> bool;
}

/// Every slice as a record, none kept, one a step.
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

/// How the state is cut. Smaller pages are for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paging {
    /// Addresses or domains of a page: 2 to this.
    pub ids_shift: u32,
    /// Message numbers of a page: 2 to this.
    pub messages_shift: u32,
    /// Queue ids of a page of the quarantine; they grow by 2^24 a second.
    pub quarantine_shift: u32,
    /// A slice under this many octets is an ordinary record.
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
    /// Where the choice of aged ones goes on.
    next_aged: usize,
}

impl Pages {
    fn page_mut(&mut self, page: usize) -> &mut Page {
        if page >= self.pages.len() {
            self.pages.resize(page + 1, Page::default());
        }
        &mut self.pages[page]
    }

    /// What the page shows is no longer so.
    #[inline]
    pub fn changed(&mut self, page: usize) {
        self.page_mut(page).slice = None;
    }

    /// History on the page went on.
    #[inline]
    pub fn aged(&mut self, page: usize) {
        self.page_mut(page).is_aged = true;
    }

    /// The slice that shows the page, but perhaps for the newest history.
    pub fn slice(&self, page: usize) -> Option<SliceRef> {
        self.pages.get(page)?.slice
    }

    /// The page is being written.
    pub fn written(&mut self, page: usize, slice: Option<SliceRef>) {
        *self.page_mut(page) = Page { slice, is_aged: false };
    }

    /// Replay: the checkpoint has the page as this slice.
    pub fn found(&mut self, page: usize, slice: SliceRef) {
        self.page_mut(page).slice = Some(slice);
    }

    /// The aged pages that the checkpoint which begins writes.
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

    /// Bytes allocated.
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
