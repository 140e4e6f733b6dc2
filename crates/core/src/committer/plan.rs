//! Encodes jobs as records of the batch, content before any record that refers to it. Effects to apply later are kept
//! in [`BatchEffect`].

use std::collections::BTreeMap;

use stentor_journal::Log;
use stentor_queue::event::{
    Accept, Event, RcptParams, encode_accept, encode_hold, encode_intern, encode_list, encode_outcome, encode_post,
    encode_quarantined,
};
use stentor_queue::ids::{AddressId, ContentId, MessageId, Ms};
use stentor_queue::idset::IdSet;

use super::{Answer, Committer};
use crate::envelope::{AcceptanceFacts, ContentBytes, EnvelopeRecipients, NewEnvelope};
use crate::hub::Hub;
use crate::intake::{AssignedId, FateRecord, IntakeRefusal, InternedAddresses, Job, Submission};
use crate::verb::VerbJob;

/// Addresses beyond `addresses_max` that recipients of DSNs may use.
const REPORT_ADDRESSES: usize = 100_000;

/// A content, and how much of it is the message and its recipients' merge values.
#[derive(Clone, Copy)]
struct ContentOctets {
    content: ContentId,
    message: u64,
    merge: u64,
}

/// An envelope that becomes a message.
pub(super) struct AcceptedEnvelope {
    pub accept: Accept,
    pub taken: AcceptanceFacts,
    pub is_quarantined: bool,
    /// How long it is kept as a post; `None`: not at all.
    pub keep_until: Option<Ms>,
}

impl AcceptedEnvelope {
    /// The rule that holds the message from acceptance on.
    pub fn held_by(&self) -> Option<&str> {
        self.accept.held_by.as_deref().filter(|_| !self.is_quarantined)
    }
}

/// Effects of a batch, applied once it is durable.
pub(super) enum BatchEffect {
    Message {
        accepts: Vec<AcceptedEnvelope>,
        content: ContentId,
        body: Option<ContentBytes>,
        fate_records: Vec<FateRecord>,
        answer: Answer<()>,
    },
    Piece {
        answer: Answer<()>,
    },
    Intern {
        interned: InternedAddresses,
        answer: Answer<InternedAddresses>,
    },
    List {
        name: String,
        version: u64,
        stamp: String,
        ids: IdSet,
        answer: Answer<()>,
    },
    Unlist {
        name: String,
    },
    Verb {
        job: Box<VerbJob>,
        answer: Answer<()>,
    },
}

impl<L: Log> Committer<L> {
    /// Encodes one job into the batch, content before any record that refers to it.
    pub(super) fn plan(&mut self, hub: &mut Hub, job: Job, planned: &mut Vec<BatchEffect>) {
        match job {
            Job::Piece { content, bytes, answer } => {
                self.batch.content(content.0, false, &bytes);
                planned.push(BatchEffect::Piece { answer });
            }
            // Placed after a piece that may be in this same batch.
            Job::Drop { content } => self.dropping.push(content.0),
            Job::Intern { addresses, answer } => {
                let first = self.interned.len();
                let ids: Option<Vec<_>> = addresses.iter().map(|a| self.intern(hub, a, self.addresses_max)).collect();
                let Some(ids) = ids else {
                    self.forget_interned(hub, first);
                    drop(answer.send(Err(IntakeRefusal::AddressesFull)));
                    return;
                };
                self.record_interned(hub, first);
                let pin = hub.pins.pin(&ids);
                planned.push(BatchEffect::Intern { interned: InternedAddresses { ids, pin }, answer });
            }
            Job::List { name, stamp, ids, answer, pin: _ } => {
                hub.store.refer(&ids);
                let version = next_version(hub, planned, &name);
                self.batch.record_with(|buffer| encode_list(buffer, &name, version, &stamp, &ids));
                planned.push(BatchEffect::List { name, version, stamp, ids, answer });
            }
            Job::Unlist { name } => {
                self.batch.record_with(|buffer| Event::ListRemoved { name: &name }.encode(buffer));
                planned.push(BatchEffect::Unlist { name });
            }
            Job::Verb { mut job, answer } => {
                job.record(hub, &mut self.batch);
                planned.push(BatchEffect::Verb { job, answer });
            }
            Job::Accept { submission, answer } => self.plan_message(hub, submission, answer, planned),
        }
    }

    fn plan_message(
        &mut self,
        hub: &mut Hub,
        submission: Submission,
        answer: Answer<()>,
        planned: &mut Vec<BatchEffect>,
    ) {
        let Submission { first, content, last, size, merge_bytes, envelopes, fate_records, assigned } = submission;
        let octets = ContentOctets { content, message: size - merge_bytes, merge: merge_bytes };
        let (first_interned, mut id) = (self.interned.len(), Some(first));
        let mut accepts = Vec::with_capacity(envelopes.len());
        for mut envelope in envelopes {
            let is_quarantined = envelope.is_quarantined;
            let taken = std::mem::replace(&mut envelope.taken, AcceptanceFacts::local(""));
            let own = id.unwrap_or_else(|| self.core.next_message_id());
            match self.accept(hub, own, octets, envelope) {
                // The client is told the id of the first message with a recipient.
                Ok(accept) if accept.recipients.is_empty() => {}
                Ok(accept) => {
                    id = None;
                    let keep_until = if is_quarantined { None } else { self.keep_until(&accept, &taken) };
                    accepts.push(AcceptedEnvelope { accept, taken, is_quarantined, keep_until });
                }
                Err(refused) => {
                    self.forget_interned(hub, first_interned);
                    self.batch.drop_content(content.0);
                    let _ = answer.send(Err(refused));
                    return;
                }
            }
        }
        if let Some(assigned) = assigned {
            // No other caller has set it yet.
            let of_people = accepts.iter().filter(|accepted| !accepted.accept.is_archive);
            let ids = of_people.map(|accepted| AssignedId {
                id: accepted.accept.id,
                recipients: accepted.accept.recipients.len() as u64,
                list: accepted.accept.list.as_deref().map(Into::into),
                is_held: accepted.held_by().is_some(),
            });
            let _ = assigned.set(ids.collect());
        }
        self.batch.content(content.0, true, &last);
        self.record_interned(hub, first_interned);
        for AcceptedEnvelope { accept, is_quarantined, keep_until, .. } in &accepts {
            let encode = if *is_quarantined { encode_quarantined } else { encode_accept };
            self.batch.record_with(|buffer| encode(buffer, accept));
            if let Some(until) = keep_until {
                self.batch.record_with(|buffer| encode_post(buffer, accept.id, *until));
            }
        }
        let held = accepts.iter().filter(|accepted| accepted.held_by().is_some());
        let held_ids: Vec<_> = held.map(|accepted| accepted.accept.id).collect();
        if !held_ids.is_empty() {
            // In the same batch as the acceptance, so that nothing is delivered in between.
            self.batch.record_with(|buffer| encode_hold(buffer, true, held_ids.into_iter()));
        }
        let now = self.core.clock.now();
        for FateRecord { message, fate, ids, audit } in &fate_records {
            if let Some(audit) = audit {
                audit.record(&mut self.batch);
            }
            // Only recipients that are still pending and have no other fate in this batch.
            let Some(ids) = hub.claim_for_batch(*message, ids) else { continue };
            let by = audit.as_ref().map(|audit| audit.who.as_str());
            self.batch.record_with(|buffer| encode_outcome(buffer, *message, *fate, &ids, by, now));
        }
        let is_whole = last.len() as u64 == size && merge_bytes == 0;
        planned.push(BatchEffect::Message { accepts, content, body: is_whole.then_some(last), fate_records, answer });
    }

    /// Turns one envelope into a message with its recipients as ids, perhaps none (an empty list). Refused if the
    /// address book is full, or if the list was removed after the session's check.
    fn accept(
        &mut self,
        hub: &mut Hub,
        id: MessageId,
        octets: ContentOctets,
        envelope: NewEnvelope,
    ) -> Result<Accept, IntakeRefusal> {
        let mut params = Vec::new();
        let recipients = match envelope.recipients {
            EnvelopeRecipients::List => {
                let name = envelope.list.as_deref().unwrap_or_default();
                hub.store.receiving_subscribers(name).ok_or(IntakeRefusal::ListGone)?
            }
            EnvelopeRecipients::Interned(ids, known, _) => {
                params = known;
                ids
            }
            EnvelopeRecipients::Addresses(addresses) => {
                let mut merged = MergedRecipients::default();
                // A report must find room, or the recipients it reports on would wait for ever.
                let reserve = if envelope.is_report { REPORT_ADDRESSES } else { 0 };
                for to in addresses {
                    let id = self.intern(hub, &to.entry(), self.addresses_max + reserve);
                    merged.add(id.ok_or(IntakeRefusal::AddressesFull)?, to.params);
                }
                params = merged.params();
                merged.ids
            }
        };
        // From here on, nothing in this batch may forget these addresses.
        hub.store.refer(&recipients);
        Ok(Accept {
            id,
            content: octets.content,
            size: octets.message + envelope.prefix.len() as u64,
            accepted: self.core.clock.now(),
            sender: envelope.sender,
            class: envelope.class,
            list: envelope.list,
            recipients,
            prefix: envelope.prefix,
            eight_bit: envelope.eight_bit,
            smtputf8: envelope.smtputf8,
            ret: envelope.ret,
            envid: envelope.envid,
            params,
            origin: envelope.origin,
            message_id: envelope.message_id,
            message_id_at: envelope.message_id_at,
            is_report: envelope.is_report,
            given_sender: envelope.given_sender,
            held_by: envelope.held_by.map(String::from),
            require_tls: envelope.require_tls,
            merge_bytes: octets.merge,
            is_transactional: envelope.is_transactional,
            is_archive: envelope.is_archive,
        })
    }

    /// Until when a message is kept as a post: a list's, unless this server wrote it, as a digest.
    fn keep_until(&self, accept: &Accept, taken: &AcceptanceFacts) -> Option<Ms> {
        let list = accept.list.as_deref().filter(|_| taken.proto != AcceptanceFacts::LOCAL)?;
        Some(accept.accepted + self.core.settings().keep_posts_ms(list)?)
    }

    /// Interns an address. Returns `None` if the address book is full.
    fn intern(&mut self, hub: &mut Hub, address: &str, addresses_max: usize) -> Option<AddressId> {
        let (id, is_new) = if hub.store.book.len() >= addresses_max {
            (hub.store.book.lookup(address)?, false)
        } else {
            hub.store.book.intern(address)?
        };
        hub.store.book.saw(id, self.core.clock.now());
        if is_new {
            self.interned.push(id);
        }
        Some(id)
    }

    pub(super) fn forget_interned(&mut self, hub: &mut Hub, first: usize) {
        for id in self.interned.drain(first..).rev() {
            hub.store.book.forget(id);
        }
    }

    /// Records the addresses interned since `first`, before records that refer to them.
    fn record_interned(&mut self, hub: &Hub, first: usize) {
        if let Some(new) = self.interned.get(first..).filter(|new| !new.is_empty()) {
            let entries = new.iter().map(|id| (*id, hub.store.book.entry(*id)));
            self.batch.record_with(|buffer| encode_intern(buffer, entries));
        }
    }
}

/// The recipients of an envelope, with duplicates merged by [`RcptParams::unite`].
#[derive(Default)]
pub struct MergedRecipients {
    pub ids: IdSet,
    /// Parameters of the recipients that have any.
    params: BTreeMap<AddressId, RcptParams>,
}

impl MergedRecipients {
    pub fn add(&mut self, id: AddressId, more: RcptParams) {
        let mut params = more;
        if !self.ids.insert(id.0) {
            let mut known = self.params.remove(&id).unwrap_or_default();
            known.unite(params);
            params = known;
        }
        if params != RcptParams::default() {
            self.params.insert(id, params);
        }
    }

    pub fn params(&mut self) -> Vec<(AddressId, RcptParams)> {
        std::mem::take(&mut self.params).into_iter().collect()
    }
}

/// Returns the version after a list's newest, counting one in the batch being built.
fn next_version(hub: &Hub, planned: &[BatchEffect], name: &str) -> u64 {
    let in_batch = planned.iter().rev().find_map(|planned| match planned {
        BatchEffect::List { name: known, version, .. } if known == name => Some(*version),
        _ => None,
    });
    in_batch.or_else(|| hub.store.list(name).map(|list| list.version)).map_or(1, |version| version + 1)
}
