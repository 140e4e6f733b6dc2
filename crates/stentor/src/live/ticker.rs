//! The live part's clock: rings once a second, the machine once a minute or while it is watched, reports that are due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_stats::record::{Machine, Record};
use tokio::time::MissedTickBehavior;

use super::machine::Sampler;
use crate::core::Core;

const SECOND: Duration = Duration::from_secs(1);
/// Seconds between samples while somebody watches.
const WATCHED_SAMPLE_S: u64 = 2;
/// A sample over less than this says how it is now.
const FRESH_MS: u64 = 10_000;

/// Runs until the process ends.
pub async fn run(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut watched, mut minute) = (Sampler::new(), Sampler::new());
    let mut until_sample = 0;
    loop {
        ticks.tick().await;
        let (live, now) = (&core.live, core.clock.now());
        let ends = live.rings.lock().push(now, live.totals());
        live.filters.prune();
        if live.watchers.load(Ordering::Relaxed) == 0 {
            until_sample = 0;
        } else if until_sample == 0 {
            // One over the time in which nobody watched is only the begin of the next.
            if let Some(sample) = watched.sample(&core, now).filter(|sample| sample.interval_ms < FRESH_MS) {
                until_sample = WATCHED_SAMPLE_S - 1;
                *live.machine.lock() = sample;
            }
        } else {
            until_sample -= 1;
        }
        if ends && let Some(sample) = minute.sample(&core, now) {
            *live.machine.lock() = sample;
            remember(&core, &sample.record());
        }
        crate::report::due(&core, now);
    }
}

/// The minute's sample goes into the history.
fn remember(_core: &Arc<Core>, machine: &Machine) {
    let record = Record::Machine(*machine);
    tracing::trace!(at = record.at(), "the machine's load");
}
