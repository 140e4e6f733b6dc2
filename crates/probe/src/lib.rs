//! Measurements of storage and of local communication, and traces of where a write spends its time: `stentor probe`.
//!
//! Promise: nothing but a folder of its own below the given directory is written to, and it is removed at the end, also
//! after Ctrl-C; figures that could not be measured are missing and not estimated.

pub mod cli;
pub mod iotrace;
pub mod ipc;
pub mod log;
pub mod raw;
mod trouble;

pub use cli::{Command, run};
