//! `stentor probe ...`: one subcommand a measurement.

use clap::Subcommand;
use stentor_measure::MeasureError;

#[derive(Subcommand, Debug)]
// One value a process.
#[allow(clippy::large_enum_variant)]
pub enum Command {
    /// Metadata operations as a mail queue does them: create, write, sync, rename, remove.
    Fs(crate::fs::FsArgs),
    /// What it costs to append records to a log and make them durable, and what group commit is worth.
    Log(crate::log::LogArgs),
    /// Embedded engines and our own journal: durable inserts, look-ups, deletes.
    Kv(crate::kv::KvArgs),
    /// Sequential throughput of a directory, buffered and direct.
    Raw(crate::raw::RawArgs),
    /// What it costs to ask another process on this machine: TCP, Unix sockets, pipes.
    Ipc(crate::ipc::IpcArgs),
    /// All of it on several places, and a page that says which file system and settings to choose.
    Suite(crate::suite::SuiteArgs),
    /// Trace where a write spends its time, layer by layer.
    Iotrace(crate::iotrace::IotraceArgs),
}

/// Runs to the end or to Ctrl-C, and cleans up in either case.
pub fn run(command: Command) -> Result<(), MeasureError> {
    match command {
        Command::Fs(options) => crate::fs::run(&options),
        Command::Log(options) => crate::log::run(&options),
        Command::Kv(options) => crate::kv::run(&options),
        Command::Raw(options) => crate::raw::run(&options),
        Command::Ipc(options) => crate::ipc::run(&options),
        Command::Suite(options) => crate::suite::run(&options),
        Command::Iotrace(options) => crate::iotrace::run(&options),
    }
}
