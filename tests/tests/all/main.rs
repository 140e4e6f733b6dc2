//! Integration tests: the real binary over real sockets, one module per feature.

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

mod aliases;
mod bad_input;
mod bounces;
mod classes;
mod config;
mod control;
mod crash;
mod delays;
mod delivery;
mod dns;
mod faults;
mod kit;
mod limits;
mod lists;
mod policy;
mod real_clients;
mod report;
mod retry;
mod scribe;
mod sending;
mod smtp_in;
mod stragglers;
mod suspend;
