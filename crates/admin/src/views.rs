//! Queue and scheduler in the terms of the control protocol: fates, a pending recipient, the last reply.

use stentor_control::{Fates, RecipientState, RecipientView};
use stentor_engine::core::hub::Hub;
use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::message::Message;
use stentor_sched::{RecipientState as Place, Reply as LastReply};

/// What recipients at domains that have no site yet are shown at.
pub const UNRESOLVED: &str = "(not resolved yet)";

/// What became of all recipients.
pub fn fates(hub: &Hub) -> Fates {
    let totals = hub.store.totals();
    Fates {
        acknowledged: totals.acknowledged,
        delivered: totals.fates.delivered,
        bounced: totals.fates.bounced,
        expired: totals.fates.expired,
        removed: totals.fates.removed,
        quarantined: totals.fates.quarantined,
        coalesced: totals.fates.coalesced,
        pending: totals.pending(),
    }
}

/// What became of a queued message's recipients so far.
pub fn message_fates(message: &Message) -> Fates {
    let tally = message.tally();
    Fates {
        acknowledged: message.total(),
        delivered: tally.delivered,
        bounced: tally.bounced,
        expired: tally.expired,
        removed: tally.removed,
        quarantined: tally.quarantined,
        coalesced: tally.coalesced,
        pending: message.pending().len() as u64,
    }
}

/// A pending recipient as operators see it.
pub fn recipient(hub: &Hub, no: MessageNo, id: AddressId, now: Ms) -> RecipientView {
    let status = hub.sched.recipient_status(&hub.store, no, id, now);
    let state = match status.state {
        Place::Sending | Place::Reporting => RecipientState::InFlight,
        Place::Held => RecipientState::Held,
        Place::Suspended => RecipientState::Suspended,
        Place::Ready | Place::Unknown => RecipientState::Waiting,
        Place::LookUp if status.next_try.is_none() => RecipientState::Waiting,
        _ => RecipientState::Deferred,
    };
    let site = status.site.and_then(|site| hub.sched.site_name(site)).unwrap_or(UNRESOLVED);
    RecipientView {
        address: hub.store.book.text(id).to_owned(),
        site: site.to_owned(),
        state,
        cause: status.cause.name().to_owned(),
        words: status.cause.words().to_owned(),
        next_try: status.next_try,
        last_reply: reply(status.reason),
    }
}

/// The last reply as operators see it.
pub fn reply(reply: Option<LastReply>) -> String {
    reply.map_or_else(String::new, |reply| reply.to_string())
}
