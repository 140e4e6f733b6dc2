//! Expiry of quarantined messages: they are deleted without notice.
//!
//! Failure: after a refused batch they stay until the next check. Nothing expires just after the clock was set
//! ([`stentor_sched::Scheduler::is_over_age`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::verb::QueueChange;
use stentor_queue::event::Fate;
use stentor_queue::ids::MessageId;

use super::{SLICE_RECIPIENTS_MAX, STEPS_MAX};

/// Interval of checks.
const PAUSE: Duration = Duration::from_mins(1);
const WHO: &str = "stentor";

/// Expires messages while the server runs.
pub async fn expire(core: Arc<Core>) {
    loop {
        sweep(&core).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// One check.
pub async fn sweep(core: &Arc<Core>) {
    let expire_ms = core.settings().config.quarantine.expire_ms;
    let mut after: Option<MessageId> = None;
    loop {
        let (over, is_last) = core.with(|hub, now| {
            let (mut over, mut recipients, mut steps) = (Vec::new(), 0, 0);
            for message in hub.store.quarantined(after).take(STEPS_MAX) {
                (after, steps) = (Some(message.id()), steps + 1);
                if hub.sched.is_over_age(message.accepted(), expire_ms, now) {
                    recipients += message.pending().len();
                    over.push((message.id(), message.pending().clone()));
                    if recipients >= SLICE_RECIPIENTS_MAX {
                        return (over, false);
                    }
                }
            }
            (over, steps < STEPS_MAX)
        });
        if !over.is_empty() {
            let recipients: u64 = over.iter().map(|(_, ids)| ids.len() as u64).sum();
            let detail = json!({"messages": over.len(), "recipients": recipients}).to_string();
            let audit = Audit { at: core.clock.now(), who: WHO.to_owned(), verb: "quarantine_expire", detail };
            let messages = over.len();
            let change = QueueChange::EndQuarantine { fate: Fate::Expired, recipients: over };
            match core.intake.verb(audit, change).await {
                Ok(()) => tracing::info!(messages, recipients, "quarantine: messages expired"),
                Err(refused) => return tracing::warn!(%refused, "quarantine expiry failed; will retry"),
            }
        }
        if is_last {
            return;
        }
        tokio::task::yield_now().await;
    }
}
