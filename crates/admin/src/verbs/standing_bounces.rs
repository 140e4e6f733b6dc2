//! `bounce --for`: waiting and arriving mail for a site, a list, a sender or a recipient's domain is bounced for a
//! time.
//!
//! Promise: durable with its audit record before it applies; it survives a restart and expires
//! (`stentor_delivery::resume_when_over`). Waiting mail is bounced by the same action as without a time, in the
//! same slices. For arriving mail, and mail whose retry clock ends, the scheduler reports a failure instead of an
//! attempt (`stentor_sched`); it bounces like a permanent refusal. Either way each recipient has one fate, durable with
//! its report, and no report is bounced. Mail that could not be bounced at once (the journal refused its batch) is
//! bounced when its clock ends.

use std::sync::Arc;

use serde_json::Value;
use stentor_control::format::{instant, quoted};
use stentor_control::problem::Problem;
use stentor_control::{BounceTerm, ControlReply, ErrorCode, Requester, Selection, StandingBounceView, Verb};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::verb::QueueChange;
use stentor_queue::ids::Ms;
use stentor_queue::standing_bounces::StandingBounce;
use stentor_records::civil::Zone;

use super::author::who;
use super::suspend::never_seen;
use super::{REASON_DEFAULT, carry_out};
use crate::find::pattern;
use crate::{lists, site, suggestions};

/// Maximum standing bounces at a time: each is compared with all arriving mail.
pub const STANDING_MAX: usize = 100;

/// Begins a standing bounce, changes its end or reason, counts what it would bounce now, or ends it.
pub async fn bounce(
    core: &Arc<Core>,
    selection: &Selection,
    standing: BounceTerm,
    dry_run: bool,
    reason: Option<String>,
    peer: &Requester,
) -> ControlReply {
    let begins = standing != BounceTerm::End;
    let bounce = match named(core, selection, begins).await {
        Ok(bounce) => bounce,
        Err(problem) => return ControlReply::Error(problem),
    };
    let now = core.clock.now();
    let until = match standing {
        BounceTerm::For(for_s) => now.saturating_add(for_s.saturating_mul(1_000)),
        BounceTerm::End => 0,
    };
    let (name, view) = (bounce.to_string(), StandingBounceView::new(bounce, until, ""));
    let (is_there, count) = core.with(|hub, _| (hub.store.is_suspended(&name), hub.store.standing_bounces().count()));
    if !begins && !is_there {
        let text = format!("{} has no standing bounce; `stentor bounce --show` lists them", view.words());
        return ControlReply::error(ErrorCode::NotFound, text);
    }
    if begins && !is_there && count >= STANDING_MAX {
        return ControlReply::error(ErrorCode::TooLarge, format!("there are already {STANDING_MAX} standing bounces"));
    }
    let (who, selection) = (who(peer), view.selection());
    if dry_run {
        return match carry_out(core, Verb::Bounce, None, &selection, true, reason, &who).await {
            ControlReply::Counted(mut counted) => {
                counted.text = format!("{}: {}", view.words(), counted.text);
                ControlReply::Counted(counted)
            }
            other => other,
        };
    }
    let text = reason.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| REASON_DEFAULT.to_owned());
    let change = QueueChange::Suspend {
        suspended: begins,
        what: name.clone(),
        until,
        reason: if begins { text } else { String::new() },
    };
    let audit = audit(&selection, reason.as_deref(), now, who.clone(), until);
    if let Err(refused) = core.intake.verb(audit, change).await {
        return ControlReply::error(ErrorCode::Failed, format!("bounce: {refused}"));
    }
    if !begins {
        return ControlReply::done(format!("{} is no longer bounced", view.words()), Some(1));
    }
    let text = format!("{} is bounced until {}", view.words(), instant(until, &Zone::utc()));
    match carry_out(core, Verb::Bounce, Some(name), &selection, false, reason, &who).await {
        ControlReply::Counted(mut counted) => {
            let done = counted.text.strip_prefix("bounce: ").unwrap_or(&counted.text);
            counted.text = format!("{text}; bounced now: {done}");
            ControlReply::Counted(counted)
        }
        ControlReply::Error(problem) => {
            let text = format!("{text}; waiting mail is not bounced yet, but will be: {}", problem.text);
            ControlReply::error(ErrorCode::Failed, text)
        }
        other => other,
    }
}

/// The standing bounces in force.
pub fn views(hub: &Hub) -> Vec<StandingBounceView> {
    let all = hub.store.standing_bounces();
    all.filter_map(|(name, until, reason)| Some(StandingBounceView::new(StandingBounce::of_name(name)?, until, reason)))
        .collect()
}

/// Normalises the selection to the queue's forms. One to be ended may name something that no longer exists.
async fn named(core: &Arc<Core>, selection: &Selection, begins: bool) -> Result<StandingBounce, Problem> {
    if let Some(problem) = lists::unknown(core, selection.list.as_deref()).filter(|_| begins) {
        return Err(problem);
    }
    let site = match &selection.site {
        None => None,
        // A standing bounce keeps the name it was begun with, whatever that resolves to by now.
        Some(name) if stands_at(core, name) => Some(name.clone()),
        Some(name) => Some(match core.with(|hub, _| site::find(hub, name)) {
            Some((_, key)) => key.to_string(),
            None if !begins => name.clone(),
            None => {
                let instead = format!(
                    "to bounce its mail: `stentor bounce --recipient {} --for 1d`",
                    quoted(&format!("@{name}"))
                );
                never_seen(core, name, suggestions::unknown_site(core, name), &instead).await?
            }
        }),
    };
    let sender = match selection.sender.as_deref() {
        None => None,
        Some(domain) if !domain.is_empty() && !domain.contains('@') => Some(pattern(&format!("@{domain}"))?),
        Some(text) => Some(pattern(text)?),
    };
    let domain = match selection.recipient.as_deref().map(pattern).transpose()? {
        None => None,
        Some(wanted) => Some(
            wanted
                .strip_prefix('@')
                .map(str::to_owned)
                .ok_or_else(|| Problem::new(ErrorCode::BadRequest, "name a recipient's domain: @domain"))?,
        ),
    };
    Ok(StandingBounce { site, list: selection.list.clone(), domain, sender })
}

fn stands_at(core: &Arc<Core>, site: &str) -> bool {
    core.with(|hub, _| views(hub).iter().any(|view| view.site.as_deref() == Some(site)))
}

fn audit(selection: &Selection, reason: Option<&str>, at: Ms, who: String, until: Ms) -> Audit {
    let mut detail = selection.to_json();
    if let Some(reason) = reason {
        detail.insert("reason".to_owned(), reason.into());
    }
    if until > 0 {
        detail.insert("until".to_owned(), instant(until, &Zone::utc()).into());
    } else {
        detail.insert("end".to_owned(), true.into());
    }
    Audit { at, who, verb: Verb::Bounce.name(), detail: Value::Object(detail).to_string() }
}
