//! The upper bound for any mail server on this machine: the smallest set of steps that delivers a message, in a loop.
//!
//! Promise: the sink of this module only speaks the protocol and counts and, if asked, makes each message durable in
//! one preallocated file (no file system work except the write and the sync); whatever else a real server does comes on
//! top. A given server can take its place, with the same source and modes.

mod options;
mod sink;
mod store;

pub use options::{LimitArgs, run_limit};
pub use sink::{Counters, FloorSink};
pub use store::Keep;
