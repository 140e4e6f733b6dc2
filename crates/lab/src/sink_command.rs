//! `stentor lab sink`: one sink at some addresses, of a model, with a store or without; the report at its end.
//!
//! What it prints: where it listens; with `--every` a line of counters now and then; at the end (Ctrl-C, `--copies`,
//! `--seconds`) tables. With `--json` the lines are JSON objects of counters, and at the end come `{"report": ...}` and a last
//! line of counters.

use crate::address::Targets;
use crate::behaviour::Behaviour;
use crate::cli::{Recording, RunOptions, dump, say};
use crate::error::LabError;
use crate::procfs::Used;
use crate::recorder::{Mode, Stats, Tallied};
use crate::sink::engine::{Met, Model, Sink, SinkOptions};
use crate::sink::store::{StoreAs, StoreOptions, Sync};
use clap::{Args, ValueEnum};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use stentor_measure::chart::{Chart, Kind, Line};
use stentor_measure::output::Picture;
use stentor_measure::{Cell, Column, MeasureError, OutputArgs, Place, Report, Stop, Table};

/// How often the end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Samples of the picture; then every second one is forgotten and they are taken half as often.
const SAMPLES_MAX: usize = 4096;
/// More addresses than this are not told one by one.
const ADDRESSES_SHOWN: usize = 16;
const MIB: f64 = 1_048_576.0;
const KIB: usize = 1024;

/// Options of `stentor lab sink`.
#[derive(Args, Debug, Clone)]
pub struct SinkArgs {
    /// Where it listens: address:port, or a range such as 127.0.0.1-127.0.0.8:2525.
    #[arg(default_value = "127.0.0.1:2626", value_name = "ADDRESS")]
    pub addresses: Vec<Targets>,
    /// How it behaves, as in a scenario: `rtt_ms = 50, no_chunking = true`.
    #[arg(long, default_value = "")]
    pub behaviour: String,
    /// What waits for the clients: event loops, a pool of threads (further connections wait), or a thread for each.
    #[arg(long, value_enum, default_value = "event")]
    pub model: Model,
    /// Event loops (default 1), or threads of the pool (default 16).
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Stack of a thread of the pool or of a connection.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub stack_kib: u32,
    /// Time taken over each reply, or over one command's (greeting, ehlo, mail, rcpt, data, dot, quit): `5`, `rcpt=20`.
    #[arg(long, value_name = "[COMMAND=]MS")]
    pub delay_ms: Vec<Delay>,
    /// Store each message below this directory before it is answered 250.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "flat", requires = "store")]
    pub store_as: StoreAs,
    /// What must be on the disk before the 250.
    #[arg(long, value_enum, default_value = "file", requires = "store")]
    pub sync: Sync,
    /// Threads that write files for the event loops (default: 16, so that syncs of some files share the disk's time; 1
    /// without syncs, as creating files in one directory takes turns anyway).
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), requires = "store")]
    pub store_threads: Option<u16>,
    #[command(flatten)]
    pub recording: Recording,
    /// So many recipients and domains are in the report: those that got most (not with `--record counters`).
    #[arg(long, default_value_t = 10)]
    pub top: usize,
    /// Write lab-sink.json, one CSV a table and the pictures into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw it, into the folder of `--out` or else the current one.
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "svg", value_name = "FORMAT")]
    pub plot: Option<Picture>,
    /// JSON lines in place of text.
    #[arg(long)]
    pub json: bool,
}

/// `5` or `rcpt=20`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    command: Option<String>,
    ms: u32,
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        let (command, ms) = text.split_once('=').map_or((None, text), |(command, ms)| (Some(command), ms));
        let ms = ms.parse().map_err(|_| format!("{ms:?} is no number of milliseconds"))?;
        let delay = Delay { command: command.map(str::to_ascii_lowercase), ms };
        if delay.field(&mut Behaviour::default()).is_none() {
            return Err(format!("{text:?}: commands are greeting, ehlo, mail, rcpt, data, dot and quit"));
        }
        Ok(delay)
    }
}

impl Delay {
    fn field<'a>(&self, behaviour: &'a mut Behaviour) -> Option<&'a mut u32> {
        Some(match self.command.as_deref() {
            None => &mut behaviour.reply_delay_ms,
            Some("greeting") => &mut behaviour.greeting_delay_ms,
            Some("ehlo" | "helo") => &mut behaviour.ehlo_delay_ms,
            Some("mail") => &mut behaviour.mail_delay_ms,
            Some("rcpt") => &mut behaviour.rcpt_delay_ms,
            Some("data") => &mut behaviour.data_delay_ms,
            Some("dot") => &mut behaviour.dot_delay_ms,
            Some("quit") => &mut behaviour.quit_delay_ms,
            Some(_) => return None,
        })
    }
}

impl SinkArgs {
    /// The sink that is asked for.
    pub fn sink_options(&self) -> Result<SinkOptions, LabError> {
        let mut behaviour = Behaviour::parse(&self.behaviour).map_err(LabError::Scenario)?;
        for delay in &self.delay_ms {
            if let Some(field) = delay.field(&mut behaviour) {
                *field = delay.ms;
            }
        }
        let mode = self.recording.options(None, None).mode;
        let threads = self.threads.map_or(if self.model == Model::Pool { 16 } else { 1 }, usize::from);
        let store = self.store.clone().map(|directory| StoreOptions { directory, as_: self.store_as, sync: self.sync });
        Ok(SinkOptions {
            addresses: self.addresses.iter().flat_map(|targets| targets.0.iter().copied()).collect(),
            behaviour,
            mode,
            by_recipient: mode > Mode::Counters,
            model: self.model,
            threads,
            stack_bytes: self.stack_kib as usize * KIB,
            store,
            store_threads: usize::from(self.store_threads.unwrap_or(if self.sync == Sync::None { 1 } else { 16 })),
        })
    }
}

/// What is seen once a second or so, for the picture.
struct Samples {
    every: Duration,
    /// Seconds since the start, and messages so far.
    seen: Vec<(f64, u64)>,
}

/// Serves until Ctrl-C (or the options' end), then reports.
pub fn run_sink(args: &SinkArgs) -> Result<(), LabError> {
    let stop = Stop::on_signals()?;
    let options = args.recording.options(None, None);
    let sink = Sink::start(&args.sink_options()?)?;
    let shown: Vec<String> = sink.addresses().iter().take(ADDRESSES_SHOWN).map(ToString::to_string).collect();
    let more = sink.addresses().len().saturating_sub(ADDRESSES_SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    say(&format!("SMTP at {}{more}", shown.join(", ")))?;
    let before = Used::of(std::process::id()).unwrap_or_default();
    let samples = watch(&sink, &options, args.json, &stop)?;
    let after = Used::of(std::process::id()).unwrap_or_default();
    let report = report(args, &sink, &samples, (before, after));
    dump(sink.recorder(), &options)?;
    let output = OutputArgs { runs: 1, out: args.out.clone(), plot: args.plot, json: args.json, quiet: true };
    output.write(&report)?;
    if args.json {
        say(&serde_json::json!({ "report": report.to_json(), "met": sink.met() }).to_string())?;
        say(&serde_json::json!(sink.recorder().stats()).to_string())?;
    } else {
        say(report.to_text().trim_end())?;
    }
    sink.stop();
    Ok(())
}

fn watch(sink: &Sink, options: &RunOptions, json: bool, stop: &Stop) -> Result<Samples, LabError> {
    let begun = Instant::now();
    let recorder = sink.recorder();
    let mut samples = Samples { every: SAMPLE_EVERY, seen: vec![(0.0, 0)] };
    let mut said = begun;
    let look_every = options.report_every.map_or(LOOK_EVERY, |every| every.min(LOOK_EVERY));
    loop {
        std::thread::sleep(look_every);
        let (now, stats) = (Instant::now(), recorder.stats());
        let at = now.duration_since(begun);
        if samples.seen.last().is_none_or(|(last, _)| at.as_secs_f64() - last >= samples.every.as_secs_f64()) {
            samples.seen.push((at.as_secs_f64(), stats.transactions));
            if samples.seen.len() > SAMPLES_MAX {
                let mut keep = false;
                samples.seen.retain(|_| {
                    keep = !keep;
                    keep
                });
                samples.every *= 2;
            }
        }
        if options.report_every.is_some_and(|every| now.duration_since(said) >= every) {
            said = now;
            if json {
                say(&serde_json::json!(stats).to_string())?;
            } else {
                say(&format!(
                    "{:.1} s: {} messages, {} copies, {} connections open",
                    at.as_secs_f64(),
                    stats.transactions,
                    stats.recipients,
                    stats.open
                ))?;
            }
        }
        let enough = options.copies.is_some_and(|copies| stats.recipients >= copies);
        if stop.is_set() || enough || options.duration.is_some_and(|most| at >= most) {
            samples.seen.push((at.as_secs_f64(), stats.transactions));
            return Ok(samples);
        }
    }
}

fn report(args: &SinkArgs, sink: &Sink, samples: &Samples, used: (Used, Used)) -> Report {
    let (stats, met) = (sink.recorder().stats(), sink.met());
    let mut report = Report::new("lab-sink", "A mail sink");
    let model = match (args.model, args.threads) {
        (Model::Event, None | Some(1)) => "event, one loop".to_owned(),
        (Model::Event, Some(loops)) => format!("event, {loops} loops"),
        (Model::Pool, threads) => format!("pool of {}", threads.unwrap_or(16)),
        (Model::Thread, _) => "thread a connection".to_owned(),
    };
    report.parameter("model", model);
    report.parameter("addresses", sink.addresses().len());
    if !args.behaviour.is_empty() {
        report.parameter("behaviour", &args.behaviour);
    }
    report.tables.push(load_table(sink, &stats, used));
    report.tables.push(connection_table(&stats, &met, used.1));
    report.tables.push(refusal_table(&stats));
    if let Some(directory) = &args.store {
        report.places.extend(Place::of(directory).ok());
        report.tables.push(store_table(args, &met));
    }
    let top = sink.recorder().top(args.top);
    for (name, title, list, seen) in [
        ("recipients", "Recipients that got most", &top.recipients, top.recipients_seen),
        ("domains", "Domains that got most", &top.domains, top.domains_seen),
    ] {
        if !list.is_empty() {
            report.tables.push(top_table(name, &format!("{title}, of {seen}"), list));
        }
    }
    report.warnings.extend(warnings(&stats, &met));
    let rates = samples.seen.windows(2).filter_map(|pair| {
        let seconds = pair[1].0 - pair[0].0;
        (seconds > 0.0).then(|| (pair[1].0, (pair[1].1 - pair[0].1) as f64 / seconds))
    });
    let lines = vec![Line { name: "taken".to_owned(), points: rates.collect() }];
    let [x_unit, y_unit] = ["seconds", "messages/s"].map(str::to_owned);
    let kind = Kind::Lines { x_unit, y_unit, log_x: false, log_y: false, lines };
    report.charts.push(Chart { name: "rate".to_owned(), title: "Messages taken".to_owned(), kind });
    report
}

fn load_table(sink: &Sink, stats: &Stats, (before, after): (Used, Used)) -> Table {
    let columns = vec![
        Column::new("messages", "messages"),
        Column::new("copies", "copies"),
        Column::new("mib", "MiB"),
        Column::new("seconds", "first to last, s"),
        Column::new("messages_per_s", "messages/s"),
        Column::new("mib_per_s", "MiB/s"),
        Column::new("user_us_per_message", "user us each"),
        Column::new("system_us_per_message", "system us each"),
    ];
    let mut table = Table::new("load", "Mail taken, and CPU time of this process for each message", columns);
    let seconds = sink.recorder().span_us().map(|(first, last)| (last - first) as f64 / 1e6);
    let per_s = |count: f64| match seconds {
        Some(seconds) if seconds > 0.0 => Cell::Number(count / seconds, 1),
        _ => Cell::Missing,
    };
    let each = |seconds: f64| {
        if stats.transactions == 0 { Cell::Missing } else { Cell::Number(seconds * 1e6 / stats.transactions as f64, 1) }
    };
    table.push(vec![
        Cell::Count(stats.transactions),
        Cell::Count(stats.recipients),
        Cell::Number(stats.bytes as f64 / MIB, 1),
        seconds.map_or(Cell::Missing, |seconds| Cell::Number(seconds, 3)),
        // The first message begins the time and is not in it.
        per_s(stats.transactions.saturating_sub(1) as f64),
        per_s(stats.bytes as f64 / MIB),
        each(after.user_s - before.user_s),
        each(after.system_s - before.system_s),
    ]);
    table
}

fn connection_table(stats: &Stats, met: &Met, used: Used) -> Table {
    let columns = vec![
        Column::new("connections", "connections"),
        Column::new("open_max", "most at once"),
        Column::new("open", "open at the end"),
        Column::new("waiting_max", "most waiting"),
        Column::new("threads_refused", "without a thread"),
        Column::new("accept_failures", "failed accepts"),
        Column::new("threads", "threads"),
        Column::new("resident_mib", "memory, MiB"),
        Column::new("resident_peak_mib", "at most"),
    ];
    let mut table = Table::new("connections", "Connections, and memory of this process", columns);
    table.push(vec![
        Cell::Count(stats.connections),
        Cell::Count(stats.open_max),
        Cell::Count(stats.open),
        Cell::Count(met.waiting_max),
        Cell::Count(met.threads_refused),
        Cell::Count(met.accept_failures),
        Cell::Count(used.threads),
        Cell::Number(used.resident_bytes as f64 / MIB, 1),
        Cell::Number(used.resident_peak_bytes as f64 / MIB, 1),
    ]);
    table
}

fn refusal_table(stats: &Stats) -> Table {
    let columns = vec![
        Column::new("mail_4xx", "messages 4xx"),
        Column::new("mail_5xx", "5xx"),
        Column::new("rcpt_4xx", "recipients 4xx"),
        Column::new("rcpt_5xx", "5xx"),
        Column::new("unanswered", "250 not written"),
        Column::new("duplicates", "second copies"),
        Column::new("damaged", "damaged"),
        Column::new("violations", "breaches of protocol"),
    ];
    let mut table = Table::new("refusals", "Refused by the behaviour, and done wrong by clients", columns);
    let counts = [stats.mail_4xx, stats.mail_5xx, stats.rcpt_4xx, stats.rcpt_5xx, stats.unanswered, stats.duplicates];
    table.push(counts.into_iter().chain([stats.damaged, stats.violations]).map(Cell::Count).collect());
    table
}

fn store_table(args: &SinkArgs, met: &Met) -> Table {
    let columns = vec![
        Column::new("store", "store"),
        Column::new("sync", "sync"),
        Column::new("stored", "stored"),
        Column::new("failed", "failed"),
        Column::new("mib", "MiB"),
        Column::new("p50_us", "p50 us"),
        Column::new("p99_us", "p99 us"),
        Column::new("max_us", "max us"),
        Column::new("syncs", "syncs"),
        Column::new("batches", "batches"),
    ];
    let mut table = Table::new("store", "Stored before the 250: from the end of data until it was done", columns);
    let value = |text: Option<clap::builder::PossibleValue>| text.map_or(String::new(), |v| v.get_name().to_owned());
    let [p50, p99, longest] = met.store_us;
    table.push(vec![
        Cell::text(value(args.store_as.to_possible_value())),
        Cell::text(value(args.sync.to_possible_value())),
        Cell::Count(met.stored),
        Cell::Count(met.store_failures),
        Cell::Number(met.stored_bytes as f64 / MIB, 1),
        Cell::Count(p50),
        Cell::Count(p99),
        Cell::Count(longest),
        Cell::Count(met.store_syncs),
        if args.store_as == StoreAs::Journal { Cell::Count(met.store_batches) } else { Cell::Missing },
    ]);
    table
}

fn top_table(name: &'static str, title: &str, list: &[(String, Tallied)]) -> Table {
    let columns = vec![Column::new("name", name), Column::new("copies", "copies"), Column::new("mib", "MiB")];
    let mut table = Table::new(name, title, columns);
    for (who, tallied) in list {
        // What a client said is shown on a terminal here.
        let who = who.escape_debug().to_string();
        table.push(vec![Cell::text(who), Cell::Count(tallied.copies), Cell::Number(tallied.bytes as f64 / MIB, 1)]);
    }
    table
}

fn warnings(stats: &Stats, met: &Met) -> Vec<String> {
    let mut all = Vec::new();
    if met.threads_refused > 0 {
        let mut text = format!("{} connections got no thread", met.threads_refused);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            " ({}): see threads-max, pid_max, max_map_count, pids.max",
            shown(met.thread_refusal.as_ref())
        );
        all.push(text);
    }
    if met.accept_failures > 0 {
        all.push(format!("accepting failed {} times: raise the limit of descriptors", met.accept_failures));
    }
    if met.store_failures > 0 {
        all.push(format!("{} messages were not stored: {}", met.store_failures, shown(met.store_failure.as_ref())));
    }
    if stats.violations > 0 {
        all.push(format!("clients broke the protocol {} times", stats.violations));
    }
    all
}

fn shown(text: Option<&String>) -> &str {
    text.map_or("unknown", String::as_str)
}

impl From<MeasureError> for LabError {
    fn from(error: MeasureError) -> LabError {
        LabError::Measure(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_name_a_command_or_none() {
        let parse = |text: &str| text.parse::<Delay>();
        assert_eq!(parse("5"), Ok(Delay { command: None, ms: 5 }));
        assert_eq!(parse("RCPT=20"), Ok(Delay { command: Some("rcpt".to_owned()), ms: 20 }));
        for bad in ["", "x", "rcpt", "rcpt=", "bdat=1", "-1"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
