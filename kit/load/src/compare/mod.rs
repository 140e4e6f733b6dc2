//! Compares several mail servers: the same work in turn, and what each of them spends on it.
//!
//! Promise: every contestant gets the same messages over the same number of connections, on the same directory, with
//! the same sink; the order changes each round; the first round is dropped. The kernel counts a contestant's cost over
//! its whole process tree (a control group if available), without source and sink. Contestants started here are
//! stopped, and their folders removed, whatever happens; servers that were already running are left alone.
//!
//! States of a contestant: defined (a file, an option), started (files written, command running, greeting seen),
//! stopped. Failure: one that cannot be started ends the comparison with its last output.

mod bout;
mod definition;
mod options;
mod report;
mod row;
mod run;
mod running;

pub use definition::Definition;
pub use options::CompareArgs;
pub use run::run_compare;
