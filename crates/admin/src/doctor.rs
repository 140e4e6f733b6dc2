//! `stentor doctor` of a running server: the problems that it finds, and what to do.
//!
//! Promise: from memory, as all answers; each finding is one that an operator can act on, or a reason why mail waits.
//! Problems known to the health model are reported once and in its words: as a condition, or as a state that has not
//! yet lasted long enough for one. The command itself checks the disk of a stopped server (`stentor doctor` without a
//! server).

use std::sync::Arc;

use stentor_control::doctor::{Doctor, FAST_SYNCS, Finding, Severity};
use stentor_control::format::{grouped, plural, resume_command, span};
use stentor_control::{CauseRow, SiteRow, Status, causes as rows};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_core::limits::Limit;
use stentor_core::live::health::{Evidence, Name, Observation};
use stentor_queue::cause::Cause;
use stentor_queue::ids::{DomainId, Ms};
use stentor_records::health::Condition;
use stentor_sched::{CauseCounts, WaitingPlace};

use crate::causes::{self, Censuses, SitesNow};
use crate::depth;

/// Maximum sites named.
const SITES_NAMED: usize = 5;
/// A site is named if its oldest message is this old, or if this much of the queue waits there.
const STUCK_MS: Ms = 10 * 60_000;
const STUCK_SHARE: f64 = 0.2;
/// A site is named after this many failures in a row, however young its mail is.
const FAILURES: u8 = 3;
/// Limits hit longer ago are not reported.
const LIMITS_MS: Ms = 3_600_000;
/// Maximum characters shown of an operator's reason.
const REASON_CHARS_MAX: usize = 200;
/// A cause is growing if it has gained this many recipients, and by this factor.
const GROWN_MIN: u64 = 100;
const GROWN_TIMES: u64 = 2;
/// Look-ups are failing in general if this many recipients are affected, and this share of all.
const LOOK_UPS_MIN: u64 = 10;
/// Fewer domains than this have problems with their own DNS.
const LOOK_UP_DOMAINS_MIN: usize = 3;
const LOOK_UPS_FAILED: f64 = 0.3;
/// A medium that really stores data hardly syncs faster than this, in µs.
const SYNC_US_MIN: u64 = 10;
const SYNCS_MIN: u64 = 5;

/// The findings; see the module's documentation.
pub async fn examine(core: &Arc<Core>, censuses: &Arc<Censuses>, status: &Status) -> Doctor {
    let now = SitesNow::get(core, censuses).await;
    let total = now.counted.as_ref().map(|counted| &counted.census.total);
    let causes = core.with(|hub, at| causes::rows(hub, total, at));
    let mut found = Vec::new();
    conditions(core, &status.health, &mut found);
    disk(core, &mut found);
    let domains = total.map_or(0, |_| failed_look_ups(&now));
    let is_named = names(core, &causes, domains, &mut found);
    sites(core, &now, status, is_named, &mut found).await;
    growing(censuses, &mut found);
    limits(core, status, &mut found);
    others(core, status, &mut found);
    found.push(Finding::new(Severity::Fine, waiting(&causes, status), ""));
    found.sort_by_key(|finding| finding.severity);
    Doctor { hostname: status.hostname.clone(), now: status.now, findings: found }
}

/// The health conditions, as in all views; then faulty states that have not yet lasted long enough for a condition.
fn conditions(core: &Arc<Core>, conditions: &[Condition], found: &mut Vec<Finding>) {
    found.extend(conditions.iter().map(|condition| {
        let severity = condition.severity.into();
        let what =
            if condition.refuses_mail { format!("refusing mail: {}", condition.what) } else { condition.what.clone() };
        let (name, subject) = (condition.name.clone(), condition.subject.clone());
        Finding { condition: name, subject, ..Finding::new(severity, what, condition.next.clone()) }
    }));
    let states = crate::health::states(core).into_iter().filter(|state| state.evidence == Evidence::Holds);
    for Observation { name, subject, words, .. } in states {
        let is_it = |finding: &Finding| finding.condition == name.as_str() && finding.subject == subject;
        if !found.iter().any(is_it) {
            let finding = Finding::new(name.severity().into(), words.what, words.next);
            found.push(Finding { condition: name.as_str().to_owned(), subject, ..finding });
        }
    }
}

/// Whether a condition already reports it.
fn is_said(found: &[Finding], name: Name) -> bool {
    found.iter().any(|finding| finding.condition == name.as_str())
}

/// All causes, largest first.
fn waiting(causes: &[CauseRow], status: &Status) -> String {
    let rows = rows::most_first(causes);
    let causes: Vec<_> = rows.iter().map(|row| format!("{} {}", grouped(row.recipients), row.words)).collect();
    let is_counting = causes.is_empty() && status.recipients.pending > 0;
    match causes.as_slice() {
        [] if is_counting => {
            format!("{} waiting; causes are still being counted", plural(status.recipients.pending, "recipient"))
        }
        [] => format!("{} waiting", plural(status.recipients.pending, "recipient")),
        // The sum of the rows below, not of an earlier moment.
        causes => {
            let sum = rows.iter().map(|row| row.recipients).sum();
            format!("{} waiting: {}", plural(sum, "recipient"), causes.join(", "))
        }
    }
}

/// A medium that answers a sync before the data are safe loses acknowledged mail when power fails.
fn disk(core: &Arc<Core>, found: &mut Vec<Finding>) {
    let syncs = core.live.syncs.us.read().percentiles();
    if syncs.count >= SYNCS_MIN && syncs.p50 < SYNC_US_MIN {
        let what = format!(
            "the disk confirms writes at once: half of the syncs took less than {SYNC_US_MIN} us, as with a write \
             cache, a virtual disk or a file system in memory; a power cut may lose acknowledged mail"
        );
        let next = "ask whoever runs the disk or the virtual machine's host whether a battery or capacitors protect its \
            cache; if so, do nothing; if not, turn the cache off or move data_dir to a disk that stores data before it \
            answers; `stentor-kit probe` measures a disk";
        found.push(Finding { id: FAST_SYNCS.to_owned(), ..Finding::new(Severity::Warning, what, next) });
    }
}

/// Number of domains whose mail waits for a failed look-up.
fn failed_look_ups(places: &SitesNow) -> usize {
    let has_failed =
        |domain: &DomainId| places.at(WaitingPlace::Domain(*domain)).is_some_and(|counts| counts.of(Cause::Dns) > 0);
    places.unresolved.iter().filter(|(_, domain)| has_failed(domain)).count()
}

/// Reports look-ups that fail for so many domains that each need not be named. One domain's failure is its own, however
/// much waits there, unless no look-up at all is answered.
fn names(core: &Arc<Core>, causes: &[CauseRow], domains: usize, found: &mut Vec<Finding>) -> bool {
    let counters = core.resolver().counters();
    let failed = causes.iter().find(|row| row.cause() == Cause::Dns).map_or(0, |row| row.recipients);
    // The sum of the same count.
    let pending: u64 = causes.iter().map(|row| row.recipients).sum();
    let are_several = domains >= LOOK_UP_DOMAINS_MIN || counters.unanswered > 0;
    let are_many = are_several && failed >= LOOK_UPS_MIN && failed as f64 >= pending as f64 * LOOK_UPS_FAILED;
    // The condition already explains every failed look-up.
    if is_said(found, Name::Dns) {
        return true;
    }
    if are_many {
        let what = format!("{} of {} recipients wait because DNS lookups fail", grouped(failed), grouped(pending));
        let next = "check `[dns] servers` (by default /etc/resolv.conf), and that they can be reached from here";
        found.push(Finding::new(Severity::Problem, what, next));
    } else if counters.unanswered > 0 {
        let what = format!(
            "no name server has answered since the server started ({})",
            plural(counters.unanswered, "question")
        );
        let next = "check `[dns] servers` (by default /etc/resolv.conf), and that they can be reached from here";
        found.push(Finding::new(Severity::Warning, what, next));
    } else if counters.unresolved > 0 {
        let what = format!("no domain has resolved since the server started ({} tried)", grouped(counters.unresolved));
        let next = "if one of them exists, `[dns] servers` (by default /etc/resolv.conf) is wrong; a lab also needs \
            `[dns] loopback_allowed`";
        found.push(Finding::new(Severity::Warning, what, next));
    }
    are_many
}

/// Examines every site, however small.
async fn sites(core: &Arc<Core>, places: &SitesNow, status: &Status, is_named: bool, found: &mut Vec<Finding>) {
    let (now, pending) = (status.now, status.recipients.pending);
    let is_stuck = |hub: &Hub, at: WaitingPlace, counts: &CauseCounts| {
        // Full mailboxes and greylisting are usual at any site.
        let is_usual = |cause: Cause| matches!(cause, Cause::MailboxFull | Cause::Mailbox | Cause::Greylisted);
        // Regardless of mail there that is held or on its way.
        let has_failed = counts.causes.iter().any(|count| count.cause.has_failed() && !is_usual(count.cause));
        if !has_failed || is_named && matches!(at, WaitingPlace::Domain(_)) {
            return false;
        }
        let waiting = counts.recipients();
        depth::oldest(hub, counts).is_some_and(|at| at + STUCK_MS < now)
            || waiting as f64 >= pending as f64 * STUCK_SHARE && waiting >= GROWN_MIN
            || hub.sched.failures_at(at) >= FAILURES
    };
    let (stuck, total) = depth::judged(core, places, SITES_NAMED, is_stuck).await;
    for SiteRow { site, causes, oldest, action, .. } in stuck {
        let age =
            oldest.map_or_else(String::new, |at| format!(", the oldest message {} old", span(now.saturating_sub(at))));
        let Some(main) = rows::main(&causes) else { continue };
        let what = format!("{site}: {} stuck, {}{age}", plural(main.recipients, "recipient"), main.words);
        found.push(Finding::new(Severity::Warning, what, action));
    }
    if let Some(more) = total.checked_sub(SITES_NAMED as u64).filter(|more| *more > 0) {
        let what = format!("{} also stuck", plural(more, "more site"));
        found.push(Finding::new(Severity::Warning, what, "`stentor stuck` lists them"));
    }
}

fn growing(censuses: &Censuses, found: &mut Vec<Finding>) {
    let Some((then, now)) = censuses.growth() else { return };
    for cause in Cause::ALL.into_iter().filter(|cause| cause.has_failed()) {
        let (before, after) = (then.1[cause as usize], now.1[cause as usize]);
        if after >= before + GROWN_MIN && after >= before * GROWN_TIMES {
            let ago = span(now.0.saturating_sub(then.0));
            let what = format!("{}: {} recipients, {} {ago} ago", cause.words(), grouped(after), grouped(before));
            found.push(Finding::new(
                Severity::Warning,
                what,
                "`stentor queue` lists the sites, `stentor stuck` the recipients",
            ));
        }
    }
}

fn limits(core: &Arc<Core>, status: &Status, found: &mut Vec<Finding>) {
    let up = span(status.now.saturating_sub(status.started));
    for limit in Limit::ALL {
        let (hits, ago) = (core.limits.hits(*limit), status.now.saturating_sub(core.limits.hit_at(*limit)));
        if is_recent(core, *limit, status.now) && !condition_of(*limit).is_some_and(|name| is_said(found, name)) {
            let by = core.limits.last_by(*limit).map_or_else(String::new, |by| format!(" by {by}"));
            let what =
                format!("limit {} hit {} in {up}, last {} ago{by}", limit.name(), plural(hits, "time"), span(ago));
            found.push(Finding::new(Severity::Warning, what, limit.remedy().to_string()));
        }
    }
}

fn is_recent(core: &Core, limit: Limit, now: Ms) -> bool {
    core.limits.hits(limit) > 0 && now.saturating_sub(core.limits.hit_at(limit)) <= LIMITS_MS
}

/// The condition that reports this limit.
fn condition_of(limit: Limit) -> Option<Name> {
    match limit {
        Limit::Connections | Limit::SubmissionConnections => Some(Name::ConnectionsFull),
        Limit::DiskReserve => Some(Name::DiskFull),
        Limit::AddressBook => Some(Name::AddressBookFull),
        Limit::MemoryGroup => Some(Name::MemoryFull),
        Limit::LogBuffer => Some(Name::Log),
        Limit::History => Some(Name::History),
        _ => None,
    }
}

/// Shortens a reason; the view escapes it.
fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

fn others(core: &Arc<Core>, status: &Status, found: &mut Vec<Finding>) {
    let are_records_said = [Name::Log, Name::History].iter().any(|name| is_said(found, *name))
        || [Limit::LogBuffer, Limit::History].iter().any(|limit| is_recent(core, *limit, status.now));
    let mut warn = |what: String, next: &str| found.push(Finding::new(Severity::Warning, what, next));
    if status.suspended_total > 0 {
        let named = |what: &String| match status.suspended_reasons.get(what) {
            Some(reason) => format!("{what} ({})", shortened(reason)),
            None => what.clone(),
        };
        let named = status.suspended.iter().take(SITES_NAMED).map(named).collect::<Vec<_>>().join(", ");
        let ends = status.suspended.first().and_then(|what| resume_command(what));
        let next =
            ends.map_or_else(String::new, |command| format!("`{command}`; `stentor status` lists all such commands"));
        warn(format!("{} suspended: {named}", status.suspended_total), &next);
    }
    if !status.restart_pending.is_empty() {
        let what = format!("a restart is pending for changed keys: {}", status.restart_pending.join(", "));
        warn(what, "restart the server; until then it uses the old values");
    }
    for bounce in &status.standing_bounces {
        let end = span(bounce.until.saturating_sub(status.now));
        let command = format!("`{}`, or wait until it ends", bounce.end_command());
        let reason = shortened(&bounce.reason);
        warn(format!("{} is bounced for another {end}: {reason}", bounce.words()), &command);
        // A site's name is that of its MX hosts.
        let is_empty = |site: &String| {
            core.with(|hub, _| {
                // An unknown site was not looked up yet.
                hub.sched.site_named(site).is_some_and(|site| hub.sched.domains_at(site).next().is_none())
            })
        };
        if bounce.site.as_ref().is_some_and(is_empty) {
            let what = format!("the standing bounce of {} matches no mail: the site serves no domain", bounce.words());
            let next = "if MX records have changed, bounce by domain: `stentor bounce --recipient @DOMAIN --for 2h`";
            warn(what, next);
        }
    }
    for view in &status.queue_only {
        let end =
            view.until.map_or_else(String::new, |at| format!(" for another {}", span(at.saturating_sub(status.now))));
        let reason = shortened(&view.reason);
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        let next = format!("`stentor queue run` tries it once; {} ends it", view.end());
        warn(format!("{} is queue-only{end}{reason}", view.words()), &next);
    }
    if status.submissions_oldest.is_some_and(|at| at + STUCK_MS < status.now) {
        let next = "the log shows why each was deferred; they are retried automatically, and returned to their \
            senders after `[retry] lifetime_s`";
        warn(status.submissions_in_words(), next);
    }
    if status.log_lines_lost + status.history_lost > 0 && !are_records_said {
        let (lines, records) =
            (plural(status.log_lines_lost, "log line"), plural(status.history_lost, "history record"));
        warn(format!("{lines} and {records} lost"), "use a faster disk or log target");
    }
}
