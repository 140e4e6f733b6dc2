//! Random worlds with operators (crates/sched/tests/world), in which every view of the queue is compared with each
//! pending recipient's own answer again and again.

#[path = "../../../../crates/sched/tests/world/mod.rs"]
#[expect(dead_code, reason = "a test binary of the scheduler uses the rest")]
mod world;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::world::World;
use super::agenda;

/// What was compared. A world in which views disagree ends the program, with its seed.
///
/// # Panics
/// Views disagree.
pub fn run(first: u64, seeds: u64) -> Value {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let run = |thread: u64| {
        let (mut checks, mut recipients, mut kept, mut causes) = (0, 0, 0, BTreeMap::new());
        for seed in (first + thread..first + seeds).step_by(threads as usize) {
            let truth = World::new(seed).run();
            checks += truth.checks;
            recipients += truth.recipients;
            kept += truth.quarantined;
            for (cause, count) in truth.by_cause {
                *causes.entry(cause).or_insert(0) += count;
            }
        }
        (checks, recipients, kept, causes)
    };
    let mut sum = (0, 0, 0, BTreeMap::<&str, u64>::new());
    let parts: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("views agree")).collect()
    });
    for part in parts {
        let (checks, recipients, kept, causes) = part;
        (sum.0, sum.1, sum.2) = (sum.0 + checks, sum.1 + recipients, sum.2 + kept);
        for (cause, count) in causes {
            *sum.3.entry(cause).or_default() += count;
        }
    }
    json!({ "worlds": seeds, "checks": sum.0, "recipients": sum.1, "quarantined": sum.2, "causes": sum.3 })
}
