//! Once a second: advances rings of counters, samples the machine (once a minute, or more often while it is watched),
//! and runs the caller's work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_queue::ids::Ms;
use stentor_records::now::MachineNow;
use stentor_records::record::{Machine, Record};
use tokio::time::MissedTickBehavior;

use crate::Core;
use crate::live::machine::{OwnFigures, Sampler};

const SECOND: Duration = Duration::from_secs(1);
/// Seconds between samples while the machine is watched.
const WATCHED_SAMPLE_S: u64 = 2;
/// A sample over less than this shows the current state.
const FRESH_MS: u64 = 10_000;

/// Runs until the process ends. The first sample is taken at the call.
pub fn run(core: Arc<Core>, each_second: impl Fn(&Arc<Core>, Ms)) -> impl Future<Output = ()> {
    tick(core, each_second, Sampler::new(), Sampler::new())
}

async fn tick(core: Arc<Core>, each_second: impl Fn(&Arc<Core>, Ms), mut watched: Sampler, mut minute: Sampler) {
    let mut ticks = tokio::time::interval(SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut until_sample = 0;
    loop {
        ticks.tick().await;
        let (live, now) = (&core.live, core.clock.now());
        let ends = live.second(now);
        if live.watchers.load(Ordering::Relaxed) == 0 {
            until_sample = 0;
        } else if until_sample == 0 {
            // A sample over unwatched time only starts the next one.
            if let Some(sample) = sample(&mut watched, &core, now).filter(|sample| sample.interval_ms < FRESH_MS) {
                until_sample = WATCHED_SAMPLE_S - 1;
                live.set_machine(sample);
            }
        } else {
            until_sample -= 1;
        }
        if ends && let Some(sample) = sample(&mut minute, &core, now) {
            live.set_machine(sample);
            remember(&core, &sample.record());
        }
        refresh_tables(&core);
        core.tokens.write_again(core.clock.steady());
        each_second(&core, now);
    }
}

fn sample(sampler: &mut Sampler, core: &Arc<Core>, now: Ms) -> Option<MachineNow> {
    let net = [&core.live.net_in, &core.live.net_out].map(|octets| octets.load(Ordering::Relaxed));
    sampler.sample(now, net, || {
        let (pending, out) = core.with(|hub, _| (hub.store.pending(), hub.connections()));
        OwnFigures { pending, connections_in: core.live.connections_in() as u32, connections_out: out as u32 }
    })
}

/// Checks whether files of the rules' tables were replaced. A file system that hangs blocks one thread per table.
fn refresh_tables(core: &Arc<Core>) {
    let settings = core.settings();
    if settings.tables.has_files() {
        let (core, now) = (core.clone(), core.clock.steady());
        drop(tokio::task::spawn_blocking(move || {
            settings.tables.refresh(now, |table| {
                // Waiting mail is sent where the table now points.
                if settings.rules.recipient_tables.contains(&table) {
                    core.with(|hub, now| hub.sched.routes_changed(now));
                }
            });
        }));
    }
}

/// Writes the minute's sample into the history.
fn remember(core: &Arc<Core>, machine: &Machine) {
    core.history.append(&Record::Machine(*machine));
}
