//! What is measured: each scenario answers with JSON.

pub mod day;
