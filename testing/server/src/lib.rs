//! Suites that the integration tests and `make bench` both run: hostile receivers (`stentor-hostile`), and why mail waits
//! (`stentor-truth`).

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

pub mod hostile;
pub mod truth;
