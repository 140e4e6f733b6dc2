//! The durable schema: the encoding of the journal's owner records. docs/design/journal-events.md describes it field by
//! field.
//!
//! Promise: decoding never panics and allocates in proportion to the record. Version rule: a field is only ever added
//! at the end of its record (or of its length-prefixed part). A reader uses the default for a missing trailing field
//! and ignores unknown trailing bytes. An unknown kind below 0x80 prevents the start (state would be lost); an unknown
//! kind from 0x80 on may be skipped.
//!
//! Encoding borrows and appends: no event has to be built first.

mod accept;
mod bounds;
mod envelope;
mod posts;

use crate::book::{DomainHistory, MailboxHistory};
pub use crate::codec::EventError;
use crate::codec::{Reader, put_bytes, put_option, put_varint, put_zigzag};
use crate::ids::{AddressId, MessageId, Ms};
use crate::idset::IdSet;
pub use accept::{Accept, RcptParams, encode_accept};
pub(crate) use accept::{Flags, Head, encode_head, encode_params};
pub use bounds::{
    AcceptParts, accept_bytes_max, hold_bytes_max, ids_bytes_max, intern_bytes_max, list_bytes_max, outcome_bytes_max,
    release_bytes_max, suspend_bytes_max, verb_bytes_max,
};
pub use envelope::{Envelope, MessageIdAt};
use posts::decode_posts;
pub use posts::{PostFacts, PostSlice, encode_post, encode_post_end, encode_resend, post_bytes_max};
pub(crate) use posts::{begin_posts, encode_post_facts};

/// Record kinds.
mod kind {
    pub const INTERN: u8 = 0x01;
    pub const ACCEPT: u8 = 0x02;
    pub const LIST_VERSION: u8 = 0x03;
    pub const LIST_REMOVED: u8 = 0x04;
    pub const VERB: u8 = 0x05;
    pub const HELD: u8 = 0x06;
    pub const RELEASED: u8 = 0x07;
    /// Since version 2.
    pub const FORGET: u8 = 0x08;
    pub const SUSPENDED: u8 = 0x09;
    pub const RESUMED: u8 = 0x0a;
    /// These kinds, and [`QUARANTINE`], were added later in version 3: a reader that does not know them refuses to
    /// start.
    pub const QUARANTINED: u8 = 0x0b;
    pub const QUARANTINE_ENDED: u8 = 0x0c;
    pub const QUARANTINE_RELEASED: u8 = 0x0d;
    /// `OUTCOME + fate`, up to 0x1f.
    pub const OUTCOME: u8 = 0x10;
    pub const TOTALS: u8 = 0x20;
    pub const MESSAGES: u8 = 0x21;
    pub const CHECKPOINT_END: u8 = 0x22;
    /// Since version 3.
    pub const ADDRESSES: u8 = 0x23;
    pub const QUARANTINE: u8 = 0x24;
    /// From this kind on, a reader skips kinds that it does not know.
    pub const SKIPPABLE: u8 = 0x80;
    /// Both since version 2.
    pub const MAILBOXES: u8 = 0x80;
    pub const SITES: u8 = 0x81;
    /// A reader that skips this record uses the times as they were recorded.
    pub const CLOCK_MOVED: u8 = 0x82;
    /// A reader that skips these four forgets who missed a post, and drops its content with its last copy.
    pub const POST: u8 = 0x83;
    pub const RESEND: u8 = 0x84;
    pub const POST_END: u8 = 0x85;
    pub const POSTS: u8 = 0x86;
}

/// 2020-01-01T00:00:00Z in Unix seconds: outcomes are timed relative to the second in their message's id.
const EPOCH_2020_S: u64 = 1_577_836_800;

/// The fate of a recipient; given once and for good. Only quarantined recipients may get another: released to the
/// queue, removed or expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Fate {
    Delivered = 0,
    Bounced = 1,
    Expired = 2,
    /// Removed by an operator or by unsubscribing: `by` names who.
    Removed = 3,
    Quarantined = 4,
    /// Merged into a later message: `by` holds its queue id.
    Coalesced = 5,
}

/// All fates, in the order of their codes.
pub const FATES: [Fate; 6] =
    [Fate::Delivered, Fate::Bounced, Fate::Expired, Fate::Removed, Fate::Quarantined, Fate::Coalesced];

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Fate::Delivered => "delivered",
            Fate::Bounced => "bounced",
            Fate::Expired => "expired",
            Fate::Removed => "removed",
            Fate::Quarantined => "quarantined",
            Fate::Coalesced => "coalesced",
        }
    }
}

/// Number of recipients by fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
    pub removed: u64,
    pub quarantined: u64,
    pub coalesced: u64,
}

impl Tally {
    pub fn sum(&self) -> u64 {
        self.delivered + self.bounced + self.expired + self.removed + self.quarantined + self.coalesced
    }

    pub fn of_mut(&mut self, fate: Fate) -> &mut u64 {
        match fate {
            Fate::Delivered => &mut self.delivered,
            Fate::Bounced => &mut self.bounced,
            Fate::Expired => &mut self.expired,
            Fate::Removed => &mut self.removed,
            Fate::Quarantined => &mut self.quarantined,
            Fate::Coalesced => &mut self.coalesced,
        }
    }

    pub fn of(&self, fate: Fate) -> u64 {
        let mut copy = *self;
        *copy.of_mut(fate)
    }

    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        for fate in FATES {
            put_varint(buf, self.of(fate));
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Tally, EventError> {
        let mut tally = Tally::default();
        for fate in FATES {
            *tally.of_mut(fate) = reader.varint()?;
        }
        Ok(tally)
    }
}

/// The store's counters since it was created. `acknowledged` = `pending` + the sum of the fates, always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub messages_accepted: u64,
    /// Recipients, after expansion, of messages answered 250.
    pub acknowledged: u64,
    pub fates: Tally,
}

impl Totals {
    pub fn pending(&self) -> u64 {
        self.acknowledged.saturating_sub(self.fates.sum())
    }
}

/// A queued message in a checkpoint: `accept.recipients` are those still pending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageSlice {
    pub accept: Accept,
    /// An operator holds it.
    pub held: bool,
    pub tally: Tally,
}

/// One owner record of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Addresses get ids. Also the checkpoint's slice of the address book.
    Intern { entries: Vec<(AddressId, &'a str)> },
    /// Nothing refers to these ids any more. They name no address, and none may get them before a checkpoint that
    /// begins after this is complete.
    Forget { ids: IdSet },
    /// A message is in the queue.
    Accept(Box<Accept>),
    /// A message is accepted into the quarantine, by the rule that `held_by` names.
    Quarantined(Box<Accept>),
    /// Recipients of a quarantined message got another fate.
    QuarantineEnded { message: MessageId, fate: Fate, ids: IdSet, by: Option<&'a str>, at: Ms },
    /// Recipients of the message `from` have left the quarantine: they belong to a message of their own in the queue.
    QuarantineReleased { from: MessageId, by: Option<&'a str>, accept: Box<Accept> },
    /// Pending recipients got their fate. `ids` were all pending when it was written.
    Outcome { message: MessageId, fate: Fate, ids: IdSet, by: Option<&'a str>, at: Ms },
    /// The subscribers of a list from now on. Also the checkpoint's slice of a list.
    ListVersion { name: &'a str, version: u64, stamp: &'a str, ids: IdSet },
    /// The list is no longer configured.
    ListRemoved { name: &'a str },
    /// An operator's action, for the audit; its effects follow as events of their own.
    Verb { at: Ms, who: &'a str, verb: &'a str, detail: &'a str },
    /// An operator's hold on these messages begins or ends: a held message is not handed out.
    Hold { held: bool, messages: Vec<MessageId> },
    /// Suspends or resumes a list, a sender's domain or a site (`list:NAME`, `sender:DOMAIN`, `site:NAME`): no mail of
    /// it is handed out. `subscriber:LIST:ADDRESS` gets no further posts of a list. Also the checkpoint's slice of
    /// suspended names. `until`: when the suspension ends by itself, 0 for never. A standing bounce also has such a
    /// name ([`crate::standing`]), and its `reason` is the text of its bounces; so has a queue-only scope
    /// ([`crate::queue_only`]).
    Suspend { suspended: bool, what: &'a str, until: Ms, reason: &'a str },
    /// A checkpoint begins: the counters, exact at this point of the log, and the last queue id assigned.
    Totals { totals: Totals, last_id: MessageId },
    /// Part of a checkpoint: messages in their state at this point of the log.
    Messages(Vec<MessageSlice>),
    /// Part of a checkpoint: quarantined messages in their state at this point of the log.
    Quarantine(Vec<Accept>),
    /// The checkpoint is complete: every live message is known.
    CheckpointEnd,
    /// Part of a checkpoint: delivery histories of mailboxes. Soft.
    Mailboxes(Vec<(AddressId, MailboxHistory)>),
    /// Part of a checkpoint: delivery histories of domains' hosts. Soft.
    Sites(Vec<(&'a str, DomainHistory)>),
    /// Part of a checkpoint: addresses with their ids and histories.
    Addresses(Vec<(AddressId, &'a str, MailboxHistory)>),
    /// The system's clock was set: known messages from this id on were accepted by a clock that was `by` ms behind.
    ClockMoved { since: MessageId, by: i64 },
    /// A message accepted in this batch is kept as a post: its content and the recipients that miss it, until then.
    Post { message: MessageId, until: Ms },
    /// A message accepted in this batch sends a post again; its recipients no longer count as missing it.
    Resend { of: MessageId, message: MessageId, until: Ms },
    /// A post is no longer kept.
    PostEnd { message: MessageId },
    /// Part of a checkpoint: kept posts in their state at this point of the log.
    Posts(Vec<PostSlice>),
    /// A skippable kind of a newer version.
    Skipped(u8),
}

impl<'a> Event<'a> {
    /// Appends the record to `buf`.
    pub fn encode(&self, buf: &mut Vec<u8>) {
        match self {
            Event::Intern { entries } => encode_intern(buf, entries.iter().copied()),
            Event::Forget { ids } => encode_forget(buf, ids),
            Event::Accept(accept) => encode_accept(buf, accept),
            Event::Quarantined(accept) => encode_quarantined(buf, accept),
            Event::QuarantineEnded { message, fate, ids, by, at } => {
                encode_quarantine_ended(buf, *message, *fate, ids, *by, *at);
            }
            Event::QuarantineReleased { from, by, accept } => encode_quarantine_released(buf, *from, *by, accept),
            Event::Outcome { message, fate, ids, by, at } => encode_outcome(buf, *message, *fate, ids, *by, *at),
            Event::ListVersion { name, version, stamp, ids } => encode_list(buf, name, *version, stamp, ids),
            Event::ListRemoved { name } => {
                buf.push(kind::LIST_REMOVED);
                put_bytes(buf, name.as_bytes());
            }
            Event::Verb { at, who, verb, detail } => encode_verb(buf, *at, who, verb, detail),
            Event::Hold { held, messages } => encode_hold(buf, *held, messages.iter().copied()),
            Event::Suspend { suspended, what, until, reason } => encode_suspend(buf, *suspended, what, *until, reason),
            Event::Totals { totals, last_id } => encode_totals(buf, totals, *last_id),
            Event::Messages(slices) => {
                begin_messages(buf);
                for slice in slices {
                    let accept = &slice.accept;
                    put_part(buf, |buf| accept::encode_body(buf, accept, slice.held));
                    put_part(buf, |buf| slice.tally.encode(buf));
                }
            }
            Event::Quarantine(kept) => {
                begin_quarantine(buf);
                for accept in kept {
                    put_part(buf, |buf| accept::encode_body(buf, accept, false));
                }
            }
            Event::CheckpointEnd => encode_checkpoint_end(buf),
            Event::Mailboxes(mailboxes) => {
                begin_mailboxes(buf);
                let mut next = 0;
                for (id, history) in mailboxes {
                    next = put_mailbox(buf, next, *id, *history);
                }
            }
            Event::Sites(sites) => {
                begin_sites(buf);
                for (name, history) in sites {
                    put_site(buf, name, history);
                }
            }
            Event::Addresses(addresses) => {
                begin_addresses(buf);
                let mut next = 0;
                for (id, text, history) in addresses {
                    next = put_address(buf, next, *id, text.as_bytes(), *history);
                }
            }
            Event::ClockMoved { since, by } => encode_clock_moved(buf, *since, *by),
            Event::Post { message, until } => encode_post(buf, *message, *until),
            Event::Resend { of, message, until } => encode_resend(buf, *of, *message, *until),
            Event::PostEnd { message } => encode_post_end(buf, *message),
            Event::Posts(posts) => {
                begin_posts(buf);
                for PostSlice { accept, facts } in posts {
                    put_part(buf, |buf| accept::encode_body(buf, accept, false));
                    encode_post_facts(buf, facts);
                }
            }
            Event::Skipped(kind) => buf.push(*kind),
        }
    }

    /// Reads one record.
    pub fn decode(record: &'a [u8]) -> Result<Event<'a>, EventError> {
        let mut reader = Reader::new(record);
        let r = &mut reader;
        Ok(match r.byte()? {
            kind::INTERN => Event::Intern { entries: decode_intern(r)? },
            kind::FORGET => Event::Forget { ids: IdSet::decode(r)? },
            kind::ACCEPT => Event::Accept(Box::new(accept::decode_body(r)?.0)),
            kind::QUARANTINED => Event::Quarantined(Box::new(accept::decode_body(r)?.0)),
            kind::QUARANTINE_ENDED => decode_quarantine_ended(r)?,
            kind::QUARANTINE_RELEASED => {
                let from = MessageId(r.varint()?);
                let accept = Box::new(accept::decode_body(&mut Reader::new(take_part(r)?))?.0);
                Event::QuarantineReleased { from, by: if r.is_empty() { None } else { r.option()? }, accept }
            }
            kind::LIST_VERSION => {
                Event::ListVersion { name: r.text()?, version: r.varint()?, stamp: r.text()?, ids: IdSet::decode(r)? }
            }
            kind::LIST_REMOVED => Event::ListRemoved { name: r.text()? },
            kind::VERB => Event::Verb { at: r.varint()?, who: r.text()?, verb: r.text()?, detail: r.text()? },
            kind::HELD => Event::Hold { held: true, messages: decode_held(r)? },
            kind::RELEASED => Event::Hold { held: false, messages: decode_held(r)? },
            kind::SUSPENDED => decode_suspended(r)?,
            kind::RESUMED => Event::Suspend { suspended: false, what: r.text()?, until: 0, reason: "" },
            kind::TOTALS => decode_totals(r)?,
            kind::MESSAGES => Event::Messages(decode_messages(r)?),
            kind::QUARANTINE => Event::Quarantine(decode_quarantine(r)?),
            kind::CHECKPOINT_END => Event::CheckpointEnd,
            kind::MAILBOXES => Event::Mailboxes(decode_mailboxes(r)?),
            kind::SITES => Event::Sites(decode_sites(r)?),
            kind::ADDRESSES => Event::Addresses(decode_addresses(r)?),
            kind::CLOCK_MOVED => Event::ClockMoved { since: MessageId(r.varint()?), by: r.zigzag()? },
            kind::POST => Event::Post { message: MessageId(r.varint()?), until: r.varint()? },
            kind::RESEND => {
                let (of, message) = (MessageId(r.varint()?), MessageId(r.varint()?));
                Event::Resend { of, message, until: r.varint()? }
            }
            kind::POST_END => Event::PostEnd { message: MessageId(r.varint()?) },
            kind::POSTS => Event::Posts(decode_posts(r)?),
            code => match FATES.get(usize::from(code.wrapping_sub(kind::OUTCOME))) {
                Some(fate) => decode_outcome(r, *fate)?,
                None if code >= kind::SKIPPABLE => Event::Skipped(code),
                None => return Err(EventError::UnknownKind(code)),
            },
        })
    }
}

/// The message that a record accepts, or whose recipients it releases or gives a fate, without decoding the rest.
pub fn message_of(record: &[u8]) -> Option<MessageId> {
    let mut reader = Reader::new(record);
    let code = reader.byte().ok()?;
    if code == kind::QUARANTINE_ENDED {
        reader.byte().ok()?;
    }
    let is_fate = FATES.get(usize::from(code.wrapping_sub(kind::OUTCOME))).is_some();
    let names = [kind::ACCEPT, kind::QUARANTINED, kind::QUARANTINE_ENDED, kind::QUARANTINE_RELEASED];
    if names.contains(&code) || is_fate { reader.varint().ok().map(MessageId) } else { None }
}

/// Appends an `Intern` record. Consecutive ids cost one byte besides length and text.
pub fn encode_intern<'s>(buf: &mut Vec<u8>, entries: impl Iterator<Item = (AddressId, &'s str)>) {
    begin_intern(buf);
    let mut next = 0;
    for (id, text) in entries {
        next = put_interned(buf, next, id, text.as_bytes());
    }
}

pub(crate) fn begin_intern(buf: &mut Vec<u8>) {
    buf.push(kind::INTERN);
}

/// Appends one entry; `next` is 0 at first, then the result of the last call.
pub(crate) fn put_interned(buf: &mut Vec<u8>, next: i64, id: AddressId, text: &[u8]) -> i64 {
    put_zigzag(buf, i64::from(id.0) - next);
    put_bytes(buf, text);
    i64::from(id.0) + 1
}

fn decode_intern<'a>(r: &mut Reader<'a>) -> Result<Vec<(AddressId, &'a str)>, EventError> {
    let mut entries = Vec::new();
    let mut next = 0i64;
    while !r.is_empty() {
        let id = take_id(r, &mut next)?;
        entries.push((id, r.text()?));
    }
    Ok(entries)
}

/// Reads an id as its difference to the one after the last.
fn take_id(r: &mut Reader<'_>, next: &mut i64) -> Result<AddressId, EventError> {
    let id = r.zigzag()?.checked_add(*next).and_then(|id| u32::try_from(id).ok());
    let id = id.ok_or(EventError::Malformed("id over 32 bits"))?;
    *next = i64::from(id) + 1;
    Ok(AddressId(id))
}

/// Appends a `Forget` record.
pub fn encode_forget(buf: &mut Vec<u8>, ids: &IdSet) {
    buf.push(kind::FORGET);
    ids.encode(buf);
}

pub(crate) fn begin_mailboxes(buf: &mut Vec<u8>) {
    buf.push(kind::MAILBOXES);
}

/// Appends one entry; `next` is 0 at first, then the result of the last call.
pub(crate) fn put_mailbox(buf: &mut Vec<u8>, next: i64, id: AddressId, history: MailboxHistory) -> i64 {
    put_zigzag(buf, i64::from(id.0) - next);
    buf.extend_from_slice(&history.to_bytes());
    i64::from(id.0) + 1
}

fn decode_mailboxes(r: &mut Reader<'_>) -> Result<Vec<(AddressId, MailboxHistory)>, EventError> {
    let (mut entries, mut next) = (Vec::new(), 0);
    while !r.is_empty() {
        let id = take_id(r, &mut next)?;
        let bytes = r.take(MailboxHistory::BYTES as u64)?.try_into().map_err(|_| EventError::Short)?;
        entries.push((id, MailboxHistory::of_bytes(bytes)));
    }
    Ok(entries)
}

pub(crate) fn begin_addresses(buf: &mut Vec<u8>) {
    buf.push(kind::ADDRESSES);
}

/// Appends one entry; `next` is 0 at first, then the result of the last call.
pub(crate) fn put_address(buf: &mut Vec<u8>, next: i64, id: AddressId, text: &[u8], history: MailboxHistory) -> i64 {
    let next = put_interned(buf, next, id, text);
    buf.extend_from_slice(&history.to_bytes());
    next
}

fn decode_addresses<'a>(r: &mut Reader<'a>) -> Result<Vec<(AddressId, &'a str, MailboxHistory)>, EventError> {
    let (mut entries, mut next) = (Vec::new(), 0);
    while !r.is_empty() {
        let (id, text) = (take_id(r, &mut next)?, r.text()?);
        let bytes = r.take(MailboxHistory::BYTES as u64)?.try_into().map_err(|_| EventError::Short)?;
        entries.push((id, text, MailboxHistory::of_bytes(bytes)));
    }
    Ok(entries)
}

pub(crate) fn begin_sites(buf: &mut Vec<u8>) {
    buf.push(kind::SITES);
}

pub(crate) fn put_site(buf: &mut Vec<u8>, name: &str, history: &DomainHistory) {
    put_bytes(buf, name.as_bytes());
    put_part(buf, |buf| history.write(buf));
}

fn decode_sites<'a>(r: &mut Reader<'a>) -> Result<Vec<(&'a str, DomainHistory)>, EventError> {
    let mut entries = Vec::new();
    while !r.is_empty() {
        let name = r.text()?;
        entries.push((name, DomainHistory::read(&mut Reader::new(take_part(r)?))?));
    }
    Ok(entries)
}

/// Start of the second that a queue id contains, in ms.
fn id_ms(message: MessageId) -> i64 {
    (((message.0 >> 24) + EPOCH_2020_S) * 1000).cast_signed()
}

/// Appends an `Outcome` record: about 16 bytes for one recipient.
pub fn encode_outcome(buf: &mut Vec<u8>, message: MessageId, fate: Fate, ids: &IdSet, by: Option<&str>, at: Ms) {
    buf.push(kind::OUTCOME + fate as u8);
    put_varint(buf, message.0);
    put_zigzag(buf, at.cast_signed().wrapping_sub(id_ms(message)));
    ids.encode(buf);
    if by.is_some() {
        put_option(buf, by);
    }
}

fn decode_outcome<'a>(r: &mut Reader<'a>, fate: Fate) -> Result<Event<'a>, EventError> {
    let message = MessageId(r.varint()?);
    let at = r.zigzag()?.wrapping_add(id_ms(message)).cast_unsigned();
    let ids = IdSet::decode(r)?;
    let by = if r.is_empty() { None } else { r.option()? };
    Ok(Event::Outcome { message, fate, ids, by, at })
}

/// Appends a `Quarantined` record.
pub fn encode_quarantined(buf: &mut Vec<u8>, accept: &Accept) {
    buf.push(kind::QUARANTINED);
    accept::encode_body(buf, accept, false);
}

/// Appends a `QuarantineEnded` record: the fate, and the fields of an outcome.
pub fn encode_quarantine_ended(
    buf: &mut Vec<u8>,
    message: MessageId,
    fate: Fate,
    ids: &IdSet,
    by: Option<&str>,
    at: Ms,
) {
    buf.push(kind::QUARANTINE_ENDED);
    encode_outcome(buf, message, fate, ids, by, at);
}

fn decode_quarantine_ended<'a>(r: &mut Reader<'a>) -> Result<Event<'a>, EventError> {
    let fate = FATES.get(usize::from(r.byte()?.wrapping_sub(kind::OUTCOME)));
    let fate = fate.filter(|fate| **fate != Fate::Quarantined).ok_or(EventError::Malformed("fate"))?;
    match decode_outcome(r, *fate)? {
        Event::Outcome { message, fate, ids, by, at } => Ok(Event::QuarantineEnded { message, fate, ids, by, at }),
        _ => Err(EventError::Malformed("fate")),
    }
}

/// Appends a `QuarantineReleased` record.
pub fn encode_quarantine_released(buf: &mut Vec<u8>, from: MessageId, by: Option<&str>, accept: &Accept) {
    buf.push(kind::QUARANTINE_RELEASED);
    put_varint(buf, from.0);
    put_part(buf, |buf| accept::encode_body(buf, accept, false));
    if by.is_some() {
        put_option(buf, by);
    }
}

pub(crate) fn begin_quarantine(buf: &mut Vec<u8>) {
    buf.push(kind::QUARANTINE);
}

fn decode_quarantine(r: &mut Reader<'_>) -> Result<Vec<Accept>, EventError> {
    let mut kept = Vec::new();
    while !r.is_empty() {
        kept.push(accept::decode_body(&mut Reader::new(take_part(r)?))?.0);
    }
    Ok(kept)
}

/// Appends a `ListVersion` record.
pub fn encode_list(buf: &mut Vec<u8>, name: &str, version: u64, stamp: &str, ids: &IdSet) {
    buf.push(kind::LIST_VERSION);
    put_bytes(buf, name.as_bytes());
    put_varint(buf, version);
    put_bytes(buf, stamp.as_bytes());
    ids.encode(buf);
}

/// Appends a `Verb` record.
pub fn encode_verb(buf: &mut Vec<u8>, at: Ms, who: &str, verb: &str, detail: &str) {
    buf.push(kind::VERB);
    put_varint(buf, at);
    put_bytes(buf, who.as_bytes());
    put_bytes(buf, verb.as_bytes());
    put_bytes(buf, detail.as_bytes());
}

/// Appends a `Held` or `Released` record: a few bytes per message if they are given in order of age.
pub fn encode_hold(buf: &mut Vec<u8>, held: bool, messages: impl ExactSizeIterator<Item = MessageId>) {
    buf.push(if held { kind::HELD } else { kind::RELEASED });
    put_varint(buf, messages.len() as u64);
    let mut last = 0;
    for id in messages {
        put_zigzag(buf, id.0.wrapping_sub(last).cast_signed());
        last = id.0;
    }
}

/// Appends a `Suspended` or `Resumed` record; the former with its end, unless that is 0, and its reason, if any.
pub fn encode_suspend(buf: &mut Vec<u8>, suspended: bool, what: &str, until: Ms, reason: &str) {
    buf.push(if suspended { kind::SUSPENDED } else { kind::RESUMED });
    put_bytes(buf, what.as_bytes());
    if suspended && (until > 0 || !reason.is_empty()) {
        put_varint(buf, until);
    }
    if suspended && !reason.is_empty() {
        put_bytes(buf, reason.as_bytes());
    }
}

fn decode_suspended<'a>(r: &mut Reader<'a>) -> Result<Event<'a>, EventError> {
    let what = r.text()?;
    let until = if r.is_empty() { 0 } else { r.varint()? };
    let reason = if r.is_empty() { "" } else { r.text()? };
    Ok(Event::Suspend { suspended: true, what, until, reason })
}

/// Appends a `ClockMoved` record.
pub fn encode_clock_moved(buf: &mut Vec<u8>, since: MessageId, by: i64) {
    buf.push(kind::CLOCK_MOVED);
    put_varint(buf, since.0);
    put_zigzag(buf, by);
}

fn decode_held(r: &mut Reader<'_>) -> Result<Vec<MessageId>, EventError> {
    let (mut messages, mut last) = (Vec::new(), 0u64);
    for _ in 0..r.varint()? {
        last = last.wrapping_add(r.zigzag()?.cast_unsigned());
        messages.push(MessageId(last));
    }
    Ok(messages)
}

pub(crate) fn encode_totals(buf: &mut Vec<u8>, totals: &Totals, last_id: MessageId) {
    buf.push(kind::TOTALS);
    put_varint(buf, totals.messages_accepted);
    put_varint(buf, totals.acknowledged);
    put_varint(buf, last_id.0);
    totals.fates.encode(buf);
}

fn decode_totals<'a>(r: &mut Reader<'a>) -> Result<Event<'a>, EventError> {
    let messages_accepted = r.varint()?;
    let acknowledged = r.varint()?;
    let last_id = MessageId(r.varint()?);
    let totals = Totals { messages_accepted, acknowledged, fates: Tally::decode(r)? };
    Ok(Event::Totals { totals, last_id })
}

pub(crate) fn encode_checkpoint_end(buf: &mut Vec<u8>) {
    buf.push(kind::CHECKPOINT_END);
}

pub(crate) fn begin_messages(buf: &mut Vec<u8>) {
    buf.push(kind::MESSAGES);
}

/// Appends the output of `write`, preceded by its length as 4 bytes, little-endian.
pub(crate) fn put_part(buf: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = buf.len();
    buf.extend_from_slice(&[0; 4]);
    write(buf);
    let len = (buf.len() - at - 4) as u32;
    buf[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

pub(crate) fn take_part<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], EventError> {
    let len = r.take(4)?.try_into().map_err(|_| EventError::Short)?;
    r.take(u64::from(u32::from_le_bytes(len)))
}

fn decode_messages(r: &mut Reader<'_>) -> Result<Vec<MessageSlice>, EventError> {
    let mut slices = Vec::new();
    while !r.is_empty() {
        let (accept, held) = accept::decode_body(&mut Reader::new(take_part(r)?))?;
        let tally = Tally::decode(&mut Reader::new(take_part(r)?))?;
        slices.push(MessageSlice { accept, held, tally });
    }
    Ok(slices)
}

#[cfg(test)]
mod tests;
