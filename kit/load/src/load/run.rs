//! Starts the workers and adds up their results.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use stentor_lab::LabError;
use stentor_measure::Stop;

use super::plan::Plan;
use super::shared::{Shared, Watch};
use super::tally::Tally;
use super::worker::Worker;
use crate::error::LoadError;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sends it all; to the end, or until `stop` is set. `look` is called now and then, on this thread. Errors are those of
/// the plan and of this machine; what the servers do wrong is in the tally.
pub fn run(plan: &Plan, stop: &Stop, mut look: impl FnMut(&Watch, Duration)) -> Result<Tally, LoadError> {
    plan.check().map_err(LabError::Scenario)?;
    let watch = Watch::default();
    let threads = plan.threads.min(plan.connections);
    let shared = Shared {
        plan,
        stop,
        watch: &watch,
        next: AtomicU64::new(0),
        timeout_ns: u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX),
        threads,
        start: Instant::now(),
    };
    let main = std::thread::current();
    let tallies = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (shared, main) = (&shared, main.clone());
                scope.spawn(move || {
                    let tally = Worker::new(shared, number).and_then(Worker::run);
                    main.unpark();
                    tally
                })
            })
            .collect();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::park_timeout(LOOK_EVERY);
            look(&watch, shared.start.elapsed());
        }
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err(std::io::Error::other("a worker failed"))))
            .collect::<Vec<_>>()
    });
    let mut all = Tally::default();
    for tally in tallies {
        all.merge(&tally?);
    }
    all.due = all.due.min(plan.messages);
    let from_ns = plan.warm_up.as_nanos() as u64;
    all.elapsed_s = all.last_ns.saturating_sub(from_ns) as f64 / 1e9;
    Ok(all)
}
