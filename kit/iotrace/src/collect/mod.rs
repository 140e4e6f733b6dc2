//! Collectors: from the kernel's output to a [`Trace`](crate::Trace). They know nothing of layers.
//!
//! | collector | sees | needs |
//! |---|---|---|
//! | tracefs (`tracefs`) | tracepoints, in an instance of its own | root, tracefs |
//! | function graph (`function_graph`) | every kernel function of the chosen threads | a kernel with that tracer |
//! | trace-cmd (`trace_cmd`) | the same, through `trace-cmd record` | and trace-cmd |
//! | file (`crate::text`) | what a `trace-cmd report` says | nothing |
//!
//! Within tracefs: `kernel` finds it and says why not, `choice` says which events, `instance` owns a folder in it that
//! goes if we die, `setting` changes a file that others see too and puts it back, `format` and `page` read bytes
//! (pure), `decode` merges the CPUs' pages into a trace, `tracer` switches on and off and drains; `switch` is what the
//! generator sees of a collector.

pub mod choice;
pub mod decode;
pub mod format;
pub mod function_graph;
pub mod instance;
pub mod kernel;
pub mod list;
pub mod page;
pub mod setting;
pub mod switch;
pub mod trace_cmd;
pub mod tracer;

pub use choice::{FileSystem, Scope};
pub use tracer::{TraceRequest, Tracer};
