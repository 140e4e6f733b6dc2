//! Messages waiting per address and recipients waiting per domain, without a scan of the messages.
//!
//! Promise: four bytes per address that ever had a message here and per domain; a recipient's fate costs two
//! subtractions. A message of many recipients, and everything after a replay, is counted in slices
//! ([`Store::count_on`]); until that is done, [`Store::is_counting`] is true and the counts are too low. Soft: never
//! journaled, never needed for correctness.

use std::collections::VecDeque;

use super::Store;
use crate::book::AddressBook;
use crate::ids::{AddressId, DomainId, MessageNo};
use crate::idset::IdSet;

/// Number of addresses in a chunk.
pub const CHUNK_ADDRESSES: usize = 4_096;
/// Largest number of recipients that are counted at once when a message is accepted.
const AT_ONCE_MAX: usize = 1_024;

/// Numbers of messages that are not counted yet: from `next` on, cyclically, and before `until`.
#[derive(Debug)]
struct UncountedRange {
    next: u32,
    until: u32,
    /// For the first message: recipients up to this id are counted.
    within: Option<u32>,
}

impl UncountedRange {
    fn has(&self, no: u32) -> bool {
        no.wrapping_sub(self.next) < self.until.wrapping_sub(self.next)
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By address id, in chunks that are created when needed.
    addresses: Vec<Box<[u32]>>,
    /// By domain id.
    domains: Vec<u32>,
    uncounted: VecDeque<UncountedRange>,
    /// During replay: nothing is counted before its end.
    is_suspended: bool,
}

impl Counts {
    fn address(&mut self, id: u32) -> &mut u32 {
        let chunk = id as usize / CHUNK_ADDRESSES;
        if chunk >= self.addresses.len() {
            self.addresses.resize_with(chunk + 1, Box::default);
        }
        let chunk = &mut self.addresses[chunk];
        if chunk.is_empty() {
            *chunk = vec![0; CHUNK_ADDRESSES].into();
        }
        &mut chunk[id as usize % CHUNK_ADDRESSES]
    }

    fn domain(&mut self, id: DomainId) -> &mut u32 {
        let index = id.0 as usize;
        if index >= self.domains.len() {
            self.domains.resize(index + 1, 0);
        }
        &mut self.domains[index]
    }

    fn count(&mut self, book: &AddressBook, id: u32) {
        *self.address(id) += 1;
        if let Some(domain) = book.try_domain(AddressId(id)) {
            *self.domain(domain) += 1;
        }
    }

    /// Counts a message that has arrived with these recipients.
    pub fn come(&mut self, book: &AddressBook, no: MessageNo, pending: &IdSet) {
        if self.is_suspended {
            return;
        }
        if pending.len() > AT_ONCE_MAX {
            let (next, until) = (no.0, no.0.wrapping_add(1));
            self.uncounted.push_back(UncountedRange { next, until, within: None });
            return;
        }
        for id in pending {
            self.count(book, id);
        }
    }

    /// Uncounts `ids`, which are about to leave a message's pending recipients.
    pub fn go(&mut self, book: &AddressBook, no: MessageNo, pending: &IdSet, ids: &IdSet) {
        if self.is_suspended {
            return;
        }
        let counted_to = match self.uncounted.iter().find(|uncounted| uncounted.has(no.0)) {
            None => u32::MAX,
            Some(UncountedRange { next, within: Some(within), .. }) if *next == no.0 => *within,
            Some(_) => return,
        };
        let (fewer, more) = if ids.len() <= pending.len() { (ids, pending) } else { (pending, ids) };
        for id in fewer.iter().filter(|id| *id <= counted_to && more.contains(*id)) {
            let count = self.address(id);
            *count = count.saturating_sub(1);
            if let Some(domain) = book.try_domain(AddressId(id)) {
                let count = self.domain(domain);
                *count = count.saturating_sub(1);
            }
        }
    }

    pub fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// Begins to count everything after the replay.
    pub fn resume(&mut self, next: u32, until: u32) {
        *self = Counts::default();
        if next != until {
            self.uncounted.push_back(UncountedRange { next, until, within: None });
        }
    }
}

impl Store {
    /// Whether [`Store::count_on`] has something to do.
    pub fn is_counting(&self) -> bool {
        !self.counts.uncounted.is_empty()
    }

    /// Continues counting, for about `steps` messages and recipients.
    pub fn count_on(&mut self, mut steps: usize) {
        while steps > 0
            && let Some(mut job) = self.counts.uncounted.pop_front()
        {
            let Some((no, message)) = self.messages.between(job.next, job.until).next() else { continue };
            if no.0 != job.next {
                (job.next, job.within) = (no.0, None);
            }
            steps -= 1;
            let pending = message.pending();
            let mut ids = job.within.map_or_else(|| pending.iter(), |after| pending.iter_from(after));
            let is_through = loop {
                if steps == 0 {
                    break false;
                }
                let Some(id) = ids.next() else { break true };
                steps -= 1;
                job.within = Some(id);
                self.counts.count(&self.book, id);
            };
            if is_through {
                (job.next, job.within) = (no.0.wrapping_add(1), None);
            }
            if job.next != job.until {
                self.counts.uncounted.push_front(job);
            }
        }
    }

    /// Number of messages that wait for an address.
    pub fn waiting_for(&self, address: AddressId) -> u32 {
        self.waiting_chunk(address.0 as usize / CHUNK_ADDRESSES)
            .and_then(|chunk| chunk.get(address.0 as usize % CHUNK_ADDRESSES))
            .map_or(0, |count| *count)
    }

    /// Numbers of waiting messages for [`CHUNK_ADDRESSES`] ids from `index` times as many on; empty if none of them
    /// ever had mail, `None` beyond the last.
    pub fn waiting_chunk(&self, index: usize) -> Option<&[u32]> {
        self.counts.addresses.get(index).map(|chunk| &**chunk)
    }

    /// Number of pending recipients at a domain, each once per message.
    pub fn waiting_at(&self, domain: DomainId) -> u32 {
        self.counts.domains.get(domain.0 as usize).map_or(0, |count| *count)
    }
}
