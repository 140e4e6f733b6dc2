//! The durable state in memory: messages, their pending recipients, lists, counters. A fold of [`Event`]s.
//!
//! Promise: `apply` of the journal's records from the beginning of a complete checkpoint gives the state that the live
//! store had after the same events. Outside a checkpoint's window, `acknowledged` = pending + the fates.
//!
//! States of a message: unknown -> pending (`Accept`) -> finished (its last recipient has a fate), when it is forgotten
//! but for its part in the totals. States of a recipient in it: pending -> one fate, once.
//!
//! **Order in a batch.** The owner writes, in this order: (1) records of events that are applied already (outcomes),
//! (2) the checkpoint's records, (3) events that are applied once the batch is durable (`Intern`, `Accept`,
//! `ListVersion`), of these `Forget` last. So a slice never shows an event whose record comes after it, and the
//! counters in `Totals` cover exactly the records before them.
//!
//! **The window.** Between `Totals` and `CheckpointEnd`, replay meets outcomes of messages whose slice is yet to come
//! (or that finish before it does). They count in the totals at once: `Totals` includes the acceptance, and the slice
//! will include the outcome. Slices touch no counter. Outside the window an outcome of an unknown message is ignored
//! and counted as such.
//!
//! **Forgetting** (see [`Sweep`]). `Forget` names ids that nothing refers to: no message, no list, no other event of
//! its batch, no holder of ids that are not used yet. It is applied once it is durable, and its ids are assigned again
//! only after a checkpoint that began after that is complete.
//!
//! **The quarantine** ([`Quarantine`]) is separate from the messages: its recipients have the fate `quarantined` and
//! are unknown to the views of the queue and to the scheduler. Recipients leave it for another fate, or for the queue
//! as a message of their own.
//!
//! **Posts** that are kept ([`KeptPost`]) are likewise separate: each has the content of a list's message and the
//! recipients that missed it, until it is dropped.
//!
//! Failure: only decoding can fail; records that do not fit are ignored and counted (`ignored`).

mod checkpoint;
mod counts;
mod histories;
mod posts;
mod quarantine;
mod query;
mod recent;
mod shelf;
mod sizes;
mod sweep;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use stentor_mail::Class;

use crate::book::AddressBook;
use crate::event::{Accept, Event, EventError, Fate, MessageSlice, encode_outcome};
use crate::ids::{AddressId, ContentId, MessageId, MessageNo, Ms};
use crate::idset::IdSet;
use crate::message::Message;
use crate::slices::{Paging, SliceRef};

pub use crate::event::{PostFacts, Tally, Totals};
pub use checkpoint::{Checkpoint, SLICE_BYTES_MAX};
pub use counts::CHUNK_ADDRESSES;
use counts::Counts;
pub use histories::{HISTORIES_MAX, Histories};
use posts::Posts;
pub use posts::{KeptPost, RESENDS_MAX, SUPPRESSED};
pub use query::Summary;
use recent::RecentMessages;
use shelf::Shelf;
use sizes::Sizes;
pub use sizes::{EXACT_MAX, Largest};
pub use sweep::{FORGET_IDS_MAX, Sweep, SweepLimits};
use table::Table;

/// A list and its subscribers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListState {
    pub version: u64,
    /// Stamp of the file from which they were read.
    pub stamp: String,
    /// The subscribers; cloning the set copies no ids.
    pub ids: IdSet,
}

/// The journal's records do not fit together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{holder} refers to address {}, which is missing in the journal", id.0)]
pub struct DanglingAddressId {
    pub id: AddressId,
    /// The message or list.
    pub holder: String,
}

/// An entry that suspends mail, makes it queue-only, or bounces it for a time.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TimedEntry {
    /// When it ends by itself, 0 for never.
    until: Ms,
    /// The text of its bounces, or why mail is suspended or queue-only.
    reason: Box<str>,
}

/// The effect of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventEffect {
    /// A message has arrived.
    New(MessageNo),
    /// Recipients of a message got their fate; others are still pending.
    Recorded { no: MessageNo, recipients: u64 },
    /// The last recipients got their fate: the message is gone. `unreferenced`: no other message has its content.
    Finished { no: MessageNo, id: MessageId, content: ContentId, unreferenced: bool, recipients: u64 },
    /// The book, a list, a counter or the audit changed.
    Noted,
    /// A content left the quarantine, and nothing refers to it any more.
    Freed(ContentId),
    /// Nothing changed: unknown or finished message, recipients that are not pending, a kind to skip.
    Nothing,
}

/// The store; see the module's head.
#[derive(Debug)]
pub struct Store {
    pub book: AddressBook,
    messages: Table,
    by_id: RecentMessages,
    /// One entry per message, so that a content's messages are its entries.
    by_content: RecentMessages,
    quarantine: Shelf<Message>,
    posts: Posts,
    /// Messages that sent a kept post again, and the post.
    resends: BTreeMap<MessageId, MessageId>,
    lists: BTreeMap<String, ListState>,
    totals: Totals,
    /// Number of recipients pending in `messages`.
    pending: u64,
    /// Number of pending recipients of bulk mail.
    pending_bulk: u64,
    /// Number of messages held.
    held: usize,
    /// Octets of `messages` on the wire; a content counts once per envelope.
    octets: u64,
    counts: Counts,
    sizes: Sizes,
    /// Suspensions, queue-only scopes and standing bounces, by their names in [`Event::Suspend`].
    suspended: BTreeMap<String, TimedEntry>,
    /// Entries of `suspended` that end by themselves, and when.
    suspension_ends: BTreeSet<(Ms, String)>,
    /// The highest id seen or assigned.
    last_id: MessageId,
    /// The id of the youngest message by number.
    last_linked: MessageId,
    window: bool,
    /// Whether a message came with an id below its predecessor's: replay only.
    unordered: bool,
    ignored: u64,
    /// Addresses that events refer to since the current checkpoint or sweep began.
    fresh: Option<IdSet>,
    /// The newest time in any event: replay only.
    newest: Ms,
    paging: Paging,
    /// Slices that show lists, and pages of messages by number, in their current state. An empty entry is being
    /// written.
    list_slices: BTreeMap<String, SliceRef>,
    message_slices: BTreeMap<u32, Vec<SliceRef>>,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            book: AddressBook::new(),
            messages: Table::default(),
            by_id: RecentMessages::default(),
            by_content: RecentMessages::default(),
            quarantine: Shelf::with_page_shift(Paging::default().quarantine_shift),
            posts: Shelf::with_page_shift(Paging::default().quarantine_shift),
            resends: BTreeMap::new(),
            lists: BTreeMap::new(),
            totals: Totals::default(),
            pending: 0,
            pending_bulk: 0,
            held: 0,
            octets: 0,
            counts: Counts::default(),
            sizes: Sizes::default(),
            suspended: BTreeMap::new(),
            suspension_ends: BTreeSet::new(),
            last_id: MessageId(0),
            last_linked: MessageId(0),
            window: false,
            unordered: false,
            ignored: 0,
            fresh: None,
            newest: 0,
            paging: Paging::default(),
            list_slices: BTreeMap::new(),
            message_slices: BTreeMap::new(),
        }
    }
}

impl Store {
    pub fn new() -> Self {
        Store::default()
    }

    /// An empty store with other sizes of pages.
    pub fn with_paging(paging: Paging) -> Self {
        let (book, shift) = (AddressBook::with_page_shift(paging.ids_shift), paging.quarantine_shift);
        let (quarantine, posts) = (Shelf::with_page_shift(shift), Shelf::with_page_shift(shift));
        Store { book, quarantine, posts, paging, ..Store::default() }
    }

    /// A queue id that this store has never assigned before.
    pub fn next_message_id(&mut self, now: Ms) -> MessageId {
        self.last_id = MessageId::next(self.last_id, now);
        self.last_id
    }

    /// Decodes and applies one owner record, in replay.
    pub fn apply_record(&mut self, record: &[u8]) -> Result<EventEffect, EventError> {
        self.counts.suspend();
        Event::decode(record).map(|event| self.apply(event))
    }

    /// Applies an event, live (once its batch is durable) or in replay.
    pub fn apply(&mut self, event: Event<'_>) -> EventEffect {
        match event {
            Event::Intern { .. }
            | Event::Forget { .. }
            | Event::Mailboxes(_)
            | Event::Sites(_)
            | Event::Addresses(_) => self.apply_to_book(event),
            Event::Accept(accept) => self.accept(*accept),
            Event::Quarantined(accept) => self.quarantine(*accept),
            Event::QuarantineEnded { message, fate, ids, at, .. } => {
                self.newest = self.newest.max(at);
                self.quarantine_ended(message, fate, &ids)
            }
            Event::QuarantineReleased { from, accept, .. } => self.release_from_quarantine(from, *accept),
            Event::Outcome { message, fate, ids, at, by } => {
                self.newest = self.newest.max(at);
                self.outcome(message, fate, &ids, by)
            }
            Event::Post { message, until } => self.keep_post(message, until),
            Event::Resend { of, message, until } => self.resend(of, message, until),
            Event::PostEnd { message } => self.end_post(message),
            Event::Posts(posts) => {
                for post in posts {
                    self.replace_post(post);
                }
                EventEffect::Noted
            }
            Event::ListVersion { name, version, stamp, ids } => {
                self.refer(&ids);
                self.set_list(name, ListState { version, stamp: stamp.to_owned(), ids });
                EventEffect::Noted
            }
            Event::ListRemoved { name } => {
                self.list_slices.remove(name);
                if self.lists.remove(name).is_some() { EventEffect::Noted } else { EventEffect::Nothing }
            }
            Event::Totals { totals, last_id } => {
                self.last_id = self.last_id.max(last_id);
                // Equal counters mean that everything before was replayed, so nothing is unknown (a checkpoint that was
                // not the start).
                self.window |= totals != self.totals;
                self.totals = totals;
                EventEffect::Noted
            }
            Event::Messages(slices) => {
                for slice in slices {
                    self.replace(slice);
                }
                EventEffect::Noted
            }
            Event::Quarantine(kept) => {
                for accept in kept {
                    self.replace_in_quarantine(accept);
                }
                EventEffect::Noted
            }
            Event::CheckpointEnd => {
                self.window = false;
                EventEffect::Noted
            }
            Event::Verb { .. } => EventEffect::Noted,
            Event::Hold { held, messages } => self.hold(held, &messages),
            Event::Suspend { suspended, what, until, reason } => {
                self.suspend(what, suspended.then(|| TimedEntry { until, reason: reason.into() }))
            }
            Event::ClockMoved { since, by } => self.clock_moved(since, by),
            Event::Skipped(_) => self.ignore(),
        }
    }

    /// Applies an event of the address book.
    fn apply_to_book(&mut self, event: Event<'_>) -> EventEffect {
        match event {
            Event::Intern { entries } => {
                for (id, text) in entries {
                    self.book.intern_at(id, text);
                }
            }
            Event::Forget { ids } => self.book.forget_all(&ids),
            Event::Mailboxes(mailboxes) => {
                for (id, history) in mailboxes {
                    self.book.set_history(id, history);
                }
            }
            Event::Sites(sites) => {
                for (name, history) in sites {
                    self.book.set_site_history(name, history);
                }
            }
            Event::Addresses(addresses) => {
                for (id, text, history) in addresses {
                    self.book.intern_at(id, text);
                    self.book.set_history(id, history);
                }
            }
            _ => return EventEffect::Nothing,
        }
        EventEffect::Noted
    }

    /// Finishes a replay: numbers follow age again, gaps between address ids may be used, and every id that messages
    /// and lists refer to is checked. The error is a defect of ours, or damage that no checksum detected; the start
    /// must be refused.
    pub fn replayed(&mut self) -> Result<(), DanglingAddressId> {
        self.window = false;
        self.book.reuse_gaps();
        self.book.all_seen(self.newest);
        self.check_addresses()?;
        if std::mem::take(&mut self.unordered) {
            self.renumber();
        }
        let (first, until) = self.number_bounds();
        self.counts.resume(first, until);
        Ok(())
    }

    /// Renumbers messages by age.
    fn renumber(&mut self) {
        let mut messages: Vec<Message> = self.messages.drain().collect();
        messages.sort_unstable_by_key(Message::id);
        self.by_id.clear();
        self.by_content.clear();
        (self.pending, self.pending_bulk, self.held, self.octets) = (0, 0, 0, 0);
        self.sizes = Sizes::default();
        self.message_slices.clear();
        self.last_linked = MessageId(0);
        for message in messages {
            self.link(message);
        }
    }

    fn check_addresses(&self) -> Result<(), DanglingAddressId> {
        let has_gaps = self.book.len() < self.book.id_bound() as usize;
        let unknown = |ids: &IdSet| match ids.max() {
            Some(max) if has_gaps || max >= self.book.id_bound() => {
                ids.iter().map(AddressId).find(|id| !self.book.is_interned(*id))
            }
            _ => None,
        };
        let mut all = self
            .messages()
            .map(|(_, m)| m)
            .chain(self.quarantined(None))
            .chain(self.posts(None).map(KeptPost::message));
        if let Some((m, id)) = all.find_map(|m| unknown(m.pending()).map(|id| (m, id))) {
            return Err(DanglingAddressId { id, holder: format!("message {}", m.id()) });
        }
        match self.lists().find_map(|(name, list)| unknown(&list.ids).map(|id| (name, id))) {
            Some((name, id)) => Err(DanglingAddressId { id, holder: format!("list {name:?}") }),
            None => Ok(()),
        }
    }

    /// Gives pending recipients their fate and appends the record, which must be written with the next batch, to
    /// `record`. Only pending ids count and are written; `Nothing`, with nothing written, if there are none.
    pub fn record_fate(
        &mut self,
        no: MessageNo,
        fate: Fate,
        ids: &IdSet,
        by: Option<&str>,
        at: Ms,
        record: &mut Vec<u8>,
    ) -> EventEffect {
        let Some(message) = self.messages.get(no.0) else { return EventEffect::Nothing };
        let there = message.pending().intersection_len(ids);
        if there == 0 {
            // Also when `ids` is empty: the record of an empty set would have no end, and run into the next one.
            return EventEffect::Nothing;
        }
        if there == ids.len() {
            encode_outcome(record, message.id(), fate, ids, by, at);
        } else {
            encode_outcome(record, message.id(), fate, &message.pending().intersection(ids), by, at);
        }
        self.settle_known(no, fate, ids, by)
    }

    /// Replaces a list's subscribers. Live changes go through the journal: [`Event::ListVersion`].
    fn set_list(&mut self, name: &str, mut state: ListState) {
        state.ids.optimize();
        self.list_slices.remove(name);
        match self.lists.get_mut(name) {
            Some(list) => *list = state,
            None => drop(self.lists.insert(name.to_owned(), state)),
        }
    }

    fn ignore(&mut self) -> EventEffect {
        self.ignored += 1;
        EventEffect::Nothing
    }

    fn accept(&mut self, accept: Accept) -> EventEffect {
        // An id above all seen so far cannot be known; that is the usual case.
        let may_be_known = accept.id <= self.last_id;
        self.last_id = self.last_id.max(accept.id);
        self.newest = self.newest.max(accept.accepted);
        self.refer(&accept.recipients);
        if may_be_known && self.no_of(accept.id).is_some() {
            return self.ignore();
        }
        self.totals.messages_accepted += 1;
        self.totals.acknowledged += accept.recipients.len() as u64;
        let (id, content) = (accept.id, accept.content);
        let empty = accept.recipients.is_empty();
        let no = self.link(Message::new(accept));
        if !empty {
            return EventEffect::New(no);
        }
        let unreferenced = self.unlink(no);
        EventEffect::Finished { no, id, content, unreferenced, recipients: 0 }
    }

    fn outcome(&mut self, id: MessageId, fate: Fate, ids: &IdSet, by: Option<&str>) -> EventEffect {
        match self.no_of(id) {
            Some(no) => self.settle_known(no, fate, ids, by),
            None if self.window => {
                self.count_in_post(id, fate, ids, by);
                *self.totals.fates.of_mut(fate) += ids.len() as u64;
                EventEffect::Noted
            }
            None => self.ignore(),
        }
    }

    fn settle_known(&mut self, no: MessageNo, fate: Fate, ids: &IdSet, by: Option<&str>) -> EventEffect {
        if fate != Fate::Delivered
            && !self.posts.is_empty()
            && let Some(message) = self.messages.get(no.0)
        {
            let (id, ended) = (message.id(), message.pending().intersection(ids));
            self.count_in_post(id, fate, &ended, by);
        }
        let Some(message) = self.messages.get_mut(no.0) else { return EventEffect::Nothing };
        self.counts.go(&self.book, no, message.pending(), ids);
        let recipients = message.record_fate(fate, ids);
        if recipients == 0 {
            return self.ignore();
        }
        let (id, content, finished) = (message.id(), message.content(), message.pending().is_empty());
        let left = message.pending().len();
        self.sizes.change(no, left + recipients as usize, left);
        self.pending_bulk -= if message.class() == Class::Bulk { recipients } else { 0 };
        self.changed(no);
        *self.totals.fates.of_mut(fate) += recipients;
        self.pending -= recipients;
        if !finished {
            return EventEffect::Recorded { no, recipients };
        }
        let unreferenced = self.unlink(no);
        EventEffect::Finished { no, id, content, unreferenced, recipients }
    }

    /// Finished messages need no hold; messages not known yet bring it with their slice.
    fn hold(&mut self, held: bool, messages: &[MessageId]) -> EventEffect {
        let mut applied = EventEffect::Nothing;
        for id in messages {
            let Some(no) = self.no_of(*id) else { continue };
            if self.messages.get_mut(no.0).is_some_and(|message| message.set_held(held)) {
                self.held = if held { self.held + 1 } else { self.held - 1 };
                self.changed(no);
                applied = EventEffect::Noted;
            }
        }
        applied
    }

    /// Messages that come later in the log, as records or slices, already have the new time.
    fn clock_moved(&mut self, since: MessageId, by: i64) -> EventEffect {
        let moved: Vec<MessageNo> = self.messages().filter(|(_, m)| m.id() >= since).map(|(no, _)| no).collect();
        for no in &moved {
            if let Some(message) = self.messages.get_mut(no.0) {
                message.move_accepted(by);
            }
            self.changed(*no);
        }
        self.quarantine.clock_moved(since, by);
        self.posts.clock_moved(since, by);
        if moved.is_empty() { EventEffect::Nothing } else { EventEffect::Noted }
    }

    /// Applies a checkpoint's slice: replaces the message.
    fn replace(&mut self, slice: MessageSlice) {
        self.last_id = self.last_id.max(slice.accept.id);
        if let Some(no) = self.no_of(slice.accept.id) {
            self.unlink(no);
        }
        self.newest = self.newest.max(slice.accept.accepted);
        if !slice.accept.recipients.is_empty() {
            self.link(Message::from_slice(slice));
        }
    }

    /// Drops the slices that show the message.
    #[inline]
    fn changed(&mut self, no: MessageNo) {
        if !self.message_slices.is_empty() {
            self.message_slices.remove(&(no.0 >> self.paging.messages_shift));
        }
    }

    fn link(&mut self, message: Message) -> MessageNo {
        let (id, content) = (message.id(), message.content());
        let pending = message.pending().len();
        self.pending += pending as u64;
        self.pending_bulk += if message.class() == Class::Bulk { pending as u64 } else { 0 };
        self.held += usize::from(message.is_held());
        self.octets = self.octets.wrapping_add(message.size());
        self.unordered |= id < self.last_linked;
        self.last_linked = id;
        let no = self.messages.push(message);
        self.sizes.come(no, pending);
        self.changed(no);
        if let Some(message) = self.messages.get(no.0) {
            self.counts.come(&self.book, no, message.pending());
        }
        let messages = &self.messages;
        self.by_id.insert(id.0, no.0, |no| messages.get(no).map(|m| m.id().0));
        self.by_content.insert(content.0, no.0, |no| messages.get(no).map(|m| m.content().0));
        no
    }

    /// Removes a message from its content's messages. Returns whether it was the last.
    fn unlink(&mut self, no: MessageNo) -> bool {
        let Some(message) = self.messages.remove(no.0) else { return false };
        self.changed(no);
        let pending = message.pending().len();
        self.pending -= pending as u64;
        self.pending_bulk -= if message.class() == Class::Bulk { pending as u64 } else { 0 };
        self.sizes.change(no, pending, 0);
        self.held -= usize::from(message.is_held());
        self.octets = self.octets.wrapping_sub(message.size());
        if !message.pending().is_empty() {
            self.counts.go(&self.book, no, message.pending(), message.pending());
        }
        self.by_id.remove(message.id().0, no.0);
        self.by_content.remove(message.content().0, no.0);
        !self.has_content(message.content())
    }
}

#[cfg(test)]
pub(crate) mod tests;
