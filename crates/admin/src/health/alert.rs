//! Reports a condition that begins or ends: a line in the server's log, a note in the history (sent to webhooks with
//! the event `health`), and an event for watchers.

use stentor_core::live::health::ConditionChange;
use stentor_core::{Core, log};
use stentor_records::health::{Severity, note_of};
use stentor_records::record::Topic;

pub(super) fn report(core: &Core, change: &ConditionChange) {
    let (condition, is_raised) = match change {
        ConditionChange::Raised(condition) => (condition, true),
        ConditionChange::Ended(condition) => (condition, false),
    };
    let (name, subject) = (condition.name.as_str(), condition.subject.as_str());
    match (is_raised, condition.severity) {
        (true, Severity::Problem) => {
            tracing::error!(name, subject, next = condition.next, "health: PROBLEM: {}", condition.what);
        }
        (true, Severity::Warning) => {
            tracing::warn!(name, subject, next = condition.next, "health: warning: {}", condition.what);
        }
        (false, _) => tracing::info!(name, subject, "health: ended: {}", condition.what),
    }
    let text = note_of(condition, is_raised);
    core.live.event(core.clock.now(), "health", || text.clone());
    log::note(core, Topic::Server, &text);
}
