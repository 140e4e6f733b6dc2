//! A day to be drawn: the same world as `day`, but the server was down until noon. Posts from the morning arrive when
//! their clients retry, within ten minutes of noon.

use serde_json::{Value, json};
use stentor_mail::Class;
use stentor_queue::ids::Ms;
use stentor_queue::idset::IdSet;

use super::day::{DAY_MS, Day, HOUR_MS, made, sim, times};
use crate::engine::{Post, START};

const CLIENTS_RETRY_MS: Ms = 10 * 60_000;

/// Per post when it was accepted, and how many milliseconds later each of its reachable subscribers had it.
pub fn run(day: &Day) -> Value {
    let noon = START + 12 * HOUR_MS;
    let (mut rng, net, subscribers) = made(day);
    let mut times = times(day, &mut rng);
    for at in &mut times {
        if *at < noon {
            *at = noon + rng.u64(0..CLIENTS_RETRY_MS);
        }
    }
    times.sort_unstable();
    let mut sim = sim(day, &net);
    let mut recipients = IdSet::new();
    let mut watched = IdSet::new();
    let mut number = 0;
    for (domain, count) in subscribers.iter().enumerate() {
        for _ in 0..*count {
            number += 1;
            let Some(id) = sim.subscriber(number, domain as u32) else { continue };
            recipients.insert(id.0);
            if net.is_reachable(domain as u32, *count) {
                watched.insert(id.0);
            }
        }
    }
    for at in times {
        let (recipients, watched) = (recipients.clone(), watched.clone());
        sim.post(Post { at, recipients, class: Class::Bulk, list: Some("l".into()), copies: false, watched });
    }
    sim.run_until(START + DAY_MS + HOUR_MS);
    let posts: Vec<Value> = sim
        .posts
        .iter()
        .zip(&sim.delays)
        .map(|(post, delays)| json!({ "at": post.at, "delays_ms": delays.iter().map(|d| d.0).collect::<Vec<_>>() }))
        .collect();
    json!({ "start": START, "noon": noon, "reachable": watched.len(), "posts": posts })
}
