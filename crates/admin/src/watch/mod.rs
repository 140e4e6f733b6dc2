//! The stream for watchers: snapshots of the server, where mail waits, and the bottleneck in words.

mod sites;
mod snapshot;
mod traffic;
mod verdict;

pub use self::sites::Overviews;
pub use self::snapshot::Watch;
pub use self::traffic::traffic;
