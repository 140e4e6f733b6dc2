//! `stentor doctor`: reports what is wrong or has happened, and what to do next.
//!
//! It checks the configuration, the lock, free space and, if the server is stopped, every segment. While the server
//! runs, it checks only segment headers, since the rest is changing, and asks the server for its health. A server that
//! is not running is a problem: no mail is accepted. Exit codes: 0 nothing to do (there may be notes), 1 something to
//! do, 78 the configuration has errors.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, Subcommand};
use stentor_admin::own_tlsa;
use stentor_config::{Config, Diagnostic};
use stentor_control::doctor::{FAST_SYNCS, Finding as Note, Severity};
use stentor_control::foreign::{marked, restored};
use stentor_control::format::{plural, span};
use stentor_control::{Client, ControlReply, Request};
use stentor_journal::{Disk, Irregularity, RealDisk, SegmentState};

use super::fold::fold;
use super::journal_dir;
use super::start_command::start_command;
use crate::asking::{CONFIGURATION, ServerState, locate, server_at};
use crate::findings::{ReportOptions, has_problem, show};
use crate::trial::advice::AdvisedFinding;
use crate::{acme, certificates, doctor_mail, trial};

/// Free space below this multiple of the reserve is reported.
const RESERVE_FACTOR: u64 = 4;
/// Percentage of `addresses_max` from which a note is given.
const ADDRESSES_PERCENT: u64 = 90;
/// Timeout for systemd's answer, in seconds.
const CLOCK_WAIT_S: &str = "5";
/// The health condition for too little free space.
const DISK_FULL: &str = "disk_full";
/// The health condition for a list whose file is not in force.
const SUBSCRIBERS_FILE: &str = "subscribers_file";
/// Reported whatever else is found.
const NO_SERVER: &str = "no server is running: no mail is accepted or delivered";
/// Advice after an error in the configuration.
const CORRECT: &str =
    "correct it, then run `stentor check`; until then a restart fails and a reload keeps the current configuration";
/// Advice after a warning about the configuration.
const CHANGE: &str = "change the configuration, then run `stentor check`";
/// Maximum number of findings printed in full.
const FINDINGS_MAX: usize = 20;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(flatten)]
    report: ReportOptions,
    #[command(subcommand)]
    command: Option<DoctorCommand>,
}

#[derive(Subcommand)]
enum DoctorCommand {
    /// Check what large receivers look at: reverse DNS, SPF, DKIM, DMARC, MTA-STS, one message.
    Mail(doctor_mail::Options),
}

pub fn run(options: &Options) -> ExitCode {
    if let Some(DoctorCommand::Mail(options)) = &options.command {
        return doctor_mail::run(options);
    }
    let options = &options.report;
    let path = match locate(options.config.as_deref()) {
        Ok(path) => path,
        Err(code) => return code,
    };
    let (mut config, settings) = match stentor_config::check_noting(&path) {
        Ok((config, settings)) => (Config { settings: settings.clone(), ..config }, settings),
        Err(diagnostics) => return show(options, broken(&path, &diagnostics), ExitCode::from(CONFIGURATION)),
    };
    let mut warnings = std::mem::take(&mut config.warnings);
    trial::missing::raise_subscribers(&config, &settings, &mut warnings);
    config.warnings = warnings;
    let mut advice = examine(&config);
    // In the words of the server's health where it reports the same.
    let tried: Vec<Note> = trial::findings_with_advice(&config, &settings)
        .iter()
        .filter(|one| !is_known(&advice, one))
        .map(note_of)
        .collect();
    advice.extend(tried);
    advice.extend(tlsa(&config));
    advice.extend(unsynchronised(&clock_state()));
    once(&mut advice);
    // In the order of `examine`, worst first.
    advice.sort_by_key(|note| note.severity);
    let code = if has_problem(&advice) { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    show(options, advice, code)
}

/// Notes for a configuration with errors: the errors, and the health of a server running with an earlier configuration.
fn broken(path: &Path, diagnostics: &[Diagnostic]) -> Vec<Note> {
    let next = |found: &Diagnostic| match found.severity {
        stentor_config::Severity::Error => CORRECT,
        stentor_config::Severity::Warning => CHANGE,
    };
    let mut notes: Vec<Note> = diagnostics
        .iter()
        .map(|finding| note_of(&AdvisedFinding { finding: finding.clone(), advice: next(finding) }))
        .collect();
    let Some(places) = stentor_config::places(path) else { return notes };
    match server_at(&places.socket) {
        ServerState::Running => {
            let (file, socket) = (path.display(), places.socket.display());
            let what = format!("a server is running with an earlier version of {file} (socket {socket})");
            notes.push(note(Severity::Fine, what, "correct the errors of that file, then `stentor reload`"));
            ask(&places.socket, false, &mut notes);
        }
        ServerState::Unknown => {
            let what = format!("cannot tell whether a server is running: no access to {}", places.socket.display());
            notes.push(note(Severity::Problem, what, "run this as root or as the server's user"));
        }
        ServerState::Stopped => {
            let next = format!("correct the configuration errors, then start it with `{}`", start_command(path));
            notes.push(note(Severity::Problem, NO_SERVER.to_owned(), &next));
        }
    }
    notes.sort_by_key(|note| note.severity);
    notes
}

/// Drops warnings about a list's file that the running server already reports as a condition.
fn once(advice: &mut Vec<Note>) {
    let is_of_file = |note: &Note| note.condition == SUBSCRIBERS_FILE;
    let known: Vec<String> = advice.iter().filter(|note| is_of_file(note)).map(|note| restored(&note.what)).collect();
    let is_known = |text: &str| {
        let path = text.split_once("subscribers file `").and_then(|(_, rest)| rest.split('`').next());
        path.is_some_and(|path| known.iter().any(|what| what.contains(path)))
    };
    advice.retain(|note| !note.condition.is_empty() || !is_known(&note.what));
}

/// Whether the running server already reports what `check` found: a condition of a matching kind that shares a name or
/// place.
fn is_known(advice: &[Note], advised: &AdvisedFinding) -> bool {
    let AdvisedFinding { finding, advice: next } = advised;
    let kinds = trial::advice::conditions(next);
    let names = |note: &Note| {
        let is_of_one_kind = note.subject.is_empty();
        let is_named = !is_of_one_kind && finding.message.contains(&*note.subject);
        let places = finding.message.split(|c: char| c.is_whitespace() || "`,;()".contains(c));
        let mut places =
            places.map(|place| place.trim_end_matches([':', '.'])).filter(|place| place.contains(['/', ':']));
        is_named || *next == trial::advice::CERTIFICATE || places.any(|place| note.what.contains(place))
    };
    advice.iter().any(|note| kinds.contains(&note.condition.as_str()) && names(note))
}

/// A finding of `check` on this machine, with advice.
fn note_of(advised: &AdvisedFinding) -> Note {
    let AdvisedFinding { finding, advice } = advised;
    let severity =
        if finding.severity == stentor_config::Severity::Error { Severity::Problem } else { Severity::Warning };
    // The finding's text has its own word for the severity.
    note(severity, finding.to_string().replacen(" warning: ", " ", 1), advice)
}

/// Problems with our own TLSA records. `check` reports certificates that cannot be read.
fn tlsa(config: &Config) -> Vec<Note> {
    let Ok(Some(identities)) = certificates::served(config) else { return Vec::new() };
    let now = certificates::now_s();
    let views = acme::standing(config, now);
    own_tlsa::notes(&own_tlsa::OwnCertificates { config, identities: &identities, views: &views, now })
}

/// The kernel's clock state, as systemd reports it, whichever program sets the clock; empty if it cannot be asked.
fn clock_state() -> String {
    let mut asked = Command::new("timeout");
    asked.arg(CLOCK_WAIT_S).args(["timedatectl", "show", "--property=NTPSynchronized", "--value"]);
    let said = asked.stdin(Stdio::null()).stderr(Stdio::null()).output();
    said.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unsynchronised(state: &str) -> Option<Note> {
    let what = "the kernel reports an unsynchronised clock";
    let next = "run chrony or systemd-timesyncd; certificates, ages and expiry depend on the clock";
    (state.trim() == "no").then(|| note(Severity::Warning, what.to_owned(), next))
}

fn note(severity: Severity, what: String, next: &str) -> Note {
    Note::new(severity, what, next)
}

/// Advice on how to start the server.
fn start(config: &Config) -> String {
    format!("start it with `{}`", start_command(config.file.as_deref().unwrap_or(Path::new(""))))
}

/// All notes.
pub fn examine(config: &Config) -> Vec<Note> {
    let advised = |finding: &Diagnostic| AdvisedFinding { finding: finding.clone(), advice: CHANGE };
    let mut notes: Vec<Note> = config.warnings.iter().map(|warning| note_of(&advised(warning))).collect();
    if !config.data_dir.join("journal").is_dir() {
        let (folder, place) = (config.data_dir.display(), config.place("", "data_dir"));
        let place = if place.is_empty() { "its default".to_owned() } else { place };
        let lacks = if config.data_dir.is_dir() { "holds no journal yet" } else { "does not exist" };
        let what = format!("{NO_SERVER}; {folder} (`data_dir`, {place}) {lacks}");
        let next =
            format!("{}; if there should be a journal, correct `data_dir` or mount its file system", start(config));
        notes.push(note(Severity::Problem, what, &next));
        return notes;
    }
    let dir = journal_dir(&config.data_dir);
    let disk = match RealDisk::open_unlocked(&dir) {
        Ok(disk) => disk,
        Err(error) => {
            notes.push(note(Severity::Problem, error.to_string(), "run as the user that owns data_dir"));
            return notes;
        }
    };
    space(&disk, config, &dir, &mut notes);
    let is_in_memory = medium(&dir, &mut notes);
    match RealDisk::holder(&dir) {
        Ok(Some(pid)) => {
            let by = pid.map_or_else(|| "an unknown process".to_owned(), |pid| format!("process {pid}"));
            notes.push(note(Severity::Fine, format!("{} is in use by {by}: a server is running", dir.display()), ""));
            running(&disk, &mut notes);
            ask(&config.control.socket, is_in_memory, &mut notes);
        }
        Ok(None) => stopped(&disk, config, &dir, &mut notes),
        Err(error) => {
            let what = format!("{}/lock: {error}", dir.display());
            notes.push(note(Severity::Problem, what, "run as the user that owns data_dir"));
        }
    }
    notes
}

fn space(disk: &dyn Disk, config: &Config, dir: &Path, notes: &mut Vec<Note>) {
    let reserve = config.journal.reserve_bytes.max(2 * config.journal.segment_bytes);
    let mib = |bytes: u64| bytes / (1024 * 1024);
    match disk.free_bytes() {
        Err(error) => notes.push(note(Severity::Warning, format!("free space of {}: {error}", dir.display()), "")),
        Ok(free) if free < reserve => {
            let what = format!(
                "only {} MiB free in {}, below the reserve of {} MiB: new mail gets 452 4.3.1, deliveries continue",
                mib(free),
                dir.display(),
                mib(reserve)
            );
            let next = "free some space on that file system; mail is accepted again without a restart";
            notes.push(Note { condition: DISK_FULL.to_owned(), ..note(Severity::Problem, what, next) });
        }
        Ok(free) if free < RESERVE_FACTOR * reserve => notes.push(note(
            Severity::Warning,
            format!("{} MiB free in {}; below {} MiB, new mail gets 452 4.3.1", mib(free), dir.display(), mib(reserve)),
            "free some space, or find the sites that mail waits for with `stentor queue`",
        )),
        Ok(free) => notes.push(note(Severity::Fine, format!("{} MiB free in {}", mib(free), dir.display()), "")),
    }
}

/// Reports a file system in memory, whose contents are lost when the machine loses power. Returns whether it is one.
fn medium(dir: &Path, notes: &mut Vec<Note>) -> bool {
    const KINDS: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
    let Ok(found) = rustix::fs::statfs(dir) else { return false };
    let kind = KINDS.iter().find(|(kind, _)| found.f_type as u64 & 0xffff_ffff == *kind);
    if let Some((_, name)) = kind {
        let what =
            format!("{} is on {name}, in memory: acknowledged mail is lost when the machine stops", dir.display());
        notes.push(note(Severity::Warning, what, "put data_dir on a disk"));
    }
    kind.is_some()
}

/// Checks the segment headers of a running server's store; only they are stable.
fn running(disk: &dyn Disk, notes: &mut Vec<Note>) {
    match stentor_journal::abandoned(disk) {
        Ok(names) => {
            abandoned(names.iter().map(String::as_str), notes);
            let what = "the journal of a running server cannot be checked; see `stentor status` and the log";
            notes.push(note(Severity::Fine, what.to_owned(), ""));
        }
        Err(error) => notes.push(note(Severity::Problem, error.to_string(), "run as the user that owns data_dir")),
    }
}

/// Asks the running server for its health. Fast syncs need no warning if the journal is in memory.
fn ask(socket: &Path, is_in_memory: bool, notes: &mut Vec<Note>) {
    match Client::connect(socket).and_then(|mut client| client.ask(&Request::Doctor)) {
        Ok(ControlReply::Doctor(doctor)) => {
            if doctor.findings.iter().any(|finding| finding.condition == DISK_FULL) {
                notes.retain(|note| note.condition != DISK_FULL);
            }
            let is_known = |finding: &Note| is_in_memory && finding.id == FAST_SYNCS;
            // Findings may quote others' text; the advice is always ours.
            let marked = |finding: Note| Note { what: marked(&finding.what), ..finding };
            notes.extend(doctor.findings.into_iter().filter(|finding| !is_known(finding)).map(marked));
        }
        Ok(_) => {
            notes.push(note(
                Severity::Warning,
                "the server sent an unexpected reply".to_owned(),
                "check that it has the same version as this program",
            ));
        }
        Err(error) => {
            let what = format!("the running server does not answer: {error}");
            notes.push(note(Severity::Problem, what, "read its log; retry with `stentor status`"));
        }
    }
}

fn abandoned<'a>(names: impl Iterator<Item = &'a str>, notes: &mut Vec<Note>) {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return;
    }
    let what = format!(
        "{} abandoned after a failed write or sync (EIO): {}. Acknowledged mail in there is safe; the failed batch \
         was refused with 451, and its clients will retry",
        if names.len() == 1 { "a segment was" } else { "segments were" },
        names.join(", ")
    );
    let next = "check the kernel log and the disk's health (smartctl); if it fails again, stop the server, copy the \
        whole data_dir to another disk, and start there";
    notes.push(note(Severity::Problem, what, next));
}

fn stopped(disk: &dyn Disk, config: &Config, dir: &Path, notes: &mut Vec<Note>) {
    let folded = match fold(disk) {
        Ok(folded) => folded,
        Err(error) => {
            notes.push(note(Severity::Problem, error.to_string(), "run as the user that owns data_dir"));
            return;
        }
    };
    let (messages, recipients) = (folded.store.len(), folded.store.pending());
    let (messages, recipients) = (plural(messages as u64, "message"), plural(recipients, "recipient"));
    let waiting = if folded.store.is_empty() {
        "the queue is empty".to_owned()
    } else {
        format!("{messages} waiting for {recipients}")
    };
    let what = format!("{NO_SERVER}; {waiting}");
    notes.push(note(Severity::Problem, what, &format!("{}; its log shows why it ended", start(config))));
    submitted(config, notes);
    let segments = folded.found.segments.iter().filter(|segment| segment.state == SegmentState::Abandoned);
    abandoned(segments.map(|segment| segment.file.as_str()), notes);
    if let Some((file, offset)) = &folded.found.torn {
        let what = format!(
            "{file} ends at offset {offset} in a batch torn by a crash: this is normal, no acknowledged mail \
                is lost"
        );
        notes.push(note(Severity::Fine, what, ""));
    }
    damage(&folded.found.findings, &folded.unreadable, dir, notes);
    for saved in folded.messages() {
        let accept = &saved.slice.accept;
        if let Err(lost) = folded.contents.check(accept.content.0) {
            let what = format!(
                "message {} cannot be sent: its content is damaged from octet {}: {}",
                accept.id, lost.from, lost.what
            );
            let next = format!("save the readable part with `stentor journal salvage {} --eml OUTDIR`", dir.display());
            notes.push(note(Severity::Problem, what, &next));
        }
    }
    let (known, most) = (folded.store.book.len() as u64, u64::from(config.journal.addresses_max));
    if known * 100 >= most * ADDRESSES_PERCENT {
        let full = known >= most;
        let severity = if full { Severity::Problem } else { Severity::Warning };
        let then = if full {
            "mail to new addresses gets 452 4.3.1"
        } else {
            "beyond that, mail to new addresses gets 452 \
                4.3.1"
        };
        let what = format!("{known} known addresses, addresses_max is {most}: {then}");
        notes.push(note(
            severity,
            what,
            "raise [journal] addresses_max (about 55 bytes of memory each) and restart, or lower address_unseen_days",
        ));
    }
}

/// Mail of local users that the server would accept when it starts and that no journal has yet.
fn submitted(config: &Config, notes: &mut Vec<Note>) {
    let Some(path) = &config.submission.folder else { return };
    match stentor_submission::waiting_in(path) {
        Ok((0, _)) => {}
        Ok((count, oldest)) => {
            let since = oldest.and_then(|oldest| oldest.elapsed().ok());
            let since =
                since.map_or_else(String::new, |since| format!(", the first for {}", span(since.as_millis() as u64)));
            let shown = path.display();
            let what = format!("{} from local users in the submission folder {shown}{since}", plural(count, "message"));
            notes.push(note(Severity::Warning, what, "the server will queue them when it starts"));
        }
        // The server creates it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let what = format!("the submission folder {} cannot be read: {error}", path.display());
            notes.push(note(Severity::Warning, what, "run as root or as the server's user"));
        }
    }
}

fn damage(findings: &[Irregularity], unreadable: &[String], dir: &Path, notes: &mut Vec<Note>) {
    let next = format!(
        "copy the directory first; put missing files back, or else run `stentor journal salvage {} --to NEWDIR`, see \
         docs/operate/salvage.md",
        dir.display()
    );
    let places = findings.iter().map(|f| format!("{}, offset {}: {}", f.file, f.offset, f.what));
    let all: Vec<String> = places.chain(unreadable.iter().cloned()).collect();
    for what in all.iter().take(FINDINGS_MAX) {
        notes.push(note(Severity::Problem, format!("the journal is damaged: {what}"), ""));
    }
    if let Some(more) = all.len().checked_sub(FINDINGS_MAX).filter(|more| *more > 0) {
        notes.push(note(
            Severity::Problem,
            format!("and {more} more; `stentor journal verify {}` lists all", dir.display()),
            "",
        ));
    }
    if let Some(last) = notes.last_mut().filter(|_| !all.is_empty()) {
        last.next = next;
    }
}
