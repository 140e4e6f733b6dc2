//! `stentor lab sink` and `lab hold` in a small binary, for measurements:
//! `cargo run --release -p stentor-lab --example sink -- sink ...`.

use clap::Parser;
use stentor_lab::{HoldArgs, LabError, SinkArgs, run_hold, run_sink};

#[derive(Parser)]
enum Options {
    Sink(SinkArgs),
    Hold(HoldArgs),
}

fn main() -> Result<(), LabError> {
    match Options::parse() {
        Options::Sink(args) => run_sink(&args),
        Options::Hold(args) => run_hold(&args),
    }
}
