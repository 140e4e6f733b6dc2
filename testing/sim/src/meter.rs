//! The cost of the scheduler's calls, by the real clock.
//!
//! A run is the same each time for its seed, so the n-th call's minimum over several runs is its cost without other
//! load on the machine. One reading of the clock per call is included.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

#[derive(Default)]
pub struct Meter {
    /// Nanoseconds and kind of each call, in order; empty unless calls are measured.
    calls: Vec<(u32, &'static str)>,
    pub measures: bool,
}

impl Meter {
    pub fn time<T>(&mut self, kind: &'static str, call: impl FnOnce() -> T) -> T {
        if !self.measures {
            return call();
        }
        let begun = Instant::now();
        let value = call();
        self.calls.push((u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX), kind));
        value
    }

    /// Keeps the lesser time of each call.
    pub fn merge(&mut self, other: &Meter) {
        assert_eq!(self.calls.len(), other.calls.len(), "runs of one seed differ");
        for (best, other) in self.calls.iter_mut().zip(&other.calls) {
            best.0 = best.0.min(other.0);
        }
    }

    pub fn total_us(&self) -> f64 {
        self.calls.iter().map(|c| f64::from(c.0)).sum::<f64>() / 1e3
    }

    pub fn longest_us(&self) -> f64 {
        self.calls.iter().map(|c| c.0).max().map_or(0.0, |ns| f64::from(ns) / 1e3)
    }

    /// Per kind: calls, mean and longest in microseconds.
    pub fn summary(&self) -> Value {
        let mut kinds: BTreeMap<&str, (u64, f64, u32)> = BTreeMap::new();
        for (ns, kind) in &self.calls {
            let entry = kinds.entry(kind).or_default();
            *entry = (entry.0 + 1, entry.1 + f64::from(*ns), entry.2.max(*ns));
        }
        let rows = kinds.into_iter().map(|(kind, (calls, ns, longest))| {
            let mean_us = ns / 1e3 / calls as f64;
            (kind.to_owned(), json!({"calls": calls, "mean_us": mean_us, "longest_us": f64::from(longest) / 1e3}))
        });
        Value::Object(rows.collect())
    }
}
