//! `stentor-kit lab limit`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stentor_measure::Scratch;
use stentor_measure::chart::{Kind, Series};
use stentor_measure::{Cell, Chart, Column, MeasureError, OutputArgs, Place, Report, Spread, Stop, Table};

use super::sink::FloorSink;
use super::store::Keep;
use crate::load::{self, Content, Count, People, Pipelining, Plan, Sizes};

const SECONDS_PER_HOUR: f64 = 3600.0;
/// In which a server that takes mail at all has taken one.
const SECONDS_FOR_ONE: f64 = 60.0;
const DOMAINS: u64 = 200;
const RECIPIENTS: u64 = 1_000_000;

#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// HOST:PORT of a server [default: a built-in sink that only counts].
    pub target: Option<String>,
    /// Numbers of concurrent connections; one row each.
    #[arg(long, value_delimiter = ',', default_value = "1,20")]
    pub connections: Vec<usize>,
    /// Message size in octets.
    #[arg(long, default_value = "4096")]
    pub size: String,
    /// Recipients per message in the row with many recipients.
    #[arg(long, default_value_t = 50)]
    pub recipients: u32,
    /// Duration of one run of one row.
    #[arg(long, default_value_t = 0.4)]
    pub seconds: f64,
    /// Also measure durable messages in this directory: one sync each, and group commit.
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    pub queue: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    SessionEach,
    Kept,
    Pipelined,
    Chunks,
    Many,
}

const WAYS: [Way; 5] = [Way::SessionEach, Way::Kept, Way::Pipelined, Way::Chunks, Way::Many];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::SessionEach => "session each",
            Way::Kept => "session kept",
            Way::Pipelined => "pipelined ahead",
            Way::Chunks => "BDAT in one write",
            Way::Many => "many recipients",
        }
    }
}

const KEPT: [&str; 3] = ["counted only", "a sync each", "group commit"];

struct Row {
    way: Way,
    connections: usize,
    kept: usize,
    runs: Vec<Run>,
}

struct Run {
    messages_per_s: f64,
    recipients_per_s: f64,
    p50_us: f64,
    source_cpu_us: f64,
    sink_cpu_us: Option<f64>,
    syncs: Option<f64>,
    failed: u64,
}

/// Measures and reports.
pub fn run_limit(options: &LimitArgs) -> Result<(), MeasureError> {
    let refuse = MeasureError::Refused;
    let target = match &options.target {
        Some(name) => load::targets(std::slice::from_ref(name)).map_err(refuse)?.first().copied(),
        None => None,
    };
    load::seconds(options.seconds, "--seconds").map_err(refuse)?;
    let sizes = Sizes::parse(&options.size).map_err(refuse)?;
    if options.recipients == 0 || options.connections.contains(&0) {
        return Err(refuse("--connections and --recipients must be at least 1".to_owned()));
    }
    let stop = Stop::on_signals().map_err(MeasureError::Output)?;
    options.output.ready()?;
    let mut report = Report::new("lab-limit", "Upper limit of this machine");
    let scratch = options.queue.as_deref().map(Scratch::make).transpose()?;
    if let Some(directory) = &options.queue {
        report.places.push(Place::of(directory).map_err(MeasureError::file(directory))?);
    }
    report.parameter("target", options.target.as_deref().unwrap_or("the built-in sink"));
    report.parameter("size", &options.size);
    report.parameter("seconds", options.seconds);
    let mut rows = Vec::new();
    for kept in 0..if scratch.is_some() { KEPT.len() } else { 1 } {
        for way in WAYS {
            for connections in &options.connections {
                rows.push(Row { way, connections: *connections, kept, runs: Vec::new() });
            }
        }
    }
    measure(options, &mut rows, target, sizes, scratch.as_ref(), &stop)?;
    drop(scratch);
    if rows.iter().any(|row| row.runs.is_empty()) {
        return Err(MeasureError::Stopped);
    }
    fill(&mut report, &rows, target.is_some());
    options.output.finish(&report)
}

/// Runs go round over all rows, so that a busy moment strikes them alike.
fn measure(
    options: &LimitArgs,
    rows: &mut [Row],
    target: Option<SocketAddr>,
    sizes: Sizes,
    scratch: Option<&Scratch>,
    stop: &Stop,
) -> Result<(), MeasureError> {
    let mut progress = options.output.progress();
    let total = if options.output.runs == 1 { 1 } else { options.output.runs + 1 };
    let count = rows.len();
    for number in 0..total {
        for (at, row) in rows.iter_mut().enumerate() {
            if stop.is_set() {
                return Ok(());
            }
            progress.step(|| format!("round {} of {total}, row {} of {count}", number + 1, at + 1));
            let folder = scratch.map(|scratch| scratch.path().to_owned()).unwrap_or_default();
            let keep = match row.kept {
                0 => Keep::Nothing,
                1 => Keep::Each(folder),
                _ => Keep::Group(folder),
            };
            let run = one(options, row, target, sizes, &keep, stop)?;
            if number > 0 || total == 1 {
                row.runs.push(run);
            }
        }
    }
    progress.clear();
    Ok(())
}

fn plan(options: &LimitArgs, row: &Row, target: SocketAddr, sizes: Sizes) -> Plan {
    let mut plan = Plan::new(vec![target]);
    plan.connections = row.connections;
    plan.messages = u64::MAX;
    plan.duration = Duration::try_from_secs_f64(options.seconds).ok();
    plan.messages_per_session = (row.way == Way::SessionEach).then_some(1);
    plan.pipelining = match row.way {
        Way::SessionEach | Way::Kept => Pipelining::Off,
        Way::Chunks => Pipelining::Offered,
        Way::Pipelined | Way::Many => Pipelining::Ahead,
    };
    plan.chunking = row.way == Way::Chunks;
    if row.way == Way::Many {
        plan.recipients_per_message = Count::exactly(options.recipients);
        plan.people = People::Random { recipients: RECIPIENTS, domains: DOMAINS };
    }
    plan.content = Content::made(sizes, &plan.sender, "limit");
    plan
}

/// A machine that is too busy for even one message within `--seconds` gets longer.
fn one(
    options: &LimitArgs,
    row: &Row,
    target: Option<SocketAddr>,
    sizes: Sizes,
    keep: &Keep,
    stop: &Stop,
) -> Result<Run, MeasureError> {
    let mut options = options.clone();
    loop {
        match within(&options, row, target, sizes, keep, stop)? {
            Some(run) => return Ok(run),
            None if options.seconds < SECONDS_FOR_ONE => {
                options.seconds = (options.seconds * 4.0).clamp(1.0, SECONDS_FOR_ONE);
            }
            None => {
                let (name, seconds) = (row.way.name(), options.seconds);
                return Err(MeasureError::Refused(format!("no message was accepted within {seconds} s ({name})")));
            }
        }
    }
}

/// None if no message was begun in time.
fn within(
    options: &LimitArgs,
    row: &Row,
    target: Option<SocketAddr>,
    sizes: Sizes,
    keep: &Keep,
    stop: &Stop,
) -> Result<Option<Run>, MeasureError> {
    let failed = |error: std::io::Error| MeasureError::Refused(format!("built-in sink: {error}"));
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let own = if target.is_some() { None } else { Some(FloorSink::start(local, keep).map_err(failed)?) };
    let address = target.or(own.as_ref().map(|sink| sink.address)).unwrap_or(local);
    let plan = plan(options, row, address, sizes);
    let tally = load::run(&plan, stop, |_, _| ()).map_err(|error| MeasureError::Refused(error.to_string()))?;
    let ended = own.map(FloorSink::finish).transpose().map_err(failed)?;
    if tally.accepted == 0 && !stop.is_set() {
        let Some((failure, failed)) = tally.errors.iter().next() else { return Ok(None) };
        let what = match &failure.what {
            load::FailureKind::Code(_) => &failed.example,
            load::FailureKind::Connection(what) => what,
        };
        let (way, step) = (row.way.name(), failure.step.name());
        return Err(MeasureError::Refused(format!("{address} accepted no message ({way}): {step}: {what}")));
    }
    let messages = tally.accepted.max(1) as f64;
    Ok(Some(Run {
        messages_per_s: tally.rates().0,
        recipients_per_s: tally.recipients as f64 / tally.elapsed_s.max(1e-9),
        p50_us: tally.transaction.percentile(0.5) as f64 / 1000.0,
        source_cpu_us: tally.cpu_s * 1e6 / messages,
        sink_cpu_us: ended.map(|ended| ended.cpu_s * 1e6 / messages),
        syncs: ended.filter(|_| *keep != Keep::Nothing).map(|ended| ended.syncs as f64 / messages),
        failed: tally.failed,
    }))
}

fn fill(report: &mut Report, rows: &[Row], is_given: bool) {
    let columns = vec![
        Column::new("way", "way"),
        Column::new("sink", "sink"),
        Column::new("connections", "connections"),
        Column::new("messages_per_h", "messages/h"),
        Column::new("messages_per_s", "messages/s"),
        Column::new("recipients_per_s", "recipients/s"),
        Column::new("transaction_p50_us", "transaction p50 us"),
        Column::new("source_cpu_us", "source CPU us/msg"),
        Column::new("sink_cpu_us", "sink CPU us/msg"),
        Column::new("syncs_per_message", "syncs/msg"),
    ];
    let mut table = Table::new("limit", "Messages at best", columns);
    for row in rows {
        let cell = |of: &dyn Fn(&Run) -> f64, decimals| Cell::spread(row.runs.iter().map(of), decimals);
        let maybe = |of: &dyn Fn(&Run) -> Option<f64>, decimals| Cell::spread(row.runs.iter().filter_map(of), decimals);
        table.push(vec![
            Cell::text(row.way.name()),
            Cell::text(if is_given { "given" } else { KEPT[row.kept] }),
            Cell::Count(row.connections as u64),
            cell(&|run| run.messages_per_s * SECONDS_PER_HOUR, 0),
            median(row, |run| run.messages_per_s),
            median(row, |run| run.recipients_per_s),
            cell(&|run| run.p50_us, 0),
            cell(&|run| run.source_cpu_us, 1),
            maybe(&|run| run.sink_cpu_us, 1),
            maybe(&|run| run.syncs, 3),
        ]);
        let failed: u64 = row.runs.iter().map(|run| run.failed).sum();
        if failed > 0 {
            let name = row.way.name();
            report.warnings.push(format!("{name}, {} connections: {failed} messages failed", row.connections));
        }
    }
    report.tables.push(table);
    for (kept, name) in KEPT.into_iter().enumerate() {
        let rate = |row: &&Row| Spread::of(row.runs.iter().map(|run| run.messages_per_s)).map_or(0.0, |s| s.median);
        let rows = rows.iter().filter(|row| row.kept == kept);
        let Some(best) = rows.max_by(|a, b| rate(a).total_cmp(&rate(b))) else { continue };
        let what = if is_given { "this server" } else { name };
        report.notes.push(format!(
            "{what}: at best {:.0} messages/h ({}, {} connections)",
            rate(&best) * SECONDS_PER_HOUR,
            best.way.name(),
            best.connections
        ));
    }
    report.charts.push(chart(rows));
}

fn median(row: &Row, of: fn(&Run) -> f64) -> Cell {
    Spread::of(row.runs.iter().map(of)).map_or(Cell::Missing, |spread| Cell::Number(spread.median, 0))
}

fn chart(rows: &[Row]) -> Chart {
    let most = rows.iter().map(|row| row.connections).max().unwrap_or(1);
    let series = |kept: usize| Series {
        name: KEPT[kept].to_owned(),
        values: rows
            .iter()
            .filter(|row| row.kept == kept && row.connections == most)
            .map(|row| Spread::of(row.runs.iter().map(|run| run.messages_per_s)).map_or(0.0, |s| s.median))
            .collect(),
    };
    let kinds = rows.iter().map(|row| row.kept).max().unwrap_or(0);
    Chart {
        name: "ways".to_owned(),
        title: format!("Messages per second over {most} connections"),
        kind: Kind::Bars {
            unit: "messages/s".to_owned(),
            groups: WAYS.iter().map(|way| way.name().to_owned()).collect(),
            series: (0..=kinds).map(series).collect(),
        },
    }
}
