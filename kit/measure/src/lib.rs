//! What all measurements share: repetition, tables and charts, the description of the machine, and output.
//!
//! Promise: a [`Report`] has everything needed to judge its numbers (command, machine, kernel, file systems with their
//! mount options, devices); text, JSON, CSV and charts show the same numbers. An interrupted measurement ([`Stop`])
//! never looks complete.
//!
//! Knows nothing of mail or of what is measured.

pub mod chart;
pub mod counters;
pub mod guardian;
pub mod layout;
pub mod loopfs;
pub mod machine;
pub mod output;
pub mod progress;
pub mod report;
pub mod runs;
pub mod scratch;
pub mod stop;
pub mod table;
pub mod usage;

pub use chart::Chart;
pub use counters::DeviceCounters;
pub use guardian::Guardian;
pub use loopfs::{LoopFs, LoopOptions};
pub use machine::{BackgroundLoad, Device, Machine, Place};
pub use output::{MeasureError, OutputArgs};
pub use progress::Progress;
pub use report::Report;
pub use runs::{Spread, repeat};
pub use scratch::Scratch;
pub use stentor_records::histogram::Fine as Histogram;
pub use stop::Stop;
pub use table::{Cell, Column, Table};
