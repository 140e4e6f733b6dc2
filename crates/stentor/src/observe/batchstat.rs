//! `stentor batchstat`: charts one day, several days, or servers side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use stentor_logfiles::{self as logfiles, From, TailEvent};
use stentor_plot::{Format, Theme, day as chart};
use stentor_records::civil::{Civil, DAY_S, OFFSET_STEP_S, Zone};
use stentor_records::day::{Day, MINUTE_MS};
use stentor_records::record::{Ms, Record};

use super::input::{Input, is_history, now, scan};
use super::times;
use crate::asking::CommandError;
use crate::output;

/// Maximum days kept from a log if no dates are given; the latest are kept.
const DAYS_KEPT_MAX: usize = 400;

#[derive(Clone, Copy, ValueEnum)]
enum ThemeArg {
    Light,
    Dark,
}

#[derive(Clone, Copy, ValueEnum)]
enum MachineArg {
    /// Thin lines over the bars.
    Overlay,
    /// A strip below the chart.
    Strip,
    Off,
}

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    input: Input,
    /// Logs of a second server, drawn beside the first.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "files", conflicts_with = "follow")]
    beside: Vec<PathBuf>,
    /// A second server's history directory, drawn beside the first.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "beside"])]
    beside_dir: Option<PathBuf>,
    /// Names of the servers, in order.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    names: Vec<String>,
    /// The day: 2026-11-22, today, yesterday [default: today for a history, the last days for logs].
    #[arg(long, value_name = "DATE", value_parser = times::written)]
    day: Option<String>,
    /// Number of days, ending with --day.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=31))]
    days: u32,
    /// Hour at which a day begins.
    #[arg(long, value_name = "HOUR", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..24))]
    day_starts: u32,
    /// Write the chart to this file, SVG or PNG by extension [default: batchstat-DATE.svg].
    #[arg(long, value_name = "FILE", value_parser = chart_file)]
    out: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "light")]
    theme: ThemeArg,
    /// Where to show the machine's load.
    #[arg(long, value_enum, default_value = "overlay")]
    machine: MachineArg,
    /// Charts side by side (servers always are).
    #[arg(long, value_name = "N", default_value_t = 1)]
    columns: usize,
    /// Minutes per bar.
    #[arg(long, value_name = "MINUTES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    bar: u32,
    /// A separate scale for each chart.
    #[arg(long)]
    own_scale: bool,
    /// Resolution of a PNG: pixels per unit of the chart.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    scale: u32,
    /// Print the bins as JSON instead of drawing.
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

/// Parses the value of `--out`.
fn chart_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|end| end.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("the chart's file name must end in .svg or .png".to_owned()),
    }
}

pub fn run(options: &Options) -> ExitCode {
    match carry_out(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

fn carry_out(options: &Options) -> Result<bool, CommandError> {
    let zone = options.input.from.zone()?;
    if options.input.from.follow {
        return Ok(follow(options, &zone)?);
    }
    let mut complete = true;
    let mut servers = Vec::new();
    let wanted = wanted(options, &zone)?;
    let mut first = Days::new(options, &zone, wanted);
    complete &= options.input.each(first.since(), first.until(), &mut |record: &Record<'_>| first.add(record))?;
    // The second server shows the days of the first.
    let wanted = if first.wanted.is_some() { first.wanted } else { first.found(options.days) };
    servers.push(first.chosen(options.days));
    if options.input.from.is_given() && !options.beside.is_empty() {
        let from = From { files: options.beside.clone(), follow: false, ..options.input.from.clone() };
        let mut second = Days::new(options, &zone, wanted);
        let summary = logfiles::feed(&from, &mut |record: &Record<'_>| second.add(record))?;
        summary.print();
        complete &= !summary.failed;
        servers.push(second.chosen(options.days));
    }
    if let Some(dir) = &options.beside_dir {
        is_history(dir)?;
        let mut second = Days::new(options, &zone, wanted);
        complete &= scan(dir, second.since(), second.until(), &mut |record: &Record<'_>| second.add(record))?;
        servers.push(second.chosen(options.days));
    }
    finish(options, &zone, servers, true).map(drop)?;
    Ok(complete)
}

/// Redraws the chart repeatedly.
fn follow(options: &Options, zone: &Zone) -> Result<bool, String> {
    const EVERY: Duration = Duration::from_mins(1);
    let mut days = Days::new(options, zone, wanted(options, zone)?);
    let mut drawn: Option<Instant> = None;
    let mut failure = None;
    let summary = logfiles::follow(&options.input.from, &mut |fed| {
        match fed {
            TailEvent::Record(record) => days.add(record),
            TailEvent::Idle if drawn.is_none_or(|drawn| drawn.elapsed() >= EVERY) => {
                let tell = drawn.is_none();
                drawn = Some(Instant::now());
                match finish(options, zone, vec![days.clone().chosen(options.days)], tell) {
                    Ok(goes_on) => return goes_on,
                    Err(why) => failure = Some(why),
                }
                return ControlFlow::Break(());
            }
            TailEvent::Idle => {}
        }
        ControlFlow::Continue(())
    })?;
    summary.print();
    match failure {
        Some(why) => Err(why),
        None => finish(options, zone, vec![days.chosen(options.days)], true).map(|_| !summary.failed),
    }
}

/// The first and last requested day, in seconds of local clock time.
fn wanted(options: &Options, zone: &Zone) -> Result<Option<(i64, i64)>, String> {
    let text = match (&options.day, options.input.from.is_given()) {
        (Some(text), _) => text.as_str(),
        (None, true) => return Ok(None),
        (None, false) => "today",
    };
    let starts_s = i64::from(options.day_starts) * 3600;
    let last = if let Some(last) = times::day(text) {
        last
    } else {
        let at = times::parse(text, now(), zone).map_err(|why| format!("--day {why}"))?;
        // At 02:00, today began yesterday if days begin at 04:00.
        let at = if text == "today" { now().saturating_sub(starts_s.cast_unsigned() * 1000) } else { at };
        zone.local_s((at / 1000).cast_signed()).div_euclid(DAY_S) * DAY_S
    };
    Ok(Some((last - i64::from(options.days - 1) * DAY_S, last)))
}

/// The days of one server.
#[derive(Clone)]
struct Days {
    zone: Zone,
    starts_s: i64,
    wanted: Option<(i64, i64)>,
    by_date: BTreeMap<i64, Day>,
    /// A period and its offset, in seconds.
    offset: (i64, i64),
}

impl Days {
    fn new(options: &Options, zone: &Zone, wanted: Option<(i64, i64)>) -> Days {
        let starts_s = i64::from(options.day_starts) * 3600;
        let mut days = Days { zone: zone.clone(), starts_s, wanted, by_date: BTreeMap::new(), offset: (i64::MIN, 0) };
        // A day without mail gets a chart too.
        if let Some((first, last)) = wanted {
            for date in (first..=last).step_by(DAY_S as usize) {
                let day = days.empty(date);
                days.by_date.insert(date, day);
            }
        }
        days
    }

    fn start_of(&self, date: i64) -> Ms {
        u64::try_from(self.zone.unix_s(date + self.starts_s)).unwrap_or(0) * 1000
    }

    fn empty(&self, date: i64) -> Day {
        let start = self.start_of(date);
        let length = self.start_of(date + DAY_S).saturating_sub(start).max(MINUTE_MS);
        Day::new(Civil::of_local(date).date_text(), start, length, MINUTE_MS)
    }

    fn since(&self) -> Option<Ms> {
        self.wanted.map(|(first, _)| self.start_of(first))
    }

    fn until(&self) -> Option<Ms> {
        self.wanted.map(|(_, last)| self.start_of(last + DAY_S))
    }

    fn add(&mut self, record: &Record<'_>) {
        let unix_s = (record.at() / 1000).cast_signed();
        let step = unix_s.div_euclid(OFFSET_STEP_S);
        if step != self.offset.0 {
            self.offset = (step, i64::from(self.zone.offset_s(unix_s)));
        }
        let date = (unix_s + self.offset.1 - self.starts_s).div_euclid(DAY_S) * DAY_S;
        if let Some((first, last)) = self.wanted
            && !(first..=last).contains(&date)
        {
            return;
        }
        if !self.by_date.contains_key(&date) {
            let day = self.empty(date);
            self.by_date.insert(date, day);
            if self.by_date.len() > DAYS_KEPT_MAX {
                self.by_date.pop_first();
            }
        }
        if let Some(day) = self.by_date.get_mut(&date) {
            day.add(record);
        }
    }

    /// The last days with data, so that another server can show the same.
    fn found(&self, count: u32) -> Option<(i64, i64)> {
        let last = *self.by_date.last_key_value()?.0;
        Some((last - i64::from(count - 1) * DAY_S, last))
    }

    fn chosen(self, count: u32) -> Vec<Day> {
        let skip = self.by_date.len().saturating_sub(count as usize);
        self.by_date.into_values().skip(skip).collect()
    }
}

/// Draws or prints; returns whether anyone is still reading.
fn finish(options: &Options, zone: &Zone, servers: Vec<Vec<Day>>, tell: bool) -> Result<ControlFlow<()>, String> {
    let count = servers.len();
    let days = arranged(options, servers);
    if days.is_empty() {
        return Err("no mail log entries found".to_owned());
    }
    if options.json {
        let text = serde_json::to_string(&days).map_err(|error| error.to_string())?;
        return print(&format!("{text}\n"));
    }
    let machine = match options.machine {
        MachineArg::Overlay => chart::MachineLayout::Overlay,
        MachineArg::Strip => chart::MachineLayout::Strip,
        MachineArg::Off => chart::MachineLayout::Off,
    };
    let drawing = chart::Options {
        columns: if count > 1 { count } else { options.columns },
        machine,
        bar_minutes: options.bar,
        same_scale: !options.own_scale,
        zone: zone.clone(),
    };
    let theme = match options.theme {
        ThemeArg::Light => Theme::LIGHT,
        ThemeArg::Dark => Theme::DARK,
    };
    let path = match &options.out {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("batchstat-{}.svg", Civil::of(days[0].start, zone).date_text())),
    };
    let is_png = path.extension().is_some_and(|end| end == "png");
    let format = if is_png { Format::Png { scale: options.scale } } else { Format::Svg };
    let picture = stentor_plot::draw(chart::size(&days, &drawing), format, theme, |canvas| {
        chart::draw(canvas, &days, &drawing);
    })
    .map_err(|error| error.to_string())?;
    write(&path, &picture).map_err(|error| format!("{}: {error}", path.display()))?;
    if tell { print(&summary(&days, zone, &path)) } else { Ok(ControlFlow::Continue(())) }
}

/// Arranges servers in columns: the first day of each, the second of each, ...
fn arranged(options: &Options, servers: Vec<Vec<Day>>) -> Vec<Day> {
    let several = servers.len() > 1;
    let rows = servers.iter().map(Vec::len).max().unwrap_or(0);
    let mut columns: Vec<_> = servers.into_iter().map(Vec::into_iter).collect();
    let mut days = Vec::new();
    for _ in 0..rows {
        for (index, column) in columns.iter_mut().enumerate() {
            let Some(mut day) = column.next() else { continue };
            match options.names.get(index) {
                Some(name) => day.name = format!("{name}, {}", day.name),
                None if several => day.name = format!("{}, server {}", day.name, index + 1),
                None => {}
            }
            days.push(day);
        }
    }
    days
}

/// Replaces the file at once, since it may be viewed while it is redrawn.
fn write(path: &Path, picture: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    std::fs::write(&new, picture)?;
    std::fs::rename(&new, path)
}

fn summary(days: &[Day], zone: &Zone, path: &Path) -> String {
    let mut text = String::new();
    for day in days {
        let total = day.total();
        let _ = write!(text, "{}: {} delivered, {} messages", day.name, total.delivered, total.arrivals);
        if let Some((bin, _)) = day.busiest() {
            let civil = Civil::of(day.start + bin as u64 * day.bin_ms, zone);
            let rate = day.per_hour(bin);
            let _ = write!(text, ", busiest {rate:.0}/h at {:02}:{:02}", civil.hour, civil.minute);
        }
        let _ = writeln!(text, ", {} attempts failed, {} given up", total.failed, total.given_up);
    }
    let _ = writeln!(text, "chart written to {}", path.display());
    text
}

fn print(text: &str) -> Result<ControlFlow<()>, String> {
    match output::print(text) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if output::is_closed(&error) => Ok(ControlFlow::Break(())),
        Err(error) => Err(error.to_string()),
    }
}
