//! The checkpoint's cursor: the state as records and kept slices, a step at a time, while the store goes on changing.
//!
//! Promise: a page of the state that has not changed since it was last written is only named (`slices.rs`), so that a
//! checkpoint costs what has changed and some octets a page. A slice is at most [`SLICE_BYTES_MAX`] unless one message or list
//! alone is larger (its id set has at most one bit per id of the book, its ORCPTs what the client sent); one step goes on
//! until the batch is full. [`Checkpoint::next_bytes_max`] says beforehand how large the next may be. Messages accepted
//! after the begin are not sliced: the log has them. Replay from the begin gives the state at any later point of the log.
//!
//! On its way the cursor of a marking checkpoint notes which addresses lists and messages refer to; what came since the
//! begin is noted by the store. Together they say which addresses may be forgotten ([`Sweep`]).
//!
//! Failure: when a batch that had slices is refused, the checkpoint is given up (drop the cursor) and begun anew later. Its
//! slices are gone then, and cannot be kept ([`Slices::keep`]).

use std::collections::BTreeMap;
use std::ops::Bound;

use super::histories::HISTORIES_MAX;
use super::{Store, Sweep};
use crate::book::SiteHistory;
use crate::event::{
    Event, begin_addresses, begin_messages, begin_quarantine, begin_sites, encode_checkpoint_end, encode_list,
    encode_suspend, encode_totals, list_bytes_max, put_address, put_site,
};
use crate::ids::{MessageId, MessageNo};
use crate::idset::IdSet;
use crate::slices::{SliceRef, Slices};

/// A slice's size, but for a single message or list that is larger.
pub const SLICE_BYTES_MAX: usize = 256 * 1024;

/// Where the checkpoint is.
#[derive(Debug)]
enum Stage {
    Begin,
    /// The next page of addresses.
    Addresses(usize),
    /// The next page of domains.
    Sites(usize),
    /// The next address whose history is newer than its page, and the next domain.
    Histories(u32),
    SiteHistories(u32),
    /// The last list done.
    Lists(Option<String>),
    /// The last suspension or standing bounce done.
    Suspended(Option<String>),
    /// The next message in the quarantine.
    Quarantine(MessageId),
    /// The next message number.
    Messages(u32),
    End,
    Done,
}

/// A page of messages that is being written, over several slices if it is large.
#[derive(Debug)]
struct OpenPage {
    page: u32,
    slices: Vec<SliceRef>,
    /// All slices so far can be kept.
    is_kept: bool,
}

/// See the module's page.
#[derive(Debug)]
pub struct Checkpoint {
    stage: Stage,
    /// First message number and the one to stop before, as they were at the begin.
    messages: (u32, u32),
    slice_bytes_max: usize,
    /// Pages whose history is written with this one.
    aged_addresses: IdSet,
    aged_sites: IdSet,
    open: Option<OpenPage>,
    /// Whom lists and messages refer to, as far as they were visited; `None` = nobody asks.
    marked: Option<IdSet>,
    /// The slice under construction.
    record: Vec<u8>,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint::new()
    }
}

impl Checkpoint {
    /// A cursor at the begin.
    pub fn new() -> Self {
        Checkpoint::with_slice_bytes_max(SLICE_BYTES_MAX)
    }

    /// A cursor with smaller slices of messages.
    pub fn with_slice_bytes_max(slice_bytes_max: usize) -> Self {
        Checkpoint {
            stage: Stage::Begin,
            messages: (0, 0),
            slice_bytes_max,
            aged_addresses: IdSet::new(),
            aged_sites: IdSet::new(),
            open: None,
            marked: None,
            record: Vec::new(),
        }
    }

    /// A [`Sweep`] is to follow.
    #[must_use]
    pub fn marking(self) -> Self {
        Checkpoint { marked: Some(IdSet::new()), ..self }
    }

    /// Puts the next part into `slices`, until they are full or nothing is left; whether more follows.
    ///
    /// The first part must directly follow the journal's begin marker, in the same batch, behind the records of all
    /// events that are applied; the others follow in order, in any batches, behind such records too.
    pub fn step(&mut self, store: &mut Store, slices: &mut dyn Slices) -> bool {
        let mut is_first = true;
        while !self.is_done() && (is_first || !slices.is_full(self.next_bytes_max(store))) {
            is_first = false;
            self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Begin => self.begin(store, slices),
                Stage::Addresses(page) => self.addresses(store, page, slices),
                Stage::Sites(page) => self.sites(store, page, slices),
                Stage::Histories(from) => {
                    self.record.clear();
                    let next = store.put_newer(&mut self.record, from);
                    self.put_record(slices);
                    next.map_or(Stage::SiteHistories(0), Stage::Histories)
                }
                Stage::SiteHistories(from) => {
                    self.record.clear();
                    let next = store.put_newer_sites(&mut self.record, from);
                    self.put_record(slices);
                    next.map_or(Stage::Lists(None), Stage::SiteHistories)
                }
                Stage::Lists(last) => self.list_after(store, last.as_deref(), slices),
                Stage::Suspended(last) => self.suspended_after(store, last.as_deref(), slices),
                Stage::Quarantine(next) => self.quarantine(store, next, slices),
                Stage::Messages(next) => self.messages(store, next, slices),
                Stage::End => {
                    self.record.clear();
                    encode_checkpoint_end(&mut self.record);
                    slices.record(&self.record);
                    Stage::Done
                }
                Stage::Done => Stage::Done,
            };
        }
        !self.is_done()
    }

    /// The same with slices of messages that are no larger than this, if a message is not.
    #[must_use]
    pub fn limited(self, slice_bytes_max: usize) -> Self {
        Checkpoint { slice_bytes_max: self.slice_bytes_max.min(slice_bytes_max), ..self }
    }

    /// The next slice is at most so large, as records are counted.
    pub fn next_bytes_max(&self, store: &Store) -> usize {
        /// An address or a domain's name (RFC 5321 section 4.5.3.1), with its id, length and history.
        const ENTRY_BYTES_MAX: usize = 256 + 64;
        const FIXED: usize = 256;
        match &self.stage {
            Stage::Begin | Stage::End | Stage::Done => FIXED,
            Stage::Addresses(_) | Stage::Sites(_) => FIXED + (ENTRY_BYTES_MAX << store.paging.ids_shift),
            // A zigzag of 32 bits and the history; of domains fewer, with their names.
            Stage::Histories(_) | Stage::SiteHistories(_) => FIXED + 5 * 4 * HISTORIES_MAX,
            Stage::Lists(last) => {
                let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let next = store.lists.range::<str, _>((after, Bound::Unbounded)).next();
                next.map_or(FIXED, |(name, list)| FIXED + list_bytes_max(name, &list.stamp, &list.ids))
            }
            Stage::Suspended(last) => {
                let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let next = store.suspended.range::<str, _>((after, Bound::Unbounded)).next();
                FIXED + next.map_or(0, |(what, standing)| what.len() + standing.reason.len())
            }
            Stage::Quarantine(next) => {
                let next = store.quarantine.from(*next).next();
                FIXED + next.map_or(0, |message| message.slice_bytes_max().max(self.slice_bytes_max))
            }
            Stage::Messages(next) => {
                let next = store.messages.between(*next, self.messages.1).next();
                FIXED + next.map_or(0, |(_, message)| message.slice_bytes_max().max(self.slice_bytes_max))
            }
        }
    }

    /// Whether the last slice has been made.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Behind the last slice of one that [`Store::begin_checkpoint`] made: the search for what can be forgotten.
    pub fn sweep(self) -> Option<Sweep> {
        if self.is_done() { self.marked.map(Sweep::new) } else { None }
    }

    fn begin(&mut self, store: &mut Store, slices: &mut dyn Slices) -> Stage {
        let until = store.messages.next();
        self.messages = (store.oldest().map_or(until, |(no, _)| no.0), until);
        (self.aged_addresses, self.aged_sites) = store.book.choose_aged();
        self.record.clear();
        encode_totals(&mut self.record, &store.totals(), store.last_id());
        slices.record(&self.record);
        Stage::Addresses(0)
    }

    /// Hands out what is under construction, if there is anything, as an ordinary record.
    fn put_record(&self, slices: &mut dyn Slices) {
        if !self.record.is_empty() {
            slices.record(&self.record);
        }
    }

    /// Hands out what is under construction; how it can be kept.
    fn put(&self, store: &Store, slices: &mut dyn Slices) -> Option<SliceRef> {
        if self.record.len() < store.paging.kept_bytes_min {
            slices.record(&self.record);
            return None;
        }
        slices.write(&self.record)
    }

    fn addresses(&mut self, store: &mut Store, page: usize, slices: &mut dyn Slices) -> Stage {
        let ids = store.book.page_of_ids(page);
        if ids.is_empty() {
            return Stage::Sites(0);
        }
        if let Some(slice) = store.book.address_pages().slice(page)
            && !self.aged_addresses.contains(page as u32)
            && slices.keep(slice)
        {
            return Stage::Addresses(page + 1);
        }
        self.record.clear();
        let mut next = 0;
        for (id, text) in store.book.iter_at(ids.start).take_while(|(id, _)| id.0 < ids.end) {
            if self.record.is_empty() {
                begin_addresses(&mut self.record);
            }
            next = put_address(&mut self.record, next, id, text, store.book.history(id));
        }
        let slice = if self.record.is_empty() { None } else { self.put(store, slices) };
        store.book.address_pages().written(page, slice);
        store.book.page_written(page);
        Stage::Addresses(page + 1)
    }

    fn sites(&mut self, store: &mut Store, page: usize, slices: &mut dyn Slices) -> Stage {
        let ids = store.book.page_of_domains(page);
        if ids.is_empty() {
            return Stage::Histories(0);
        }
        if let Some(slice) = store.book.site_pages().slice(page)
            && !self.aged_sites.contains(page as u32)
            && slices.keep(slice)
        {
            return Stage::Sites(page + 1);
        }
        self.record.clear();
        for (_, name, history) in store.book.sites_at(ids.start).take_while(|(id, ..)| *id < ids.end) {
            if history == SiteHistory::default() {
                continue;
            }
            if self.record.is_empty() {
                begin_sites(&mut self.record);
            }
            put_site(&mut self.record, name, &history);
        }
        let slice = if self.record.is_empty() { None } else { self.put(store, slices) };
        store.book.site_pages().written(page, slice);
        store.book.site_page_written(page);
        Stage::Sites(page + 1)
    }

    fn list_after(&mut self, store: &mut Store, last: Option<&str>, slices: &mut dyn Slices) -> Stage {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let Some((name, list)) = store.lists.range::<str, _>((after, Bound::Unbounded)).next() else {
            return Stage::Suspended(None);
        };
        if let Some(marked) = &mut self.marked {
            marked.union_with(&list.ids);
        }
        let name = name.clone();
        if store.list_slices.get(&name).is_some_and(|slice| slices.keep(*slice)) {
            return Stage::Lists(Some(name));
        }
        self.record.clear();
        encode_list(&mut self.record, &name, list.version, &list.stamp, &list.ids);
        if let Some(slice) = self.put(store, slices) {
            store.list_slices.insert(name.clone(), slice);
        }
        Stage::Lists(Some(name))
    }

    fn suspended_after(&mut self, store: &Store, last: Option<&str>, slices: &mut dyn Slices) -> Stage {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let Some((what, standing)) = store.suspended.range::<str, _>((after, Bound::Unbounded)).next() else {
            return Stage::Quarantine(MessageId(0));
        };
        self.record.clear();
        encode_suspend(&mut self.record, true, what, standing.until, &standing.reason);
        slices.record(&self.record);
        Stage::Suspended(Some(what.clone()))
    }

    /// One page of the quarantine, or a slice's worth of it.
    fn quarantine(&mut self, store: &mut Store, next: MessageId, slices: &mut dyn Slices) -> Stage {
        let page = store.quarantine.from(next).next().map(|message| store.quarantine.page_of(message.id()));
        if self.open.as_ref().is_some_and(|open| Some(open.page) != page) {
            self.close_quarantine_page(store);
        }
        let Some(page) = page else { return Stage::Messages(self.messages.0) };
        let behind = store.quarantine.first_of(page + 1);
        if self.open.is_none() {
            if let Some(marked) = &mut self.marked {
                store.quarantine.between(next, behind).for_each(|message| marked.union_with(message.pending()));
            }
            let known = store.quarantine.slices.get(&page);
            if known.is_some_and(|known| !known.is_empty() && known.iter().all(|s| slices.keep(*s))) {
                return Stage::Quarantine(behind);
            }
            // From here on, a message of the page that changes removes this.
            store.quarantine.slices.insert(page, Vec::new());
            self.open = Some(OpenPage { page, slices: Vec::new(), is_kept: true });
        }
        self.record.clear();
        let mut rest = None;
        for message in store.quarantine.between(next, behind) {
            if self.record.is_empty() {
                begin_quarantine(&mut self.record);
            } else if self.record.len() + message.slice_bytes_max() > self.slice_bytes_max {
                rest = Some(message.id());
                break;
            }
            message.encode_kept(&mut self.record);
        }
        let slice = self.put(store, slices);
        if let Some(open) = &mut self.open {
            open.is_kept &= slice.is_some();
            open.slices.extend(slice);
        }
        if rest.is_none() {
            self.close_quarantine_page(store);
        }
        Stage::Quarantine(rest.unwrap_or(behind))
    }

    fn close_quarantine_page(&mut self, store: &mut Store) {
        close(&mut store.quarantine.slices, self.open.take());
    }

    /// One page of messages, or a slice's worth of it.
    fn messages(&mut self, store: &mut Store, next: u32, slices: &mut dyn Slices) -> Stage {
        let until = self.messages.1;
        let Some((MessageNo(next), _)) = store.messages.between(next, until).next() else {
            self.close_page(store);
            return Stage::End;
        };
        let shift = store.paging.messages_shift;
        let page = next >> shift;
        let (first, behind) = (page << shift, (page << shift).wrapping_add(1 << shift));
        if self.open.as_ref().is_some_and(|open| open.page != page) {
            self.close_page(store);
        }
        // Of the page where new messages come, a slice would not show them.
        let is_whole = until.wrapping_sub(first) >= 1 << shift;
        // Behind `until`, on the same page, are the oldest once the numbers have wrapped.
        let end = if is_whole || next >= until { behind } else { until };
        if self.open.is_none() {
            if let Some(marked) = &mut self.marked {
                store.messages.between(next, end).for_each(|(_, message)| marked.union_with(message.pending()));
            }
            let known = store.message_slices.get(&page);
            if is_whole && known.is_some_and(|known| !known.is_empty() && known.iter().all(|s| slices.keep(*s))) {
                return self.after(behind);
            }
            // From here on, a message of the page that changes removes this.
            store.message_slices.insert(page, Vec::new());
            self.open = Some(OpenPage { page, slices: Vec::new(), is_kept: is_whole });
        }
        self.record.clear();
        let mut rest = end;
        for (MessageNo(no), message) in store.messages.between(next, end) {
            if self.record.is_empty() {
                begin_messages(&mut self.record);
            } else if self.record.len() + message.slice_bytes_max() > self.slice_bytes_max {
                rest = no;
                break;
            }
            message.encode_slice(&mut self.record);
        }
        let slice = self.put(store, slices);
        if let Some(open) = &mut self.open {
            open.is_kept &= slice.is_some();
            open.slices.extend(slice);
        }
        if rest != end {
            return Stage::Messages(rest);
        }
        self.close_page(store);
        self.after(end)
    }

    /// Behind a page: `until` may be passed by where the numbers wrap.
    fn after(&self, next: u32) -> Stage {
        if next == self.messages.1 { Stage::End } else { Stage::Messages(next) }
    }

    /// The page is written; it may be kept if none of its messages has changed meanwhile.
    fn close_page(&mut self, store: &mut Store) {
        close(&mut store.message_slices, self.open.take());
    }
}

fn close(pages: &mut BTreeMap<u32, Vec<SliceRef>>, open: Option<OpenPage>) {
    let Some(open) = open else { return };
    match pages.get_mut(&open.page) {
        Some(slices) if open.is_kept => *slices = open.slices,
        _ => drop(pages.remove(&open.page)),
    }
}

impl Store {
    /// A checkpoint that a [`Sweep`] follows: from now on it is noted whom events refer to. That looks at every message and
    /// list, [`Store::begin_plain_checkpoint`] does not.
    pub fn begin_checkpoint(&mut self) -> Checkpoint {
        self.fresh = Some(IdSet::new());
        self.begin_plain_checkpoint().marking()
    }

    /// A checkpoint that no sweep follows.
    pub fn begin_plain_checkpoint(&mut self) -> Checkpoint {
        self.book.begin_releasing();
        self.checkpoint()
    }

    /// Replay: a record that the checkpoint keeps as a slice. Until something on its page changes it can be kept again.
    pub fn apply_slice(&mut self, record: &[u8], slice: SliceRef) -> Result<super::Applied, crate::event::EventError> {
        self.counts.suspend();
        let event = Event::decode(record)?;
        let page = match &event {
            Event::Addresses(addresses) => self.book.page_of(addresses.iter().map(|(id, ..)| *id)),
            _ => None,
        };
        let list = match &event {
            Event::ListVersion { name, .. } => Some((*name).to_owned()),
            _ => None,
        };
        let addresses = if let Event::Addresses(addresses) = &event { addresses.len() } else { 0 };
        let applied = self.apply(event);
        if let Some(page) = page {
            self.book.found_page(page, addresses, slice);
        }
        if let Some(name) = list {
            self.list_slices.insert(name, slice);
        }
        Ok(applied)
    }
}
