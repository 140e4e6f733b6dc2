//! Where a write spends its life, layer by layer.
//!
//! Data flows one way: a collector (`collect`) turns what the kernel says into a [`Trace`] of [`Event`]s; the analysis (`analyse`)
//! pairs them into calls, follows them across threads and gives each nanosecond of an operation to one layer; the
//! report has the statistics.
//!
//! The work that is traced is the generator's (`generate`) or any program's (`program`). Text of `trace-cmd report` goes a way of
//! its own (`text`), as it may tell of functions and not of events.

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
