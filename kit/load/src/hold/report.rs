//! The report of `stentor-kit lab hold`.

use std::collections::BTreeMap;

use stentor_measure::chart::{Kind, Series};
use stentor_measure::{Cell, Chart, Column, Report, Table};

use super::ways::Ways;
use super::{HoldArgs, Outcome, Point};

const MIB: f64 = 1_048_576.0;

/// All of it.
pub(super) fn report(args: &HoldArgs, ways: &Ways, outcomes: &[Outcome]) -> Report {
    let mut report = Report::new("lab-hold", "Connections held");
    report.parameter("targets", ways.targets.len());
    report.parameter(
        "sources",
        if args.bind.is_empty() { "the kernel's choice".to_owned() } else { ways.sources.len().to_string() },
    );
    report.parameter("ports", format!("{}-{}", ways.ports.0, ways.ports.1));
    report.parameter("opening", args.opening);
    if let Some(outcome) = outcomes.first().filter(|outcome| outcome.processes > 1) {
        report.parameter("processes", outcome.processes);
    }
    report.tables.push(held_table(args, outcomes));
    report.tables.push(summary_table(outcomes));
    report.charts.extend([rate_chart(outcomes), memory_chart(outcomes)]);
    if let Some(last) = outcomes.last() {
        report.tables.push(memory_table(last));
        if last.ran_out {
            let each = u64::from(ways.ports.1 - ways.ports.0) + 1;
            report.notes.push(format!(
                "Ports exhausted: {} pairs of source and target have {each} ports each. Add source addresses (--bind) \
                 or targets.",
                ways.pairs()
            ));
        }
    }
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for (error, count) in outcomes.iter().flat_map(|outcome| &outcome.errors) {
        *errors.entry(error).or_default() += count;
    }
    if !errors.is_empty() {
        let columns = vec![Column::new("error", "error"), Column::new("connections", "connections")];
        let mut table = Table::new("errors", "Errors", columns);
        for (error, count) in errors {
            table.push(vec![Cell::text(error), Cell::Count(count)]);
        }
        report.tables.push(table);
    }
    for outcome in outcomes {
        if outcome.alive < outcome.opened {
            report.warnings.push(format!("{} connections were lost", outcome.opened - outcome.alive));
        }
        report.warnings.extend(outcome.warnings.iter().cloned());
    }
    report
}

/// A row for each run.
fn held_table(args: &HoldArgs, outcomes: &[Outcome]) -> Table {
    let columns = vec![
        Column::new("wanted", "wanted"),
        Column::new("opened", "opened"),
        Column::new("open_s", "in s"),
        Column::new("opened_per_s", "per s"),
        Column::new("messages", "messages"),
        Column::new("messages_per_s", "per s"),
        Column::new("p50_us", "p50 us"),
        Column::new("p99_us", "p99 us"),
        Column::new("alive", "alive at the end"),
    ];
    let mut table = Table::new("held", "Connections opened, used and still open", columns);
    for outcome in outcomes {
        table.push(held_row(args, outcome));
    }
    table
}

fn held_row(args: &HoldArgs, outcome: &Outcome) -> Vec<Cell> {
    let [p50, p99] = [0.5, 0.99].map(|share| match outcome.sent {
        0 => Cell::Missing,
        _ => Cell::Count(outcome.times_us.percentile(share)),
    });
    vec![
        Cell::Count(u64::from(args.connections)),
        Cell::Count(outcome.opened),
        Cell::Number(outcome.open_s, 2),
        Cell::Number(outcome.opened as f64 / outcome.open_s.max(1e-6), 0),
        Cell::Count(outcome.sent),
        if outcome.sent == 0 { Cell::Missing } else { Cell::Number(outcome.sent as f64 / outcome.send_s.max(1e-6), 0) },
        p50,
        p99,
        Cell::Count(outcome.alive),
    ]
}

/// Connections opened and messages sent, a second; none where there was none.
fn rates(outcome: &Outcome) -> [f64; 2] {
    [(outcome.opened, outcome.open_s), (outcome.sent, outcome.send_s)]
        .map(|(count, seconds)| if count == 0 { f64::NAN } else { count as f64 / seconds.max(1e-6) })
}

fn summary_table(outcomes: &[Outcome]) -> Table {
    let columns = vec![
        Column::new("opened", "opened"),
        Column::new("opened_per_s", "opened/s"),
        Column::new("messages_per_s", "messages/s"),
        Column::new("p50_us", "p50 us"),
        Column::new("p99_us", "p99 us"),
        Column::new("alive", "alive at the end"),
    ];
    let mut table = Table::new("summary", "Over all runs", columns);
    let over = |of: &dyn Fn(&Outcome) -> f64| Cell::spread(outcomes.iter().map(of), 0);
    let time = |share: f64| {
        over(&move |outcome: &Outcome| match outcome.sent {
            0 => f64::NAN,
            _ => outcome.times_us.percentile(share) as f64,
        })
    };
    table.push(vec![
        over(&|outcome| outcome.opened as f64),
        over(&|outcome| rates(outcome)[0]),
        over(&|outcome| rates(outcome)[1]),
        time(0.5),
        time(0.99),
        over(&|outcome| outcome.alive as f64),
    ]);
    table
}

fn rate_chart(outcomes: &[Outcome]) -> Chart {
    let series = ["connections opened", "messages sent"].into_iter().enumerate().map(|(at, name)| {
        let value = |outcome: &Outcome| Some(rates(outcome)[at]).filter(|rate| rate.is_finite()).unwrap_or(0.0);
        Series { name: name.to_owned(), values: outcomes.iter().map(value).collect() }
    });
    let groups = (1..=outcomes.len()).map(|run| format!("run {run}")).collect();
    let kind = Kind::Bars { unit: "per s".to_owned(), groups, series: series.collect() };
    Chart { name: "rates".to_owned(), title: "Connections opened, and messages sent over them".to_owned(), kind }
}

/// What the last run took; what did not grow has no bar.
fn memory_chart(outcomes: &[Outcome]) -> Chart {
    let parts = outcomes.last().map(memory_parts).unwrap_or_default();
    let opened = outcomes.last().map_or(1, |outcome| outcome.opened.max(1)) as f64;
    let values = parts.iter().map(|(_, before, held)| (*held as f64 - *before as f64).max(0.0) / opened).collect();
    let groups = parts.iter().map(|(what, ..)| (*what).to_owned()).collect();
    let series = vec![Series { name: "a connection".to_owned(), values }];
    let kind = Kind::Bars { unit: "octets".to_owned(), groups, series };
    Chart { name: "memory".to_owned(), title: "Memory per connection".to_owned(), kind }
}

/// Of what, and how many octets of it there are.
type Part = (&'static str, fn(&Point) -> Option<u64>);

/// Of what, before, and with all open: octets.
fn memory_parts(outcome: &Outcome) -> Vec<(&'static str, u64, u64)> {
    let parts: [Part; 7] = [
        ("server, resident", |point| point.server.map(|used| used.resident_bytes)),
        ("server, virtual", |point| point.server.map(|used| used.virtual_bytes)),
        ("client, resident", |point| Some(point.client.resident_bytes)),
        ("kernel: slabs", |point| Some(point.kernel.slab_bytes)),
        ("kernel: stacks of threads", |point| Some(point.kernel.stacks_bytes)),
        ("kernel: page tables", |point| Some(point.kernel.page_tables_bytes)),
        ("kernel: TCP buffers", |point| Some(point.kernel.tcp_buffer_bytes)),
    ];
    let both = |(what, of): Part| Some((what, of(&outcome.before)?, of(&outcome.held)?));
    parts.into_iter().filter_map(both).collect()
}

/// Differences between before and with all open, for each connection.
fn memory_table(outcome: &Outcome) -> Table {
    let columns = vec![
        Column::new("what", "what"),
        Column::new("before_mib", "before, MiB"),
        Column::new("held_mib", "with all open"),
        Column::new("bytes_per_connection", "octets/connection"),
    ];
    let mut table =
        Table::new("memory", "Memory; the kernel's share includes both ends if both are on this machine", columns);
    let mib = |bytes: u64| Cell::Number(bytes as f64 / MIB, 1);
    for (what, before, held) in memory_parts(outcome) {
        let each = (held as f64 - before as f64) / outcome.opened.max(1) as f64;
        table.push(vec![Cell::text(what), mib(before), mib(held), Cell::Number(each, 0)]);
    }
    table
}
