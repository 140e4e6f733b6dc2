//! What no mail server on this machine can exceed: the smallest set of steps that delivers a message, in a loop.
//!
//! Promise: the sink of this room does nothing but speak the protocol and count, and, if asked, make each message durable
//! in one file of its own that has been written before (no file system work but the write and the sync): what a real server
//! does beside that, it does beside that. Against a given server it is the same source and the same ways.

mod options;
mod sink;
mod store;

pub use options::{LimitArgs, run_limit};
pub use sink::{Counters, FloorSink};
pub use store::Keep;
