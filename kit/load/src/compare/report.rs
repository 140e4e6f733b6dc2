//! The table of a comparison.

use stentor_measure::chart::{Kind, Series};
use stentor_measure::{Cell, Chart, Column, Place, Report, Spread, Table};

use super::bout::Figures;
use super::options::CompareArgs;
use super::row::Row;

/// More syncs per message than this are no leftovers of a start or of a log.
const NOSYNC_SYNCS_MAX: f64 = 0.05;

pub(super) fn begin(options: &CompareArgs) -> Report {
    let mut report = Report::new("lab-compare", "The same work through each");
    report.parameter("connections", options.connections);
    report.parameter("messages", options.messages);
    report.parameter("size", &options.size);
    report.parameter("recipients_per_message", options.recipients_per_message);
    report.parameter("pipelining", if options.pipelining { "offered" } else { "off" });
    report
}

fn file_system(place: Option<&Place>) -> String {
    place.map_or_else(|| "-".to_owned(), |place| place.file_system.clone())
}

fn sync(row: &Row) -> &'static str {
    match row.with_sync {
        None => "as it runs",
        Some(true) => "on",
        Some(false) => "off",
    }
}

fn sessions(row: &Row) -> &'static str {
    if row.session_each { "each" } else { "kept" }
}

pub(super) fn fill(report: &mut Report, rows: &[Row]) {
    for row in rows {
        if let Some(place) = &row.place {
            // By mount: the folder is another for each contestant.
            let is_new = report.places.iter().all(|known| known.mount_point != place.mount_point);
            if is_new {
                let directory = place.mount_point.clone();
                report.places.push(Place { directory, ..place.clone() });
            }
        }
    }
    let (rates, costs) = (rates(rows), costs(rows));
    report.tables.extend([rates, costs]);
    warnings(report, rows);
    report
        .charts
        .push(chart("accepted", "Messages accepted per second", "messages/s", rows, |f| Some(f.accepted_per_s)));
    report.charts.push(chart("delivered", "Messages delivered per second", "messages/s", rows, |f| f.delivered_per_s));
    report.charts.push(chart("cpu", "CPU per message", "ms", rows, |f| f.cpu_ms));
}

fn head(row: &Row) -> Vec<Cell> {
    vec![
        Cell::text(file_system(row.place.as_ref())),
        row.directory.as_ref().map_or(Cell::Missing, |directory| Cell::text(directory.display().to_string())),
        Cell::text(sync(row)),
        Cell::text(sessions(row)),
        Cell::text(row.contestant.clone()),
    ]
}

fn head_columns() -> Vec<Column> {
    vec![
        Column::new("file_system", "file system"),
        Column::new("directory", "directory"),
        Column::new("sync", "syncs"),
        Column::new("sessions", "sessions"),
        Column::new("contestant", "contestant"),
    ]
}

fn cell(row: &Row, decimals: u8, of: impl Fn(&Figures) -> Option<f64>) -> Cell {
    Cell::spread(row.runs.iter().filter_map(of), decimals)
}

fn rates(rows: &[Row]) -> Table {
    let mut columns = head_columns();
    columns.extend([
        Column::new("accepted_per_s", "accepted/s"),
        Column::new("delivered_per_s", "delivered/s"),
        Column::new("final_p50_ms", "250 p50 ms"),
        Column::new("final_p99_ms", "250 p99 ms"),
        Column::new("cpu_ms", "CPU ms/msg"),
        Column::new("syncs_per_message", "syncs/msg"),
    ]);
    let mut table = Table::new("rates", "Rates; the time from the end of data to its reply", columns);
    for row in rows {
        let mut cells = head(row);
        cells.extend([
            cell(row, 0, |f| Some(f.accepted_per_s)),
            cell(row, 0, |f| f.delivered_per_s),
            cell(row, 2, |f| Some(f.final_p50_ms)),
            cell(row, 2, |f| Some(f.final_p99_ms)),
            cell(row, 3, |f| f.cpu_ms),
            cell(row, 3, |f| f.syncs),
        ]);
        table.push(cells);
    }
    table
}

fn costs(rows: &[Row]) -> Table {
    let mut columns = head_columns();
    columns.extend([
        Column::new("tree_writes_per_message", "writes/msg"),
        Column::new("written_kib_per_message", "KiB written/msg"),
        Column::new("tree_reads_per_message", "reads/msg"),
        Column::new("read_kib_per_message", "KiB read/msg"),
        Column::new("device_reads_per_message", "device reads/msg"),
        Column::new("device_writes_per_message", "device writes/msg"),
        Column::new("device_flushes_per_message", "flushes/msg"),
        Column::new("memory_peak_mib", "peak RSS MiB"),
        Column::new("memory_pss_mib", "PSS MiB"),
    ]);
    let title = "I/O requested by the process tree, I/O completed by the whole device, and memory";
    let mut table = Table::new("costs", title, columns);
    for row in rows {
        let mut cells = head(row);
        cells.extend([
            cell(row, 2, |f| f.tree_writes),
            cell(row, 1, |f| f.written_kib),
            cell(row, 2, |f| f.tree_reads),
            cell(row, 1, |f| f.read_kib),
            cell(row, 2, |f| f.device_reads),
            cell(row, 2, |f| f.device_writes),
            cell(row, 2, |f| f.flushes),
            cell(row, 0, |f| f.memory_peak_mib),
            cell(row, 0, |f| f.memory_pss_mib),
        ]);
        table.push(cells);
    }
    table
}

fn warnings(report: &mut Report, rows: &[Row]) {
    for row in rows {
        let who = format!("{} on {}, syncs {}", row.contestant, file_system(row.place.as_ref()), sync(row));
        let sum = |of: fn(&Figures) -> u64| row.runs.iter().map(of).sum::<u64>();
        let (failed, missing, surplus) = (sum(|f| f.failed), sum(|f| f.missing), sum(|f| f.surplus));
        if failed > 0 {
            report.warnings.push(format!("{who}: {failed} messages were refused"));
        }
        if missing > 0 {
            report
                .warnings
                .push(format!("{who}: {missing} copies did not reach the sink in time (--wait, --no-delivery)"));
        }
        if surplus > 0 {
            report.warnings.push(format!("{who}: {surplus} copies too many"));
        }
        let syncs = Spread::of(row.runs.iter().filter_map(|f| f.syncs));
        if row.with_sync == Some(false) && syncs.is_some_and(|syncs| syncs.median > NOSYNC_SYNCS_MAX) {
            report.warnings.push(format!("{who}: it still syncs; is libeatmydata installed?"));
        }
    }
}

fn chart(name: &str, title: &str, unit: &str, rows: &[Row], of: fn(&Figures) -> Option<f64>) -> Chart {
    let group = |row: &Row| {
        let kind = file_system(row.place.as_ref());
        // Two directories may be on file systems of one kind.
        let is_other = |other: &Row| file_system(other.place.as_ref()) == kind && other.directory != row.directory;
        let where_ = match &row.directory {
            Some(directory) if rows.iter().any(is_other) => format!("{kind} {}", directory.display()),
            _ => kind,
        };
        format!("{where_}, syncs {}, {}", sync(row), sessions(row))
    };
    let mut groups: Vec<String> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        for (list, item) in [(&mut groups, group(row)), (&mut names, row.contestant.clone())] {
            if !list.contains(&item) {
                list.push(item);
            }
        }
    }
    let value = |name: &str, wanted: &str| {
        let row = rows.iter().find(|row| row.contestant == name && group(row) == wanted);
        row.and_then(|row| Spread::of(row.runs.iter().filter_map(of))).map_or(0.0, |spread| spread.median)
    };
    let series =
        |name: &String| Series { name: name.clone(), values: groups.iter().map(|group| value(name, group)).collect() };
    let series = names.iter().map(series).collect();
    Chart { name: name.to_owned(), title: title.to_owned(), kind: Kind::Bars { unit: unit.to_owned(), groups, series } }
}
