//! `stentor-kit lab sink`: one sink at some addresses, of a chosen model, with or without a store; a report at the end.
//!
//! With `--connections` beyond one process's descriptors, or with `--processes`, it runs in several processes
//! ([`many`]), still with one report.
//!
//! Output: the listening addresses; with `--every` a line of counters at intervals; at the end (Ctrl-C, `--copies`,
//! `--seconds`) tables. With `--json` each line is a JSON object: `{"smtp_at": [...]}`, counters, and at the end
//! `{"report": ...}` and the counters once more.

mod many;
mod report;
mod running_sink;
mod sink_progress;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use stentor_lab::Behaviour;
use stentor_lab::LabError;
use stentor_lab::cli::{Recording, RunOptions, say};
use stentor_lab::recorder::Mode;
use stentor_lab::{Model, SinkOptions};
use stentor_lab::{StoreAs, StoreOptions, Sync};
use stentor_measure::Stop;
use stentor_measure::output::terminal_columns;

use crate::address::Targets;
use crate::crew;
use crate::error::LoadError;
use crate::output::OnceArgs;
use running_sink::RunningSink;
use sink_progress::{SinkProgress, Total};

/// How often the end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Samples of the picture; then every second one is forgotten and they are taken half as often.
const SAMPLES_MAX: usize = 4096;
/// More addresses than this are not told one by one.
const ADDRESSES_SHOWN: usize = 16;
const KIB: usize = 1024;

/// Options of `stentor-kit lab sink`.
#[derive(Args, Debug, Clone)]
#[command(mut_arg("runs", |runs| runs.hide(true)))]
pub struct SinkArgs {
    /// Listening addresses: address:port, or a range such as 127.0.0.1-127.0.0.8:2525.
    #[arg(default_value = "127.0.0.1:2626", value_name = "ADDRESS")]
    pub addresses: Vec<Targets>,
    /// Behaviour of the sink, as in a scenario: `rtt_ms = 50, no_chunking = true`.
    #[arg(long, default_value = "")]
    pub behaviour: String,
    /// Threading model: event loops, a pool of threads (further connections wait), or one thread per connection.
    #[arg(long, value_enum, default_value = "event")]
    pub model: Model,
    /// Event loops (default 1), or threads in the pool (default 16).
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Stack size of each thread.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub stack_kib: u32,
    /// Delay of every reply, or of one command (greeting, ehlo, mail, rcpt, data, dot, quit): `5`, `rcpt=20`.
    #[arg(long, value_name = "[COMMAND=]MS")]
    pub delay_ms: Vec<Delay>,
    /// Store each message below this directory before replying 250.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// How to store messages: one file each, in one directory or in hashed ones, or all in our journal.
    #[arg(long, value_enum, default_value = "flat", requires = "store")]
    pub store_as: StoreAs,
    /// What to sync before the 250.
    #[arg(long, value_enum, default_value = "file", requires = "store")]
    pub sync: Sync,
    /// Threads that write files for the event loops (default: 16, so that syncs of some files share the disk's time; 1
    /// without syncs, as creating files in one directory takes turns anyway).
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), requires = "store")]
    pub store_threads: Option<u16>,
    /// Maximum of concurrent connections; further ones wait in the backlog. If one process may not have that many
    /// descriptors, several processes serve the addresses together.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: Option<u32>,
    /// Number of processes [default: as many as --connections needs].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub processes: Option<u16>,
    #[command(flatten)]
    pub recording: Recording,
    /// Number of top recipients and domains in the report (not with `--record counters`).
    #[arg(long, default_value_t = 10)]
    pub top: usize,
    #[command(flatten)]
    pub output: OnceArgs,
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
        let ms = ms.parse().map_err(|_| format!("{ms:?} is not a number of milliseconds"))?;
        let delay = Delay { command: command.map(str::to_ascii_lowercase), ms };
        if delay.field(&mut Behaviour::default()).is_none() {
            return Err(format!("{text:?}: use one of greeting, ehlo, mail, rcpt, data, dot, quit"));
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
    pub fn sink_options(&self) -> Result<SinkOptions, LoadError> {
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
            connections_max: self.connections.map(u64::from),
            shared: false,
        })
    }
}

/// What is seen once a second or so, for the picture.
struct Samples {
    every: Duration,
    /// Seconds since the start, and messages so far.
    seen: Vec<(f64, u64)>,
}

impl Samples {
    fn add(&mut self, at_s: f64, messages: u64) {
        self.seen.push((at_s, messages));
        if self.seen.len() > SAMPLES_MAX {
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
            self.every *= 2;
        }
    }

    fn is_due(&self, at_s: f64) -> bool {
        self.seen.last().is_none_or(|(last_s, _)| at_s - last_s >= self.every.as_secs_f64())
    }
}

/// How often the counters are looked at.
fn look_every(options: &RunOptions) -> Duration {
    options.report_every.map_or(LOOK_EVERY, |every| every.min(LOOK_EVERY))
}

/// Serves until Ctrl-C (or the options' end), then reports.
pub fn run_sink(args: &SinkArgs) -> Result<(), LoadError> {
    let options = args.recording.options(None, None);
    if let Some((number, members)) = crew::place() {
        return many::serve(args, &options, number, members);
    }
    if args.output.0.runs != 1 {
        return Err(LoadError::refused("--runs is not valid for a sink; use it with the source"));
    }
    args.output.0.ready()?;
    options.try_dump()?;
    let stop = Stop::on_signals()?;
    let mut served = RunningSink::start(args)?;
    let addresses = served.addresses();
    let count = addresses.len();
    say(&where_it_listens(addresses, args.output.0.json))?;
    let mut samples = watch(&mut served, &options, args.output.0.json, &stop)?;
    let total = served.finish(args, &options);
    if let Some((_, messages)) = samples.seen.last_mut() {
        // What was taken and not told yet when the end came.
        *messages = total.seen.stats.transactions;
    }
    let report = report::report(args, count, &total, &samples);
    let output = &args.output.0;
    // What cannot be written is printed all the same.
    let written = output.write(&report);
    if output.json {
        say(&serde_json::json!({ "report": report.to_json(), "met": total.seen.met }).to_string())?;
        say(&serde_json::json!(total.seen.stats).to_string())?;
    } else {
        say(report.to_text_within(terminal_columns()).trim_end())?;
    }
    written?;
    total.dumped?;
    // What was lost with a process makes the whole no result to rely on.
    total.warnings.into_iter().next().map_or(Ok(()), |first| Err(LoadError::refused(first)))
}

fn where_it_listens(addresses: &[SocketAddr], json: bool) -> String {
    if json {
        return serde_json::json!({ "smtp_at": addresses }).to_string();
    }
    let shown: Vec<String> = addresses.iter().take(ADDRESSES_SHOWN).map(ToString::to_string).collect();
    let more = match addresses.len().saturating_sub(ADDRESSES_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("SMTP at {}{more}", shown.join(", "))
}

fn watch(served: &mut RunningSink, options: &RunOptions, json: bool, stop: &Stop) -> Result<Samples, LoadError> {
    let begun = Instant::now();
    let mut samples = Samples { every: SAMPLE_EVERY, seen: vec![(0.0, 0)] };
    let mut said = begun;
    loop {
        let stats = served.look(look_every(options)).stats;
        let now = Instant::now();
        let at = now.duration_since(begun);
        if samples.is_due(at.as_secs_f64()) {
            samples.add(at.as_secs_f64(), stats.transactions);
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
        let over = options.duration.is_some_and(|most| at >= most);
        if stop.is_set() || enough || over || served.is_over() {
            samples.add(at.as_secs_f64(), stats.transactions);
            return Ok(samples);
        }
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
