//! `stentor lab sink` and `lab hold` in a small binary that is built quickly, called as the real one is:
//! `cargo run --release -p stentor-lab --example sink -- lab sink ...`; bench/run.py takes it with `--binary`.

use clap::Parser;
use stentor_lab::{HoldArgs, LabError, SinkArgs, run_hold, run_sink};

#[derive(Parser)]
enum Options {
    #[command(subcommand)]
    Lab(Command),
}

#[derive(Parser)]
enum Command {
    Sink(SinkArgs),
    Hold(HoldArgs),
}

fn main() -> Result<(), LabError> {
    match Options::parse() {
        Options::Lab(Command::Sink(args)) => run_sink(&args),
        Options::Lab(Command::Hold(args)) => run_hold(&args),
    }
}
