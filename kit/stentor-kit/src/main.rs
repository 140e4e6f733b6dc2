//! `stentor-kit`: shows what the mail server does, and measures mail servers and storage. ARCHITECTURE.md says where everything is.

use std::process::ExitCode;

use clap::Parser;
use stentor_kit::Cli;

/// As in the server: one allocator that gives memory back, for all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stentor_kit::run(Cli::parse())
}
