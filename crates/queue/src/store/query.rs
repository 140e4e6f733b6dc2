//! Read-only queries of the store; each documents its cost.

use std::ops::Bound::{Excluded, Included};
use std::ops::Range;

use stentor_mail::Class;

use super::{Checkpoint, EventEffect, KeptPost, ListState, Store, Tally, TimedEntry, Totals};
use crate::ids::{AddressId, ContentId, MessageId, MessageNo, Ms};
use crate::idset::IdSet;
use crate::message::Message;
use crate::{queue_only, standing_bounces};

/// Messages after a post among which its copies for archives are: the envelopes of one message.
const ARCHIVE_COPIES_SEARCHED: usize = 256;

/// A message for `stentor queue`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary<'a> {
    pub no: MessageNo,
    pub id: MessageId,
    pub content: ContentId,
    pub accepted: Ms,
    pub class: Class,
    pub size: u64,
    pub sender: &'a str,
    pub list: Option<&'a str>,
    pub origin: &'a str,
    pub total: u64,
    pub pending: u64,
    pub tally: Tally,
}

impl Store {
    #[inline]
    pub fn message(&self, no: MessageNo) -> Option<&Message> {
        self.messages.get(no.0)
    }

    pub fn no_of(&self, id: MessageId) -> Option<MessageNo> {
        self.by_id.find(id.0, |no| self.messages.get(no).map(|m| m.id().0)).map(MessageNo)
    }

    /// Number of queued messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queued messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = (MessageNo, &Message)> {
        self.messages.iter()
    }

    /// The first number of a queued message and the end of all numbers, for a walk in slices.
    pub fn number_bounds(&self) -> (u32, u32) {
        let until = self.messages.next();
        (self.oldest().map_or(until, |(no, _)| no.0), until)
    }

    /// Messages with numbers from `first` on, cyclically, and before `until`; none if the two are equal.
    pub fn messages_between(&self, first: u32, until: u32) -> impl Iterator<Item = (MessageNo, &Message)> {
        self.messages.between(first, until)
    }

    /// Returns the copies for archives that are withheld with a post: held like it, or in the quarantine. They were
    /// accepted together with it, so they are among the next messages.
    pub fn withheld_archive_copies(&self, post: MessageId) -> Vec<MessageId> {
        let copies = |of: &Message, next: &mut dyn Iterator<Item = &Message>| {
            let is_copy = |other: &&Message| {
                other.content() == of.content() && other.envelope().is_archive && other.list() == of.list()
            };
            next.take(ARCHIVE_COPIES_SEARCHED).filter(is_copy).map(Message::id).collect()
        };
        if let Some(no) = self.no_of(post) {
            let Some(post) = self.message(no).filter(|post| post.is_held() && post.list().is_some()) else {
                return Vec::new();
            };
            let first = no.0.wrapping_add(1);
            let until = first.wrapping_add(ARCHIVE_COPIES_SEARCHED as u32);
            return copies(post, &mut self.messages_between(first, until).map(|(_, message)| message));
        }
        let Some(of) = self.in_quarantine(post) else { return Vec::new() };
        copies(of, &mut self.quarantined(Some(post)))
    }

    /// Octets of all queued messages on the wire; a content counts once per envelope.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    /// Number of held messages.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Names of suspensions, in order: `list:NAME`, `sender:DOMAIN`, `site:NAME`, `subscriber:LIST:ADDRESS`.
    pub fn suspended(&self) -> impl Iterator<Item = &str> + Clone {
        let is_other = |what: &str| standing_bounces::NAMES.contains(&what) || queue_only::NAMES.contains(&what);
        self.suspended.keys().map(String::as_str).filter(move |what| !is_other(what))
    }

    /// Standing bounces, in order of name: when each ends by itself, and its reason.
    pub fn standing_bounces(&self) -> impl Iterator<Item = (&str, Ms, &str)> {
        self.suspended_between(standing_bounces::NAMES)
    }

    /// Queue-only scopes of operators, in order of name: when each ends by itself (0: never), and the reason.
    pub fn queue_only(&self) -> impl Iterator<Item = (&str, Ms, &str)> {
        self.suspended_between(queue_only::NAMES)
    }

    fn suspended_between(&self, names: Range<&'static str>) -> impl Iterator<Item = (&str, Ms, &str)> {
        let all = self.suspended.range::<str, _>((Included(names.start), Excluded(names.end)));
        all.map(|(what, standing)| (what.as_str(), standing.until, &*standing.reason))
    }

    /// When a suspension, standing bounce or queue-only scope ends by itself, if it does.
    pub fn suspended_until(&self, what: &str) -> Option<Ms> {
        self.suspended.get(what).map(|standing| standing.until).filter(|until| *until > 0)
    }

    /// The reason of a suspension, standing bounce or queue-only scope, if it has one.
    pub fn suspended_reason(&self, what: &str) -> Option<&str> {
        self.suspended.get(what).map(|standing| &*standing.reason).filter(|reason| !reason.is_empty())
    }

    /// The first suspensions, standing bounces and queue-only scopes whose end has come, at most `names_max`.
    pub fn suspensions_over(&self, now: Ms, names_max: usize) -> Vec<String> {
        let over = self.suspension_ends.iter().take_while(|(end, _)| *end <= now);
        over.take(names_max).map(|(_, what)| what.clone()).collect()
    }

    /// Adds a suspension or replaces its end and reason, or (`None`) ends it.
    pub(super) fn suspend(&mut self, what: &str, standing: Option<TimedEntry>) -> EventEffect {
        if self.suspended.get(what) == standing.as_ref() {
            return EventEffect::Nothing;
        }
        let until = standing.as_ref().map_or(0, |standing| standing.until);
        let before = match standing {
            Some(standing) => self.suspended.insert(what.to_owned(), standing),
            None => self.suspended.remove(what),
        };
        if let Some(before) = before {
            self.suspension_ends.remove(&(before.until, what.to_owned()));
        }
        if until > 0 {
            self.suspension_ends.insert((until, what.to_owned()));
        }
        EventEffect::Noted
    }

    /// Whether a suspension, standing bounce or queue-only scope of this name is in force.
    pub fn is_suspended(&self, what: &str) -> bool {
        self.suspended.contains_key(what)
    }

    /// Number of suspensions.
    pub fn suspended_len(&self) -> usize {
        self.suspended.len() - self.standing_bounces().count() - self.queue_only().count()
    }

    /// The suspended subscribers of a list.
    pub fn suspended_subscribers(&self, list: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("subscriber:{list}:");
        let from = self.suspended.range(prefix.clone()..);
        from.map_while(move |(what, _)| what.strip_prefix(prefix.as_str()))
    }

    /// The subscribers of a list, except suspended ones; `None`: there is no such list.
    pub fn receiving_subscribers(&self, list: &str) -> Option<IdSet> {
        let mut ids = self.list(list)?.ids.clone();
        for address in self.suspended_subscribers(list) {
            if let Some(id) = self.book.lookup(address) {
                ids.remove(id.0);
            }
        }
        Some(ids)
    }

    pub fn oldest(&self) -> Option<(MessageNo, &Message)> {
        self.messages().next()
    }

    /// Pending recipients of a message, in id order.
    pub fn pending_of(&self, no: MessageNo) -> impl Iterator<Item = AddressId> {
        self.message(no).into_iter().flat_map(|m| m.pending().iter().map(AddressId))
    }

    /// Messages that wait for an address, oldest first. Visits every message's set: about 20 ns each.
    pub fn messages_waiting_for(&self, address: AddressId) -> impl Iterator<Item = (MessageNo, &Message)> {
        self.messages().filter(move |(_, m)| m.pending().contains(address.0))
    }

    pub fn summary(&self, no: MessageNo) -> Option<Summary<'_>> {
        let m = self.message(no)?;
        let envelope = m.envelope();
        Some(Summary {
            no,
            id: m.id(),
            content: m.content(),
            accepted: m.accepted(),
            class: m.class(),
            size: envelope.size,
            sender: envelope.sender,
            list: envelope.list,
            origin: envelope.origin,
            total: m.total(),
            pending: m.pending().len() as u64,
            tally: m.tally(),
        })
    }

    /// The highest queue id seen: ids up to it must not be assigned.
    pub fn last_id(&self) -> MessageId {
        self.last_id
    }

    /// Whether a queued or quarantined message or a kept post has this content.
    pub fn has_content(&self, content: ContentId) -> bool {
        self.by_content.find(content.0, |no| self.messages.get(no).map(|m| m.content().0)).is_some()
            || self.quarantine.has_content(content)
            || self.posts.has_content(content)
    }

    /// The content of each message, oldest first; a shared content comes once per message.
    pub fn live_contents(&self) -> impl Iterator<Item = ContentId> {
        let all = self
            .messages()
            .map(|(_, m)| m)
            .chain(self.quarantined(None))
            .chain(self.posts(None).map(KeptPost::message));
        all.map(Message::content)
    }

    pub fn list(&self, name: &str) -> Option<&ListState> {
        self.lists.get(name)
    }

    /// All lists by name.
    pub fn lists(&self) -> impl Iterator<Item = (&str, &ListState)> {
        self.lists.iter().map(|(name, list)| (name.as_str(), list))
    }

    /// A checkpoint's cursor; see [`Checkpoint::step`].
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::new()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Number of pending recipients.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Number of pending recipients of bulk mail.
    pub fn pending_bulk(&self) -> u64 {
        self.pending_bulk
    }

    /// The number of the first message from number `from` on for which `holds` is true, `until` if there is none.
    /// `holds` must be false for all messages before some point and true for all after it. A few look-ups in the table.
    pub fn first_where(&self, from: u32, until: u32, holds: impl Fn(&Message) -> bool) -> u32 {
        let (mut low, mut high) = (0, until.wrapping_sub(from));
        while low < high {
            let middle = low + (high - low) / 2;
            let no = from.wrapping_add(middle);
            match self.messages_between(no, until).next() {
                Some((found, message)) if !holds(message) => low = found.0.wrapping_sub(from) + 1,
                _ => high = middle,
            }
        }
        from.wrapping_add(low)
    }

    /// Number of records that changed nothing.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Whether every acknowledged recipient is pending or has exactly one fate. Not valid within a checkpoint's window.
    pub fn is_balanced(&self) -> bool {
        self.totals.acknowledged == self.pending + self.totals.fates.sum()
    }
}
