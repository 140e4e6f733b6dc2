//! Messages outside the queue, by queue id: the quarantine, and the posts that are kept.
//!
//! Promise: a content lives as long as an entry has it. Entries are divided into pages by their queue ids, that is, by
//! time of arrival; a checkpoint writes a page again only after one of its entries changed.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::ids::{ContentId, MessageId};
use crate::message::Message;
use crate::slices::SliceRef;

/// An entry of a shelf; its id, content and size never change.
pub(super) trait Shelved {
    fn message(&self) -> &Message;
    fn message_mut(&mut self) -> &mut Message;
    /// Moves its other times: the clock was `by` ms behind.
    fn move_times(&mut self, by: i64);
    /// Largest number of bytes that [`Shelved::encode`] appends.
    fn slice_bytes_max(&self) -> usize;
    /// Appends its item in a checkpoint's slice.
    fn encode(&self, buf: &mut Vec<u8>);
}

impl Shelved for Message {
    fn message(&self) -> &Message {
        self
    }

    fn message_mut(&mut self) -> &mut Message {
        self
    }

    fn move_times(&mut self, _: i64) {}

    fn slice_bytes_max(&self) -> usize {
        Message::slice_bytes_max(self)
    }

    fn encode(&self, buf: &mut Vec<u8>) {
        self.encode_kept(buf);
    }
}

/// Entries by queue id; see the module's head.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    entries: BTreeMap<MessageId, T>,
    /// Ids of the entries with a content, oldest first.
    contents: BTreeMap<ContentId, Vec<MessageId>>,
    octets: u64,
    page_shift: u32,
    /// Slices that show a page in its current state. An empty entry is being written.
    pub slices: BTreeMap<u32, Vec<SliceRef>>,
}

impl<T: Shelved> Shelf<T> {
    pub fn with_page_shift(page_shift: u32) -> Shelf<T> {
        Shelf { entries: BTreeMap::new(), contents: BTreeMap::new(), octets: 0, page_shift, slices: BTreeMap::new() }
    }

    pub fn page_of(&self, id: MessageId) -> u32 {
        (id.0 >> self.page_shift) as u32
    }

    /// The lowest id of a page.
    pub fn first_of(&self, page: u32) -> MessageId {
        MessageId(u64::from(page) << self.page_shift)
    }

    pub fn range(&self, from: Bound<MessageId>) -> impl Iterator<Item = &T> {
        self.entries.range((from, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    pub fn from(&self, first: MessageId) -> impl Iterator<Item = &T> {
        self.range(Bound::Included(first))
    }

    pub fn between(&self, first: MessageId, until: MessageId) -> impl Iterator<Item = &T> {
        self.from(first).take_while(move |entry| entry.message().id() < until)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Octets of all entries on the wire; a content counts once per envelope.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    pub fn has_content(&self, content: ContentId) -> bool {
        self.contents.contains_key(&content)
    }

    /// The entries with a content.
    pub fn with_content(&self, content: ContentId) -> impl Iterator<Item = &T> {
        self.contents.get(&content).into_iter().flatten().filter_map(|id| self.get(*id))
    }

    pub fn get(&self, id: MessageId) -> Option<&T> {
        self.entries.get(&id)
    }

    /// An entry that the caller changes.
    pub fn change(&mut self, id: MessageId) -> Option<&mut T> {
        let page = self.page_of(id);
        let entry = self.entries.get_mut(&id)?;
        self.slices.remove(&page);
        Some(entry)
    }

    /// Adds or replaces an entry.
    pub fn insert(&mut self, entry: T) {
        let (id, content, size) = (entry.message().id(), entry.message().content(), entry.message().size());
        self.remove(id);
        self.slices.remove(&self.page_of(id));
        let ids = self.contents.entry(content).or_default();
        ids.insert(ids.partition_point(|other| *other < id), id);
        self.octets = self.octets.wrapping_add(size);
        self.entries.insert(id, entry);
    }

    pub fn remove(&mut self, id: MessageId) -> Option<T> {
        let entry = self.entries.remove(&id)?;
        self.slices.remove(&self.page_of(id));
        self.octets = self.octets.wrapping_sub(entry.message().size());
        let content = entry.message().content();
        if let Some(ids) = self.contents.get_mut(&content) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.contents.remove(&content);
            }
        }
        Some(entry)
    }

    /// Moves the times of entries from `since` on.
    pub fn clock_moved(&mut self, since: MessageId, by: i64) {
        let moved: Vec<MessageId> = self.entries.range(since..).map(|(id, _)| *id).collect();
        for id in moved {
            if let Some(entry) = self.change(id) {
                entry.message_mut().move_accepted(by);
                entry.move_times(by);
            }
        }
    }
}
