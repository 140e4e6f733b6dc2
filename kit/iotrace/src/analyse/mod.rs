//! Where the time of an operation went: exclusive and inclusive, by layer and step.
//!
//! Promise: every nanosecond of an operation is attributed to exactly one step, so that exclusive times add up to the
//! operation's time as the generator measured it; time that no event explains is shown as "unattributed". Any events in
//! any order give an answer, never a panic; lost events mark the run.
//!
//! Four parts, each in its file. `rules` defines what an event means for its thread. `reader` folds the events into
//! `timeline`s of threads, `requests` of the block layer and workers' jobs, in one pass. `walk` cuts an operation's
//! window along the timelines of everything it waited for. `tally` sums up a run; `tables`, `around` and `charts` show
//! all runs. docs/kit/iotrace.md explains the method, and the limits of tracepoints.

mod around;
mod cells;
mod charts;
mod layer;
mod operation_runs;
mod origin;
mod people;
mod reader;
mod requests;
mod rules;
mod tables;
mod tally;
mod timeline;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stentor_measure::{Place, Report};

pub use layer::{Layer, Step};
pub use people::{Person, ThreadRole};
pub use tally::{Group, Line, Row, StepTally};

use crate::event::Trace;
use crate::operation::{Traced, Work};
use tally::Window;

/// What one traced run says. Small: the trace is not kept.
#[derive(Clone, Debug)]
pub struct Analysis {
    pub name: String,
    pub place: Option<Place>,
    pub work: Option<Work>,
    pub run: u32,
    /// One for the generator's operations; for a program one a system call.
    pub groups: Vec<Group>,
    pub people: Vec<Person>,
    /// Events by CPU.
    pub by_cpu: Vec<u64>,
    /// Events by kind, `system/name`; those that came.
    pub kinds: BTreeMap<String, u64>,
    /// Lost events by CPU.
    pub lost: Vec<u64>,
    pub scope: String,
    pub buffer_kib: u32,
    pub missing: Vec<String>,
}

impl Analysis {
    pub fn of(traced: &Traced) -> Analysis {
        let mut history = reader::read(&traced.trace, disks(traced), &traced.generator, &gaps(traced));
        let mut helpers = BTreeSet::new();
        let mut groups = Vec::new();
        for (class, step, windows) in windows(traced, &mut history) {
            let (mut group, threads) = tally::group(&mut history, &class, step, &windows);
            group.requests = tally::requests(&history, &windows, &traced.devices);
            helpers.extend(threads);
            groups.push(group);
        }
        add_workers(&history, &traced.generator, &mut helpers);
        let events = &traced.trace.events;
        let (from, to) = (events.first().map_or(0, |e| e.ns), events.last().map_or(0, |e| e.ns));
        let ran = tally::running(&history, from, to);
        let (by_cpu, kinds) = counts(&traced.trace);
        Analysis {
            name: traced.name.clone(),
            place: traced.place.clone(),
            work: traced.work,
            run: traced.run,
            groups,
            people: people::count(traced, &helpers, &ran),
            by_cpu,
            kinds,
            lost: traced.trace.lost.clone(),
            scope: traced.scope.clone(),
            buffer_kib: traced.buffer_kib,
            missing: traced.missing.clone(),
        }
    }

    pub fn lost_in_all(&self) -> u64 {
        self.lost.iter().sum()
    }

    pub fn events(&self) -> u64 {
        self.by_cpu.iter().sum()
    }
}

/// Events by CPU and by kind, in one pass.
fn counts(trace: &Trace) -> (Vec<u64>, BTreeMap<String, u64>) {
    let (mut by_cpu, mut by_kind) = (Vec::new(), vec![0_u64; trace.kinds.len()]);
    for event in &trace.events {
        let at = usize::from(event.cpu);
        if by_cpu.len() <= at {
            by_cpu.resize(at + 1, 0);
        }
        by_cpu[at] += 1;
        if let Some(count) = by_kind.get_mut(usize::from(event.kind)) {
            *count += 1;
        }
    }
    let kinds = trace.kinds.iter().cloned().zip(by_kind).filter(|(_, count)| *count > 0);
    (by_cpu, kinds.collect())
}

/// The disk of the partition that is mounted: requests name the disk, bios the partition.
fn disks(traced: &Traced) -> HashMap<u32, u32> {
    let device = traced.place.as_ref().and_then(|place| place.device.as_ref());
    let pair = device.and_then(|device| {
        let (major, minor) = device.number.split_once(':')?;
        let disk = major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?;
        Some((device.mounted.0 << 20 | device.mounted.1, disk))
    });
    pair.filter(|(mounted, disk)| mounted != disk).into_iter().collect()
}

/// Workers whose jobs came from the generator or from who worked for it, as those of a loop device: nobody waits for
/// them but through a request.
fn add_workers(history: &timeline::History, generator: &BTreeSet<i32>, helpers: &mut BTreeSet<i32>) {
    for job in &history.jobs {
        let is_for_it = match job.queued.map(|origin| origin.cause) {
            Some(origin::Cause::Thread { tid, .. }) => generator.contains(&tid) || helpers.contains(&tid),
            Some(origin::Cause::Request(_)) => true,
            _ => false,
        };
        if is_for_it {
            helpers.insert(job.tid);
        }
    }
}

/// The generator switches tracing off between its operations: the longest silence there is where. Found by its length,
/// as the switch itself leaves no event.
fn gaps(traced: &Traced) -> Vec<usize> {
    let events = &traced.trace.events;
    let between = traced.operations.windows(2).filter_map(|pair| {
        let first = events.partition_point(|event| event.ns <= pair[0].end_ns).max(1);
        let last = events.partition_point(|event| event.ns < pair[1].start_ns);
        (first..=last.min(events.len().saturating_sub(1)))
            .max_by_key(|at| events[*at].ns.saturating_sub(events[*at - 1].ns))
    });
    between.collect()
}

/// What is to be explained: the generator's operations, or a program's system calls by name.
fn windows(traced: &Traced, history: &mut timeline::History) -> Vec<(String, layer::StepId, Vec<Window>)> {
    if traced.work.is_some() || !traced.operations.is_empty() {
        let step = history.steps.id(Layer::Application, "operation");
        let all =
            traced.operations.iter().map(|o| Window { tid: o.tid, start: o.start_ns, end: o.end_ns.max(o.start_ns) });
        return vec![(String::new(), step, all.collect())];
    }
    let mut by_step: BTreeMap<layer::StepId, Vec<Window>> = BTreeMap::new();
    for call in &history.calls {
        let window = Window { tid: call.tid, start: call.start, end: call.end };
        by_step.entry(call.step).or_default().push(window);
    }
    by_step.into_iter().map(|(step, all)| (history.steps.get(step).name.to_string(), step, all)).collect()
}

/// Puts tables, charts, notes and warnings of all runs into the report.
pub fn present(analyses: &[Analysis], report: &mut Report) {
    tables::fill(analyses, report);
    charts::fill(analyses, report);
}
