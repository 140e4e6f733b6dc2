//! `stentor lab`: the simulated Internet on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use stentor_lab::cli::{Recording, run_scenario, run_source, write_hosts, write_subscribers};
use stentor_lab::{HoldArgs, LabError, SinkArgs, Source, run_hold, run_sink};

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
    /// Serve one sink, of a model, with a store or without, and report what it took.
    Sink(SinkArgs),
    /// Open very many connections, keep them, send over some: what bounds a server or a source address.
    Hold(HoldArgs),
    /// Send load and report rates and latencies as JSON.
    Source {
        target: SocketAddr,
        #[arg(long, default_value_t = 10)]
        connections: u32,
        #[arg(long, default_value_t = 1000)]
        messages: u64,
        #[arg(long, default_value_t = 4096)]
        size_bytes: usize,
        /// Begin no message after so many seconds.
        #[arg(long)]
        seconds: Option<f64>,
        /// A session for each message.
        #[arg(long)]
        session_each: bool,
        #[arg(long, default_value = "source@source.lab")]
        from: String,
        /// Recipients, used in turn.
        #[arg(long, default_value = "sink@sink.lab")]
        to: Vec<String>,
        /// Recipients in place of `--to`, one a line.
        #[arg(long, value_name = "FILE", conflicts_with = "to")]
        to_file: Option<PathBuf>,
        #[arg(long, default_value_t = 1)]
        recipients_per_message: usize,
        /// Part of the Message-IDs.
        #[arg(long, default_value = "run")]
        run: String,
        /// Send this file (made CRLF) instead of made messages.
        #[arg(long)]
        message: Option<PathBuf>,
    },
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

pub fn run(options: Options) -> ExitCode {
    crate::process::raise_descriptor_limit();
    // They have threads of their own.
    let done = match &options.command {
        Command::Sink(sink) => Some(run_sink(sink)),
        Command::Hold(hold) => Some(run_hold(hold)),
        _ => None,
    };
    if let Some(done) = done {
        return done.map_or_else(|error| fail(&error.to_string()), |()| ExitCode::SUCCESS);
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
        Command::Sink(sink) => run_sink(&sink),
        Command::Hold(hold) => run_hold(&hold),
        Command::Run { scenario, recording, smtp_port, dns_port } => {
            run_scenario(&scenario, &recording.options(smtp_port, dns_port)).await
        }
        Command::Source {
            target,
            connections,
            messages,
            size_bytes,
            seconds,
            session_each,
            from,
            to,
            to_file,
            recipients_per_message,
            run,
            message,
        } => {
            let recipients = match to_file {
                Some(path) => {
                    let text = std::fs::read_to_string(&path).map_err(|source| LabError::Read { path, source })?;
                    text.lines().map(str::to_owned).collect()
                }
                None => to,
            };
            let message = match message {
                Some(path) => {
                    let text = std::fs::read(&path).map_err(|source| LabError::Read { path, source })?;
                    Some(Arc::from(crlf(&text)))
                }
                None => None,
            };
            let source = Source {
                connections,
                messages,
                size_bytes,
                duration_max: seconds.map(Duration::try_from_secs_f64).and_then(Result::ok),
                keep_open: !session_each,
                sender: from,
                recipients,
                recipients_per_message,
                run,
                message,
                ..Source::new(target)
            };
            run_source(source).await.map(drop)
        }
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

/// Lines of a file as they go over the wire.
pub fn crlf(text: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(text.len() + text.len() / 40 + 2);
    let mut lines = text.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_none() && line.is_empty() {
            break;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A CR inside a line cannot be sent; a mail program would have ended the line there.
        for (i, part) in line.split(|byte| *byte == b'\r').enumerate() {
            if i > 0 {
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(part);
        }
        wire.extend_from_slice(b"\r\n");
    }
    wire
}

#[cfg(test)]
mod tests {
    use super::crlf;

    #[test]
    fn every_line_ends_in_crlf_and_nothing_is_bare() {
        assert_eq!(crlf(b"a\nb\r\nc\rd"), b"a\r\nb\r\nc\r\nd\r\n");
        assert_eq!(crlf(b"a\r\n\r\n"), b"a\r\n\r\n");
        assert_eq!(crlf(b""), b"");
    }
}
