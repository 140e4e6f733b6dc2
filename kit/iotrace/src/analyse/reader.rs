//! Turns events into timelines: what each event says about threads, requests and workers' jobs.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::layer::{Layer, StepId};
use super::origin::{Cause, NONE, Origin};
use super::rules::{self, Act, Token};
use super::timeline::{Call, History, Job, Marked, ROOT, Thread};
use crate::event::{Event, Trace, Value};

/// What an event is for more than the stack of its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Plain,
    Enter(StepId),
    Exit,
    Switch,
    Waking,
    Wakeup,
    QueueWork,
    WorkStart,
    WorkEnd,
    BioQueue,
    Split,
    GetRequest,
    BackMerge,
    FrontMerge,
    RequestMerge,
    Insert,
    Issue,
    Requeue,
    Complete,
    Done,
    InterruptEntry,
    SoftEntry,
    InterruptExit,
}

/// An act whose step has its number.
#[derive(Clone, Copy, Debug)]
enum Resolved {
    Push(Token, StepId),
    PushAfter(Token, Token, StepId),
    PushOutside(Token, Token, StepId),
    Pop(Token),
    Mark(StepId, Marked),
    WaitAfter(Token, StepId),
    Clear,
    Keep,
}

/// Fields that are read, by their numbers in the trace.
#[derive(Debug, Default)]
struct Fields {
    dev: Option<u16>,
    sector: Option<u16>,
    new_sector: Option<u16>,
    nr_sector: Option<u16>,
    rwbs: Option<u16>,
    prev_state: Option<u16>,
    next_pid: Option<u16>,
    pid: Option<u16>,
    work: Option<u16>,
    function: Option<u16>,
    workqueue: Option<u16>,
    vec: Option<u16>,
    name: Option<u16>,
    id: Option<u16>,
}

/// What a CPU is at.
#[derive(Clone, Debug)]
struct Cpu {
    /// −1 until its first event.
    tid: i32,
    /// The last completion within the interrupt at hand: of softirqs, of hard ones.
    completions: [Option<u32>; 2],
    softirq: Option<i64>,
    has_handler: bool,
}

/// Softirq vectors of the kernel (`include/linux/interrupt.h`).
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
const TIMER: i64 = 1;
const NET_TX: i64 = 2;
const NET_RX: i64 = 3;
const HRTIMER: i64 = 8;
/// Of `prev_state`: switched away from although it could run.
const STATE_PREEMPTED: i64 = 0x100;
/// More CPUs than any kernel has.
const CPUS_MAX: usize = 8192;

struct Reader<'a> {
    history: History,
    roles: Vec<Role>,
    acts: Vec<Resolved>,
    fields: Fields,
    cpus: Vec<Cpu>,
    /// Jobs that wait for a worker, by their work's address, with their queue's name.
    queued: HashMap<u64, (Origin, Option<Box<str>>)>,
    held: StepId,
    has_interrupts: bool,
    has_waking: bool,
    traced: &'a BTreeSet<i32>,
}

/// `disks`: the disk of each partition. `traced`: the threads whose system calls count. `gaps`: the events, by their
/// place in the trace and in order, before which tracing was off.
pub fn read(trace: &Trace, disks: HashMap<u32, u32>, traced: &BTreeSet<i32>, gaps: &[usize]) -> History {
    let mut history = History::new(trace.threads.clone(), disks, traced);
    history.has_switches = trace.kind("sched/sched_switch").is_some();
    let roles = trace.kinds.iter().map(|kind| role(&mut history, kind)).collect();
    let acts = trace.kinds.iter().map(|kind| resolve(&mut history, kind)).collect();
    let field = |name| trace.field(name);
    let fields = Fields {
        dev: field("dev"),
        sector: field("sector"),
        new_sector: field("new_sector"),
        nr_sector: field("nr_sector"),
        rwbs: field("rwbs"),
        prev_state: field("prev_state"),
        next_pid: field("next_pid"),
        pid: field("pid"),
        work: field("work"),
        function: field("function"),
        workqueue: field("workqueue"),
        vec: field("vec"),
        name: field("name"),
        id: field("id"),
    };
    let held = history.fixed.held;
    let mut reader = Reader {
        history,
        roles,
        acts,
        fields,
        cpus: Vec::new(),
        queued: HashMap::new(),
        held,
        has_interrupts: trace.kind("irq/irq_handler_entry").is_some(),
        has_waking: trace.kind("sched/sched_waking").is_some(),
        traced,
    };
    let mut gaps = gaps.iter().copied().peekable();
    for (at, event) in trace.events.iter().enumerate() {
        if gaps.next_if_eq(&at).is_some() && at > 0 {
            reader.gap(trace.events[at - 1].ns);
        }
        reader.feed(event);
    }
    reader.history.requests.sort();
    reader.history
}

fn role(history: &mut History, kind: &str) -> Role {
    if let Some(name) = rules::syscall::entered(kind) {
        return Role::Enter(history.steps.id(Layer::Call, name));
    }
    if rules::syscall::is_exit(kind) {
        return Role::Exit;
    }
    match kind {
        "raw_syscalls/sys_enter" => Role::Enter(history.steps.id(Layer::Call, "system call")),
        "sched/sched_switch" => Role::Switch,
        "sched/sched_waking" => Role::Waking,
        "sched/sched_wakeup" => Role::Wakeup,
        "workqueue/workqueue_queue_work" => Role::QueueWork,
        "workqueue/workqueue_execute_start" => Role::WorkStart,
        "workqueue/workqueue_execute_end" => Role::WorkEnd,
        "block/block_bio_queue" => Role::BioQueue,
        "block/block_split" => Role::Split,
        "block/block_getrq" => Role::GetRequest,
        "block/block_bio_backmerge" => Role::BackMerge,
        "block/block_bio_frontmerge" => Role::FrontMerge,
        "block/block_rq_merge" => Role::RequestMerge,
        "block/block_rq_insert" => Role::Insert,
        "block/block_rq_issue" => Role::Issue,
        "block/block_rq_requeue" => Role::Requeue,
        "block/block_rq_complete" => Role::Complete,
        "block/block_io_done" => Role::Done,
        "irq/irq_handler_entry" => Role::InterruptEntry,
        "irq/softirq_entry" => Role::SoftEntry,
        "irq/irq_handler_exit" | "irq/softirq_exit" => Role::InterruptExit,
        _ => Role::Plain,
    }
}

fn resolve(history: &mut History, kind: &str) -> Resolved {
    let Some((_, act)) = rules::every().find(|(event, _)| *event == kind) else { return Resolved::Keep };
    match *act {
        Act::Push(token, layer, name) => Resolved::Push(token, history.steps.id(layer, name)),
        Act::PushAfter(before, token, layer, name) => Resolved::PushAfter(before, token, history.steps.id(layer, name)),
        Act::PushOutside(outer, token, layer, name) => {
            Resolved::PushOutside(outer, token, history.steps.id(layer, name))
        }
        Act::Pop(token) => Resolved::Pop(token),
        Act::Mark(layer, name) => {
            let mark = if name == rules::QUEUE_BIO { Marked::Bio } else { Marked::Fleeting };
            Resolved::Mark(history.steps.id(layer, name), mark)
        }
        Act::Wait(layer, name) => Resolved::Mark(history.steps.id(layer, name), Marked::Wait),
        Act::Lock(layer, name) => Resolved::Mark(history.steps.id(layer, name), Marked::Lock),
        Act::WaitAfter(token, layer, name) => Resolved::WaitAfter(token, history.steps.id(layer, name)),
        Act::Clear => Resolved::Clear,
    }
}

/// 0: the thread itself; 1: a softirq; 2: a hard one.
fn level(event: &Event) -> usize {
    if event.context & Event::IRQ != 0 { 2 } else { usize::from(event.context & Event::SOFTIRQ != 0) }
}

/// Same text or number, same work. Never zero-cost to guess: two works with one hash would share a queue's time.
fn identity(value: &Value) -> u64 {
    match value {
        Value::Number(number) => *number as u64,
        Value::Text(text) => {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        }
    }
}

fn value(event: &Event, field: Option<u16>) -> Option<&Value> {
    event.value(field?)
}

fn number(event: &Event, field: Option<u16>) -> Option<i64> {
    event.number(field?)
}

fn text(event: &Event, field: Option<u16>) -> Option<&str> {
    match value(event, field)? {
        Value::Text(text) => Some(text),
        Value::Number(_) => None,
    }
}

impl Reader<'_> {
    fn thread(&mut self, tid: i32) -> &mut Thread {
        self.history.threads.entry(tid).or_default()
    }

    fn cpu(&mut self, event: &Event) -> &mut Cpu {
        let at = usize::from(event.cpu).min(CPUS_MAX);
        while self.cpus.len() <= at {
            self.cpus.push(Cpu { tid: -1, completions: [None; 2], softirq: None, has_handler: false });
        }
        &mut self.cpus[at]
    }

    fn gap(&mut self, ns: u64) {
        for thread in self.history.threads.values_mut() {
            thread.gap(ns);
        }
        self.cpus.clear();
        self.queued.clear();
        self.history.requests.gap();
    }

    fn feed(&mut self, event: &Event) {
        let Some(role) = self.roles.get(usize::from(event.kind)).copied() else { return };
        let level = level(event);
        let cpu = self.cpu(event);
        // An event of a lower level says that the interrupt is over, also where its end is not traced.
        if level == 0 {
            cpu.completions = [None; 2];
            cpu.softirq = None;
        } else if level == 1 {
            cpu.completions[1] = None;
        }
        if level < 2 {
            cpu.has_handler = false;
        }
        let before = std::mem::replace(&mut cpu.tid, event.tid);
        if before != event.tid && before > 0 && self.history.has_switches {
            self.thread(before).lost();
        }
        if event.tid > 0 {
            self.thread(event.tid).seen_running(event.ns);
        }
        match role {
            Role::InterruptEntry | Role::SoftEntry | Role::InterruptExit => self.interrupt(event, role),
            Role::Switch => self.switch(event),
            Role::Waking => self.waking(event, true),
            Role::Wakeup => self.waking(event, self.has_waking),
            Role::QueueWork => self.queue_work(event),
            _ => self.request(event, role, level),
        }
        if level == 0 && event.tid > 0 {
            match role {
                Role::Enter(step) => self.enter(event, step),
                Role::Exit => self.exit(event),
                Role::WorkStart => self.work_start(event),
                Role::WorkEnd => self.work_end(event),
                _ => self.act(event),
            }
        }
    }

    fn act(&mut self, event: &Event) {
        let act = self.acts.get(usize::from(event.kind)).copied().unwrap_or(Resolved::Keep);
        // Without switches nothing says how long a mark lasts.
        let is_unknown = matches!(act, Resolved::Mark(..)) && !self.history.has_switches;
        let thread = self.thread(event.tid);
        if is_unknown || matches!(act, Resolved::Keep) || (thread.is_user && thread.call.is_none()) {
            return;
        }
        match act {
            Resolved::PushOutside(outer, token, _) if thread.is_within(outer) => thread.end(event.ns, token),
            Resolved::Push(token, step) | Resolved::PushOutside(_, token, step) => self.push(event, token, step),
            Resolved::PushAfter(before, token, step) => {
                thread.cut(before);
                self.push(event, token, step);
            }
            Resolved::Pop(token) => thread.end(event.ns, token),
            Resolved::Mark(step, kind) => self.mark(event, step, kind),
            Resolved::WaitAfter(token, step) => {
                thread.cut(token);
                self.mark(event, step, Marked::Wait);
            }
            Resolved::Clear => thread.marked(event.ns, None),
            Resolved::Keep => {}
        }
    }

    fn push(&mut self, event: &Event, token: Token, step: StepId) {
        self.thread(event.tid).cut(token);
        let parent = self.thread(event.tid).top();
        let node = self.history.node(parent, step);
        self.thread(event.tid).begin(event.ns, token, node);
    }

    fn mark(&mut self, event: &Event, step: StepId, kind: Marked) {
        let parent = self.thread(event.tid).top();
        let node = self.history.node(parent, step);
        self.thread(event.tid).marked(event.ns, Some((node, kind)));
    }

    fn enter(&mut self, event: &Event, step: StepId) {
        let step = match number(event, self.fields.id) {
            Some(id) => self.history.steps.id(Layer::Call, &format!("system call {id}")),
            None => step,
        };
        self.thread(event.tid).forget_spans();
        let node = self.history.node(ROOT, step);
        let thread = self.thread(event.tid);
        thread.is_user = true;
        thread.call = Some((event.ns, step));
        thread.begin(event.ns, Token::Call, node);
    }

    fn exit(&mut self, event: &Event) {
        let is_traced = self.traced.contains(&event.tid);
        let thread = self.thread(event.tid);
        thread.reset(event.ns);
        if let Some((start, step)) = thread.call.take()
            && is_traced
        {
            self.history.calls.push(Call { tid: event.tid, start, end: event.ns, step });
        }
    }

    fn switch(&mut self, event: &Event) {
        let is_blocked = match value(event, self.fields.prev_state) {
            Some(Value::Number(state)) => *state != 0 && *state & STATE_PREEMPTED == 0,
            Some(Value::Text(state)) => !state.starts_with('R'),
            None => true,
        };
        if event.tid > 0 {
            let held = self.held;
            let nodes = &mut self.history.nodes;
            let thread = self.history.threads.entry(event.tid).or_default();
            thread.leave(event.ns, is_blocked, |mark| {
                let parent = nodes.get(mark as usize).map_or(ROOT, |node| node.parent);
                nodes.push(super::timeline::Node { parent, step: held });
                (nodes.len() - 1) as u32
            });
        }
        let next = number(event, self.fields.next_pid).map_or(-1, |tid| tid as i32);
        self.cpu(event).tid = next;
        if next > 0 {
            let thread = self.history.threads.entry(next).or_default();
            thread.arrive(event.ns, &self.history.wakes);
        }
    }

    /// `known`: the event comes from who wakes, not from where it is woken.
    fn waking(&mut self, event: &Event, known: bool) {
        let Some(tid) = number(event, self.fields.pid).map(|tid| tid as i32).filter(|tid| *tid > 0) else { return };
        let is_wakeup = self.roles.get(usize::from(event.kind)) == Some(&Role::Wakeup);
        if (is_wakeup && known) || (tid == event.tid && level(event) == 0) {
            return;
        }
        let cause = if is_wakeup { Cause::Unknown } else { self.cause(event) };
        let wake = self.history.wakes.len() as u32;
        self.history.wakes.push(Origin { ns: event.ns, cause });
        let waited_for = match cause {
            // No event says that a thread begins to wait for a commit; who wakes it does.
            Cause::Thread { tid: by, job: NONE } if self.is_journal(by) => {
                let parent = self.thread(tid).top();
                let step = self.history.steps.id(Layer::Journal, rules::WAIT_COMMIT);
                Some(self.history.node(parent, step))
            }
            Cause::Thread { .. } => None,
            _ => Some(self.thread(tid)).filter(|thread| thread.is_at_lock()).map(|thread| thread.top()),
        };
        self.thread(tid).woken(event.ns, wake, waited_for);
    }

    fn is_journal(&self, tid: i32) -> bool {
        self.history.names.get(&tid).is_some_and(|name| name.starts_with(rules::JOURNAL_THREAD))
    }

    /// What is behind something that happens in this event's context.
    fn cause(&mut self, event: &Event) -> Cause {
        let has_interrupts = self.has_interrupts;
        let level = level(event);
        if level == 0 {
            let Some(thread) = self.history.threads.get(&event.tid).filter(|_| event.tid > 0) else {
                return Cause::Unknown;
            };
            let job = if thread.job == NONE { thread.last_job } else { thread.job };
            return thread.completion.map_or(Cause::Thread { tid: event.tid, job }, Cause::Request);
        }
        let cpu = self.cpu(event);
        if let Some(request) = cpu.completions[level - 1] {
            return Cause::Request(request);
        }
        match (level, cpu.softirq) {
            (1, Some(TIMER | HRTIMER)) => Cause::Timer,
            (1, Some(NET_RX | NET_TX)) => Cause::Network,
            // Local timers have no handler.
            (2, _) if has_interrupts && !cpu.has_handler => Cause::Timer,
            _ => Cause::Interrupt,
        }
    }

    fn interrupt(&mut self, event: &Event, role: Role) {
        let (vec, name) = (number(event, self.fields.vec), text(event, self.fields.name).map(str::to_owned));
        let cpu = self.cpu(event);
        match role {
            Role::SoftEntry => {
                cpu.softirq = vec;
                cpu.completions[0] = None;
            }
            Role::InterruptEntry => {
                cpu.has_handler = true;
                cpu.completions[1] = None;
            }
            _ => {
                cpu.has_handler = false;
                cpu.completions[1] = None;
                if level(event) == 1 {
                    cpu.completions[0] = None;
                }
            }
        }
        if event.tid <= 0 {
            return;
        }
        if role == Role::InterruptExit {
            self.thread(event.tid).interrupt_over(event.ns);
            return;
        }
        let name = match role {
            Role::SoftEntry => {
                let at = vec.and_then(|vec| usize::try_from(vec).ok());
                format!("softirq {}", at.and_then(|at| SOFTIRQS.get(at)).copied().unwrap_or("of unknown kind"))
            }
            _ => name.unwrap_or_else(|| "hard interrupt".to_owned()),
        };
        let step = self.history.steps.id(Layer::Interrupt, &name);
        let parent = self.thread(event.tid).node();
        let node = self.history.node(parent, step);
        self.thread(event.tid).interrupt(event.ns, node);
    }

    fn queue_work(&mut self, event: &Event) {
        let Some(work) = value(event, self.fields.work).map(identity) else { return };
        let queue = text(event, self.fields.workqueue).map(Box::from);
        let cause = self.cause(event);
        self.queued.insert(work, (Origin { ns: event.ns, cause }, queue));
    }

    fn work_start(&mut self, event: &Event) {
        let queued = value(event, self.fields.work).and_then(|work| self.queued.remove(&identity(work)));
        let (queued, queue) = queued.map_or((None, None), |(origin, queue)| (Some(origin), queue));
        let (layer, name) = rules::worker::job(text(event, self.fields.function), queue.as_deref());
        let job = self.history.jobs.len() as u32;
        let is_throttle = layer == Layer::Block && name == rules::HELD;
        self.history.jobs.push(Job { tid: event.tid, queued, started: event.ns, is_throttle });
        let step = self.history.steps.id(layer, &name);
        self.thread(event.tid).forget_spans();
        let node = self.history.node(ROOT, step);
        let thread = self.thread(event.tid);
        thread.job = job;
        thread.completion = None;
        thread.begin(event.ns, Token::Work, node);
    }

    fn work_end(&mut self, event: &Event) {
        let thread = self.thread(event.tid);
        thread.completion = None;
        thread.last_job = std::mem::replace(&mut thread.job, NONE);
        thread.reset(event.ns);
    }

    fn request(&mut self, event: &Event, role: Role, level: usize) {
        let (Some(device), Some(sector)) = (number(event, self.fields.dev), number(event, self.fields.sector)) else {
            return;
        };
        let device = device as u32;
        let sectors = number(event, self.fields.nr_sector).unwrap_or(0);
        let rwbs = text(event, self.fields.rwbs).unwrap_or("");
        let ns = event.ns;
        if role == Role::BioQueue {
            let cause = self.cause(event);
            self.history.requests.bio_queued(device, sector, Origin { ns, cause });
            return;
        }
        let rest = number(event, self.fields.new_sector);
        let job =
            if level == 0 { self.history.threads.get(&event.tid).map_or(NONE, |thread| thread.job) } else { NONE };
        let requests = &mut self.history.requests;
        match role {
            Role::Split => rest.map_or((), |rest| requests.split(device, sector, rest)),
            Role::GetRequest => requests.made(device, sector, rwbs, ns),
            Role::BackMerge => requests.merged(device, sector, sectors, false),
            Role::FrontMerge => requests.merged(device, sector, sectors, true),
            Role::RequestMerge => requests.swallowed(device, sector),
            Role::Insert => requests.inserted(device, sector, ns),
            Role::Issue => requests.issued(device, sector, sectors, rwbs, ns, job),
            Role::Requeue => requests.requeued(device, sector, ns),
            Role::Complete => {
                let request = requests.completed(device, sector, sectors, rwbs, ns);
                match level {
                    0 if event.tid > 0 => self.thread(event.tid).completion = request,
                    0 => {}
                    level => self.cpu(event).completions[level - 1] = request,
                }
            }
            // What a thread completed itself is over; an interrupt may go on to wake.
            Role::Done if level == 0 && event.tid > 0 => self.thread(event.tid).completion = None,
            _ => {}
        }
    }
}
