//! The lab's commands that measure: `stentor lab source`, `limit` and `compare`.

use clap::Subcommand;
use stentor_measure::MeasureError;

#[derive(Subcommand, Debug)]
pub enum Measure {
    /// Send load; report rates, the time of each step, errors by code.
    Source(Box<crate::load::SourceArgs>),
}

/// Runs to the end or to Ctrl-C. Blocks: not to be called within an asynchronous runtime.
pub fn run(command: Measure) -> Result<(), MeasureError> {
    match command {
        Measure::Source(options) => crate::load::run_source(&options),
    }
}
