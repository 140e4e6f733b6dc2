//! The measurements: each scenario returns JSON.

pub mod ablation;
pub mod chart;
pub mod clocks;
pub mod cost;
pub mod day;
pub mod rate;
pub mod robust;
