//! A simulated Internet in virtual time, around the real scheduler and store: a mail day takes seconds.
//!
//! Pure: no sockets, no threads; the real clock is read only to measure the cost of the scheduler's calls. A seed
//! decides everything: the same seed and commit repeat a run. docs/design/scheduler-experiments.md lists what is
//! measured.

pub mod engine;
pub mod host;
pub mod meter;
pub mod net;
pub mod scenario;
