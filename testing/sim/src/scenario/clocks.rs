//! Costs and benefits of the first and longest delays of the retry clocks: how late mail arrives after an obstacle is
//! gone, how many attempts that takes, and into how many DSNs a post's failures are split.
//!
//! Obstacles last as long as in the field, as far as known: greylisting mostly five minutes (postgrey, rspamd), one to
//! 25 elsewhere; a busy content scanner half a minute to eight hours, and a full mailbox ten minutes to three days,
//! each log-uniform.

use serde_json::{Value, json};
use stentor_mail::Class;
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::idset::IdSet;
use stentor_sched::{Backoff, SchedConfig};

use super::day::{DAY_MS, HOUR_MS};
use crate::engine::{Post, START, Sim};
use crate::host::{Host, Mood};
use crate::net::{Net, Shape};

const MINUTE_MS: Ms = 60_000;
const SITES: u32 = 2_000;
/// Of a hundred sites so many know none of their recipients.
const UNKNOWN_PERCENT: u32 = 3;
const GREYLIST_MINUTES: [Ms; 8] = [1, 2, 5, 5, 5, 5, 10, 25];

/// A duration between two, each order of magnitude as likely as the next.
fn log_even(rng: &mut fastrand::Rng, from: Ms, to: Ms) -> Ms {
    (from as f64 * (to as f64 / from as f64).powf(rng.f64())) as Ms
}

fn lasting(kind: &str, rng: &mut fastrand::Rng) -> (Mood, Ms) {
    match kind {
        "greylisting" => {
            let ms = GREYLIST_MINUTES[rng.usize(0..GREYLIST_MINUTES.len())] * MINUTE_MS;
            (Mood::Greylists(ms), ms)
        }
        "busy" => {
            let ms = log_even(rng, MINUTE_MS / 2, 8 * HOUR_MS);
            (Mood::Busy(ms), ms)
        }
        _ => {
            let ms = log_even(rng, 10 * MINUTE_MS, 3 * DAY_MS);
            (Mood::Full(ms), ms)
        }
    }
}

/// How late deliveries are, in minutes, and tries for each.
fn lateness(kind: &str, clock: Backoff, seed: u64) -> Value {
    let (mut rng, mut net) = (fastrand::Rng::with_seed(seed), Net::default());
    let mut ends = Vec::new();
    for _ in 0..SITES {
        let (mood, ms) = lasting(kind, &mut rng);
        net.add_site(Host::new(mood, rng.u64(20..=300)), 30);
        ends.push(ms);
    }
    let cfg = SchedConfig { recipient_retry: clock, site_retry: clock, mailbox_retry: clock, ..SchedConfig::DEFAULT };
    let mut sim = Sim::new(net, cfg, seed);
    let recipients: IdSet = (0..SITES).filter_map(|n| sim.subscriber(n, n)).map(|id| id.0).collect();
    let (watched, list) = (recipients.clone(), Some("l".into()));
    sim.post(Post { at: START, recipients, class: Class::Bulk, list, copies: false, watched });
    sim.run_empty(START + 6 * DAY_MS);
    let book = &sim.store.book;
    let end = |id| Net::number(book.domain_name(book.domain(AddressId(id)))).map_or(0, |n| ends[n]);
    let mut late: Vec<f64> =
        sim.delays[0].iter().map(|(ms, id)| Ms::from(*ms).saturating_sub(end(*id)) as f64 / MINUTE_MS as f64).collect();
    late.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| late.get(late.len() * share / 100).map_or(0.0, |ms| (ms * 10.0).round() / 10.0);
    let delivered = sim.counts.delivered.max(1);
    json!({
        "first_min": clock.min_ms as f64 / MINUTE_MS as f64,
        "longest_min": clock.max_ms as f64 / MINUTE_MS as f64,
        "late_median_min": at(50),
        "late_95_min": at(95),
        "tries": (sim.counts.transactions as f64 / delivered as f64 * 10.0).round() / 10.0,
        "failed": sim.counts.failed,
    })
}

/// Reports for each of some posts to a list with unknown users.
fn reports(gather_ms: Ms, seed: u64) -> Value {
    const POSTS: u32 = 20;
    let shape = Shape { sites: 700, bad_percent: 2, odd_percent: 20 };
    let (mut rng, mut net) = (fastrand::Rng::with_seed(seed), Net::generate(seed, &shape));
    for host in &mut net.hosts {
        if rng.u32(0..100) < UNKNOWN_PERCENT {
            host.mood = Mood::Unknown;
        }
    }
    let cfg = SchedConfig { bounce_gather_ms: gather_ms, ..SchedConfig::DEFAULT };
    let mut sim = Sim::new(net, cfg, seed);
    let recipients: IdSet = (0..2_000).filter_map(|n| sim.subscriber(n, n % 700)).map(|id| id.0).collect();
    for n in 0..POSTS {
        let (recipients, list) = (recipients.clone(), Some("l".into()));
        let at = START + Ms::from(n) * HOUR_MS;
        sim.post(Post { at, recipients, class: Class::Bulk, list, copies: false, watched: IdSet::new() });
    }
    sim.run_until(START + Ms::from(POSTS) * HOUR_MS);
    let per_post = sim.counts.reports as f64 / f64::from(POSTS);
    json!({"gather_ms": gather_ms, "reports_per_post": per_post})
}

pub fn run(seed: u64) -> Value {
    let clock = |(min, max)| Backoff::new(min * MINUTE_MS, max * MINUTE_MS);
    let late = |kind: &str, clocks: &[(Ms, Ms)]| -> Vec<Value> {
        clocks.iter().map(|bounds| lateness(kind, clock(*bounds), seed)).collect()
    };
    let gathered: Vec<Value> = [0, 1_000, 2_000, 5_000, 10_000].map(|ms| reports(ms, seed)).into();
    json!({
        "greylisting": late("greylisting", &[(1, 60), (1, 120), (2, 60), (2, 120), (5, 60), (5, 120)]),
        "busy": late("busy", &[(1, 60), (2, 60), (2, 120), (5, 60), (5, 120)]),
        "full": late("full", &[(5, 240), (10, 120), (10, 240), (15, 240), (15, 480)]),
        "reports": gathered,
    })
}
