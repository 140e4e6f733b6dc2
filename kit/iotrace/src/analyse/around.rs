//! Other activity during the measurement: interference, threads, CPUs, and event counts.

use std::collections::{BTreeMap, BTreeSet};

use stentor_measure::{Cell, Column, Table};

use super::Analysis;
use super::cells::{columns, percent};
use super::operation_runs::{self, OperationRuns};
use super::people::ThreadRole;
use crate::operation::Work;

/// Threads of a run that are named.
const PEOPLE_MAX: usize = 12;

/// Each analysis once, also where a program has several calls.
pub fn traces<'a>(merged: &[OperationRuns<'a>]) -> Vec<(String, Vec<&'a Analysis>)> {
    let mut out: Vec<(String, Vec<&'a Analysis>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for one in merged {
        let fresh: Vec<&'a Analysis> =
            one.runs.iter().map(|(a, _)| *a).filter(|a| seen.insert(std::ptr::from_ref::<Analysis>(a))).collect();
        if !fresh.is_empty() {
            out.push((if one.is_program() { one.place.to_owned() } else { one.label() }, fresh));
        }
    }
    out
}

/// Events of a run by who they came from.
pub fn shares(analyses: &[&Analysis], role: ThreadRole) -> f64 {
    let all: u64 = analyses.iter().map(|one| one.events()).sum();
    let of: u64 = analyses.iter().flat_map(|one| &one.people).filter(|p| p.role == role).map(|p| p.events).sum();
    percent(of as f64, all as f64)
}

pub fn interfering(analyses: &[&Analysis]) -> f64 {
    ThreadRole::EVERY.iter().filter(|role| role.interferes()).map(|role| shares(analyses, *role)).sum()
}

pub fn interference(merged: &[OperationRuns<'_>]) -> Table {
    let columns = vec![
        Column::new("trace", "trace"),
        Column::new("events", "events a run"),
        Column::new("generator_percent", "generator %"),
        Column::new("helpers_percent", "for it %"),
        Column::new("idle_percent", "idle CPUs %"),
        Column::new("tracer_percent", "tracer %"),
        Column::new("others_percent", "others %"),
        Column::new("interference_percent", "interference %"),
        Column::new("others_cpu_percent", "others' CPU %"),
    ];
    let title = "Events by origin; interference is from the tracer and other processes";
    let mut table = Table::new("interference", title, columns);
    for (label, analyses) in traces(merged) {
        let mut row = vec![Cell::text(label), Cell::spread(analyses.iter().map(|one| one.events() as f64), 0)];
        row.extend(ThreadRole::EVERY.map(|role| Cell::spread(analyses.iter().map(|one| shares(&[one], role)), 1)));
        row.push(Cell::spread(analyses.iter().map(|one| interfering(&[one])), 1));
        let ran = |one: &Analysis| {
            let sum = |which: &dyn Fn(ThreadRole) -> bool| -> f64 {
                one.people.iter().filter(|person| which(person.role)).map(|person| person.ran as f64).sum()
            };
            percent(sum(&ThreadRole::interferes), sum(&|_| true))
        };
        row.push(Cell::spread(analyses.iter().map(|one| ran(one)), 1));
        table.push(row);
    }
    table
}

pub fn people(merged: &[OperationRuns<'_>]) -> Table {
    let columns = vec![
        Column::new("trace", "trace"),
        Column::new("who", "who"),
        Column::new("thread", "threads named"),
        Column::new("events_per_run", "events a run"),
        Column::new("share_percent", "share %"),
        Column::new("cpu_ms_per_run", "CPU ms a run"),
    ];
    let mut table = Table::new("processes", "Events by thread", columns);
    for (label, analyses) in traces(merged) {
        let all: u64 = analyses.iter().map(|one| one.events()).sum();
        let runs = analyses.len().max(1) as f64;
        let mut sums: BTreeMap<(ThreadRole, &str), (u64, u64)> = BTreeMap::new();
        for person in analyses.iter().flat_map(|one| &one.people) {
            let sum = sums.entry((person.role, &person.name)).or_default();
            sum.0 += person.events;
            sum.1 += person.ran;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, (events, _))| std::cmp::Reverse(*events));
        for ((role, name), (events, ran)) in sums.into_iter().take(PEOPLE_MAX) {
            table.push(vec![
                Cell::text(label.clone()),
                Cell::text(role.name()),
                Cell::text(name),
                Cell::Number(events as f64 / runs, 0),
                Cell::Number(percent(events as f64, all as f64), 1),
                Cell::Number(ran as f64 / runs / 1e6, 2),
            ]);
        }
    }
    table
}

pub fn cpus(merged: &[OperationRuns<'_>]) -> Table {
    let columns = vec![
        Column::new("trace", "trace"),
        Column::new("cpu", "CPU"),
        Column::new("events_per_run", "events a run"),
        Column::new("share_percent", "share %"),
        Column::new("lost_per_run", "lost a run"),
    ];
    let mut table = Table::new("cpus", "Events by CPU", columns);
    for (label, analyses) in traces(merged) {
        let count = analyses.iter().map(|one| one.by_cpu.len().max(one.lost.len())).max().unwrap_or(0);
        let all: u64 = analyses.iter().map(|one| one.events()).sum();
        let runs = analyses.len().max(1) as f64;
        for cpu in 0..count {
            let events: u64 = analyses.iter().filter_map(|one| one.by_cpu.get(cpu)).sum();
            let lost: u64 = analyses.iter().filter_map(|one| one.lost.get(cpu)).sum();
            table.push(vec![
                Cell::text(label.clone()),
                Cell::text(cpu.to_string()),
                Cell::Number(events as f64 / runs, 0),
                Cell::Number(percent(events as f64, all as f64), 1),
                Cell::Number(lost as f64 / runs, 1),
            ]);
        }
    }
    table
}

/// What was seen at all, also without an operation.
pub fn events(analyses: &[Analysis]) -> Table {
    let columns = columns(&[("event", "event"), ("events_per_run", "a run"), ("share_percent", "share %")]);
    let mut table = Table::new("events", "Events by kind", columns);
    let mut groups: Vec<(&str, Option<Work>)> = Vec::new();
    for one in analyses {
        let group = (one.name.as_str(), one.work);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for (name, work) in groups {
        let runs: Vec<&Analysis> =
            analyses.iter().filter(|one| (one.name.as_str(), one.work) == (name, work)).collect();
        let kinds: BTreeSet<&String> = runs.iter().flat_map(|one| one.kinds.keys()).collect();
        let all: u64 = runs.iter().map(|one| one.events()).sum();
        for kind in kinds {
            let counts = runs.iter().map(|one| one.kinds.get(kind).copied().unwrap_or(0) as f64);
            table.push(vec![
                Cell::text(name),
                Cell::text(work.as_ref().map_or_else(String::new, operation_runs::in_full)),
                Cell::text(kind.as_str()),
                Cell::spread(counts.clone(), 0),
                Cell::Number(percent(counts.sum(), all as f64), 1),
            ]);
        }
    }
    table
}
