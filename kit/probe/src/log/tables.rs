//! The report of `probe log`: tables, charts and conclusions for one writer; `group_tables` has those for several.

use stentor_measure::chart::{Chart, Kind, Line as ChartLine};
use stentor_measure::{Cell as TableCell, Column, Place, Report, Table};

use super::LogArgs;
use super::group_tables::{self, Ways};
use super::line::{Line, US, chart_key, per_second};
use super::plan::Commit;
use super::run::LogMeasurement;

const KIB: f64 = 1024.0;

/// None where the device is not known or nothing was committed.
fn per_commit(
    figure: impl Fn(&stentor_measure::DeviceCounters) -> Option<u64>,
) -> impl Fn(&LogMeasurement) -> Option<f64> {
    move |run| {
        let device = run.device.filter(|_| run.commits > 0)?;
        Some(figure(&device)? as f64 / run.commits as f64)
    }
}

pub fn report(options: &LogArgs, place: Place, lines: &[Line]) -> Report {
    let mut report = Report::new("probe-log", "Appending to a log: records made durable");
    report.places.push(place);
    report.parameter("runs", options.output.runs);
    report.parameter("seconds", options.seconds);
    report.parameter("file_mib", options.file_mib);
    if let Some(records) = options.records {
        report.parameter("records", records);
    }
    report.parameter("files", if options.reuse { "reused" } else { "new" });
    if options.gather_us > 0 {
        report.parameter("gather_us", options.gather_us);
    }
    if !options.group_only {
        report.tables.push(log_table(lines));
        report.tables.push(cost_table(lines));
        report.charts.extend(log_charts(lines));
    }
    let ways = group_tables::of(lines);
    if !ways.is_empty() {
        report.tables.push(group_tables::rates(&ways));
        report.tables.push(group_tables::costs(&ways));
        report.charts.push(group_tables::chart(&ways));
    }
    report.notes = notes(options, lines, &ways);
    report.warnings = warnings(lines);
    report
}

/// One writer.
fn singles(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| line.cell.writers == 1 && line.cell.commit == Commit::Alone)
}

fn key_columns() -> Vec<Column> {
    vec![
        Column::new("per_sync", "C"),
        Column::new("record_bytes", "s"),
        Column::folding("file", "file"),
        Column::folding("way", "way"),
        Column::folding("sync", "sync"),
    ]
}

fn key_cells(line: &Line) -> Vec<TableCell> {
    let mut row = vec![TableCell::Count(line.cell.per_sync), TableCell::Count(line.cell.record_bytes)];
    row.extend(line.key());
    row
}

fn log_table(lines: &[Line]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new("records", "records"),
        Column::new("seconds", "time s"),
        Column::new("kib_per_s", "KB/s"),
        Column::new("records_per_s", "records/s"),
        Column::new("sync_mean_us", "sync mean us"),
        Column::new("sync_p50_us", "p50"),
        Column::new("sync_p95_us", "p95"),
        Column::new("sync_p99_us", "p99"),
        Column::new("sync_max_us", "max"),
        Column::new("commit_p50_us", "commit p50 us"),
        Column::new("commit_p99_us", "p99"),
        Column::folding("remark", ""),
    ]);
    let mut table = Table::new("log", "A sync after every C records of s octets, one writer", columns);
    for line in singles(lines) {
        let mut row = key_cells(line);
        row.extend([
            line.median(0, |run| Some(run.records as f64)),
            line.median(2, |run| Some(run.seconds)),
            line.spread(0, per_second(|run| run.payload_bytes as f64 / KIB)),
            line.median(0, per_second(|run| run.records as f64)),
            line.spread(1, |run| Some(run.sync.mean() / US)),
            line.spread(1, |run| Some(run.sync.percentile(0.5) as f64 / US)),
            line.percentile(|run| &run.sync, 0.95),
            line.percentile(|run| &run.sync, 0.99),
            line.longest(|run| &run.sync),
            line.percentile(|run| &run.wait, 0.5),
            line.percentile(|run| &run.wait, 0.99),
            TableCell::text(line.missing.clone().unwrap_or_default()),
        ]);
        table.push(row);
    }
    table
}

fn cost_table(lines: &[Line]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new("syncs_per_s", "syncs/s"),
        Column::new("device_writes_per_commit", "device writes/commit"),
        Column::new("device_flushes_per_commit", "flushes/commit"),
        Column::new("device_kib_per_commit", "KB/commit"),
        Column::new("device_bytes_per_byte", "octets/octet"),
        Column::new("cpu_us_per_record", "CPU us/record"),
    ]);
    let mut table = Table::new("cost", "Cost of a commit for the device (all processes) and the CPU", columns);
    for line in singles(lines) {
        let mut row = key_cells(line);
        row.extend([
            line.spread(0, per_second(|run| run.commits as f64)),
            line.spread(2, per_commit(|device| Some(device.writes))),
            line.spread(2, per_commit(|device| device.flushes)),
            line.median(1, |run| per_commit(|device| Some(device.bytes_written))(run).map(|bytes| bytes / KIB)),
            line.median(2, |run| {
                let bytes = run.device.filter(|_| run.payload_bytes > 0)?.bytes_written;
                Some(bytes as f64 / run.payload_bytes as f64)
            }),
            line.spread(2, |run| (run.records > 0).then(|| run.cpu_s * 1e6 / run.records as f64)),
        ]);
        table.push(row);
    }
    table
}

/// What tells lines of a chart apart.
fn log_charts(lines: &[Line]) -> Vec<Chart> {
    let mut keys: Vec<String> = singles(lines).map(|line| chart_key(&line.cell)).collect();
    keys.dedup();
    let line_of = |name: String, key: &str, figure: &dyn Fn(&Line) -> Option<f64>| {
        let of_key = singles(lines).filter(|line| chart_key(&line.cell) == key);
        let points = of_key.filter_map(|line| Some((line.cell.per_sync as f64, figure(line)?))).collect();
        ChartLine { name, points }
    };
    let kib = |line: &Line| line.middle(per_second(|run| run.payload_bytes as f64 / KIB));
    let rates = keys.iter().map(|key| line_of(key.clone(), key, &kib)).collect();
    let mut latencies = Vec::new();
    for key in &keys {
        for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
            let figure = move |line: &Line| line.middle(|run| Some(run.sync.percentile(share) as f64 / US));
            latencies.push(line_of(format!("{key} {name}"), key, &figure));
        }
    }
    let chart = |name: &str, title: &str, y_unit: &str, lines| {
        let (x_unit, y_unit) = ("records per sync".to_owned(), y_unit.to_owned());
        let kind = Kind::Lines { x_unit, y_unit, log_x: true, log_y: true, lines };
        Chart { name: name.to_owned(), title: title.to_owned(), kind }
    };
    vec![
        chart("rate", "A log's throughput over the records per sync", "KB/s", rates),
        chart("sync", "Latency of a sync over the records per sync", "us", latencies),
    ]
}

fn notes(options: &LogArgs, lines: &[Line], ways: &[Ways<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let rate = |line: &Line| line.middle(per_second(|run| run.payload_bytes as f64 / KIB));
    let of_size = |bytes| singles(lines).filter(move |line| line.cell.record_bytes == bytes);
    if let Some(&bytes) = options.record_bytes.iter().find(|_| !options.group_only) {
        let ends = of_size(bytes)
            .min_by_key(|line| line.cell.per_sync)
            .zip(of_size(bytes).max_by_key(|line| line.cell.per_sync));
        if let Some((few, many)) = ends
            && let (Some(slow), Some(fast)) = (rate(few), rate(many))
            && few.cell.per_sync < many.cell.per_sync
        {
            notes.push(format!(
                "Records of {bytes} octets: a sync after every {} in place of every {} writes {:.1} times as much.",
                many.cell.per_sync,
                few.cell.per_sync,
                fast / slow
            ));
        }
    }
    notes.extend(group_tables::notes(ways));
    notes.push(
        "Timed: sync = the call that makes records durable; commit, wait = from a writer's first octet to its answer. \
         KB are 1024 octets. Writes, flushes and KB are counted for the whole device, including other processes; the \
         flush of a sync also counts as a write."
            .to_owned(),
    );
    if lines.iter().any(|line| line.cell.way.sync_has_write()) {
        notes.push("Where the write itself is durable (O_DSYNC, io_uring), sync includes the write.".to_owned());
    }
    if lines.iter().all(|line| line.runs.iter().all(|run| run.device.is_none())) {
        notes.push(
            "There is no block device here: nothing can be counted, and a sync makes nothing durable.".to_owned(),
        );
    }
    notes
}

fn warnings(lines: &[Line]) -> Vec<String> {
    let few = lines.iter().filter(|line| line.runs.iter().any(|run| run.sync.count() < 10)).count();
    let mut warnings = Vec::new();
    if few > 0 {
        warnings
            .push(format!("{few} lines had fewer than 10 syncs in a run: give more --seconds for their percentiles"));
    }
    warnings
}
