//! The lab's own tests: one binary, one file per matter.

mod raw;
mod sinks;
mod whole;
