//! Views of queue and scheduler for the control protocol: fates, a pending recipient, the last reply.

use stentor_control::format::span;
use stentor_control::{Fates, RecipientState, RecipientView};
use stentor_core::hub::Hub;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::message::Message;
use stentor_sched::{ConnectionAttempt, HostReply, Keeper, RecipientPlace, SiteProgress, WaitingPlace, block_list};

/// The name of a site, or of a domain without one.
pub fn place_name(hub: &Hub, at: WaitingPlace) -> &str {
    match at {
        WaitingPlace::Site(site) => hub.sched.site_name(site).unwrap_or_default(),
        WaitingPlace::Domain(domain) => hub.store.book.domain_name(domain),
    }
}

/// The fates of all recipients.
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

/// The fates of a queued message's recipients so far.
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

/// A pending recipient as shown to operators.
pub fn recipient(hub: &Hub, no: MessageNo, id: AddressId, now: Ms) -> RecipientView {
    let status = hub.sched.recipient_status(&hub.store, no, id, now);
    let state = match status.state {
        RecipientPlace::Sending | RecipientPlace::Reporting => RecipientState::InFlight,
        RecipientPlace::Held => RecipientState::Held,
        RecipientPlace::Suspended => RecipientState::Suspended,
        RecipientPlace::QueueOnly => RecipientState::QueueOnly,
        RecipientPlace::Ready | RecipientPlace::Unknown => RecipientState::Waiting,
        RecipientPlace::LookUp if status.next_try.is_none() => RecipientState::Waiting,
        _ => RecipientState::Deferred,
    };
    let at = status.site.map_or_else(|| WaitingPlace::Domain(hub.store.book.domain(id)), WaitingPlace::Site);
    RecipientView {
        address: hub.store.book.text(id).to_owned(),
        site: place_name(hub, at).to_owned(),
        state,
        cause: status.cause.name().to_owned(),
        words: kept(hub, status.cause, status.keeper, hub.store.message(no))
            .or_else(|| listed(status.cause, status.reason.as_ref()))
            .unwrap_or_else(|| {
                words(status.cause, status.attempt, status.reason.as_ref().map(|reply| reply.cause), now)
            }),
        since: status.attempt.map(|attempt| attempt.since),
        next_try: status.next_try,
        last_reply: reply(status.reason),
    }
}

/// The last reply as shown to operators.
pub fn reply(reply: Option<HostReply>) -> String {
    reply.map_or_else(String::new, |reply| reply.to_string())
}

/// Why a recipient waits: the cause; for a connection being made, its progress and the last failure.
pub fn words(cause: Cause, attempt: Option<ConnectionAttempt>, failed_with: Option<Cause>, now: Ms) -> String {
    let Some(attempt) = attempt else { return cause.words().to_owned() };
    let last = failed_with.map_or_else(String::new, |cause| format!("; last: {}", cause.words()));
    progress(attempt, now) + &last
}

/// The block list that the reply names; `None` if the cause is sufficient.
pub fn listed(cause: Cause, reply: Option<&HostReply>) -> Option<String> {
    let list = reply.filter(|_| cause == Cause::BlockListed).and_then(|reply| block_list(&reply.text))?;
    Some(format!("listed by {list}"))
}

/// The holder of held mail, by name if it is one message; or the reason of a suspension or of queue-only mail. `None`
/// if the cause is sufficient.
pub fn kept(hub: &Hub, cause: Cause, keeper: Keeper, message: Option<&Message>) -> Option<String> {
    match (cause, keeper) {
        (Cause::Held, _) if message.is_some() => message.map(holder).map(|by| format!("held by {by}")),
        (Cause::Held, Keeper::Operator) => Some("held by an operator".to_owned()),
        (Cause::Held, Keeper::Rule) => Some("held by a rule".to_owned()),
        (Cause::Suspended, keeper) => {
            let reason = hub.store.suspended_reason(&hub.sched.suspension(keeper)?)?;
            Some(format!("{} ({reason})", cause.words()))
        }
        (Cause::QueueOnly, Keeper::QueueOnly(no)) => {
            hub.sched.queue_only_reason(no).map(|reason| format!("{}: {reason}", cause.words()))
        }
        _ => None,
    }
}

/// The holder of a held message.
pub fn holder(message: &Message) -> &str {
    message.held_by().unwrap_or("an operator")
}

/// Formats `connecting for 8s`.
pub fn progress(attempt: ConnectionAttempt, now: Ms) -> String {
    format!("{} for {}", attempt.reach.words(), span(now.saturating_sub(attempt.since)))
}

/// The name of a lane.
pub fn lane_name(standing: SiteProgress) -> &'static str {
    match standing {
        SiteProgress::Fast => "fast",
        SiteProgress::Connecting => "connecting",
        SiteProgress::Slow => "slow",
        SiteProgress::Clock => "clock",
        SiteProgress::Suspended => "suspended",
    }
}
