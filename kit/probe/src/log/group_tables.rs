//! Tables, chart and conclusions for several writers: the benefit of group commit.

use stentor_measure::chart::{Chart, Kind, Line as ChartLine};
use stentor_measure::{Cell as TableCell, Column, Spread, Table};

use super::line::{Line, chart_key, per_second};
use super::plan::{Cell, Commit};
use super::run::LogMeasurement;

/// Of all writers, this part in a commit is about half of them.
const HALVES: std::ops::RangeInclusive<f64> = 0.4..=0.7;

/// The same work: each writer alone, all through one committer, and through one that waits for them.
pub struct Ways<'a> {
    alone: &'a Line,
    grouped: &'a Line,
    paced: &'a Line,
}

/// All of which there are lines.
pub fn of(lines: &[Line]) -> Vec<Ways<'_>> {
    let find = |cell: Cell| lines.iter().find(|line| line.cell == cell);
    lines
        .iter()
        .filter(|line| line.cell.commit == Commit::Grouped)
        .filter_map(|grouped| {
            let alone = find(Cell { commit: Commit::Alone, ..grouped.cell })?;
            Some(Ways { alone, grouped, paced: find(Cell { commit: Commit::Paced, ..grouped.cell })? })
        })
        .collect()
}

impl<'a> Ways<'a> {
    fn all(&self) -> [&'a Line; 3] {
        [self.alone, self.grouped, self.paced]
    }

    /// Grouped over alone.
    fn gain(&self) -> Option<f64> {
        Some(self.grouped.records_per_s()? / self.alone.records_per_s()?).filter(|gain| gain.is_finite())
    }
}

fn records_per_commit(run: &LogMeasurement) -> Option<f64> {
    (run.commits > 0).then(|| run.records as f64 / run.commits as f64)
}

fn key_columns() -> Vec<Column> {
    vec![
        Column::new("writers", "writers"),
        Column::folding("record_bytes", "s"),
        Column::folding("file", "file"),
        Column::folding("way", "way"),
        Column::folding("sync", "sync"),
    ]
}

fn key_cells(line: &Line) -> Vec<TableCell> {
    let mut row = vec![TableCell::Count(line.cell.writers), TableCell::Count(line.cell.record_bytes)];
    row.extend(line.key());
    row
}

pub fn rates(ways: &[Ways]) -> Table {
    let mut columns = key_columns();
    columns.extend([
        Column::new("alone_records_per_s", "alone records/s"),
        Column::new("grouped_records_per_s", "grouped records/s"),
        Column::new("gain", "times"),
        Column::new("records_per_commit", "records/commit"),
        Column::new("paced_records_per_s", "waiting records/s"),
        Column::new("paced_records_per_commit", "records/commit"),
        Column::new("alone_commit_p50_us", "alone wait p50 us"),
        Column::new("alone_commit_p99_us", "p99"),
        Column::new("grouped_commit_p50_us", "grouped wait p50 us"),
        Column::new("grouped_commit_p99_us", "p99"),
        Column::new("paced_commit_p50_us", "waiting wait p50 us"),
        Column::new("paced_commit_p99_us", "p99"),
        Column::new("grouped_sync_p50_us", "sync p50 us"),
        Column::folding("remark", ""),
    ]);
    let title = "Benefit of group commit: each writer with its own file and syncs; all through one committer; and \
        through one that waits for them where syncs are slow, as Stentor's does";
    let mut table = Table::new("group", title, columns);
    for each in ways {
        let Ways { alone, grouped, paced } = each;
        let mut row = key_cells(grouped);
        let rate = |line: &Line| line.spread(0, per_second(|run| run.records as f64));
        let lots = |line: &Line| line.median(1, records_per_commit);
        let gain = each.gain().map_or(TableCell::Missing, |gain| TableCell::Number(gain, 1));
        row.extend([rate(alone), rate(grouped), gain, lots(grouped), rate(paced), lots(paced)]);
        for line in each.all() {
            row.extend([0.5, 0.99].map(|share| line.percentile(|run| &run.wait, share)));
        }
        row.push(grouped.percentile(|run| &run.sync, 0.5));
        row.push(TableCell::text(grouped.missing.clone().unwrap_or_default()));
        table.push(row);
    }
    table
}

pub fn costs(ways: &[Ways]) -> Table {
    let mut columns = key_columns();
    for (name, title) in
        [("device_writes", "writes/record"), ("device_flushes", "flushes/record"), ("cpu_us", "CPU us/record")]
    {
        columns.push(Column::new(format!("alone_{name}_per_record"), format!("alone {title}")));
        columns.push(Column::new(format!("grouped_{name}_per_record"), "grouped"));
        columns.push(Column::new(format!("paced_{name}_per_record"), "waiting"));
    }
    let title = "Cost per record for the device (all processes) and the CPU";
    let mut table = Table::new("group-cost", title, columns);
    for each in ways {
        let mut row = key_cells(each.grouped);
        for figure in [
            (|run| run.device.map(|device| device.writes as f64)) as fn(&LogMeasurement) -> Option<f64>,
            |run| Some(run.device?.flushes? as f64),
            |run| Some(run.cpu_s * 1e6),
        ] {
            let per_record = |run: &LogMeasurement| {
                let all = figure(run).filter(|_| run.records > 0)?;
                Some(all / run.records as f64)
            };
            row.extend(each.all().map(|line| line.median(2, per_record)));
        }
        table.push(row);
    }
    table
}

pub fn chart(ways: &[Ways]) -> Chart {
    let mut lines: Vec<ChartLine> = Vec::new();
    for each in ways {
        for (line, how) in each.all().into_iter().zip(["alone", "grouped", "waiting"]) {
            let Some(rate) = line.records_per_s() else { continue };
            let name = format!("{how}, {}", chart_key(&each.grouped.cell));
            let point = (each.grouped.cell.writers as f64, rate);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(ChartLine { name, points: vec![point] }),
            }
        }
    }
    let (x_unit, y_unit) = ("writers".to_owned(), "records/s".to_owned());
    let kind = Kind::Lines { x_unit, y_unit, log_x: true, log_y: true, lines };
    Chart { name: "group".to_owned(), title: "Benefit of group commit".to_owned(), kind }
}

/// Of the most writers.
pub fn notes(ways: &[Ways]) -> Vec<String> {
    let with_gain = ways.iter().filter(|each| each.gain().is_some());
    let Some(each) = with_gain.max_by_key(|each| each.grouped.cell.writers) else { return Vec::new() };
    let rate = |line: &Line| line.all_of(per_second(|run| run.records as f64));
    let lots = |line: &Line| line.middle(records_per_commit).unwrap_or_default();
    let (Some(alone), Some(grouped)) = (rate(each.alone), rate(each.grouped)) else { return Vec::new() };
    let writers = each.grouped.cell.writers;
    let mut notes = vec![format!(
        "Group commit: {writers} writers through one committer make {} the same that sync alone, with {:.1} records a \
         commit.",
        times(&grouped, &alone),
        lots(each.grouped)
    )];
    if writers > 1 && HALVES.contains(&(lots(each.grouped) / writers as f64)) {
        notes.push(
            "About half of the writers share each commit: those answered by one commit submit again while the next \
             one, with the others, is in progress."
                .to_owned(),
        );
    }
    if let Some(paced) = rate(each.paced) {
        notes.push(format!(
            "A committer that waits for as many as came the last times, where a sync takes over 4 ms and for half of one at \
             most (as Stentor's does): {} one that does not wait, with {:.1} a commit.",
            times(&paced, &grouped),
            lots(each.paced)
        ));
    }
    notes
}

/// `2.5 times as many records as`, or that they cannot be told apart.
fn times(one: &Spread, other: &Spread) -> String {
    let ratio = one.median / other.median.max(1e-9);
    if one.runs > 1 && one.min <= other.max && other.min <= one.max {
        format!("about as many records (their runs overlap; {ratio:.1} times by the medians) as")
    } else {
        format!("{ratio:.1} times as many records as")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::plan::{FileKind, SyncCall, Way};

    fn line(commit: Commit, records: u64, commits: u64) -> Line {
        let (file, way, sync) = (FileKind::Growing, Way::Pwrite, SyncCall::Fdatasync);
        let cell = Cell { record_bytes: 512, per_sync: 1, file, way, sync, writers: 20, commit };
        let run =
            |more: u64| LogMeasurement { records: records + more, commits, seconds: 1.0, ..LogMeasurement::default() };
        Line { cell, runs: vec![run(0), run(2)], missing: None }
    }

    #[test]
    fn words_say_what_the_committer_did() {
        let said = |lines: &[Line]| notes(&of(lines)).join(" ");
        let halves = [line(Commit::Alone, 100, 100), line(Commit::Grouped, 1000, 100), line(Commit::Paced, 1900, 100)];
        let text = said(&halves);
        assert!(text.contains("9.9 times as many records as the same that sync alone, with 10.0 records"), "{text}");
        assert!(
            text.contains("About half of the writers")
                && text.contains("1.9 times as many records as one that does not wait"),
            "{text}"
        );
        let full = [line(Commit::Alone, 100, 100), line(Commit::Grouped, 1900, 100), line(Commit::Paced, 1901, 100)];
        let text = said(&full);
        assert!(!text.contains("About half") && text.contains("about as many"), "{text}");
        assert_eq!(of(&full[..2]).len(), 0);
    }
}
