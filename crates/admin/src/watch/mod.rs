//! What watchers are sent: snapshots of the server, where mail waits, and in words what holds the server back.

mod sites;
mod snapshot;
mod verdict;

pub use self::sites::{Overviews, lane_name};
pub use self::snapshot::Watch;
