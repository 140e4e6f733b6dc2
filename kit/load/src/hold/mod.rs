//! `stentor-kit lab hold`: opens very many connections and keeps them, sends mail over some of them at a time, and
//! reports the cost on both sides: shows what bounds a server or a source address.
//!
//! Promise: a connection counts as held once its greeting 220 was read, and as lost if the server ends it before we do.
//! Messages go over the connections in turn, which proves that held ones are alive. One thread, one epoll set; for more
//! connections than one process may have descriptors, several processes share them ([`many`]).
//!
//! The command opens all, then (if asked) sends, waits, resets.

mod client;
mod many;
mod report;
mod ways;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Args;
use stentor_lab::cli::FOR_EVER;
use stentor_measure::{Histogram, MeasureError, Progress, Stop, repeat};

use crate::address::{Sources, Targets};
use crate::crew::{self, share};
use crate::error::LoadError;
use crate::output::OnceArgs;
use crate::procfs::{Kernel, ProcessUsage};
use client::Client;
use ways::Ways;

/// Of what is no connection.
const DESCRIPTORS_SPARE: u64 = 32;

/// Options of `stentor-kit lab hold`.
#[derive(Args, Debug, Clone)]
pub struct HoldArgs {
    /// Servers, used in turn: address:port, or a range such as 127.0.0.1-127.0.0.8:2525.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Targets>,
    /// Number of connections to hold; uses as many processes as the descriptor limit requires.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    connections: u32,
    /// Number of processes [default: as many as --connections needs].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    processes: Option<u16>,
    /// Source addresses, used in turn: 127.0.1.1 or 127.0.1.1-127.0.1.4 [default: the kernel's choice].
    #[arg(long, alias = "from", value_name = "ADDRESS")]
    bind: Vec<Sources>,
    /// Number of connections to open at the same time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    opening: u32,
    /// Number of messages to send over the held connections, in turn.
    #[arg(long, default_value_t = 0)]
    messages: u64,
    /// Number of messages to send at the same time.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    active: u32,
    /// Message size in octets, at most 64K.
    #[arg(long = "size", alias = "size-bytes", default_value = "4096", value_name = "BYTES", value_parser = size)]
    size_bytes: u32,
    /// How long to keep the connections.
    #[arg(long, default_value = "0", value_parser = stentor_lab::cli::seconds)]
    seconds: Duration,
    /// Process ID of the server; reports its memory and that of its children.
    #[arg(long)]
    pid: Option<u32>,
    #[command(flatten)]
    output: OnceArgs,
}

/// A message goes to the socket in one piece: no server is measured that does not read, and no buffer that is smaller.
const SIZE_BYTES_MAX: usize = 64 << 10;

fn size(text: &str) -> Result<u32, String> {
    match crate::load::octets(text)? {
        bytes @ 1..=SIZE_BYTES_MAX => Ok(bytes as u32),
        _ => Err(format!("{text}: must be between 1 and 64K")),
    }
}

/// What one process does.
struct Work {
    connections: u64,
    /// At a time, as the next but one.
    opening: u64,
    messages: u64,
    active: u64,
    /// Number of the first message.
    first: u64,
}

impl Work {
    /// The part of process `number` of so many, in run `run`.
    fn of(args: &HoldArgs, number: usize, members: usize, run: u32) -> Work {
        let part = |whole: u64| share(whole, number, members);
        let earlier: u64 = (0..number).map(|number| share(args.messages, number, members)).sum();
        Work {
            connections: part(u64::from(args.connections)),
            opening: part(u64::from(args.opening)).max(1),
            messages: part(args.messages),
            active: part(u64::from(args.active)).max(1),
            first: u64::from(run) * args.messages + earlier,
        }
    }
}

/// What both sides use at one point.
#[derive(Clone, Copy, Default)]
struct Point {
    server: Option<ProcessUsage>,
    client: ProcessUsage,
    kernel: Kernel,
}

impl Point {
    fn now(pid: Option<u32>) -> Point {
        Point { server: pid.and_then(ProcessUsage::of_tree), client: ProcessUsage::own(), kernel: Kernel::read() }
    }
}

/// Of one run.
#[derive(Default)]
struct Outcome {
    processes: usize,
    opened: u64,
    open_s: f64,
    sent: u64,
    send_s: f64,
    alive: u64,
    before: Point,
    held: Point,
    ran_out: bool,
    errors: BTreeMap<String, u64>,
    times_us: Histogram,
    warnings: Vec<String>,
}

/// Opens, sends, keeps and reports.
pub fn run_hold(args: &HoldArgs) -> Result<(), LoadError> {
    if let Some((number, members)) = crew::place() {
        return many::work(args, number, members);
    }
    let stop = Stop::on_signals()?;
    args.output.0.ready()?;
    if let Some(pid) = args.pid.filter(|pid| ProcessUsage::of(*pid).is_none()) {
        return Err(LoadError::refused(format!("there is no process {pid}")));
    }
    let room = crew::descriptors(DESCRIPTORS_SPARE);
    let processes = crew::processes(Some(u64::from(args.connections)), args.processes, room)?;
    let output = &args.output.0;
    let mut progress = output.progress();
    let outcomes = repeat(output.runs, &stop, |run| match processes {
        1 => alone(args, &stop, &mut progress, run),
        more => many::together(args, more, &stop, &mut progress, run),
    })?;
    progress.clear();
    let mut report = report::report(args, &ways(args, 0, 1), &outcomes);
    if stop.is_set() {
        report.warnings.push("stopped by a signal: the last run is incomplete".to_owned());
    }
    output.finish(&report)?;
    if outcomes.is_empty() {
        return Err(MeasureError::Stopped.into());
    }
    if outcomes.iter().all(|outcome| outcome.opened == 0) {
        return Err(LoadError::refused("no connection was opened; see the table of errors"));
    }
    Ok(())
}

fn ways(args: &HoldArgs, number: usize, members: usize) -> Ways {
    let mut sources: Vec<Option<IpAddr>> = args.bind.iter().flat_map(|bind| bind.0.iter().copied().map(Some)).collect();
    if sources.is_empty() {
        sources.push(None);
    }
    let targets: Vec<SocketAddr> = args.targets.iter().flat_map(|targets| targets.0.iter().copied()).collect();
    Ways { sources, targets, ports: Ways::ports(), next: number as u64, step: members as u64 }
}

/// In this process.
fn alone(args: &HoldArgs, stop: &Stop, progress: &mut Progress, run: u32) -> Result<Outcome, LoadError> {
    let (work, mut ways) = (Work::of(args, 0, 1, run), ways(args, 0, 1));
    let mut client = Client::new(args.size_bytes as usize, work.first)?;
    let before = Point::now(args.pid);
    let begun = Instant::now();
    let ran_out = client.open_all(&work, &mut ways, stop, &mut |open| say_open(progress, open, args))?;
    let open_s = begun.elapsed().as_secs_f64();
    let (opened, held) = (client.open_now(), Point::now(args.pid));
    let begun = Instant::now();
    let sent = client.send_all(&work, stop, &mut |sent| say_sent(progress, sent, args))?;
    let send_s = begun.elapsed().as_secs_f64();
    wait(args, stop, |left| {
        say_open(progress, client.open_now(), args);
        client.keep(left).map(|()| true)
    })?;
    let alive = client.open_now();
    client.close_all();
    Ok(Outcome {
        processes: 1,
        opened,
        open_s,
        sent,
        send_s,
        alive,
        before,
        held,
        ran_out,
        errors: client.errors,
        times_us: client.times_us,
        warnings: Vec::new(),
    })
}

fn say_open(progress: &mut Progress, open: u64, args: &HoldArgs) {
    progress.step(|| format!("{open} of {} connections open", args.connections));
}

fn say_sent(progress: &mut Progress, sent: u64, args: &HoldArgs) {
    progress.step(|| format!("{sent} of {} messages sent", args.messages));
}

/// Until `--seconds` are over. `turn` is told what is left, and may take less.
fn wait(args: &HoldArgs, stop: &Stop, mut turn: impl FnMut(Duration) -> io::Result<bool>) -> io::Result<()> {
    let end = Instant::now() + args.seconds.min(FOR_EVER);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.is_set() {
            return Ok(());
        }
        if !turn(left)? {
            return Ok(());
        }
    }
}
