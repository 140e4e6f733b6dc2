//! Delay notices (RFC 3461 section 5.2.5, RFC 3464): the sender of ordinary mail is notified once that a message is
//! still queued.
//!
//! The scheduler says when, once per message. There is no notice for: bulk mail and posts (their senders have no use
//! for it), DSNs and other mail of the null sender, mail of untrusted clients (whose senders may be forged and must not
//! get text of an attacker's choice), held messages, and recipients with a NOTIFY that lacks DELAY. A message that
//! reached the age while the server was down gets none.
//!
//! Failure: a notice that cannot be stored is dropped and logged; the mail itself is unaffected.

use std::sync::Arc;

use stentor_config::DelayWarning;
use stentor_core::hub::Hub;
use stentor_core::{Core, Settings};
use stentor_mail::Class;
use stentor_mail::dsn::{self, DsnAction};
use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::message::Message;

use super::bounce::{DsnRcpt, Subject, report_to, send, told};

/// NOTIFY bit (RFC 3461 section 4.1).
const DELAY: u8 = 8;

/// Performs `Effect::Delayed`.
pub async fn warn(core: Arc<Core>, no: MessageNo) {
    let settings = core.settings();
    let Some((subject, lines)) = core.with(|hub, now| gather(hub, no, &settings, now)) else { return };
    // A notice that cannot be sent now is dropped.
    let people = report_to(&core, &subject, true).await.unwrap_or_default();
    if people.is_empty() || lines.is_empty() {
        return;
    }
    tracing::debug!(message = %subject.id, recipients = lines.len(), "delay notice to the sender");
    // A failure is logged.
    let _ = send(&core, &subject, &lines, people, Vec::new()).await;
}

fn wants(message: &Message, id: AddressId, to: DelayWarning) -> bool {
    match message.params(id).and_then(|params| params.notify) {
        Some(notify) => notify & DELAY != 0,
        None => to == DelayWarning::All,
    }
}

/// Returns the notice, if one is to be sent.
fn gather(hub: &Hub, no: MessageNo, settings: &Settings, now: Ms) -> Option<(Subject, Vec<DsnRcpt>)> {
    let message = hub.store.message(no)?;
    let envelope = message.envelope();
    let is_own = envelope.sender.is_empty() || message.is_report() || envelope.list.is_some();
    // The sender may be forged: only a failure justifies mail to it.
    if settings.is_strangers(envelope.origin) {
        return None;
    }
    if is_own || message.class() == Class::Bulk || message.is_held() {
        return None;
    }
    let to = settings.config.retry.delay_warning_to;
    let subject = Subject::of(message, settings);
    let until = message.accepted() + settings.lifetime_ms(message);
    let line = |id: AddressId| {
        let reply = hub.sched.recipient_status(&hub.store, no, id, now).reason;
        let status = reply.as_ref().and_then(|reply| reply.dsn).filter(|dsn| dsn.class == 4);
        DsnRcpt {
            address: told(settings, &hub.store.book, id),
            orcpt: message.params(id).and_then(|params| params.orcpt.clone()),
            action: DsnAction::Delayed,
            status: status.map_or(Enhanced::new(4, 0, 0), |dsn| Enhanced::new(4, dsn.subject, dsn.detail)),
            host: reply.as_ref().and_then(|reply| reply.host.clone()),
            diagnostic: reply.as_ref().filter(|reply| reply.code > 0).map(ToString::to_string),
            reason: reply.filter(|reply| reply.code == 0).map(|reply| reply.text.to_string()),
            until: Some(until),
        }
    };
    let ids = message.pending().iter().map(AddressId).filter(|id| wants(message, *id, to));
    Some((subject, ids.take(dsn::RECIPIENTS_MAX).map(line).collect()))
}
