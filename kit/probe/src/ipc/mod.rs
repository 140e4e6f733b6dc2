//! `probe ipc`: the cost of asking another process on this machine: loopback TCP, Unix sockets, pipes.
//!
//! Promise: a request of N octets gets an answer of N, one at a time on one connection (TCP with `TCP_NODELAY`),
//! between two processes or two threads, as the report says. One way: octets in writes of that size until the time is
//! up and the other side has reported how many it got. Nothing is pinned to a processor.
//!
//! The other process is this program again (`--answer`), with its end of the connection as standard input; it ends when
//! that closes, so that nothing is left behind however this one ends.

mod ends;
mod tables;

use std::time::Duration;

use clap::{Args, ValueEnum};
use stentor_measure::{MeasureError, OutputArgs, Progress, Report, Stop, repeat};

use crate::trouble::{parse_bytes, parse_seconds};
use ends::{IpcMeasurement, Work};

const BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Transport {
    /// 127.0.0.1, with `TCP_NODELAY`.
    Tcp,
    /// A pair of Unix stream sockets.
    Unix,
    /// Two pipes.
    Pipe,
}

impl Transport {
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Between {
    Processes,
    Threads,
}

#[derive(Args, Clone, Debug)]
pub struct IpcArgs {
    /// Transports, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp,unix,pipe")]
    pub transport: Vec<Transport>,
    /// Octets of a request and of its answer, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "32,512,4K,16K,64K", value_parser = message_bytes)]
    pub bytes: Vec<u64>,
    /// The two ends: processes or threads.
    #[arg(long, value_enum, default_value = "processes")]
    pub between: Between,
    /// Duration of a row.
    #[arg(long, default_value_t = 0.1, value_parser = parse_seconds)]
    pub seconds: f64,
    /// The other side: `echo:BYTES` or `take:BYTES`, on standard input.
    #[arg(long, hide = true)]
    pub answer: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn message_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (1..=BYTES_MAX).contains(&bytes) { Ok(bytes) } else { Err("1 octet to 16M".to_owned()) }
}

/// A transport and a size, and what came of them in the counted runs.
pub struct Line {
    transport: Transport,
    bytes: u64,
    round_trips: Vec<IpcMeasurement>,
    one_way: Vec<IpcMeasurement>,
}

pub fn run(options: &IpcArgs) -> Result<(), MeasureError> {
    if let Some(work) = &options.answer {
        let work = Work::parse(work).ok_or_else(|| MeasureError::Refused(format!("--answer {work}")))?;
        return ends::answer_on_standard_input(work).map_err(MeasureError::Output);
    }
    crate::run_measure(&options.output, |stop, progress| measure(options, stop, progress))
}

/// The measurement without its output, for other commands.
pub fn measure(options: &IpcArgs, stop: &Stop, progress: &mut Progress) -> Result<Report, MeasureError> {
    let time = Duration::from_secs_f64(options.seconds);
    let mut lines: Vec<Line> = Vec::new();
    for &bytes in &options.bytes {
        let of_transport =
            |&transport: &Transport| Line { transport, bytes, round_trips: Vec::new(), one_way: Vec::new() };
        lines.extend(options.transport.iter().map(of_transport));
    }
    let (total, count) = (if options.output.runs > 1 { options.output.runs + 1 } else { 1 }, lines.len());
    repeat(options.output.runs, stop, |number| {
        for (at, line) in lines.iter_mut().enumerate() {
            progress.step(|| {
                let (transport, bytes) = (line.transport.word(), line.bytes);
                format!("run {} of {total}, {} of {count}: {transport}, {bytes} octets", number + 1, at + 1)
            });
            for work in [Work::Echo(line.bytes as usize), Work::Take(line.bytes as usize)] {
                let measured = ends::measure(line.transport, options.between, work, time, stop)
                    .map_err(|error| MeasureError::Refused(format!("{}: {error}", line.transport.word())))?;
                if stop.is_set() {
                    return Err(MeasureError::Stopped);
                }
                let runs = if matches!(work, Work::Echo(_)) { &mut line.round_trips } else { &mut line.one_way };
                // The run that `repeat` drops, unless it is the only one.
                if number > 0 || total == 1 {
                    runs.push(measured);
                }
            }
        }
        Ok(())
    })?;
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    Ok(tables::report(options, &lines))
}
