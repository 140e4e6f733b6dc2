//! Quarantined messages: a rule keeps them from their recipients until somebody releases or deletes them, or they
//! expire.
//!
//! Promise: none of them is in the queue: not in its counts, not in its views, not in the scheduler. Each of their
//! recipients has the fate `quarantined`, which counts while it lasts. Contents are shared with messages of the queue
//! and live as long as either refers to them.
//!
//! States of a recipient here: quarantined (`Quarantined`) -> another fate (`QuarantineEnded`: removed, expired) or
//! pending in a message of its own (`QuarantineReleased`), once. A message without recipients is gone.

use std::ops::Bound;

use super::shelf::Shelf;
use super::{EventEffect, Store};
use crate::event::{Accept, Fate};
use crate::ids::{ContentId, MessageId};
use crate::idset::IdSet;
use crate::message::Message;

impl Shelf<Message> {
    /// Removes recipients. Returns those that were there, and the content. `None`: the message is not here.
    fn take_out(&mut self, id: MessageId, ids: &IdSet) -> Option<(IdSet, ContentId)> {
        let message = self.change(id)?;
        let (taken, content) = (message.pending().intersection(ids), message.content());
        message.take_out(&taken);
        if message.pending().is_empty() {
            self.remove(id);
        }
        Some((taken, content))
    }
}

impl Store {
    /// Quarantined messages after this one, oldest first.
    pub fn quarantined(&self, after: Option<MessageId>) -> impl Iterator<Item = &Message> {
        self.quarantine.range(after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// A quarantined message.
    pub fn in_quarantine(&self, id: MessageId) -> Option<&Message> {
        self.quarantine.get(id)
    }

    /// Number of quarantined messages.
    pub fn quarantined_len(&self) -> usize {
        self.quarantine.len()
    }

    /// Octets of quarantined messages on the wire; a content counts once per envelope.
    pub fn quarantined_octets(&self) -> u64 {
        self.quarantine.octets()
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
