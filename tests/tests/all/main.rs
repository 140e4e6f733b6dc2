//! Integration tests: the real binary over real sockets, one module per feature.

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

mod account;
mod addresses;
mod aliases;
mod bad_input;
mod bounces;
mod classes;
mod config;
mod console;
mod control;
mod crash;
mod delays;
mod delivery;
mod dns;
mod failing_disk;
mod faults;
mod file_systems;
mod foreign;
mod full_disk;
mod history;
mod http_api;
mod http_auth;
mod http_inject;
mod http_metrics;
mod kit;
mod lab_sink;
mod large;
mod limits;
mod lists;
mod live;
mod memory_cap;
mod policy;
mod real_clients;
mod realstat_screen;
mod report;
mod retry;
mod salvage;
mod scribe;
mod sending;
mod smtp_in;
mod stragglers;
mod suspend;
mod telemetry;
mod webhooks;
