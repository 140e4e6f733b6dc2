//! Sums over a trace's text.

use std::collections::BTreeMap;

use stentor_measure::Histogram;

/// A function's calls.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// That ended within the trace: only they have a duration.
    pub calls: u64,
    /// With what it called. A call within a call of the same function is not added again.
    pub inclusive_ns: u64,
    /// Without.
    pub exclusive_ns: u64,
    /// Durations of all calls, also of those within each other.
    pub sum_ns: u64,
    /// Inclusive, of each call.
    pub durations: Histogram,
    /// Of these, calls whose beginning is not in the trace: what they called before is in their exclusive time.
    pub headless: u64,
    /// Calls that did not end within the trace; not in `calls`.
    pub unfinished: u64,
}

impl Function {
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.calls.max(1) as f64
    }
}

/// What a process did.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Events and lines of the function graph.
    pub events: u64,
    pub calls: u64,
    /// In functions; none twice.
    pub exclusive_ns: u64,
    /// Of that, in interrupts that came while it ran.
    pub interrupt_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub functions: BTreeMap<String, Function>,
    /// By `name-tid`, or `cpu N` where the text does not say who ran.
    pub processes: BTreeMap<String, Process>,
    /// Tracepoints, and comments within the graph, by name.
    pub events: BTreeMap<String, u64>,
    /// Events lost, by CPU, where a number was given.
    pub lost: BTreeMap<u32, u64>,
    /// How often events were lost without a number.
    pub losses_uncounted: u64,
    /// With something in them.
    pub lines: u64,
    pub unknown_lines: u64,
    /// Ends without a name whose beginning is not in the trace.
    pub nameless: u64,
}

impl Totals {
    pub fn lost_in_all(&self) -> u64 {
        self.lost.values().fold(0, |sum, lost| sum.saturating_add(*lost))
    }

    pub fn is_doubtful(&self) -> bool {
        self.lost_in_all() > 0 || self.losses_uncounted > 0
    }
}
