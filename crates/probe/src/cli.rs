//! `stentor probe ...`: one subcommand a measurement.

use clap::Subcommand;
use stentor_measure::MeasureError;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Trace where a write spends its time, layer by layer.
    Iotrace(crate::iotrace::IotraceArgs),
}

/// Runs to the end or to Ctrl-C, and cleans up in either case.
pub fn run(command: Command) -> Result<(), MeasureError> {
    match command {
        Command::Iotrace(options) => crate::iotrace::run(&options),
    }
}
