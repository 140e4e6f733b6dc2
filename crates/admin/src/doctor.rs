//! `stentor doctor` of a running server: what it finds wrong with itself, and what to do.
//!
//! Promise: from memory, as all answers, but for one connection to Dovecot's socket; each finding is one that an operator can act on, or a reason why mail waits. What
//! belongs to the disk at rest is looked at by the command (`stentor doctor` without a server).

use std::sync::Arc;
use std::time::Duration;

use stentor_config::AuthSource;
use stentor_control::doctor::{Doctor, Finding, Severity};
use stentor_control::format::{grouped, plural, resume_command, span};
use stentor_control::snapshot::time_us;
use stentor_control::{CauseRow, SiteRow, Status, causes as rows};
use stentor_engine::core::Core;
use stentor_engine::core::hub::Hub;
use stentor_engine::core::limits::Limit;
use stentor_engine::core::tls_seen::Dates;
use stentor_queue::cause::Cause;
use stentor_queue::ids::Ms;
use stentor_sched::{At, CauseCounts};
use stentor_tablefiles::SLOW_MS;

use crate::causes::{self, Censuses, SitesNow};
use crate::depth;

/// Sites that are named.
const SITES_NAMED: usize = 5;
/// A site whose oldest message waits for so long, or where so much of the queue waits, is named.
const STUCK_MS: Ms = 10 * 60_000;
const STUCK_SHARE: f64 = 0.2;
/// One that has failed so often in a row is named however young its mail is.
const FAILURES: u8 = 3;
/// Limits that were hit longer ago are not named.
const LIMITS_MS: Ms = 3_600_000;
/// How long Dovecot's socket may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Letters of an operator's reason that are shown.
const REASON_CHARS_MAX: usize = 200;
/// A cause grows that has so many more recipients than before, and so many times as many.
const GROWN_MIN: u64 = 100;
const GROWN_TIMES: u64 = 2;
/// Recipients whose domain cannot be looked up: at least so many, and this share of all.
const LOOK_UPS_MIN: u64 = 10;
const LOOK_UPS_FAILED: f64 = 0.3;
/// Media that keep what they were told to hardly sync faster than this, us.
const SYNC_US_MIN: u64 = 10;
const SYNCS_MIN: u64 = 5;
/// Newer messages than the clock, by so much, mean that it was set back.
const CLOCK_BEHIND_MS: Ms = 60_000;
/// The newest messages that are looked at.
const NEWEST: u32 = 64;
/// Hosts met within this time whose certificates are looked at, if they are so many.
const CERTIFICATES_MS: Ms = 24 * 3_600_000;
const CERTIFICATES_MIN: usize = 5;
/// The clock is at least here: this was written then.
const CLOCK_MIN: Ms = 1_790_000_000_000;

/// See the module's page.
pub async fn examine(core: &Arc<Core>, censuses: &Arc<Censuses>, status: &Status) -> Doctor {
    let now = SitesNow::get(core, censuses).await;
    let total = now.counted.as_ref().map(|counted| &counted.census.total);
    let causes = core.with(|hub, at| causes::rows(hub, total, at));
    let mut found = Vec::new();
    clock(core, &mut found);
    disk(core, &mut found);
    let is_named = names(core, &causes, status.recipients.pending, &mut found);
    sites(core, &now, status, is_named, &mut found).await;
    growing(censuses, &mut found);
    limits(core, status, &mut found);
    others(core, status, &mut found);
    logins(core, &mut found).await;
    found.push(Finding::new(Severity::Fine, waiting(&causes, status), ""));
    found.sort_by_key(|finding| finding.severity);
    Doctor { hostname: status.hostname.clone(), now: status.now, findings: found }
}

fn clock(core: &Arc<Core>, found: &mut Vec<Finding>) {
    let now = core.clock.now();
    let next = "set the clock and keep it right (chrony, systemd-timesyncd); ages, expiry and retries follow it";
    if now < CLOCK_MIN {
        found.push(Finding::new(Severity::Problem, "the clock is wrong: it is behind this program's release", next));
        return;
    }
    let newest = core.with(|hub, _| {
        let (_, until) = hub.store.number_bounds();
        hub.store.messages_between(until.wrapping_sub(NEWEST), until).map(|(_, message)| message.accepted()).max()
    });
    if let Some(ahead) = newest.and_then(|at| at.checked_sub(now)).filter(|ahead| *ahead > CLOCK_BEHIND_MS) {
        let what = format!("the clock was set back: the newest message was accepted {} from now", span(ahead));
        found.push(Finding::new(Severity::Problem, what, next));
    }
    let dates = core.tls_seen.dates(now.saturating_sub(CERTIFICATES_MS));
    found.extend(by_certificates(dates).map(|what| Finding::new(Severity::Problem, what, next)));
}

/// Most hosts have certificates that are valid now: where most have not, it is not now.
fn by_certificates(dates: Dates) -> Option<String> {
    let Dates { hosts, not_yet_valid, expired } = dates;
    let are_most = |wrong: usize| hosts >= CERTIFICATES_MIN && wrong * 2 > hosts;
    let (wrong, words) = match (are_most(not_yet_valid), are_most(expired)) {
        (true, _) => (not_yet_valid, "behind: the certificates of {} hosts are not valid yet"),
        (_, true) => (expired, "ahead: the certificates of {} hosts have ended"),
        _ => return None,
    };
    Some(format!("the clock seems to be {}", words.replace("{}", &format!("{wrong} of {hosts}"))))
}

/// All causes, most first.
fn waiting(causes: &[CauseRow], status: &Status) -> String {
    let rows = rows::most_first(causes);
    let causes: Vec<_> = rows.iter().map(|row| format!("{} {}", grouped(row.recipients), row.words)).collect();
    let is_counting = causes.is_empty() && status.recipients.pending > 0;
    match causes.as_slice() {
        [] if is_counting => {
            format!("{} waiting; causes are still being counted", plural(status.recipients.pending, "recipient"))
        }
        [] => format!("{} waiting", plural(status.recipients.pending, "recipient")),
        causes => format!("{} waiting: {}", plural(status.recipients.pending, "recipient"), causes.join(", ")),
    }
}

/// A medium that answers a sync before the data are safe loses acknowledged mail at a power cut.
fn disk(core: &Arc<Core>, found: &mut Vec<Finding>) {
    let syncs = core.live.syncs.us.read().percentiles();
    if syncs.count >= SYNCS_MIN && syncs.p50 < SYNC_US_MIN {
        let what = format!(
            "a sync takes {}: faster than a disk that really flushes; a power failure may lose acknowledged mail",
            time_us(syncs.p50)
        );
        let next = "put data_dir on a real disk: no tmpfs, no write cache without a battery, no hypervisor that ignores \
                    flushes; `stentor-kit probe` measures it";
        found.push(Finding::new(Severity::Warning, what, next));
    }
    for trouble in core.troubles() {
        let next = "free some space or memory, or raise the limit; mail is taken again without a restart";
        found.push(Finding::new(Severity::Problem, format!("new mail gets 452: {trouble}"), next));
    }
}

/// Whether lookups fail for so many that each domain need not be named.
fn names(core: &Arc<Core>, causes: &[CauseRow], pending: u64, found: &mut Vec<Finding>) -> bool {
    let counters = core.resolver.counters();
    let failed = causes.iter().find(|row| row.cause() == Cause::Dns).map_or(0, |row| row.recipients);
    let are_many = failed >= LOOK_UPS_MIN && failed as f64 >= pending as f64 * LOOK_UPS_FAILED;
    if are_many {
        let what = format!("{} of {} recipients wait because DNS lookups fail", grouped(failed), grouped(pending));
        let next = "check `[dns] servers` (without it /etc/resolv.conf), and that they can be reached from here";
        found.push(Finding::new(Severity::Problem, what, next));
    } else if counters.unanswered > 0 {
        let what = format!("no name server has answered since the start ({})", plural(counters.unanswered, "question"));
        let next = "check `[dns] servers` (without it /etc/resolv.conf), and that they can be reached from here";
        found.push(Finding::new(Severity::Warning, what, next));
    } else if counters.unresolved > 0 {
        let what = format!("no domain has resolved since the start ({} tried)", grouped(counters.unresolved));
        let next = "if one of them exists, `[dns] servers` are wrong (without it /etc/resolv.conf); a lab needs \
                    `[dns] loopback_allowed` too";
        found.push(Finding::new(Severity::Warning, what, next));
    }
    are_many
}

/// Each of them is looked at, however small it is among the others.
async fn sites(core: &Arc<Core>, places: &SitesNow, status: &Status, is_named: bool, found: &mut Vec<Finding>) {
    let (now, pending) = (status.now, status.recipients.pending);
    let is_stuck = |hub: &Hub, at: At, counts: &CauseCounts| {
        // Mailboxes and greylisting are nothing unusual of a site.
        let is_usual = |cause: Cause| matches!(cause, Cause::MailboxFull | Cause::Mailbox | Cause::Greylisted);
        // Whatever else is held or goes there.
        let has_failed = counts.causes.iter().any(|count| count.cause.has_failed() && !is_usual(count.cause));
        if !has_failed || is_named && matches!(at, At::Domain(_)) {
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
        found.push(Finding::new(Severity::Warning, what, "`stentor stuck` names them"));
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
                "`stentor queue` names the sites, `stentor stuck` the recipients",
            ));
        }
    }
}

fn limits(core: &Arc<Core>, status: &Status, found: &mut Vec<Finding>) {
    let up = span(status.now.saturating_sub(status.started));
    for limit in Limit::ALL {
        let (hits, ago) = (core.limits.hits(*limit), status.now.saturating_sub(core.limits.hit_at(*limit)));
        if hits > 0 && ago <= LIMITS_MS {
            let by = core.limits.last_by(*limit).map_or_else(String::new, |by| format!(" by {by}"));
            let what =
                format!("limit {} hit {} in {up}, last {} ago{by}", limit.name(), plural(hits, "time"), span(ago));
            let next = match limit.key().strip_prefix("nothing: ") {
                Some(what) => what.to_owned(),
                None => format!("raise {}", limit.key()),
            };
            found.push(Finding::new(Severity::Warning, what, next));
        }
    }
}

/// What shows it makes it printable.
fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

fn others(core: &Arc<Core>, status: &Status, found: &mut Vec<Finding>) {
    let mut warn = |what: String, next: &str| found.push(Finding::new(Severity::Warning, what, next));
    if status.suspended_total > 0 {
        let named = status.suspended.iter().take(SITES_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let ends = status.suspended.first().and_then(|what| resume_command(what));
        let next =
            ends.map_or_else(String::new, |command| format!("`{command}`; `stentor status` has all such commands"));
        warn(format!("{} suspended: {named}", status.suspended_total), &next);
    }
    if !status.restart_pending.is_empty() {
        let what = format!("a restart is pending for changed keys: {}", status.restart_pending.join(", "));
        warn(what, "restart the server; until then it keeps the old values");
    }
    for bounce in &status.standing_bounces {
        let end = span(bounce.until.saturating_sub(status.now));
        let command = format!("`{}`, or wait until it ends by itself", bounce.end_command());
        let reason = shortened(&bounce.reason);
        warn(format!("{} is bounced for another {end}: {reason}", bounce.words()), &command);
        // A site's name is that of its MX hosts.
        let is_empty = |site: &String| {
            core.with(|hub, _| {
                // One that is not known was not looked up yet.
                hub.sched.site_named(site).is_some_and(|site| hub.sched.domains_at(site).next().is_none())
            })
        };
        if bounce.site.as_ref().is_some_and(is_empty) {
            let what = format!("the bounce of {} matches nothing now: no domain is at this site", bounce.words());
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
    for table in core.settings().tables.slow() {
        let next = "look at the file system that its files are on; what was read before stays in force";
        warn(format!("table {table}: its files cannot be read in {} s", SLOW_MS / 1_000), next);
    }
    if status.submissions_oldest.is_some_and(|at| at + STUCK_MS < status.now) {
        let next = "the log says why each was refused for now; they are tried again by themselves, and returned to their senders after \
                    `[retry] lifetime_s`";
        warn(status.submissions_in_words(), next);
    }
    if let Some(why) = &status.submissions_unusable {
        let next = "`stentor check` says what is wrong with the folder; mail of local users waits in it";
        warn(format!("the submission folder cannot be used: {why}"), next);
    }
    for trouble in &status.webhooks_troubled {
        warn(format!("webhook {trouble}"), "check the endpoint; events are kept as long as the history");
    }
    if status.log_lines_lost + status.history_lost > 0 {
        let (lines, records) =
            (plural(status.log_lines_lost, "log line"), plural(status.history_lost, "history record"));
        warn(format!("{lines} and {records} lost"), "use a faster disk or log target");
    }
}

/// Whether Dovecot's socket takes a connection; nothing is sent.
async fn logins(core: &Arc<Core>, found: &mut Vec<Finding>) {
    let settings = core.settings();
    let Some(AuthSource::Dovecot(path)) = &settings.config.auth.source else { return };
    let connected = tokio::time::timeout(CONNECT_MAX, tokio::net::UnixStream::connect(path)).await;
    let why = match connected {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it does not answer".to_owned(),
    };
    let what = format!("Dovecot ({}) takes no connection: {why}; meanwhile nobody can log in", path.display());
    found.push(Finding::new(
        Severity::Warning,
        what,
        "start it, or correct `dovecot` in [auth]; it is tried again by itself",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_doubted_by_most_certificates_and_not_by_some() {
        let said = |hosts, not_yet_valid, expired| by_certificates(Dates { hosts, not_yet_valid, expired });
        let behind = "the clock seems to be behind: the certificates of 4 of 6 hosts are not valid yet";
        assert_eq!(said(6, 4, 0).as_deref(), Some(behind));
        let ahead = "the clock seems to be ahead: the certificates of 9 of 10 hosts have ended";
        assert_eq!(said(10, 0, 9).as_deref(), Some(ahead));
        for (hosts, not_yet_valid, expired) in [(4, 4, 0), (6, 3, 3), (100, 20, 30), (0, 0, 0)] {
            assert_eq!(said(hosts, not_yet_valid, expired), None);
        }
    }
}
