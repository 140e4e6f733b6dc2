//! One run of the work through one contestant, and what it cost.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use stentor_measure::usage::Usage;
use stentor_measure::{DeviceCounters, MeasureError, Stop};

use super::running::Running;
use crate::limit::FloorSink;
use crate::load::{self, Plan, Step};

const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Completions that are synced or logged after the last copy belong to the work: everybody gets so long for them.
const SETTLE: Duration = Duration::from_millis(500);

/// Figures of one run. None: not to be had here.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub accepted_per_s: f64,
    pub delivered_per_s: Option<f64>,
    /// From the end of data to its reply.
    pub final_p50_ms: f64,
    pub final_p99_ms: f64,
    pub cpu_ms: Option<f64>,
    pub memory_peak_mib: Option<f64>,
    pub memory_pss_mib: Option<f64>,
    /// Of the tree; the rest is of the whole device.
    pub tree_writes: Option<f64>,
    pub written_kib: Option<f64>,
    pub tree_reads: Option<f64>,
    pub read_kib: Option<f64>,
    pub device_reads: Option<f64>,
    pub device_writes: Option<f64>,
    pub flushes: Option<f64>,
    pub syncs: Option<f64>,
    pub failed: u64,
    /// Copies that did not come, or came too often.
    pub missing: u64,
    pub surplus: u64,
}

/// How a run is made.
pub(super) struct Bout<'a> {
    pub plan: &'a Plan,
    pub sink: &'a FloorSink,
    /// For the copies, after the last message was accepted; None: they do not come to our sink.
    pub wait: Option<Duration>,
    pub stop: &'a Stop,
}

/// What is counted before and after.
struct Counts {
    usage: Usage,
    device: Option<DeviceCounters>,
    syncs: Option<u64>,
}

fn counts(contestant: &Running) -> Counts {
    let device = contestant.place.as_ref().and_then(|place| place.device.as_ref()).map(|device| device.number.as_str());
    // First what takes time, so that the others are of one moment.
    let syncs = contestant.syncs.as_ref().and_then(stentor_measure::usage::SyncCount::count);
    Counts { syncs, device: device.and_then(DeviceCounters::read), usage: contestant.tree.usage(device) }
}

impl Bout<'_> {
    pub fn run(&self, contestant: &Running) -> Result<Figures, MeasureError> {
        // What an earlier run left to be written back must not be paid for by this one.
        rustix::fs::sync();
        let before = counts(contestant);
        let counters = &self.sink.counters;
        let copies = counters.copies.load(Relaxed);
        let begin_ns = counters.start.elapsed().as_nanos() as u64;
        let plan = Plan { targets: vec![contestant.target], ..self.plan.clone() };
        let tally = load::run(&plan, self.stop, |_, _| ()).map_err(|error| MeasureError::Refused(error.to_string()))?;
        if tally.accepted == 0 && !self.stop.is_set() {
            let why = tally.errors.iter().next().map(|(failure, failed)| format!("{failure:?} {}", failed.example));
            let (name, why) = (&contestant.name, why.unwrap_or_default());
            return Err(MeasureError::Refused(format!("{name} accepted no message: {why}")));
        }
        let wanted = copies + tally.recipients;
        let came = self.wait.map(|most| self.wait_for(wanted, most));
        std::thread::sleep(SETTLE);
        let came = came.map(|()| counters.copies.load(Relaxed));
        let delivered_s = counters.last_ns.load(Relaxed).saturating_sub(begin_ns) as f64 / 1e9;
        let is_whole = came.is_some_and(|came| came >= wanted);
        let mut figures = cost(&before, &counts(contestant), tally.accepted.max(1) as f64);
        let times = &tally.steps[Step::Final as usize];
        figures.accepted_per_s = tally.rates().0;
        figures.delivered_per_s = is_whole.then(|| tally.accepted as f64 / delivered_s.max(1e-9));
        figures.final_p50_ms = times.percentile(0.5) as f64 / 1e6;
        figures.final_p99_ms = times.percentile(0.99) as f64 / 1e6;
        figures.failed = tally.failed;
        figures.missing = came.map_or(0, |came| wanted.saturating_sub(came));
        figures.surplus = came.map_or(0, |came| came.saturating_sub(wanted));
        Ok(figures)
    }

    fn wait_for(&self, copies: u64, most: Duration) {
        let begin = Instant::now();
        while self.sink.counters.copies.load(Relaxed) < copies && begin.elapsed() < most && !self.stop.is_set() {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Per message.
fn cost(before: &Counts, after: &Counts, messages: f64) -> Figures {
    let less = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?) as f64 / messages);
    let (a, b) = (&after.usage, &before.usage);
    let cpu_s = a.cpu_s.zip(b.cpu_s).map(|(after, before)| after - before);
    let device = after.device.zip(before.device).map(|(after, before)| after - before);
    let of_device = |of: fn(DeviceCounters) -> Option<u64>| Some(of(device?)? as f64 / messages);
    Figures {
        cpu_ms: cpu_s.map(|seconds| seconds * 1000.0 / messages),
        memory_peak_mib: a.memory_peak_kib.map(|kib| kib as f64 / 1024.0),
        memory_pss_mib: a.memory_pss_kib.map(|kib| kib as f64 / 1024.0),
        tree_writes: less(a.writes, b.writes),
        written_kib: less(a.written_bytes, b.written_bytes).map(|bytes| bytes / 1024.0),
        tree_reads: less(a.reads, b.reads),
        read_kib: less(a.read_bytes, b.read_bytes).map(|bytes| bytes / 1024.0),
        device_reads: of_device(|device| Some(device.reads)),
        device_writes: of_device(|device| Some(device.writes)),
        flushes: of_device(|device| device.flushes),
        // No line yet is no sync yet.
        syncs: less(after.syncs, after.syncs.map(|_| before.syncs.unwrap_or(0))),
        ..Figures::default()
    }
}
