//! Operators' actions on mail: hold, release, remove, bounce, requeue, flush; suspensions, queue-only; and the export.
//!
//! Promise: each slice of an action is one batch of the journal: the audit record (who, when, the request, its result)
//! and the effect; it takes effect once the batch is durable, and not at all if it is refused. Slices are small (about
//! a thousand recipients), so that the queue's lock is never held for long, and an action on a million recipients lets
//! mail pass between its batches. `dry_run` is the same walk with nothing reserved and nothing written.
//!
//! States of a selected recipient: free -> reserved (under the lock of the walk) -> taken out (batch durable) or free
//! again (refused). In a transaction -> reserved, counted as `in_flight`; after the transaction the remaining
//! recipients are taken out by a separate batch ([`follow_up`]). This reservation is volatile: a restart drops it, and
//! the recipient is tried again.

mod address;
mod author;
mod cat;
mod export;
mod flush;
pub mod members;
mod queue_only;
mod standing_bounces;
mod subject;
mod suppressions;
mod suspend;
mod walk;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value};
use stentor_control::format::plural;
use stentor_control::selection::AsOf;
use stentor_control::{ActionResult, ControlReply, ErrorCode, Requester, Selection, Verb};
use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::hub::Hub;
use stentor_core::intake::IntakeRefusal;
use stentor_core::live::action::ActionNow;
use stentor_core::verb::QueueChange;
use stentor_delivery::by_operator;
use stentor_mail::reply::Enhanced;
use stentor_queue::event::Fate;
use stentor_queue::ids::{AddressId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_sched::FailedRcpt;

use self::subject::{still_queued, with_subject};
use self::walk::SelectedRecipients;
use crate::lists;

pub use address::{address, hosts_history};
pub use author::who;
pub use cat::cat;
pub use export::export;
pub use flush::flush;
pub use queue_only::{queue_only, run as run_queue, views as queue_only_views};
pub use standing_bounces::{bounce, views as standing_bounces};
pub use suppressions::answer as suppressions;
pub use suspend::{dry_run as suspend_dry_run, suspend};
pub(crate) use walk::RecipientFilter;
pub use walk::Walk;

/// Maximum recipients that one batch takes out, or tries now; also the maximum of one report.
const SLICE_RECIPIENTS_MAX: usize = 1_000;
/// Interval of checks of recipients that were in a transaction.
const FOLLOW_UP_PAUSE: Duration = Duration::from_millis(250);
/// The text of a bounce without a reason.
const REASON_DEFAULT: &str = "returned by the operator of the mail system";
/// Other undefined status, permanent (RFC 3463 3.1).
const DSN_BOUNCED: Enhanced = Enhanced::new(5, 0, 0);

/// Numbers of messages and of their recipients.
#[derive(Clone, Copy, Default)]
pub(crate) struct MailTotals {
    pub messages: u64,
    pub recipients: u64,
}

impl MailTotals {
    pub(crate) fn add(&mut self, other: MailTotals) {
        self.messages += other.messages;
        self.recipients += other.recipients;
    }
}

/// Recipients of one message.
type Part = (MessageNo, MessageId, IdSet);

/// A verb, with the data that its batches record.
struct Order {
    verb: Verb,
    who: String,
    /// Selectors and reason.
    asked: Map<String, Value>,
    reason: Arc<str>,
    /// The selection names recipients, although messages are held or released whole.
    has_others: bool,
    /// The standing bounce behind this action, by its name in the journal.
    standing: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    messages: u64,
    recipients: u64,
    in_flight: u64,
    /// Messages already in the requested state.
    unchanged: u64,
    /// Recipients that were selected themselves, out of `recipients`: a message is held or released whole.
    selected: u64,
    /// Held, suspended or queue-only recipients, which are not tried.
    kept: u64,
}

/// The result of one slice of the walk.
#[derive(Default)]
struct Slice {
    parts: Vec<Part>,
    in_flight: Vec<Part>,
    sum: Sum,
}

/// Carries out a verb, or counts what it would do.
pub async fn act(
    core: &Arc<Core>,
    verb: Verb,
    selection: &Selection,
    dry_run: bool,
    reason: Option<String>,
    peer: &Requester,
) -> ControlReply {
    let who = who(peer);
    let reply = carry_out(core, verb, None, selection, dry_run, reason, &who).await;
    if let (ControlReply::Counted(counted), false) = (&reply, dry_run) {
        let [messages, recipients, in_flight] =
            [counted.messages, counted.count, counted.in_flight].map(Option::unwrap_or_default);
        tracing::info!(who, verb = verb.name(), messages, recipients, in_flight, "operator");
    }
    if let ControlReply::Counted(counted) = &reply
        && counted.matches_nothing()
        && let Some(problem) = lists::unknown(core, selection.list.as_deref())
    {
        return ControlReply::Error(problem);
    }
    reply
}

/// As [`act`], in the name of `who`, with any number of matches; a bounce may belong to a standing one.
async fn carry_out(
    core: &Arc<Core>,
    verb: Verb,
    standing: Option<String>,
    selection: &Selection,
    dry_run: bool,
    reason: Option<String>,
    who: &str,
) -> ControlReply {
    let mut asked = selection.to_json();
    // An internal detail of the request.
    asked.remove("as_of");
    if let Some(reason) = &reason {
        asked.insert("reason".to_owned(), reason.as_str().into());
    }
    let reason = reason.as_deref().unwrap_or(REASON_DEFAULT).into();
    let is_whole = matches!(verb, Verb::Hold | Verb::Release);
    let has_others = is_whole && (selection.recipient.is_some() || selection.site.is_some());
    let order = Order { verb, who: who.to_owned(), asked, reason, has_others, standing };
    // If messages have unselected recipients, all selected ones must be counted.
    let mut walk = match Walk::begin(core, selection, is_whole && !has_others) {
        Ok(walk) => walk,
        Err(problem) => return ControlReply::Error(problem),
    };
    let (mut sum, mut later, mut changing) = (Sum::default(), Vec::new(), None);
    let under_way = (!dry_run).then(|| {
        let (who, since) = (who.to_owned(), core.clock.now());
        core.live.action.begin(ActionNow { verb: verb.name(), who, since, recipients: 0 })
    });
    loop {
        let (slice, is_last) = match &selection.subject {
            None => core.with(|hub, now| {
                let (found, is_last) = walk.step(hub, SLICE_RECIPIENTS_MAX);
                (order.slice(hub, found, &mut changing, dry_run, now), is_last)
            }),
            Some(text) => {
                let (found, is_last) = core.with(|hub, _| walk.step(hub, SLICE_RECIPIENTS_MAX));
                let found = with_subject(core, text, found).await;
                let slice = core.with(|hub, now| {
                    let found = still_queued(hub, found);
                    order.slice(hub, found, &mut changing, dry_run, now)
                });
                (slice, is_last)
            }
        };
        if !dry_run
            && !slice.parts.is_empty()
            && let Err(refused) = order.commit(core, slice.parts, slice.sum).await
        {
            give_up(core, &slice.in_flight);
            order.follow_up_spawned(core, later);
            let done = sum.recipients;
            let text = format!("{}: {refused}; stopped after {done} recipients", verb.name());
            return ControlReply::error(ErrorCode::Failed, text);
        }
        sum.messages += slice.sum.messages;
        sum.recipients += slice.sum.recipients;
        sum.in_flight += slice.sum.in_flight;
        sum.unchanged += slice.sum.unchanged;
        sum.selected += slice.sum.selected;
        sum.kept += slice.sum.kept;
        if let Some(under_way) = &under_way {
            under_way.set_recipients(sum.recipients + sum.in_flight);
            later.extend(slice.in_flight);
        }
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    let reply = order.reply(sum, dry_run.then(|| walk.as_of()));
    order.follow_up_spawned(core, later);
    reply
}

impl Order {
    /// Determines, under the lock, which of the found recipients the verb applies to, and reserves them. `changing` is
    /// the last message held or released.
    fn slice(
        &self,
        hub: &mut Hub,
        found: Vec<SelectedRecipients>,
        changing: &mut Option<MessageNo>,
        dry_run: bool,
        now: Ms,
    ) -> Slice {
        let mut slice = Slice::default();
        for SelectedRecipients { no, id, ids, continued } in found {
            if let Verb::Hold | Verb::Release = self.verb {
                let Some(message) = hub.store.message(no) else { continue };
                if !continued {
                    let is_changed = message.is_held() != (self.verb == Verb::Hold);
                    *changing = is_changed.then_some(no);
                    slice.sum.unchanged += u64::from(!is_changed);
                    if is_changed {
                        slice.sum.messages += 1;
                        slice.sum.recipients += message.pending().len() as u64;
                        slice.parts.push((no, id, IdSet::new()));
                    }
                }
                if *changing == Some(no) {
                    slice.sum.selected += ids.len() as u64;
                }
                continue;
            }
            let mut ids = ids;
            if self.verb == Verb::Requeue {
                let kept: IdSet = ids.iter().filter(|id| is_kept(hub, no, *id, now)).collect();
                slice.sum.kept += kept.len() as u64;
                ids.subtract(&kept);
                if ids.is_empty() {
                    continue;
                }
            }
            let (free, in_flight) = hub.sched.removable(no, &ids);
            let found = free.len() + in_flight.len();
            slice.sum.messages += u64::from(!continued && found > 0);
            slice.sum.unchanged += u64::from(!continued && found == 0);
            slice.sum.recipients += free.len() as u64;
            slice.sum.in_flight += in_flight.len() as u64;
            let takes_out = matches!(self.verb, Verb::Remove | Verb::Bounce);
            for (ids, parts) in [(free, &mut slice.parts), (in_flight, &mut slice.in_flight)] {
                if ids.is_empty() {
                    continue;
                }
                if takes_out && !dry_run {
                    hub.sched.reserve(no, &ids);
                }
                parts.push((no, id, ids));
            }
        }
        if self.verb == Verb::Requeue {
            // They are being tried now.
            slice.in_flight.clear();
        }
        slice
    }

    async fn commit(&self, core: &Arc<Core>, parts: Vec<Part>, sum: Sum) -> Result<(), IntakeRefusal> {
        let all = |parts: Vec<Part>| parts.into_iter().map(|(_, id, ids)| (id, ids)).collect();
        let change = match self.verb {
            Verb::Hold | Verb::Release => {
                let messages = parts.into_iter().map(|(_, id, _)| id).collect();
                QueueChange::Hold { held: self.verb == Verb::Hold, messages }
            }
            Verb::Remove => QueueChange::Settle { fate: Fate::Removed, recipients: all(parts) },
            Verb::Requeue => QueueChange::TryNow { recipients: all(parts) },
            Verb::Bounce => return self.bounce(core, parts).await,
            // These do not concern the queue.
            Verb::QuarantineRelease | Verb::QuarantineDelete | Verb::Resend => return Ok(()),
        };
        core.intake.verb(self.audit(core, sum.messages, sum.recipients), change).await
    }

    /// Sends a report for each message; messages share batches.
    async fn bounce(&self, core: &Arc<Core>, parts: Vec<Part>) -> Result<(), IntakeRefusal> {
        let mut reports = tokio::task::JoinSet::new();
        for (no, id, ids) in parts {
            let failures: Vec<FailedRcpt> = ids.iter().map(|id| self.failure(AddressId(id))).collect();
            let recipients = failures.len() as u64;
            let (core, audit, stands) = (core.clone(), self.audit_of(core, id, recipients), self.standing.is_some());
            reports.spawn(async move {
                let done = by_operator(&core, no, failures, audit).await;
                if stands && done.is_ok() {
                    core.counters.standing_bounced.fetch_add(recipients, Ordering::Relaxed);
                }
                done
            });
        }
        let mut result = Ok(());
        while let Some(report) = reports.join_next().await {
            result = result.and(report.unwrap_or(Err(IntakeRefusal::Stopping)));
        }
        result
    }

    fn failure(&self, id: AddressId) -> FailedRcpt {
        FailedRcpt { id, expired: false, dsn: DSN_BOUNCED, code: 0, text: self.reason.clone(), host: None }
    }

    fn audit(&self, core: &Core, messages: u64, recipients: u64) -> Audit {
        self.audit_with(core, self.asked.clone(), messages, recipients)
    }

    /// The audit record of one message's batch. It contains only this message's id: thousands of requested ids in each
    /// of thousands of batches would exceed the mail.
    fn audit_of(&self, core: &Core, id: MessageId, recipients: u64) -> Audit {
        let mut detail = Map::new();
        for (name, value) in &self.asked {
            let value = if name == "id" { id.to_string().into() } else { value.clone() };
            detail.insert(name.clone(), value);
        }
        self.audit_with(core, detail, 1, recipients)
    }

    fn audit_with(&self, core: &Core, mut detail: Map<String, Value>, messages: u64, recipients: u64) -> Audit {
        detail.insert("messages".to_owned(), messages.into());
        detail.insert("recipients".to_owned(), recipients.into());
        Audit {
            at: core.clock.now(),
            who: self.who.clone(),
            verb: self.verb.name(),
            detail: Value::Object(detail).to_string(),
        }
    }

    /// `counted`: set after a dry run, with the queue state that was counted.
    fn reply(&self, sum: Sum, counted: Option<AsOf>) -> ControlReply {
        let Sum { messages, recipients, in_flight, unchanged, selected, kept } = sum;
        let name = self.verb.name();
        let would = if counted.is_some() { "would " } else { "" };
        let (of, who) = (plural(messages, "message"), plural(recipients, "recipient"));
        let mut text = format!("{would}{name}: {who} of {of}");
        let others = recipients.saturating_sub(selected);
        if self.has_others && others > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, ", including {others} not selected: whole messages are {}", whole(self.verb));
        }
        if unchanged > 0 {
            let what = match self.verb {
                Verb::Hold => "already held",
                Verb::Release => "not held",
                _ => "about to bounce",
            };
            // Writing to a String cannot fail.
            let _ = write!(text, "; {} {what}", plural(unchanged, "message"));
        }
        if kept > 0 {
            let _ = write!(text, "; not tried: {kept} held, suspended or queue-only");
        }
        if in_flight > 0 {
            let what = match self.verb {
                Verb::Remove => "removed when it ends, unless it delivers them",
                Verb::Bounce => "bounced when it ends, unless it delivers them",
                _ => "tried now",
            };
            let verb = if in_flight == 1 { "is" } else { "are" };
            let _ = write!(text, "; {in_flight} more {verb} in a transaction and {verb} {what}");
        }
        ControlReply::Counted(Box::new(ActionResult {
            text,
            count: Some(recipients),
            messages: Some(messages),
            in_flight: Some(in_flight),
            unchanged: Some(unchanged),
            kept: Some(kept).filter(|kept| *kept > 0),
            dry_run: Some(counted.is_some()),
            as_of: counted,
        }))
    }

    fn follow_up_spawned(self, core: &Arc<Core>, later: Vec<Part>) {
        if !later.is_empty() {
            tokio::spawn(follow_up(core.clone(), self, later));
        }
    }
}

fn is_kept(hub: &Hub, no: MessageNo, id: u32, now: Ms) -> bool {
    hub.sched.kept_cause(&hub.store, no, AddressId(id), now).is_some()
}

fn whole(verb: Verb) -> &'static str {
    if verb == Verb::Hold { "held" } else { "released" }
}

/// Ends reservations whose verb was refused.
fn give_up(core: &Arc<Core>, parts: &[Part]) {
    core.with(|hub, now| {
        for (_, id, ids) in parts {
            if let Some(no) = hub.store.no_of(*id) {
                hub.sched.unreserve(&hub.store, no, ids, now);
            }
        }
    });
}

/// Takes out recipients whose transactions have ended since, unless they were delivered.
async fn follow_up(core: Arc<Core>, order: Order, mut later: Vec<Part>) {
    while !later.is_empty() {
        tokio::time::sleep(FOLLOW_UP_PAUSE).await;
        // The operator ended the standing bounce: recipients in flight are left alone.
        if order.standing.as_ref().is_some_and(|name| core.with(|hub, _| !hub.store.is_suspended(name))) {
            return give_up(&core, &later);
        }
        let mut ended = Vec::new();
        for chunk in std::mem::take(&mut later).chunks(SLICE_RECIPIENTS_MAX) {
            core.with(|hub, _| {
                for (no, id, ids) in chunk {
                    let Some(message) = hub.store.message(*no).filter(|message| message.id() == *id) else { continue };
                    let free = hub.sched.reserve_free(&hub.store, *no, ids);
                    let mut rest = message.pending().intersection(ids);
                    rest.subtract(&free);
                    for (ids, parts) in [(free, &mut ended), (rest, &mut later)] {
                        if !ids.is_empty() {
                            parts.push((*no, *id, ids));
                        }
                    }
                }
            });
        }
        for chunk in slices(ended) {
            let recipients = chunk.iter().map(|(.., ids)| ids.len() as u64).sum();
            let sum = Sum { messages: chunk.len() as u64, recipients, ..Sum::default() };
            if order.commit(&core, chunk.clone(), sum).await.is_err() {
                // The refusal ended their reservation.
                core.with(|hub, _| {
                    for (no, _, ids) in &chunk {
                        let ids = hub.store.message(*no).map_or_else(IdSet::new, |m| m.pending().intersection(ids));
                        hub.sched.reserve(*no, &ids);
                    }
                });
                later.extend(chunk);
            }
        }
    }
}

/// Groups parts by about a slice's recipients: one transaction has few.
fn slices(parts: Vec<Part>) -> Vec<Vec<Part>> {
    let mut groups: Vec<Vec<Part>> = Vec::new();
    let mut room = 0;
    for part in parts {
        let len = part.2.len();
        match groups.last_mut() {
            Some(group) if len <= room => group.push(part),
            _ => {
                groups.push(vec![part]);
                room = SLICE_RECIPIENTS_MAX.max(len);
            }
        }
        room = room.saturating_sub(len);
    }
    groups
}
