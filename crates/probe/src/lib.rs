//! Measurements of storage and of local communication, and traces of where a write spends its time: `stentor probe`.
//!
//! Promise: nothing but a folder of its own below the given directory is written to, and it is removed at the end, also
//! after Ctrl-C; figures that could not be measured are missing and not estimated.

mod again;
pub mod cli;
pub mod fs;
pub mod iotrace;
pub mod ipc;
pub mod kv;
pub mod log;
pub mod raw;
pub mod suite;
mod trouble;

pub use cli::{Command, run};

use stentor_measure::{MeasureError, OutputArgs, Progress, Report, Stop};

/// What all commands do around their measurement: Ctrl-C, progress, output.
pub(crate) fn run_measure(
    output: &OutputArgs,
    measure: impl FnOnce(&Stop, &mut Progress) -> Result<Report, MeasureError>,
) -> Result<(), MeasureError> {
    let stop = Stop::on_signals().map_err(MeasureError::Output)?;
    let mut progress = output.progress();
    let report = measure(&stop, &mut progress)?;
    progress.clear();
    output.finish(&report)
}
