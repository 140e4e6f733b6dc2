//! What became of the post.

use std::sync::atomic::Ordering;

use stentor_lab::Lab;

use super::LAB_THREAD;
use super::post::Posted;
use crate::control::QueueSummary;
use crate::serve::Server;

/// Sites listed with their reasons.
const SITES_MAX: usize = 12;

pub struct Facts<'a> {
    pub server: &'a Server,
    pub lab: &'a Lab,
    pub queue: &'a QueueSummary,
    pub id: &'a str,
    pub posted: &'a Posted,
    pub reachable: &'a [&'a String],
    pub subscribers: usize,
}

/// Prints it; whether every reachable subscriber got exactly one intact copy.
pub fn print(facts: &Facts<'_>) -> bool {
    let recorder = facts.lab.recorder();
    let audit = recorder.audit(facts.id, facts.reachable.iter().map(|person| person.as_str()));
    let totals = facts.server.core.with(|hub, _| hub.store.totals());
    let since = |us: u64| us.saturating_sub(facts.posted.dot_us) as f64 / 1e6;
    println!();
    println!(
        "accepted     {} recipients of one post ({} octets), 250 after {:.1} ms",
        totals.acknowledged,
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
    if totals.fates.bounced + totals.fates.expired > 0 {
        println!("bounced      {} refused for good, {} expired", totals.fates.bounced, totals.fates.expired);
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

fn deferred(queue: &QueueSummary) {
    println!("deferred     {} recipients at {} sites", queue.recipients, queue.sites_total);
    for site in queue.sites.iter().take(SITES_MAX) {
        let why = match (site.last_reply.as_str(), site.connections) {
            ("", 0) => "waits for its turn",
            ("", _) => "silent so far; its connection stays open, in the slow lane after 2 s",
            (reply, _) => reply,
        };
        println!("  {:<28} {:>5} waiting: {why}", site.site.chars().take(28).collect::<String>(), site.waiting);
    }
    if queue.sites.len() > SITES_MAX {
        println!("  and {} more sites", queue.sites.len() - SITES_MAX);
    }
}

fn costs(facts: &Facts<'_>) {
    let counters = &facts.server.core.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "work         {} connections, {} transactions, {} syncs, {} DNS questions",
        read(&counters.connections),
        read(&counters.transactions),
        read(&counters.syncs),
        facts.server.core.resolver.counters().queries
    );
    let (server, lab) = cpu_seconds();
    let peak = status_kib("VmHWM:").map_or_else(|| "unknown".to_owned(), |kib| format!("{} MiB", kib / 1024));
    println!(
        "cost         server {server:.2} s CPU ({:.0} us a recipient), lab {lab:.2} s CPU, peak memory of both {peak}",
        server * 1e6 / facts.subscribers as f64
    );
}

/// CPU seconds of the server's threads and of the lab's, from procfs.
fn cpu_seconds() -> (f64, f64) {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let (mut server, mut lab) = (0.0, 0.0);
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        // `pid (name) state ...`: user and system time are the 12th and 13th field behind the name.
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        let mut fields = tail.split_ascii_whitespace().skip(11).map(|field| field.parse().unwrap_or(0.0));
        let seconds: f64 = (fields.next().unwrap_or(0.0) + fields.next().unwrap_or(0.0)) / ticks;
        if head.ends_with(&format!("({LAB_THREAD}")) { lab += seconds } else { server += seconds }
    }
    (server, lab)
}

fn status_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}
