//! Measures storage and local communication: `stentor-kit probe`.
//!
//! Promise: writes only to a folder of its own below the given directory, which is removed at the end, also after
//! Ctrl-C; figures that could not be measured are missing, not estimated.

pub mod cli;
pub mod fs;
pub mod ipc;
pub mod kv;
pub mod log;
pub mod raw;
mod rerun;
pub mod suite;
mod trouble;

pub use cli::{Command, run};

use std::path::Path;

use stentor_measure::Scratch;
use stentor_measure::runs::run_of;
use stentor_measure::{BackgroundLoad, MeasureError, OutputArgs, Progress, Report, Stop, repeat};

/// What all commands do around their measurement: Ctrl-C, progress, what the machine did besides, output.
pub(crate) fn run_measure(
    output: &OutputArgs,
    measure: impl FnOnce(&Stop, &mut Progress) -> Result<Report, MeasureError>,
) -> Result<(), MeasureError> {
    let stop = Stop::on_signals().map_err(MeasureError::Output)?;
    let mut progress = output.progress();
    let background = BackgroundLoad::begin();
    let mut report = measure(&stop, &mut progress)?;
    background.end(&mut report.machine);
    report.warnings.extend(trouble::busy(&report.machine));
    progress.clear();
    output.finish(&report)
}

/// What came of each case in the counted runs. All cases in each run, so that what the machine does besides meets all
/// of them; each in a folder of its own, not made yet, which is removed.
pub(crate) fn each_case<C: Copy, O>(
    cases: &[C],
    name: impl Fn(&C) -> String,
    runs: u32,
    scratch: &Scratch,
    stop: &Stop,
    progress: &mut Progress,
    mut measure: impl FnMut(&C, &Path) -> Result<O, MeasureError>,
) -> Result<Vec<(C, Vec<O>)>, MeasureError> {
    let (count, all_runs) = (cases.len(), runs);
    let runs = repeat(runs, stop, |number| {
        let mut outcomes = Vec::with_capacity(count);
        for (at, case) in cases.iter().enumerate() {
            progress.step(|| format!("{}, case {} of {count}: {}", run_of(number, all_runs), at + 1, name(case)));
            let folder = scratch.path().join(format!("{at}-{number}"));
            let outcome = measure(case, &folder);
            // What cannot be removed now goes with the whole folder.
            let _ = std::fs::remove_dir_all(&folder);
            outcomes.push(outcome?);
        }
        Ok::<_, MeasureError>(outcomes)
    })?;
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    let mut all: Vec<(C, Vec<O>)> = cases.iter().map(|case| (*case, Vec::new())).collect();
    for outcomes in runs {
        for ((_, of_case), outcome) in all.iter_mut().zip(outcomes) {
            of_case.push(outcome);
        }
    }
    Ok(all)
}
