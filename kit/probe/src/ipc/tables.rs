//! The report of `probe ipc`.

use stentor_measure::chart::{Chart, Kind, Line as ChartLine};
use stentor_measure::{Cell, Column, Report, Spread, Table};

use super::ends::IpcMeasurement;
use super::{Between, IpcArgs, Line, Transport};

const MIB: f64 = 1024.0 * 1024.0;
const US: f64 = 1000.0;

fn per_second(run: &IpcMeasurement) -> f64 {
    run.count as f64 / run.seconds.max(1e-9)
}

fn cpu_us_each(run: &IpcMeasurement) -> Option<f64> {
    run.cpu_s.filter(|_| run.count > 0).map(|cpu_s| cpu_s * 1e6 / run.count as f64)
}

pub fn report(options: &IpcArgs, lines: &[Line]) -> Report {
    let mut report = Report::new("probe-ipc", "Asking another process on this machine");
    let between = match options.between {
        Between::Processes => "two processes",
        Between::Threads => "two threads",
    };
    report.parameter("runs", options.output.runs);
    report.parameter("seconds", options.seconds);
    report.parameter("between", between);
    report.tables.push(round_trips(lines));
    report.tables.push(one_way(lines));
    report.charts = charts(options, lines);
    report.notes.extend(comparison(lines));
    report.notes.push(format!(
        "Between {between}, on one connection, one request at a time, without CPU pinning; TCP is 127.0.0.1 with \
         TCP_NODELAY. CPU is the sum of both sides. One way: timed until the other side confirms that it has \
         everything."
    ));
    report
}

fn round_trips(lines: &[Line]) -> Table {
    let columns = vec![
        Column::new("bytes", "octets"),
        Column::new("transport", "transport"),
        Column::new("round_trips_per_s", "round trips/s"),
        Column::new("p50_us", "p50 us"),
        Column::new("p95_us", "p95"),
        Column::new("p99_us", "p99"),
        Column::new("max_us", "max"),
        Column::new("cpu_us_per_round_trip", "CPU us each"),
    ];
    let mut table = Table::new("round-trips", "Request and answer, by size of each", columns);
    for line in lines {
        let runs = &line.round_trips;
        let percentile = |share: f64| {
            let all = Spread::of(runs.iter().map(|run| run.latency.percentile(share) as f64 / US));
            all.map_or(Cell::Missing, |spread| Cell::Number(spread.median, 1))
        };
        let longest = runs.iter().map(|run| run.latency.greatest()).max();
        table.push(vec![
            Cell::Count(line.bytes),
            Cell::text(line.transport.word()),
            Cell::spread(runs.iter().map(per_second), 0),
            Cell::spread(runs.iter().map(|run| run.latency.percentile(0.5) as f64 / US), 1),
            percentile(0.95),
            percentile(0.99),
            longest.map_or(Cell::Missing, |ns| Cell::Number(ns as f64 / US, 1)),
            Cell::spread(runs.iter().filter_map(cpu_us_each), 1),
        ]);
    }
    table
}

fn one_way(lines: &[Line]) -> Table {
    let columns = vec![
        Column::new("bytes", "octets a write"),
        Column::new("transport", "transport"),
        Column::new("mib_per_s", "MiB/s"),
        Column::new("cpu_us_per_mib", "CPU us/MiB"),
    ];
    let mut table = Table::new("one-way", "One way, by size of a write", columns);
    for line in lines {
        let runs = &line.one_way;
        table.push(vec![
            Cell::Count(line.bytes),
            Cell::text(line.transport.word()),
            Cell::spread(runs.iter().map(|run| per_second(run) / MIB), 1),
            Cell::spread(runs.iter().filter_map(cpu_us_each).map(|us| us * MIB), 1),
        ]);
    }
    table
}

fn median_us(line: &Line) -> Option<f64> {
    Spread::of(line.round_trips.iter().map(|run| run.latency.percentile(0.5) as f64 / US)).map(|spread| spread.median)
}

/// The least and the greatest size, in words.
fn comparison(lines: &[Line]) -> Vec<String> {
    let of =
        |transport, bytes| median_us(lines.iter().find(|line| line.transport == transport && line.bytes == bytes)?);
    let sizes = lines.iter().map(|line| line.bytes);
    let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max()) else { return Vec::new() };
    let mut ends = vec![least, most];
    ends.dedup();
    ends.into_iter()
        .filter_map(|bytes| {
            let (tcp, unix) = (of(Transport::Tcp, bytes)?, of(Transport::Unix, bytes)?);
            Some(format!(
                "For {bytes} octets: {tcp:.1} us over TCP, {unix:.1} us over a Unix socket ({:.1} times).",
                tcp / unix
            ))
        })
        .collect()
}

fn charts(options: &IpcArgs, lines: &[Line]) -> Vec<Chart> {
    let chart = |name: &str, title: &str, y_unit: &str, figure: &dyn Fn(&Line) -> Option<f64>| {
        let of_transport = |transport: &Transport| {
            let of_transport = lines.iter().filter(|line| line.transport == *transport);
            let points = of_transport.filter_map(|line| Some((line.bytes as f64, figure(line)?))).collect();
            ChartLine { name: transport.word(), points }
        };
        let lines = options.transport.iter().map(of_transport).collect();
        let (x_unit, y_unit) = ("octets".to_owned(), y_unit.to_owned());
        let kind = Kind::Lines { x_unit, y_unit, log_x: true, log_y: true, lines };
        Chart { name: name.to_owned(), title: title.to_owned(), kind }
    };
    let rate =
        |line: &Line| Spread::of(line.one_way.iter().map(|run| per_second(run) / MIB)).map(|spread| spread.median);
    vec![
        chart("round-trip", "A round trip's median by octets", "us", &median_us),
        chart("one-way", "One way by octets of a write", "MiB/s", &rate),
    ]
}
