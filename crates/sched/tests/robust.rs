//! The scheduler among hosts that answer anything at any time: `SCHED_SEED=n cargo test -p stentor-sched --test robust`
//! runs one world again, `SCHED_SEEDS=n` that many; `stentor-sim robust seeds=100000` runs many on all processors.

#[path = "common/agenda.rs"]
mod agenda;
mod anything;

use anything::{EventCounts, World};

/// Worlds per run: some seconds' worth.
const SEEDS: u64 = if cfg!(debug_assertions) { 300 } else { 3_000 };

#[test]
fn no_host_can_make_us_try_without_a_clock() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    if let Some(seed) = number("SCHED_SEED") {
        println!("{:?}", World::new(seed).run());
        return;
    }
    let mut all = EventCounts::default();
    for seed in 0..number("SCHED_SEEDS").unwrap_or(SEEDS) {
        match World::new(seed).run() {
            Ok(seen) => all.add(&seen),
            Err(fault) => panic!("SCHED_SEED={seed}: {fault}"),
        }
    }
    // Worlds in which nothing happens would prove nothing.
    assert!(all.delivered > 0 && all.bounced > 0 && all.expired > 0 && all.connections > all.transactions / 100);
}

/// The checker must be able to fail: this world hides the end of a message.
#[test]
fn a_world_that_loses_something_is_noticed() {
    let mut world = World::new(1);
    world.forgets = true;
    assert!(world.run().is_err());
}
