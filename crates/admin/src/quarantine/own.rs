//! A recipient's own copy of a quarantined message, viewed and released by a link.
//!
//! Promise: only this recipient's copy is shown or released, and no other recipient is named. A release is recorded in
//! the journal, by `recipient=ADDRESS`.

use std::sync::Arc;

use serde_json::json;
use stentor_control::AttachmentView;
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::intake::IntakeRefusal;
use stentor_core::verb::QueueChange;
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;

use super::link::{LinkSubject, Links};
use super::{Place, QuarantinedRecipients, releases, seen};

/// The state of the copy.
pub enum OwnCopy {
    Kept(Box<OwnView>),
    /// Released by this link.
    Released,
    /// Released otherwise, deleted or expired.
    Gone,
}

/// The recipient's view; all of its text comes from strangers.
pub struct OwnView {
    pub recipient: String,
    pub from: String,
    /// The envelope sender; empty for the null path.
    pub sender: String,
    pub subject: String,
    pub why: String,
    pub accepted: Ms,
    pub expires: Ms,
    pub text: String,
    pub files: Vec<AttachmentView>,
    /// Why the text is incomplete.
    pub limit: Option<&'static str>,
}

/// The recipient's entries in the address book whose copies are quarantined.
fn own_ids(hub: &Hub, message: &Message, recipient: &str) -> IdSet {
    // Each next hop has its own entry.
    let entries = hub.store.book.entries_of(recipient).into_iter().map(|id| id.0);
    entries.filter(|id| message.pending().contains(*id) && hub.store.book.text(AddressId(*id)) == recipient).collect()
}

/// Shows the copy.
///
/// # Errors
/// The content cannot be read now.
pub async fn look_at_own(core: &Arc<Core>, links: &Links, ticket: &LinkSubject) -> std::io::Result<OwnCopy> {
    let expire_ms = core.settings().config.quarantine.expire_ms;
    let found = core.with(|hub, _| {
        let message = hub.store.in_quarantine(ticket.message)?;
        if own_ids(hub, message, &ticket.recipient).is_empty() {
            return None;
        }
        let view = OwnView {
            recipient: ticket.recipient.clone(),
            from: String::new(),
            sender: message.sender().to_owned(),
            subject: String::new(),
            why: why(message.quarantined_by()).to_owned(),
            accepted: message.accepted(),
            expires: message.accepted().saturating_add(expire_ms).min(ticket.expires),
            text: String::new(),
            files: Vec::new(),
            limit: None,
        };
        Some((view, Place::of(message)))
    });
    let Some((mut view, place)) = found else { return Ok(left(links, ticket)) };
    let seen = seen(core, place, false).await?;
    (view.from, view.subject) = (seen.field("from"), seen.field("subject"));
    (view.text, view.files, view.limit) = (seen.text, seen.files, seen.limit);
    Ok(OwnCopy::Kept(Box::new(view)))
}

fn left(links: &Links, ticket: &LinkSubject) -> OwnCopy {
    if links.has_released(ticket) { OwnCopy::Released } else { OwnCopy::Gone }
}

/// Releases the copy; `client` made the request. `None`: this call released it.
///
/// # Errors
/// The release could not be recorded, and the copy stays.
pub async fn release_own(
    core: &Arc<Core>,
    links: &Links,
    ticket: &LinkSubject,
    client: &str,
) -> Result<Option<OwnCopy>, IntakeRefusal> {
    let found = core.with(|hub, _| {
        let message = hub.store.in_quarantine(ticket.message)?;
        Some((own_ids(hub, message, &ticket.recipient), message.slice_bytes_max()))
    });
    let Some((ids, bytes_max)) = found.filter(|(ids, _)| !ids.is_empty()) else {
        return Ok(Some(left(links, ticket)));
    };
    let detail = json!({"id": ticket.message.to_string(), "recipients": ids.len(), "link": true, "client": client});
    let who = format!("recipient={}", ticket.recipient);
    let audit = Audit { at: core.clock.now(), who, verb: "quarantine_release", detail: detail.to_string() };
    let parts = releases(core, vec![QuarantinedRecipients { id: ticket.message, ids, bytes_max }]).await;
    core.intake.verb(audit, QueueChange::ReleaseQuarantined { parts }).await?;
    tracing::info!(message = %ticket.message, recipient = %ticket.recipient, client, "quarantine: released by the \
        recipient");
    links.released(ticket);
    Ok(None)
}

/// Why a message is quarantined, without the rule's place, which is for operators only.
pub fn why(by: &str) -> &str {
    if !by.starts_with("rule ") {
        return by;
    }
    match by.split_once("): ") {
        Some((_, text)) => text,
        None => by.split_once(" (").map_or(by, |(rule, _)| rule),
    }
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn recipients_see_the_reason_and_not_the_file() {
        assert_eq!(why("rule 1 \"odd\" (stentor.toml:9): looks (odd): yes"), "looks (odd): yes");
        assert_eq!(why("rule 2 \"words\" (/etc/rules:9)"), "rule 2 \"words\"");
        assert_eq!(why("milter clamav: EICAR (test): found"), "milter clamav: EICAR (test): found");
    }
}
