//! The checkpoint's cursor: writes the state as records and kept slices, a step at a time, while the store goes on
//! changing.
//!
//! Promise: a page of the state that has not changed since it was last written is only referred to (`slices.rs`), so a
//! checkpoint costs the changed pages and some octets for each other page. A slice is at most [`SLICE_BYTES_MAX`],
//! unless one message or list alone is larger (its id set has at most one bit per id of the book, its ORCPTs are the
//! client's). One step continues until the batch is full. [`Checkpoint::next_bytes_max`] tells in advance how large the
//! next part may be. Messages accepted after the beginning are not sliced: the log has them. Replay from the beginning
//! gives the state at any later point of the log.
//!
//! A marking checkpoint notes which addresses lists and messages refer to; the store notes the addresses that came
//! since the beginning. Together they show which addresses may be forgotten ([`Sweep`]).
//!
//! Failure: when a batch with slices is refused, the checkpoint is abandoned (drop the cursor) and begun anew later.
//! Its slices are then gone, and cannot be kept ([`Slices::keep`]).

use std::collections::BTreeMap;
use std::ops::Bound;

use super::histories::HISTORIES_MAX;
use super::shelf::{Shelf, Shelved};
use super::{Store, Sweep};
use crate::book::DomainHistory;
use crate::event::{
    Event, begin_addresses, begin_messages, begin_posts, begin_quarantine, begin_sites, encode_checkpoint_end,
    encode_list, encode_suspend, encode_totals, list_bytes_max, put_address, put_site,
};
use crate::ids::{MessageId, MessageNo};
use crate::idset::IdSet;
use crate::slices::{SliceRef, Slices};

/// Largest size of a slice, unless a single message or list is larger.
pub const SLICE_BYTES_MAX: usize = 256 * 1024;

/// Progress of the checkpoint.
#[derive(Debug)]
enum Stage {
    Begin,
    /// The next page of addresses.
    Addresses(usize),
    /// The next page of domains.
    Sites(usize),
    /// The next address with a history newer than its page, and the next domain.
    Histories(u32),
    SiteHistories(u32),
    /// The last list written.
    Lists(Option<String>),
    /// The last suspension, standing bounce or queue-only scope written.
    Suspended(Option<String>),
    /// The next message in the quarantine, and the next kept post.
    Quarantine(MessageId),
    Posts(MessageId),
    /// The next message number.
    Messages(u32),
    End,
    Done,
}

/// Where a walk over a shelf is, and how its records begin.
#[derive(Clone, Copy)]
struct ShelfPlace {
    next: MessageId,
    begin: fn(&mut Vec<u8>),
    kept_bytes_min: usize,
}

/// A page of messages that is being written, over several slices if it is large.
#[derive(Debug)]
struct OpenPage {
    page: u32,
    slices: Vec<SliceRef>,
    /// Whether all slices so far can be kept.
    is_kept: bool,
}

/// A checkpoint's cursor; see the module's head.
#[derive(Debug)]
pub struct Checkpoint {
    stage: Stage,
    /// The first message number and the one to stop before, as they were at the beginning.
    messages: (u32, u32),
    slice_bytes_max: usize,
    /// Pages whose history this checkpoint writes.
    aged_addresses: IdSet,
    aged_sites: IdSet,
    open: Option<OpenPage>,
    /// Addresses that the lists and messages visited so far refer to; `None`: not needed.
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
    /// A cursor at the beginning.
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

    /// Makes the checkpoint note referenced addresses, for a [`Sweep`] that follows.
    #[must_use]
    pub fn marking(self) -> Self {
        Checkpoint { marked: Some(IdSet::new()), ..self }
    }

    /// Writes the next part to `slices`, until they are full or nothing is left. Returns whether more follows.
    ///
    /// The first part must directly follow the journal's begin marker, in the same batch, after the records of all
    /// applied events. The others follow in order, in any batches, also after such records.
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
                Stage::Posts(next) => self.posts(store, next, slices),
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

    /// Limits slices of messages to this size, unless a single message is larger.
    #[must_use]
    pub fn limited(self, slice_bytes_max: usize) -> Self {
        Checkpoint { slice_bytes_max: self.slice_bytes_max.min(slice_bytes_max), ..self }
    }

    /// Largest size of the next slice, as records are counted.
    pub fn next_bytes_max(&self, store: &Store) -> usize {
        /// Bytes for an address or a domain's name (RFC 5321 section 4.5.3.1), with its id, length and history.
        const ENTRY_BYTES_MAX: usize = 256 + 64;
        const FIXED: usize = 256;
        match &self.stage {
            Stage::Begin | Stage::End | Stage::Done => FIXED,
            Stage::Addresses(_) | Stage::Sites(_) => FIXED + (ENTRY_BYTES_MAX << store.paging.ids_shift),
            // A zigzag of 32 bits and the history; fewer entries for domains, with their names.
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
            Stage::Posts(next) => {
                let next = store.posts.from(*next).next();
                FIXED + next.map_or(0, |post| post.slice_bytes_max().max(self.slice_bytes_max))
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

    /// The search for forgettable addresses, after the last slice of a checkpoint from [`Store::begin_checkpoint`].
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

    /// Writes the slice under construction, if not empty, as an ordinary record.
    fn put_record(&self, slices: &mut dyn Slices) {
        if !self.record.is_empty() {
            slices.record(&self.record);
        }
    }

    /// Writes the slice under construction. Returns its reference if it can be kept.
    fn put(&self, kept_bytes_min: usize, slices: &mut dyn Slices) -> Option<SliceRef> {
        if self.record.len() < kept_bytes_min {
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
        let slice = if self.record.is_empty() { None } else { self.put(store.paging.kept_bytes_min, slices) };
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
            if history == DomainHistory::default() {
                continue;
            }
            if self.record.is_empty() {
                begin_sites(&mut self.record);
            }
            put_site(&mut self.record, name, &history);
        }
        let slice = if self.record.is_empty() { None } else { self.put(store.paging.kept_bytes_min, slices) };
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
        if let Some(slice) = self.put(store.paging.kept_bytes_min, slices) {
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

    /// Writes one page of a shelf, or a slice's worth of it. Returns the id to continue with, `None` after the last
    /// page.
    fn shelf<T: Shelved>(
        &mut self,
        shelf: &mut Shelf<T>,
        place: ShelfPlace,
        slices: &mut dyn Slices,
    ) -> Option<MessageId> {
        let ShelfPlace { next, begin, kept_bytes_min } = place;
        let page = shelf.from(next).next().map(|entry| shelf.page_of(entry.message().id()));
        if self.open.as_ref().is_some_and(|open| Some(open.page) != page) {
            close(&mut shelf.slices, self.open.take());
        }
        let page = page?;
        let behind = shelf.first_of(page + 1);
        if self.open.is_none() {
            if let Some(marked) = &mut self.marked {
                shelf.between(next, behind).for_each(|entry| marked.union_with(entry.message().pending()));
            }
            let known = shelf.slices.get(&page);
            if known.is_some_and(|known| !known.is_empty() && known.iter().all(|s| slices.keep(*s))) {
                return Some(behind);
            }
            // From here on, a change to an entry of the page removes this entry.
            shelf.slices.insert(page, Vec::new());
            self.open = Some(OpenPage { page, slices: Vec::new(), is_kept: true });
        }
        self.record.clear();
        let mut rest = None;
        for entry in shelf.between(next, behind) {
            if self.record.is_empty() {
                begin(&mut self.record);
            } else if self.record.len() + entry.slice_bytes_max() > self.slice_bytes_max {
                rest = Some(entry.message().id());
                break;
            }
            entry.encode(&mut self.record);
        }
        let slice = self.put(kept_bytes_min, slices);
        if let Some(open) = &mut self.open {
            open.is_kept &= slice.is_some();
            open.slices.extend(slice);
        }
        if rest.is_none() {
            close(&mut shelf.slices, self.open.take());
        }
        Some(rest.unwrap_or(behind))
    }

    fn quarantine(&mut self, store: &mut Store, next: MessageId, slices: &mut dyn Slices) -> Stage {
        let place = ShelfPlace { next, begin: begin_quarantine, kept_bytes_min: store.paging.kept_bytes_min };
        let next = self.shelf(&mut store.quarantine, place, slices);
        next.map_or(Stage::Posts(MessageId(0)), Stage::Quarantine)
    }

    fn posts(&mut self, store: &mut Store, next: MessageId, slices: &mut dyn Slices) -> Stage {
        let place = ShelfPlace { next, begin: begin_posts, kept_bytes_min: store.paging.kept_bytes_min };
        let next = self.shelf(&mut store.posts, place, slices);
        next.map_or(Stage::Messages(self.messages.0), Stage::Posts)
    }

    /// Writes one page of messages, or a slice's worth of it.
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
        // A slice of the page that gets new messages would not contain them.
        let is_whole = until.wrapping_sub(first) >= 1 << shift;
        // Once the numbers have wrapped, the oldest messages come after `until` on the same page.
        let end = if is_whole || next >= until { behind } else { until };
        if self.open.is_none() {
            if let Some(marked) = &mut self.marked {
                store.messages.between(next, end).for_each(|(_, message)| marked.union_with(message.pending()));
            }
            let known = store.message_slices.get(&page);
            if is_whole && known.is_some_and(|known| !known.is_empty() && known.iter().all(|s| slices.keep(*s))) {
                return self.after(behind);
            }
            // From here on, a change to a message of the page removes this entry.
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
        let slice = self.put(store.paging.kept_bytes_min, slices);
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

    /// The stage after a page. The end is compared for equality because numbers wrap.
    fn after(&self, next: u32) -> Stage {
        if next == self.messages.1 { Stage::End } else { Stage::Messages(next) }
    }

    /// Finishes the page; it may be kept if none of its messages has changed meanwhile.
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
    /// Begins a checkpoint that a [`Sweep`] follows: from now on the addresses that events refer to are noted. It
    /// visits every message and list, unlike [`Store::begin_plain_checkpoint`].
    pub fn begin_checkpoint(&mut self) -> Checkpoint {
        self.fresh = Some(IdSet::new());
        self.begin_plain_checkpoint().marking()
    }

    /// Begins a checkpoint without a sweep.
    pub fn begin_plain_checkpoint(&mut self) -> Checkpoint {
        self.book.begin_releasing();
        self.checkpoint()
    }

    /// Applies a slice that the checkpoint keeps, in replay. It can be kept again until something on its page changes.
    pub fn apply_slice(
        &mut self,
        record: &[u8],
        slice: SliceRef,
    ) -> Result<super::EventEffect, crate::event::EventError> {
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
