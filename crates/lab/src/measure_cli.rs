//! The lab's commands that measure: `stentor lab source`, `sink`, `hold`, `limit` and `compare`.

use clap::Subcommand;
use stentor_measure::MeasureError;

#[derive(Subcommand, Debug)]
pub enum Measure {
    /// Serve a sink, of a model, with a store or without, and report what it took.
    Sink(Box<crate::SinkArgs>),
    /// Open very many connections, keep them, send over some: what bounds a server or a source address.
    Hold(crate::HoldArgs),
    /// Send load; report rates, the time of each step, errors by code.
    Source(Box<crate::load::SourceArgs>),
    /// Say how many messages per hour this machine could reach at best, by the smallest set of steps.
    Limit(crate::limit::LimitArgs),
    /// Send the same work through several mail servers by turns: rates, CPU, memory, writes, syncs.
    Compare(Box<crate::compare::CompareArgs>),
}

/// Runs to the end or to Ctrl-C. Blocks: not to be called within an asynchronous runtime.
pub fn run(command: Measure) -> Result<(), MeasureError> {
    let refused = |error: crate::LabError| MeasureError::Refused(error.to_string());
    match command {
        Measure::Sink(options) => crate::run_sink(&options).map_err(refused),
        Measure::Hold(options) => crate::run_hold(&options).map_err(refused),
        Measure::Source(options) => crate::load::run_source(&options),
        Measure::Limit(options) => crate::limit::run_limit(&options),
        Measure::Compare(options) => crate::compare::run_compare(&options),
    }
}
