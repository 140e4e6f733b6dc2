//! `stentor post resend`: sends kept posts again, to those that missed them and are still subscribed.
//!
//! Promise: a resend and the end of its recipients' absence are one batch, so each recipient that missed a post gets it
//! by at most one resend at a time, also with concurrent requests ([`Hub::claim_missed`]) and after a kill. Nobody who
//! has the post or waits for it is among them. Left out, and still counted as missing it: addresses that are no longer
//! subscribed, suspended subscribers, and suppressed addresses. A copy for an archive is not sent again.
//!
//! Failure: without the content, or after a refused batch, nothing is sent.

use std::sync::Arc;
use std::time::Duration;

use stentor_control::format::plural;
use stentor_control::problem::Problem;
use stentor_control::{ActionResult, ControlReply, ErrorCode, Requester, Selection};
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::intake::IntakeRefusal;
use stentor_core::resend::ResendPart;
use stentor_core::settings::Settings;
use stentor_core::verb::QueueChange;
use stentor_core::{Core, suppression};
use stentor_queue::event::MessageIdAt;
use stentor_queue::ids::{AddressId, ContentId, MessageId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_queue::store::{KeptPost, RESENDS_MAX};

use super::{not_kept, posts_of};
use crate::verbs::who;

/// Recipients examined per hold of the lock.
const STEP: usize = 512;
/// Pause before a resend whose batch lacked some outcomes is repeated, and how often it is.
const PAUSE: Duration = Duration::from_millis(20);
const ATTEMPTS_MAX: usize = 250;

/// A post to one list.
struct ResendPlan {
    post: MessageId,
    list: String,
    content: ContentId,
    message_id_at: Option<MessageIdAt>,
    /// Recipients that missed it; after [`choose`] those that get it.
    ids: IdSet,
    /// Those that missed it because an operator removed them.
    dropped: IdSet,
    /// For how long the list keeps a post from a resend on; `None`: no longer than before.
    keep_ms: Option<Ms>,
    /// Until when the post is kept now.
    until: Ms,
    bytes_max: usize,
}

impl ResendPlan {
    fn of(post: &KeptPost, settings: &Settings) -> ResendPlan {
        let (message, missed) = (post.message(), post.missed());
        ResendPlan {
            post: message.id(),
            list: message.list().unwrap_or_default().to_owned(),
            content: message.content(),
            message_id_at: message.envelope().message_id_at,
            ids: missed.clone(),
            dropped: post.facts().dropped.clone(),
            keep_ms: message.list().and_then(|list| settings.keep_posts_ms(list)),
            until: post.facts().until,
            bytes_max: message.slice_bytes_max() + missed.part_bytes_max(),
        }
    }
}

/// Recipients that are left out, by reason.
#[derive(Default)]
struct Exclusions {
    unsubscribed: u64,
    suspended: u64,
    suppressed: u64,
}

impl Exclusions {
    fn sum(&self) -> u64 {
        self.unsubscribed + self.suspended + self.suppressed
    }

    fn words(&self) -> String {
        let reasons = [
            (self.unsubscribed, "no longer subscribed"),
            (self.suspended, "suspended"),
            (self.suppressed, "suppressed"),
        ];
        let reasons = reasons.iter().filter(|(count, _)| *count > 0);
        let reasons: Vec<String> = reasons.map(|(count, reason)| format!("{count} {reason}")).collect();
        if reasons.is_empty() { String::new() } else { format!("; left out: {}", reasons.join(", ")) }
    }
}

/// Sends the selected posts again, or counts what it would do.
pub async fn resend(
    core: &Arc<Core>,
    selection: &Selection,
    dry_run: bool,
    reason: Option<String>,
    peer: &Requester,
) -> ControlReply {
    match resend_all(core, selection, dry_run, reason, &who(peer)).await {
        Ok(result) => ControlReply::Counted(Box::new(result)),
        Err(problem) => ControlReply::Error(problem),
    }
}

async fn resend_all(
    core: &Arc<Core>,
    selection: &Selection,
    dry_run: bool,
    reason: Option<String>,
    who: &str,
) -> Result<ActionResult, Problem> {
    let (mut excluded, mut messages, mut recipients, mut dropped) = (Exclusions::default(), 0, 0, 0);
    for mut plan in posts(core, &selection.ids)? {
        refresh_list(core, &plan).await?;
        choose(core, &mut plan, &mut excluded).await;
        if plan.ids.is_empty() {
            continue;
        }
        check_content(core, &plan)?;
        let count = plan.ids.len() as u64;
        let sent = if dry_run { count } else { commit(core, &plan, reason.as_deref(), who).await? };
        recipients += sent;
        messages += 1;
        // Others may have sent it to some of them meanwhile.
        dropped += (plan.dropped.intersection_len(&plan.ids) as u64).min(sent);
    }
    if !dry_run {
        tracing::info!(who, verb = "resend", messages, recipients, "operator");
    }
    let would = if dry_run { "would " } else { "" };
    let text = if recipients == 0 {
        format!("{would}resend nothing: nobody to send it to{}", excluded.words())
    } else {
        let what = format!("{} of {}", plural(recipients, "recipient"), plural(messages, "post"));
        let dropped = match dropped {
            0 => String::new(),
            _ => format!("; {dropped} of them were removed by an operator"),
        };
        format!("{would}resend: {what}{dropped}{}", excluded.words())
    };
    Ok(ActionResult {
        text,
        count: Some(recipients),
        messages: Some(messages),
        in_flight: Some(0),
        unchanged: Some(excluded.sum()),
        kept: None,
        dry_run: Some(dry_run),
        as_of: None,
    })
}

/// The kept posts of some messages, each with the others of the same content.
fn posts(core: &Arc<Core>, ids: &[MessageId]) -> Result<Vec<ResendPlan>, Problem> {
    let settings = core.settings();
    core.with(|hub, _| {
        let mut found: Vec<ResendPlan> = Vec::new();
        for id in ids {
            let posts = hub.store.post(*id).and_then(|post| posts_of(hub, post));
            for post in posts.ok_or_else(|| not_kept(*id))? {
                if post.facts().resends.len() >= RESENDS_MAX {
                    let text = format!("{id} was sent again {RESENDS_MAX} times already");
                    return Err(Problem::new(ErrorCode::Failed, text));
                }
                if found.iter().all(|known| known.post != post.message().id()) {
                    found.push(ResendPlan::of(post, &settings));
                }
            }
        }
        Ok(found)
    })
}

/// Reads the subscribers again if they have changed, as for a post.
async fn refresh_list(core: &Arc<Core>, plan: &ResendPlan) -> Result<(), Problem> {
    let Some(list) = core.settings().list(&plan.list).cloned() else { return Ok(()) };
    core.lists.refresh(core, list.name()).await.map_err(|reply| {
        let text = format!("subscribers of list {} cannot be read: {reply}; nothing was sent", plan.list);
        Problem::new(ErrorCode::Failed, text)
    })
}

/// Removes recipients that must not get the post.
async fn choose(core: &Arc<Core>, plan: &mut ResendPlan, excluded: &mut Exclusions) {
    let all: Vec<u32> = plan.ids.iter().collect();
    for some in all.chunks(STEP) {
        core.with(|hub, now| {
            let Some(post) = hub.store.post(plan.post) else { return };
            for id in some {
                let address = hub.store.book.text(AddressId(*id));
                let reason = if !is_subscribed(hub, &plan.list, address) {
                    &mut excluded.unsubscribed
                } else if hub.store.is_suspended(&format!("subscriber:{}:{address}", plan.list)) {
                    &mut excluded.suspended
                } else if suppression::is_suppressed(core, post.message(), address, now) {
                    &mut excluded.suppressed
                } else {
                    continue;
                };
                *reason += 1;
                plan.ids.remove(*id);
            }
        });
        tokio::task::yield_now().await;
    }
}

/// Whether an address is on a list now; its entry in the post may have a next hop of its own.
fn is_subscribed(hub: &Hub, list: &str, address: &str) -> bool {
    let id = hub.store.book.lookup(address);
    id.is_some_and(|id| hub.store.list(list).is_some_and(|list| list.ids.contains(id.0)))
}

/// A start with a version that does not know kept posts drops their contents.
fn check_content(core: &Core, plan: &ResendPlan) -> Result<(), Problem> {
    if core.reader.len(plan.content.0).is_some() {
        return Ok(());
    }
    let text = format!("the content of {} is no longer stored; nothing was sent", plan.post);
    Err(Problem::new(ErrorCode::Failed, text))
}

/// Sends one post again. Returns the number of recipients.
async fn commit(core: &Arc<Core>, plan: &ResendPlan, reason: Option<&str>, who: &str) -> Result<u64, Problem> {
    let failed = |refused: IntakeRefusal| {
        Problem::new(ErrorCode::Failed, format!("resend of {}: {refused}; nothing was sent", plan.post))
    };
    let message_id = message_id(core, plan).await;
    let mut detail = serde_json::Map::new();
    detail.insert("id".to_owned(), plan.post.to_string().into());
    detail.insert("recipients".to_owned(), plan.ids.len().into());
    detail.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
    let detail = serde_json::Value::Object(detail).to_string();
    for _ in 0..ATTEMPTS_MAX {
        let (to, at) = (core.next_message_id(), core.clock.now());
        let part = ResendPart {
            post: plan.post,
            to,
            ids: plan.ids.clone(),
            until: plan.keep_ms.map_or(plan.until, |keep_ms| plan.until.max(at + keep_ms)),
            bytes_max: plan.bytes_max,
            message_id: message_id.clone(),
        };
        let audit = Audit { at, who: who.to_owned(), verb: "resend", detail: detail.clone() };
        core.intake.verb(audit, QueueChange::Resend { parts: vec![part] }).await.map_err(failed)?;
        // Others may have resent it meanwhile, or its batch lacked some outcomes.
        let sent = core.with(|hub, _| {
            let post = hub.store.post(plan.post).filter(|post| post.missed().intersection_len(&plan.ids) > 0);
            let is_sent = hub.store.post(to).is_some_and(|post| post.message().id() == plan.post);
            let message = hub.store.no_of(to).and_then(|no| hub.store.message(no));
            match is_sent {
                // It may have ended meanwhile.
                true => Some(message.map_or(plan.ids.len() as u64, Message::total)),
                false if post.is_none() => Some(0),
                false => None,
            }
        });
        if let Some(sent) = sent {
            return Ok(sent);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let text = format!("resend of {}: outcomes are written too slowly; nothing was sent, try again", plan.post);
    Err(Problem::new(ErrorCode::Busy, text))
}

/// The Message-ID for the log, if it is only in the content.
async fn message_id(core: &Arc<Core>, plan: &ResendPlan) -> String {
    let Some(at) = plan.message_id_at else { return String::new() };
    let (core, content) = (core.clone(), plan.content);
    tokio::task::spawn_blocking(move || core.message_id(content, at)).await.unwrap_or_default()
}
