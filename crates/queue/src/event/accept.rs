//! The `Accept` event: everything that SMTP and expansion have fixed when the client gets 250, and its encoding.

use stentor_mail::Class;
use stentor_mail::dsn::Ret;

use super::{Envelope, EventError, MessageIdAt, kind, put_part, take_part};
use crate::codec::{Reader, put_option, put_varint};
use crate::ids::{AddressId, ContentId, MessageId, Ms};
use crate::idset::IdSet;

/// Parameters that only few recipients have (RFC 3461, 4.1 and 4.2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RcptParams {
    /// NEVER = 1, SUCCESS = 2, FAILURE = 4, DELAY = 8.
    pub notify: Option<u8>,
    /// ORCPT as given, `type;address` in xtext.
    pub orcpt: Option<String>,
}

impl RcptParams {
    const NEVER: u8 = 1;
    const FAILURE: u8 = 4;

    /// Merges the parameters of the same recipient reached by another path. The first ORCPT holds, and each path's
    /// requests for notices are kept. RFC 3461 does not cover duplicates; a path without NOTIFY reports failures
    /// (section 4.1), which another path's NEVER or SUCCESS must not remove.
    pub fn unite(&mut self, more: RcptParams) {
        self.notify = match (self.notify, more.notify) {
            (Some(Self::NEVER), other) | (other, Some(Self::NEVER)) => other,
            (Some(one), Some(other)) => Some(one | other),
            (None, other) | (other, None) => other.map(|other| other | Self::FAILURE),
        };
        if self.orcpt.is_none() {
            self.orcpt = more.orcpt;
        }
    }
}

/// A message that enters the queue: one envelope of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    pub id: MessageId,
    pub content: ContentId,
    /// Octets on the wire, `prefix` included.
    pub size: u64,
    pub accepted: Ms,
    /// Reverse path; empty for the null sender.
    pub sender: String,
    pub class: Class,
    pub list: Option<String>,
    pub recipients: IdSet,
    /// Header fields sent before the content, CRLF lines. Kept in memory per message: put fields that every message has
    /// (Received) into the content instead.
    pub prefix: Vec<u8>,
    pub eight_bit: bool,
    pub smtputf8: bool,
    pub ret: Option<Ret>,
    pub envid: Option<String>,
    /// Parameters in any order; at most one entry per recipient.
    pub params: Vec<(AddressId, RcptParams)>,
    /// The client's IP address, followed by `login NAME` or `certificate` if that made the client trusted; or the local
    /// user, or `local`.
    pub origin: String,
    /// The Message-ID field, or empty. Neither stored nor kept in memory if its position is known.
    pub message_id: String,
    pub message_id_at: Option<MessageIdAt>,
    /// A report (DSN) of ours, about which no report is ever sent.
    pub is_report: bool,
    /// The sender that the client gave, if `sender` differs.
    pub given_sender: Option<String>,
    /// Text of the rule that holds the message (a hold follows in the same batch), or that quarantined it.
    pub held_by: Option<String>,
    /// MAIL came with REQUIRETLS (RFC 8689).
    pub require_tls: bool,
    /// Octets of the recipients' merge values, behind the message in the content.
    pub merge_bytes: u64,
    /// A person asked for this mail: only suppressions for all mail apply.
    pub is_transactional: bool,
    /// A post's copy for the archives of `list`; its recipients are not subscribers.
    pub is_archive: bool,
}

impl Accept {
    /// The parts that are kept packed.
    pub(crate) fn envelope(&self) -> Envelope<'_> {
        Envelope {
            size: self.size,
            sender: &self.sender,
            list: self.list.as_deref(),
            prefix: &self.prefix,
            envid: self.envid.as_deref(),
            message_id: if self.message_id_at.is_none() { &self.message_id } else { "" },
            message_id_at: self.message_id_at,
            origin: &self.origin,
            given_sender: self.given_sender.as_deref(),
            held_by: self.held_by.as_deref(),
            require_tls: self.require_tls,
            merge_bytes: self.merge_bytes,
            is_transactional: self.is_transactional,
            is_archive: self.is_archive,
        }
    }

    /// A message of this machine with a queue id, a time, and a content of the same number, and nothing else.
    pub fn bare(id: MessageId, accepted: Ms) -> Accept {
        Accept {
            id,
            content: ContentId(id.0),
            size: 0,
            accepted,
            sender: String::new(),
            class: Class::Ordinary,
            list: None,
            recipients: IdSet::new(),
            prefix: Vec::new(),
            eight_bit: false,
            smtputf8: false,
            ret: None,
            envid: None,
            params: Vec::new(),
            origin: "local".to_owned(),
            message_id: String::new(),
            message_id_at: None,
            is_report: false,
            given_sender: None,
            held_by: None,
            require_tls: false,
            merge_bytes: 0,
            is_transactional: false,
            is_archive: false,
        }
    }
}

/// Flags of an acceptance, as one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags(pub u8);

impl Flags {
    const BULK: u8 = 1;
    const EIGHT_BIT: u8 = 2;
    const SMTPUTF8: u8 = 4;
    const REPORT: u8 = 8;
    const RET_FULL: u8 = 16;
    const RET_HEADERS: u8 = 32;
    /// Only in a checkpoint's slice: an `Accept` record is never held.
    pub const HELD: u8 = 64;
    /// The rule that the envelope names holds the message, and no operator does.
    pub const BY_RULE: u8 = 128;

    pub fn of(a: &Accept) -> Flags {
        let bit = |yes: bool, bit: u8| if yes { bit } else { 0 };
        Flags(
            bit(a.class == Class::Bulk, Self::BULK)
                | bit(a.eight_bit, Self::EIGHT_BIT)
                | bit(a.smtputf8, Self::SMTPUTF8)
                | bit(a.is_report, Self::REPORT)
                | bit(a.ret == Some(Ret::Full), Self::RET_FULL)
                | bit(a.ret == Some(Ret::Headers), Self::RET_HEADERS)
                | bit(a.held_by.is_some(), Self::BY_RULE),
        )
    }

    pub fn class(self) -> Class {
        if self.0 & Self::BULK == 0 { Class::Ordinary } else { Class::Bulk }
    }

    pub fn eight_bit(self) -> bool {
        self.0 & Self::EIGHT_BIT != 0
    }

    pub fn smtputf8(self) -> bool {
        self.0 & Self::SMTPUTF8 != 0
    }

    pub fn is_report(self) -> bool {
        self.0 & Self::REPORT != 0
    }

    pub fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }

    /// Whether its rule holds it, or will with the next record.
    pub fn is_by_rule(self) -> bool {
        self.0 & Self::BY_RULE != 0
    }

    pub fn ret(self) -> Option<Ret> {
        match self.0 & (Self::RET_FULL | Self::RET_HEADERS) {
            0 => None,
            Self::RET_FULL => Some(Ret::Full),
            _ => Some(Ret::Headers),
        }
    }
}

/// The numbers at the beginning of an acceptance.
pub(crate) struct Head {
    pub id: MessageId,
    pub content: ContentId,
    pub accepted: Ms,
    pub flags: Flags,
}

pub(crate) fn encode_head(buf: &mut Vec<u8>, head: &Head) {
    put_varint(buf, head.id.0);
    put_varint(buf, head.content.0);
    put_varint(buf, head.accepted);
    buf.push(head.flags.0);
}

fn decode_head(r: &mut Reader<'_>) -> Result<Head, EventError> {
    let id = MessageId(r.varint()?);
    let content = ContentId(r.varint()?);
    Ok(Head { id, content, accepted: r.varint()?, flags: Flags(r.byte()?) })
}

/// Appends an `Accept` record.
pub fn encode_accept(buf: &mut Vec<u8>, accept: &Accept) {
    buf.push(kind::ACCEPT);
    encode_body(buf, accept, false);
}

pub(super) fn encode_body(buf: &mut Vec<u8>, a: &Accept, held: bool) {
    let flags = Flags(Flags::of(a).0 | if held { Flags::HELD } else { 0 });
    encode_head(buf, &Head { id: a.id, content: a.content, accepted: a.accepted, flags });
    put_part(buf, |buf| a.envelope().write(buf));
    a.recipients.encode(buf);
    encode_params(buf, a.params.iter().map(|(id, p)| (*id, p.notify, p.orcpt.as_deref())));
}

/// Appends count and entries of the parameters that only few recipients have.
pub(crate) fn encode_params<'s>(
    buf: &mut Vec<u8>,
    params: impl ExactSizeIterator<Item = (AddressId, Option<u8>, Option<&'s str>)>,
) {
    put_varint(buf, params.len() as u64);
    for (id, notify, orcpt) in params {
        put_varint(buf, u64::from(id.0));
        put_varint(buf, notify.map_or(0, |n| u64::from(n) + 1));
        put_option(buf, orcpt);
    }
}

fn decode_params(r: &mut Reader<'_>) -> Result<Vec<(AddressId, RcptParams)>, EventError> {
    let count = r.varint()?;
    let mut params = Vec::new();
    for _ in 0..count {
        let id = AddressId(r.varint32()?);
        let notify = match r.varint()? {
            0 => None,
            bits => Some(u8::try_from(bits - 1).map_err(|_| EventError::Malformed("NOTIFY bits"))?),
        };
        params.push((id, RcptParams { notify, orcpt: r.option()?.map(str::to_owned) }));
    }
    Ok(params)
}

/// Decodes an acceptance, and whether it is held.
pub(super) fn decode_body(r: &mut Reader<'_>) -> Result<(Accept, bool), EventError> {
    let head = decode_head(r)?;
    let envelope = Envelope::read(take_part(r)?)?;
    let recipients = IdSet::decode(r)?;
    let accept = Accept {
        id: head.id,
        content: head.content,
        size: envelope.size,
        accepted: head.accepted,
        sender: envelope.sender.to_owned(),
        class: head.flags.class(),
        list: envelope.list.map(str::to_owned),
        recipients,
        prefix: envelope.prefix.to_vec(),
        eight_bit: head.flags.eight_bit(),
        smtputf8: head.flags.smtputf8(),
        ret: head.flags.ret(),
        envid: envelope.envid.map(str::to_owned),
        params: decode_params(r)?,
        origin: envelope.origin.to_owned(),
        message_id: envelope.message_id.to_owned(),
        message_id_at: envelope.message_id_at,
        is_report: head.flags.is_report(),
        given_sender: envelope.given_sender.map(str::to_owned),
        // The rule of a hold that has ended is dropped.
        held_by: envelope.held_by.filter(|_| head.flags.is_by_rule()).map(str::to_owned),
        require_tls: envelope.require_tls,
        merge_bytes: envelope.merge_bytes,
        is_transactional: envelope.is_transactional,
        is_archive: envelope.is_archive,
    };
    Ok((accept, head.flags.is_held()))
}
