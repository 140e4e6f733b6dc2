//! `stentor`: a mail transfer agent for mailing lists and bulk mail. Chooses the command and maps errors to exit codes;
//! ARCHITECTURE.md says where everything is.

use std::process::ExitCode;

use stentor::{cli, help};

/// Threads that grew large arenas would keep them: one allocator that gives memory back, for all.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a command line that was not understood, as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Some(hint) = std::env::args().nth(1).and_then(|command| help::moved(&command)) {
        eprintln!("{hint}");
        return ExitCode::from(USAGE);
    }
    cli::run(cli::parse())
}
