//! A simulated Internet in virtual time, around the real scheduler and store: a mail day takes seconds.
//!
//! Pure: no sockets, no threads; the real clock is read only to measure what the scheduler's calls cost. A seed decides
//! everything, so that a seed and a commit give the same run again. docs/design/scheduler.md says what is measured with
//! it.

pub mod engine;
pub mod host;
pub mod meter;
pub mod net;
pub mod scenario;
