//! `stentor`: a mail transfer agent for mailing lists and bulk fan-out. This file chooses the command and maps errors to
//! exit codes; ARCHITECTURE.md says where everything is.

mod attempt_log;
mod cli;
mod clock;
mod config;
mod control;
mod core;
mod delivery;
mod demo;
mod lab;
mod lists;
mod operator;
mod process;
mod resolve;
mod serve;
mod smtp_in;

use std::process::ExitCode;

use clap::Parser;

/// Threads that grew large arenas would keep them: one allocator that gives memory back, for all.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
