//! The scheduler in seeded worlds of good, bad and odd hosts. Each failure names its seed; run one with
//! `SCHED_SEED=n cargo test -p stentor-sched --test sched`.

#[path = "common/agenda.rs"]
mod agenda;
mod world;

use std::collections::BTreeSet;

use world::World;

/// Worlds per run: a few seconds' worth. `SCHED_SEEDS=n` tries more.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 300 };

#[test]
fn every_recipient_ends_as_its_world_says() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    if let Some(seed) = number("SCHED_SEED") {
        World::new(seed).run();
        return;
    }
    let (mut checks, mut causes) = (0, BTreeSet::new());
    for seed in 0..number("SCHED_SEEDS").unwrap_or(SEEDS) {
        match std::panic::catch_unwind(|| World::new(seed).run()) {
            Ok(truth) => {
                checks += truth.checks;
                causes.extend(truth.by_cause.into_keys());
            }
            Err(cause) => {
                eprintln!("SCHED_SEED={seed}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    // Views of empty queues would prove nothing.
    assert!(checks > 100 && causes.len() > 8 && causes.contains("queue_only"), "{checks} {causes:?}");
}

/// The checker must be able to fail: a world that forgets a delivery is noticed.
#[test]
#[should_panic(expected = "delivered twice")]
fn a_lost_completion_is_noticed() {
    let mut world = World::new(3);
    world.forget_deliveries = true;
    world.run();
}

/// After a stop nothing is begun, and everything in flight ends.
#[test]
fn a_stop_lets_transactions_finish_and_begins_none() {
    for seed in 0..40 {
        World::new(seed).run_and_stop();
    }
}
