//! `stentor`: a mail transfer agent for mailing lists and bulk mail. Runs the command and maps errors to exit codes;
//! ARCHITECTURE.md says where everything is.

use std::process::ExitCode;

use stentor::{cli, help};

/// One allocator that returns memory, since allocators with arenas per thread keep it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for a command line that cannot be parsed, as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Some(hint) = std::env::args().nth(1).and_then(|command| help::moved(&command)) {
        eprintln!("{hint}");
        return ExitCode::from(USAGE);
    }
    cli::run(cli::parse())
}
