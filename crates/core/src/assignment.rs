//! One transaction, copied out of the queue under the lock so that the connection can send it without holding the lock.

use std::net::IpAddr;

use stentor_copies::CopyParts;
use stentor_mail::Class;
use stentor_mail::dsn::Ret;
use stentor_queue::ids::{AddressId, ContentId, MessageId, MessageNo, Ms};
use stentor_records::record::WireChanges;
use stentor_sched::{RcptOutcome, Work};
use stentor_smtp::client::Extensions;

use crate::envelope::ContentBytes;
use crate::hub::Hub;

/// DSN parameters of one recipient (RFC 3461).
#[derive(Clone, Default)]
pub struct Params {
    pub notify: Option<u8>,
    pub orcpt: Option<String>,
}

/// Results of earlier tries over the same connection, when the host refused an extension that it offers.
pub struct EarlierTries {
    pub tries: u8,
    /// Extensions left out of this try.
    pub blamed: Extensions,
    /// One outcome per recipient; those at the positions in `open` are undecided.
    pub outcomes: Vec<RcptOutcome>,
    /// Positions of the recipients to try again.
    pub open: Vec<u32>,
}

/// Generic addresses of a transaction, which replace the stored ones on the wire.
#[derive(Default)]
pub struct GenericAddresses {
    pub sender: Option<String>,
    /// Replaced recipients by position, in order.
    pub recipients: Vec<(u32, String)>,
    /// The rewritten header, and the number of stored octets that it replaces.
    pub header: Option<(Vec<u8>, u64)>,
}

pub struct Assignment {
    pub work: Work,
    pub no: MessageNo,
    pub id: MessageId,
    pub content: ContentId,
    /// Octets of prefix and content as stored.
    pub size: u64,
    pub accepted: Ms,
    pub begun: Ms,
    pub sender: String,
    /// Empty unless the message is a post to a list.
    pub list: String,
    /// The copy is for the list's archives, not for subscribers.
    pub is_archive: bool,
    pub is_bulk: bool,
    /// The message is a report of ours.
    pub is_report: bool,
    pub prefix: Vec<u8>,
    pub body: Option<ContentBytes>,
    pub eight_bit: bool,
    pub smtputf8: bool,
    /// The message was submitted with REQUIRETLS.
    pub require_tls: bool,
    pub ret: Option<Ret>,
    /// The sender that the client gave, if `sender` differs.
    pub given_sender: Option<String>,
    pub envid: Option<String>,
    /// The recipients' addresses, concatenated.
    addresses: String,
    ends: Vec<u32>,
    /// DSN parameters of the recipients that have any, sorted by position.
    params: Vec<(u32, Params)>,
    /// Addresses and header rewritten for the wire. `None`: nothing was looked up.
    pub generic: Option<Box<GenericAddresses>>,
    /// The address of the client that sent the message without a login; `None` for users, local programs and our own
    /// mail.
    pub client: Option<IpAddr>,
    /// Octets of merge values behind the message in the stored content.
    pub merge_bytes: u64,
    /// `body` has this recipient's values in it.
    pub is_merged: bool,
    /// What this copy has of its own. `None`: not rendered, or all copies are equal.
    pub own: Option<Box<CopyParts>>,
    /// DKIM signatures, sent before everything else.
    pub signature: Vec<u8>,
    /// The form that the signatures are for.
    pub signed_form: Option<WireChanges>,
    /// How the content last sent differs from the stored content.
    pub recoded: WireChanges,
    pub tried: Option<Box<EarlierTries>>,
}

impl Assignment {
    /// Copies a transaction that was just handed out.
    pub fn of(hub: &Hub, work: Work, now: Ms) -> Option<Assignment> {
        let Some(message) = hub.store.message(work.no) else {
            // The scheduler hands out live messages only; nothing can be done for one that is gone.
            debug_assert!(false, "work for a message that is not live");
            return None;
        };
        let envelope = message.envelope();
        let mut addresses = String::with_capacity(work.ids.len() * 24);
        let mut ends = Vec::with_capacity(work.ids.len());
        let mut params = Vec::new();
        for (position, id) in work.ids.iter().enumerate() {
            addresses.push_str(hub.store.book.text(*id));
            ends.push(addresses.len() as u32);
            if let Some(known) = message.params(*id) {
                params.push((position as u32, Params { notify: known.notify, orcpt: known.orcpt.clone() }));
            }
        }
        Some(Assignment {
            no: work.no,
            id: message.id(),
            content: message.content(),
            size: envelope.size,
            accepted: message.accepted(),
            begun: now,
            sender: envelope.sender.to_owned(),
            list: envelope.list.unwrap_or_default().to_owned(),
            is_archive: envelope.is_archive,
            is_bulk: message.class() == Class::Bulk,
            is_report: message.is_report(),
            prefix: envelope.prefix.to_vec(),
            body: hub.bodies.get(message.content()),
            eight_bit: message.eight_bit(),
            smtputf8: message.smtputf8(),
            require_tls: envelope.require_tls,
            ret: message.ret(),
            given_sender: envelope.given_sender.map(str::to_owned),
            envid: envelope.envid.map(str::to_owned),
            addresses,
            ends,
            params,
            generic: None,
            client: message.origin().parse().ok(),
            merge_bytes: envelope.merge_bytes,
            is_merged: false,
            own: None,
            signature: Vec::new(),
            signed_form: None,
            recoded: WireChanges::default(),
            tried: None,
            work,
        })
    }

    /// Number of recipients, at least one.
    // Never empty: a transaction has a recipient.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the address of the recipient at `position`.
    pub fn address(&self, position: usize) -> &str {
        let start = if position == 0 { 0 } else { self.ends[position - 1] as usize };
        &self.addresses[start..self.ends[position] as usize]
    }

    pub fn params(&self, position: usize) -> Option<&Params> {
        if self.params.is_empty() {
            return None;
        }
        let found = self.params.binary_search_by_key(&(position as u32), |(p, _)| *p).ok()?;
        Some(&self.params[found].1)
    }

    pub fn id_at(&self, position: usize) -> AddressId {
        self.work.ids[position]
    }

    pub fn has_ascii_addresses(&self) -> bool {
        let others = self.generic.iter().flat_map(|generic| &generic.recipients);
        self.wire_sender().is_ascii() && self.addresses.is_ascii() && others.into_iter().all(|(_, to)| to.is_ascii())
    }

    /// Returns the list whose subscribers get the message; empty if there is none.
    pub fn subscribers_list(&self) -> &str {
        if self.is_archive { "" } else { &self.list }
    }

    /// Returns the octets of the stored content.
    pub fn content_len(&self) -> u64 {
        self.size - self.prefix.len() as u64
    }

    /// Returns the sender as the host sees it.
    pub fn wire_sender(&self) -> &str {
        let own = self.own.as_ref().and_then(|own| own.return_path.as_deref());
        let generic = || self.generic.as_ref().and_then(|generic| generic.sender.as_deref());
        own.or_else(generic).unwrap_or(&self.sender)
    }

    /// Returns the recipient at `position` as the host sees it.
    pub fn wire_address(&self, position: usize) -> &str {
        let generic = self.generic.as_ref().and_then(|generic| {
            let found = generic.recipients.binary_search_by_key(&(position as u32), |(at, _)| *at).ok()?;
            Some(&*generic.recipients[found].1)
        });
        generic.unwrap_or_else(|| self.address(position))
    }

    /// Returns the rewritten header and the number of content octets that it replaces.
    pub fn wire_header(&self) -> Option<(&[u8], u64)> {
        let header = self.generic.as_ref()?.header.as_ref()?;
        Some((&header.0, header.1))
    }

    /// Returns the header fields that this copy has of its own.
    pub fn own_fields(&self) -> &[u8] {
        self.own.as_ref().map_or(&[], |own| &own.fields)
    }

    /// Returns the octets on the wire, before any conversion.
    pub fn wire_size(&self) -> u64 {
        let (header, instead_of) = self.wire_header().map_or((0, 0), |(header, len)| (header.len() as u64, len));
        self.size + header - instead_of + (self.own_fields().len() + self.signature.len()) as u64
    }

    /// Returns the positions of this try's recipients.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        let open = self.tried.as_ref().map(|tried| tried.open.as_slice());
        let all = if open.is_some() { 0 } else { self.len() };
        open.unwrap_or_default().iter().map(|position| *position as usize).chain(0..all)
    }

    /// Merges this try's outcomes, in the order of [`Self::positions`], with the final ones of earlier tries.
    pub fn with_settled(&self, outcomes: impl Iterator<Item = RcptOutcome>) -> Vec<RcptOutcome> {
        let Some(tried) = &self.tried else { return outcomes.collect() };
        let mut all = tried.outcomes.clone();
        for (position, outcome) in tried.open.iter().zip(outcomes) {
            all[*position as usize] = outcome;
        }
        all
    }
}
