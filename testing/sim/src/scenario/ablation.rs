//! Each strategy switched off alone: the effect on a list's day.

use serde_json::{Value, json};

use super::day::{self, Day};

/// Names of what can be switched off, `none` first.
pub const PARTS: [&str; 7] = ["none", "order", "lanes", "memory", "reuse", "pipelining", "adaptation"];

/// What a day has that others have not.
type Shape = fn(&mut Day);

fn without(part: &str, mut day: Day) -> Day {
    match part {
        "order" => day.cfg.strategies.order = false,
        "lanes" => day.cfg.strategies.lanes = false,
        "memory" => day.cfg.strategies.memory = false,
        "reuse" => day.cfg.transactions_per_connection_max = 1,
        "pipelining" => day.pipeline = 1,
        "adaptation" => day.cfg.strategies.adaptation = false,
        _ => {}
    }
    day
}

/// Over seeds: the worst, and the median of the posts' medians.
fn over(days: &[day::Result]) -> Value {
    let mut medians: Vec<u32> = days.iter().map(|d| d.median(|p| p.1)).collect();
    medians.sort_unstable();
    let sum = |f: fn(&day::Result) -> u64| days.iter().map(f).sum::<u64>() / days.len().max(1) as u64;
    json!({
        "worst_100": days.iter().map(day::Result::worst_100).fold(0.0, f64::max),
        "worst_95_ms": days.iter().map(day::Result::worst_95_ms).max(),
        "median_100_ms": medians.get(medians.len() / 2),
        "unserved": days.iter().map(|d| d.unserved).sum::<usize>(),
        "connects": sum(|d| d.counts.connects),
        "failed_connects": sum(|d| d.counts.connect_failures),
        "refused": sum(|d| d.refused),
    })
}

pub fn run(first: u64, seeds: u64, part: u32) -> Value {
    let days: [(&str, Shape); 3] = [
        ("list, 30 % bad", |day| day.bad_percent = 30),
        ("list, 30 % bad, 300 connections", |day| {
            day.bad_percent = 30;
            (day.cfg.connections_max, day.cfg.slow_connections_max) = (300, 150);
        }),
        ("a message per subscriber, 10 % bad", |day| {
            (day.bad_percent, day.copies, day.posts) = (10, true, 40);
        }),
    ];
    let mut all = serde_json::Map::new();
    for (name, shape) in days {
        let mut rows = serde_json::Map::new();
        for strategy in PARTS {
            let results: Vec<day::Result> = (first..first + seeds)
                .map(|seed| {
                    let mut day = Day::new(seed);
                    shape(&mut day);
                    let day = day.part(part);
                    let alone = day::sites_alone(&day);
                    day::run_beside(&without(strategy, day), alone)
                })
                .collect();
            rows.insert(strategy.to_owned(), over(&results));
        }
        all.insert(name.to_owned(), Value::Object(rows));
    }
    Value::Object(all)
}
