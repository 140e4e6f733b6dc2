//! Suites that the integration tests and `make bench` both run: hostile receivers (`stentor-hostile`), why mail waits
//! (`stentor-truth`), and faults of a sender's identity (`stentor-identity`). An `expect` is an assertion of the suite,
//! as in the harness: what it names failed in the server or lab.

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

pub mod hostile;
pub mod identity;
pub mod truth;
pub mod web;
