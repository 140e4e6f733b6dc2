//! `stentor-kit probe fs`: the cost of keeping a queue in files, as most mail servers do.
//!
//! A cycle is the life of a queue file: created in `incoming`, written, made durable, renamed to `active` and to
//! `deferred`, and removed. With reused files an existing one is opened and overwritten in place, and returns to a pool
//! at the end. `work` runs cycles, `crew` runs them in parallel processes, `case` selects them, `report` makes the
//! tables.
//!
//! Promise: everything happens in our own folder, which is removed, also after Ctrl-C. The system calls of a step are
//! timed, by the monotonic clock; a case ends after its files or its time, whichever is first, so that a slow disk
//! takes no longer than a fast one.

mod case;
mod crew;
mod report;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stentor_measure::{MeasureError, OutputArgs, Place, Progress, Report, Scratch, Stop};

pub use case::{Case, Names, Sync};

use crate::each_case;
use crate::trouble::{check_room, parse_bytes, parse_seconds, show_bytes};

const FILES_MAX: u32 = 10_000_000;
/// Each takes two descriptors of ours, of which there are usually 1024.
const PROCESSES_MAX: u32 = 256;
const BYTES_MAX: u64 = 1 << 30;

#[derive(Args, Clone, Debug)]
pub struct FsArgs {
    /// Directory on the file system to measure.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Cycles per process and run.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(FILES_MAX)))]
    pub files: u32,
    /// Maximum duration of a case's run.
    #[arg(long, alias = "time-max-s", default_value_t = 0.4, value_name = "SECONDS", value_parser = parse_seconds)]
    pub seconds: f64,
    /// File sizes in octets, separated by commas: 4K,64K.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, value_name = "BYTES")]
    pub size: Vec<u64>,
    /// Number of processes that work in the same directories at the same time.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(PROCESSES_MAX)))]
    pub processes: Vec<u32>,
    /// Levels of hashed directories, 16 per level; 0 is flat.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=3))]
    pub hash_depth: Vec<u32>,
    /// Use new files, or overwrite existing ones.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub names: Vec<Names>,
    /// What to make durable: none, file, directory, both (file and directory before 250 would be sent), every (both,
    /// and the directory after each later change of a name).
    #[arg(long, value_delimiter = ',', value_enum)]
    pub sync: Vec<Sync>,
    /// Number of files in `deferred` throughout.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(FILES_MAX)))]
    pub queued: u32,
    /// Run as a worker process with this number, controlled by pipes.
    #[arg(long, hide = true)]
    pub worker: Option<u32>,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run(args: &FsArgs) -> Result<(), MeasureError> {
    if let Some(number) = args.worker {
        return crew::work(args, number).map_err(MeasureError::Output);
    }
    crate::run_measure(&args.output, |stop, progress| measure(args, stop, progress))
}

/// Measures all cases that the options ask for.
pub fn measure(args: &FsArgs, stop: &Stop, progress: &mut Progress) -> Result<Report, MeasureError> {
    check(args)?;
    let cases = case::chosen(args);
    let scratch = Scratch::make_or_explain(&args.directory)?;
    let place = Place::of(&args.directory).map_err(MeasureError::file(&args.directory))?;
    check_room(&place, needed_mib(args, &cases), "--size, --queued or --processes")?;
    let mut report = report::begin(args, place);
    let device = report.places.first().and_then(|place| place.device.clone());
    let all = each_case(&cases, Case::name, args.output.runs, &scratch, stop, progress, |case, folder| {
        crew::run(case, args, folder, device.as_ref(), stop)
    })?;
    report::fill(&mut report, &all);
    Ok(report)
}

fn check(args: &FsArgs) -> Result<(), MeasureError> {
    let refused = |why: String| Err(MeasureError::Refused(why));
    if let Some(size) = args.size.iter().find(|size| **size > BYTES_MAX) {
        return refused(format!("--size {}: at most 1 GiB", show_bytes(*size)));
    }
    Ok(())
}

/// Files that are there at the same time, at worst.
fn needed_mib(args: &FsArgs, cases: &[Case]) -> u64 {
    let bytes = |case: &Case| {
        let pool = if case.names == Names::Reused { work::POOL_FILES * case.processes + args.queued } else { 0 };
        (u64::from(args.queued) + u64::from(case.processes) + u64::from(pool)) * case.size.next_multiple_of(4096)
    };
    cases.iter().map(bytes).max().unwrap_or(0) >> 20
}

fn time_max(args: &FsArgs) -> Duration {
    Duration::from_secs_f64(args.seconds)
}
