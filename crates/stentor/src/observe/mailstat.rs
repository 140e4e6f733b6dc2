//! `stentor mailstat`: a table by hour, day, list, domain, host or source.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use stentor_logfiles::TailEvent;
use stentor_records::mailstat::{By, Options as TableOptions, Table, csv, json, text};
use stentor_records::record::{Ms, Record};
use stentor_records::tops::Tops;

use super::input::{Input, now};
use super::times;
use crate::asking::{CommandError, WATCH_S_DEFAULT, watch_s};
use crate::output::{is_closed, print, repeat};
use crate::paint::Colour;

#[derive(Clone, Copy, ValueEnum)]
enum ByArg {
    Hour,
    Day,
    List,
    /// The recipients' domains.
    #[value(name = "domain", alias = "site")]
    Site,
    /// The hosts that answered or failed.
    Host,
    Source,
}

#[derive(Args)]
pub struct Options {
    /// What each row shows.
    #[arg(long, value_enum, default_value = "hour")]
    by: ByArg,
    /// Hour at which a day begins.
    #[arg(long, value_name = "HOUR", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..24))]
    day_starts: u32,
    /// Ignore records before: 2026-11-22, "2026-11-22 10:00", 10:00, today, yesterday, 90m.
    #[arg(long, value_name = "TIME", value_parser = times::written)]
    since: Option<String>,
    /// Ignore records from this time on.
    #[arg(long, value_name = "TIME", value_parser = times::written)]
    until: Option<String>,
    /// Instead of the table, print the top N senders, and top N reasons of refusals, deferrals and bounces.
    #[arg(long, value_name = "N", conflicts_with_all = ["by", "csv", "follow"], num_args = 0..=1,
        default_missing_value = "10", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    top: Option<u32>,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV.
    #[arg(long)]
    csv: bool,
    /// With --follow: seconds between tables.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Repeat every SECONDS, until Ctrl-C [default: 2].
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = WATCH_S_DEFAULT, conflicts_with = "follow",
        value_parser = watch_s)]
    watch: Option<u64>,
    #[command(flatten)]
    colour: Colour,
    #[command(flatten)]
    input: Input,
}

pub fn run(options: &Options) -> ExitCode {
    repeat(options.watch, !options.json && !options.csv, || match carry_out(options) {
        Ok(PrintOutcome::Complete) => Ok(()),
        Ok(PrintOutcome::Incomplete) => Err(ExitCode::FAILURE),
        // The reader closed the pipe.
        Ok(PrintOutcome::ToNobody) => Err(ExitCode::SUCCESS),
        Err(failure) => Err(failure.report()),
    })
}

/// The result of printing a table.
enum PrintOutcome {
    Complete,
    /// Some records could not be read.
    Incomplete,
    /// The reader closed the pipe.
    ToNobody,
}

fn carry_out(options: &Options) -> Result<PrintOutcome, CommandError> {
    let zone = options.input.from.zone()?;
    let time = |text: &Option<String>| text.as_deref().map(|text| times::parse(text, now(), &zone)).transpose();
    let by = match options.by {
        ByArg::Hour => By::Hour,
        ByArg::Day => By::Day,
        ByArg::List => By::List,
        ByArg::Site => By::Site,
        ByArg::Host => By::Host,
        ByArg::Source => By::Source,
    };
    let (since, until) = (time(&options.since)?, time(&options.until)?);
    if let Some(rows) = options.top {
        return tops(options, since, until, rows as usize);
    }
    let mut table = Table::new(TableOptions { by, day_starts_h: options.day_starts, since, until, zone: zone.clone() });
    if options.input.from.follow {
        let is_complete = follow(options, table)?;
        return Ok(if is_complete { PrintOutcome::Complete } else { PrintOutcome::Incomplete });
    }
    let complete = options.input.each(since, until, &mut |record: &Record<'_>| table.add(record))?;
    match print(&form(options, &table)) {
        Err(error) if is_closed(&error) => return Ok(PrintOutcome::ToNobody),
        printed => printed.map_err(|error| error.to_string())?,
    }
    if table.pairs_forgotten() {
        eprintln!("stentor: too many pairs of message and host; some hosts may be counted twice");
    }
    Ok(if complete { PrintOutcome::Complete } else { PrintOutcome::Incomplete })
}

/// Prints the `--top` lists.
fn tops(options: &Options, since: Option<Ms>, until: Option<Ms>, rows: usize) -> Result<PrintOutcome, CommandError> {
    let mut tops = Tops::new(since, until);
    let complete = options.input.each(since, until, &mut |record: &Record<'_>| tops.add(record))?;
    let text = if options.json {
        // A plain struct with string keys: serialising it cannot fail.
        serde_json::to_string_pretty(&tops.top(rows)).unwrap_or_default() + "\n"
    } else {
        options.colour.paint(tops.text(rows))
    };
    match print(&text) {
        Err(error) if is_closed(&error) => Ok(PrintOutcome::ToNobody),
        Err(error) => Err(error.to_string().into()),
        Ok(()) => Ok(if complete { PrintOutcome::Complete } else { PrintOutcome::Incomplete }),
    }
}

fn form(options: &Options, table: &Table) -> String {
    if options.json {
        format!("{:#}\n", json(table))
    } else if options.csv {
        csv(table)
    } else {
        let (now, name) = (now(), options.input.from.zone_name());
        let label = table.options().zone.label(now);
        options.colour.paint(text(table, now, if name.is_empty() { &label } else { name }))
    }
}

/// Prints the table repeatedly; on a terminal in the same place.
fn follow(options: &Options, mut table: Table) -> Result<bool, String> {
    let every = Duration::from_secs(options.every);
    let mut printed: Option<Instant> = None;
    let in_place = std::io::stdout().is_terminal();
    let summary = stentor_logfiles::follow(&options.input.from, &mut |fed| {
        match fed {
            TailEvent::Record(record) => table.add(record),
            TailEvent::Idle if printed.is_none_or(|printed| printed.elapsed() >= every) => {
                let clear = if in_place { "\x1b[H\x1b[2J" } else { "" };
                printed = Some(Instant::now());
                if print(&format!("{clear}{}", form(options, &table))).is_err() {
                    return ControlFlow::Break(());
                }
            }
            TailEvent::Idle => {}
        }
        ControlFlow::Continue(())
    })?;
    // Standard input ends.
    let _ = print(&form(options, &table));
    summary.print();
    Ok(!summary.failed)
}
