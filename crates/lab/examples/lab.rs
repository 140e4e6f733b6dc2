//! The lab's measuring commands alone, which are built quickly: `cargo run -p stentor-lab --example lab -- source ...`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: stentor_lab::measure_cli::Measure,
}

fn main() -> ExitCode {
    match stentor_lab::measure_cli::run(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stentor: {error}");
            ExitCode::FAILURE
        }
    }
}
