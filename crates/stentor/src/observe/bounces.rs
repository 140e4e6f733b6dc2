//! `stentor bounces`: causes of undelivered mail by cause, provider or list; or what a bounce message reports.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;
use stentor_bounces::message::BounceParser;
use stentor_bounces::sums::{BlockedSource, BounceCount, BounceRow, BounceSubject, BounceSums, UnknownCluster};
use stentor_bounces::{BounceReply, BounceRules, Classification, ParsedBounce};
use stentor_config::RulesFileError;
use stentor_control::format::plural;
use stentor_records::escape::printable;
use stentor_records::record::Record;

use super::input::{Input, now};
use super::times;
use crate::asking::{CommandError, configured_path};
use crate::output::{is_closed, print};
use crate::paint::Colour;

/// Octets of a message that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Octets shown of a reply.
const REPLY_BYTES_SHOWN: usize = 200;

#[derive(Clone, Copy, ValueEnum)]
enum ByArg {
    Cause,
    /// The organizational domain of the host that replied.
    Provider,
    List,
}

#[derive(Args)]
pub struct Options {
    /// What each row shows.
    #[arg(long, value_enum, default_value = "cause")]
    by: ByArg,
    /// Ignore records before: 2026-11-22, "2026-11-22 10:00", 10:00, today, yesterday, 90m.
    #[arg(long, value_name = "TIME", value_parser = times::written)]
    since: Option<String>,
    /// Ignore records from this time on.
    #[arg(long, value_name = "TIME", value_parser = times::written)]
    until: Option<String>,
    /// Rows of each table.
    #[arg(short = 'n', long, alias = "rows", value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Rules to use instead of those of the server, or else the built-in ones.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Print the built-in rules, to begin a rules file with.
    #[arg(long, conflicts_with_all = ["rules", "message", "reply"])]
    print_rules: bool,
    /// Read bounce messages instead of records: who failed, and why.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["by", "since", "until", "files"])]
    message: Vec<PathBuf>,
    /// Classify a reply instead of records.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true,
        conflicts_with_all = ["by", "since", "until", "files", "message"])]
    reply: Option<String>,
    /// The host that gave the reply.
    #[arg(long, value_name = "NAME", default_value = "", requires = "reply", hide_default_value = true)]
    host: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    colour: Colour,
    #[command(flatten)]
    input: Input,
}

pub fn run(options: &Options) -> ExitCode {
    match carry_out(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

/// Returns whether everything could be read.
fn carry_out(options: &Options) -> Result<bool, CommandError> {
    if options.print_rules {
        return written(stentor_bounces::rules::DEFAULT_RULES, true);
    }
    let own;
    let rules = match rules(options)? {
        Some(rules) => {
            own = rules;
            &own
        }
        None => BounceRules::shared_built_in(),
    };
    if !options.message.is_empty() {
        return messages(options, rules);
    }
    if let Some(text) = &options.reply {
        let reply = BounceReply { text, host: &options.host, ..BounceReply::default() };
        return written(&reply_text(&rules.classify(&reply), options.json), true);
    }
    if options.input.from.follow {
        return Err("bounces reads logs to their end; omit --follow".to_owned().into());
    }
    let zone = options.input.from.zone()?;
    let time = |text: &Option<String>| text.as_deref().map(|text| times::parse(text, now(), &zone)).transpose();
    let (since, until) = (time(&options.since)?, time(&options.until)?);
    let mut sums = BounceSums::new(rules, since, until);
    let complete = options.input.each(since, until, &mut |record: &Record<'_>| sums.add(record))?;
    let text = if options.json { sums_json(&sums, options) } else { options.colour.paint(sums_text(&sums, options)) };
    written(&text, complete)
}

fn written(text: &str, complete: bool) -> Result<bool, CommandError> {
    match print(text) {
        Err(error) if is_closed(&error) => Ok(true),
        Err(error) => Err(error.to_string().into()),
        Ok(()) => Ok(complete),
    }
}

/// The rules of `--rules`, else those of the server's configuration; `None`: the built-in ones.
fn rules(options: &Options) -> Result<Option<BounceRules>, String> {
    if let Some(path) = &options.rules {
        return read_rules(path).map(Some);
    }
    let Some(path) = rules_of_server(options) else { return Ok(None) };
    // Bounces are looked into while the file is being corrected, too.
    Ok(read_rules(&path).map_err(|why| eprintln!("warning: {why}; the built-in rules are used")).ok())
}

fn read_rules(path: &Path) -> Result<BounceRules, String> {
    stentor_config::bounce_rules(path).map_err(|error| match &error {
        RulesFileError::Rules(fault) if fault.line() > 0 => format!("{}:{}: {error}", path.display(), fault.line()),
        _ => format!("{}: {error}", path.display()),
    })
}

/// The file in `[bounces] rules_file` of a readable configuration; others' logs get the built-in rules.
fn rules_of_server(options: &Options) -> Option<PathBuf> {
    let input = &options.input;
    if input.from.is_given() || input.dir.is_some() {
        return None;
    }
    let config = stentor_config::check_alone(&configured_path(input.config.as_deref())?).ok()?;
    config.bounces.rules_file.map(|(path, _)| path)
}

fn sums_json(sums: &BounceSums<'_>, options: &Options) -> String {
    let limit = options.limit as usize;
    let rows = |by| -> Vec<serde_json::Value> {
        let with_fault = |row: &BounceRow| {
            let mut value = json!(row);
            value["fault"] = row.cause.fault().name().into();
            value
        };
        sums.rows(by).iter().take(limit).map(with_fault).collect()
    };
    let value = json!({
        "causes": rows(BounceSubject::Cause),
        "providers": rows(BounceSubject::Provider),
        "lists": rows(BounceSubject::List),
        "blocked": sums.blocked().into_iter().take(limit).collect::<Vec<BlockedSource>>(),
        "unknown": sums.clusters().into_iter().take(limit).collect::<Vec<UnknownCluster>>(),
    });
    format!("{value:#}\n")
}

/// Writing into a string cannot fail.
fn sums_text(sums: &BounceSums<'_>, options: &Options) -> String {
    let by = match options.by {
        ByArg::Cause => BounceSubject::Cause,
        ByArg::Provider => BounceSubject::Provider,
        ByArg::List => BounceSubject::List,
    };
    let limit = options.limit as usize;
    let rows = sums.rows(by);
    let (blocked, clusters) = (sums.blocked(), sums.clusters());
    if rows.is_empty() && blocked.is_empty() {
        let period = if options.since.is_some() || options.until.is_some() { " in this period" } else { "" };
        return format!(
            "No bounces or deferrals{period} among {}. Bounces that come back by mail count if they come to a list, or \
             to a sender with `verp`; `stentor bounces --message FILE` reads others.\n",
            plural(sums.records(), "record")
        );
    }
    let mut out = String::from("given up  returned  deferred  fault    cause        name\n");
    for row in rows.iter().take(limit) {
        let unknown = if by == BounceSubject::Cause { "" } else { "-" };
        let name = if row.name.is_empty() { unknown.to_owned() } else { printable(&row.name, REPLY_BYTES_SHOWN) };
        let line = format!(
            "{:>8}  {:>8}  {:>8}  {:<7}  {:<11}  {name}",
            row.count.given_up,
            row.count.returned,
            row.count.deferred,
            row.cause.fault(),
            row.cause
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    more(&mut out, rows.len(), limit);
    if !blocked.is_empty() {
        out.push_str("\nReplies about our reputation\n replies  source           block list      last reply\n");
        for blocked in blocked.iter().take(limit) {
            let name = |text: &str, absent: &str| printable(if text.is_empty() { absent } else { text }, 80);
            let (source, list) = (name(&blocked.source, "default"), name(&blocked.block_list, "-"));
            let sample = printable(&blocked.sample, REPLY_BYTES_SHOWN);
            let _ = writeln!(out, "{:>8}  {source:<15}  {list:<14}  {sample}", blocked.replies);
        }
    }
    more(&mut out, blocked.len(), limit);
    if !clusters.is_empty() {
        out.push_str("\nReplies without a rule\ngiven up  returned  deferred  example\n");
        for cluster in clusters.iter().take(limit) {
            let sample = printable(&cluster.sample, REPLY_BYTES_SHOWN);
            let BounceCount { given_up, deferred, returned } = cluster.count;
            let _ = writeln!(out, "{given_up:>8}  {returned:>8}  {deferred:>8}  {sample}");
        }
    }
    more(&mut out, clusters.len(), limit);
    out
}

/// Says how many rows of a table are not shown.
fn more(out: &mut String, rows: usize, limit: usize) {
    if rows > limit {
        let _ = writeln!(out, "{}; -n shows more", plural((rows - limit) as u64, "more row"));
    }
}

fn messages(options: &Options, rules: &BounceRules) -> Result<bool, CommandError> {
    let (mut text, mut values) = (String::new(), Vec::new());
    for path in &options.message {
        let parsed = message(path, rules)?;
        if options.json {
            let mut value = json!(parsed);
            value["file"] = path.display().to_string().into();
            values.push(value);
        } else {
            message_text(path, &parsed, &mut text);
        }
    }
    if options.json {
        text = format!("{:#}\n", serde_json::Value::from(values));
    }
    written(&text, true)
}

fn message(path: &Path, rules: &BounceRules) -> Result<ParsedBounce, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = File::open(path).map_err(fault)?;
    let mut parser = BounceParser::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece).map_err(fault)?;
        if read == 0 {
            return Ok(parser.finish(rules));
        }
        parser.push(&piece[..read]);
    }
}

fn reply_text(found: &Classification<'_>, as_json: bool) -> String {
    let fault = found.cause.fault();
    if as_json {
        let value = json!({
            "cause": found.cause, "fault": fault, "confidence": found.confidence, "rule": found.rule,
            "block_lists": found.block_lists,
        });
        return format!("{value:#}\n");
    }
    let rule = if found.rule.is_empty() { "no rule" } else { found.rule };
    let mut text = format!("{} ({rule}, {} %), fault: {fault}\n", found.cause, found.confidence);
    if !found.block_lists.is_empty() {
        let _ = writeln!(text, "block lists: {}", printable(&found.block_lists.join(", "), REPLY_BYTES_SHOWN));
    }
    text
}

fn message_text(path: &Path, parsed: &ParsedBounce, out: &mut String) {
    let kind = json!(parsed.kind);
    let id = parsed.original_message_id.as_deref().unwrap_or("-");
    let shown = |text: &str| printable(text, REPLY_BYTES_SHOWN);
    let _ = writeln!(
        out,
        "{}: {}, reporter {}, message {}",
        path.display(),
        kind.as_str().unwrap_or_default(),
        if parsed.reporter.is_empty() { "-".to_owned() } else { shown(&parsed.reporter) },
        shown(id)
    );
    for report in &parsed.reports {
        let action = json!(report.action);
        let rule = if report.rule.is_empty() { "no rule" } else { &report.rule };
        let _ = writeln!(
            out,
            "  {}: {}, {} ({}, {} %), fault: {}",
            shown(&report.recipient),
            action.as_str().unwrap_or_default(),
            report.cause,
            rule,
            report.confidence,
            report.cause.fault()
        );
        if !report.block_lists.is_empty() {
            let _ = writeln!(out, "    block lists: {}", shown(&report.block_lists.join(", ")));
        }
        if !report.reply.is_empty() {
            let _ = writeln!(out, "    {}", shown(&report.reply));
        }
    }
}
