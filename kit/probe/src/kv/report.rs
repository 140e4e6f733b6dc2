//! Tables, charts and conclusions of `probe kv`.

use stentor_measure::chart::{Chart, Kind as ChartKind, Line, Series};
use stentor_measure::{Cell, Column, DeviceCounters, Place, Report, Spread, Table};

use super::KvArgs;
use super::engine::Kind;
use super::work::{Case, Outcome, Part};
use crate::trouble::show_bytes;

const MIB: f64 = 1_048_576.0;

type PartOf = fn(&Outcome) -> &Part;
const PARTS: [(&str, PartOf); 3] = [
    ("insert", |outcome| &outcome.inserts),
    ("look-up", |outcome| &outcome.look_ups),
    ("delete", |outcome| &outcome.deletes),
];

pub fn begin(args: &KvArgs, place: Place) -> Report {
    let mut report = Report::new("probe-kv", "Embedded engines and our journal: durable records");
    report.places.push(place);
    report.parameter("records", args.records);
    report.parameter("seconds", args.seconds);
    report.parameter("runs", args.output.runs);
    report
}

pub fn fill(report: &mut Report, all: &[(Case, Vec<Outcome>)]) {
    report.tables.push(rates(all));
    report.tables.push(space(all));
    report.tables.push(engines());
    report.charts = charts(all);
    report.notes = notes(all);
    if report.places[0].device.is_some() {
        report.notes.push("Writes and flushes are counted for the whole device during the measurement.".to_owned());
    }
    let few = all.iter().find(|(_, runs)| runs.iter().any(|run| run.inserts.transactions < 10));
    if let Some((case, _)) = few {
        report
            .warnings
            .push(format!("{}: fewer than 10 transactions in a run; increase --records and --seconds", case.name()));
    }
}

fn columns(names: &[(&'static str, &str)]) -> Vec<Column> {
    names.iter().map(|(name, title)| Column::new(*name, *title)).collect()
}

fn per_second(part: &Part, count: u64) -> Option<f64> {
    (count > 0).then(|| count as f64 / part.elapsed.as_secs_f64().max(1e-9))
}

fn rates(all: &[(Case, Vec<Outcome>)]) -> Table {
    let mut table = Table::new(
        "kv",
        "Durable transactions of inserts and of deletes; look-ups are of one record each, from the page cache",
        columns(&[
            ("engine", "engine"),
            ("record_bytes", "octets"),
            ("per_transaction", "records/tx"),
            ("step", "step"),
            ("records_per_s", "records/s"),
            ("transactions_per_s", "tx/s"),
            ("p50_us", "p50 us"),
            ("p99_us", "p99 us"),
            ("max_us", "max us"),
            ("writes_per_transaction", "writes/tx"),
            ("kib_per_transaction", "KiB/tx"),
            ("flushes_per_transaction", "flushes/tx"),
        ]),
    );
    for (case, runs) in all {
        for (name, part) in PARTS {
            let parts: Vec<&Part> = runs.iter().map(part).filter(|part| part.transactions > 0).collect();
            let durable = name != "look-up";
            let each = |of: &dyn Fn(&Part) -> Option<f64>, decimals: u8| {
                Cell::spread(parts.iter().filter_map(|part| of(part)), decimals)
            };
            let percentile = |share: f64| each(&|part| Some(part.took.percentile(share) as f64 / 1000.0), 0);
            let device = |of: fn(&DeviceCounters) -> Option<u64>| {
                if !durable {
                    return Cell::Missing;
                }
                each(&|part| Some(of(&part.device?)? as f64 / part.transactions as f64), 1)
            };
            table.push(vec![
                Cell::text(case.kind.name()),
                Cell::Count(case.record_bytes),
                Cell::Count(case.per_transaction),
                Cell::text(name),
                each(&|part| per_second(part, part.records), 0),
                if durable { each(&|part| per_second(part, part.transactions), 0) } else { Cell::Missing },
                percentile(0.5),
                percentile(0.99),
                percentile(1.0),
                device(|counters| Some(counters.writes)),
                device(|counters| Some(counters.bytes_written / 1024)),
                device(|counters| counters.flushes),
            ]);
        }
    }
    table
}

fn space(all: &[(Case, Vec<Outcome>)]) -> Table {
    let mut table = Table::new(
        "space",
        "Size of the files (including logs and prepared segments)",
        columns(&[
            ("engine", "engine"),
            ("record_bytes", "octets"),
            ("per_transaction", "records/tx"),
            ("records", "records"),
            ("data_mib", "data MiB"),
            ("after_inserts_mib", "after inserts MiB"),
            ("after_deletes_mib", "after deletes MiB"),
            ("deleted", "deleted"),
        ]),
    );
    for (case, runs) in all {
        let median = |of: &dyn Fn(&Outcome) -> f64| Spread::of(runs.iter().map(of)).map_or(0.0, |spread| spread.median);
        let records = median(&|run| run.inserts.records as f64);
        table.push(vec![
            Cell::text(case.kind.name()),
            Cell::Count(case.record_bytes),
            Cell::Count(case.per_transaction),
            Cell::Count(records as u64),
            Cell::Number(records * case.record_bytes as f64 / MIB, 1),
            Cell::Number(median(&|run| run.bytes_after_inserts as f64 / MIB), 1),
            Cell::Number(median(&|run| run.bytes_after_deletes as f64 / MIB), 1),
            Cell::Count(median(&|run| run.deletes.records as f64) as u64),
        ]);
    }
    table
}

fn engines() -> Table {
    let mut table = Table::new(
        "engines",
        "Engines",
        columns(&[("engine", "engine"), ("is_built_in", "here"), ("settings", "what it is")]),
    );
    for kind in Kind::ALL {
        let here = if kind.is_built_in() { "built in" } else { "not built in" };
        table.push(vec![Cell::text(kind.name()), Cell::text(here), Cell::text(kind.settings())]);
    }
    table
}

/// Median records/s.
fn rate(runs: &[Outcome], part: PartOf) -> f64 {
    let rates = runs.iter().map(part).filter_map(|part| per_second(part, part.records));
    Spread::of(rates).map_or(f64::NAN, |spread| spread.median)
}

/// For each size of a record one of each step.
fn charts(all: &[(Case, Vec<Outcome>)]) -> Vec<Chart> {
    let mut sizes: Vec<u64> = all.iter().map(|(case, _)| case.record_bytes).collect();
    sizes.dedup();
    let steps = sizes.iter().flat_map(|size| PARTS.map(|part| (*size, part)));
    steps.map(|(size, (name, part))| chart(all, size, name, part)).collect()
}

fn chart(all: &[(Case, Vec<Outcome>)], size: u64, name: &str, part: PartOf) -> Chart {
    let kinds = || Kind::ALL.into_iter().filter(|kind| all.iter().any(|(case, _)| case.kind == *kind));
    let values = |kind: Kind| -> Vec<(f64, f64)> {
        let own = all.iter().filter(|(case, _)| case.kind == kind && case.record_bytes == size);
        own.map(|(case, runs)| (case.per_transaction as f64, rate(runs, part))).collect()
    };
    let unit = "records/s".to_owned();
    let is_line = name != "look-up" && kinds().any(|kind| values(kind).len() > 1);
    let kind = if is_line {
        ChartKind::Lines {
            x_unit: "records a transaction".to_owned(),
            y_unit: unit,
            log_x: true,
            log_y: true,
            lines: kinds().map(|kind| Line { name: kind.name().to_owned(), points: values(kind) }).collect(),
        }
    } else {
        let first = |kind: Kind| values(kind).first().map_or(f64::NAN, |(_, rate)| *rate);
        ChartKind::Bars {
            unit: unit.clone(),
            groups: kinds().map(|kind| kind.name().to_owned()).collect(),
            series: vec![Series { name: unit, values: kinds().map(first).collect() }],
        }
    };
    let what = match name {
        "insert" => "Durable inserts",
        "delete" => "Durable deletes",
        _ => "Look-ups",
    };
    let size = show_bytes(size);
    let (name, title) = (format!("{name}-{}", size.to_lowercase()), format!("{what}: records of {size}"));
    Chart { name, title, kind }
}

/// Per record size and transaction size: who inserts most, by how much.
fn notes(all: &[(Case, Vec<Outcome>)]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut groups: Vec<(u64, u64)> = all.iter().map(|(case, _)| (case.record_bytes, case.per_transaction)).collect();
    groups.dedup();
    for (size, lot) in groups {
        let own = all.iter().filter(|(case, _)| (case.record_bytes, case.per_transaction) == (size, lot));
        let mut ranked: Vec<(Kind, Spread)> = own
            .filter_map(|(case, runs)| {
                let rates = runs.iter().filter_map(|run| per_second(&run.inserts, run.inserts.records));
                Spread::of(rates).map(|spread| (case.kind, spread))
            })
            .collect();
        ranked.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
        notes.extend(ranking(size, lot, &ranked));
    }
    notes
}

/// None with fewer than two.
fn ranking(size: u64, lot: u64, ranked: &[(Kind, Spread)]) -> Option<String> {
    let [(first, best), (second, next), ..] = ranked else { return None };
    let clear = best.min > next.max || best.runs < 2;
    let what = format!("{lot} a transaction, records of {}", show_bytes(size));
    let ratio = best.median / next.median.max(1e-9);
    let lead = if clear {
        format!("{} inserts {ratio:.1} times as fast as {}", first.name(), second.name())
    } else {
        format!("{} and {} insert about as fast (their runs overlap)", first.name(), second.name())
    };
    let (last, worst) = ranked.last()?;
    let tail = if ranked.len() > 2 {
        format!(", {:.1} times as fast as {}", best.median / worst.median.max(1e-9), last.name())
    } else {
        String::new()
    };
    Some(format!("{what}: {lead}{tail}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_within_the_spread_is_no_lead() {
        let spread = |min: f64, median: f64, max: f64| Spread { min, median, max, runs: 3 };
        let clear = [
            (Kind::Journal, spread(900.0, 1000.0, 1100.0)),
            (Kind::Redb, spread(400.0, 500.0, 600.0)),
            (Kind::Sqlite, spread(90.0, 100.0, 110.0)),
        ];
        assert_eq!(
            ranking(4096, 10, &clear).unwrap(),
            "10 a transaction, records of 4K: journal inserts 2.0 times as fast as redb, 10.0 times as fast as SQLite."
        );
        let near = [(Kind::Redb, spread(400.0, 500.0, 600.0)), (Kind::Fjall, spread(350.0, 450.0, 550.0))];
        assert!(ranking(4096, 1, &near).unwrap().contains("about as fast"));
        assert_eq!(ranking(1, 1, &near[..1]), None);
    }
}
