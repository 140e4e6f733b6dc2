//! Totals as tables and charts.

use stentor_measure::chart::{Kind, Series};
use stentor_measure::{Cell, Chart, Column, Report, Table};

use crate::text::totals::{Function, Totals};

/// Functions in the chart; the table has all.
const CHARTED: usize = 16;

fn us(ns: u64) -> Cell {
    Cell::Number(ns as f64 / 1000.0, 3)
}

/// By exclusive time, the greatest first.
fn ranked(totals: &Totals) -> Vec<(&String, &Function)> {
    let mut functions: Vec<_> = totals.functions.iter().collect();
    functions.sort_by_key(|(_, function)| std::cmp::Reverse(function.exclusive_ns));
    functions
}

fn functions(totals: &Totals) -> Table {
    let columns = vec![
        Column::new("function", "function"),
        Column::new("calls", "calls"),
        Column::new("inclusive_us", "inclusive us"),
        Column::new("exclusive_us", "exclusive us"),
        Column::new("share_percent", "share %"),
        Column::new("mean_us", "mean us"),
        Column::new("p50_us", "p50"),
        Column::new("p90_us", "p90"),
        Column::new("p99_us", "p99"),
        Column::new("max_us", "max"),
        Column::new("unfinished", "unfinished"),
        Column::new("headless", "begun before"),
    ];
    let mut table = Table::new("functions", "Functions (inclusive: with what they call)", columns);
    let all: u64 = totals.functions.values().map(|function| function.exclusive_ns).sum();
    for (name, function) in ranked(totals) {
        let at =
            |share: f64| if function.calls == 0 { Cell::Missing } else { us(function.durations.percentile(share)) };
        table.push(vec![
            Cell::text(name.as_str()),
            Cell::Count(function.calls),
            us(function.inclusive_ns),
            us(function.exclusive_ns),
            Cell::Number(100.0 * function.exclusive_ns as f64 / all.max(1) as f64, 1),
            if function.calls == 0 { Cell::Missing } else { Cell::Number(function.mean_ns() / 1000.0, 3) },
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0),
            Cell::Count(function.unfinished),
            Cell::Count(function.headless),
        ]);
    }
    table
}

fn processes(totals: &Totals) -> Table {
    let columns = vec![
        Column::new("process", "process"),
        Column::new("events", "events"),
        Column::new("events_percent", "of all %"),
        Column::new("calls", "calls"),
        Column::new("exclusive_us", "in functions us"),
        Column::new("interrupt_us", "of that in interrupts us"),
    ];
    let mut table = Table::new("processes", "By process", columns);
    let mut processes: Vec<_> = totals.processes.iter().collect();
    processes.sort_by_key(|(_, process)| std::cmp::Reverse(process.events));
    let all: u64 = totals.processes.values().map(|process| process.events).sum();
    for (name, process) in processes {
        table.push(vec![
            Cell::text(name.as_str()),
            Cell::Count(process.events),
            Cell::Number(100.0 * process.events as f64 / all.max(1) as f64, 1),
            Cell::Count(process.calls),
            us(process.exclusive_ns),
            us(process.interrupt_ns),
        ]);
    }
    table
}

fn events(totals: &Totals) -> Table {
    let columns = vec![Column::new("event", "event"), Column::new("count", "count")];
    let mut table = Table::new("events", "Events", columns);
    let mut events: Vec<_> = totals.events.iter().collect();
    events.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (name, count) in events {
        table.push(vec![Cell::text(name.as_str()), Cell::Count(*count)]);
    }
    table
}

fn chart(totals: &Totals) -> Option<Chart> {
    let top: Vec<_> = ranked(totals).into_iter().filter(|(_, function)| function.calls > 0).take(CHARTED).collect();
    if top.is_empty() {
        return None;
    }
    let series = |name: &str, of: fn(&Function) -> u64| Series {
        name: name.to_owned(),
        values: top.iter().map(|(_, function)| of(function) as f64 / 1000.0).collect(),
    };
    Some(Chart {
        name: "functions".to_owned(),
        title: "Time in functions".to_owned(),
        kind: Kind::Bars {
            unit: "us".to_owned(),
            groups: top.iter().map(|(name, _)| (*name).clone()).collect(),
            series: vec![
                series("inclusive", |function| function.inclusive_ns),
                series("exclusive", |function| function.exclusive_ns),
            ],
        },
    })
}

/// All of it; an error in words if there was nothing to add up.
pub fn fill(report: &mut Report, totals: &Totals) -> Result<(), String> {
    if totals.functions.is_empty() && totals.events.is_empty() {
        return Err(format!(
            "none of {} lines is output of `trace-cmd report` or ftrace `trace`; give the text (trace-cmd report -i \
             trace.dat > FILE), not trace.dat itself",
            totals.lines
        ));
    }
    report.parameter("lines", totals.lines);
    for table in [functions(totals), processes(totals), events(totals)] {
        if !table.rows.is_empty() {
            report.tables.push(table);
        }
    }
    report.charts.extend(chart(totals));
    if totals.is_doubtful() {
        let by_cpu: Vec<String> = totals.lost.iter().map(|(cpu, lost)| format!("CPU {cpu}: {lost}")).collect();
        let uncounted = match totals.losses_uncounted {
            0 => String::new(),
            times => format!(", and {times} times an unknown number"),
        };
        report.warnings.push(format!(
            "{} events lost ({}){uncounted}: totals are too low; record again with larger buffers (trace-cmd record -b \
             KIB) or fewer functions (-l, -g, --max-graph-depth)",
            totals.lost_in_all(),
            by_cpu.join(", ")
        ));
    }
    let unfinished: u64 = totals.functions.values().map(|function| function.unfinished).sum();
    if unfinished + totals.nameless > 0 {
        report.notes.push(format!(
            "{unfinished} calls did not end within the trace, and {} ends have neither a beginning nor a name; the \
             times include neither.",
            totals.nameless
        ));
    }
    if totals.unknown_lines > 0 {
        report.warnings.push(format!("{} of {} lines have an unknown format", totals.unknown_lines, totals.lines));
    }
    Ok(())
}
