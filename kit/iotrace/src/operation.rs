//! A traced run: its events, and what the generator itself measured of its operations. Made by collectors and
//! generator, read by the analysis.

use std::collections::BTreeSet;

use stentor_measure::Place;

use crate::event::Trace;

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, clap::ValueEnum)]
pub enum Access {
    Write,
    Read,
}

/// Where the next block lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, clap::ValueEnum)]
pub enum Order {
    Sequential,
    Random,
}

/// Through the page cache, or past it (`O_DIRECT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, clap::ValueEnum)]
pub enum Path {
    Buffered,
    Direct,
}

/// How a write is made durable. Reads are not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, clap::ValueEnum)]
pub enum Sync {
    None,
    Fsync,
    Fdatasync,
    /// `O_DSYNC`: the write returns when it is durable.
    Dsync,
}

/// What the file was before the operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, clap::ValueEnum)]
pub enum FileState {
    /// One file an operation: created before tracing, empty.
    New,
    /// One file that each operation makes longer.
    Growing,
    /// One file with its blocks reserved (`fallocate`) and never written.
    Preallocated,
    /// One file whose blocks have been written before, and synced.
    Recycled,
}

/// What the generator did, in every operation of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Work {
    pub access: Access,
    pub order: Order,
    pub path: Path,
    pub sync: Sync,
    pub file: FileState,
    /// Bytes an operation: one `pwrite` or `pread`.
    pub size: u32,
}

/// One operation: a single write or read and, for a write, its sync. Times are `CLOCK_MONOTONIC`, read by the generator
/// itself just around the system calls, within the time that tracing was on: they bound what the analysis attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub tid: i32,
    pub start_ns: u64,
    /// After the write or read, before the sync; `end_ns` where there is no sync.
    pub moved_ns: u64,
    pub end_ns: u64,
    pub bytes: u32,
    pub access: Access,
}

impl Operation {
    pub fn wall_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// One run (of one directory and one kind of work), or one trace of a program.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Names the row: `/srv/mail ext4 on vda`; the program's command for `--command`.
    pub name: String,
    /// None for `--pid` and `--command` without a directory.
    pub place: Option<Place>,
    /// None for a program.
    pub work: Option<Work>,
    /// Counted runs of the same name and work have numbers from 1; 0 is dropped before the analysis sees it.
    pub run: u32,
    pub trace: Trace,
    /// In order of time. Empty for a program: its system calls are its operations.
    pub operations: Vec<Operation>,
    /// Threads of the generator, or of the traced program and its children.
    pub generator: BTreeSet<i32>,
    /// Threads that read the trace while it went on.
    pub tracer: BTreeSet<i32>,
    /// Device numbers (`major << 20 | minor`, as events have them) that the work may reach, the mounted one first, then
    /// the disk of a partition or the members of a volume. Empty: not known.
    pub devices: Vec<u32>,
    /// Nanoseconds with tracing on.
    pub traced_ns: u64,
    /// What was enabled for it: `fs`.
    pub scope: String,
    /// Per CPU.
    pub buffer_kib: u32,
    /// Events that were wanted and that this kernel does not have.
    pub missing: Vec<String>,
}
