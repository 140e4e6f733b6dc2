//! The lab's measuring commands alone, which are built quickly: `cargo run -p stentor-lab --example lab -- source ...`. A first
//! word `lab` is passed over, so that it can stand in for `stentor`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: stentor_lab::measure_cli::Measure,
}

fn main() -> ExitCode {
    let words = std::env::args_os().enumerate().filter(|(at, word)| *at != 1 || word != "lab").map(|(_, word)| word);
    match stentor_lab::measure_cli::run(Options::parse_from(words).command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stentor: {error}");
            ExitCode::FAILURE
        }
    }
}
