//! Random worlds whose hosts answer anything at any time (crates/sched/tests/anything), many of them, on all
//! processors.

#[path = "../../../../crates/sched/tests/anything/mod.rs"]
mod anything;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::agenda;

use self::anything::{EventCounts, World};

/// What so many worlds have seen. `Err`: the seed of a world in which something does not hold, and what.
pub fn run(first: u64, seeds: u64) -> Result<Value, String> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let has_failed = AtomicBool::new(false);
    let run = &|thread: u64| {
        let mut all = EventCounts::default();
        for seed in (first + thread..first + seeds).step_by(threads as usize) {
            match World::new(seed).run() {
                Ok(seen) => all.add(&seen),
                Err(fault) => {
                    has_failed.store(true, Ordering::Relaxed);
                    return Err(format!("SCHED_SEED={seed}: {fault}"));
                }
            }
            if has_failed.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(all)
    };
    let (mut all, mut fault) = (EventCounts::default(), None);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        for worker in workers {
            match worker.join() {
                Ok(Ok(seen)) => all.add(&seen),
                Ok(Err(found)) => fault = Some(found),
                Err(_) => fault = Some("a world panicked".to_owned()),
            }
        }
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    Ok(json!({
        "worlds": seeds,
        "connections": all.connections,
        "transactions": all.transactions,
        "delivered": all.delivered,
        "bounced": all.bounced,
        "expired": all.expired,
    }))
}
