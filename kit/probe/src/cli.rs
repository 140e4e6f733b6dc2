//! `stentor-kit probe ...`: one subcommand per measurement.

use clap::Subcommand;
use stentor_measure::{MeasureError, OutputArgs};

#[derive(Subcommand, Debug)]
// One value a process.
#[allow(clippy::large_enum_variant)]
pub enum Command {
    /// Measure metadata operations of a mail queue: create, write, sync, rename, remove.
    #[command(after_help = "\
Without any of --size, --processes, --hash-depth, --names and --sync, measures a short selection,
with any of them all combinations. Files are in a temporary folder below DIR, which is removed.

Examples:
  stentor-kit probe fs /var/spool --out results --plot
  stentor-kit probe fs /var/spool --sync both --names new,reused --hash-depth 0,1,2 --processes 1,4,16")]
    Fs(crate::fs::FsArgs),
    /// Measure the cost of durable log records, and the benefit of group commit.
    #[command(after_help = "\
Lists are combined with each other. docs/kit/measuring-storage.md explains what is timed.

Examples:
  stentor-kit probe log /var/spool
  stentor-kit probe log /var/spool --file growing,recycled --way pwrite,dsync,uring,journal
  chrt --rr 1 stentor-kit probe log /var/spool      # as root, on a machine that has other work")]
    Log(crate::log::LogArgs),
    /// Compare embedded engines and Stentor's journal: durable inserts, look-ups, deletes.
    #[command(after_help = "\
Examples:
  stentor-kit probe kv /var/spool
  stentor-kit probe kv /var/spool --engines journal,sqlite --record-bytes 512,64K --seconds 1")]
    Kv(crate::kv::KvArgs),
    /// Measure the sequential throughput of a directory, buffered and direct.
    #[command(after_help = "\
Examples:
  stentor-kit probe raw /var/spool
  stentor-kit probe raw /var/spool --mode write-sync,read-direct --block-bytes 1M --file-mib 1024")]
    Raw(crate::raw::RawArgs),
    /// Measure the cost of asking another process on this machine: TCP, Unix sockets, pipes.
    #[command(after_help = "\
Examples:
  stentor-kit probe ipc
  stentor-kit probe ipc --transport tcp,unix --bytes 32,64K --seconds 1 --plot png")]
    Ipc(crate::ipc::IpcArgs),
    /// Run all storage measurements in several places, side by side on one page.
    #[command(after_help = "\
Examples:
  stentor-kit probe suite /var/spool /mnt/ssd --out results
  stentor-kit probe suite --loop --loop-dir /var/tmp                          # as root: file systems in files there
  stentor-kit probe suite --loop --file-systems ext4,xfs --throttle 200       # on a simulated slow disk")]
    Suite(crate::suite::SuiteArgs),
}

impl Command {
    fn output(&self) -> &OutputArgs {
        match self {
            Command::Fs(options) => &options.output,
            Command::Log(options) => &options.output,
            Command::Kv(options) => &options.output,
            Command::Raw(options) => &options.output,
            Command::Ipc(options) => &options.output,
            Command::Suite(options) => &options.output,
        }
    }
}

/// Runs to the end or to Ctrl-C, and cleans up in either case.
pub fn run(command: Command) -> Result<(), MeasureError> {
    command.output().ready()?;
    match command {
        Command::Fs(options) => crate::fs::run(&options),
        Command::Log(options) => crate::log::run(&options),
        Command::Kv(options) => crate::kv::run(&options),
        Command::Raw(options) => crate::raw::run(&options),
        Command::Ipc(options) => crate::ipc::run(&options),
        Command::Suite(options) => crate::suite::run(&options),
    }
}
