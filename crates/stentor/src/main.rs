//! `stentor`: a mail transfer agent for mailing lists and bulk fan-out. This file chooses the command and maps errors to
//! exit codes; ARCHITECTURE.md says where everything is.

use std::process::ExitCode;

use clap::Parser;
use stentor::cli;

/// Threads that grew large arenas would keep them: one allocator that gives memory back, for all.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
