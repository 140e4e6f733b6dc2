//! The command line of `stentor-kit`, as a library for its tests: it parses every command and calls the crate that
//! implements it. The mail server is another program, which `demo` starts and `lab compare` measures.

mod demo;
mod lab;
mod pages;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Exit code of a command that was understood and failed.
const FAILED: u8 = 1;

/// Demo, simulated Internet, load generators and storage probes for mail servers.
#[derive(Parser)]
#[command(name = "stentor-kit", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Post a message to a list in a simulated Internet and watch it reach every subscriber.
    Demo(demo::Options),
    /// Load generators, mail sinks and a simulated Internet (DNS and hosts, well-behaved and faulty).
    Lab(lab::Options),
    /// Measure storage and local communication.
    #[cfg(feature = "measure")]
    Probe {
        #[command(subcommand)]
        command: stentor_probe::Command,
    },
    /// Trace where a write spends its time, layer by layer.
    #[cfg(feature = "measure")]
    #[command(after_help = stentor_iotrace::EXAMPLES)]
    Iotrace(Box<stentor_iotrace::IotraceArgs>),
    /// Print a completion script for a shell.
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write the pages of all commands.
    Man(pages::Man),
}

pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Demo(options) => demo::run(&options),
        Command::Lab(options) => lab::run(options),
        #[cfg(feature = "measure")]
        Command::Probe { command } => measured(stentor_probe::run(command)),
        #[cfg(feature = "measure")]
        Command::Iotrace(options) => measured(stentor_iotrace::run(&options)),
        Command::Completions { shell } => pages::completions(Cli::command(), shell),
        Command::Man(options) => pages::man(Cli::command(), &options),
    }
}

/// The end of a measuring command.
#[cfg(feature = "measure")]
fn measured(done: Result<(), stentor_measure::MeasureError>) -> ExitCode {
    let Err(error) = done else { return ExitCode::SUCCESS };
    fail(&error.to_string());
    ExitCode::from(error.exit_code())
}

/// Prints the reason on standard error.
fn fail(why: &str) -> ExitCode {
    eprintln!("stentor-kit: {why}");
    ExitCode::from(FAILED)
}
