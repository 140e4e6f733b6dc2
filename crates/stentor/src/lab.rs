//! `stentor lab`: the simulated Internet on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use stentor_lab::cli::{RunOptions, run_scenario, run_sink, write_hosts, write_subscribers};
use stentor_lab::measure_cli::Measure;
use stentor_lab::{Behaviour, LabError, Mode};

use crate::cli::fail;

#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a scenario: its DNS and all its hosts.
    Run {
        /// The scenario file (see docs/lab.md and examples/lab).
        scenario: PathBuf,
        #[command(flatten)]
        recording: Recording,
        /// Port of all hosts, in place of the scenario's.
        #[arg(long)]
        smtp_port: Option<u16>,
        /// Port of the DNS server, in place of the scenario's.
        #[arg(long)]
        dns_port: Option<u16>,
    },
    /// Serve one sink.
    Sink {
        /// Where it listens.
        #[arg(default_value = "127.0.0.1:2626")]
        address: SocketAddr,
        /// How it behaves, as in a scenario: `rtt_ms = 50, no_chunking = true`.
        #[arg(long, default_value = "")]
        behaviour: String,
        #[command(flatten)]
        recording: Recording,
    },
    #[command(flatten)]
    Measure(Measure),
    /// Write a scenario's hosts, one `domain host address` a line: routes for a server that does not ask the lab's DNS.
    Hosts { scenario: PathBuf },
    /// Write a scenario's subscribers, one a line.
    Subscribers {
        scenario: PathBuf,
        count: usize,
        /// Only those that must get a copy.
        #[arg(long)]
        reachable: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Record {
    Counters,
    Compact,
    Full,
}

#[derive(Args)]
struct Recording {
    /// What is kept of each copy.
    #[arg(long, value_enum, default_value = "compact")]
    record: Record,
    /// End after so many copies.
    #[arg(long)]
    copies: Option<u64>,
    /// End after so many seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// Print the counters every so many seconds.
    #[arg(long)]
    every: Option<f64>,
    /// Write what was received as JSON lines at the end.
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

impl Recording {
    fn options(self, smtp_port: Option<u16>, dns_port: Option<u16>) -> RunOptions {
        RunOptions {
            smtp_port,
            dns_port,
            mode: match self.record {
                Record::Counters => Mode::Counters,
                Record::Compact => Mode::Compact,
                Record::Full => Mode::Full,
            },
            duration: self.seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()),
            copies: self.copies,
            dump: self.dump,
            report_every: self.every.and_then(|s| Duration::try_from_secs_f64(s).ok()),
        }
    }
}

pub fn run(options: Options) -> ExitCode {
    crate::process::raise_descriptor_limit();
    if let Command::Measure(command) = options.command {
        return match stentor_lab::measure_cli::run(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        };
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime cannot be started: {error}")),
    };
    match runtime.block_on(carry_out(options.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

async fn carry_out(command: Command) -> Result<(), LabError> {
    match command {
        Command::Run { scenario, recording, smtp_port, dns_port } => {
            run_scenario(&scenario, &recording.options(smtp_port, dns_port)).await
        }
        Command::Sink { address, behaviour, recording } => {
            let behaviour = Behaviour::parse(&behaviour).map_err(LabError::Scenario)?;
            run_sink(address, behaviour, &recording.options(None, None)).await
        }
        // Carried out before there is a runtime.
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
