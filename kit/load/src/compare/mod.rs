//! The same work through several mail servers by turns, and what each of them spends on it.
//!
//! Promise: every contestant gets the same messages over as many connections, on the same directory, with the same sink;
//! who begins changes each round; the first round is dropped. What a contestant costs is counted by the kernel over its
//! whole process tree (a control group where there is one), and source and sink are outside of it. Contestants that were
//! started here are stopped, and their folders removed, whatever happens; given ones are left alone.
//!
//! States of a contestant: defined (a file, an option), started (its files written, its command running, its greeting
//! seen), stopped. Failure: one that cannot be started ends the comparison with what it said last.

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
