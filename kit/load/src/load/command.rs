//! `stentor-kit lab source`: its runs.

use stentor_measure::runs::run_of;
use stentor_measure::{MeasureError, OutputArgs, Stop, repeat};

use super::options::SourceArgs;
use super::plan::Plan;
use super::report::report;
use super::run::run;
use super::tally::Tally;

/// Sends and reports. An error if not one message was accepted.
pub fn run_source(options: &SourceArgs) -> Result<(), MeasureError> {
    let output: &OutputArgs = &options.output.0;
    output.ready()?;
    let mut plan = options.plan().map_err(MeasureError::Refused)?;
    let stop = Stop::on_signals().map_err(MeasureError::Output)?;
    let mut progress = output.progress();
    let tallies = repeat(output.runs, &stop, |number| {
        if output.runs > 1 && options.message.is_empty() {
            plan.content = options.content(&format!("{}-{number}", options.run)).map_err(MeasureError::Refused)?;
        }
        one(&plan, &stop, &mut progress, &run_of(number, output.runs))
    })?;
    progress.clear();
    let mut report = report(&plan, &tallies, options);
    if stop.is_set() {
        report.warnings.push("stopped by a signal: the last run is incomplete".to_owned());
    }
    output.finish(&report)?;
    if tallies.is_empty() {
        return Err(MeasureError::Stopped);
    }
    if tallies.iter().all(|tally| tally.accepted == 0) {
        return Err(MeasureError::Refused("no message was accepted; see the errors for the step".to_owned()));
    }
    Ok(())
}

fn one(plan: &Plan, stop: &Stop, progress: &mut stentor_measure::Progress, name: &str) -> Result<Tally, MeasureError> {
    use std::sync::atomic::Ordering::Relaxed;
    let tally = run(plan, stop, |watch, elapsed| {
        progress.step(|| {
            let (done, late) = (watch.done.load(Relaxed), watch.backlog.load(Relaxed));
            let of = if plan.messages == u64::MAX { String::new() } else { format!(" of {}", plan.messages) };
            let behind = if late > 0 { format!(", {late} late") } else { String::new() };
            format!("{name}: {done}{of} messages, {:.0} s{behind}", elapsed.as_secs_f64())
        });
    });
    tally.map_err(|error| MeasureError::Refused(error.to_string()))
}
