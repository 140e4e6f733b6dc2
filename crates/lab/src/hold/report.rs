//! The report of `stentor lab hold`.

use super::ways::Ways;
use super::{HoldArgs, Outcome, Point};
use std::collections::BTreeMap;
use stentor_measure::{Cell, Column, Report, Table};

const MIB: f64 = 1_048_576.0;

/// All of it.
pub(super) fn report(args: &HoldArgs, ways: &Ways, outcomes: &[Outcome]) -> Report {
    let mut report = Report::new("lab-hold", "Connections held");
    report.parameter("targets", ways.targets.len());
    report.parameter(
        "sources",
        if args.from.is_empty() { "the kernel's choice".to_owned() } else { ways.sources.len().to_string() },
    );
    report.parameter("ports", format!("{}-{}", ways.ports.0, ways.ports.1));
    report.parameter("opening", args.opening);
    if let Some(outcome) = outcomes.first().filter(|outcome| outcome.processes > 1) {
        report.parameter("processes", outcome.processes);
    }
    report.tables.push(held_table(args, outcomes));
    if let Some(last) = outcomes.last() {
        report.tables.push(memory_table(last));
        if last.ran_out {
            let each = u64::from(ways.ports.1 - ways.ports.0) + 1;
            report.notes.push(format!(
                "No port was left: {} pairs of source and target have {each} each. More source addresses (--from) or more \
                 targets give more.",
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
        let mut table = Table::new("errors", "What went wrong", columns);
        for (error, count) in errors {
            table.push(vec![Cell::text(error), Cell::Count(count)]);
        }
        report.tables.push(table);
    }
    for outcome in outcomes {
        if outcome.alive < outcome.opened {
            report.warnings.push(format!("{} connections did not last", outcome.opened - outcome.alive));
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
    let mut table = Table::new("held", "Opened, used, and still there", columns);
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

/// Differences between before and with all open, for each connection.
fn memory_table(outcome: &Outcome) -> Table {
    let columns = vec![
        Column::new("what", "what"),
        Column::new("before_mib", "before, MiB"),
        Column::new("held_mib", "with all open"),
        Column::new("bytes_per_connection", "octets a connection"),
    ];
    let mut table =
        Table::new("memory", "Memory. The kernel's is of both ends, where both are on this machine", columns);
    let mut row = |what: &str, of: &dyn Fn(&Point) -> Option<u64>| {
        let (Some(before), Some(held)) = (of(&outcome.before), of(&outcome.held)) else { return };
        let mib = |bytes: u64| Cell::Number(bytes as f64 / MIB, 1);
        let each = (held as f64 - before as f64) / outcome.opened.max(1) as f64;
        table.push(vec![Cell::text(what), mib(before), mib(held), Cell::Number(each, 0)]);
    };
    row("server, resident", &|point| point.server.map(|used| used.resident_bytes));
    row("server, virtual", &|point| point.server.map(|used| used.virtual_bytes));
    row("client, resident", &|point| Some(point.client.resident_bytes));
    row("kernel: slabs", &|point| Some(point.kernel.slab_bytes));
    row("kernel: stacks of threads", &|point| Some(point.kernel.stacks_bytes));
    row("kernel: page tables", &|point| Some(point.kernel.page_tables_bytes));
    row("kernel: TCP buffers", &|point| Some(point.kernel.tcp_buffer_bytes));
    table
}
