//! `stentor-sim SCENARIO [KEY=VALUE...]`: runs a scenario over the seeds and prints JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use stentor_sched::SchedConfig;
use stentor_sim::scenario::day::{self, Day};
use stentor_sim::scenario::{
    ablation, chart, clocks, content, cost, decoding, policy, rate, robust, signing, suppressions, truth,
};

/// KEY=VALUE of the command line.
struct Options(Vec<(String, String)>);

impl Options {
    /// One in so many of a world's subscribers, sites and posts: to try a scenario, not to measure with it.
    fn part(&self) -> u32 {
        self.number("part", 1).clamp(1, 1_000) as u32
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    fn number(&self, key: &str, default: u64) -> u64 {
        self.text(key).and_then(|value| value.parse().ok()).unwrap_or(default)
    }
}

fn day(options: &Options) -> Value {
    let first = options.number("seed", 1);
    let results: Vec<Value> = (first..first + options.number("seeds", 1))
        .map(|seed| {
            let mut day = Day::new(seed);
            day.bad_percent = options.number("bad", 2) as u32;
            day.copies = options.number("copies", 0) == 1;
            day.posts = options.number("posts", 200) as u32;
            day.pipeline = options.number("pipeline", 16) as usize;
            day = day.part(options.part());
            day.cfg.idle_ms = options.number("idle_ms", day.cfg.idle_ms);
            day.cfg.connections_max = options.number("connections", day.cfg.connections_max as u64) as usize;
            day.cfg.slow_connections_max = day.cfg.connections_max / 2;
            let strategies = &mut day.cfg.strategies;
            strategies.order = options.number("order", 1) == 1;
            strategies.lanes = options.number("lanes", 1) == 1;
            strategies.memory = options.number("memory", 1) == 1;
            strategies.adaptation = options.number("adaptation", 1) == 1;
            day::run(&day).json()
        })
        .collect();
    json!(results)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let options = args.filter_map(|a| a.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect();
    let options = Options(options);
    let answer = match name.as_str() {
        "day" => day(&options),
        "chart" => chart::run(&Day::new(options.number("seed", 1)).part(options.part())),
        "ablation" => ablation::run(options.number("seed", 1), options.number("seeds", 4), options.part()),
        "clocks" => clocks::run(options.number("seed", 1)),
        "million" => cost::million(options.number("seed", 1), options.number("rounds", 3) as usize, options.part()),
        "growth" => cost::growth(options.number("seed", 1), options.number("rounds", 3) as usize, options.part()),
        "robust" => match robust::run(options.number("seed", 0), options.number("seeds", 100_000)) {
            Ok(seen) => seen,
            Err(fault) => {
                eprintln!("{fault}");
                return ExitCode::FAILURE;
            }
        },
        "truth" => truth::run(options.number("seed", 0), options.number("seeds", 2_000)),
        "content" => {
            let number = |key, default| options.number(key, default) as usize;
            content::run(number("rules", 200), number("bytes", 102_400), number("rounds", 1_000))
        }
        "decoding" => decoding::run(&decoding::Search {
            seed: options.number("seed", 1),
            bytes: options.number("bytes", 65_536) as usize,
            attempts: options.number("attempts", 400) as usize,
            only: options.text("only").unwrap_or_default().to_owned(),
            folder: options.text("write").map(PathBuf::from),
        }),
        "policy" => policy::run(options.number("seed", 0), options.number("worlds", 100_000)),
        "rate" => {
            let first = options.number("seed", 1);
            let seeds = first..first + options.number("seeds", 1);
            let one = |seed| rate::run(seed, options.number("hours", 6), SchedConfig::default());
            Value::Array(seeds.map(one).collect())
        }
        "suppressions" => suppressions::run(options.number("entries", 1_000_000)),
        "signing" => signing::run(options.text("algorithm") != Some("ed25519"), options.number("seconds", 5)),
        _ => {
            eprintln!(
                "usage: stentor-sim day|chart|clocks|content|decoding|ablation|million|growth|policy|rate|robust|signing|suppressions|truth [KEY=VALUE...]"
            );
            return ExitCode::from(2);
        }
    };
    println!("{answer:#}");
    ExitCode::SUCCESS
}
