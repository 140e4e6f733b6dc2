//! The bottleneck in words: the disk, the processors, the memory, hosts that are slow or down, the connection budget,
//! or nothing.
//!
//! The first condition that holds wins, ordered from causes within the server to causes outside. Thresholds are shares,
//! not rates, so that they mean the same on any machine.

use stentor_control::snapshot::{Snapshot, time_us};

/// A disk or the processors that are busy for more of the time are at their limit.
const BUSY: f32 = 0.85;
/// Idle with I/O outstanding: the disk is waited for.
const IO_WAIT: f32 = 0.3;
/// Batches wait mostly for the disk if a sync takes this long, us.
const SLOW_SYNC_US: u64 = 5_000;
const MEMORY: f64 = 0.95;
/// Of the budget of connections.
const USED: f64 = 0.95;
/// Of pending recipients, behind clocks of hosts or keeping connections silent.
const MOST: f64 = 0.5;

/// In one line; empty never.
pub fn of(s: &Snapshot) -> String {
    let m = &s.machine;
    let (sync, disk) = (s.journal.sync_us, percent(m.disk_busy));
    let is_working = s.since.accepted + s.since.delivered + s.since.failed > 0;
    let memory = m.memory_used_bytes as f64 / m.memory_bytes.max(1) as f64;
    if is_working && sync.count > 0 && (m.disk_busy >= BUSY || m.io_wait >= IO_WAIT && sync.p50 >= SLOW_SYNC_US) {
        return format!("disk-bound: the disk is busy {disk}, syncs take {}", time_us(sync.p50));
    }
    if is_working && m.cpu >= BUSY {
        let own = percent(m.own_cpu / m.processors.max(1) as f32);
        return format!("processor-bound: processors {} busy, {own} by this server", percent(m.cpu));
    }
    if memory >= MEMORY {
        return format!("short of memory: {} is used", percent(memory as f32));
    }
    let (q, c) = (&s.queue, &s.connections);
    if q.pending() == 0 {
        let rest = if is_working { "keeping up, no backlog" } else { "idle: the queue is empty" };
        return rest.to_owned();
    }
    let pending = q.pending() as f64;
    if q.depth.suspended.recipients as f64 >= pending * MOST {
        return format!(
            "suspended: {} of {} recipients are held or suspended",
            q.depth.suspended.recipients,
            q.pending()
        );
    }
    if q.depth.clock.recipients as f64 >= pending * MOST {
        let (waiting, sites) = (q.depth.clock.recipients, q.depth.clock.sites);
        return format!("waiting: {waiting} of {} recipients are at {sites} sites that are down", q.pending());
    }
    let is_full = c.fast as f64 >= c.fast_max as f64 * USED;
    if is_full && c.wanting > 0 {
        let (slowest, idle) = (s.by_latency.first(), percent(1.0 - m.cpu));
        let answers = slowest
            .map_or_else(String::new, |site| format!(", the slowest site takes {} ms to answer", site.latency_ms));
        return format!(
            "network-bound: all {} connections are in use{answers}; processors {idle} idle, disk busy {disk}",
            c.fast_max
        );
    }
    if q.depth.slow.recipients as f64 >= pending * MOST {
        return format!(
            "waiting: {} recipients are at {} sites that respond slowly",
            q.depth.slow.recipients, q.depth.slow.sites
        );
    }
    if s.since.delivered == 0 && s.since.failed == 0 && c.fast == 0 {
        return format!("waiting: {} recipients have retry clocks of their own", q.pending());
    }
    format!("network-bound: as fast as the hosts accept; processors {} idle, disk busy {disk}", percent(1.0 - m.cpu))
}

fn percent(share: f32) -> String {
    format!("{:.0} %", share.clamp(0.0, 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Snapshot {
        let mut s = Snapshot::default();
        (s.since.accepted, s.since.delivered, s.queue.bulk) = (10, 10, 100);
        (s.connections.fast, s.connections.fast_max, s.machine.processors) = (80, 800, 2);
        (s.machine.memory_bytes, s.machine.memory_used_bytes) = (100, 50);
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
        s.queue.depth.clock.recipients = 60;
        assert!(of(&s).starts_with("waiting: 60 of 100 recipients are at"), "{}", of(&s));
        s.machine.memory_used_bytes = 99;
        assert!(of(&s).starts_with("short of memory"));
        assert_eq!(of(&Snapshot::default()), "idle: the queue is empty");
    }
}
