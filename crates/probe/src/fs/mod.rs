//! `stentor probe fs`: what it costs to keep a queue in files, as most mail servers do.
//!
//! A cycle is the life of a queue file: it is created in `incoming`, written, made durable, renamed to `active` and to
//! `deferred`, and removed. With reused files an existing one is opened and overwritten in place, and goes back to a pool at
//! its end. `work` does cycles, `case` says which, `report` makes tables of them.
//!
//! Promise: all is done in a folder of our own, which is removed, also after Ctrl-C. What is timed are the system calls of a
//! step, by the monotonic clock; a case ends after its files or its time, whichever is first, so that a slow disk takes no
//! longer than a fast one.

mod case;
mod report;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stentor_measure::runs::run_of;
use stentor_measure::{MeasureError, OutputArgs, Progress, Report, Stop, repeat};

pub use case::{Case, Names, Sync};
use work::Outcome;

use crate::trouble::{parse_bytes, scratch, show_bytes};

const FILES_MAX: u32 = 10_000_000;
const PROCESSES_MAX: u32 = 1024;
const BYTES_MAX: u64 = 1 << 30;

#[derive(Args, Clone, Debug)]
pub struct FsArgs {
    /// Directory on the file system that is to be measured.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Cycles of each process in a run.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(FILES_MAX)))]
    pub files: u32,
    /// A run of a case ends after this time at the latest.
    #[arg(long, alias = "time-max-s", default_value_t = 0.4)]
    pub seconds: f64,
    /// Octets of a file; several with commas: 4K,64K.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, value_name = "BYTES")]
    pub size: Vec<u64>,
    /// How many work at the same time in the same directories (threads of this process); several with commas.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(PROCESSES_MAX)))]
    pub processes: Vec<u32>,
    /// Levels of directories below each queue's, 16 a level; 0 is flat.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=3))]
    pub hash_depth: Vec<u32>,
    /// New files, or existing ones that are overwritten.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub names: Vec<Names>,
    /// What is made durable: none, file, directory, both (file and directory before 250 would be said), every (both, and
    /// the directory after each later change of a name).
    #[arg(long, value_delimiter = ',', value_enum)]
    pub sync: Vec<Sync>,
    /// So many files lie in `deferred` all the time.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(FILES_MAX)))]
    pub queued: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run(args: &FsArgs) -> Result<(), MeasureError> {
    crate::run_measure(&args.output, |stop, progress| measure(args, stop, progress))
}

/// Measures all cases that the options ask for.
pub fn measure(args: &FsArgs, stop: &Stop, progress: &mut Progress) -> Result<Report, MeasureError> {
    check(args)?;
    let cases = case::chosen(args);
    let scratch = scratch(&args.directory)?;
    let mut report = report::begin(args, &scratch)?;
    let device = report.places.first().and_then(|place| place.device.clone());
    // All cases in each run, so that what the machine does besides meets all of them.
    let runs = repeat(args.output.runs, stop, |number| {
        let mut outcomes = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            progress.step(|| {
                let run = run_of(number, args.output.runs);
                format!("{run}, case {} of {}: {}", at + 1, cases.len(), case.name())
            });
            let folder = scratch.path().join(format!("{at}-{number}"));
            outcomes.push(work::run(case, args, &folder, device.as_ref(), stop)?);
            // What cannot be removed now goes with the whole folder.
            let _ = std::fs::remove_dir_all(&folder);
        }
        Ok::<_, MeasureError>(outcomes)
    })?;
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    let of_case = |at: usize| runs.iter().map(|outcomes| outcomes[at].clone()).collect();
    let all: Vec<(Case, Vec<Outcome>)> = cases.iter().enumerate().map(|(at, case)| (*case, of_case(at))).collect();
    report::fill(&mut report, &all);
    Ok(report)
}

fn check(args: &FsArgs) -> Result<(), MeasureError> {
    let refused = |why: String| Err(MeasureError::Refused(why));
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        return refused(format!("--seconds {}: between 0 and 3600 seconds", args.seconds));
    }
    if let Some(size) = args.size.iter().find(|size| **size > BYTES_MAX) {
        return refused(format!("--size {}: at most 1 GiB", show_bytes(*size)));
    }
    Ok(())
}

fn time_max(args: &FsArgs) -> Duration {
    Duration::from_secs_f64(args.seconds)
}
