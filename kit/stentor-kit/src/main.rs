//! `stentor-kit`: demonstrates the mail server, and measures mail servers and storage. See ARCHITECTURE.md.

use std::process::ExitCode;

use clap::Parser;
use stentor_kit::Cli;

/// As in the server: one allocator that gives memory back, for all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stentor_kit::run(Cli::parse())
}
