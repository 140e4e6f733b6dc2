//! `stentor-kit lab`: the simulated Internet on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use stentor_lab::LabError;
use stentor_lab::cli::{Recording, RunOptions, run_scenario, write_hosts, write_subscribers};

use crate::fail;

#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a scenario: its DNS and all its hosts.
    Run {
        /// The scenario file (see docs/kit/lab.md and examples/lab).
        scenario: PathBuf,
        #[command(flatten)]
        recording: Recording,
        /// Port of all hosts, instead of the scenario's.
        #[arg(long)]
        smtp_port: Option<u16>,
        /// Port of the DNS server, instead of the scenario's.
        #[arg(long)]
        dns_port: Option<u16>,
        /// Write the certificate of the CA that signed the hosts' certificates.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Write each copy with its return path to a file in this new or empty folder as it arrives, the first 10,000.
        #[arg(long, value_name = "FOLDER")]
        keep: Option<PathBuf>,
    },
    #[cfg(feature = "measure")]
    #[command(flatten)]
    Measure(stentor_load::cli::Measure),
    /// Write a scenario's hosts, one `domain host address` per line, as routes for a server without the lab's DNS.
    Hosts { scenario: PathBuf },
    /// Write a scenario's subscribers, one per line.
    Subscribers {
        scenario: PathBuf,
        count: usize,
        /// Write only subscribers that must get a copy.
        #[arg(long)]
        reachable: bool,
    },
}

pub fn run(options: Options) -> ExitCode {
    stentor_lab::descriptors::raise();
    let command = match options.command {
        // They have threads of their own.
        #[cfg(feature = "measure")]
        Command::Measure(command) => return crate::measured(stentor_load::cli::run(command)),
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime could not be started: {error}")),
    };
    match runtime.block_on(carry_out(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

async fn carry_out(command: Command) -> Result<(), LabError> {
    match command {
        Command::Run { scenario, recording, smtp_port, dns_port, ca, keep } => {
            let options = RunOptions { ca, keep, ..recording.options(smtp_port, dns_port) };
            run_scenario(&scenario, &options).await
        }
        // Carried out before there is a runtime.
        #[cfg(feature = "measure")]
        Command::Measure(_) => Ok(()),
        Command::Hosts { scenario } => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            write_hosts(&scenario, &mut out)?;
            Ok(std::io::Write::flush(&mut out)?)
        }
        Command::Subscribers { scenario, count, reachable } => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            write_subscribers(&scenario, count, reachable, &mut out)?;
            Ok(std::io::Write::flush(&mut out)?)
        }
    }
}
