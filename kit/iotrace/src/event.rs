//! The interface between collectors and analysis.

use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A value of an event's field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Number(i64),
    Text(Box<str>),
}

/// One event of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds of the trace's clock (`CLOCK_MONOTONIC` from the collectors that switch tracing on themselves).
    pub ns: u64,
    pub cpu: u16,
    /// The thread that was running, 0 for the idle one. In an interrupt it is the one that was interrupted.
    pub tid: i32,
    /// Bits of [`Event::IRQ`] and [`Event::SOFTIRQ`].
    pub context: u8,
    /// Index into [`Trace::kinds`].
    pub kind: u16,
    /// (index into [`Trace::fields`], value); only fields that the analysis uses.
    pub fields: SmallVec<[(u16, Value); 4]>,
}

impl Event {
    pub const IRQ: u8 = 1;
    pub const SOFTIRQ: u8 = 2;
}

/// All events of a run, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// `system/name`: `block/block_rq_issue`.
    pub kinds: Vec<String>,
    pub fields: Vec<String>,
    pub events: Vec<Event>,
    /// Names of threads by id, as last seen.
    pub threads: BTreeMap<i32, String>,
    /// Processes of threads, where known.
    pub processes: BTreeMap<i32, i32>,
    /// Events lost, by CPU, as the kernel counted them.
    pub lost: Vec<u64>,
}

impl Trace {
    pub fn kind(&self, name: &str) -> Option<u16> {
        self.kinds.iter().position(|kind| kind == name).map(|at| at as u16)
    }

    pub fn field(&self, name: &str) -> Option<u16> {
        self.fields.iter().position(|field| field == name).map(|at| at as u16)
    }

    pub fn lost_in_all(&self) -> u64 {
        self.lost.iter().sum()
    }
}

impl Event {
    pub fn value(&self, field: u16) -> Option<&Value> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value)
    }

    pub fn number(&self, field: u16) -> Option<i64> {
        match self.value(field)? {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}
