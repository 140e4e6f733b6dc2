//! Tables, charts and conclusions of `probe fs`.

use stentor_measure::chart::{Chart, Kind, Series};
use stentor_measure::{Cell, Column, Histogram, Place, Report, Spread, Table};

use super::FsArgs;
use super::case::{Case, Names, Sync};
use super::crew::Outcome;
use super::work::{Step, Times};

/// Below these a percentile is hardly one.
const FEW_CYCLES: u64 = 20;

pub fn begin(args: &FsArgs, place: Place) -> Report {
    let mut report = Report::new("probe-fs", "Cost of files: the life of a queue file");
    report.places.push(place);
    report.parameter("files", args.files);
    report.parameter("seconds", args.seconds);
    report.parameter("queued", args.queued);
    report.parameter("runs", args.output.runs);
    report
}

pub fn fill(report: &mut Report, all: &[(Case, Vec<Outcome>)]) {
    report.tables.push(cycles(all));
    report.tables.push(steps(all));
    report.charts = charts(all);
    report.notes = notes(all);
    if report.places[0].device.is_some() {
        report.notes.push(
            "Writes and flushes are counted for the whole device while a case ran, including other processes; \
             unsynced data is written later and not counted."
                .to_owned(),
        );
    }
    let few = |(_, runs): &&(Case, Vec<Outcome>)| runs.iter().any(|run| run.cycles < FEW_CYCLES);
    if let Some((case, _)) = all.iter().find(few) {
        report.warnings.push(format!(
            "{}: fewer than {FEW_CYCLES} cycles in a run; percentiles mean little, increase --seconds",
            case.name()
        ));
    }
}

fn columns(names: &[(&'static str, &str)]) -> Vec<Column> {
    names.iter().map(|(name, title)| Column::new(*name, *title)).collect()
}

fn rate(run: &Outcome) -> f64 {
    run.cycles as f64 / run.elapsed.as_secs_f64().max(1e-9)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// A percentile over the runs, in microseconds.
fn percentile(runs: &[Outcome], of: impl Fn(&Times) -> &Histogram, share: f64) -> Cell {
    let present = runs.iter().filter(|run| of(&run.times).count() > 0);
    Cell::spread(present.map(|run| us(of(&run.times).percentile(share))), 0)
}

fn cycles(all: &[(Case, Vec<Outcome>)]) -> Table {
    let mut table = Table::new(
        "cycles",
        "Whole cycles: create, write, (sync), rename twice, remove. Accepted: until 250 could be sent.",
        columns(&[
            ("names", "files"),
            ("hash_depth", "hash depth"),
            ("size_bytes", "octets"),
            ("processes", "processes"),
            ("sync", "sync"),
            ("cycles_per_s", "cycles/s"),
            ("accept_p50_us", "accepted p50 us"),
            ("accept_p99_us", "p99 us"),
            ("cycle_p50_us", "cycle p50 us"),
            ("cycle_p99_us", "p99 us"),
            ("device_writes_per_file", "writes/file"),
            ("device_kib_per_file", "KiB/file"),
            ("device_flushes_per_file", "flushes/file"),
        ]),
    );
    for (case, runs) in all {
        let device = |of: fn(&stentor_measure::DeviceCounters) -> Option<u64>| {
            let counted = runs.iter().filter_map(|run| Some((of(&run.device?)? as f64, run.cycles)));
            Cell::spread(counted.map(|(count, cycles)| count / cycles.max(1) as f64), 1)
        };
        table.push(vec![
            Cell::text(case.names.name()),
            Cell::Count(case.hash_depth.into()),
            Cell::Count(case.size),
            Cell::Count(case.processes.into()),
            Cell::text(case.sync.name()),
            Cell::spread(runs.iter().map(rate), 0),
            percentile(runs, |times| &times.accept, 0.5),
            percentile(runs, |times| &times.accept, 0.99),
            percentile(runs, |times| &times.cycle, 0.5),
            percentile(runs, |times| &times.cycle, 0.99),
            device(|counts| Some(counts.writes)),
            device(|counts| Some(counts.bytes_written / 1024)),
            device(|counts| counts.flushes),
        ]);
    }
    table
}

/// Steps of a case that were taken.
fn taken(runs: &[Outcome]) -> Vec<Step> {
    let is_taken = |step: &Step| runs.iter().any(|run| run.times.steps[*step as usize].count() > 0);
    Step::ALL.into_iter().filter(is_taken).collect()
}

fn steps(all: &[(Case, Vec<Outcome>)]) -> Table {
    let mut table = Table::new(
        "steps",
        "Steps: rate of all processes if they did only this step, and time of one step.",
        columns(&[
            ("case", "case"),
            ("step", "step"),
            ("operations_per_s", "operations/s"),
            ("mean_us", "mean us"),
            ("p50_us", "p50 us"),
            ("p99_us", "p99 us"),
            ("max_us", "max us"),
            ("share_percent", "% of cycle"),
        ]),
    );
    for (case, runs) in all {
        for step in taken(runs) {
            let at = step as usize;
            let of = |run: &Outcome| (run.times.steps[at].count() as f64, run.times.sums[at] as f64 / 1e9);
            let took = |run: &&Outcome| run.times.sums[at] > 0;
            let rates = runs.iter().filter(took).map(|run| of(run).0 / of(run).1 * f64::from(case.processes));
            let means = runs.iter().filter(took).map(|run| of(run).1 / of(run).0 * 1e6);
            let share = |run: &Outcome| run.times.sums[at] as f64 * 100.0 / run.times.sums.iter().sum::<u64>() as f64;
            table.push(vec![
                Cell::text(case.name()),
                Cell::text(step.name(case.names)),
                Cell::spread(rates, 0),
                Cell::spread(means, 1),
                percentile(runs, |times| &times.steps[at], 0.5),
                percentile(runs, |times| &times.steps[at], 0.99),
                percentile(runs, |times| &times.steps[at], 1.0),
                Cell::spread(runs.iter().filter(took).map(share), 1),
            ]);
        }
    }
    table
}

fn median(runs: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    Spread::of(runs.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
}

fn charts(all: &[(Case, Vec<Outcome>)]) -> Vec<Chart> {
    let groups: Vec<String> = all.iter().map(|(case, _)| case.name()).collect();
    let rates = all.iter().map(|(_, runs)| median(runs, rate)).collect();
    let used = Step::ALL.into_iter().filter(|step| all.iter().any(|(_, runs)| taken(runs).contains(step)));
    let parts = used.map(|step| {
        let at = step as usize;
        let mean = |run: &Outcome| us(run.times.sums[at]) / run.cycles.max(1) as f64;
        Series {
            name: step.name(Names::New).to_owned(),
            values: all.iter().map(|(_, runs)| median(runs, mean)).collect(),
        }
    });
    let parts: Vec<Series> = parts.collect();
    vec![
        Chart {
            name: "cycles".to_owned(),
            title: "Whole cycles of a queue file".to_owned(),
            kind: Kind::Bars {
                unit: "cycles/s".to_owned(),
                groups: groups.clone(),
                series: vec![Series { name: "cycles/s".to_owned(), values: rates }],
            },
        },
        Chart {
            name: "steps".to_owned(),
            title: "Time of a cycle, by step".to_owned(),
            kind: Kind::Stacked { unit: "a cycle's time".to_owned(), groups, series: parts, is_share: true },
        },
    ]
}

/// What follows from the numbers: pairs of cases that differ in one thing.
fn notes(all: &[(Case, Vec<Outcome>)]) -> Vec<String> {
    let rate_of = |wanted: Case| {
        let found = all.iter().find(|(case, _)| *case == wanted);
        found.and_then(|(_, runs)| Spread::of(runs.iter().map(rate)))
    };
    let mut notes = Vec::new();
    for (case, runs) in all {
        let Some(own) = Spread::of(runs.iter().map(rate)) else { continue };
        let mut against = |other: Case, what: &str| {
            if let Some(other) = rate_of(other).filter(|_| other != *case) {
                notes.push(format!("{what}: {}.", compared(&own, &other)));
            }
        };
        let name = case.name();
        if case.sync != Sync::None {
            against(Case { sync: Sync::None, ..*case }, &format!("{name}, against no sync"));
        }
        if case.hash_depth > 0 {
            against(Case { hash_depth: 0, ..*case }, &format!("{name}, against flat directories"));
        }
        if case.names == Names::Reused {
            against(Case { names: Names::New, ..*case }, &format!("{name}, against new files"));
        }
        if case.processes > 1 {
            against(Case { processes: 1, ..*case }, &format!("{name}, against one process"));
        }
    }
    notes
}

/// `1.8 times as many cycles/s`, or that the runs of both overlap.
fn compared(own: &Spread, other: &Spread) -> String {
    if own.min <= other.max && other.min <= own.max && own.runs > 1 && other.runs > 1 {
        return format!("no clear difference ({:.0} and {:.0} cycles/s, whose runs overlap)", own.median, other.median);
    }
    let ratio = own.median / other.median.max(1e-9);
    let times = if ratio >= 1.0 {
        format!("{ratio:.1} times as many")
    } else {
        format!("{:.1} times fewer", 1.0 / ratio.max(1e-9))
    };
    format!("{times} cycles/s ({:.0} for {:.0})", own.median, other.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_within_the_spread_are_not_called_differences() {
        let spread = |min: f64, median: f64, max: f64| Spread { min, median, max, runs: 3 };
        let text = compared(&spread(90.0, 100.0, 110.0), &spread(105.0, 120.0, 130.0));
        assert!(text.starts_with("no clear difference"), "{text}");
        let text = compared(&spread(90.0, 100.0, 104.0), &spread(180.0, 200.0, 210.0));
        assert!(text.starts_with("2.0 times fewer"), "{text}");
    }
}
