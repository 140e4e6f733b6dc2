//! The report of `probe raw`.

use stentor_measure::chart::{Chart, Kind, Line as ChartLine};
use stentor_measure::{Cell, Column, Place, Report, Spread, Table};

use super::pass::PassMeasurement;
use super::{Line, Mode, RawArgs};
use crate::trouble::show_bytes;

const MIB: f64 = 1024.0 * 1024.0;
const US: f64 = 1000.0;
/// More of a file in the page cache than this is worth a warning.
const CACHED_MAX: f64 = 0.05;

fn mib_per_s(run: &PassMeasurement) -> f64 {
    run.bytes as f64 / MIB / run.seconds.max(1e-9)
}

impl Line {
    fn spread(&self, decimals: u8, figure: impl Fn(&PassMeasurement) -> f64) -> Cell {
        Cell::spread(self.runs.iter().map(figure), decimals)
    }
}

pub fn report(options: &RawArgs, place: Place, lines: &[Line]) -> Report {
    let mut report = Report::new("probe-raw", "Sequential throughput");
    let has_device = place.device.is_some();
    report.places.push(place);
    report.parameter("runs", options.output.runs);
    report.parameter("seconds", options.seconds);
    report.parameter("file_mib", options.file_mib);
    report.parameter("file", format!("{:?}", options.file).to_lowercase());
    report.tables.push(rates(options, lines));
    report.tables.push(calls(lines));
    report.charts.push(chart(options, lines));
    report.notes.push(
        "Timed: the calls, one after the other, and with write-sync also the fdatasync at the end. MiB are 1024 x \
         1024 octets. \
         Before each pass the file was synced and dropped from the page cache (POSIX_FADV_DONTNEED)."
            .to_owned(),
    );
    if !has_device {
        report.notes.push("There is no block device here: everything is in memory.".to_owned());
    }
    let cached = lines.iter().flat_map(|line| &line.runs).map(|run| run.cached).fold(0.0, f64::max);
    if cached > CACHED_MAX {
        report.warnings.push(format!(
            "up to {:.0} % of a read came from the page cache: these are not figures of the device",
            cached * 100.0
        ));
    }
    report
}

fn column_of(mode: Mode) -> Column {
    let (name, title) = match mode {
        Mode::Write => ("write_mib_per_s", "write MiB/s"),
        Mode::WriteSync => ("write_sync_mib_per_s", "write, sync"),
        Mode::WriteDirect => ("write_direct_mib_per_s", "write direct"),
        Mode::Read => ("read_mib_per_s", "read"),
        Mode::ReadDirect => ("read_direct_mib_per_s", "read direct"),
    };
    Column::new(name, title)
}

fn rates(options: &RawArgs, lines: &[Line]) -> Table {
    let mut columns = vec![Column::new("block_bytes", "octets a call")];
    columns.extend(options.mode.iter().map(|mode| column_of(*mode)));
    let mut table = Table::new("rates", "MiB/s by octets of a call", columns);
    for &block in &options.block_bytes {
        let mut row = vec![Cell::Count(block)];
        for mode in &options.mode {
            let line = lines.iter().find(|line| line.mode == *mode && line.block_bytes == block);
            row.push(line.map_or(Cell::Missing, |line| line.spread(1, mib_per_s)));
        }
        table.push(row);
    }
    table
}

fn calls(lines: &[Line]) -> Table {
    let columns = vec![
        Column::new("mode", "mode"),
        Column::new("block_bytes", "octets a call"),
        Column::new("mib", "MiB"),
        Column::new("seconds", "time s"),
        Column::new("mib_per_s", "MiB/s"),
        Column::new("calls_per_s", "calls/s"),
        Column::new("call_p50_us", "call p50 us"),
        Column::new("call_p99_us", "p99"),
        Column::new("call_max_us", "max"),
        Column::new("cpu_ms_per_mib", "CPU ms/MiB"),
        Column::folding("remark", ""),
    ];
    let mut table = Table::new("calls", "Details by call", columns);
    for line in lines {
        let median = |decimals, figure: fn(&PassMeasurement) -> f64| {
            let spread = Spread::of(line.runs.iter().map(figure));
            spread.map_or(Cell::Missing, |spread| Cell::Number(spread.median, decimals))
        };
        let longest = line.runs.iter().map(|run| run.calls.greatest()).max();
        table.push(vec![
            Cell::text(line.mode.word()),
            Cell::Count(line.block_bytes),
            median(1, |run| run.bytes as f64 / MIB),
            median(3, |run| run.seconds),
            line.spread(1, mib_per_s),
            median(0, |run| run.calls.count() as f64 / run.seconds.max(1e-9)),
            median(1, |run| run.calls.percentile(0.5) as f64 / US),
            median(1, |run| run.calls.percentile(0.99) as f64 / US),
            longest.map_or(Cell::Missing, |ns| Cell::Number(ns as f64 / US, 1)),
            median(3, |run| run.cpu_s * 1000.0 * MIB / run.bytes as f64),
            Cell::text(line.missing.clone().unwrap_or_default()),
        ]);
    }
    table
}

fn chart(options: &RawArgs, lines: &[Line]) -> Chart {
    let of_mode = |mode: &Mode| {
        let of_mode = lines.iter().filter(|line| line.mode == *mode);
        let point = |line: &Line| {
            let spread = Spread::of(line.runs.iter().map(mib_per_s))?;
            Some((line.block_bytes as f64, spread.median))
        };
        ChartLine { name: mode.word(), points: of_mode.filter_map(point).collect() }
    };
    let sizes: Vec<String> = options.block_bytes.iter().map(|bytes| show_bytes(*bytes)).collect();
    let kind = Kind::Lines {
        x_unit: "octets a call".to_owned(),
        y_unit: "MiB/s".to_owned(),
        log_x: true,
        log_y: true,
        lines: options.mode.iter().map(of_mode).collect(),
    };
    Chart { name: "rates".to_owned(), title: format!("Sequential throughput, calls of {}", sizes.join(", ")), kind }
}
