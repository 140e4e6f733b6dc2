//! `stentor probe ...`: one subcommand a measurement.

use clap::Subcommand;
use stentor_measure::MeasureError;

#[derive(Subcommand, Debug)]
// One value a process.
#[allow(clippy::large_enum_variant)]
pub enum Command {
    /// What it costs to append records to a log and make them durable, and what group commit is worth.
    Log(crate::log::LogArgs),
    /// Sequential throughput of a directory, buffered and direct.
    Raw(crate::raw::RawArgs),
    /// What it costs to ask another process on this machine: TCP, Unix sockets, pipes.
    Ipc(crate::ipc::IpcArgs),
    /// Trace where a write spends its time, layer by layer.
    Iotrace(crate::iotrace::IotraceArgs),
}

/// Runs to the end or to Ctrl-C, and cleans up in either case.
pub fn run(command: Command) -> Result<(), MeasureError> {
    match command {
        Command::Log(options) => crate::log::run(&options),
        Command::Raw(options) => crate::raw::run(&options),
        Command::Ipc(options) => crate::ipc::run(&options),
        Command::Iotrace(options) => crate::iotrace::run(&options),
    }
}
