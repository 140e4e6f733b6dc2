//! The lab's own tests: one binary, one file per topic.

mod raw;
mod sinks;
mod whole;
