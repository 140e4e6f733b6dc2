//! The walk through the queue: finds the selected mail in slices, so that the lock is never held for long.
//!
//! Promise: a step examines no more than [`STEPS_MAX`] messages and recipients and returns no more than its caller asks
//! for. The walk sees the messages that were queued when it began, oldest first, except those that end meanwhile.

use std::sync::Arc;

use stentor_control::Selection;
use stentor_control::problem::Problem;
use stentor_control::selection::AsOf;
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::{AddressId, DomainId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_sched::WaitingPlace;

use crate::{find, suggestions};

/// Messages and recipients examined per hold of the lock.
const STEPS_MAX: usize = 4_096;
/// Messages returned per hold of the lock.
const MESSAGES_MAX: usize = 512;

enum Recipient {
    /// All entries of one address; none if it is unknown.
    Address(Vec<AddressId>),
    Domain(Vec<DomainId>),
}

/// A selection in terms of the store.
pub(crate) struct RecipientFilter {
    /// A pattern of [`stentor_queue::sender`].
    sender: Option<String>,
    recipient: Option<Recipient>,
    /// Only recipients at this place.
    at: Option<WaitingPlace>,
    list: Option<String>,
    accepted_min: Ms,
    accepted_max: Ms,
}

/// Pending recipients of a message.
pub struct SelectedRecipients {
    pub no: MessageNo,
    pub id: MessageId,
    pub ids: IdSet,
    /// Whether it continues the message returned before.
    pub continued: bool,
}

pub struct Walk {
    chosen: RecipientFilter,
    /// Return each message once, with the first recipient that matches.
    whole_messages: bool,
    /// The ids to visit; `None` for all messages between two numbers.
    ids: Option<Vec<MessageId>>,
    at: usize,
    next: u32,
    until: u32,
    /// The last recipient examined in the current message.
    within: Option<u32>,
    /// Whether recipients of the current message were returned already.
    is_begun: bool,
    /// The queue state to cover: the present or an earlier one.
    as_of: AsOf,
}

impl Walk {
    /// Starts a walk.
    ///
    /// # Errors
    /// A message for the operator: an unknown site, an invalid address.
    pub fn begin(core: &Arc<Core>, selection: &Selection, whole_messages: bool) -> Result<Walk, Problem> {
        let at = match &selection.site {
            None => None,
            Some(name) => {
                let found = core.with(|hub, _| find::find_at(hub, name));
                Some(found.ok_or_else(|| suggestions::unknown_site(core, name))?.0)
            }
        };
        core.with(|hub, now| Walk::new(hub, selection, at, whole_messages, now))
    }

    fn new(
        hub: &Hub,
        selection: &Selection,
        at: Option<WaitingPlace>,
        whole_messages: bool,
        now: Ms,
    ) -> Result<Walk, Problem> {
        let (next, end) = hub.store.number_bounds();
        let as_of = selection.as_of.unwrap_or(AsOf { next: end, at: now });
        // A bound before the oldest message: everything counted then has left the queue.
        let until = if as_of.next.wrapping_sub(next) <= end.wrapping_sub(next) { as_of.next } else { next };
        let ids = (!selection.ids.is_empty()).then(|| {
            let mut ids = selection.ids.clone();
            ids.extend(selection.ids.iter().flat_map(|id| hub.store.withheld_archive_copies(*id)));
            ids.sort_unstable();
            ids.dedup();
            ids
        });
        Ok(Walk {
            chosen: RecipientFilter::new(hub, selection, at, as_of.at)?,
            whole_messages,
            ids,
            at: 0,
            next,
            until,
            within: None,
            is_begun: false,
            as_of,
        })
    }

    /// The queue state, so that a later walk can cover the same.
    pub fn as_of(&self) -> AsOf {
        self.as_of
    }

    /// The next slice, of at most `room` recipients; `true` with the last.
    pub fn step(&mut self, hub: &Hub, room: usize) -> (Vec<SelectedRecipients>, bool) {
        let (mut found, mut steps, mut room) = (Vec::new(), STEPS_MAX, room);
        while steps > 0 && room > 0 && found.len() < MESSAGES_MAX {
            steps -= 1;
            let Some(no) = self.current(hub) else { return (found, true) };
            let Some(message) = hub.store.message(no).filter(|message| self.chosen.takes(message)) else {
                self.advance(no);
                continue;
            };
            let (ids, is_through) = self.recipients(hub, message, &mut steps, room);
            if !ids.is_empty() {
                room -= if self.whole_messages { 1 } else { ids.len().min(room) };
                found.push(SelectedRecipients { no, id: message.id(), ids, continued: self.is_begun });
                self.is_begun = true;
            }
            if is_through || (self.whole_messages && self.is_begun) {
                self.advance(no);
            }
        }
        (found, false)
    }

    /// The walk's position: a message's number, and the recipient within it that was examined last.
    pub fn place(&self) -> (u32, Option<u32>) {
        (self.next, self.within)
    }

    /// Continues at the position of an earlier walk; if that is gone, at the next message, or the beginning.
    pub fn go_on_at(&mut self, no: u32, within: Option<u32>) {
        if no.wrapping_sub(self.next) < self.until.wrapping_sub(self.next) {
            (self.next, self.within) = (no, within);
        }
    }

    fn current(&mut self, hub: &Hub) -> Option<MessageNo> {
        let Some(ids) = &self.ids else {
            let next = hub.store.messages_between(self.next, self.until).next().map(|(no, _)| no)?;
            if next.0 != self.next {
                // The message of the last slice may have ended midway.
                (self.next, self.within, self.is_begun) = (next.0, None, false);
            }
            return Some(next);
        };
        while let Some(id) = ids.get(self.at) {
            if let Some(no) = hub.store.no_of(*id) {
                return Some(no);
            }
            (self.at, self.within, self.is_begun) = (self.at + 1, None, false);
        }
        None
    }

    fn advance(&mut self, no: MessageNo) {
        (self.at, self.next) = (self.at + 1, no.0.wrapping_add(1));
        (self.within, self.is_begun) = (None, false);
    }

    /// The next matching recipients of the current message, and whether the message is finished.
    fn recipients(&mut self, hub: &Hub, message: &Message, steps: &mut usize, room: usize) -> (IdSet, bool) {
        let pending = message.pending();
        let chosen = &self.chosen;
        if let Some(Recipient::Address(ids)) = &chosen.recipient {
            let is_there = |id: &&AddressId| pending.contains(id.0) && chosen.has(hub, **id);
            return (ids.iter().filter(is_there).map(|id| id.0).collect(), true);
        }
        if self.within.is_none() && !chosen.names_recipients() && pending.len() <= room {
            *steps = steps.saturating_sub(pending.len());
            return (pending.clone(), true);
        }
        let mut ids = IdSet::new();
        for id in self.within.map_or_else(|| pending.iter(), |after| pending.iter_from(after)) {
            if *steps == 0 || ids.len() == room || (self.whole_messages && !ids.is_empty()) {
                return (ids, false);
            }
            *steps -= 1;
            self.within = Some(id);
            if chosen.has(hub, AddressId(id)) {
                ids.insert(id);
            }
        }
        (ids, true)
    }
}

impl RecipientFilter {
    pub fn new(
        hub: &Hub,
        selection: &Selection,
        at: Option<WaitingPlace>,
        now: Ms,
    ) -> Result<RecipientFilter, Problem> {
        let ms = |age_s: u64| now.saturating_sub(age_s.saturating_mul(1_000));
        Ok(RecipientFilter {
            sender: selection.sender.as_deref().map(find::pattern).transpose()?,
            recipient: selection.recipient.as_deref().map(|text| recipient(hub, text)).transpose()?,
            at,
            list: selection.list.clone(),
            accepted_min: selection.age_s_max.map_or(0, ms),
            // Numbers in `as_of` restart with the server, but its time does not.
            accepted_max: selection.age_s_min.map_or(selection.as_of.map_or(Ms::MAX, |as_of| as_of.at), ms),
        })
    }

    pub fn takes(&self, message: &Message) -> bool {
        if !(self.accepted_min..=self.accepted_max).contains(&message.accepted()) {
            return false;
        }
        if self.sender.is_none() && self.list.is_none() {
            return true;
        }
        let envelope = message.envelope();
        let is_sender = self.sender.as_deref().is_none_or(|wanted| envelope.senders().match_pattern(wanted));
        is_sender && self.list.as_deref().is_none_or(|list| envelope.list == Some(list))
    }

    /// The matching recipients among `ids`.
    pub fn of(&self, hub: &Hub, ids: &IdSet) -> IdSet {
        match &self.recipient {
            _ if !self.names_recipients() => ids.clone(),
            Some(Recipient::Address(wanted)) => {
                wanted.iter().map(|id| id.0).filter(|id| ids.contains(*id) && self.has(hub, AddressId(*id))).collect()
            }
            _ => ids.iter().filter(|id| self.has(hub, AddressId(*id))).collect(),
        }
    }

    fn names_recipients(&self) -> bool {
        self.recipient.is_some() || self.at.is_some()
    }

    fn has(&self, hub: &Hub, id: AddressId) -> bool {
        let is_recipient = match &self.recipient {
            None => true,
            Some(Recipient::Address(wanted)) => wanted.contains(&id),
            Some(Recipient::Domain(domains)) => domains.contains(&hub.store.book.domain(id)),
        };
        is_recipient && self.at.is_none_or(|at| find::is_at(hub, hub.store.book.domain(id), at))
    }
}

fn recipient(hub: &Hub, text: &str) -> Result<Recipient, Problem> {
    let (book, wanted) = (&hub.store.book, find::pattern(text)?);
    Ok(match wanted.strip_prefix('@') {
        None => Recipient::Address(book.entries_of(&wanted)),
        Some(domain) => Recipient::Domain(book.domains_named(domain).collect()),
    })
}
