//! Watches the server's health: once a second it gathers the counts of sessions, deliveries, the journal and other
//! parts, passes them to the model ([`stentor_core::live::health`]), and reports conditions that begin and end.
//!
//! Promise: passive counts come first. A service is probed only without other traffic: a milter or a service behind a
//! socket after [`IDLE_MS`], and every [`RETRY_MS`] while it fails. The name servers are probed in the same way while
//! no look-up gets a reply over the network, once the server has queried them at all; answers from the cache prove
//! nothing. One probe of a service at a time, [`PROBE_MAX`] each.
//!
//! Failure answer: a probe that hangs counts as a failure; a hanging check of files or the clock stops no other check.

mod alert;
mod clock;
mod gather;
mod probes;
pub mod reputation;
mod sides;

use std::sync::Arc;
use std::time::Duration;

use stentor_core::Core;
use stentor_core::live::health::{Moment, Observation};
use stentor_queue::ids::Ms;
use tokio::time::MissedTickBehavior;

use self::gather::Gatherer;

/// A service is probed after this time without traffic.
const IDLE_MS: Ms = 4_000;
/// Probe interval of a failing service.
const RETRY_MS: Ms = 1_000;
/// Timeout of a probe.
const PROBE_MAX: Duration = Duration::from_secs(4);
const SECOND: Duration = Duration::from_secs(1);

/// Current faulty states, including those too recent to be conditions.
pub fn states(core: &Arc<Core>) -> Vec<Observation> {
    gather::states(core)
}

/// Runs until the process ends.
pub async fn watch(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut gatherer = Gatherer::new(core.clone());
    loop {
        ticks.tick().await;
        let at = Moment { now: core.clock.now(), steady: core.clock.steady() };
        let seen = gatherer.look(at);
        for change in core.live.health.observe(at, seen) {
            alert::report(&core, &change);
        }
    }
}
