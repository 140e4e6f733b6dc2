//! Attributes each nanosecond of a window to one step: the heart of the analysis.
//!
//! A thread's window is cut along the thread's timeline. Running time belongs to the innermost span. Time spent ready
//! but not running belongs to the scheduler. Blocked time belongs to what the thread waited for, which is found
//! backwards from its waker:
//!
//! - a thread at work: that thread's own timeline over the same time, nested below the wait; if the thread is a worker,
//!   from the start of its job, before that the wait for a worker, and before the job was queued whatever was
//!   behind the queueing;
//! - the completion of a request: the time is cut along the request's life, from who submitted it through the block
//!   layer to the device and back;
//! - a timer: it slept;
//! - nothing that an event tells: unattributed.
//!
//! The result is a tree of frames, each with the time that was its own; the sum over all frames is the window, by
//! construction. Below a frame of the device nothing is told apart: what a loop device's worker does with its file is
//! the device's time to the file system above.
//!
//! Cost: a wait is cut into the pieces of other threads over the same time, at each depth at most once, so that a
//! window costs at most its events times [`DEPTH_MAX`].

use std::collections::HashMap;

use super::layer::{Layer, StepId};
use super::origin::{Cause, NONE};
use super::requests::{Kind, Service};
use super::timeline::{History, ROOT, State};

/// Waits for waits for waits. Real chains have three or four links.
const DEPTH_MAX: u32 = 24;
/// A frame has no more of these around it.
const NESTING_MAX: u32 = 96;

/// One span as the window saw it, below another.
#[derive(Clone, Debug)]
pub struct Frame {
    pub parent: u32,
    pub step: StepId,
    pub depth: u32,
    /// Equal for frames of one span that was seen below several waits.
    pub instance: u64,
    pub exclusive: u64,
    pub first: u64,
    pub last: u64,
    in_device: bool,
}

/// The frames of one window. The first is the window itself and has no time of its own.
#[derive(Debug, Default)]
pub struct Frames {
    pub all: Vec<Frame>,
    children: HashMap<(u32, u64), u32>,
    composed: HashMap<(u32, u32), u32>,
    /// Threads that were walked, with the window's own.
    pub threads: Vec<i32>,
    /// Waits that are no span of a thread, one by one.
    pub waits: Vec<(StepId, u64)>,
    /// (frame, from, to) of what has no beginning and end of its own, in order of time.
    pub parts: Vec<(u32, u64, u64)>,
}

pub struct Walker<'a> {
    history: &'a mut History,
    frames: Frames,
    own: i32,
}

const REQUESTS: u64 = 1 << 40;
const FIXED: u64 = 2 << 40;

/// The frames of `tid` from `from` to `to`.
pub fn window(history: &mut History, tid: i32, from: u64, to: u64, step: StepId) -> Frames {
    let root = Frame {
        parent: NONE,
        step,
        depth: 0,
        instance: 0,
        exclusive: 0,
        first: from,
        last: to.max(from),
        in_device: false,
    };
    let mut walker = Walker { history, frames: Frames { all: vec![root], ..Frames::default() }, own: tid };
    walker.thread(tid, from, to, 0, 0);
    walker.frames.spread_times();
    walker.frames
}

impl Frame {
    /// No span of a thread and no request: it has no beginning and end of its own.
    pub fn is_wait(&self) -> bool {
        self.instance >= FIXED
    }

    /// A wait, or a request, which may come and go.
    pub fn is_parts(&self) -> bool {
        self.instance >= REQUESTS
    }
}

impl Frames {
    /// Each frame begins with the first and ends with the last of those in it.
    fn spread_times(&mut self) {
        for at in (1..self.all.len()).rev() {
            let (parent, first, last) = (self.all[at].parent as usize, self.all[at].first, self.all[at].last);
            if first <= last {
                self.all[parent].first = self.all[parent].first.min(first);
                self.all[parent].last = self.all[parent].last.max(last);
            }
        }
    }

    /// Own time and that of all frames below.
    pub fn inclusive(&self) -> Vec<u64> {
        let mut sums: Vec<u64> = self.all.iter().map(|frame| frame.exclusive).collect();
        for at in (1..sums.len()).rev() {
            sums[self.all[at].parent as usize] += sums[at];
        }
        sums
    }
}

impl Walker<'_> {
    fn child(&mut self, parent: u32, step: StepId, instance: u64) -> u32 {
        if let Some(found) = self.frames.children.get(&(parent, instance)) {
            return *found;
        }
        let depth = self.frames.all[parent as usize].depth;
        if depth >= NESTING_MAX {
            return parent;
        }
        let number = self.frames.all.len() as u32;
        let in_device = self.history.steps.layer(step) == Layer::Device;
        self.frames.all.push(Frame {
            parent,
            step,
            depth: depth + 1,
            instance,
            exclusive: 0,
            first: u64::MAX,
            last: 0,
            in_device: in_device || self.frames.all[parent as usize].in_device,
        });
        self.frames.children.insert((parent, instance), number);
        number
    }

    /// The frame of a thread's span below another frame.
    fn compose(&mut self, parent: u32, node: u32) -> u32 {
        if node == ROOT || self.frames.all[parent as usize].in_device {
            return parent;
        }
        if let Some(found) = self.frames.composed.get(&(parent, node)) {
            return *found;
        }
        // From the innermost span out to the root, and back.
        let mut chain = Vec::new();
        let mut at = node;
        while at != ROOT && chain.len() < NESTING_MAX as usize {
            chain.push(at);
            at = self.history.nodes[at as usize].parent;
        }
        let mut frame = parent;
        for at in chain.into_iter().rev() {
            if self.frames.all[frame as usize].in_device {
                break;
            }
            frame = self.child(frame, self.history.nodes[at as usize].step, u64::from(at));
        }
        self.frames.composed.insert((parent, node), frame);
        frame
    }

    fn give(&mut self, number: u32, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let frame = &mut self.frames.all[number as usize];
        frame.exclusive += to - from;
        frame.first = frame.first.min(from);
        frame.last = frame.last.max(to);
        if frame.is_wait() {
            self.frames.waits.push((frame.step, to - from));
        }
        if frame.is_parts() {
            match self.frames.parts.last_mut() {
                Some((last, _, end)) if (*last, *end) == (number, from) => *end = to,
                _ => self.frames.parts.push((number, from, to)),
            }
        }
    }

    fn give_step(&mut self, frame: u32, step: StepId, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let is_device = self.frames.all[frame as usize].in_device;
        let child = if is_device { frame } else { self.child(frame, step, FIXED | u64::from(step.0)) };
        self.give(child, from, to);
    }

    /// A thread's timeline from `from` to `to`, below `frame`.
    fn thread(&mut self, tid: i32, from: u64, to: u64, frame: u32, depth: u32) {
        if from >= to {
            return;
        }
        if !self.frames.threads.contains(&tid) {
            self.frames.threads.push(tid);
        }
        let fixed = self.history.fixed;
        let Some(thread) = self.history.threads.get(&tid) else {
            return self.give_step(frame, fixed.unknown_state, from, to);
        };
        let mut at = thread.pieces.partition_point(|piece| piece.ns <= from).saturating_sub(1);
        loop {
            let pieces = &self.history.threads[&tid].pieces;
            let Some(piece) = pieces.get(at).copied().filter(|piece| piece.ns < to) else { break };
            let end = pieces.get(at + 1).map_or(to, |next| next.ns.min(to));
            let start = piece.ns.max(from);
            at += 1;
            let here = self.compose(frame, piece.node);
            if start >= end {
                continue;
            }
            match piece.state {
                State::Running if piece.node == ROOT => {
                    let step = if tid == self.own { fixed.own_code } else { self.history.idle_step(tid) };
                    self.give_step(here, step, start, end);
                }
                State::Running if !self.history.has_switches => self.with_device(here, start, end),
                State::Running => self.give(here, start, end),
                State::Woken => self.give_step(here, fixed.woken, start, end),
                State::Preempted => self.give_step(here, fixed.preempted, start, end),
                State::Blocked => self.blocked(here, start, end, piece.wake, depth + 1),
                State::Unknown | State::Lost => self.give_step(here, fixed.unknown_state, start, end),
            }
        }
    }

    /// Where nothing says when it waits: the device's as long as one is busy, whoever for.
    fn with_device(&mut self, frame: u32, from: u64, to: u64) {
        let mut at = from;
        for service in self.history.requests.on_any_device(from, to) {
            self.give(frame, at, service.start);
            self.give_service(frame, &service);
            at = service.end;
        }
        self.give(frame, at, to);
    }

    fn give_service(&mut self, frame: u32, service: &Service) {
        let fixed = self.history.fixed;
        let step = match service.kind {
            Kind::Read => fixed.read,
            Kind::Write => fixed.write,
            Kind::Flush => fixed.flush,
            Kind::Other => fixed.other,
        };
        // A request is one call, however often it is waited for.
        let here = self.child(frame, step, REQUESTS | u64::from(service.number));
        self.give(here, service.start, service.end);
    }

    fn blocked(&mut self, frame: u32, from: u64, to: u64, wake: u32, depth: u32) {
        let fixed = self.history.fixed;
        let here = &self.frames.all[frame as usize];
        if here.in_device || here.step == fixed.held {
            self.give(frame, from, to);
            return;
        }
        match self.history.wakes.get(wake as usize).copied() {
            Some(origin) => self.because(origin.cause, frame, from, to, depth),
            None => self.give_step(frame, fixed.no_waker, from, to),
        }
    }

    /// The time before something happened, by what was behind it.
    fn because(&mut self, cause: Cause, frame: u32, from: u64, to: u64, depth: u32) {
        if from >= to {
            return;
        }
        let fixed = self.history.fixed;
        if self.frames.all[frame as usize].in_device {
            return self.give(frame, from, to);
        }
        if depth > DEPTH_MAX {
            return self.give_step(frame, fixed.too_deep, from, to);
        }
        match cause {
            Cause::Thread { tid, job } => self.by_thread(tid, job, frame, from, to, depth),
            Cause::Request(request) => self.by_request(request, frame, from, to, depth),
            Cause::Timer => {
                // A sleep is the doing of the layer that sleeps.
                let layer = self.history.steps.layer(self.frames.all[frame as usize].step);
                let step = match layer {
                    Layer::Application | Layer::Unattributed => fixed.sleeping,
                    layer => self.history.steps.id(layer, "sleeps until a timer"),
                };
                self.give_step(frame, step, from, to);
            }
            Cause::Network => self.give_step(frame, fixed.network, from, to),
            Cause::Interrupt => self.give_step(frame, fixed.interrupt_waker, from, to),
            Cause::Unknown => self.give_step(frame, fixed.no_waker, from, to),
        }
    }

    fn by_thread(&mut self, tid: i32, job: u32, frame: u32, from: u64, to: u64, depth: u32) {
        let fixed = self.history.fixed;
        let Some(job) = self.history.jobs.get(job as usize).copied().filter(|job| job.started > from) else {
            return self.thread(tid, from, to, frame, depth);
        };
        if job.is_throttle {
            return self.give_step(frame, fixed.held, from, to);
        }
        let Some(queued) = job.queued else { return self.thread(tid, from, to, frame, depth) };
        let started = job.started.min(to);
        let asked = queued.ns.clamp(from, started);
        self.because(queued.cause, frame, from, asked, depth + 1);
        self.give_step(frame, fixed.worker, asked, started);
        self.thread(tid, started, to, frame, depth);
    }

    fn by_request(&mut self, number: u32, frame: u32, from: u64, to: u64, depth: u32) {
        let fixed = self.history.fixed;
        let Some(request) = self.history.requests.all.get(number as usize) else {
            return self.give_step(frame, fixed.no_waker, from, to);
        };
        let (queued, made, inserted) = (request.queued, request.made, request.inserted);
        let completed = request.completed;
        let mut at = from;
        // Before it was a request: its submitter's doing.
        let begun = if made > 0 { made } else { queued.map_or(0, |origin| origin.ns) }.clamp(at, to);
        if let Some(origin) = queued {
            self.because(origin.cause, frame, at, begun, depth + 1);
        } else {
            self.give_step(frame, fixed.no_waker, at, begun);
        }
        at = begun;
        let end = if completed > 0 { completed.clamp(at, to) } else { to };
        let spans = self.history.requests.on_device(number, at, end);
        // A request that asks for a flush is inserted after it.
        let first = spans.first().map_or(end, |span| span.start);
        if (at..first).contains(&inserted) {
            self.give_step(frame, fixed.plugged, at, inserted);
            at = inserted;
        }
        for span in spans {
            self.before_issue(number, span.job, frame, at, span.start);
            self.give_service(frame, &span);
            at = span.end;
        }
        self.queue_time(number, frame, at, end);
        self.give_step(frame, fixed.completion, end.max(at), to);
    }

    /// Queued until it is issued. If a worker does that and has been asked to, the time until it runs is the
    /// scheduler's.
    fn before_issue(&mut self, number: u32, job: u32, frame: u32, from: u64, to: u64) {
        let job = self.history.jobs.get(job as usize);
        let Some((asked, started)) = job.and_then(|job| Some((job.queued?.ns, job.started))) else {
            return self.queue_time(number, frame, from, to);
        };
        let asked = asked.clamp(from, to.max(from));
        let started = started.clamp(asked, to.max(asked));
        self.queue_time(number, frame, from, asked);
        self.give_step(frame, self.history.fixed.worker, asked, started);
        self.queue_time(number, frame, started, to);
    }

    /// Queued in the block layer: the device's time as far as it was busy with others.
    fn queue_time(&mut self, number: u32, frame: u32, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let fixed = self.history.fixed;
        let mut at = from;
        for other in self.history.requests.others_on_device(number, from, to) {
            self.give_step(frame, fixed.queued, at, other.start);
            self.give_step(frame, fixed.busy, other.start, other.end);
            at = other.end;
        }
        self.give_step(frame, fixed.queued, at, to);
    }
}
