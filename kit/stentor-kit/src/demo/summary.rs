//! What happened to the post.

use serde_json::Value;
use stentor_lab::Lab;

use super::post::PostTiming;

/// Sites listed with their reasons.
pub const SITES_MAX: usize = 12;

pub struct Facts<'a> {
    pub server_pid: u32,
    /// `stentor status` and `stentor queue` at the end (docs/operate/control-protocol.md).
    pub status: &'a Value,
    pub lab: &'a Lab,
    pub queue: &'a Value,
    pub id: &'a str,
    pub posted: &'a PostTiming,
    pub reachable: &'a [&'a String],
    pub subscribers: usize,
}

/// Prints it; whether every reachable subscriber got exactly one intact copy.
pub fn print(facts: &Facts<'_>) -> bool {
    let recorder = facts.lab.recorder();
    let audit = recorder.audit(facts.id, facts.reachable.iter().map(|person| person.as_str()));
    let fates = &facts.status["recipients"];
    let since = |us: u64| us.saturating_sub(facts.posted.dot_us) as f64 / 1e6;
    println!();
    println!(
        "accepted     {} recipients of one post ({} octets), 250 after {:.1} ms",
        count(&fates["acknowledged"]),
        facts.posted.octets,
        since(facts.posted.accepted_us) * 1e3
    );
    println!(
        "delivered    {} copies, {} intact, {} damaged, {} twice, {} missing",
        audit.copies,
        recorder.stats().intact,
        audit.damaged,
        audit.duplicates.len(),
        audit.missing.len()
    );
    times(facts);
    deferred(facts.queue);
    let (bounced, expired) = (count(&fates["bounced"]), count(&fates["expired"]));
    if bounced + expired > 0 {
        println!("bounced      {bounced} refused for good, {expired} expired");
    }
    costs(facts);
    let is_clean = audit.is_clean() && recorder.stats().violations == 0;
    for violation in recorder.violations().iter().take(SITES_MAX) {
        println!("violation    {}: {}", violation.kind, violation.detail);
    }
    if is_clean {
        println!("ok           each of {} reachable subscribers has exactly one intact copy", facts.reachable.len());
    } else {
        println!("FAILED       not every reachable subscriber has exactly one intact copy");
        for person in audit.missing.iter().take(SITES_MAX) {
            println!("  missing    {person}");
        }
    }
    is_clean
}

fn times(facts: &Facts<'_>) {
    let mut at: Vec<u64> = facts.lab.recorder().copies().iter().map(|copy| copy.at_us).collect();
    if at.is_empty() {
        return;
    }
    at.sort_unstable();
    let of = |share: f64| {
        let rank = ((facts.reachable.len() as f64 * share).ceil() as usize).max(1);
        match at.get(rank - 1) {
            Some(at) => format!("{:.2} s", at.saturating_sub(facts.posted.dot_us) as f64 / 1e6),
            None => "not reached".to_owned(),
        }
    };
    println!(
        "time         50 % of the reachable {}, 95 % {}, 99 % {}, 100 % {}",
        of(0.50),
        of(0.95),
        of(0.99),
        of(1.0)
    );
}

fn deferred(queue: &Value) {
    let sites = queue["sites"].as_array().map_or(&[][..], Vec::as_slice);
    let total = count(&queue["sites_total"]);
    println!("deferred     {} recipients at {total} sites", count(&queue["recipients"]));
    for site in sites.iter().take(SITES_MAX) {
        let why = match (site["last_reply"].as_str().unwrap_or_default(), count(&site["connections"])) {
            ("", 0) => "waiting for a connection",
            ("", _) => "no reply so far; the connection stays open, in the slow lane after 2 s",
            (reply, _) => reply,
        };
        let name: String = site["site"].as_str().unwrap_or_default().chars().take(28).collect();
        println!("  {name:<28} {:>5} waiting: {why}", count(&site["waiting"]));
    }
    if total > SITES_MAX as u64 {
        println!("  and {} more sites", total - SITES_MAX as u64);
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn costs(facts: &Facts<'_>) {
    let seen = facts.lab.recorder().stats();
    println!(
        "work         {} connections, {} transactions, {} syncs, {} DNS questions",
        seen.connections,
        seen.transactions,
        count(&facts.status["journal_syncs"]),
        count(&facts.status["dns_queries"])
    );
    let (server, lab) = (cpu_seconds(facts.server_pid), cpu_seconds(std::process::id()));
    let peak = status_kib(facts.server_pid, "VmHWM:")
        .map_or_else(|| "unknown".to_owned(), |kib| format!("{} MiB", kib / 1024));
    println!(
        "cost         server {server:.2} s CPU ({:.0} us a recipient), peak memory {peak}; lab {lab:.2} s CPU",
        server * 1e6 / facts.subscribers as f64
    );
}

/// CPU seconds of a process, from procfs; 0 if it cannot be read.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `pid (name) state ...`: user and system time are the 12th and 13th field behind the name.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace().skip(11).take(2);
    fields.map(|field| field.parse().unwrap_or(0.0)).sum::<f64>() / rustix::param::clock_ticks_per_second() as f64
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}
