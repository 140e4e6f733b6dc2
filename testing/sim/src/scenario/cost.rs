//! The cost of the scheduler: CPU per delivery, the longest call, memory; and how it grows.
//!
//! The time is that of the scheduler's calls alone, by the real clock, each call's minimum over several equal runs.

use serde_json::{Value, json};
use stentor_mail::Class;
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;
use stentor_sched::SchedConfig;

use crate::engine::{Post, START, Sim};
use crate::host::{Host, Mood};
use crate::meter::Meter;
use crate::net::{Net, Shape};

const DAY_MS: Ms = 24 * 3_600_000;
const GREYLIST_MS: Ms = 240_000;

/// One measured load.
#[derive(Clone, Copy)]
pub struct Load {
    pub seed: u64,
    /// Recipients of each post.
    pub recipients: u32,
    pub sites: u32,
    pub posts: u32,
    /// Percent of the sites that defer each recipient once.
    pub deferred_percent: u32,
    /// Percent of hosts that are dead or hang, and of the others that have limits.
    pub bad_percent: u32,
    pub odd_percent: u32,
}

impl Load {
    /// A smaller one of the same shape; a site has one recipient at least.
    fn part(mut self, part: u32) -> Load {
        for size in [&mut self.recipients, &mut self.sites, &mut self.posts] {
            *size = size.div_ceil(part);
        }
        self
    }
}

pub struct Cost {
    pub meter: Meter,
    pub delivered: u64,
    pub sim: Sim,
}

fn net(load: &Load) -> Net {
    if load.bad_percent + load.odd_percent > 0 {
        let shape = Shape { sites: load.sites, bad_percent: load.bad_percent, odd_percent: load.odd_percent };
        return Net::generate(load.seed, &shape);
    }
    let mut rng = fastrand::Rng::with_seed(load.seed);
    let mut net = Net::default();
    for _ in 0..load.sites {
        let mood = if rng.u32(0..100) < load.deferred_percent { Mood::Greylists(GREYLIST_MS) } else { Mood::Good };
        net.add_site(Host::new(mood, rng.u64(20..=300)), rng.u64(2..=150));
    }
    net
}

/// One run; with `measures` each call of the scheduler is timed.
pub fn run(load: &Load, measures: bool, before: impl FnOnce()) -> Cost {
    let mut rng = fastrand::Rng::with_seed(load.seed);
    let mut sim = Sim::new(net(load), SchedConfig::default(), load.seed);
    sim.meter.measures = measures;
    let recipients: IdSet = (0..load.recipients)
        .filter_map(|n| {
            // Each site has one at least, as far as they go.
            let domain = if n < load.sites { n } else { rng.u32(0..load.sites) };
            sim.subscriber(n, domain)
        })
        .map(|id| id.0)
        .collect();
    for _ in 0..load.posts {
        let (recipients, list) = (recipients.clone(), Some("l".into()));
        sim.post(Post { at: START, recipients, class: Class::Bulk, list, copies: false, watched: IdSet::new() });
    }
    before();
    sim.run_empty(START + 6 * DAY_MS);
    Cost { meter: std::mem::take(&mut sim.meter), delivered: sim.counts.delivered, sim }
}

/// Least times of several runs.
pub fn measure(load: &Load, rounds: usize) -> Cost {
    let mut best = run(load, true, || {});
    for _ in 1..rounds {
        best.meter.merge(&run(load, true, || {}).meter);
    }
    best
}

/// Resident memory of this process in MiB.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0.0);
    kib / 1024.0
}

/// A million recipients at 50,000 sites.
pub fn million(seed: u64, rounds: usize, part: u32) -> Value {
    let load = Load {
        seed,
        recipients: 1_000_000,
        sites: 50_000,
        posts: 1,
        deferred_percent: 0,
        bad_percent: 2,
        odd_percent: 20,
    }
    .part(part);
    // First, so that the peak is that of the run and not of the measuring.
    let mut before_mib = 0.0;
    let plain = run(&load, false, || before_mib = resident_mib());
    let peak_mib = resident_mib();
    let (delivered, failed) = (plain.delivered, plain.sim.counts.failed);
    drop(plain);
    let cost = measure(&load, rounds);
    json!({
        "seed": seed,
        "delivered": delivered,
        "failed": failed,
        "us_per_delivery": cost.meter.total_us() / delivered.max(1) as f64,
        "longest_step_us": cost.meter.longest_us(),
        "memory_mib": peak_mib - before_mib,
        "memory_with_store_mib": peak_mib,
        "calls": cost.meter.summary(),
    })
}

/// Cost per delivery along each axis.
pub fn growth(seed: u64, rounds: usize, part: u32) -> Value {
    let base =
        Load { seed, recipients: 100_000, sites: 5_000, posts: 1, deferred_percent: 0, bad_percent: 0, odd_percent: 0 };
    let mut axes = serde_json::Map::new();
    let mut axis = |name: &str, loads: Vec<(u32, Load)>| {
        let rows: Vec<Value> = loads
            .into_iter()
            .map(|(at, load)| {
                let cost = measure(&load.part(part), rounds);
                let us = cost.meter.total_us() / cost.delivered.max(1) as f64;
                json!({"at": at, "us_per_delivery": us, "us_per_transaction":
                    cost.meter.total_us() / cost.sim.counts.transactions.max(1) as f64,
                    "longest_step_us": cost.meter.longest_us(), "delivered": cost.delivered})
            })
            .collect();
        axes.insert(name.to_owned(), Value::Array(rows));
    };
    let recipients = [1_000, 10_000, 100_000, 1_000_000];
    axis("recipients", recipients.map(|n| (n, Load { recipients: n, sites: n / 20, ..base })).to_vec());
    let sites = [10, 100, 1_000, 10_000, 100_000];
    axis("sites", sites.map(|n| (n, Load { sites: n, ..base })).to_vec());
    let posts = [1, 10, 100, 1_000];
    axis("posts", posts.map(|n| (n, Load { recipients: 1_000, sites: 500, posts: n, ..base })).to_vec());
    let deferred = [0, 10, 30, 100];
    axis("deferred_percent", deferred.map(|n| (n, Load { deferred_percent: n, ..base })).to_vec());
    Value::Object(axes)
}
