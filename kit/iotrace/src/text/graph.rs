//! Calls from lines: a stack for each thread, so that a callee's time is not counted again in its caller.
//!
//! The running thread is in the line (`trace-cmd report`, option funcgraph-proc), or follows from the switches that the
//! text shows for each CPU. The indentation gives the depth, so that an end finds its beginning even if lines in
//! between were lost. Interrupts are deeper calls on the stack of the interrupted thread.

use std::collections::BTreeMap;

use crate::text::line::{Line, Step, Task};
use crate::text::totals::{Function, Totals};

/// The kernel's own limit is 50; more is no call of a function.
const DEPTH_MAX: usize = 256;

/// Whose stack. Thread 0 is another one on each CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Thread(u32),
    Idle(u32),
    /// Nobody knows who ran there.
    Cpu(u32),
}

#[derive(Clone, Debug)]
struct Frame {
    function: String,
    indent: usize,
    /// Durations of what it called.
    children_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Stack {
    frames: Vec<Frame>,
    /// Durations of ended calls whose caller's beginning is not in the trace, by indentation.
    orphans: BTreeMap<usize, u64>,
    /// Interrupts that have begun and not ended.
    interrupts: u32,
    process: String,
}

/// Reads line by line.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    totals: Totals,
    stacks: BTreeMap<Key, Stack>,
    /// Who runs on a CPU, where only switches tell.
    running: BTreeMap<u32, (Key, String)>,
}

impl Graph {
    pub fn line(&mut self, text: &str) {
        let line = Line::parse(text);
        if line != Line::Nothing {
            self.totals.lines += 1;
        }
        match line {
            Line::Nothing => {}
            Line::Unknown => self.totals.unknown_lines += 1,
            Line::Lost { cpu, events } => match events {
                Some(events) => {
                    let lost = self.totals.lost.entry(cpu).or_default();
                    *lost = lost.saturating_add(events);
                }
                None => self.totals.losses_uncounted += 1,
            },
            Line::Event { task, name, .. } => {
                count(&mut self.totals.events, name);
                self.totals.processes.entry(label(&task)).or_default().events += 1;
            }
            Line::Switch { cpu, from, to } => self.switch(cpu, &from, &to),
            Line::Graph { task, cpu, duration_ns, indent, step } => {
                let key = self.whose(task.as_ref(), cpu);
                self.step(key, duration_ns, indent, step);
            }
        }
    }

    pub fn finish(mut self) -> Totals {
        for stack in std::mem::take(&mut self.stacks).into_values() {
            for frame in stack.frames {
                self.totals.functions.entry(frame.function).or_default().unfinished += 1;
            }
        }
        self.totals
    }

    fn whose(&mut self, task: Option<&Task<'_>>, cpu: Option<u32>) -> Key {
        let cpu = cpu.unwrap_or(0);
        let (key, process) = match (task, self.running.get(&cpu)) {
            (Some(task), _) => (key_of(task, cpu), label(task)),
            (None, Some((key, process))) => (*key, process.clone()),
            (None, None) => (Key::Cpu(cpu), format!("cpu {cpu}")),
        };
        let stack = self.stacks.entry(key).or_default();
        if stack.process != process {
            stack.process = process;
        }
        key
    }

    /// What the CPU did until now, if nobody was named, was the doing of the one that leaves.
    fn switch(&mut self, cpu: u32, from: &Task<'_>, to: &Task<'_>) {
        let unnamed = Key::Cpu(cpu);
        if !self.running.contains_key(&cpu)
            && let Some(mut stack) = self.stacks.remove(&unnamed)
        {
            if let Some(process) = self.totals.processes.remove(&stack.process) {
                let named = self.totals.processes.entry(label(from)).or_default();
                named.events += process.events;
                named.calls += process.calls;
                named.exclusive_ns = named.exclusive_ns.saturating_add(process.exclusive_ns);
                named.interrupt_ns = named.interrupt_ns.saturating_add(process.interrupt_ns);
            }
            stack.process = label(from);
            self.stacks.entry(key_of(from, cpu)).or_insert(stack);
        }
        self.running.insert(cpu, (key_of(to, cpu), label(to)));
    }

    fn step(&mut self, key: Key, duration_ns: Option<u64>, indent: usize, step: Step<'_>) {
        let Some(stack) = self.stacks.get_mut(&key) else { return };
        let totals = &mut self.totals;
        totals.processes.entry(stack.process.clone()).or_default().events += 1;
        match step {
            Step::IrqIn => stack.interrupts += 1,
            Step::IrqOut => stack.interrupts = stack.interrupts.saturating_sub(1),
            Step::Comment(text) => {
                if let Some((name, _)) = text.split_once(": ").filter(|(name, _)| !name.contains(' ')) {
                    count(&mut totals.events, name);
                }
            }
            Step::Enter(name) => {
                stack.cut(indent, totals);
                if stack.frames.len() < DEPTH_MAX {
                    stack.frames.push(Frame { function: name.to_owned(), indent, children_ns: 0 });
                }
            }
            Step::Leaf(name) => {
                stack.cut(indent, totals);
                // Without the column of durations there is nothing to add up but calls.
                stack.ended(name, duration_ns.unwrap_or(0), 0, indent, false, totals);
            }
            Step::Leave(name) => stack.leave(name, duration_ns.unwrap_or(0), indent, totals),
        }
    }
}

impl Stack {
    /// Calls at this depth or deeper that did not end: their ends were lost.
    fn cut(&mut self, indent: usize, totals: &mut Totals) {
        while let Some(frame) = self.frames.pop_if(|frame| frame.indent >= indent) {
            totals.functions.entry(frame.function).or_default().unfinished += 1;
        }
        self.orphans.retain(|depth, _| *depth <= indent);
    }

    fn leave(&mut self, name: Option<&str>, duration_ns: u64, indent: usize, totals: &mut Totals) {
        let deeper: u64 = self.orphans.iter().filter(|(depth, _)| **depth > indent).map(|(_, ns)| *ns).sum();
        self.cut(indent + 1, totals);
        match self.frames.pop_if(|frame| frame.indent == indent && name.is_none_or(|name| name == frame.function)) {
            Some(frame) => self.ended(&frame.function, duration_ns, frame.children_ns, indent, false, totals),
            None => {
                if let Some(name) = name {
                    self.ended(name, duration_ns, deeper, indent, true, totals);
                } else {
                    totals.nameless += 1;
                    self.called(duration_ns, indent);
                }
            }
        }
    }

    /// Tells the caller.
    fn called(&mut self, duration_ns: u64, indent: usize) {
        match self.frames.last_mut() {
            Some(caller) if caller.indent < indent => {
                caller.children_ns = caller.children_ns.saturating_add(duration_ns);
            }
            _ => {
                let orphans = self.orphans.entry(indent).or_default();
                *orphans = orphans.saturating_add(duration_ns);
            }
        }
    }

    fn ended(&mut self, name: &str, ns: u64, children_ns: u64, indent: usize, is_headless: bool, totals: &mut Totals) {
        let is_nested = self.frames.iter().any(|frame| frame.function == name);
        let exclusive_ns = ns.saturating_sub(children_ns);
        if !totals.functions.contains_key(name) {
            totals.functions.insert(name.to_owned(), Function::default());
        }
        if let Some(function) = totals.functions.get_mut(name) {
            function.calls += 1;
            function.headless += u64::from(is_headless);
            function.sum_ns = function.sum_ns.saturating_add(ns);
            function.exclusive_ns = function.exclusive_ns.saturating_add(exclusive_ns);
            if !is_nested {
                function.inclusive_ns = function.inclusive_ns.saturating_add(ns);
            }
            function.durations.add(ns);
        }
        let process = totals.processes.entry(self.process.clone()).or_default();
        process.calls += 1;
        process.exclusive_ns = process.exclusive_ns.saturating_add(exclusive_ns);
        if self.interrupts > 0 {
            process.interrupt_ns = process.interrupt_ns.saturating_add(exclusive_ns);
        }
        self.called(ns, indent);
    }
}

fn key_of(task: &Task<'_>, cpu: u32) -> Key {
    if task.tid == 0 { Key::Idle(cpu) } else { Key::Thread(task.tid) }
}

fn label(task: &Task<'_>) -> String {
    format!("{}-{}", task.name, task.tid)
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}
