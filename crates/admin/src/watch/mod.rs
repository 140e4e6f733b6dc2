//! The stream for watchers: snapshots of the server, where mail waits, and the bottleneck in words.

mod sites;
mod snapshot;
mod verdict;

pub use self::sites::{Overviews, lane_name};
pub use self::snapshot::Watch;
