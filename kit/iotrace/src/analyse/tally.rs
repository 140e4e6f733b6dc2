//! The figures of one traced run: per operation, per step, per layer, and other activity.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stentor_measure::Histogram;

use super::layer::{Layer, Step, StepId};
use super::requests::Kind;
use super::timeline::{History, State};
use super::walk::{self, Frames};

/// One operation, by layers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    pub start_ns: u64,
    /// As the generator measured it, or from a system call's beginning to its end.
    pub wall_ns: u64,
    /// Exclusive, in the order of [`Layer::EVERY`]. They sum to `wall_ns`.
    pub layers: [u64; Layer::COUNT],
    /// Between the entries and the exits of its system calls, as the trace has them.
    pub in_calls_ns: u64,
}

/// One step over all operations.
#[derive(Clone, Debug, Default)]
pub struct StepTally {
    pub calls: u64,
    /// Nanoseconds, without what was spent in steps below.
    pub exclusive: u64,
    pub inclusive: u64,
    /// Inclusive nanoseconds of a call.
    pub per_call: Histogram,
}

/// A line of a waterfall.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub step: Step,
    pub depth: u32,
    /// Nanoseconds from the operation's start.
    pub start: u64,
    pub end: u64,
}

/// Requests of a kind, each with its whole time, whoever waited for it and however long.
#[derive(Clone, Debug, Default)]
pub struct RequestTally {
    pub count: u64,
    /// Nanoseconds from the first bio, or where that was not seen from the request's making, to the first issue.
    pub before: Histogram,
    /// Nanoseconds from issue to completion.
    pub served: Histogram,
}

/// All operations of a kind.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The system call of a traced program; empty for the generator's operations.
    pub class: String,
    pub rows: Vec<Row>,
    pub steps: BTreeMap<Step, StepTally>,
    /// Nanoseconds in a layer and in all that it waited for.
    pub inclusive: [u64; Layer::COUNT],
    /// Issued while an operation went on, by anybody.
    pub requests: BTreeMap<Kind, RequestTally>,
    /// Of the operation with the median time.
    pub median: Vec<Line>,
}

/// A window of a thread that is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub tid: i32,
    pub start: u64,
    pub end: u64,
}

/// The windows' figures, and the threads that worked for them.
pub fn group(history: &mut History, class: &str, step: StepId, windows: &[Window]) -> (Group, BTreeSet<i32>) {
    let mut group = Group { class: class.to_owned(), ..Group::default() };
    let mut helpers = BTreeSet::new();
    let mut sums: HashMap<StepId, StepTally> = HashMap::new();
    for window in windows {
        let frames = walk::window(history, window.tid, window.start, window.end, step);
        helpers.extend(frames.threads.iter().copied());
        let row = row(history, &frames, *window, &mut group.inclusive);
        group.rows.push(row);
        add_steps(&frames, &mut sums);
    }
    group.steps = sums.into_iter().map(|(id, sum)| (history.steps.get(id).clone(), sum)).collect();
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by_key(|at| group.rows[*at].wall_ns);
    if let Some(at) = order.get(order.len().saturating_sub(1) / 2) {
        let window = windows[*at];
        let frames = walk::window(history, window.tid, window.start, window.end, step);
        group.median = lines(history, &frames, window.start);
    }
    (group, helpers)
}

fn row(history: &History, frames: &Frames, window: Window, inclusive: &mut [u64; Layer::COUNT]) -> Row {
    let mut row = Row {
        start_ns: window.start,
        wall_ns: window.end.saturating_sub(window.start),
        layers: [0; Layer::COUNT],
        in_calls_ns: 0,
    };
    // Layers on the way from the window to a frame, as bits.
    let mut around: Vec<u32> = vec![0; frames.all.len()];
    for (at, frame) in frames.all.iter().enumerate().skip(1) {
        let layer = history.steps.layer(frame.step);
        around[at] = around[frame.parent as usize] | 1 << layer.index();
        row.layers[layer.index()] += frame.exclusive;
        for layer in Layer::EVERY.iter().filter(|layer| around[at] & 1 << layer.index() != 0) {
            inclusive[layer.index()] += frame.exclusive;
        }
    }
    let sums = frames.inclusive();
    let is_call = |at: &usize| {
        let frame = &frames.all[*at];
        frame.depth == 1 && history.steps.layer(frame.step) == Layer::Call
    };
    row.in_calls_ns = (1..sums.len()).filter(is_call).map(|at| sums[at]).sum();
    row
}

fn add_steps(frames: &Frames, sums: &mut HashMap<StepId, StepTally>) {
    let inclusive = frames.inclusive();
    // A span that was waited for twice is one call; what a wait without a span took is known one by one.
    let mut calls: BTreeMap<(u64, StepId), u64> = BTreeMap::new();
    for (at, frame) in frames.all.iter().enumerate().skip(1) {
        let sum = sums.entry(frame.step).or_default();
        sum.exclusive += frame.exclusive;
        let mut above = frame.parent;
        let mut is_outermost = true;
        while above != 0 && is_outermost {
            is_outermost = frames.all[above as usize].step != frame.step;
            above = frames.all[above as usize].parent;
        }
        if is_outermost {
            sum.inclusive += inclusive[at];
        }
        if !frame.is_wait() {
            *calls.entry((frame.instance, frame.step)).or_default() += inclusive[at];
        }
    }
    for ((_, step), took) in calls.into_iter().chain(frames.waits.iter().map(|(step, took)| ((0, *step), *took))) {
        let sum = sums.entry(step).or_default();
        sum.calls += 1;
        sum.per_call.add(took);
    }
}

/// Frames in order of their begin, each below the one around it. What comes and goes has a line each time.
fn lines(history: &History, frames: &Frames, start: u64) -> Vec<Line> {
    // (begin, end, frame) by the frame around it.
    let mut below: Vec<Vec<(u64, u64, usize)>> = vec![Vec::new(); frames.all.len()];
    for (at, frame) in frames.all.iter().enumerate().skip(1) {
        if !frame.is_parts() && frame.first <= frame.last {
            below[frame.parent as usize].push((frame.first, frame.last, at));
        }
    }
    for (at, from, to) in &frames.parts {
        below[frames.all[*at as usize].parent as usize].push((*from, *to, *at as usize));
    }
    let mut out = Vec::new();
    let mut stack: Vec<(u64, u64, usize)> = vec![(0, 0, 0)];
    while let Some((from, to, at)) = stack.pop() {
        let frame = &frames.all[at];
        if at != 0 {
            out.push(Line {
                step: history.steps.get(frame.step).clone(),
                depth: frame.depth - 1,
                start: from.saturating_sub(start),
                end: to.saturating_sub(start),
            });
        }
        let mut children = std::mem::take(&mut below[at]);
        children.sort_by_key(|(from, ..)| std::cmp::Reverse(*from));
        stack.extend(children);
    }
    out
}

/// The requests to `devices` (all, where none is known) that were issued within any of the windows.
pub fn requests(history: &History, windows: &[Window], devices: &[u32]) -> BTreeMap<Kind, RequestTally> {
    let mut spans: Vec<(u64, u64)> = windows.iter().map(|window| (window.start, window.end)).collect();
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let is_within = next.0 <= last.1;
        last.1 = if is_within { last.1.max(next.1) } else { last.1 };
        is_within
    });
    let is_within = |ns: u64| {
        let before = spans.partition_point(|(start, _)| *start <= ns);
        before > 0 && ns < spans[before - 1].1
    };
    let mut sums: BTreeMap<Kind, RequestTally> = BTreeMap::new();
    for request in history.requests.all.iter().filter(|one| devices.is_empty() || devices.contains(&one.device)) {
        let Some(first) = request.on_device.first().filter(|service| is_within(service.start)) else { continue };
        let sum = sums.entry(request.kind).or_default();
        sum.count += 1;
        sum.served.add(request.on_device.iter().map(|service| service.end.saturating_sub(service.start)).sum());
        if let Some(begun) = request.queued.map(|origin| origin.ns).or((request.made > 0).then_some(request.made)) {
            sum.before.add(first.start.saturating_sub(begun));
        }
    }
    sums
}

/// Nanoseconds that each thread ran, within a time.
pub fn running(history: &History, from: u64, to: u64) -> HashMap<i32, u64> {
    let of = |thread: &super::timeline::Thread| {
        let ends = thread.pieces.iter().skip(1).map(|piece| piece.ns).chain([to]);
        let spans = thread.pieces.iter().zip(ends).filter(|(piece, _)| piece.state == State::Running);
        spans.map(|(piece, end)| end.min(to).saturating_sub(piece.ns.max(from))).sum()
    };
    history.threads.iter().map(|(tid, thread)| (*tid, of(thread))).collect()
}
