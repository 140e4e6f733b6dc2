//! `queue-only`: mail is accepted and kept in the queue; and `queue run`, which tries the present queue once.
//!
//! Promise: a queue-only entry and its audit record are durable before it takes effect; it survives a restart and ends
//! by command or expires (`stentor_delivery::resume_when_over`). Transactions in progress finish. Retry clocks and
//! lifetimes continue, but nothing expires without an attempt. Configured sections (`[queue_only.NAME]`) apply
//! independently. A run is recorded, and does not survive a restart: mail not yet tried then stays queue-only.

use std::sync::Arc;

use serde_json::json;
use stentor_config::InForce;
use stentor_control::format::{instant, plural};
use stentor_control::problem::Problem;
use stentor_control::queue_only_view::words;
use stentor_control::{ActionResult, ControlReply, ErrorCode, QueueOnlyView, Requester};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::settings::Settings;
use stentor_core::verb::QueueChange;
use stentor_mail::address::normalise_domain;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, MessageNo, Ms};
use stentor_queue::message::Message;
use stentor_queue::queue_only::Scope;
use stentor_records::civil::Zone;

use super::MailTotals;
use super::author::who;
use crate::causes::count_all;
use crate::find::pattern;
use crate::lists;
use crate::suggestions::unseen_domain;

/// Maximum scopes at a time, since some are compared with each message.
pub const QUEUE_ONLY_MAX: usize = 100;
/// Messages counted per hold of the lock.
const COUNTED_AT_ONCE: usize = 4_096;

/// Begins a scope, changes its end or reason, counts what it would keep now, or ends it.
pub async fn queue_only(
    core: &Arc<Core>,
    scope: Scope,
    is_on: bool,
    for_s: Option<u64>,
    dry_run: bool,
    reason: Option<String>,
    peer: &Requester,
) -> ControlReply {
    let scope = match named(core, scope, is_on) {
        Ok(scope) => scope,
        Err(problem) => return ControlReply::Error(problem),
    };
    let (what, subject, now) = (scope.to_string(), words(&scope), core.clock.now());
    let until = for_s.map_or(0, |s| now.saturating_add(s.saturating_mul(1_000)));
    let (before, count) = core.with(|hub, _| {
        let found = hub.store.queue_only().find(|(name, ..)| *name == what);
        (found.map(|(_, until, reason)| (until, reason.to_owned())), hub.store.queue_only().count())
    });
    if !is_on && before.is_none() {
        return ControlReply::error(ErrorCode::NotFound, not_by_command(core, &scope, &subject, now));
    }
    if is_on && before.is_none() && count >= QUEUE_ONLY_MAX {
        return ControlReply::error(
            ErrorCode::TooLarge,
            format!(
                "at most {QUEUE_ONLY_MAX} queue-only scopes are allowed at a \
            time"
            ),
        );
    }
    if dry_run {
        let settings = core.settings();
        let totals = count_where(core, |hub, _, message| covered(hub, &settings, &scope, message)).await;
        let (of, who) = (plural(totals.messages, "message"), plural(totals.recipients, "recipient"));
        let text = format!("would make {subject} queue-only: {who} of {of} now in the queue{}", hint(core, &scope));
        return counted(text, totals, 0, true);
    }
    let said = reason.clone().unwrap_or_default();
    if is_on && before == Some((until, said.clone())) {
        return ControlReply::done(format!("{subject} is already queue-only"), Some(0));
    }
    let mut detail = json!({"what": what, "reason": reason});
    if until > 0 {
        detail["until"] = instant(until, &Zone::utc()).into();
    } else if !is_on {
        detail["end"] = true.into();
    }
    let change =
        QueueChange::Suspend { suspended: is_on, what, until, reason: if is_on { said } else { String::new() } };
    if let Err(refused) = core
        .intake
        .verb(Audit { at: now, who: who(peer), verb: "queue_only", detail: detail.to_string() }, change)
        .await
    {
        return ControlReply::error(ErrorCode::Failed, format!("queue-only: {refused}"));
    }
    let text = if is_on {
        let end = if until > 0 { format!(" until {}", instant(until, &Zone::utc())) } else { String::new() };
        format!("{subject} is queue-only{end}{}", hint(core, &scope))
    } else {
        let settings = core.settings();
        let still = section_of(&settings, &scope, now);
        let still = still.map_or_else(String::new, |name| format!("; [queue_only.{name}] still makes it queue-only"));
        format!("{subject} is no longer queue-only by command{still}")
    };
    ControlReply::done(text, Some(1))
}

/// Tries the present queue once, or counts it.
pub async fn run(core: &Arc<Core>, dry_run: bool, reason: Option<String>, peer: &Requester) -> ControlReply {
    let census = count_all(core).await;
    let stopped = [Cause::Held, Cause::Suspended].map(|cause| (census.total.of(cause), cause.name()));
    let totals = MailTotals {
        messages: census.total.messages - census.stopped,
        recipients: census.total.recipients() - stopped[0].0 - stopped[1].0,
    };
    let all = plural(totals.recipients, "recipient");
    let kept: Vec<_> = stopped.iter().filter(|(count, _)| *count > 0).map(|(n, name)| format!("{n} {name}")).collect();
    let not = if kept.is_empty() { String::new() } else { format!("; not tried: {}", kept.join(", ")) };
    let kept = stopped[0].0 + stopped[1].0;
    if dry_run {
        return counted(format!("would try {all} once{not}"), totals, kept, true);
    }
    let detail = json!({"messages": totals.messages, "recipients": totals.recipients, "reason": reason}).to_string();
    let audit = Audit { at: core.clock.now(), who: who(peer), verb: "queue_run", detail };
    match core.intake.verb(audit, QueueChange::RunQueue).await {
        Ok(()) => counted(format!("trying {all} once{not}"), totals, kept, false),
        Err(refused) => ControlReply::error(ErrorCode::Failed, format!("queue run: {refused}")),
    }
}

/// The present queue-only scopes: by operators, then by the configuration.
pub fn views(hub: &Hub, settings: &Settings, now: Ms) -> Vec<QueueOnlyView> {
    let own = hub.store.queue_only().filter_map(|(name, until, reason)| {
        Some(QueueOnlyView::new(&Scope::of_name(name)?, Some(until).filter(|until| *until > 0), reason))
    });
    let configured = settings.queue_only(now).map(|(section, in_force)| {
        let until = if let InForce::Until(until) = in_force { Some(until) } else { None };
        let name = Some(section.name.clone());
        QueueOnlyView { section: name, ..QueueOnlyView::new(&section.scope, until, &section.reason) }
    });
    own.chain(configured).collect()
}

/// A hint for a domain that may be misspelt.
fn hint(core: &Arc<Core>, scope: &Scope) -> String {
    match scope {
        Scope::Domain(domain) => unseen_domain(core, domain),
        _ => String::new(),
    }
}

fn section_of<'a>(settings: &'a Settings, scope: &Scope, now: Ms) -> Option<&'a str> {
    settings.queue_only(now).find(|(section, _)| section.scope == *scope).map(|(section, _)| section.name.as_str())
}

fn not_by_command(core: &Core, scope: &Scope, subject: &str, now: Ms) -> String {
    match section_of(&core.settings(), scope, now) {
        Some(name) => {
            format!("{subject} is queue-only by [queue_only.{name}]: change the configuration, then `stentor reload`")
        }
        None => format!("{subject} is not queue-only; `stentor queue-only --show` lists what is"),
    }
}

/// Normalises a scope to the queue's forms. One to be ended may name something that no longer exists.
fn named(core: &Arc<Core>, scope: Scope, is_on: bool) -> Result<Scope, Problem> {
    let bad = |text: String| Problem::new(ErrorCode::BadRequest, text);
    Ok(match scope {
        Scope::List(list) => match lists::unknown(core, Some(&list)).filter(|_| is_on) {
            Some(problem) => return Err(problem),
            None => Scope::List(list),
        },
        Scope::Domain(domain) => {
            let name = domain.strip_prefix('@').unwrap_or(&domain);
            Scope::Domain(normalise_domain(name).map_err(|_| bad(format!("{domain:?} is not a domain")))?)
        }
        Scope::Sender(sender) if sender.is_empty() || sender.contains('@') => Scope::Sender(pattern(&sender)?),
        Scope::Sender(domain) => Scope::Sender(pattern(&format!("@{domain}"))?),
        Scope::Source(name) => {
            let settings = core.settings();
            let known: Vec<&str> = settings.config.sending.sources.iter().map(|source| source.name.as_str()).collect();
            if is_on && !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
                return Err(Problem::new(
                    ErrorCode::NotFound,
                    format!("no source {name:?} in [sources.NAME]: {known}"),
                ));
            }
            Scope::Source(name)
        }
        other => other,
    })
}

/// Pending recipients of a message that a scope covers.
fn covered(hub: &Hub, settings: &Settings, scope: &Scope, message: &Message) -> u64 {
    let envelope = message.envelope();
    let is_about = match scope {
        Scope::All => true,
        Scope::Class(class) => message.class() == *class,
        Scope::List(list) => envelope.list == Some(list),
        Scope::Domain(domain) => {
            let book = &hub.store.book;
            let at = |domain: DomainId| message.pending().intersection_len(book.addresses_of(domain));
            return book.domains_named(domain).map(at).sum::<usize>() as u64;
        }
        Scope::Sender(_) | Scope::Client(_) => scope.has_message(&envelope),
        Scope::Source(name) => settings.goes_only_from(name, envelope.list, envelope.sender),
    };
    if is_about { message.pending().len() as u64 } else { 0 }
}

/// Messages and recipients in the queue, counted in slices.
pub(super) async fn count_where(core: &Arc<Core>, recipients: impl Fn(&Hub, MessageNo, &Message) -> u64) -> MailTotals {
    let (mut first, until) = core.with(|hub, _| hub.store.number_bounds());
    let mut totals = MailTotals::default();
    while first != until {
        first = core.with(|hub, _| {
            let mut next = until;
            for (seen, (no, message)) in hub.store.messages_between(first, until).enumerate() {
                if seen == COUNTED_AT_ONCE {
                    next = no.0;
                    break;
                }
                let found = recipients(hub, no, message);
                totals.add(MailTotals { messages: u64::from(found > 0), recipients: found });
            }
            next
        });
        tokio::task::yield_now().await;
    }
    totals
}

fn counted(text: String, totals: MailTotals, kept: u64, dry_run: bool) -> ControlReply {
    ControlReply::Counted(Box::new(ActionResult {
        text,
        count: Some(totals.recipients),
        messages: Some(totals.messages),
        in_flight: Some(0),
        unchanged: Some(0),
        kept: Some(kept).filter(|kept| *kept > 0),
        dry_run: Some(dry_run),
        as_of: None,
    }))
}
