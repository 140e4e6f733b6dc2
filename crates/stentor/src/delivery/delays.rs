//! Warnings about delays (RFC 3461 section 5.2.5, RFC 3464): the sender of ordinary mail is told once that it is still
//! being tried.
//!
//! A sweep walks over the messages in the order of their age and stops at the first that is not old enough; where it
//! stopped the next begins, so that each message is looked at once. Nobody is warned of: bulk and lists' posts (their
//! senders have no use for it), reports and other mail of the null sender, held messages, recipients with a NOTIFY that
//! lacks DELAY.
//!
//! Once, also across restarts, without a record of its own: a warning is itself a message accepted after the age was
//! reached, so that what had reached it before the store's last acceptance is not looked at again after a start. What a
//! crash can lose is a warning that the last sweep had not come to.
//!
//! Failure answer: a warning that cannot be stored is left out and said in the log; the mail itself is not concerned.

use std::sync::Arc;
use std::time::Duration;

use stentor_mail::dsn::{self, Action};
use stentor_mail::reply::Enhanced;
use stentor_queue::event::Class;
use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::message::Message;

use super::bounce::{Line, Subject, report_to, send};
use crate::config::DelayWarning;
use crate::core::Core;
use crate::core::hub::Hub;

/// NOTIFY bit (RFC 3461 section 4.1).
const DELAY: u8 = 8;
/// Messages looked at under one hold of the lock.
const SWEEP_STEP: usize = 500;
/// Longest pause between sweeps; at short ages a quarter of the age.
const PAUSE_MS_MAX: Ms = 60_000;
const PAUSE_MS_MIN: Ms = 50;

/// Sweeps until the process ends.
pub async fn run(core: Arc<Core>) {
    // What became old enough before this was said before.
    let mut warned_until = core.with(|hub, _| hub.store.last_id().accepted_about());
    let mut next_no: Option<u32> = None;
    loop {
        let retry = core.settings().config.retry.clone();
        let (age, to) = (retry.delay_warning_ms, retry.delay_warning_to);
        let pause = if age == 0 { PAUSE_MS_MAX } else { (age / 4).clamp(PAUSE_MS_MIN, PAUSE_MS_MAX) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if age == 0 {
            continue;
        }
        loop {
            let (found, is_through) = core.with(|hub, now| {
                sweep(hub, &mut next_no, now.saturating_sub(age), warned_until.saturating_sub(age), to)
            });
            for no in found {
                warn(&core, no, retry.lifetime_ms, to).await;
            }
            if is_through {
                break;
            }
            tokio::task::yield_now().await;
        }
        // Numbers say from here on how far it came.
        warned_until = 0;
    }
}

/// The next messages that are old enough, and whether all have been looked at.
fn sweep(
    hub: &Hub,
    next_no: &mut Option<u32>,
    accepted_until: Ms,
    from: Ms,
    to: DelayWarning,
) -> (Vec<MessageNo>, bool) {
    let (oldest, until) = hub.store.number_bounds();
    // The one that the last sweep stopped at may be gone, and numbers may have been given out anew since.
    let first = next_no.filter(|no| no.wrapping_sub(oldest) <= until.wrapping_sub(oldest)).unwrap_or(oldest);
    let mut found = Vec::new();
    for (count, (no, message)) in hub.store.messages_between(first, until).enumerate() {
        *next_no = Some(no.0);
        if message.accepted() > accepted_until {
            return (found, true);
        }
        if count == SWEEP_STEP {
            return (found, false);
        }
        let is_meant = message.class() == Class::Ordinary && !message.is_report() && !message.is_held();
        if is_meant && message.accepted() > from && !message.sender().is_empty() && message.list().is_none() {
            let wants = message.pending().iter().any(|id| wants(message, AddressId(id), to));
            found.extend(wants.then_some(no));
        }
    }
    *next_no = Some(until);
    (found, true)
}

fn wants(message: &Message, id: AddressId, to: DelayWarning) -> bool {
    match message.params(id).and_then(|params| params.notify) {
        Some(notify) => notify & DELAY != 0,
        None => to == DelayWarning::All,
    }
}

async fn warn(core: &Arc<Core>, no: MessageNo, lifetime_ms: Ms, to: DelayWarning) {
    let Some((subject, lines)) = core.with(|hub, now| gather(hub, no, lifetime_ms, to, now)) else { return };
    let people = report_to(core, &subject);
    if people.is_empty() || lines.is_empty() {
        return;
    }
    tracing::debug!(message = %subject.id, recipients = lines.len(), "the sender is told of a delay");
    // A failure is in the log.
    let _ = send(core, &subject, &lines, people, Vec::new()).await;
}

fn gather(hub: &Hub, no: MessageNo, lifetime_ms: Ms, to: DelayWarning, now: Ms) -> Option<(Subject, Vec<Line>)> {
    let message = hub.store.message(no)?;
    let envelope = message.envelope();
    let subject = Subject {
        id: message.id(),
        sender: envelope.sender.to_owned(),
        envid: envelope.envid.map(str::to_owned),
        ret: message.ret(),
        smtputf8: message.smtputf8(),
        accepted: message.accepted(),
        content: message.content(),
        size: envelope.size - envelope.prefix.len() as u64,
        archive: None,
    };
    let until = message.accepted() + lifetime_ms;
    let line = |id: AddressId| {
        let reply = hub.sched.recipient_status(&hub.store, no, id, now).reason;
        let status = reply.as_ref().and_then(|reply| reply.dsn).filter(|dsn| dsn.class == 4);
        Line {
            address: hub.store.book.text(id).to_owned(),
            orcpt: message.params(id).and_then(|params| params.orcpt.clone()),
            action: Action::Delayed,
            status: status.map_or(Enhanced::new(4, 0, 0), |dsn| Enhanced::new(4, dsn.subject, dsn.detail)),
            host: reply.as_ref().and_then(|reply| reply.host.clone()),
            diagnostic: reply
                .as_ref()
                .filter(|reply| reply.code > 0)
                .map(|reply| format!("{} {}", reply.code, reply.text)),
            reason: reply.filter(|reply| reply.code == 0).map(|reply| reply.text.to_string()),
            until: Some(until),
        }
    };
    let ids = message.pending().iter().map(AddressId).filter(|id| wants(message, *id, to));
    Some((subject, ids.take(dsn::RECIPIENTS_MAX).map(line).collect()))
}
