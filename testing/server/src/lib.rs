//! The suite of hostile receivers: run small by the integration tests, in full by `stentor-hostile` and `make bench`.

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

pub mod hostile;
