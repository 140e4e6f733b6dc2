//! The functions behind `stentor-kit lab ...`: they write to standard output and end with Ctrl-C or when done.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::{Instant, sleep_until};

use crate::error::LabError;
use crate::lab::Lab;
use crate::recorder::{Mode, Recorder};
use crate::scenario::Scenario;

/// Longer than anybody waits, short enough to be added to a time.
pub const FOR_EVER: Duration = Duration::from_hours(24 * 365);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Record {
    Counters,
    Compact,
    Full,
}

/// Copies written to the folder of `--keep`: they are in memory, too.
const KEPT_MAX: usize = 10_000;
/// Characters of the recipient in the name of such a file.
const RECIPIENT_CHARS_MAX: usize = 100;
/// How often new copies are written.
const KEEP_EVERY: Duration = Duration::from_millis(200);

/// What is kept, and when it ends: options of `lab run` and `lab sink`.
#[derive(Args, Debug, Clone)]
pub struct Recording {
    /// What is kept of each copy.
    #[arg(long, value_enum, default_value = "compact")]
    record: Record,
    /// End after this many copies.
    #[arg(long)]
    copies: Option<u64>,
    /// End after this many seconds.
    #[arg(long, value_parser = some_seconds)]
    seconds: Option<Duration>,
    /// Interval of printing the counters, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    every: Option<Duration>,
    /// Write what was received as JSON lines at the end.
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

/// A time on a command line, as `2.5`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(value).map_err(|_| format!("{text}: not a time; give seconds, such as 2.5"))
}

/// The same, and not 0.
fn some_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|time| if time.is_zero() { Err("more than 0".to_owned()) } else { Ok(time) })
}

impl Recording {
    pub fn options(&self, smtp_port: Option<u16>, dns_port: Option<u16>) -> RunOptions {
        RunOptions {
            smtp_port,
            dns_port,
            mode: match self.record {
                Record::Counters => Mode::Counters,
                Record::Compact => Mode::Compact,
                Record::Full => Mode::Full,
            },
            duration: self.seconds,
            copies: self.copies,
            dump: self.dump.clone(),
            report_every: self.every,
            ca: None,
            keep: None,
        }
    }
}

/// Options of [`run_scenario`], and of `run_sink` in `stentor-load`.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// In place of the scenario's.
    pub smtp_port: Option<u16>,
    pub dns_port: Option<u16>,
    pub mode: Mode,
    /// Ends by itself after this time.
    pub duration: Option<Duration>,
    /// Ends by itself after this many copies.
    pub copies: Option<u64>,
    /// JSON lines of what was received, written at the end.
    pub dump: Option<PathBuf>,
    /// A line of counters this often.
    pub report_every: Option<Duration>,
    /// Where the certificate of the lab's CA is written before anything listens.
    pub ca: Option<PathBuf>,
    /// Folder in which each copy is written as it arrives, up to [`KEPT_MAX`].
    pub keep: Option<PathBuf>,
}

/// Starts a scenario and serves it until Ctrl-C (or the options' end).
pub async fn run_scenario(path: &Path, options: &RunOptions) -> Result<(), LabError> {
    let mut scenario = Scenario::load(path)?;
    scenario.smtp_port = options.smtp_port.unwrap_or(scenario.smtp_port);
    scenario.dns_port = options.dns_port.unwrap_or(scenario.dns_port);
    if let Some(path) = &options.ca {
        std::fs::write(path, crate::tls::ca_pem())?;
    }
    if let Some(folder) = &options.keep {
        create_empty(folder)?;
    }
    let mode = if options.keep.is_some() { Mode::Bodies } else { options.mode };
    let lab = Lab::start_with(scenario, mode).await?;
    let hosts: usize = lab.scenario().sites().iter().map(|s| s.hosts.len()).sum();
    say(&format!(
        "{} sites, {hosts} hosts; DNS at {}, SMTP at port {}",
        lab.scenario().sites().len(),
        lab.dns_addr(),
        lab.smtp_port()
    ))?;
    watch(lab.recorder(), options).await?;
    say(&serde_json::json!(lab.stats()).to_string())?;
    lab.stop().await;
    Ok(())
}

/// Creates the folder of `--keep`. Copies are numbered from 1 in each run, so those of an earlier run would be mixed up
/// with them or overwritten: a folder with files is refused.
fn create_empty(folder: &Path) -> Result<(), LabError> {
    let failed = |source| LabError::Read { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut files = std::fs::read_dir(folder).map_err(failed)?;
    if files.next().is_some() { Err(LabError::FolderNotEmpty(folder.to_owned())) } else { Ok(()) }
}

/// Writes `n` of the scenario's subscribers, one a line; with `reachable_only` those that must get a copy.
pub fn write_subscribers(path: &Path, n: usize, reachable_only: bool, out: &mut dyn Write) -> Result<(), LabError> {
    let scenario = Scenario::load(path)?;
    for person in scenario.subscribers(n) {
        if !reachable_only || scenario.is_reachable(&person) {
            writeln!(out, "{person}")?;
        }
    }
    Ok(())
}

/// Writes the scenario's hosts, one `domain host address` a line for each domain of their site, the most preferred
/// first: for servers that cannot ask the lab's DNS.
pub fn write_hosts(path: &Path, out: &mut dyn Write) -> Result<(), LabError> {
    let scenario = Scenario::load(path)?;
    for site in scenario.sites() {
        let mut hosts: Vec<_> = site.hosts.iter().collect();
        hosts.sort_by_key(|host| host.preference);
        for domain in &site.domains {
            for host in &hosts {
                writeln!(out, "{domain} {} {}", host.name, host.address)?;
            }
        }
    }
    Ok(())
}

async fn watch(recorder: &Recorder, options: &RunOptions) -> Result<(), LabError> {
    let end = options.duration.map(|d| Instant::now() + d.min(FOR_EVER));
    let over = async {
        match end {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    let enough = async {
        match options.copies {
            Some(copies) => drop(recorder.wait_for_copies(copies, FOR_EVER).await),
            None => std::future::pending().await,
        }
    };
    let report = async {
        let Some(every) = options.report_every else { return std::future::pending::<Result<(), LabError>>().await };
        loop {
            tokio::time::sleep(every).await;
            say(&serde_json::json!(recorder.stats()).to_string())?;
        }
    };
    let mut kept = 0;
    let keep = async {
        let Some(folder) = &options.keep else { return std::future::pending::<Result<(), LabError>>().await };
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            kept = write_copies(recorder, folder, kept)?;
        }
    };
    tokio::select! {
        () = over => {}
        () = enough => {}
        result = report => result?,
        result = keep => result?,
        result = tokio::signal::ctrl_c() => result?,
    }
    if let Some(folder) = &options.keep {
        write_copies(recorder, folder, kept)?;
    }
    dump(recorder, options)
}

/// Writes the copies after the first `kept` to files, as `00001-RECIPIENT.eml`. Returns how many are written. A file
/// begins with the envelope, as a mailbox would have it: `Return-Path` (RFC 5321 section 4.4) and `Delivered-To`.
pub fn write_copies(recorder: &Recorder, folder: &Path, kept: usize) -> Result<usize, LabError> {
    let copies = recorder.copies_after(kept, KEPT_MAX.saturating_sub(kept));
    for (number, copy) in copies.iter().enumerate() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "@.+-=".contains(c);
        let recipient: String =
            copy.recipient.chars().map(|c| if is_plain(c) { c } else { '_' }).take(RECIPIENT_CHARS_MAX).collect();
        let path = folder.join(format!("{:05}-{recipient}.eml", kept + number + 1));
        let envelope = format!("Return-Path: <{}>\r\nDelivered-To: {}\r\n", copy.sender, copy.recipient);
        std::fs::write(path, [envelope.as_bytes(), copy.body.as_deref().unwrap_or_default()].concat())?;
    }
    Ok(kept + copies.len())
}

/// What was received, into the file of `--dump`.
pub fn dump(recorder: &Recorder, options: &RunOptions) -> Result<(), LabError> {
    if let Some(path) = &options.dump {
        let mut out = BufWriter::new(File::create(path)?);
        recorder.dump(&mut out)?;
        out.flush()?;
    }
    Ok(())
}

impl RunOptions {
    /// Before the work: whether the dump can be written. The file is made.
    pub fn try_dump(&self) -> Result<(), LabError> {
        let Some(path) = &self.dump else { return Ok(()) };
        File::create(path).map(drop).map_err(|source| LabError::Read { path: path.clone(), source })
    }
}

/// A line on standard output, at once.
pub fn say(line: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
