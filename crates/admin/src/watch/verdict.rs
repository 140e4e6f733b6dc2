//! The bottleneck in words: what most mail waits for; the disk, the processors or the network, if the server itself
//! loads them; or nothing.
//!
//! The first condition that holds wins. A processor or disk loaded by others comes last: it slows the server, but mail
//! that waits for a host would wait anyway. Thresholds are shares, not rates, so that they mean the same on any
//! machine.

use stentor_control::CauseRow;
use stentor_control::causes::headline;
use stentor_control::format::{grouped, plural};
use stentor_control::snapshot::{PartNow, Snapshot, time_us};
use stentor_core::live::health::headline as headline_of;

/// A disk or processors busy for more than this share of the time are at their limit.
const BUSY: f32 = 0.85;
/// Idle with I/O outstanding above this share: the server waits for the disk.
const IO_WAIT: f32 = 0.3;
/// Our own share of processor time or disk writes above which the load is ours.
const OURS: f64 = 0.5;
/// Batches wait mostly for the disk if a sync takes this long, in µs.
const SLOW_SYNC_US: u64 = 5_000;
const MEMORY: f64 = 0.95;
/// Share of the connection budget that counts as used up.
const USED: f64 = 0.95;
/// Share of pending recipients that counts as most.
const MOST: f64 = 0.5;

/// Length of a line that fits any terminal.
const COLUMNS: usize = 80;

/// The bottleneck in one line, never empty. For a part of the queue: what that waits for.
pub fn of(s: &Snapshot) -> String {
    if let Some(headline) = headline_of(&s.health) {
        return headline;
    }
    if let Some(part) = &s.queue.part {
        return of_part(part, &s.causes);
    }
    let m = &s.machine;
    let is_working = s.since.accepted + s.since.delivered + s.since.failed > 0;
    let memory = m.memory_used_bytes as f64 / m.memory_bytes.max(1) as f64;
    if memory >= MEMORY {
        return format!("short of memory: {} is used", percent(memory as f32));
    }
    if is_working && let Some(own) = own_work(s) {
        return own;
    }
    if s.queue.pending() == 0 {
        let rest = if is_working { "keeping up, no backlog" } else { "idle: the queue is empty" };
        return rest.to_owned();
    }
    if s.causes.is_empty() {
        return format!("{} recipients waiting; causes are still being counted", grouped(s.queue.pending()));
    }
    if let Some(waits) = waits(&s.causes) {
        return waits;
    }
    let (c, disk) = (&s.connections, percent(m.disk_busy));
    if c.fast as f64 >= c.fast_max as f64 * USED && c.wanting > 0 {
        let (slowest, idle) = (s.by_latency.first(), percent(1.0 - m.cpu));
        let answers = slowest
            .map_or_else(String::new, |site| format!(", the slowest site takes {} ms to reply", site.latency_ms));
        return format!(
            "network-bound: all {} connections are in use{answers}; processors {idle} idle, disk busy {disk}",
            c.fast_max
        );
    }
    if m.cpu >= BUSY {
        return format!(
            "processors {} busy, only {} by this server: other programs slow it down",
            percent(m.cpu),
            own_share(s)
        );
    }
    if m.disk_busy >= BUSY {
        return format!("the disk is busy {disk}, mostly for other programs: they slow this server down");
    }
    format!("network-bound: as fast as the hosts accept; processors {} idle, disk busy {disk}", percent(1.0 - m.cpu))
}

fn of_part(part: &PartNow, causes: &[CauseRow]) -> String {
    if part.recipients == 0 {
        return "no mail is waiting here".to_owned();
    }
    waits(causes).unwrap_or_else(|| {
        let start = format!("{} waiting: ", plural_grouped(part.recipients));
        let causes = headline(causes, COLUMNS - start.len());
        start + &causes
    })
}

fn plural_grouped(recipients: u64) -> String {
    if recipients == 1 { plural(1, "recipient") } else { format!("{} recipients", grouped(recipients)) }
}

/// The disk or the processors, if our own work keeps them busy.
fn own_work(s: &Snapshot) -> Option<String> {
    let (m, sync) = (&s.machine, s.journal.sync_us);
    let writes_most = m.own_written_bytes as f64 >= m.disk_written_bytes as f64 * OURS;
    let is_waited_for = m.io_wait >= IO_WAIT || m.disk_busy >= BUSY;
    if sync.count > 0 && is_waited_for && (writes_most && m.disk_busy >= BUSY || sync.p50 >= SLOW_SYNC_US) {
        return Some(format!(
            "disk-bound: the disk is busy {}, syncs take {}",
            percent(m.disk_busy),
            time_us(sync.p50)
        ));
    }
    let own = f64::from(m.own_cpu) / m.processors.max(1) as f64;
    (m.cpu >= BUSY && own >= f64::from(m.cpu) * OURS)
        .then(|| format!("processor-bound: processors {} busy, {} by this server", percent(m.cpu), own_share(s)))
}

fn own_share(s: &Snapshot) -> String {
    percent(s.machine.own_cpu / s.machine.processors.max(1) as f32)
}

/// The cause that most recipients wait for, unless it is their turn.
fn waits(causes: &[CauseRow]) -> Option<String> {
    let total: u64 = causes.iter().map(|row| row.recipients).sum();
    let sum = |is_meant: fn(&CauseRow) -> bool| -> u64 {
        causes.iter().filter(|row| is_meant(row)).map(|row| row.recipients).sum()
    };
    let blocked = sum(|row| row.cause().is_blocked());
    if total == 0 || (blocked as f64) < total as f64 * MOST {
        return None;
    }
    // Including waits for our limits and for connections, which may be the largest cause.
    let waiting: Vec<CauseRow> = causes.iter().filter(|row| !row.cause().is_moving()).cloned().collect();
    let start = format!("waiting: {} of {}: ", grouped(sum(|row| !row.cause().is_moving())), plural_grouped(total));
    let causes = headline(&waiting, COLUMNS - start.len());
    Some(start + &causes)
}

fn percent(share: f32) -> String {
    format!("{:.0} %", share.clamp(0.0, 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_queue::cause::Cause;

    fn busy() -> Snapshot {
        let mut s = Snapshot::default();
        (s.since.accepted, s.since.delivered, s.queue.bulk) = (10, 10, 100);
        (s.connections.fast, s.connections.fast_max, s.machine.processors) = (80, 800, 2);
        (s.machine.memory_bytes, s.machine.memory_used_bytes) = (100, 50);
        s.causes = vec![CauseRow { cause: "ready".to_owned(), recipients: 100, ..CauseRow::default() }];
        (s.journal.sync_us.count, s.journal.sync_us.p50) = (5, 12_000);
        s
    }

    #[test]
    fn the_words_name_what_is_at_its_limit() {
        let mut s = busy();
        (s.machine.disk_busy, s.machine.cpu) = (0.97, 0.9);
        assert_eq!(of(&s), "disk-bound: the disk is busy 97 %, syncs take 12 ms");
        (s.machine.disk_busy, s.machine.own_cpu) = (0.2, 1.0);
        assert_eq!(of(&s), "processor-bound: processors 90 % busy, 50 % by this server");
        s.machine.cpu = 0.1;
        assert!(of(&s).starts_with("network-bound: as fast"), "{}", of(&s));
        (s.connections.fast, s.connections.wanting) = (800, 3);
        assert!(of(&s).starts_with("network-bound: all 800 connections are in use;"), "{}", of(&s));
        s.machine.memory_used_bytes = 99;
        assert!(of(&s).starts_with("short of memory"));
        assert_eq!(of(&Snapshot::default()), "idle: the queue is empty");
    }

    #[test]
    fn a_problem_of_the_server_is_the_headline_and_a_warning_is_none() {
        let mut s = busy();
        let condition = |severity, what: &str| stentor_records::health::Condition {
            severity,
            what: what.to_owned(),
            refuses_mail: severity == stentor_records::health::Severity::Problem,
            ..Default::default()
        };
        s.health = vec![condition(stentor_records::health::Severity::Warning, "ends soon")];
        assert!(of(&s).starts_with("network-bound"), "{}", of(&s));
        s.health.insert(0, condition(stentor_records::health::Severity::Problem, "the disk is full"));
        assert_eq!(of(&s), "PROBLEM: refusing mail: the disk is full (and 1 more)");
    }

    #[test]
    fn what_mail_waits_for_comes_before_what_others_do_to_the_machine() {
        let mut s = busy();
        (s.machine.cpu, s.machine.own_cpu, s.machine.disk_busy) = (1.0, 0.02, 0.1);
        assert_eq!(of(&s), "processors 100 % busy, only 1 % by this server: other programs slow it down");
        let row = |cause: Cause, recipients| CauseRow {
            cause: cause.name().to_owned(),
            words: cause.words().to_owned(),
            recipients,
            ..CauseRow::default()
        };
        s.causes = vec![row(Cause::Sending, 10), row(Cause::Refused, 4_000), row(Cause::MailboxFull, 700)];
        assert_eq!(of(&s), "waiting: 4,700 of 4,710 recipients: 4,000 refused, 700 mailbox full");
        s.causes[0].recipients = 9_000;
        assert!(of(&s).starts_with("processors 100 % busy"), "{}", of(&s));
        // The largest cause is named whatever it is, and the line fits.
        s.causes = vec![row(Cause::Dns, 1_363), row(Cause::Silent, 1_459), row(Cause::OwnLimit, 1_560)];
        s.causes.extend([row(Cause::TimedOut, 1), row(Cause::Greylisted, 4)]);
        assert_eq!(of(&s), "waiting: 4,387 of 4,387 recipients: 1,560 local limit, 2,827 other");
    }

    #[test]
    fn a_part_of_the_queue_has_its_own_words() {
        let mut s = busy();
        "ready to send".clone_into(&mut s.causes[0].words);
        s.queue.part = Some(PartNow { recipients: 100, ..PartNow::default() });
        assert_eq!(of(&s), "100 recipients waiting: ready to send");
        s.queue.part = Some(PartNow::default());
        assert_eq!(of(&s), "no mail is waiting here");
    }
}
