//! Sends a copy of a quarantined message to one other address for inspection.
//!
//! Promise: the message itself stays in the quarantine for all its recipients. The copy is sent from the null sender
//! with `Resent-` fields (RFC 5322 section 3.6.6): no rule or milter is applied to it, and it never bounces. The
//! request is in the journal before the copy exists. Memory is bounded, whatever the size. REQUIRETLS stays in force: a
//! message without a sender is normally exempt (RFC 8689 section 5), but this is somebody's mail. If no host supports
//! it, the log says so.
//!
//! Failure: errors in reading or storing are reported, and nothing is sent.

use std::io;
use std::sync::Arc;

use serde_json::json;
use stentor_control::problem::Problem;
use stentor_control::{ActionResult, ControlReply, ErrorCode, Requester};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::envelope::{EnvelopeRcpt, NewEnvelope};
use stentor_core::intake::{IntakeRefusal, Job};
use stentor_core::memory::PIECE_BYTES;
use stentor_core::own::{MessageIds, hand_in_last};
use stentor_core::stored_message::StoredMessage;
use stentor_core::verb::QueueChange;
use stentor_mail::address::Address;
use stentor_mail::copy_request::StoredPrefix;
use stentor_mail::dsn::format_date;
use stentor_queue::ids::{ContentId, MessageId};
use tokio::sync::oneshot;

use crate::verbs::who;

/// Sends the copy.
pub async fn copy(core: &Arc<Core>, id: MessageId, to: &str, reason: Option<String>, peer: &Requester) -> ControlReply {
    match carry_out(core, id, to, reason, &who(peer)).await {
        Ok(copy) => ControlReply::Counted(Box::new(ActionResult {
            text: format!("release: a copy of {id} was queued to {to} as {copy}; {id} stays in the quarantine"),
            count: Some(1),
            messages: Some(1),
            in_flight: Some(0),
            unchanged: Some(0),
            dry_run: Some(false),
            ..ActionResult::default()
        })),
        Err(problem) => ControlReply::Error(problem),
    }
}

async fn carry_out(
    core: &Arc<Core>,
    id: MessageId,
    to: &str,
    reason: Option<String>,
    who: &str,
) -> Result<MessageId, Problem> {
    let people = people(core, to).await?;
    let found = core.with(|hub, _| {
        let message = hub.store.in_quarantine(id)?;
        let shape = (message.eight_bit(), message.smtputf8(), message.message_id().to_owned());
        Some((
            StoredPrefix::split(message.prefix()).sent.to_vec(),
            StoredMessage::of(message),
            shape,
            message.envelope().require_tls,
        ))
    });
    let Some((prefix, from, (eight_bit, smtputf8, message_id), require_tls)) = found else {
        return Err(Problem::new(ErrorCode::NotFound, format!("no message {id} is in the quarantine")));
    };
    let copy = core.next_message_id();
    let mut detail = json!({"id": id.to_string(), "to": to, "as": copy.to_string()});
    if let Some(reason) = reason {
        detail["reason"] = reason.into();
    }
    let failed = |what: &dyn std::fmt::Display| Problem::new(ErrorCode::Failed, format!("could not copy {id}: {what}"));
    let audit =
        Audit { at: core.clock.now(), who: who.to_owned(), verb: "quarantine_copy", detail: detail.to_string() };
    // The audit record is separate: the copy is an ordinary message of ours.
    let recorded = core.intake.verb(audit, QueueChange::TryNow { recipients: Vec::new() }).await;
    recorded.map_err(|refused| failed(&refused))?;
    let (content, last, size) = put(core, from).await.map_err(|error| failed(&error))?;
    let own = NewEnvelope::own(people, message_id, "copy from the quarantine");
    let smtputf8 = smtputf8 || own.smtputf8;
    let prefix = [resent(core, copy, to).into_bytes(), prefix].concat();
    let envelope = NewEnvelope { prefix, eight_bit, smtputf8, ..own };
    let envelope = if require_tls { envelope.held_to_tls() } else { envelope };
    hand_in_last(core, MessageIds { message: copy, content }, last, size, envelope, Vec::new())
        .await
        .map_err(|refused| failed(&refused))?;
    tracing::info!(who, message = %id, to, %copy, "quarantine: copy sent to another address");
    Ok(copy)
}

/// The recipients of mail to the address.
async fn people(core: &Arc<Core>, to: &str) -> Result<Vec<EnvelopeRcpt>, Problem> {
    let wrong = |what: &str| Problem::new(ErrorCode::BadRequest, format!("to: {to:?} {what}"));
    let address =
        Address::parse(to.as_bytes(), true).map_err(|error| wrong(&format!("is not a valid mail address: {error}")))?;
    let (settings, now) = (core.settings(), core.clock.now());
    let found = settings.readers_of(&address, now).await;
    let found = found.map_err(|refused| Problem::new(ErrorCode::Failed, format!("to: {to:?}: {refused}")))?;
    if !found.lists.is_empty() {
        return Err(wrong("is a list: name recipients"));
    }
    if found.people.is_empty() {
        return Err(wrong("does not exist here"));
    }
    Ok(found.people.into_iter().map(|reader| reader.to).collect())
}

fn resent(core: &Core, copy: MessageId, to: &str) -> String {
    let hostname = &core.settings().config.hostname;
    format!(
        "Resent-Date: {}\r\nResent-From: Mail quarantine <MAILER-DAEMON@{hostname}>\r\nResent-To: <{to}>\r\n\
         Resent-Message-ID: <{copy}.quarantine@{hostname}>\r\n",
        format_date(core.clock.now())
    )
}

/// Stores the content again except its last piece; returns the new id, that piece, and the total octets.
async fn put(core: &Arc<Core>, from: StoredMessage) -> io::Result<(ContentId, Vec<u8>, u64)> {
    let content = core.next_content_id();
    let (mut last, mut size) = (Vec::new(), 0);
    let stored = loop {
        let piece = match read(core, from, size).await {
            Ok(piece) => piece,
            Err(error) => break Err(error),
        };
        if piece.is_empty() {
            break Ok(());
        }
        size += piece.len() as u64;
        let bytes = std::mem::replace(&mut last, piece);
        if bytes.is_empty() {
            continue;
        }
        let (answer, ticket) = oneshot::channel();
        core.intake.push(Job::Piece { content, bytes, answer });
        if let Err(refused) = ticket.await.unwrap_or(Err(IntakeRefusal::Stopping)) {
            break Err(io::Error::other(refused.to_string()));
        }
    };
    if stored.is_err() && size > last.len() as u64 {
        core.intake.push(Job::Drop { content });
    }
    stored.map(|()| (content, last, size))
}

/// Reads a piece on the blocking pool; only the last one is incomplete.
async fn read(core: &Arc<Core>, from: StoredMessage, at: u64) -> io::Result<Vec<u8>> {
    let core = core.clone();
    let work = move || {
        let (mut piece, mut filled) = (vec![0; PIECE_BYTES as usize], 0);
        while filled < piece.len() {
            match from.read_at(&core.reader, at + filled as u64, &mut piece[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        piece.truncate(filled);
        Ok(piece)
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
