//! What is measured: each scenario answers with JSON.

pub mod ablation;
pub mod chart;
pub mod cost;
pub mod day;
pub mod rate;
