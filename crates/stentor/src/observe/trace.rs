//! `stentor trace WHAT`: the whole story of a message or a subscriber.
//!
//! The past comes from the history's files, whether a server runs or not ([`stentor_history::story`]). Pending
//! recipients come from the running server, if there is one; the last half second may be in neither.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use stentor_control::causes;
use stentor_control::format::{date_time, plural, quoted};
use stentor_control::reply::EnvelopeView;
use stentor_control::{Client, Request, Selection, protocol};
use stentor_history::{Reader, StoryQuery};
use stentor_logfiles::{self as logfiles, From};
use stentor_queue::ids::MessageId;
use stentor_records::civil::Zone;
use stentor_records::escape::printable;
use stentor_records::record::{HELD_BY, Ms};
use stentor_records::trace::{MESSAGES_MAX, MailTrace, MessageTrace};

use super::times;
use crate::asking::{CommandError, nothing, places as places_of, usage};
use crate::hints::ServerReference;
use crate::output::{print, unless_closed};
use crate::paint::Colour;

/// Maximum numbers of pending recipients counted and listed.
const PENDING_MAX: usize = 10_000;
const PENDING_SHOWN_MAX: usize = 100;
/// Values of `--only`.
const FATES: [&str; 9] =
    ["sent", "deferred", "bounced", "expired", "removed", "coalesced", "quarantined", "released", "refused"];
const DAY_MS: Ms = 24 * 3_600_000;
/// Maximum length of one text from the running server on a line.
const TEXT_BYTES_MAX: usize = 1_024;

#[derive(Args)]
pub struct Options {
    /// A queue id, a Message-ID (with or without angle brackets), a recipient's address, or a domain (also @domain).
    #[arg(value_name = "WHAT", required_unless_present = "files")]
    given: Option<String>,
    /// `given`, or the word among the files of `--from`, which takes all words that follow it.
    #[arg(skip)]
    what: String,
    /// WHAT is a sender (address or domain): for list posts, the author or the list's bounce address.
    #[arg(long)]
    sender: bool,
    /// Only attempts with these results: sent, deferred, bounced, expired, removed, coalesced, quarantined, released,
    /// refused.
    #[arg(long, value_name = "FATE", value_delimiter = ',', value_parser = FATES)]
    only: Vec<String>,
    /// Only the last N days, or since a time: 2026-11-22, "2026-11-22 10:00", yesterday, 90m [default: everything; for
    /// a sender or domain, the last day].
    #[arg(long, value_name = "DAYS|TIME", value_parser = days_or_time)]
    since: Option<String>,
    /// Read logs instead of the history, without asking a server.
    #[command(flatten)]
    logs: From,
    /// The server's configuration; names its data directory and control socket [default: `$STENTOR_CONFIG`, else
    /// /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The control socket; the history is expected beside it, unless --config or --dir names it.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The history directory; no server is asked unless --socket is given.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    colour: Colour,
}

/// A recipient that is pending now.
#[derive(Clone, Debug, Serialize)]
struct PendingRecipient {
    id: String,
    address: String,
    site: String,
    state: String,
    /// Why it waits, in words.
    words: String,
    /// Since when its connection attempt has been in the state that `words` names.
    since: Option<Ms>,
    next_try: Option<Ms>,
    last_reply: String,
}

/// The running server's answer.
#[derive(Debug, Default, Serialize)]
struct CurrentState {
    is_running: bool,
    pending: Vec<PendingRecipient>,
    pending_left_out: u64,
}

#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    story: &'a MailTrace,
    now: &'a CurrentState,
    /// Places of the history where records are missing.
    damaged: u64,
}

impl Options {
    fn query<'a>(&'a self, from: Ms, pending: &'a [(String, String)]) -> StoryQuery<'a> {
        StoryQuery { what: &self.what, is_sender: self.sender, from, pending, messages_max: MESSAGES_MAX }
    }

    /// Whether waiting recipients are part of the answer.
    fn takes_pending(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|fate| fate == "deferred")
    }

    /// Why there is no answer. `others`: messages that `--only` left out.
    fn nothing(&self, since: &str, others: usize, is_of_last_day: bool) -> String {
        let what = printable(&self.what, TEXT_BYTES_MAX);
        let further = if is_of_last_day { "; use --since to search further back" } else { "" };
        if self.only.is_empty() {
            return format!("no records of {what}{since}{further}");
        }
        let (fates, others) = (self.only.join(" or "), plural(others as u64, "message"));
        format!("no attempts {fates}; searched {others} for {what}{since}{further}")
    }

    /// The command that finds a sender's records.
    fn as_sender(&self) -> String {
        if self.logs.is_given() {
            return "\nThere are records with this sender: add --sender".to_owned();
        }
        let what = quoted(&printable(&self.what, TEXT_BYTES_MAX));
        let given = ServerReference { config: self.config.clone(), socket: self.socket.clone() };
        given.complete(&format!("\nThere are records with this sender: `stentor trace --sender {what}`"))
    }

    /// The selection sent to the server.
    fn selection(&self) -> Option<Selection> {
        if !self.sender {
            return Selection::about(&self.what);
        }
        let is_null = self.what.trim() == "<>";
        let is_domain = !self.what.contains('@');
        let sender = if is_null {
            String::new()
        } else if is_domain {
            format!("@{}", self.what)
        } else {
            self.what.clone()
        };
        Some(Selection { sender: Some(sender), ..Selection::default() })
    }
}

pub fn run(mut options: Options) -> ExitCode {
    let Some(what) = options.given.take().or_else(|| what_among(&mut options.logs.files)) else {
        return usage("WHAT is missing: name a queue id, a Message-ID, a recipient or a domain beside the files");
    };
    options.what = what;
    match carry_out(&options) {
        Ok(TraceResult::Records) => ExitCode::SUCCESS,
        Ok(TraceResult::NoRecords(why)) => nothing(&why),
        Err(failure) => failure.report(),
    }
}

/// Takes WHAT out of the words after `--from`: the last one that is not a file.
fn what_among(words: &mut Vec<PathBuf>) -> Option<String> {
    let is_file = |word: &Path| word == Path::new("-") || word.exists();
    let at = words.iter().rposition(|word| !is_file(word)).filter(|_| words.len() > 1)?;
    words.remove(at).into_os_string().into_string().ok()
}

enum TraceResult {
    Records,
    /// Nothing was found; describes what was searched for.
    NoRecords(String),
}

fn carry_out(options: &Options) -> Result<TraceResult, CommandError> {
    let zone = options.logs.zone()?;
    let query = options.query(0, &[]);
    let is_scan = stentor_history::is_scan(&query) && !options.logs.is_given();
    let begin = if is_scan { now().saturating_sub(DAY_MS) } else { 0 };
    let from = options.since.as_deref().map_or(Ok(begin), |text| since(text, now(), &zone))?;
    let ((mut story, present, damaged), is_sender_in_logs) = if options.logs.is_given() {
        let (story, is_sender) = of_logs(options, from)?;
        ((story, CurrentState::default(), 0), is_sender)
    } else {
        (of_history(options, from)?, false)
    };
    let others = story.messages.len();
    if !options.only.is_empty() {
        story.only(&options.only);
    }
    let has_pending = options.takes_pending() && !present.pending.is_empty();
    let is_known = !story.is_empty() || has_pending;
    let shown = if options.json {
        let output = Output { story: &story, now: &present, damaged };
        // No map in it has keys that are not strings.
        serde_json::to_string(&output).unwrap_or_default() + "\n"
    } else if is_known {
        let now = if options.takes_pending() { text(&present, &zone) } else { String::new() };
        story.text(&zone) + &now + &format!("times       {}\n", zone.label(self::now()))
    } else {
        String::new()
    };
    let shown = if options.json { shown } else { options.colour.paint(shown) };
    unless_closed(print(&shown)).map_err(|error| error.to_string())?;
    if is_known {
        return Ok(TraceResult::Records);
    }
    let since = if from == 0 { String::new() } else { format!(" since {}", date_time(from, &zone)) };
    let is_of_last_day = is_scan && options.since.is_none();
    let mut why = options.nothing(&since, others, is_of_last_day);
    if options.only.is_empty() && (is_sender_in_logs || is_sender_in_history(options, from)) {
        why.push_str(&options.as_sender());
    }
    Ok(TraceResult::NoRecords(why))
}

/// The story from logs, and whether they contain the name as a sender.
fn of_logs(options: &Options, from: Ms) -> Result<(MailTrace, bool), String> {
    if options.logs.follow {
        return Err("trace has no --follow".to_owned());
    }
    let story = if options.sender { MailTrace::of_sender(&options.what) } else { MailTrace::new(&options.what) };
    let (mut story, as_sender) = (story.since(from), MailTrace::of_sender(&options.what));
    let mut is_sender = false;
    let summary = logfiles::feed(&options.logs, &mut |record| {
        story.add(record);
        is_sender = is_sender || record.at() >= from && as_sender.is_about(record);
    })?;
    story.finish();
    summary.print();
    Ok((story, is_sender))
}

/// The story from the history, what is pending now, and the number of damaged places in the history.
fn of_history(options: &Options, from: Ms) -> Result<(MailTrace, CurrentState, u64), CommandError> {
    let (dir, socket) = places(options).map_err(CommandError::Reported)?;
    let ask = |selection| socket.as_deref().map(|socket| ask(socket, selection)).unwrap_or_default();
    let present = options.selection().map(ask).unwrap_or_default();
    let (mut story, mut damaged) = read(&dir, options, from, &present)?;
    // A Message-ID (which looks like an address without its brackets) and a rewritten recipient are looked up in the
    // history, since the server needs queue ids.
    let named = story.ids_named().filter_map(|id| id.parse().ok());
    let by_id = if options.sender { Vec::new() } else { ids_by_message_id(&story, &options.what) };
    let mut ids: Vec<MessageId> = by_id.into_iter().chain(named).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut present = present;
    if !ids.is_empty() {
        let known: Vec<String> = present.pending.iter().map(|pending| pending.id.clone()).collect();
        let more = ask(Selection { ids, ..Selection::default() });
        let is_new = |pending: &PendingRecipient| !known.contains(&pending.id);
        present.pending.extend(more.pending.into_iter().filter(is_new));
        present.pending_left_out += more.pending_left_out;
        present.is_running |= more.is_running;
        (story, damaged) = read(&dir, options, from, &present)?;
    }
    // Failures of a domain do not concern a recipient without pending mail.
    if present.is_running && present.pending.is_empty() && (options.sender || options.what.contains('@')) {
        story.unreached.clear();
    }
    for message in &mut story.messages {
        let mut waits = present.pending.iter().filter(|pending| pending.id == message.id);
        if let Some(first) = waits.next()
            && first.words.starts_with(HELD_BY)
            && waits.all(|pending| pending.words == first.words)
        {
            message.held.clone_from(&first.words);
        }
    }
    if damaged > 0 {
        eprintln!("stentor: {}: records missing: {damaged} damaged places", dir.display());
    }
    Ok((story, present, damaged))
}

/// Whether the last day's history has the name as a sender: filters do not cover senders, so all of it is read.
fn is_sender_in_history(options: &Options, from: Ms) -> bool {
    let may_be_sender = !options.sender && options.what.contains(['@', '.']) && !options.what.contains('<');
    if options.logs.is_given() || !may_be_sender {
        return false;
    }
    let from = from.max(now().saturating_sub(DAY_MS));
    // This is only a hint; read errors were reported above.
    let reader = places(options).ok().and_then(|(dir, _)| Reader::open(&dir).ok());
    reader.is_some_and(|reader| stentor_history::has_sender(&reader, &options.what, from).unwrap_or(false))
}

/// The paths of the history and the control socket.
fn places(options: &Options) -> Result<(PathBuf, Option<PathBuf>), ExitCode> {
    if let Some(dir) = &options.dir {
        return Ok((dir.clone(), options.socket.clone()));
    }
    if let Some(socket) = &options.socket {
        // The socket is enough: errors of the configuration do not matter.
        let configured = options.config.as_deref().and_then(stentor_config::places).map(|places| places.data_dir);
        let data_dir = configured.or_else(|| socket.parent().map(Path::to_owned)).unwrap_or_default();
        return Ok((data_dir.join("history"), Some(socket.clone())));
    }
    let places = places_of(options.config.as_deref())?;
    Ok((places.data_dir.join("history"), Some(places.socket)))
}

/// The story so far, and the number of damaged places.
fn read(dir: &Path, options: &Options, from: Ms, present: &CurrentState) -> Result<(MailTrace, u64), String> {
    let failed = |error: std::io::Error| format!("the history in {}: {error}", dir.display());
    let reader = match Reader::open(dir) {
        Ok(reader) => reader,
        // Pending mail can be shown without a history.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !present.pending.is_empty() => {
            return Ok((MailTrace::new(&options.what), 0));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let remedy = if options.socket.is_some() && options.config.is_none() && options.dir.is_none() {
                "; if it is not beside the socket, name it with --dir"
            } else {
                ""
            };
            return Err(format!(
                "there is no history in {}: [history] keep_days is 0, or no server has run there{remedy}",
                dir.display()
            ));
        }
        Err(error) => return Err(failed(error)),
    };
    let pending: Vec<_> = present.pending.iter().map(|one| (one.id.clone(), one.address.clone())).collect();
    stentor_history::story(&reader, &options.query(from, &pending)).map_err(failed)
}

/// The messages with this Message-ID, with or without its brackets.
fn ids_by_message_id(story: &MailTrace, what: &str) -> Vec<MessageId> {
    let bare = |text: &str| text.trim_start_matches('<').trim_end_matches('>').to_ascii_lowercase();
    let is_meant = |message: &&MessageTrace| {
        message.accepted.as_ref().is_some_and(|accepted| bare(&accepted.message_id) == bare(what))
    };
    story.messages.iter().filter(is_meant).filter_map(|message| message.id.parse().ok()).collect()
}

/// Asks the server for pending recipients. A stopped or silent server yields none.
fn ask(socket: &Path, selection: Selection) -> CurrentState {
    let Ok(mut client) = Client::connect(socket) else { return CurrentState::default() };
    let mut present = CurrentState::default();
    let mut take = |line: &str| {
        let envelope = protocol::envelope_of(line).and_then(|text| serde_json::from_str::<EnvelopeView>(&text).ok());
        for (id, state) in envelope.into_iter().flat_map(|envelope| {
            let id = envelope.id;
            envelope.recipients.into_iter().map(move |recipient| (id.clone(), recipient.state))
        }) {
            if present.pending.len() == PENDING_MAX {
                present.pending_left_out += 1;
                continue;
            }
            present.pending.push(PendingRecipient {
                id,
                address: state.address,
                site: state.site,
                state: serde_json::to_value(state.state)
                    .ok()
                    .and_then(|state| state.as_str().map(str::to_owned))
                    .unwrap_or_default(),
                words: state.words,
                since: state.since,
                next_try: state.next_try,
                last_reply: state.last_reply,
            });
        }
        Ok(())
    };
    // A refusal says nothing about pending recipients.
    let is_answered = client.ask_lines(&Request::Export { selection }, &mut take).is_ok();
    CurrentState { is_running: is_answered, ..present }
}

fn text(present: &CurrentState, zone: &Zone) -> String {
    use std::fmt::Write;
    let clean = |text: &str| printable(text, TEXT_BYTES_MAX);
    let mut out = String::new();
    for pending in present.pending.iter().take(PENDING_SHOWN_MAX) {
        let next = pending.next_try.map_or_else(String::new, |at| format!(", next try {}", date_time(at, zone)));
        let why = causes::why(&pending.words, &pending.last_reply, pending.since);
        let why = if why.is_empty() { String::new() } else { format!(": {}", clean(why)) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "now         {} {} {} at {}{next}{why}",
            clean(&pending.id),
            clean(&pending.address),
            clean(&pending.state.replace('_', " ")),
            clean(&pending.site)
        );
    }
    let left_out = present.pending.len().saturating_sub(PENDING_SHOWN_MAX) as u64 + present.pending_left_out;
    if left_out > 0 {
        let _ = writeln!(out, "now         and {left_out} more");
    }
    if present.is_running && present.pending.is_empty() {
        out += "now         nothing pending\n";
    }
    out
}

/// Parses the value of `--since`: `7` (days), or a time as in the other commands.
fn days_or_time(text: &str) -> Result<String, String> {
    if text.parse::<u32>().is_ok() { Ok(text.to_owned()) } else { times::written(text) }
}

fn since(text: &str, now: Ms, zone: &Zone) -> Result<Ms, String> {
    match text.parse::<u32>() {
        Ok(days) => Ok(now.saturating_sub(Ms::from(days) * DAY_MS)),
        Err(_) => times::parse(text, now, zone),
    }
}

fn now() -> Ms {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_by_id_recipient_or_domain() {
        let recipient = |what: &str| Selection::about(what).and_then(|selection| selection.recipient);
        assert_eq!(recipient("Ann@one.example").as_deref(), Some("Ann@one.example"));
        assert_eq!(recipient("one.example").as_deref(), Some("@one.example"));
        assert_eq!(Selection::about("037P70R00000").map(|selection| selection.ids.len()), Some(1));
        assert_eq!(Selection::about("<a@b>"), None);
    }

    #[test]
    fn an_answer_of_nothing_says_what_was_looked_for() {
        let of = |what: &str, sender: bool, only: &[&str]| Options {
            given: None,
            what: what.to_owned(),
            sender,
            only: only.iter().map(|fate| (*fate).to_owned()).collect(),
            since: None,
            logs: From::default(),
            config: None,
            socket: None,
            dir: None,
            json: false,
            colour: Colour::default(),
        };
        let since = " since 2026-11-28 10:00:00";
        assert_eq!(of("<a@b>", false, &[]).nothing("", 0, false), "no records of <a@b>");
        assert_eq!(
            of("one.example", false, &[]).nothing(since, 0, true),
            "no records of one.example since 2026-11-28 10:00:00; use --since to search further back"
        );
        assert_eq!(
            of("@one.example", false, &["bounced", "expired"]).nothing(since, 12, false),
            "no attempts bounced or expired; searched 12 messages for @one.example since 2026-11-28 10:00:00"
        );
        assert_eq!(
            of("a@b.example", true, &["bounced"]).nothing(since, 1, true),
            "no attempts bounced; searched 1 message for a@b.example since 2026-11-28 10:00:00; use --since to search further back"
        );
    }

    #[test]
    fn what_may_stand_behind_the_files() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["mail.log", "mail.log.1"] {
            std::fs::write(file(name), "").unwrap();
        }
        let (log, older, gone) = (&*file("mail.log"), &*file("mail.log.1"), &*file("gone.log"));
        let parsed = |words: &[&str]| {
            let Line { mut options } = clap::Parser::try_parse_from([&["trace"], words].concat()).unwrap();
            let what = options.given.take().or_else(|| what_among(&mut options.logs.files));
            (what, options.logs.files)
        };
        let paths = |files: &[&str]| files.iter().map(PathBuf::from).collect::<Vec<_>>();
        let what = Some("ann@x.example".to_owned());
        for words in [
            &["ann@x.example", "--from", older, log][..],
            &["--from", older, log, "ann@x.example"],
            &["--from", older, "ann@x.example", log],
            &["--from", older, log, "--only", "sent", "ann@x.example"],
            &["--from", older, "--from", log, "ann@x.example", "--utc"],
        ] {
            assert_eq!(parsed(words), (what.clone(), paths(&[older, log])), "{words:?}");
        }
        assert_eq!(parsed(&["--from", gone, "ann@x.example"]), (what.clone(), paths(&[gone])), "named as unreadable");
        assert_eq!(parsed(&["--from", "-", "ann@x.example"]), (what, paths(&["-"])));
        for words in [&["--from", log, older][..], &["--from", gone]] {
            assert_eq!(parsed(words).0, None, "{words:?}");
        }
    }

    #[test]
    fn since_is_so_many_days_or_a_time() {
        let (now, zone) = (1_795_258_465_123, Zone::utc());
        assert_eq!(since("7", now, &zone), Ok(now - 7 * DAY_MS));
        assert_eq!(since("90m", now, &zone), Ok(now - 5_400_000));
        for wrong in ["", "h", "x", "-1", "1y", "é"] {
            assert!(since(wrong, now, &zone).is_err(), "{wrong}");
        }
    }
}
