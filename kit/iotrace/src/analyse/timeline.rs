//! What each thread did and when: one pass over the events, in order of time.
//!
//! A thread's timeline is a list of pieces: from when on, in which state (running, ready, blocked), and in which span
//! (a node of a tree whose root is "nothing known"). A blocked piece knows what ended it: who called `sched_waking`,
//! which is a thread at its work or, in an interrupt, the completion of a request or a timer. That is all that the
//! attribution (`walk`) needs; events are not kept.
//!
//! Failure answers: an end without a beginning does nothing; a beginning without an end lasts until the span around it
//! ends, at the latest until the system call or the worker's job does; a thread that runs where another should be
//! (events were lost) leaves a piece of unknown state, never a wrong one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use smallvec::SmallVec;

use super::layer::{Layer, StepId, Steps};
use super::origin::{NONE, Origin};
use super::requests::Requests;
use super::rules::Token;

/// The root of the nodes.
pub const ROOT: u32 = 0;

/// A span that was open on a thread, and the one around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    pub parent: u32,
    pub step: StepId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not known yet: what the thread's first event says holds for the time before it too.
    Unknown,
    /// Not known: events are missing.
    Lost,
    Running,
    /// Woken, and not running yet.
    Woken,
    Preempted,
    Blocked,
}

/// What a thread was in from `ns` to the next piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub ns: u64,
    pub node: u32,
    /// Into [`History::wakes`], for blocked ones.
    pub wake: u32,
    pub state: State,
}

/// A kernel worker's job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    pub tid: i32,
    pub queued: Option<Origin>,
    pub started: u64,
    /// It lets throttled requests go.
    pub is_throttle: bool,
}

/// A system call of the traced program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub tid: i32,
    pub start: u64,
    pub end: u64,
    pub step: StepId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marked {
    /// Until the next event or until blocked.
    Fleeting,
    /// Outlasts one blocking.
    Wait,
    /// The same, if it was for a thread.
    Lock,
    /// A bio is on its way into a request: if blocked, then by a limit.
    Bio,
}

#[derive(Debug)]
pub struct Thread {
    pub pieces: Vec<Piece>,
    stack: SmallVec<[(Token, u32); 8]>,
    mark: Option<(u32, Marked)>,
    interrupts: SmallVec<[u32; 2]>,
    state: State,
    /// A waking that came while it ran.
    pending: u32,
    pub(super) last_ns: u64,
    pub(super) completion: Option<u32>,
    pub(super) job: u32,
    pub(super) last_job: u32,
    /// It makes system calls, and spans outside of them are not looked at: other calls are not traced.
    pub(super) is_user: bool,
    pub(super) call: Option<(u64, StepId)>,
    waited: bool,
}

impl Default for Thread {
    fn default() -> Thread {
        Thread {
            pieces: vec![Piece { ns: 0, node: ROOT, wake: NONE, state: State::Unknown }],
            stack: SmallVec::new(),
            mark: None,
            interrupts: SmallVec::new(),
            state: State::Unknown,
            pending: NONE,
            last_ns: 0,
            completion: None,
            job: NONE,
            last_job: NONE,
            is_user: false,
            call: None,
            waited: false,
        }
    }
}

impl Thread {
    /// The innermost span.
    pub(super) fn node(&self) -> u32 {
        let marked = || self.mark.map(|(node, _)| node);
        self.interrupts.last().copied().or_else(marked).unwrap_or_else(|| self.top())
    }

    pub(super) fn top(&self) -> u32 {
        self.stack.last().map_or(ROOT, |(_, node)| *node)
    }

    fn push(&mut self, ns: u64, state: State, wake: u32) {
        let node = self.node();
        self.state = state;
        // Time never goes back, whatever the events say.
        let ns = ns.max(self.pieces.last().map_or(0, |last| last.ns));
        if let Some(last) = self.pieces.last()
            && (last.node, last.state, last.wake) == (node, state, wake)
        {
            return;
        }
        self.pieces.push(Piece { ns, node, wake, state });
    }

    /// After its spans have changed.
    fn changed(&mut self, ns: u64) {
        if self.state == State::Running {
            self.push(ns, State::Running, NONE);
        }
    }

    /// Said of the piece that lasts until now, in hindsight.
    fn was(&mut self, state: State, wake: u32) {
        self.state = state;
        if let Some(last) = self.pieces.last_mut() {
            last.state = state;
            last.wake = wake;
        }
    }

    /// An event shows it running.
    pub(super) fn seen_running(&mut self, ns: u64) {
        match self.state {
            State::Running => {}
            State::Unknown => self.was(State::Running, NONE),
            State::Lost | State::Woken | State::Preempted | State::Blocked => self.push(ns, State::Running, NONE),
        }
        self.last_ns = ns;
    }

    /// An event shows another thread running in its place, and it was not seen to leave.
    pub(super) fn lost(&mut self) {
        if self.state == State::Running {
            self.forget_spans();
            self.push(self.last_ns, State::Lost, NONE);
        }
    }

    /// Tracing was off from here on: nothing is known of it until its next event.
    pub(super) fn gap(&mut self, ns: u64) {
        self.forget_spans();
        self.pending = NONE;
        self.completion = None;
        self.job = NONE;
        self.last_job = NONE;
        self.call = None;
        self.waited = false;
        self.push(ns, State::Unknown, NONE);
    }

    pub(super) fn forget_spans(&mut self) {
        self.stack.clear();
        self.mark = None;
        self.interrupts.clear();
    }

    /// `held`: the node of what a bio is held up by.
    pub(super) fn leave(&mut self, ns: u64, is_blocked: bool, held: impl FnOnce(u32) -> u32) {
        self.interrupts.clear();
        self.completion = None;
        if !is_blocked {
            self.push(ns, State::Preempted, NONE);
            return;
        }
        match self.mark {
            Some((node, Marked::Bio)) => self.mark = Some((held(node), Marked::Wait)),
            Some((_, Marked::Fleeting)) => self.mark = None,
            Some((_, Marked::Wait | Marked::Lock)) | None => {}
        }
        self.waited = true;
        self.push(ns, State::Blocked, self.pending);
    }

    pub(super) fn arrive(&mut self, ns: u64, wakes: &[Origin]) {
        match self.state {
            State::Unknown => self.was(State::Woken, NONE),
            // Not seen to leave: it was blocked from its last event to its waking.
            State::Running => {
                self.push(self.last_ns, State::Blocked, self.pending);
                if let Some(origin) = wakes.get(self.pending as usize) {
                    self.push(origin.ns, State::Woken, NONE);
                }
            }
            // Woken before it was quite asleep.
            State::Blocked if self.pending != NONE => self.was(State::Woken, NONE),
            State::Blocked | State::Woken | State::Preempted | State::Lost => {}
        }
        if std::mem::take(&mut self.waited) && matches!(self.mark, Some((_, Marked::Wait | Marked::Lock))) {
            self.mark = None;
        }
        self.pending = NONE;
        self.last_ns = ns;
        self.push(ns, State::Running, NONE);
    }

    /// `waited_for`: the node of what it waited for, where that is known only now.
    pub(super) fn woken(&mut self, ns: u64, wake: u32, waited_for: Option<u32>) {
        match self.state {
            State::Blocked => {
                self.was(State::Blocked, wake);
                self.pending = NONE;
                if let (Some(node), Some(last)) = (waited_for, self.pieces.last_mut()) {
                    last.node = node;
                    self.mark = Some((node, Marked::Wait));
                }
                self.push(ns, State::Woken, NONE);
            }
            State::Unknown | State::Lost => {
                self.was(State::Blocked, wake);
                self.push(ns, State::Woken, NONE);
            }
            State::Running => self.pending = wake,
            State::Woken | State::Preempted => {}
        }
    }

    pub(super) fn begin(&mut self, ns: u64, token: Token, node: u32) {
        self.mark = None;
        self.stack.push((token, node));
        self.changed(ns);
    }

    /// Where a span with this token would begin: behind the one that is still open is cut off.
    pub(super) fn cut(&mut self, token: Token) -> bool {
        let found = self.stack.iter().rposition(|(open, _)| *open == token);
        if let Some(at) = found {
            self.stack.truncate(at);
            self.mark = None;
        }
        found.is_some()
    }

    pub(super) fn is_at_lock(&self) -> bool {
        matches!(self.mark, Some((_, Marked::Lock)))
    }

    pub(super) fn is_within(&self, token: Token) -> bool {
        self.stack.iter().any(|(open, _)| *open == token)
    }

    pub(super) fn end(&mut self, ns: u64, token: Token) {
        self.cut(token);
        self.mark = None;
        self.changed(ns);
    }

    pub(super) fn marked(&mut self, ns: u64, mark: Option<(u32, Marked)>) {
        self.mark = mark;
        self.changed(ns);
    }

    pub(super) fn reset(&mut self, ns: u64) {
        self.stack.clear();
        self.mark = None;
        self.changed(ns);
    }

    pub(super) fn interrupt(&mut self, ns: u64, node: u32) {
        self.interrupts.push(node);
        self.changed(ns);
    }

    pub(super) fn interrupt_over(&mut self, ns: u64) {
        self.interrupts.pop();
        self.changed(ns);
    }
}

/// Steps that no tracepoint names.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub own_code: StepId,
    pub woken: StepId,
    pub worker: StepId,
    pub preempted: StepId,
    pub sleeping: StepId,
    pub network: StepId,
    pub held: StepId,
    pub plugged: StepId,
    pub queued: StepId,
    pub completion: StepId,
    pub read: StepId,
    pub write: StepId,
    pub flush: StepId,
    pub other: StepId,
    pub busy: StepId,
    pub no_waker: StepId,
    pub interrupt_waker: StepId,
    pub unknown_state: StepId,
    pub too_deep: StepId,
}

impl Fixed {
    fn new(steps: &mut Steps) -> Fixed {
        let mut id = |layer, name| steps.id(layer, name);
        Fixed {
            own_code: id(Layer::Application, "own code"),
            woken: id(Layer::Scheduler, "woken, waits for a CPU"),
            worker: id(Layer::Scheduler, "waits for a kernel worker"),
            preempted: id(Layer::Scheduler, "preempted"),
            sleeping: id(Layer::Application, "sleeps until a timer"),
            network: id(Layer::Application, "waits for the network"),
            held: id(Layer::Block, super::rules::HELD),
            plugged: id(Layer::Block, "request plugged"),
            queued: id(Layer::Block, "request queued"),
            completion: id(Layer::Block, "completion"),
            read: id(Layer::Device, "read"),
            write: id(Layer::Device, "write"),
            flush: id(Layer::Device, "flush"),
            other: id(Layer::Device, "other request"),
            busy: id(Layer::Device, "busy with earlier requests"),
            no_waker: id(Layer::Unattributed, "no event shows what it waited for"),
            interrupt_waker: id(Layer::Unattributed, "woken by an interrupt without a request"),
            unknown_state: id(Layer::Unattributed, "the thread's state is unknown"),
            too_deep: id(Layer::Unattributed, "chain of waits too long"),
        }
    }
}

/// All timelines of a trace.
#[derive(Debug)]
pub struct History {
    pub steps: Steps,
    pub fixed: Fixed,
    pub nodes: Vec<Node>,
    pub wakes: Vec<Origin>,
    pub jobs: Vec<Job>,
    pub requests: Requests,
    pub threads: HashMap<i32, Thread>,
    pub names: BTreeMap<i32, String>,
    /// Who runs when was traced. Else nothing tells when a thread waits, and only the device is told from its calls.
    pub has_switches: bool,
    /// Of the traced threads, in order of their ends.
    pub calls: Vec<Call>,
}

impl History {
    pub(super) fn new(names: BTreeMap<i32, String>, disks: HashMap<u32, u32>, traced: &BTreeSet<i32>) -> History {
        let mut steps = Steps::default();
        let fixed = Fixed::new(&mut steps);
        let mut threads: HashMap<i32, Thread> = HashMap::new();
        // Workers of io_uring make no calls.
        let is_worker = |tid: &&i32| names.get(tid).is_some_and(|name: &String| name.starts_with("iou-"));
        for tid in traced.iter().filter(|tid| !is_worker(tid)) {
            threads.entry(*tid).or_default().is_user = true;
        }
        History {
            nodes: vec![Node { parent: ROOT, step: fixed.own_code }],
            steps,
            fixed,
            wakes: Vec::new(),
            jobs: Vec::new(),
            requests: Requests::with_disks(disks),
            threads,
            names,
            has_switches: false,
            calls: Vec::new(),
        }
    }

    pub(super) fn node(&mut self, parent: u32, step: StepId) -> u32 {
        self.nodes.push(Node { parent, step });
        (self.nodes.len() - 1) as u32
    }

    /// What a thread does outside of all its spans.
    pub fn idle_step(&mut self, tid: i32) -> StepId {
        let (layer, name) = super::rules::worker::thread(self.names.get(&tid).map(String::as_str));
        self.steps.id(layer, name)
    }
}
