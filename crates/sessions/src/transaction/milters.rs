//! Applies milters to a transaction: to its sender, its recipients, and its content once that has arrived.
//!
//! Failure: the milters' refusal, or the configured action for a milter that fails; the log names the milter.

use std::collections::HashMap;
use std::io;
use std::mem::take;
use std::sync::Arc;

use stentor_core::{Core, Settings, log};
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_message_auth::FIELD;
use stentor_milter::{
    ClientFacts, Content, MailFacts, MilterRefusal, MilteredMessage, RcptFacts, RecipientChange, RecodeResult,
    SessionMilters, each_field, edit_fields, recoded,
};
use stentor_mime::field::Edit;
use stentor_mime::recode::RecodeTarget;
use stentor_policy::{AddressClass, counted_as};
use stentor_reputation::ClientName;
use stentor_rules::{ActionRemark, AuthFieldResults, Key, RemarkRecipients, claims};
use stentor_sasl::Mechanism;
use stentor_smtp::server::{EndOfData, RcptTo};

use super::super::judge::{AcceptedRcpt, ClientProof, Speaker, Stranger};
use super::holdings::Pieces;
use super::rcpt::{RcptContext, TAKEN, TakenRcpt};
use super::{Received, Transaction};

/// A transaction that is shown to milters.
pub(super) struct MilterTransaction {
    session: SessionMilters,
    /// Accepted recipients: a milter may remove one again.
    taken: Vec<TakenRcpt>,
    /// Describes the milters' effects on the message, for the log.
    pub words: String,
}

impl Drop for MilterTransaction {
    fn drop(&mut self) {
        self.session.over();
    }
}

impl Transaction {
    /// Shows the milters the beginning of a message. The error is their refusal.
    pub async fn filtered_by(&mut self, core: &Core, milters: SessionMilters, helo: &str) -> Result<(), Reply> {
        let id = self.id.to_string();
        let told = milters.chain().await.mail(MailFacts { helo, id: &id, mail: &self.mail }).await;
        self.milters = Some(Box::new(MilterTransaction { session: milters, taken: Vec::new(), words: String::new() }));
        told.map_err(|refusal| {
            log::refused(core, "MAIL", &refusal.by, &self.mail, self.by(), &refusal.reply);
            refusal.reply
        })
    }

    /// Shows the milters the beginning of a user's message that comes over HTTP or from a local program. The error is
    /// their refusal.
    pub async fn filtered_locally(&mut self, core: &Core, settings: &Settings, login: &str) -> Result<(), Reply> {
        // No SASL was used. Milters that sign users' mail accept any mechanism.
        let login = Some((login.to_owned(), Mechanism::Plain.name()));
        let (address, counted_as) = (self.client, counted_as(self.client));
        let (is_trusted, tls) = (true, None);
        let facts = ClientFacts { address, counted_as, is_trusted, port: 0, name: None, listener: None, login, tls };
        match settings.milters.of(&facts) {
            Some(milters) => Box::pin(self.filtered_by(core, milters, "")).await,
            None => Ok(()),
        }
    }

    /// Tells the milters that the content follows. The error is their refusal.
    pub async fn filter_data(&mut self, core: &Core) -> Result<(), Reply> {
        let Some(milters) = &self.milters else { return Ok(()) };
        milters.session.chain().await.data().await.map_err(|refusal| {
            log::refused(core, "DATA", &refusal.by, &self.mail, self.by(), &refusal.reply);
            refusal.reply
        })
    }

    /// Answers RCPT; milters hear of a recipient that we refuse.
    pub(super) async fn filter_rcpt(&mut self, context: RcptContext<'_>, rcpt: RcptTo) -> Reply {
        let taken = self.take_rcpt(context, rcpt.clone()).await;
        let Err(refusal) = taken else { return TAKEN };
        // A milter's own refusal is not news to it.
        if !refusal.is_milters
            && let Some(milters) = &self.milters
        {
            milters.session.chain().await.rcpt_refused(&rcpt, &refusal.reply).await;
        }
        self.refuse(context.core, context.speaker.client, *refusal)
    }

    /// Asks them about a recipient that is otherwise taken, and keeps it.
    pub(super) async fn filter_taken(&mut self, rcpt: RcptTo, taken: TakenRcpt) -> Result<(), MilterRefusal> {
        let Some(milters) = &mut self.milters else { return Ok(()) };
        let is_local = taken.class != AddressClass::Relay;
        milters.session.chain().await.rcpt(RcptFacts { rcpt: &rcpt, is_local }).await?;
        milters.taken.push(taken);
        Ok(())
    }

    /// Edits the header fields as rules require. Also removes authentication results that a client claims are ours (RFC
    /// 8601 section 5); our own fields before the message stay.
    pub(super) async fn edit_fields(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        Received { end, own_fields }: &mut Received<'_>,
        is_forged: bool,
    ) -> Result<(), Reply> {
        let (edits, id) = (take(&mut self.wishes.edits), &settings.config.authserv_id);
        let size_max = settings.config.message_size_bytes_max;
        let mut octets = Octets::new(core, self, take(&mut end.last), size_max);
        let mut has_edited = vec![false; edits.len()];
        let edit = |name: &[u8], value: &[u8]| {
            if is_forged && claims(id, name, value) {
                return Edit::Remove;
            }
            // The first edit that applies to a field counts.
            let mut all = edits.iter().map(|edit| edit.of(name, value)).enumerate();
            let Some((at, edit)) = all.find(|(_, edit)| *edit != Edit::None) else { return Edit::None };
            if edit.is_same(value) {
                return Edit::None;
            }
            has_edited[at] = true;
            edit
        };
        let result = edit_fields(&mut octets, *own_fields, size_max, edit).await;
        octets.forget();
        end.last = octets.last;
        if let Some(new) = result? {
            **end = new;
        }
        for edit in edits.iter().zip(has_edited).filter_map(|(edit, is_one)| is_one.then_some(edit)) {
            let remark = ActionRemark::Edited { field: edit.field().into(), is_removal: edit.is_removal() };
            self.wishes.remark(remark, &RemarkRecipients::all());
        }
        Ok(())
    }

    /// Converts the message to the transfer encodings that rules require.
    pub(super) async fn recode(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        target: RecodeTarget,
        Received { end, own_fields }: &mut Received<'_>,
    ) -> Result<(), Reply> {
        let size_max = settings.config.message_size_bytes_max;
        let mut octets = Octets::new(core, self, take(&mut end.last), size_max);
        let result = recoded(&mut octets, *own_fields, size_max, target).await;
        octets.forget();
        let last = octets.last;
        match result? {
            // Octets not written yet are in the new last piece.
            RecodeResult::New { end: new, stayed } => {
                **end = EndOfData { last, ..new };
                self.wishes.remark(ActionRemark::Recoded { to: target.name(), stayed }, &RemarkRecipients::all());
            }
            RecodeResult::Same { stayed } => {
                end.last = last;
                if stayed > 0 {
                    self.wishes
                        .remark(ActionRemark::StaysEncoded { to: target.name(), stayed }, &RemarkRecipients::all());
                }
            }
            RecodeResult::Cannot(why) => {
                end.last = last;
                let (message, from, to) = (self.id, self.mail.path.as_str(), target.name());
                tracing::warn!(%message, from, "not re-encoded to {to}: {why}");
            }
        }
        Ok(())
    }

    /// Applies the rules on authentication results, which are ours and those that milters have written into the header.
    pub(super) async fn apply_auth_rules(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        Received { end, .. }: &mut Received<'_>,
        size: u64,
    ) -> Result<(), Reply> {
        let size_max = settings.config.message_size_bytes_max;
        let mut results = AuthFieldResults::new(&settings.config.authserv_id);
        let mut octets = Octets::new(core, self, take(&mut end.last), size_max);
        let read = each_field(&mut octets, |name, value| results.field(name, value));
        end.last = octets.last;
        read?;
        if let Some(value) = &self.authentication_results {
            results.field(FIELD.as_bytes(), value.as_bytes());
        }
        self.waiting.match_auth(&settings.rules, &results);
        self.ask_services(settings, size, true).await;
        if let Some(said) = self.waiting.finish_with_auth(&settings.rules) {
            self.take_said(settings, said)?;
        }
        Ok(())
    }

    /// Shows a complete message to the milters and applies their changes.
    pub(super) async fn filter(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        Received { end, own_fields }: &mut Received<'_>,
    ) -> Result<(), Reply> {
        let Some(mut milters) = self.milters.take() else { return Ok(()) };
        let size_max = settings.config.message_size_bytes_max;
        let mut octets = Octets::new(core, self, take(&mut end.last), size_max);
        let miltered = milters.session.chain().await.message(&mut octets, *own_fields, size_max).await;
        octets.forget();
        end.last = octets.last;
        let result = match miltered {
            Ok(miltered) => self.change(core, settings, &mut milters, miltered, end).await,
            Err(refusal) => {
                self.why_refused = refusal.by;
                Err(refusal.reply)
            }
        };
        self.milters = Some(milters);
        result
    }

    /// Applies the milters' changes.
    async fn change(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        milters: &mut MilterTransaction,
        miltered: MilteredMessage,
        end: &mut EndOfData,
    ) -> Result<(), Reply> {
        if let Some(by) = miltered.discard {
            self.wishes.discard(ActionRemark::Discarded { by }, &RemarkRecipients::all());
            return Ok(());
        }
        if let Some(new) = miltered.end {
            *end = new;
            self.check(core, settings, &end.facts)?;
        }
        milters.words = miltered.words;
        if let Some(who) = miltered.envelope.quarantine {
            self.quarantine.get_or_insert(who.into());
        }
        if let Some(sender) = miltered.envelope.sender {
            self.given_sender.get_or_insert_with(|| self.mail.path.as_str().to_owned());
            self.sender = Key::new(sender.as_str());
            self.mail.path = sender;
        }
        let added = self.remove_recipients(milters, miltered.envelope.recipients);
        let added = added.into_iter().filter(|rcpt| !milters.taken.iter().any(|taken| taken.named == rcpt.address));
        let is_refused = self.add_recipients(core, settings, added.collect(), &end.facts).await?;
        self.apply_content_rules(settings)?;
        // A milter that replaces recipients by none has a fault that can be repaired.
        if self.rcpts.named() == 0 && is_refused {
            return Err(Reply::fixed(451, Enhanced::new(4, 3, 5), "Server configuration error"));
        }
        if self.rcpts.named() == 0 {
            self.nobody_is_left();
        }
        Ok(())
    }

    /// Removes the recipients that milters remove; returns those that they add.
    fn remove_recipients(&mut self, milters: &mut MilterTransaction, changes: Vec<RecipientChange>) -> Vec<RcptTo> {
        let mut added: Vec<RcptTo> = Vec::new();
        let before = milters.taken.len();
        for change in changes {
            match change {
                RecipientChange::Add(rcpt) => added.push(rcpt),
                RecipientChange::Delete(RcptTo { address: gone, .. }) => {
                    let is_gone = |address: &Address| address.as_str().eq_ignore_ascii_case(gone.as_str());
                    milters.taken.retain(|taken| !is_gone(&taken.named) && !is_gone(&taken.address));
                    added.retain(|rcpt| !is_gone(&rcpt.address));
                }
            }
        }
        if milters.taken.len() < before {
            // Rules on the content may have given them other next hops, or keep it from them.
            let now =
                |(to, now): (&Address, &mut AcceptedRcpt)| (to.clone(), (now.hop.clone(), now.quarantine.clone()));
            let said: HashMap<_, _> = self.rcpts.named_mut().map(now).collect();
            self.rcpts.forget_named();
            for TakenRcpt { address, mut accepted, class, why, .. } in take(&mut milters.taken) {
                if let Some((hop, quarantine)) = said.get(&address) {
                    (accepted.hop, accepted.quarantine) = (hop.clone(), quarantine.clone());
                }
                self.rcpts.add_by(address, accepted, class, why);
            }
        }
        added
    }

    /// Accepts the recipients that milters add. Returns whether one was refused permanently.
    async fn add_recipients(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        added: Vec<RcptTo>,
        facts: &HeaderFacts,
    ) -> Result<bool, Reply> {
        let speaker = Speaker {
            client: self.client,
            name: ClientName::Unknown,
            helo: "",
            may_relay: true,
            proof: ClientProof::None,
            session: None,
            stranger: Stranger::UNKNOWN,
        };
        let mut is_refused = false;
        let context = RcptContext { core, settings, speaker, content: Some(facts) };
        for rcpt in added {
            if !self.rcpts.has(&rcpt.address) {
                // One that is refused for good is in the log; the others get their mail.
                let reply = self.answer_rcpt(context, rcpt).await;
                if reply.is_temporary() {
                    return Err(reply);
                }
                is_refused |= !reply.is_success();
            }
        }
        Ok(is_refused)
    }

    /// Handles a message whose named recipients were all removed by milters. Copies and redirects by rules are
    /// delivered all the same.
    fn nobody_is_left(&mut self) {
        let remark = ActionRemark::RemovedByMilters;
        if self.rcpts.has_copies() || !self.wishes.bcc.is_empty() || self.wishes.redirect.is_some() {
            self.wishes.remark(remark, &RemarkRecipients::all());
        } else {
            self.wishes.discard(remark, &RemarkRecipients::all());
        }
    }
}

/// The content of a complete message: pieces in the journal, and the last one.
struct Octets<'t> {
    core: &'t Arc<Core>,
    transaction: &'t mut Transaction,
    last: Vec<u8>,
    /// New pieces are being written; `before` has those that are read.
    is_rewriting: bool,
    before: Option<Pieces>,
    size_max: u64,
}

impl<'t> Octets<'t> {
    fn new(core: &'t Arc<Core>, transaction: &'t mut Transaction, last: Vec<u8>, size_max: u64) -> Octets<'t> {
        Octets { core, transaction, last, is_rewriting: false, before: None, size_max }
    }
}

impl Content for Octets<'_> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let pieces = if self.is_rewriting { self.before.as_ref() } else { self.transaction.pieces.as_ref() };
        let stored = pieces.map_or(0, |pieces| pieces.stored);
        if let Some(Pieces { content, .. }) = pieces.filter(|_| at < stored) {
            let len = buffer.len().min(usize::try_from(stored - at).unwrap_or(usize::MAX));
            return match self.core.reader.read_begun(content.0, at, &mut buffer[..len])? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                read => Ok(read),
            };
        }
        let rest = usize::try_from(at - stored).ok().and_then(|at| self.last.get(at..)).unwrap_or_default();
        let len = buffer.len().min(rest.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Reply> {
        self.transaction.hold(self.core, (self.last.len() + bytes) as u64)
    }

    async fn write(&mut self, piece: Vec<u8>) -> Result<(), Reply> {
        if !self.is_rewriting {
            self.is_rewriting = true;
            self.before = self.transaction.pieces.take();
            if let Some(memory) = &mut self.transaction.memory {
                self.core.memory.rewritten(memory);
            }
        }
        self.transaction.store_piece(self.core, piece, self.size_max).await;
        self.transaction.failed.map_or(Ok(()), |refused| Err(refused.reply()))
    }

    fn replace(&mut self, last: Vec<u8>) {
        if !std::mem::take(&mut self.is_rewriting) {
            self.transaction.pieces = None;
        }
        self.before = None;
        self.last = last;
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.is_rewriting) {
            self.transaction.pieces = self.before.take();
        }
    }
}
