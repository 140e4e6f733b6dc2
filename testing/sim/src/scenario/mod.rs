//! The measurements: each scenario returns JSON.

pub mod ablation;
#[path = "../../../../crates/sched/tests/common/agenda.rs"]
mod agenda;
pub mod chart;
pub mod clocks;
pub mod content;
pub mod cost;
pub mod day;
pub mod decoding;
pub mod policy;
pub mod rate;
pub mod robust;
pub mod signing;
pub mod suppressions;
pub mod truth;
