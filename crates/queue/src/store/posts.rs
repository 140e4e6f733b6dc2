//! Posts that are kept after their last copy: who missed each, so that it can be sent to exactly these again.
//!
//! Promise: a `Post` record in the batch of an acceptance keeps the content and, from then on, the recipients that
//! missed it: bounced, expired, or removed by an operator. Recipients that a suppression removed or a digest replaced
//! are only counted. A delivered recipient costs nothing; a failed one costs a look-up and its place in a set. All of
//! it is a fold of the journal, so it is the same after kills and restarts, and does not depend on the history.
//!
//! A resend is a message of its own with the same content. Its `Resend` record follows its `Accept` in the same batch:
//! its recipients no longer count as missing the post, and those that it fails to reach do again. So a recipient is in
//! exactly one of: delivered, pending in one of the post's messages, missed, removed, coalesced.
//!
//! Failure: a reader that does not know these kinds skips them (they are above 0x80). It drops the contents of finished
//! posts and forgets who missed them; mail in the queue is not affected.

use std::ops::Bound;

use super::shelf::{Shelf, Shelved};
use super::{EventEffect, Store};
use crate::event::{Fate, PostFacts, PostSlice, encode_post_facts};
use crate::ids::{ContentId, MessageId, Ms};
use crate::idset::IdSet;
use crate::message::Message;

/// Begins the `by` of recipients that a suppression removed.
pub const SUPPRESSED: &str = "suppressed for ";
/// Largest number of resends of a post.
pub const RESENDS_MAX: usize = 100;

/// A post that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptPost {
    /// The envelope; its pending recipients are those that missed the post.
    message: Message,
    facts: PostFacts,
}

impl KeptPost {
    pub fn message(&self) -> &Message {
        &self.message
    }

    pub fn facts(&self) -> &PostFacts {
        &self.facts
    }

    /// Recipients that missed the post.
    pub fn missed(&self) -> &IdSet {
        self.message.pending()
    }

    /// Why a recipient missed the post.
    pub fn fate_of(&self, id: u32) -> Fate {
        if self.facts.expired.contains(id) {
            Fate::Expired
        } else if self.facts.dropped.contains(id) {
            Fate::Removed
        } else {
            Fate::Bounced
        }
    }

    /// The queue ids of its messages: its own first, then those of its resends.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> {
        std::iter::once(self.message.id()).chain(self.facts.resends.iter().copied())
    }

    fn miss(&mut self, fate: Fate, ids: &IdSet) {
        self.message.add(ids);
        match fate {
            Fate::Expired => self.facts.expired.union_with(ids),
            Fate::Removed => self.facts.dropped.union_with(ids),
            _ => {}
        }
    }

    fn sent_again(&mut self, ids: &IdSet, to: MessageId, until: Ms) {
        self.message.take_out(ids);
        self.facts.expired.subtract(ids);
        self.facts.dropped.subtract(ids);
        self.facts.until = self.facts.until.max(until);
        if !self.facts.resends.contains(&to) {
            self.facts.resends.push(to);
        }
    }
}

impl Shelved for KeptPost {
    fn message(&self) -> &Message {
        &self.message
    }

    fn message_mut(&mut self) -> &mut Message {
        &mut self.message
    }

    fn move_times(&mut self, by: i64) {
        self.facts.until = self.facts.until.saturating_add_signed(by);
    }

    fn slice_bytes_max(&self) -> usize {
        self.message.slice_bytes_max() + self.facts.bytes_max()
    }

    fn encode(&self, buf: &mut Vec<u8>) {
        self.message.encode_kept(buf);
        encode_post_facts(buf, &self.facts);
    }
}

pub(super) type Posts = Shelf<KeptPost>;

impl Store {
    /// Kept posts after this one, oldest first.
    pub fn posts(&self, after: Option<MessageId>) -> impl Iterator<Item = &KeptPost> {
        self.posts.range(after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// A kept post, by the queue id of any of its messages.
    pub fn post(&self, id: MessageId) -> Option<&KeptPost> {
        self.posts.get(self.post_of(id))
    }

    /// The kept posts with a content: a message to several lists is one post for each.
    pub fn posts_with(&self, content: ContentId) -> impl Iterator<Item = &KeptPost> {
        self.posts.with_content(content)
    }

    /// Number of kept posts.
    pub fn posts_len(&self) -> usize {
        self.posts.len()
    }

    /// Octets of kept posts on the wire; a content counts once per envelope.
    pub fn posts_octets(&self) -> u64 {
        self.posts.octets()
    }

    /// Number of recipients that one of the post's messages still waits for.
    pub fn waiting_for_post(&self, post: &KeptPost) -> u64 {
        let pending = |id| Some(self.message(self.no_of(id)?)?.pending().len() as u64);
        post.messages().filter_map(pending).sum()
    }

    /// Number of recipients that have the post.
    pub fn delivered_of_post(&self, post: &KeptPost) -> u64 {
        let others = self.waiting_for_post(post) + post.missed().len() as u64;
        post.facts.total.saturating_sub(others + post.facts.removed + post.facts.coalesced)
    }

    /// The id of the post that a message belongs to, if it is a resend; else the message's own.
    fn post_of(&self, id: MessageId) -> MessageId {
        self.resends.get(&id).copied().unwrap_or(id)
    }

    /// Keeps a queued message as a post.
    pub(super) fn keep_post(&mut self, id: MessageId, until: Ms) -> EventEffect {
        let Some(message) = self.no_of(id).and_then(|no| self.message(no)) else { return self.ignore() };
        if self.posts.get(id).is_some() {
            return self.ignore();
        }
        let facts = PostFacts { until, total: message.total(), ..PostFacts::default() };
        let message = message.without_recipients();
        self.posts.insert(KeptPost { message, facts });
        EventEffect::Noted
    }

    /// Counts recipients of a message with a final fate in its post, if that is kept. `ids` were pending.
    pub(super) fn count_in_post(&mut self, id: MessageId, fate: Fate, ids: &IdSet, by: Option<&str>) {
        let root = self.post_of(id);
        let Some(post) = self.posts.change(root) else { return };
        let recipients = ids.len() as u64;
        match fate {
            Fate::Delivered => {}
            Fate::Coalesced => post.facts.coalesced += recipients,
            Fate::Removed if by.is_some_and(|by| by.starts_with(SUPPRESSED)) => post.facts.removed += recipients,
            // They came from a pending message, which a sweep in progress may not have visited yet.
            Fate::Bounced | Fate::Expired | Fate::Removed | Fate::Quarantined => {
                post.miss(fate, ids);
                self.refer(ids);
            }
        }
    }

    /// Recipients that missed a post are pending in another message. Within a checkpoint's window the post may not be
    /// known yet: its slice will include this.
    pub(super) fn resend(&mut self, of: MessageId, to: MessageId, until: Ms) -> EventEffect {
        let Some(ids) = self.no_of(to).and_then(|no| self.message(no)).map(|message| message.pending().clone()) else {
            return self.ignore();
        };
        match self.posts.change(of) {
            Some(post) => post.sent_again(&ids, to, until),
            None if self.window => return EventEffect::Noted,
            None => return self.ignore(),
        }
        self.resends.insert(to, of);
        EventEffect::Noted
    }

    /// Drops a post. Its messages in the queue stay.
    pub(super) fn end_post(&mut self, id: MessageId) -> EventEffect {
        let Some(post) = self.posts.remove(id) else {
            return if self.window { EventEffect::Noted } else { self.ignore() };
        };
        for resend in &post.facts.resends {
            self.resends.remove(resend);
        }
        let content = post.message.content();
        if self.has_content(content) { EventEffect::Noted } else { EventEffect::Freed(content) }
    }

    /// Applies a checkpoint's slice: replaces the post.
    pub(super) fn replace_post(&mut self, slice: PostSlice) {
        let PostSlice { accept, facts } = slice;
        self.last_id = facts.resends.iter().copied().fold(self.last_id.max(accept.id), MessageId::max);
        self.newest = self.newest.max(accept.accepted);
        self.resends.extend(facts.resends.iter().map(|resend| (*resend, accept.id)));
        self.posts.insert(KeptPost { message: Message::new(accept), facts });
    }
}
