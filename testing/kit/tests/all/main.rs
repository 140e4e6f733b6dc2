//! Integration tests of `stentor-kit`: the real binary on real file systems and sockets, one module per command.

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

mod iotrace;
mod iotrace_collect;
mod lab_compare;
mod lab_limit;
mod lab_sink;
mod lab_source;
mod measuring_kit;
mod probe_fs_kv_suite;
mod probe_log;
