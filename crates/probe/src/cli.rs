//! `stentor probe ...`: one subcommand a measurement.

use clap::Subcommand;
use stentor_measure::{MeasureError, OutputArgs};

#[derive(Subcommand, Debug)]
// One value a process.
#[allow(clippy::large_enum_variant)]
pub enum Command {
    /// Metadata operations as a mail queue does them: create, write, sync, rename, remove.
    #[command(after_help = "\
Without any of --size, --processes, --hash-depth, --names and --sync a short selection is measured,
with some of them all combinations. Files are in a folder of our own below DIR, which is removed.

Examples:
  stentor probe fs /var/spool --out results --plot
  stentor probe fs /var/spool --sync both --names new,reused --hash-depth 0,1,2 --processes 1,4,16")]
    Fs(crate::fs::FsArgs),
    /// What it costs to append records to a log and make them durable, and what group commit is worth.
    #[command(after_help = "\
Lists make all combinations. docs/measuring.md says what is timed.

Examples:
  stentor probe log /var/spool
  stentor probe log /var/spool --file growing,recycled --way pwrite,dsync,uring,journal
  chrt --rr 1 stentor probe log /var/spool      # as root, on a machine that has other work")]
    Log(crate::log::LogArgs),
    /// Embedded engines and our own journal: durable inserts, look-ups, deletes.
    #[command(after_help = "\
Examples:
  stentor probe kv /var/spool
  stentor probe kv /var/spool --engines journal,sqlite --record-bytes 512,64K --seconds 1")]
    Kv(crate::kv::KvArgs),
    /// Sequential throughput of a directory, buffered and direct.
    #[command(after_help = "\
Examples:
  stentor probe raw /var/spool
  stentor probe raw /var/spool --mode write-sync,read-direct --block-bytes 1M --file-mib 1024")]
    Raw(crate::raw::RawArgs),
    /// What it costs to ask another process on this machine: TCP, Unix sockets, pipes.
    #[command(after_help = "\
Examples:
  stentor probe ipc
  stentor probe ipc --transport tcp,unix --bytes 32,64K --seconds 1 --plot png")]
    Ipc(crate::ipc::IpcArgs),
    /// All of it on several places, and a page that says which file system and settings to choose.
    #[command(after_help = "\
Examples:
  stentor probe suite /var/spool /mnt/ssd --out results
  stentor probe suite --loop --loop-dir /var/tmp                          # as root: file systems in files there
  stentor probe suite --loop --file-systems ext4,xfs --throttle 200       # on a disk that is slow")]
    Suite(crate::suite::SuiteArgs),
    /// Trace where a write spends its time, layer by layer.
    #[command(after_help = "\
Needs root, unless a text is read. Nothing stays switched on, whatever ends it.

Examples:
  stentor probe iotrace /var/spool /mnt/ssd --size 4K,1M --sync fdatasync --out results --plot
  stentor probe iotrace /var/spool --file new,growing,preallocated,recycled
  stentor probe iotrace /var/spool/postfix --pid 812 --seconds 10
  stentor probe iotrace --command -- dd if=/dev/zero of=x bs=64k count=20 conv=fsync
  trace-cmd report | stentor probe iotrace --read -")]
    Iotrace(crate::iotrace::IotraceArgs),
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
            Command::Iotrace(options) => &options.output,
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
        Command::Iotrace(options) => crate::iotrace::run(&options),
    }
}
