//! `suspend` and `resume`: all mail of a list or a sender, to a site, or of a list to a subscriber.
//!
//! Promise: durable with its audit record before it applies; it survives a restart. Open transactions end normally;
//! clocks and lifetimes continue, so that messages beyond their lifetime are bounced at their next attempt after the
//! end.

use std::sync::Arc;

use serde_json::json;
use stentor_control::format::instant;
use stentor_control::problem::Problem;
use stentor_control::{ErrorCode, Peer, Reply, Subject};
use stentor_engine::core::Core;
use stentor_engine::core::audit::Audit;
use stentor_engine::core::intake::{Job, Refused};
use stentor_engine::core::limits::Limit;
use stentor_engine::core::verb::{Change, VerbJob};
use stentor_mail::address::normalise_domain;
use stentor_stats::civil::Zone;
use tokio::sync::oneshot;

use super::who::who;
use crate::{lists, near, site};

/// What may be suspended at a time: each is asked for at posts, or kept by the scheduler.
pub const SUSPENDED_MAX: usize = 100_000;

pub async fn suspend(
    core: &Arc<Core>,
    suspended: bool,
    subject: Subject,
    (reason, for_s): (Option<String>, Option<u64>),
    peer: &Peer,
) -> Reply {
    let what = match named(core, suspended, &subject) {
        Ok(what) => what,
        Err(problem) => return Reply::Error(problem),
    };
    let now = core.clock.now();
    let until = for_s.map_or(0, |s| now.saturating_add(s.saturating_mul(1_000)));
    let (is_so, ends, count) = core
        .with(|hub, _| (hub.store.is_suspended(&what), hub.store.suspended_until(&what), hub.store.suspended_len()));
    // One that has an end gets another, or none.
    if is_so == suspended && (!suspended || ends.unwrap_or(0) == until) {
        let text = if suspended { "is suspended already" } else { "is not suspended" };
        return Reply::Done { text: format!("{what} {text}"), count: Some(0) };
    }
    if suspended && !is_so && count >= SUSPENDED_MAX {
        core.limits.hit(Limit::Suspensions, now);
        return Reply::error(ErrorCode::TooLarge, format!("{SUSPENDED_MAX} are suspended already"));
    }
    let verb = if suspended { "suspend" } else { "resume" };
    let mut detail = json!({"what": what, "reason": reason});
    if until > 0 {
        detail["until"] = instant(until, &Zone::utc()).into();
    }
    let audit = Audit { at: now, who: who(peer), verb, detail: detail.to_string() };
    let job = VerbJob { audit, change: Change::Suspend { suspended, what: what.clone(), until } };
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::Verb { job: Box::new(job), answer });
    match ticket.await.unwrap_or(Err(Refused::Stopping)) {
        Ok(()) => {
            let end = if until > 0 { format!(" until {}", instant(until, &Zone::utc())) } else { String::new() };
            let ending = if suspended { "ed" } else { "d" };
            Reply::Done { text: format!("{what} is {verb}{ending}{end}"), count: Some(1) }
        }
        Err(refused) => Reply::error(ErrorCode::Failed, format!("{verb}: {refused}")),
    }
}

/// What is meant, as the journal has it. A resume may be about what is not configured any more.
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
                return Err(Problem::new(ErrorCode::NotFound, format!("{address} is no subscriber of {list}")));
            }
            Ok(format!("subscriber:{list}:{address}"))
        }
        Subject::Sender(domain) => match normalise_domain(domain) {
            Ok(domain) => Ok(format!("sender:{domain}")),
            Err(_) => Err(Problem::new(ErrorCode::BadRequest, format!("{domain:?} is not a domain"))),
        },
        Subject::Site(name) => match core.with(|hub, _| site::find(hub, name)) {
            Some((_, key)) => Ok(format!("site:{key}")),
            None if !suspended => Ok(format!("site:{name}")),
            None => Err(near::unknown_site(core, name)),
        },
    }
}

fn is_subscribed(hub: &stentor_engine::core::hub::Hub, list: &str, address: &str) -> bool {
    let id = hub.store.book.lookup(address);
    id.is_some_and(|id| hub.store.list(list).is_some_and(|list| list.ids.contains(id.0)))
}
