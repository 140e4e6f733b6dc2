//! Where a write spends its time, layer by layer.
//!
//! Data flows one way: a collector (`collect`) turns the kernel's output into a [`Trace`] of [`Event`]s; the analysis
//! (`analyse`) pairs them into calls, follows them across threads and attributes each nanosecond of an operation to one
//! layer; the report has the statistics.
//!
//! The traced work is the generator's (`generate`) or any program's (`program`). The text of `trace-cmd report` is read
//! separately (`text`), since it may list functions instead of events.

pub mod analyse;
pub mod collect;
pub mod devices;
pub mod event;
mod functions;
pub mod generate;
mod loss;
pub mod operation;
pub mod options;
pub mod program;
mod session;
pub mod text;

use stentor_measure::MeasureError;

pub use event::{Event, Trace, Value};
pub use operation::{Access, FileState, Operation, Order, Path, Sync, Traced, Work};
pub use options::{EXAMPLES, IotraceArgs};

/// Traces, or reads a trace, to the end or to Ctrl-C.
pub fn run(options: &IotraceArgs) -> Result<(), MeasureError> {
    options.output.ready()?;
    session::run(options)
}
