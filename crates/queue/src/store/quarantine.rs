//! Quarantined messages: a rule keeps them from their recipients until somebody releases or deletes them, or they
//! expire.
//!
//! Promise: none of them is in the queue: not in its counts, not in its views, not in the scheduler. Each of their
//! recipients has the fate `quarantined`, which counts while it lasts. Contents are shared with messages of the queue
//! and live as long as either refers to them.
//!
//! States of a recipient here: quarantined (`Quarantined`) -> another fate (`QuarantineEnded`: removed, expired) or
//! pending in a message of its own (`QuarantineReleased`), once. A message without recipients is gone.
//!
//! Slices: the messages are divided into pages by their queue ids, that is, by time of arrival.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{EventEffect, Store};
use crate::event::{Accept, Fate};
use crate::ids::{ContentId, MessageId};
use crate::idset::IdSet;
use crate::message::Message;
use crate::slices::{Paging, SliceRef};

/// The quarantine; see the module's head.
#[derive(Debug)]
pub(super) struct Quarantine {
    messages: BTreeMap<MessageId, Message>,
    /// Number of messages by content.
    contents: BTreeMap<ContentId, u32>,
    octets: u64,
    page_shift: u32,
    /// Slices that show a page in its current state. An empty entry is being written.
    pub slices: BTreeMap<u32, Vec<SliceRef>>,
}

impl Default for Quarantine {
    fn default() -> Quarantine {
        Quarantine::with_page_shift(Paging::default().quarantine_shift)
    }
}

impl Quarantine {
    pub fn with_page_shift(page_shift: u32) -> Quarantine {
        Quarantine {
            messages: BTreeMap::new(),
            contents: BTreeMap::new(),
            octets: 0,
            page_shift,
            slices: BTreeMap::new(),
        }
    }

    pub fn page_of(&self, id: MessageId) -> u32 {
        (id.0 >> self.page_shift) as u32
    }

    /// The lowest id of a page.
    pub fn first_of(&self, page: u32) -> MessageId {
        MessageId(u64::from(page) << self.page_shift)
    }

    pub fn from(&self, first: MessageId) -> impl Iterator<Item = &Message> {
        self.messages.range(first..).map(|(_, message)| message)
    }

    pub fn between(&self, first: MessageId, until: MessageId) -> impl Iterator<Item = &Message> {
        self.from(first).take_while(move |message| message.id() < until)
    }

    pub fn has_content(&self, content: ContentId) -> bool {
        self.contents.contains_key(&content)
    }

    fn changed(&mut self, id: MessageId) {
        self.slices.remove(&self.page_of(id));
    }

    fn insert(&mut self, message: Message) {
        self.changed(message.id());
        *self.contents.entry(message.content()).or_default() += 1;
        self.octets = self.octets.wrapping_add(message.size());
        self.messages.insert(message.id(), message);
    }

    fn remove(&mut self, id: MessageId) -> Option<Message> {
        let message = self.messages.remove(&id)?;
        self.changed(id);
        self.octets = self.octets.wrapping_sub(message.size());
        if let Some(count) = self.contents.get_mut(&message.content()) {
            *count -= 1;
            if *count == 0 {
                self.contents.remove(&message.content());
            }
        }
        Some(message)
    }

    /// Removes recipients. Returns those that were there, and the content. `None`: the message is not here.
    fn take_out(&mut self, id: MessageId, ids: &IdSet) -> Option<(IdSet, ContentId)> {
        let message = self.messages.get_mut(&id)?;
        let (taken, content) = (message.pending().intersection(ids), message.content());
        message.take_out(&taken);
        let is_gone = message.pending().is_empty();
        self.changed(id);
        if is_gone {
            self.remove(id);
        }
        Some((taken, content))
    }

    /// Moves the times of messages from `since` on.
    pub fn clock_moved(&mut self, since: MessageId, by: i64) {
        let moved: Vec<MessageId> = self.messages.range(since..).map(|(id, _)| *id).collect();
        for id in moved {
            self.changed(id);
            if let Some(message) = self.messages.get_mut(&id) {
                message.move_accepted(by);
            }
        }
    }
}

impl Store {
    /// Quarantined messages after this one, oldest first.
    pub fn quarantined(&self, after: Option<MessageId>) -> impl Iterator<Item = &Message> {
        let bounds = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.quarantine.messages.range(bounds).map(|(_, message)| message)
    }

    /// A quarantined message.
    pub fn in_quarantine(&self, id: MessageId) -> Option<&Message> {
        self.quarantine.messages.get(&id)
    }

    /// Number of quarantined messages.
    pub fn quarantined_len(&self) -> usize {
        self.quarantine.messages.len()
    }

    /// Octets of quarantined messages on the wire; a content counts once per envelope.
    pub fn quarantined_octets(&self) -> u64 {
        self.quarantine.octets
    }

    pub(super) fn quarantine(&mut self, accept: Accept) -> EventEffect {
        let may_be_known = accept.id <= self.last_id;
        self.last_id = self.last_id.max(accept.id);
        self.newest = self.newest.max(accept.accepted);
        self.refer(&accept.recipients);
        if may_be_known && (self.in_quarantine(accept.id).is_some() || self.no_of(accept.id).is_some()) {
            return self.ignore();
        }
        let (recipients, content) = (accept.recipients.len() as u64, accept.content);
        self.totals.messages_accepted += 1;
        self.totals.acknowledged += recipients;
        self.totals.fates.quarantined += recipients;
        if recipients > 0 {
            self.quarantine.insert(Message::new(accept));
            return EventEffect::Noted;
        }
        if self.has_content(content) { EventEffect::Noted } else { EventEffect::Freed(content) }
    }

    pub(super) fn quarantine_ended(&mut self, id: MessageId, fate: Fate, ids: &IdSet) -> EventEffect {
        let Some((left, freed)) = self.leave_quarantine(id, ids) else { return self.ignore() };
        *self.totals.fates.of_mut(fate) += left.len() as u64;
        match freed.filter(|content| !self.has_content(*content)) {
            Some(content) => EventEffect::Freed(content),
            None => EventEffect::Noted,
        }
    }

    pub(super) fn release_from_quarantine(&mut self, from: MessageId, accept: Accept) -> EventEffect {
        let may_be_known = accept.id <= self.last_id;
        self.last_id = self.last_id.max(accept.id);
        self.newest = self.newest.max(accept.accepted);
        self.refer(&accept.recipients);
        if may_be_known && self.no_of(accept.id).is_some() {
            return self.ignore();
        }
        let Some((recipients, _)) = self.leave_quarantine(from, &accept.recipients) else { return self.ignore() };
        EventEffect::New(self.link(Message::new(Accept { recipients, ..accept })))
    }

    /// Removes recipients from the quarantine and its count. Returns them with their content. Within a checkpoint's
    /// window, all recipients of an unknown message: they were there when the record was written, and its slice will
    /// not have them. `None`: no recipient was there.
    fn leave_quarantine(&mut self, id: MessageId, ids: &IdSet) -> Option<(IdSet, Option<ContentId>)> {
        let (left, content) = match self.quarantine.take_out(id, ids) {
            Some((left, content)) => (left, Some(content)),
            None if self.window => (ids.clone(), None),
            None => return None,
        };
        if left.is_empty() {
            return None;
        }
        let count = &mut self.totals.fates.quarantined;
        *count = count.saturating_sub(left.len() as u64);
        Some((left, content))
    }

    /// Applies a checkpoint's slice: replaces the message.
    pub(super) fn replace_in_quarantine(&mut self, accept: Accept) {
        self.last_id = self.last_id.max(accept.id);
        self.newest = self.newest.max(accept.accepted);
        self.quarantine.remove(accept.id);
        if !accept.recipients.is_empty() {
            self.quarantine.insert(Message::new(accept));
        }
    }
}
