//! Stentor as a library: everything of the program but its `main`, so that the crash campaign and benchmarks can run the
//! real committer, queue and scheduler in one process. ARCHITECTURE.md says where everything is.

pub mod attempt_log;
pub mod cli;
mod cli_verbs;
pub mod clock;
pub mod config;
pub mod control;
pub mod core;
pub mod delivery;
pub mod depth;
pub mod foreign;
pub mod http;
pub mod journal_cmd;
pub mod lists;
pub mod live;
pub mod observe;
pub mod operator;
pub mod outbound;
pub mod process;
pub mod report;
pub mod resolve;
pub mod serve;
pub mod site;
pub mod smtp_in;
pub mod telemetry;
pub mod verbs;
pub mod waiting;
pub mod webhooks;
