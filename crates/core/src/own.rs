//! Submits mail of our own to the queue: DSNs, notices to owners and posters, digests.
//!
//! Promise: it is routed like a client's mail from its sender ([`super::next_hops`]). Mail of any size is submitted in
//! pieces, like a client's, so that no batch is too small for it. The stored pieces of a refused message are dropped
//! again.

use std::sync::Arc;

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_queue::ids::{ContentId, MessageId};
use tokio::sync::oneshot;

use super::Core;
use super::envelope::{AcceptanceFacts, EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use super::intake::{FateRecord, IntakeRefusal, Job, Submission};
use super::next_hops::route_own;
use crate::memory::PIECE_BYTES;

impl NewEnvelope {
    /// Builds a message from the null reverse-path, so that it is never bounced. `message_id` includes its brackets;
    /// `what` names its kind in the log.
    pub fn own(to: Vec<EnvelopeRcpt>, message_id: String, what: &'static str) -> NewEnvelope {
        NewEnvelope {
            sender: String::new(),
            class: Class::Ordinary,
            list: None,
            smtputf8: to.iter().any(|to| !to.address.is_ascii()),
            recipients: EnvelopeRecipients::Addresses(to),
            prefix: Vec::new(),
            eight_bit: false,
            ret: None,
            envid: None,
            origin: "local".to_owned(),
            message_id,
            // The message seldom waits for long, and its text is short.
            message_id_at: None,
            is_report: true,
            given_sender: None,
            held_by: None,
            require_tls: false,
            is_transactional: false,
            is_archive: false,
            is_quarantined: false,
            taken: AcceptanceFacts::local(what),
        }
    }
}

/// A text to people about their mail.
pub struct NoticeText<'a> {
    pub to: Vec<EnvelopeRcpt>,
    /// Addresses for the header, as the configuration or a poster gives them; `to` has the people and programs that
    /// these resolve to.
    pub named: Vec<Address>,
    pub subject: String,
    /// Its kind in the log, also part of its Message-ID.
    pub what: &'static str,
    pub word: &'static str,
    /// Text with CRLF line ends.
    pub text: &'a str,
}

impl NoticeText<'_> {
    /// Writes the header and makes the message durable.
    ///
    /// # Errors
    /// The message is not stored.
    pub async fn hand_in(self, core: &Core) -> Result<(), IntakeRefusal> {
        let ids = MessageIds::next(core);
        let settings = core.settings();
        let (hostname, date) = (&settings.config.hostname, format_date(core.clock.now()));
        let message_id = format!("<{}.{}@{hostname}>", ids.message, self.word);
        let names: Vec<String> = self.named.iter().map(|address| format!("<{address}>")).collect();
        let body = format!(
            "Date: {date}\r\nFrom: Mail Delivery System <MAILER-DAEMON@{hostname}>\r\nTo: {}\r\nSubject: {}\r\n\
             Message-ID: {message_id}\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{}",
            names.join(",\r\n "),
            self.subject,
            self.text,
        )
        .into_bytes();
        let envelope = NewEnvelope { eight_bit: !body.is_ascii(), ..NewEnvelope::own(self.to, message_id, self.what) };
        hand_in(core, ids, body, envelope, Vec::new()).await
    }
}

/// The ids of a new message and of its content.
#[derive(Clone, Copy)]
pub struct MessageIds {
    pub message: MessageId,
    pub content: ContentId,
}

impl MessageIds {
    pub fn next(core: &Core) -> MessageIds {
        MessageIds { message: core.next_message_id(), content: core.next_content_id() }
    }
}

/// Makes a message durable, together with the fates that it reports.
///
/// # Errors
/// The message is not stored, and no fate is recorded.
pub async fn hand_in(
    core: &Core,
    ids: MessageIds,
    body: Vec<u8>,
    envelope: NewEnvelope,
    fate_records: Vec<FateRecord>,
) -> Result<(), IntakeRefusal> {
    let (size, content) = (body.len() as u64, ids.content);
    let mut last = body;
    if size > PIECE_BYTES {
        let whole = std::mem::take(&mut last);
        let mut pieces = whole.chunks(PIECE_BYTES as usize);
        last = pieces.next_back().unwrap_or_default().to_vec();
        for piece in pieces {
            let (answer, ticket) = oneshot::channel();
            core.intake.push(Job::Piece { content, bytes: piece.to_vec(), answer });
            if let Err(refused) = ticket.await.unwrap_or(Err(IntakeRefusal::Stopping)) {
                core.intake.push(Job::Drop { content });
                return Err(refused);
            }
        }
    }
    hand_in_last(core, ids, last, size, envelope, fate_records).await
}

/// Makes a message durable whose earlier pieces are already in the journal: `last` is its last piece, `size` the octets
/// of all.
///
/// # Errors
/// The message is not stored, and no fate is recorded.
pub async fn hand_in_last(
    core: &Core,
    ids: MessageIds,
    last: Vec<u8>,
    size: u64,
    mut envelope: NewEnvelope,
    fate_records: Vec<FateRecord>,
) -> Result<(), IntakeRefusal> {
    route_own(&core.settings(), &mut envelope, core.clock.now()).await;
    let envelopes = vec![envelope];
    let MessageIds { message: first, content } = ids;
    let submission = Submission {
        first,
        content,
        last: Arc::new(last),
        size,
        merge_bytes: 0,
        envelopes,
        fate_records,
        assigned: None,
    };
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::Accept { submission, answer });
    ticket.await.unwrap_or(Err(IntakeRefusal::Stopping))
}
