//! The tables of a report, and its conclusions in words.

use std::collections::{BTreeMap, BTreeSet};

use stentor_measure::{Cell, Column, Histogram, Report, Spread, Table};

use super::cells::{columns, head, percent, us};
use super::layer::{Layer, Step};
use super::operation_runs::{self, OperationRuns};
use super::requests::Kind;
use super::tally::RequestTally;
use super::{Analysis, Group, StepTally, around};

/// Exclusive times that sum to less than this share of the time measured, or to more than its inverse, are a fault.
const SUM_TOLERANCE_PERCENT: f64 = 5.0;
const UNATTRIBUTED_PERCENT_MAX: f64 = 10.0;
/// Steps below this share of an operation are summed up.
const STEP_SHARE_MIN: f64 = 0.002;
/// More of the events than this come from others: said.
const INTERFERENCE_PERCENT_MAX: f64 = 25.0;
/// Columns of the table that has places side by side.
const SIDE_BY_SIDE_MAX: usize = 12;

pub fn fill(analyses: &[Analysis], report: &mut Report) {
    let merged = operation_runs::merge(analyses);
    if merged.iter().all(|one| one.operations() == 0) {
        report.warnings.push("no operation was seen, so there is nothing to explain".to_owned());
        report.tables.push(around::events(analyses));
        return;
    }
    report.tables.push(operations(&merged));
    report.tables.push(layers(&merged, "layers-us", "Exclusive microseconds per operation, by layer", Show::Time));
    report.tables.push(layers(&merged, "layers-percent", "Share of each layer, percent", Show::Share));
    report.tables.push(percentiles(&merged));
    report.tables.push(requests(&merged));
    report.tables.push(functions(&merged));
    report.tables.push(steps(&merged, "steps", STEP_SHARE_MIN));
    report.details.push(steps(&merged, "every-step", 0.0));
    report.tables.push(around::interference(&merged));
    report.tables.push(around::people(&merged));
    report.tables.push(around::cpus(&merged));
    report.tables.push(around::events(analyses));
    notes(&merged, report);
}

fn walls(group: &Group) -> Histogram {
    let mut histogram = Histogram::default();
    group.rows.iter().for_each(|row| histogram.add(row.wall_ns));
    histogram
}

fn mean_wall(group: &Group) -> f64 {
    group.rows.iter().map(|row| row.wall_ns as f64).sum::<f64>() / group.rows.len().max(1) as f64
}

fn operations(merged: &[OperationRuns<'_>]) -> Table {
    let columns = columns(&[
        ("operations_per_run", "operations"),
        ("mean_us", "mean us"),
        ("p50_us", "p50 us"),
        ("p95_us", "p95 us"),
        ("p99_us", "p99 us"),
        ("sum_percent", "layers' sum %"),
        ("calls_percent", "in calls %"),
        ("unattributed_percent", "unattributed %"),
        ("events", "events"),
        ("lost", "lost"),
    ]);
    let mut table = Table::new("operations", "Operations, and the share of their time explained by the trace", columns);
    for one in merged {
        let percentile = |share: f64| Cell::spread(one.each(|_, group| us(walls(group).percentile(share) as f64)), 1);
        let wall = |group: &Group| group.rows.iter().map(|row| row.wall_ns as f64).sum::<f64>();
        let sum = |group: &Group| group.rows.iter().flat_map(|row| row.layers).sum::<u64>() as f64;
        let calls = |group: &Group| group.rows.iter().map(|row| row.in_calls_ns as f64).sum::<f64>();
        let at = Layer::Unattributed.index();
        let unknown = |group: &Group| group.rows.iter().map(|row| row.layers[at] as f64).sum::<f64>();
        let mut row = head(one);
        row.extend([
            Cell::spread(one.each(|_, group| group.rows.len() as f64), 0),
            Cell::spread(one.each(|_, group| us(mean_wall(group))), 1),
            percentile(0.5),
            percentile(0.95),
            percentile(0.99),
            Cell::spread(one.each(|_, group| percent(sum(group), wall(group))), 1),
            Cell::spread(one.each(|_, group| percent(calls(group), wall(group))), 1),
            Cell::spread(one.each(|_, group| percent(unknown(group), wall(group))), 2),
            Cell::spread(one.each(|analysis, _| analysis.events() as f64), 0),
            Cell::Count(one.lost()),
        ]);
        table.push(row);
    }
    table
}

#[derive(Clone, Copy, PartialEq)]
enum Show {
    Time,
    Share,
}

const LAYER_COLUMNS: [&str; Layer::COUNT] = [
    "application",
    "system_call",
    "page_cache",
    "file_system",
    "journal",
    "block_layer",
    "device",
    "scheduler",
    "interrupt",
    "unattributed",
];

/// One row a place and work, one column a layer.
fn layers(merged: &[OperationRuns<'_>], name: &str, title: &str, show: Show) -> Table {
    let mut all = columns(&[]);
    for (layer, name) in Layer::EVERY.iter().zip(LAYER_COLUMNS) {
        all.push(Column::new(name, layer.name()));
    }
    all.push(Column::new("sum", "sum"));
    let mut table = Table::new(name, title, all);
    for one in merged {
        let of = |group: &Group, ns: f64| match show {
            Show::Time => us(ns / group.rows.len().max(1) as f64),
            Show::Share => percent(ns, mean_wall(group) * group.rows.len() as f64),
        };
        let mut row = head(one);
        for at in 0..Layer::COUNT {
            let ns = |group: &Group| group.rows.iter().map(|row| row.layers[at] as f64).sum::<f64>();
            row.push(median(one.each(|_, group| of(group, ns(group)))));
        }
        let sum = |group: &Group| group.rows.iter().flat_map(|row| row.layers).sum::<u64>() as f64;
        row.push(median(one.each(|_, group| of(group, sum(group)))));
        table.push(row);
    }
    table
}

/// A table with a column a layer has no room for spreads; they are in the table of percentiles.
fn median(values: Vec<f64>) -> Cell {
    Spread::of(values).map_or(Cell::Missing, |spread| Cell::Number(spread.median, 1))
}

fn percentiles(merged: &[OperationRuns<'_>]) -> Table {
    let columns = columns(&[
        ("layer", "layer"),
        ("exclusive_us", "exclusive us"),
        ("inclusive_us", "inclusive us"),
        ("p50_us", "p50 us"),
        ("p95_us", "p95 us"),
        ("p99_us", "p99 us"),
        ("total_ms", "total ms"),
        ("share_percent", "share %"),
    ]);
    let title =
        "Layers: exclusive is the layer's own time (also p50 and on), inclusive adds everything that it waited for";
    let mut table = Table::new("layers", title, columns);
    for one in merged {
        let (sums, wall) = (one.layers(), one.wall() as f64);
        for layer in Layer::EVERY {
            let at = layer.index();
            let mut exclusive = Histogram::default();
            let rows = one.runs.iter().flat_map(|(_, group)| &group.rows);
            rows.for_each(|row| exclusive.add(row.layers[at]));
            let count = |group: &Group| group.rows.len().max(1) as f64;
            let own = |group: &Group| group.rows.iter().map(|row| row.layers[at] as f64).sum::<f64>();
            let inclusive: u64 = one.runs.iter().map(|(_, group)| group.inclusive[at]).sum();
            if inclusive == 0 {
                continue;
            }
            let mut row = head(one);
            row.extend([
                Cell::text(layer.name()),
                Cell::spread(one.each(|_, group| us(own(group) / count(group))), 1),
                Cell::spread(one.each(|_, group| us(group.inclusive[at] as f64 / count(group))), 1),
                Cell::Number(us(exclusive.percentile(0.5) as f64), 1),
                Cell::Number(us(exclusive.percentile(0.95) as f64), 1),
                Cell::Number(us(exclusive.percentile(0.99) as f64), 1),
                Cell::Number(sums[at] as f64 / 1e6, 2),
                Cell::Number(percent(sums[at] as f64, wall), 1),
            ]);
            table.push(row);
        }
    }
    table
}

/// What blktrace or biolatency would say: whole times, also of what nobody waited for.
fn requests(merged: &[OperationRuns<'_>]) -> Table {
    let columns = columns(&[
        ("request", "request"),
        ("requests_per_operation", "requests/op"),
        ("before_us", "before us"),
        ("before_p95_us", "p95 us"),
        ("device_us", "device us"),
        ("device_p50_us", "p50 us"),
        ("device_p95_us", "p95 us"),
        ("device_p99_us", "p99 us"),
        ("device_total_ms", "total ms"),
    ]);
    let title =
        "Requests issued during operations by any process: before is bio to issue, device is issue to completion";
    let mut table = Table::new("requests", title, columns);
    for one in merged {
        let mut sums: BTreeMap<Kind, RequestTally> = BTreeMap::new();
        for (kind, tally) in one.runs.iter().flat_map(|(_, group)| &group.requests) {
            let sum = sums.entry(*kind).or_default();
            sum.count += tally.count;
            sum.before.merge(&tally.before);
            sum.served.merge(&tally.served);
        }
        for (kind, sum) in sums {
            let of = |histogram: &Histogram, figure: f64| match histogram.count() {
                0 => Cell::Missing,
                _ => Cell::Number(us(figure), 1),
            };
            let mean = |histogram: &Histogram| of(histogram, histogram.mean());
            let percentile = |histogram: &Histogram, share: f64| of(histogram, histogram.percentile(share) as f64);
            let mut row = head(one);
            row.extend([
                Cell::text(kind.name()),
                Cell::Number(sum.count as f64 / one.operations().max(1) as f64, 2),
                mean(&sum.before),
                percentile(&sum.before, 0.95),
                mean(&sum.served),
                percentile(&sum.served, 0.5),
                percentile(&sum.served, 0.95),
                percentile(&sum.served, 0.99),
                Cell::Number(sum.served.sum() as f64 / 1e6, 2),
            ]);
            table.push(row);
        }
    }
    table
}

/// The steps of all runs of a kind together.
pub fn summed(one: &OperationRuns<'_>) -> BTreeMap<Step, StepTally> {
    let mut sums: BTreeMap<Step, StepTally> = BTreeMap::new();
    for (step, tally) in one.runs.iter().flat_map(|(_, group)| &group.steps) {
        let sum = sums.entry(step.clone()).or_default();
        sum.calls += tally.calls;
        sum.exclusive += tally.exclusive;
        sum.inclusive += tally.inclusive;
        sum.per_call.merge(&tally.per_call);
    }
    sums
}

/// Mean inclusive microseconds of a call: functions down, places across.
fn functions(merged: &[OperationRuns<'_>]) -> Table {
    let shown = &merged[..merged.len().min(SIDE_BY_SIDE_MAX)];
    let mut columns = vec![Column::new("layer", "layer"), Column::new("step", "step")];
    for (one, label) in shown.iter().zip(operation_runs::labels(shown)) {
        columns.push(Column::new(column_name(&one.label()), label));
    }
    let mut table = Table::new("functions", "Mean microseconds per call, including calls below it", columns);
    let sums: Vec<BTreeMap<Step, StepTally>> = shown.iter().map(summed).collect();
    // Largest first, by the greatest share that a step has anywhere.
    let mut weights: BTreeMap<&Step, f64> = BTreeMap::new();
    for (one, sums) in shown.iter().zip(&sums) {
        for (step, sum) in sums {
            let share = sum.inclusive as f64 / (one.wall() as f64).max(1.0);
            let weight = weights.entry(step).or_default();
            *weight = weight.max(share);
        }
    }
    let mut order: Vec<(&Step, f64)> = weights.into_iter().filter(|(_, weight)| *weight >= STEP_SHARE_MIN).collect();
    order.sort_by(|a, b| (a.0.layer, b.1).partial_cmp(&(b.0.layer, a.1)).unwrap_or(std::cmp::Ordering::Equal));
    for (step, _) in order {
        let mut row = vec![Cell::text(step.layer.name()), Cell::text(&*step.name)];
        row.extend(sums.iter().map(|sums| match sums.get(step) {
            Some(sum) if sum.calls > 0 => Cell::Number(us(sum.inclusive as f64 / sum.calls as f64), 1),
            _ => Cell::Missing,
        }));
        table.push(row);
    }
    table
}

/// `mean_us_tmp_ext4_on_vda_4_kib`.
fn column_name(label: &str) -> String {
    let mut name = "mean_us".to_owned();
    for word in label.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        name.push('_');
        name.push_str(&word.to_ascii_lowercase());
    }
    name
}

/// Those with less than `share_min` of the time, inclusive, are one row.
fn steps(merged: &[OperationRuns<'_>], name: &str, share_min: f64) -> Table {
    let columns = columns(&[
        ("layer", "layer"),
        ("step", "step"),
        ("calls_per_operation", "calls/op"),
        ("exclusive_us", "exclusive us/op"),
        ("share_percent", "share %"),
        ("inclusive_us", "inclusive us/op"),
        ("mean_us", "us/call"),
        ("p50_us", "p50 us"),
        ("p95_us", "p95 us"),
        ("p99_us", "p99 us"),
        ("total_ms", "total ms"),
    ]);
    let title = "Steps: us/call and its percentiles are inclusive";
    let mut table = Table::new(name, title, columns);
    for one in merged {
        let (operations, wall) = (one.operations().max(1) as f64, one.wall() as f64);
        let mut sums: Vec<(Step, StepTally)> = summed(one).into_iter().collect();
        sums.sort_by_key(|(step, sum)| (std::cmp::Reverse(sum.exclusive), step.clone()));
        let small = |sum: &StepTally| (sum.inclusive as f64) < share_min * wall;
        let (rest, shown): (Vec<_>, Vec<_>) = sums.into_iter().partition(|(_, sum)| small(sum));
        for (step, sum) in shown {
            let mut row = head(one);
            row.extend([
                Cell::text(step.layer.name()),
                Cell::text(&*step.name),
                Cell::Number(sum.calls as f64 / operations, 2),
                Cell::spread(one.each(|_, group| exclusive(group, &step)), 2),
                Cell::Number(percent(sum.exclusive as f64, wall), 2),
                Cell::Number(us(sum.inclusive as f64 / operations), 2),
                Cell::Number(us(sum.inclusive as f64 / sum.calls.max(1) as f64), 2),
                Cell::Number(us(sum.per_call.percentile(0.5) as f64), 2),
                Cell::Number(us(sum.per_call.percentile(0.95) as f64), 2),
                Cell::Number(us(sum.per_call.percentile(0.99) as f64), 2),
                Cell::Number(sum.inclusive as f64 / 1e6, 2),
            ]);
            table.push(row);
        }
        if !rest.is_empty() {
            let calls: u64 = rest.iter().map(|(_, sum)| sum.calls).sum();
            let own: u64 = rest.iter().map(|(_, sum)| sum.exclusive).sum();
            let mut row = head(one);
            row.extend([
                Cell::text("several"),
                Cell::text(format!("{} other steps", rest.len())),
                Cell::Number(calls as f64 / operations, 2),
                Cell::Number(us(own as f64 / operations), 2),
                Cell::Number(percent(own as f64, wall), 2),
            ]);
            row.resize(table.columns.len(), Cell::Missing);
            table.push(row);
        }
    }
    table
}

/// Microseconds an operation of a run.
fn exclusive(group: &Group, step: &Step) -> f64 {
    let own = group.steps.get(step).map_or(0, |tally| tally.exclusive);
    us(own as f64 / group.rows.len().max(1) as f64)
}

fn notes(merged: &[OperationRuns<'_>], report: &mut Report) {
    for one in operation_runs::worth_telling(merged) {
        let (sums, wall) = (one.layers(), one.wall() as f64);
        let mut order: Vec<Layer> = Layer::EVERY.to_vec();
        order.sort_by_key(|layer| std::cmp::Reverse(sums[layer.index()]));
        let parts: Vec<String> = order
            .iter()
            .take(4)
            .map(|layer| (layer, percent(sums[layer.index()] as f64, wall)))
            .filter(|(_, share)| *share >= 0.5)
            .map(|(layer, share)| format!("{} {share:.0} %", layer.name()))
            .collect();
        let mean = us(wall / one.operations().max(1) as f64);
        let interference = around::interfering(&one.runs.iter().map(|(a, _)| *a).collect::<Vec<_>>());
        let lost = if one.lost() > 0 { format!("; {} events LOST: too low", one.lost()) } else { String::new() };
        report.notes.push(format!(
            "{}: {mean:.0} us per operation, of it {}; interference {interference:.0} % of the events{lost}",
            one.label(),
            parts.join(", ")
        ));
        let sum = percent(sums.iter().sum::<u64>() as f64, wall);
        if (sum - 100.0).abs() > SUM_TOLERANCE_PERCENT {
            report.warnings.push(format!("{}: the layers sum to {sum:.1} % of the time", one.label()));
        }
        let unknown = percent(sums[Layer::Unattributed.index()] as f64, wall);
        if unknown > UNATTRIBUTED_PERCENT_MAX {
            report.warnings.push(format!(
                "{}: no event explains {unknown:.1} % of the time; see the unattributed steps and docs/kit/iotrace.md",
                one.label()
            ));
        }
    }
    for (label, analyses) in around::traces(merged) {
        let interference = around::interfering(&analyses);
        if interference > INTERFERENCE_PERCENT_MAX {
            report.warnings.push(format!(
                "{label}: {interference:.0} % of the events come from other processes; measure again on a quiet machine"
            ));
        }
    }
    let fulls: BTreeSet<String> = merged
        .iter()
        .flat_map(|one| &one.runs)
        .filter_map(|(a, _)| a.work.as_ref().map(operation_runs::in_full))
        .collect();
    if !fulls.is_empty() {
        report.parameter("work", fulls.into_iter().collect::<Vec<_>>().join("; "));
    }
}
