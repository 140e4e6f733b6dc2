//! Quarantined mail: lists, one message in detail, release, deletion and expiry.
//!
//! Promise: as for all verbs ([`crate::verbs`]), each slice is one batch of the journal with its author; the queue's
//! lock is held for a few thousand messages at a time; contents are read on the blocking pool. A message is released to
//! each of its recipients at most once, even with concurrent requests ([`Hub::claim_from_quarantine`]).

mod copy;
mod digest;
mod expiry;
mod link;
mod own;
mod preview;

use std::sync::Arc;

use serde_json::{Map, Value};
use stentor_control::format::plural;
use stentor_control::problem::Problem;
use stentor_control::selection::AsOf;
use stentor_control::{
    ActionResult, ControlReply, ErrorCode, QuarantineList, QuarantineOptions, QuarantinedMessage, QuarantinedView,
    Requester, Selection, Verb,
};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::intake::IntakeRefusal;
use stentor_core::stored_message::StoredMessage;
use stentor_core::verb::{QueueChange, ReleasedPart};
use stentor_queue::event::Fate;
use stentor_queue::ids::{AddressId, MessageId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;

use crate::verbs::{MailTotals, RecipientFilter, who};

pub use copy::copy;
pub use digest::send_when_due;
pub use expiry::{expire, sweep};
pub use link::{LinkSubject, Links};
pub use own::{OwnCopy, OwnView, look_at_own, release_own};

/// Messages examined per hold of the lock.
const STEPS_MAX: usize = 2_048;
/// Maximum recipients per batch.
const SLICE_RECIPIENTS_MAX: usize = 1_000;
/// Maximum recipients named per message.
const RECIPIENTS_SHOWN_MAX: usize = 20;

/// Selected recipients in the quarantine.
struct QuarantinedRecipients {
    id: MessageId,
    ids: IdSet,
    bytes_max: usize,
}

/// A walk through the quarantine, oldest first.
struct Walk {
    chosen: RecipientFilter,
    ids: Option<Vec<MessageId>>,
    after: Option<MessageId>,
}

impl Walk {
    fn begin(hub: &Hub, selection: &Selection, after: Option<MessageId>, now: Ms) -> Result<Walk, Problem> {
        let ids = (!selection.ids.is_empty()).then(|| {
            let mut ids = selection.ids.clone();
            ids.extend(selection.ids.iter().flat_map(|id| hub.store.withheld_archive_copies(*id)));
            ids.sort_unstable();
            ids.dedup();
            ids
        });
        Ok(Walk { chosen: RecipientFilter::new(hub, selection, None, now)?, ids, after })
    }

    /// The next selected messages, of about this many recipients and octets; `true` with the last.
    fn step(&mut self, hub: &Hub, mut room: usize, mut bytes: usize) -> (Vec<QuarantinedRecipients>, bool) {
        let mut found = Vec::new();
        for _ in 0..STEPS_MAX {
            let next = match &self.ids {
                None => hub.store.quarantined(self.after).next(),
                Some(ids) => {
                    let behind = ids.partition_point(|id| self.after.is_some_and(|after| *id <= after));
                    ids[behind..].iter().find_map(|id| hub.store.in_quarantine(*id))
                }
            };
            let Some(message) = next else { return (found, true) };
            let ids = if self.chosen.takes(message) { self.chosen.of(hub, message.pending()) } else { IdSet::new() };
            let (len, bytes_max) = (ids.len(), message.slice_bytes_max());
            if !found.is_empty() && (len > room || bytes_max > bytes) {
                return (found, false);
            }
            self.after = Some(message.id());
            if len > 0 {
                (room, bytes) = (room.saturating_sub(len), bytes.saturating_sub(bytes_max));
                found.push(QuarantinedRecipients { id: message.id(), ids, bytes_max });
            }
        }
        (found, false)
    }
}

/// Releases or deletes messages, or counts what it would do.
pub async fn act(
    core: &Arc<Core>,
    verb: Verb,
    selection: &Selection,
    dry_run: bool,
    reason: Option<String>,
    peer: &Requester,
) -> ControlReply {
    carry_out(core, verb, selection, dry_run, reason, &who(peer)).await
}

/// As [`act`], in the name of `who`.
pub async fn carry_out(
    core: &Arc<Core>,
    verb: Verb,
    selection: &Selection,
    dry_run: bool,
    reason: Option<String>,
    who: &str,
) -> ControlReply {
    let mut detail = selection.to_json();
    detail.remove("as_of");
    detail.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
    let as_of = selection.as_of.unwrap_or_else(|| AsOf { next: 0, at: core.clock.now() });
    // Messages that come meanwhile are excluded.
    let selection = Selection { as_of: Some(as_of), ..selection.clone() };
    let mut walk = match core.with(|hub, now| Walk::begin(hub, &selection, None, now)) {
        Ok(walk) => walk,
        Err(problem) => return ControlReply::Error(problem),
    };
    let name = if verb == Verb::QuarantineRelease { "release" } else { "delete" };
    let mut sum = MailTotals::default();
    let bytes_max = core.intake.batch_bytes_max() / 4;
    loop {
        let (found, is_last) = core.with(|hub, _| walk.step(hub, SLICE_RECIPIENTS_MAX, bytes_max));
        let totals = MailTotals {
            messages: found.len() as u64,
            recipients: found.iter().map(|found| found.ids.len() as u64).sum(),
        };
        if !dry_run
            && !found.is_empty()
            && let Err(refused) = commit(core, verb, found, detail.clone(), totals, who).await
        {
            let text = format!("{name}: {refused}; stopped after {}", plural(sum.recipients, "recipient"));
            return ControlReply::error(ErrorCode::Failed, text);
        }
        sum.add(totals);
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    let MailTotals { messages, recipients } = sum;
    let would = if dry_run { "would " } else { "" };
    let what = format!("{} of {}", plural(recipients, "recipient"), plural(messages, "message"));
    if !dry_run {
        tracing::info!(who, verb = verb.name(), messages, recipients, "operator");
    }
    ControlReply::Counted(Box::new(ActionResult {
        text: if recipients == 0 {
            format!("{would}{name} nothing: nothing in the quarantine matches")
        } else {
            format!("{would}{name}: {what}")
        },
        count: Some(recipients),
        messages: Some(messages),
        in_flight: Some(0),
        unchanged: Some(0),
        kept: None,
        dry_run: Some(dry_run),
        as_of: dry_run.then_some(as_of),
    }))
}

async fn commit(
    core: &Arc<Core>,
    verb: Verb,
    found: Vec<QuarantinedRecipients>,
    mut detail: Map<String, Value>,
    totals: MailTotals,
    who: &str,
) -> Result<(), IntakeRefusal> {
    detail.insert("messages".to_owned(), totals.messages.into());
    detail.insert("recipients".to_owned(), totals.recipients.into());
    let detail = Value::Object(detail).to_string();
    let audit = Audit { at: core.clock.now(), who: who.to_owned(), verb: verb.name(), detail };
    let change = if verb == Verb::QuarantineRelease {
        QueueChange::ReleaseQuarantined { parts: releases(core, found).await }
    } else {
        let recipients = found.into_iter().map(|found| (found.id, found.ids)).collect();
        QueueChange::EndQuarantine { fate: Fate::Removed, recipients }
    };
    core.intake.verb(audit, change).await
}

/// Prepares the new messages that a release creates.
async fn releases(core: &Arc<Core>, found: Vec<QuarantinedRecipients>) -> Vec<ReleasedPart> {
    let (message_ids, settings) = (message_ids(core, &found).await, core.settings());
    let keep_until = |id| {
        core.with(|hub, now| {
            let list = hub.store.in_quarantine(id).and_then(Message::list)?;
            Some(now + settings.keep_posts_ms(list)?)
        })
    };
    let released = |(QuarantinedRecipients { id: from, ids, bytes_max }, message_id)| ReleasedPart {
        keep_until: keep_until(from),
        from,
        to: core.next_message_id(),
        ids,
        bytes_max,
        message_id,
    };
    found.into_iter().zip(message_ids).map(released).collect()
}

/// The messages' Message-IDs, if they are only in the contents; empty otherwise, or if one cannot be read.
async fn message_ids(core: &Arc<Core>, found: &[QuarantinedRecipients]) -> Vec<String> {
    let place = |hub: &Hub, id| {
        let message = hub.store.in_quarantine(id)?;
        Some((message.content(), message.envelope().message_id_at?))
    };
    let places: Vec<_> = core.with(|hub, _| found.iter().map(|found| place(hub, found.id)).collect());
    let (len, core) = (places.len(), core.clone());
    let read = move || {
        let text = |place: Option<_>| place.map_or_else(String::new, |(content, at)| core.message_id(content, at));
        places.into_iter().map(text).collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| vec![String::new(); len])
}

/// Where a row's content is.
struct Place {
    prefix: Vec<u8>,
    stored: StoredMessage,
}

impl Place {
    fn of(message: &Message) -> Place {
        Place { prefix: message.prefix().to_vec(), stored: StoredMessage::of(message) }
    }
}

/// Lists the quarantine, with data from the headers.
pub async fn list(core: &Arc<Core>, options: &QuarantineOptions) -> ControlReply {
    let expire_ms = core.settings().config.quarantine.expire_ms;
    let mut walk = match core.with(|hub, now| Walk::begin(hub, &options.selection, options.after, now)) {
        Ok(walk) => walk,
        Err(problem) => return ControlReply::Error(problem),
    };
    let rows_max = options.rows_max as usize;
    let (mut rows, mut places) = (Vec::new(), Vec::new());
    let mut is_last = false;
    while !is_last && rows.len() < rows_max {
        is_last = core.with(|hub, _| {
            let (found, is_last) = walk.step(hub, rows_max - rows.len(), usize::MAX);
            let fits = found.len().min(rows_max - rows.len());
            for QuarantinedRecipients { id, ids, .. } in &found[..fits] {
                let Some(message) = hub.store.in_quarantine(*id) else { continue };
                rows.push(view(hub, message, ids, expire_ms));
                places.push(Place::of(message));
            }
            walk.after = if fits < found.len() { found[..fits].last().map(|found| found.id) } else { walk.after };
            is_last && fits == found.len()
        });
        tokio::task::yield_now().await;
    }
    let next = rows.last().filter(|_| !is_last).map(|row: &QuarantinedView| row.id.clone());
    for (row, place) in rows.iter_mut().zip(places) {
        // If the content is gone by now, the row lacks its data.
        if let Ok(seen) = seen(core, place, true).await {
            (row.from, row.subject) = (seen.field("from"), seen.field("subject"));
        }
    }
    let hostname = core.settings().config.hostname.clone();
    let (messages, recipients, octets, now) = core.with(|hub, now| {
        let store = &hub.store;
        (store.quarantined_len() as u64, store.totals().fates.quarantined, store.quarantined_octets(), now)
    });
    ControlReply::Quarantine(Box::new(QuarantineList { hostname, now, messages, recipients, octets, rows, next }))
}

/// Shows one decoded message and records the access.
pub async fn show(core: &Arc<Core>, id: MessageId, peer: &Requester) -> ControlReply {
    match message(core, id).await {
        Ok(view) => {
            stentor_core::log::audit_note(core, "quarantine_show", &who(peer), &id.to_string());
            ControlReply::Quarantined(Box::new(view))
        }
        Err(problem) => ControlReply::Error(problem),
    }
}

/// As [`show`], for a page that checks permission itself.
///
/// # Errors
/// It is not in the quarantine, or cannot be read.
pub async fn message(core: &Arc<Core>, id: MessageId) -> Result<QuarantinedMessage, Problem> {
    let expire_ms = core.settings().config.quarantine.expire_ms;
    let found = core.with(|hub, now| {
        let message = hub.store.in_quarantine(id)?;
        let place = Place::of(message);
        Some((view(hub, message, message.pending(), expire_ms), place, now))
    });
    let Some((mut message, place, now)) = found else {
        return Err(Problem::new(ErrorCode::NotFound, format!("no message {id} is in the quarantine")));
    };
    let seen = seen(core, place, false).await.map_err(|error| {
        Problem::new(
            ErrorCode::Failed,
            format!(
                "message {id} cannot be read (it may have left the quarantine): \
            {error}"
            ),
        )
    })?;
    (message.from, message.subject) = (seen.field("from"), seen.field("subject"));
    let limit = seen.limit.map(str::to_owned);
    Ok(QuarantinedMessage { message, now, fields: seen.fields, text: seen.text, attachments: seen.files, limit })
}

fn view(hub: &Hub, message: &Message, ids: &IdSet, expire_ms: Ms) -> QuarantinedView {
    let shown = ids.iter().take(RECIPIENTS_SHOWN_MAX);
    QuarantinedView {
        id: message.id().to_string(),
        accepted: message.accepted(),
        expires: message.accepted().saturating_add(expire_ms),
        sender: message.sender().to_owned(),
        list: message.list().map(str::to_owned),
        origin: message.origin().to_owned(),
        size: message.size(),
        by: message.quarantined_by().to_owned(),
        recipients: shown.map(|id| hub.store.book.text(AddressId(id)).to_owned()).collect(),
        recipients_total: ids.len() as u64,
        from: String::new(),
        subject: String::new(),
    }
}

/// Reads and decodes a message on the blocking pool.
async fn seen(core: &Arc<Core>, place: Place, header_only: bool) -> std::io::Result<preview::DecodedMessage> {
    let core = core.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let mut read = |at, piece: &mut [u8]| place.stored.read_at(&core.reader, at, piece);
        preview::look(&place.prefix, header_only, &mut read)
    });
    looked.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
