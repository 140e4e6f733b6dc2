//! A queued message in memory: 56 bytes, one packed allocation for the envelope, and the set of pending ids.
//!
//! Promise: a message to one recipient takes about 56 + (sender and origin bytes + 10) bytes. State that few messages
//! have (fates of some recipients, ORCPT, NOTIFY) is in a separate box. The Message-ID is usually a position in the
//! content ([`crate::event::MessageIdAt`]). The envelope never changes after acceptance.

use stentor_mail::Class;
use stentor_mail::dsn::Ret;

use crate::codec::{Reader, VARINT_BYTES_MAX};
use crate::event::{
    Accept, Envelope, Fate, Flags, Head, MessageSlice, RcptParams, Tally, encode_head, encode_params, put_part,
};
use crate::ids::{AddressId, ContentId, MessageId, Ms};
use crate::idset::IdSet;
use crate::sender::Senders;

/// Largest time of acceptance: it is kept in 56 bits.
const ACCEPTED_MAX: Ms = (1 << 56) - 1;

/// State that few messages have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Extra {
    tally: Tally,
    /// Sorted by id.
    params: Box<[(AddressId, RcptParams)]>,
}

/// A queued message; see the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    id: MessageId,
    content: ContentId,
    /// Time of acceptance in ms << 8 | flags.
    accepted_flags: u64,
    pending: IdSet,
    cold: Cold,
}

/// A packed [`Envelope`], and the state that few messages have.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Cold {
    Envelope(Box<[u8]>),
    With(Box<(Box<[u8]>, Extra)>),
}

impl Cold {
    fn envelope(&self) -> &[u8] {
        match self {
            Cold::Envelope(packed) => packed,
            Cold::With(both) => &both.0,
        }
    }

    fn extra(&self) -> Option<&Extra> {
        match self {
            Cold::Envelope(_) => None,
            Cold::With(both) => Some(&both.1),
        }
    }

    fn extra_mut(&mut self) -> &mut Extra {
        if let Cold::Envelope(packed) = self {
            *self = Cold::With(Box::new((std::mem::take(packed), Extra::default())));
        }
        match self {
            Cold::With(both) => &mut both.1,
            Cold::Envelope(_) => unreachable!("it was made one with extra"),
        }
    }
}

const _: () = assert!(size_of::<Message>() == 40 + size_of::<IdSet>());

impl Message {
    pub(crate) fn new(accept: Accept) -> Message {
        let mut packed = Vec::new();
        accept.envelope().write(&mut packed);
        let flags = Flags::of(&accept);
        let mut params = accept.params;
        params.sort_unstable_by_key(|(id, _)| *id);
        let mut cold = Cold::Envelope(packed.into_boxed_slice());
        if !params.is_empty() {
            cold.extra_mut().params = params.into_boxed_slice();
        }
        Message {
            id: accept.id,
            content: accept.content,
            accepted_flags: accept.accepted << 8 | u64::from(flags.0),
            pending: accept.recipients,
            cold,
        }
    }

    pub(crate) fn from_slice(slice: MessageSlice) -> Message {
        let mut message = Message::new(slice.accept);
        message.set_held(slice.held);
        if slice.tally != Tally::default() {
            message.cold.extra_mut().tally = slice.tally;
        }
        message
    }

    /// Gives pending recipients a fate. Returns how many there were.
    pub(crate) fn record_fate(&mut self, fate: Fate, ids: &IdSet) -> u64 {
        let recorded = self.pending.subtract(ids) as u64;
        if recorded > 0 && !self.pending.is_empty() {
            *self.cold.extra_mut().tally.of_mut(fate) += recorded;
        }
        recorded
    }

    /// Adds pending ids, which come from another message.
    pub(crate) fn add(&mut self, ids: &IdSet) {
        self.pending.union_with(ids);
    }

    /// The same envelope without recipients and holds.
    pub(crate) fn without_recipients(&self) -> Message {
        let mut message = self.clone();
        message.pending = IdSet::new();
        message.set_held(false);
        if let Cold::With(both) = &mut message.cold {
            both.1.tally = Tally::default();
        }
        message
    }

    /// Removes pending ids, which go to another message.
    pub(crate) fn take_out(&mut self, ids: &IdSet) {
        self.pending.subtract(ids);
    }

    /// Sets the hold. Returns whether that changed anything.
    pub(crate) fn set_held(&mut self, held: bool) -> bool {
        let changes = self.is_held() != held;
        if changes {
            self.accepted_flags ^= u64::from(Flags::HELD);
        }
        if !held {
            // A later hold is an operator's.
            self.accepted_flags &= !u64::from(Flags::BY_RULE);
        }
        changes
    }

    /// Moves the time of acceptance: the clock was `by` ms behind.
    pub(crate) fn move_accepted(&mut self, by: i64) {
        let accepted = self.accepted().saturating_add_signed(by).min(ACCEPTED_MAX);
        self.accepted_flags = accepted << 8 | self.accepted_flags & 0xff;
    }

    /// Appends one item of a `Messages` record.
    pub(crate) fn encode_slice(&self, buf: &mut Vec<u8>) {
        self.encode_kept(buf);
        put_part(buf, |buf| self.tally().encode(buf));
    }

    /// Appends one item of a `Quarantine` record.
    pub(crate) fn encode_kept(&self, buf: &mut Vec<u8>) {
        put_part(buf, |buf| {
            encode_head(
                buf,
                &Head { id: self.id, content: self.content, accepted: self.accepted(), flags: self.flags() },
            );
            put_part(buf, |buf| buf.extend_from_slice(self.cold.envelope()));
            self.pending.encode(buf);
            let params = self.cold.extra().map_or(&[][..], |e| &e.params);
            encode_params(buf, params.iter().map(|(id, p)| (*id, p.notify, p.orcpt.as_deref())));
        });
    }

    /// An acceptance that would create this message in its current state, for some of its recipients.
    pub fn as_accepted(&self, recipients: IdSet) -> Accept {
        let envelope = self.envelope();
        let params = recipients.iter().map(AddressId);
        let params = params.filter_map(|id| self.params(id).map(|params| (id, params.clone()))).collect();
        Accept {
            id: self.id,
            content: self.content,
            size: envelope.size,
            accepted: self.accepted(),
            sender: envelope.sender.to_owned(),
            class: self.class(),
            list: envelope.list.map(str::to_owned),
            prefix: envelope.prefix.to_vec(),
            eight_bit: self.eight_bit(),
            smtputf8: self.smtputf8(),
            ret: self.ret(),
            envid: envelope.envid.map(str::to_owned),
            params,
            origin: envelope.origin.to_owned(),
            message_id: envelope.message_id.to_owned(),
            message_id_at: envelope.message_id_at,
            is_report: self.is_report(),
            given_sender: envelope.given_sender.map(str::to_owned),
            held_by: envelope.held_by.filter(|_| self.flags().is_by_rule()).map(str::to_owned),
            require_tls: envelope.require_tls,
            merge_bytes: envelope.merge_bytes,
            is_transactional: envelope.is_transactional,
            is_archive: envelope.is_archive,
            recipients,
        }
    }

    /// Largest number of bytes that [`Message::encode_slice`] appends.
    pub fn slice_bytes_max(&self) -> usize {
        /// Lengths of two parts and of the envelope, the head, the tally, counts.
        const FIXED: usize = 12 + 3 * VARINT_BYTES_MAX + 1 + 6 * VARINT_BYTES_MAX + 2 * VARINT_BYTES_MAX;
        /// Id, NOTIFY bits, length of ORCPT.
        const PER_PARAM: usize = 5 + 2 + VARINT_BYTES_MAX;
        let params = self.cold.extra().map_or(&[][..], |e| &e.params);
        let texts: usize = params.iter().map(|(_, p)| PER_PARAM + p.orcpt.as_ref().map_or(0, String::len)).sum();
        FIXED + self.cold.envelope().len() + self.pending.encoded_bytes_max() + texts
    }

    pub fn id(&self) -> MessageId {
        self.id
    }

    pub fn content(&self) -> ContentId {
        self.content
    }

    pub fn accepted(&self) -> Ms {
        self.accepted_flags >> 8
    }

    fn flags(&self) -> Flags {
        Flags(self.accepted_flags as u8)
    }

    pub fn class(&self) -> Class {
        self.flags().class()
    }

    pub fn eight_bit(&self) -> bool {
        self.flags().eight_bit()
    }

    pub fn smtputf8(&self) -> bool {
        self.flags().smtputf8()
    }

    pub fn is_report(&self) -> bool {
        self.flags().is_report()
    }

    /// Whether an operator or a rule holds the message: it must not be handed out.
    pub fn is_held(&self) -> bool {
        self.flags().is_held()
    }

    /// Text of the rule that holds the message; `None`: an operator does, or nobody.
    pub fn held_by(&self) -> Option<&str> {
        let flags = self.flags();
        self.envelope().held_by.filter(|_| flags.is_held() && flags.is_by_rule())
    }

    /// Text of the rule that quarantined the message.
    pub fn quarantined_by(&self) -> &str {
        self.envelope().held_by.unwrap_or_default()
    }

    pub fn ret(&self) -> Option<Ret> {
        self.flags().ret()
    }

    /// Recipients without a fate.
    pub fn pending(&self) -> &IdSet {
        &self.pending
    }

    /// Number of recipients with a fate, by fate.
    pub fn tally(&self) -> Tally {
        self.cold.extra().map_or_else(Tally::default, |e| e.tally)
    }

    /// Number of recipients at acceptance.
    pub fn total(&self) -> u64 {
        self.pending.len() as u64 + self.tally().sum()
    }

    /// The rarely used parts; unpacking takes some tens of nanoseconds.
    pub fn envelope(&self) -> Envelope<'_> {
        // Only Envelope::write creates these bytes.
        Envelope::read(self.cold.envelope()).unwrap_or_default()
    }

    pub fn sender(&self) -> &str {
        self.envelope().sender
    }

    pub fn senders(&self) -> Senders<'_> {
        self.envelope().senders()
    }

    pub fn list(&self) -> Option<&str> {
        self.envelope().list
    }

    /// The list whose subscribers get the message. `None` also for a copy for a list's archives.
    pub fn subscribers_list(&self) -> Option<&str> {
        self.envelope().subscribers_list()
    }

    /// Octets on the wire, prefix included.
    pub fn size(&self) -> u64 {
        // The first field that Envelope::write writes.
        Reader::new(self.cold.envelope()).varint().unwrap_or_default()
    }

    pub fn prefix(&self) -> &[u8] {
        self.envelope().prefix
    }

    pub fn envid(&self) -> Option<&str> {
        self.envelope().envid
    }

    pub fn message_id(&self) -> &str {
        self.envelope().message_id
    }

    pub fn origin(&self) -> &str {
        self.envelope().origin
    }

    /// NOTIFY and ORCPT of a recipient, if it has any.
    pub fn params(&self, id: AddressId) -> Option<&RcptParams> {
        let params = &self.cold.extra()?.params;
        params.binary_search_by_key(&id, |(id, _)| *id).ok().map(|i| &params[i].1)
    }
}
