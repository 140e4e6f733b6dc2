//! The pictures of a report.

use std::collections::BTreeMap;

use stentor_measure::Report;
use stentor_measure::chart::{Chart, Kind, Series, Span};

use super::layer::Layer;
use super::operation_runs::{self, OperationRuns};
use super::people::ThreadRole;
use super::{Analysis, Line, around, tables};

/// Pictures of one kind of operation each are drawn for so many.
const EACH_MAX: usize = 12;
/// Steps of the picture of calls. More places and works than so many are a map: bars of so many colours tell nothing.
const FUNCTIONS_MAX: usize = 14;
const BARS_EACH_MAX: usize = 5;
const BARS_MAX: usize = 40;
/// Lines of a waterfall, and the shortest one, as a share of the whole.
const LINES_MAX: usize = 36;
const LINE_SHARE_MIN: f64 = 0.004;
/// Of a heat map.
const COLUMNS_MAX: usize = 60;

pub fn fill(analyses: &[Analysis], report: &mut Report) {
    let merged = operation_runs::worth_telling(&operation_runs::merge(analyses));
    if merged.is_empty() {
        return;
    }
    report.charts.push(layers(&merged));
    report.charts.push(calls(&merged));
    report.charts.push(interference(&merged));
    for (number, one) in merged.iter().take(EACH_MAX).enumerate() {
        report.charts.extend(waterfall(one, number));
        report.charts.extend(heat(one, number));
    }
}

fn layers(merged: &[OperationRuns<'_>]) -> Chart {
    // All layers, that each has its colour in every picture; a legend without "unattributed" would not say that there
    // is none.
    let series = Layer::EVERY.iter().map(|layer| Series {
        name: layer.name().to_owned(),
        values: merged.iter().map(|one| one.layers()[layer.index()] as f64 / (one.wall() as f64).max(1.0)).collect(),
    });
    Chart {
        name: "layers".to_owned(),
        title: "Time of an operation, by layer".to_owned(),
        kind: Kind::Stacked { unit: "%".to_owned(), groups: names(merged), series: series.collect(), is_share: true },
    }
}

/// Labels whose numbers keep their units beside them, and that say whose figures are too low.
fn names(merged: &[OperationRuns<'_>]) -> Vec<String> {
    let keep = |label: String, unit: &&str| label.replace(&format!(" {unit}"), &format!("\u{a0}{unit}"));
    let named = operation_runs::labels(merged).into_iter().zip(merged).map(|(label, one)| {
        let label = ["B", "KiB", "MiB"].iter().fold(label, keep);
        if one.lost() > 0 { format!("{label} (events lost)") } else { label }
    });
    named.collect()
}

fn calls(merged: &[OperationRuns<'_>]) -> Chart {
    let sums: Vec<_> = merged.iter().map(tables::summed).collect();
    let per_operation = |at: usize, step: &super::Step| {
        let calls = sums[at].get(step).map_or(0, |sum| sum.calls);
        calls as f64 / merged[at].operations().max(1) as f64
    };
    // Those that matter most anywhere.
    let mut weights: BTreeMap<&super::Step, f64> = BTreeMap::new();
    for (one, sums) in merged.iter().zip(&sums) {
        let told =
            |step: &super::Step| !matches!(step.layer, Layer::Application | Layer::Scheduler | Layer::Unattributed);
        for (step, sum) in sums.iter().filter(|(step, _)| told(step)) {
            let weight = weights.entry(step).or_default();
            *weight = weight.max(sum.inclusive as f64 / (one.wall() as f64).max(1.0));
        }
    }
    let mut steps: Vec<(&super::Step, f64)> = weights.into_iter().collect();
    steps.sort_by(|a, b| b.1.total_cmp(&a.1));
    let is_map = merged.len() > BARS_EACH_MAX;
    steps.truncate(if is_map { FUNCTIONS_MAX } else { (BARS_MAX / merged.len()).min(FUNCTIONS_MAX) });
    let rows = steps.iter().map(|(step, _)| step.name.to_string()).collect();
    let kind = if is_map {
        let calls = |step: &super::Step| -> Vec<Option<f64>> {
            (0..merged.len()).map(|at| Some(per_operation(at, step)).filter(|calls| *calls > 0.0)).collect()
        };
        Kind::Heat {
            unit: "calls".to_owned(),
            x_unit: String::new(),
            y_unit: "calls an operation".to_owned(),
            columns: names(merged),
            rows,
            values: steps.iter().map(|(step, _)| calls(step)).collect(),
        }
    } else {
        let series = names(merged)
            .into_iter()
            .enumerate()
            .map(|(at, name)| Series { name, values: steps.iter().map(|(step, _)| per_operation(at, step)).collect() });
        Kind::Bars { unit: "calls an operation".to_owned(), groups: rows, series: series.collect() }
    };
    Chart { name: "calls".to_owned(), title: "Calls of each step".to_owned(), kind }
}

fn interference(merged: &[OperationRuns<'_>]) -> Chart {
    let series = ThreadRole::EVERY.iter().map(|role| Series {
        name: role.name().to_owned(),
        values: merged
            .iter()
            .map(|one| around::shares(&one.runs.iter().map(|(a, _)| *a).collect::<Vec<_>>(), *role) / 100.0)
            .collect(),
    });
    Chart {
        name: "interference".to_owned(),
        title: "Events by origin".to_owned(),
        kind: Kind::Stacked { unit: "%".to_owned(), groups: names(merged), series: series.collect(), is_share: true },
    }
}

fn waterfall(one: &OperationRuns<'_>, number: usize) -> Option<Chart> {
    let median = &one.median_run()?.median;
    let whole = median.iter().map(|line| line.end).max()?;
    let long = |line: &&Line| (line.end - line.start) as f64 >= LINE_SHARE_MIN * whole as f64;
    let mut shown: Vec<&Line> = median.iter().filter(long).collect();
    while shown.len() > LINES_MAX {
        // The shortest gives way.
        let shortest = shown.iter().enumerate().min_by_key(|(_, line)| line.end - line.start).map(|(at, _)| at)?;
        shown.remove(shortest);
    }
    let spans = shown.into_iter().map(|line| Span {
        label: line.step.name.to_string(),
        group: line.step.layer.name().to_owned(),
        depth: line.depth,
        start: line.start as f64 / 1000.0,
        end: line.end as f64 / 1000.0,
    });
    Some(Chart {
        name: format!("waterfall-{}", number + 1),
        title: format!("A median operation: {}", one.title()),
        kind: Kind::Waterfall {
            unit: "us".to_owned(),
            groups: Layer::EVERY.iter().map(|layer| layer.name().to_owned()).collect(),
            spans: spans.collect(),
        },
    })
}

/// How many operations took how long, over the course of a run.
fn heat(one: &OperationRuns<'_>, number: usize) -> Option<Chart> {
    let group = one.median_run()?;
    let from = group.rows.iter().map(|row| row.start_ns).min()?;
    let to = group.rows.iter().map(|row| row.start_ns).max()?;
    let columns = group.rows.len().min(COLUMNS_MAX);
    let (least, most) = (
        group.rows.iter().map(|row| row.wall_ns).min()?.max(1),
        group.rows.iter().map(|row| row.wall_ns).max()?.max(1),
    );
    // Four rows a factor of two, as many as there are.
    let bucket = |ns: u64| (4.0 * (ns.max(1) as f64 / least as f64).log2()).floor() as usize;
    let rows = bucket(most).min(63) + 1;
    let mut values = vec![vec![None; columns]; rows];
    let span = (to - from).max(1) as f64;
    for row in &group.rows {
        let column = (((row.start_ns - from) as f64 / span) * columns as f64) as usize;
        let cell: &mut Option<f64> = &mut values[rows - 1 - bucket(row.wall_ns).min(rows - 1)][column.min(columns - 1)];
        *cell = Some(cell.unwrap_or(0.0) + 1.0);
    }
    let time = |column: usize| format!("{:.1}", span * column as f64 / columns as f64 / 1e6);
    let label = |row: usize| {
        let us = least as f64 * (((rows - 1 - row) as f64) / 4.0).exp2() / 1000.0;
        // Three figures, that neighbours differ.
        let places = if us < 10.0 { 2 } else { usize::from(us < 100.0) };
        format!("{us:.places$}")
    };
    Some(Chart {
        name: format!("heat-{}", number + 1),
        title: format!("Latency over a run: {}", one.title()),
        kind: Kind::Heat {
            unit: "operations".to_owned(),
            x_unit: "ms since the first began".to_owned(),
            y_unit: "us, from".to_owned(),
            columns: (0..columns).map(time).collect(),
            rows: (0..rows).map(label).collect(),
            values,
        },
    })
}
