//! What is measured: each scenario answers with JSON.

pub mod ablation;
pub mod chart;
pub mod clocks;
pub mod cost;
pub mod day;
pub mod rate;
pub mod robust;
