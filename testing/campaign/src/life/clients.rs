//! What clients submit: small messages, several envelopes of one content, large bodies in pieces, lists and their
//! posts, recipients named twice. A refused client returns with a new message; only its ticket's answer counts as
//! acknowledged.

use std::sync::Arc;

use fastrand::Rng;
use stentor_core::committer::MergedRecipients;
use stentor_core::envelope::{AcceptanceFacts, EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use stentor_core::intake::{IntakeRefusal, InternedAddresses, Job, Submission, Ticket};
use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_queue::event::RcptParams;
use stentor_queue::ids::ContentId;
use stentor_queue::idset::IdSet;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::{Ev, Life};
use crate::hosts;
use crate::model::{Expanded, POST_KEY, QUARANTINED_KEY};

const REFUSALS_MAX: u32 = 5;
const PIECE_BYTES: usize = 6 * 1024;
/// NOTIFY=NEVER.
const NEVER: u8 = 1;

/// A large body on its way.
pub(crate) struct Upload {
    key: String,
    content: ContentId,
    body: Arc<Vec<u8>>,
    at: usize,
    refusals: u32,
}

/// Whose ticket it is.
enum Waiting {
    Message {
        keys: Vec<String>,
        refusals: u32,
        ticket: Ticket<()>,
    },
    Piece {
        upload: Upload,
        ticket: Ticket<()>,
    },
    /// Interned for a list, or for one message.
    Interned {
        list: bool,
        refusals: u32,
        ticket: Ticket<InternedAddresses>,
    },
    List {
        refusals: u32,
        ticket: Ticket<()>,
    },
    /// Of the operator, who does not insist.
    Verb {
        ticket: Ticket<()>,
    },
}

#[derive(Default)]
pub(crate) struct Clients {
    /// Clients that are not done.
    pub open: u32,
    tag: u64,
    waiting: Vec<Waiting>,
}

impl Clients {
    pub fn is_done(&self) -> bool {
        self.open == 0
    }

    pub fn has_verb(&self) -> bool {
        self.waiting.iter().any(|waiting| matches!(waiting, Waiting::Verb { .. }))
    }

    pub fn verb(&mut self, ticket: Ticket<()>) {
        self.waiting.push(Waiting::Verb { ticket });
    }

    pub fn has_pushed(&self) -> bool {
        !self.waiting.is_empty()
    }
}

fn body(key: &str, len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = format!("Message-ID: {key}\r\nSubject: campaign\r\n\r\n").into_bytes();
    bytes.extend((0..len).map(|at| if at % 70 > 67 { b"\r\n"[at % 70 - 68] } else { rng.u8(b'a'..=b'z') }));
    bytes
}

fn address(text: &str) -> Address {
    Address::parse(text.as_bytes(), false).expect("the campaign's addresses are well formed")
}

impl Life<'_> {
    fn new_key(&mut self) -> String {
        self.clients.tag += 1;
        let begin = if self.rng.u8(0..4) == 0 { QUARANTINED_KEY } else { "<" };
        format!("{begin}{}.{:x}@client.example>", self.clients.tag, self.rng.u64(..))
    }

    fn envelope(&mut self, key: &str, recipients: EnvelopeRecipients, list: Option<&str>) -> NewEnvelope {
        let sender = if self.rng.u8(0..5) == 0 { String::new() } else { format!("s{}@d1.example", self.rng.u8(0..5)) };
        NewEnvelope {
            sender,
            class: if list.is_some() { Class::Bulk } else { Class::Ordinary },
            list: list.map(str::to_owned),
            recipients,
            prefix: if list.is_some() { b"List-Id: <l.example>\r\n".to_vec() } else { Vec::new() },
            eight_bit: false,
            smtputf8: false,
            ret: None,
            envid: None,
            origin: "192.0.2.200".to_owned(),
            message_id: key.to_owned(),
            message_id_at: None,
            is_report: false,
            given_sender: None,
            held_by: None,
            require_tls: false,
            is_transactional: false,
            is_archive: false,
            is_quarantined: key.starts_with(QUARANTINED_KEY),
            taken: AcceptanceFacts { proto: "ESMTP", ..AcceptanceFacts::local("campaign") },
        }
    }

    fn addresses(&mut self, count: u32) -> EnvelopeRecipients {
        let mut all = Vec::new();
        for _ in 0..count {
            let notify = (self.rng.u8(0..8) == 0).then_some(NEVER);
            let address = address(&hosts::address(&mut self.rng));
            let params = RcptParams { notify, orcpt: None };
            all.push(EnvelopeRcpt { params, ..EnvelopeRcpt::plain(address) });
        }
        if self.rng.u8(0..4) == 0 {
            all.push(all[0].clone());
        }
        // As a rule's `copy`: the same recipient at another server, whose failures nobody hears of.
        if self.rng.u8(0..3) == 0 {
            let route = hosts::copy_route(&mut self.rng);
            let params = RcptParams { notify: Some(NEVER), orcpt: None };
            let copy = |to: &EnvelopeRcpt| EnvelopeRcpt { route: route.clone(), params: params.clone(), ..to.clone() };
            let copies: Vec<EnvelopeRcpt> = all.iter().map(copy).collect();
            all.extend(copies);
        }
        EnvelopeRecipients::Addresses(all)
    }

    /// A client begins.
    pub(crate) fn client(&mut self, refusals: u32) {
        if self.core.push_back().is_some() {
            let after = self.rng.u64(100..800);
            return self.at(after, Ev::Client(refusals));
        }
        match self.rng.u8(0..16) {
            0..=7 => {
                let count = self.rng.u32(1..5);
                let recipients = self.addresses(count);
                self.hand_in(vec![(recipients, None)], refusals);
            }
            8 | 9 => {
                let envelopes = (0..3).map(|_| (self.addresses(2), None)).collect();
                self.hand_in(envelopes, refusals);
            }
            // A session looks first, too.
            10 | 11 if self.core.with(|hub, _| hub.store.list("l").is_some()) => {
                let one = self.addresses(1);
                self.hand_in(vec![(EnvelopeRecipients::List, Some("l")), (one, None)], refusals);
            }
            12 => self.intern(false, refusals),
            13 => self.intern(true, refusals),
            _ => self.begin_upload(refusals),
        }
    }

    fn hand_in(&mut self, envelopes: Vec<(EnvelopeRecipients, Option<&str>)>, refusals: u32) {
        let mut keys = Vec::new();
        let mut new = Vec::new();
        for (recipients, list) in envelopes {
            let mut key = self.new_key();
            if list.is_some() && !key.starts_with(QUARANTINED_KEY) {
                key = key.replacen('<', POST_KEY, 1);
            }
            new.push(self.envelope(&key, recipients, list));
            keys.push(key);
        }
        let len = self.rng.usize(0..3000);
        let bytes = Arc::new(body(&keys[0], len, &mut self.rng));
        for key in &keys {
            self.ledger.bodies.insert(key.clone(), bytes.clone());
        }
        let content = self.core.next_content_id();
        self.submit(keys, content, bytes.clone(), bytes.len() as u64, new, refusals);
    }

    fn submit(
        &mut self,
        keys: Vec<String>,
        content: ContentId,
        last: Arc<Vec<u8>>,
        size: u64,
        envelopes: Vec<NewEnvelope>,
        refusals: u32,
    ) {
        let first = self.core.next_message_id();
        let (answer, ticket) = oneshot::channel();
        let submission = Submission {
            first,
            content,
            last,
            size,
            merge_bytes: 0,
            envelopes,
            fate_records: Vec::new(),
            assigned: None,
        };
        self.core.intake.push(Job::Accept { submission, answer });
        self.clients.waiting.push(Waiting::Message { keys, refusals, ticket });
    }

    fn intern(&mut self, list: bool, refusals: u32) {
        let count = self.rng.u32(3..14);
        let mut addresses: Vec<String> = (0..count).map(|_| hosts::address(&mut self.rng)).collect();
        if !list && self.rng.bool() {
            let route = hosts::copy_route(&mut self.rng);
            addresses.extend_from_within(..);
            addresses[count as usize..].iter_mut().for_each(|entry| *entry = route.entry(entry).into_owned());
        }
        let (answer, ticket) = oneshot::channel();
        self.core.intake.push(Job::Intern { addresses, answer });
        self.clients.waiting.push(Waiting::Interned { list, refusals, ticket });
    }

    fn begin_upload(&mut self, refusals: u32) {
        let key = self.new_key();
        let len = self.rng.usize(7_000..26_000);
        let body = Arc::new(body(&key, len, &mut self.rng));
        self.ledger.bodies.insert(key.clone(), body.clone());
        let content = self.core.next_content_id();
        self.upload(Upload { key, content, body, at: 0, refusals });
    }

    /// The next piece; the last one comes with the envelope.
    pub(crate) fn upload(&mut self, mut upload: Upload) {
        let rest = upload.body.len() - upload.at;
        if upload.at > 0 && self.rng.u8(0..20) == 0 {
            // Given up in the middle.
            self.core.intake.push(Job::Drop { content: upload.content });
            return self.client_done();
        }
        if rest <= PIECE_BYTES {
            let recipients = self.addresses(2);
            let envelope = self.envelope(&upload.key, recipients, None);
            let last = Arc::new(upload.body[upload.at..].to_vec());
            let size = upload.body.len() as u64;
            return self.submit(vec![upload.key], upload.content, last, size, vec![envelope], upload.refusals);
        }
        let bytes = upload.body[upload.at..upload.at + PIECE_BYTES].to_vec();
        upload.at += PIECE_BYTES;
        let (answer, ticket) = oneshot::channel();
        self.core.intake.push(Job::Piece { content: upload.content, bytes, answer });
        self.clients.waiting.push(Waiting::Piece { upload, ticket });
    }

    fn client_done(&mut self) {
        self.clients.open -= 1;
    }

    fn refused(&mut self, why: IntakeRefusal, refusals: u32, may: bool) -> Result<(), String> {
        if !may {
            return Err(format!("refused without a fault: {why}"));
        }
        if refusals < REFUSALS_MAX {
            let after = self.rng.u64(50..1_500);
            self.at(after, Ev::Client(refusals + 1));
        } else {
            self.client_done();
        }
        Ok(())
    }

    /// After a turn: who was told what. `written`: 250 may be said; `faulty`: a refusal may.
    pub(crate) fn hear(&mut self, expanded: &Expanded, written: bool, faulty: bool) -> Result<(), String> {
        let early = || Err("acknowledged although the batch was not written".to_owned());
        let lost = || Err("a ticket was dropped".to_owned());
        for waiting in std::mem::take(&mut self.clients.waiting) {
            match waiting {
                Waiting::Message { keys, refusals, mut ticket } => match ticket.try_recv() {
                    Err(TryRecvError::Empty) => {
                        self.clients.waiting.push(Waiting::Message { keys, refusals, ticket });
                    }
                    Ok(Ok(())) if !written => return early(),
                    Ok(Ok(())) => {
                        self.acknowledged_at.push(self.disk.operations());
                        for key in keys {
                            let who = expanded.get(&key).cloned().unwrap_or_default();
                            self.ledger.acknowledged.insert(key, who);
                        }
                        self.client_done();
                    }
                    Ok(Err(why)) => self.refused(why, refusals, faulty)?,
                    Err(TryRecvError::Closed) if faulty => {}
                    Err(TryRecvError::Closed) => return lost(),
                },
                Waiting::Piece { upload, mut ticket } => match ticket.try_recv() {
                    Err(TryRecvError::Empty) => self.clients.waiting.push(Waiting::Piece { upload, ticket }),
                    Ok(Ok(())) if !written => return early(),
                    Ok(Ok(())) => {
                        let after = self.rng.u64(1..60);
                        self.at(after, Ev::Upload(upload));
                    }
                    Ok(Err(why)) => {
                        self.core.intake.push(Job::Drop { content: upload.content });
                        self.refused(why, upload.refusals, faulty)?;
                    }
                    Err(TryRecvError::Closed) => return lost(),
                },
                Waiting::Interned { list, refusals, mut ticket } => match ticket.try_recv() {
                    Err(TryRecvError::Empty) => {
                        self.clients.waiting.push(Waiting::Interned { list, refusals, ticket });
                    }
                    Ok(Ok(_)) if !written => return early(),
                    Ok(Ok(interned)) => self.interned(list, refusals, &interned),
                    Ok(Err(why)) => self.refused(why, refusals, faulty)?,
                    Err(TryRecvError::Closed) => return lost(),
                },
                Waiting::Verb { mut ticket } => match ticket.try_recv() {
                    Err(TryRecvError::Empty) => self.clients.waiting.push(Waiting::Verb { ticket }),
                    Ok(Ok(())) if !written => return early(),
                    Ok(Ok(())) => {
                        self.acknowledged_at.push(self.disk.operations());
                        self.verbs += 1;
                    }
                    Ok(Err(why)) if !faulty => return Err(format!("a verb was refused without a fault: {why}")),
                    Ok(Err(_)) => {}
                    Err(TryRecvError::Closed) => return lost(),
                },
                Waiting::List { refusals, mut ticket } => match ticket.try_recv() {
                    Err(TryRecvError::Empty) => self.clients.waiting.push(Waiting::List { refusals, ticket }),
                    Ok(Ok(())) if !written => return early(),
                    Ok(Ok(())) => self.client_done(),
                    Ok(Err(why)) => self.refused(why, refusals, faulty)?,
                    Err(TryRecvError::Closed) => return lost(),
                },
            }
        }
        Ok(())
    }

    fn interned(&mut self, list: bool, refusals: u32, InternedAddresses { ids, pin }: &InternedAddresses) {
        let set: IdSet = ids.iter().map(|id| id.0).collect();
        if list {
            // Sometimes it changes twice at once: both in one batch.
            for _ in 0..self.rng.u32(1..3) {
                let (answer, ticket) = oneshot::channel();
                let stamp = format!("{}", self.now);
                self.core.intake.push(Job::List {
                    name: "l".to_owned(),
                    stamp,
                    ids: set.clone(),
                    pin: Some(pin.clone()),
                    answer,
                });
                self.clients.waiting.push(Waiting::List { refusals, ticket });
                self.clients.open += 1;
            }
            self.client_done();
        } else {
            let mut merged = MergedRecipients::default();
            for id in ids {
                merged.add(*id, RcptParams::default());
            }
            self.hand_in(vec![(EnvelopeRecipients::Interned(merged.ids, Vec::new(), pin.clone()), None)], refusals);
        }
    }
}
