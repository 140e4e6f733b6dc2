//! `suspend` and `resume`: all mail of a list or a sender, to a site, or of a list to a subscriber.
//!
//! Promise: durable with its audit record before it applies; it survives a restart. Open transactions finish; clocks
//! and lifetimes continue, so that messages beyond their lifetime are bounced at their next attempt after the
//! suspension.

use std::sync::Arc;

use serde_json::json;
use stentor_control::format::{instant, plural, quoted};
use stentor_control::problem::Problem;
use stentor_control::{ControlReply, ErrorCode, Requester, Selection, Subject, Verb};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::limits::Limit;
use stentor_core::verb::QueueChange;
use stentor_delivery::{LookupContext, look_up};
use stentor_mail::address::normalise_domain;
use stentor_queue::message::Message;
use stentor_queue::site::Resolution;
use stentor_records::civil::Zone;

use super::author::who;
use super::queue_only::count_where;
use super::{MailTotals, carry_out};
use crate::{lists, site, suggestions};

/// Maximum suspensions at a time: each is checked at posts, or kept by the scheduler.
pub const SUSPENDED_MAX: usize = 100_000;

pub async fn suspend(
    core: &Arc<Core>,
    suspended: bool,
    subject: Subject,
    reason: Option<String>,
    for_s: Option<u64>,
    peer: &Requester,
) -> ControlReply {
    let (what, is_new) = match found(core, suspended, &subject).await {
        Ok(named) => named,
        Err(problem) => return ControlReply::Error(problem),
    };
    let (now, shown) = (core.clock.now(), words(&what));
    let until = for_s.map_or(0, |s| now.saturating_add(s.saturating_mul(1_000)));
    let (is_so, ends, old_reason, count) = core.with(|hub, _| {
        let old_reason = hub.store.suspended_reason(&what).unwrap_or_default().to_owned();
        (hub.store.is_suspended(&what), hub.store.suspended_until(&what), old_reason, hub.store.suspended_len())
    });
    let new_reason = if suspended { reason.clone().unwrap_or_else(|| old_reason.clone()) } else { String::new() };
    // A repeated suspension may change the end or the reason.
    if is_so == suspended && (!suspended || ends.unwrap_or(0) == until && new_reason == old_reason) {
        if !suspended {
            return not_suspended(core, &subject, &shown);
        }
        return ControlReply::done(format!("{shown} is already suspended"), Some(0));
    }
    if suspended && !is_so && count >= SUSPENDED_MAX {
        core.limits.hit(Limit::Suspensions, now);
        return ControlReply::error(
            ErrorCode::TooLarge,
            format!("at most {SUSPENDED_MAX} suspensions are allowed at a time"),
        );
    }
    let verb = if suspended { "suspend" } else { "resume" };
    let mut detail = json!({"what": what, "reason": reason});
    if until > 0 {
        detail["until"] = instant(until, &Zone::utc()).into();
    }
    let audit = Audit { at: now, who: who(peer), verb, detail: detail.to_string() };
    let change = QueueChange::Suspend { suspended, what: what.clone(), until, reason: new_reason };
    match core.intake.verb(audit, change).await {
        Ok(()) => {
            let end = if until > 0 { format!(" until {}", instant(until, &Zone::utc())) } else { String::new() };
            let ending = if suspended { "ed" } else { "d" };
            let remark = if is_new && suspended { "; no mail for it was seen since the server started" } else { "" };
            ControlReply::done(format!("{shown} is {verb}{ending}{end}{remark}"), Some(1))
        }
        Err(refused) => ControlReply::error(ErrorCode::Failed, format!("{verb}: {refused}")),
    }
}

/// The reply to a resume of what is not suspended, perhaps because its list is misspelt.
fn not_suspended(core: &Core, subject: &Subject, shown: &str) -> ControlReply {
    let list = match subject {
        Subject::List(list) | Subject::Subscriber { list, .. } => Some(list.as_str()),
        Subject::Sender(_) | Subject::Site(_) => None,
    };
    match lists::unknown(core, list) {
        Some(problem) => ControlReply::Error(problem),
        None => ControlReply::error(
            ErrorCode::NotFound,
            format!("{shown} is not suspended; `stentor status` lists what is"),
        ),
    }
}

/// A suspension in words, from its name in the journal.
fn words(what: &str) -> String {
    match what.split_once(':') {
        Some(("subscriber", name)) => match name.split_once(':') {
            Some((list, address)) => format!("subscriber {address} of list {list}"),
            None => name.to_owned(),
        },
        Some((kind, name)) => format!("{kind} {name}"),
        None => what.to_owned(),
    }
}

/// Counts what a suspension would stop now, without changing anything.
pub async fn dry_run(core: &Arc<Core>, subject: Subject, peer: &Requester) -> ControlReply {
    let what = match found(core, true, &subject).await {
        Ok((what, _)) => what,
        Err(problem) => return ControlReply::Error(problem),
    };
    let of_sender = |domain: String| {
        move |_: &Hub, _, message: &Message| {
            let is_its =
                message.list().is_none() && message.sender().rsplit_once('@').is_some_and(|(_, of)| of == domain);
            if is_its { message.pending().len() as u64 } else { 0 }
        }
    };
    let selection = match subject {
        Subject::List(list) => Selection { list: Some(list), ..Selection::default() },
        Subject::Subscriber { .. } => {
            let text = format!("would suspend {}: only new posts; waiting posts are still sent", words(&what));
            return ControlReply::done(text, Some(0));
        }
        Subject::Sender(_) => {
            let domain = what.strip_prefix("sender:").unwrap_or_default();
            let totals = count_where(core, of_sender(domain.to_owned())).await;
            return would(&what, totals);
        }
        // A site without any mail so far has none waiting.
        Subject::Site(_) => Selection { site: what.strip_prefix("site:").map(str::to_owned), ..Selection::default() },
    };
    // Counted as a removal would: only the selected recipients of each message.
    let totals = match carry_out(core, Verb::Remove, None, &selection, true, None, &who(peer)).await {
        ControlReply::Counted(counted) => {
            let [messages, free, in_flight] =
                [counted.messages, counted.count, counted.in_flight].map(Option::unwrap_or_default);
            MailTotals { messages, recipients: free + in_flight }
        }
        ControlReply::Error(problem) if problem.code != ErrorCode::NotFound => return ControlReply::Error(problem),
        _ => MailTotals::default(),
    };
    would(&what, totals)
}

fn would(what: &str, totals: MailTotals) -> ControlReply {
    let MailTotals { messages, recipients } = totals;
    let (of, who) = (plural(messages, "message"), plural(recipients, "recipient"));
    ControlReply::done(format!("would suspend {}: {who} of {of} waiting", words(what)), Some(recipients))
}

/// The subject's name, and whether it is a site without any mail so far, which is looked up as mail to it would be.
async fn found(core: &Arc<Core>, suspended: bool, subject: &Subject) -> Result<(String, bool), Problem> {
    match (named(core, suspended, subject), subject) {
        (Err(problem), Subject::Site(name)) => {
            let instead = format!("to keep its mail in the queue: `stentor queue-only --domain {}`", quoted(name));
            never_seen(core, name, problem, &instead).await.map(|site| (format!("site:{site}"), true))
        }
        (named, _) => named.map(|what| (what, false)),
    }
}

/// Looks up the site of a domain that had no mail since the start. `instead`: advice while that fails.
pub(super) async fn never_seen(
    core: &Arc<Core>,
    name: &str,
    unknown: Problem,
    instead: &str,
) -> Result<String, Problem> {
    let Some(domain) = normalise_domain(name).ok().filter(|domain| domain.contains('.')) else { return Err(unknown) };
    match look_up(&LookupContext::of(core, &core.resolver(), &core.settings()), &domain).await {
        Resolution::Site(plan) => Ok(plan.key.to_string()),
        Resolution::Permanent { text, .. } => {
            Err(Problem::new(unknown.code, format!("{}; as a domain: {text}", unknown.text)))
        }
        Resolution::Temporary { text, .. } => {
            Err(Problem::new(unknown.code, format!("{domain} has no site: its DNS lookup fails ({text}); {instead}")))
        }
    }
}

/// The subject's name in the journal. A resume may name something that is no longer configured.
fn named(core: &Arc<Core>, suspended: bool, subject: &Subject) -> Result<String, Problem> {
    let is_list = |list: &str| match lists::unknown(core, Some(list)).filter(|_| suspended) {
        Some(problem) => Err(problem),
        None => Ok(()),
    };
    match subject {
        Subject::List(list) => is_list(list).map(|()| format!("list:{list}")),
        Subject::Subscriber { list, address } => {
            is_list(list)?;
            let known = !suspended || core.with(|hub, _| is_subscribed(hub, list, address));
            if !known {
                return Err(Problem::new(ErrorCode::NotFound, format!("{address} is not a subscriber of {list}")));
            }
            Ok(format!("subscriber:{list}:{address}"))
        }
        Subject::Sender(domain) => match normalise_domain(domain) {
            Ok(domain) => Ok(format!("sender:{domain}")),
            Err(_) => Err(Problem::new(ErrorCode::BadRequest, format!("{domain:?} is not a domain"))),
        },
        Subject::Site(name) => match core.with(|hub, _| site::find(hub, name)) {
            Some((_, key)) => Ok(format!("site:{key}")),
            None if core.with(|hub, _| hub.store.is_suspended(&format!("site:{name}"))) => Ok(format!("site:{name}")),
            None => Err(suggestions::unknown_site(core, name)),
        },
    }
}

fn is_subscribed(hub: &stentor_core::hub::Hub, list: &str, address: &str) -> bool {
    let id = hub.store.book.lookup(address);
    id.is_some_and(|id| hub.store.list(list).is_some_and(|list| list.ids.contains(id.0)))
}
