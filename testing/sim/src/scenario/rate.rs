//! A provider that allows 20 connections and 100 messages per minute, with 450 beyond, without announcing it. Over six
//! hours, with more to send than it accepts: how close we get to its limit, and how much is refused.

use serde_json::{Value, json};
use stentor_mail::Class;
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;
use stentor_sched::SchedConfig;

use crate::engine::{Post, START, Sim};
use crate::host::{Host, Mood};
use crate::net::Net;

const HOUR_MS: Ms = 3_600_000;
const PER_MINUTE: u32 = 100;
const CONNECTIONS: u32 = 20;
const MESSAGES: u32 = 45_000;

pub fn run(seed: u64, hours: u64, cfg: SchedConfig) -> Value {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut net = Net::default();
    let mut host = Host::new(Mood::TakesPerMinute(PER_MINUTE, CONNECTIONS), rng.u64(20..=200));
    (host.chunking, host.transaction_ms) = (rng.bool(), rng.u64(2..=60));
    net.add_site(host, 30);
    let mut sim = Sim::new(net, cfg, seed);
    sim.log = Some(Vec::new());
    let messages = MESSAGES * u32::try_from(hours).unwrap_or(6).div_ceil(6);
    let recipients: IdSet = (0..messages).filter_map(|n| sim.subscriber(n, 0)).map(|id| id.0).collect();
    sim.post(Post { at: START, recipients, class: Class::Bulk, list: None, copies: true, watched: IdSet::new() });
    sim.run_until(START + hours * HOUR_MS);
    let log = sim.log.take().unwrap_or_default();
    let per_hour: Vec<usize> = (0..hours)
        .map(|hour| {
            let at = START + hour * HOUR_MS..START + (hour + 1) * HOUR_MS;
            log.iter().filter(|(when, _, taken)| *taken && at.contains(when)).count()
        })
        .collect();
    let host = &sim.net.hosts[0];
    let allowed = f64::from(PER_MINUTE) * 60.0;
    let shares: Vec<f64> = per_hour.iter().map(|n| *n as f64 / allowed).collect();
    // The hour in which it learns is not counted as settled.
    let settled = shares.iter().skip(1).copied().fold(f64::INFINITY, f64::min);
    json!({
        "seed": seed,
        "settled_least": settled,
        "first_hour": shares.first(),
        "hours": shares,
        "taken": host.messages,
        "refused": host.refused,
        "refused_share": host.refused as f64 / (host.messages + host.refused).max(1) as f64,
        "connections_peak": host.connections_peak,
        "rtt_ms": host.rtt_ms,
        "chunking": host.chunking,
    })
}
