//! Where a write spends its life, layer by layer.
//!
//! Data flows one way: a collector (`collect`) turns what the kernel says into a [`Trace`] of [`Event`]s; the analysis (`analyse`)
//! pairs them into calls, follows them across threads and gives each nanosecond of an operation to one layer; the
//! report has the statistics.

pub mod analyse;
pub mod collect;
pub mod event;
pub mod operation;

use clap::Args;
use stentor_measure::{MeasureError, OutputArgs};

pub use event::{Event, Trace, Value};
pub use operation::{Access, FileState, Operation, Order, Path, Sync, Traced, Work};

#[derive(Args, Clone, Debug)]
pub struct IotraceArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run(_options: &IotraceArgs) -> Result<(), MeasureError> {
    Err(MeasureError::Refused("no collector works here".to_owned()))
}
