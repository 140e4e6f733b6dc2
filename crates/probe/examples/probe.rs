//! `stentor probe` alone, which is built quickly: `cargo run -p stentor-probe --example probe -- log /var/tmp`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: stentor_probe::Command,
}

fn main() -> ExitCode {
    match stentor_probe::run(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stentor: {error}");
            ExitCode::FAILURE
        }
    }
}
