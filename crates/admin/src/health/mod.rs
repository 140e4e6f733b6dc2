//! Watches the server's health: once a second it gathers what sessions, deliveries, the journal and the rest have counted,
//! hands it to the model ([`stentor_live::health`]), and reports what begins and ends.
//!
//! Promise: passive counts come first. A service is probed only while nobody else asks it: a milter or a service behind a
//! socket after [`IDLE_MS`], and every [`RETRY_MS`] while it fails; the name servers in the same way while no look-up gets a reply over
//! the network, once the server has asked them anything: answers from the cache prove nothing. One probe of a service at a time, [`PROBE_MAX`] each.
//!
//! Failure answer: a probe that hangs is a failure; a look at the files or the clock that hangs stops no other.

mod alert;
mod clock;
mod gather;
mod probes;
mod sides;

use std::sync::Arc;
use std::time::Duration;

use stentor_engine::core::Core;
use stentor_live::health::{Moment, Observation};
use stentor_queue::ids::Ms;
use tokio::time::MissedTickBehavior;

use self::gather::Gatherer;

/// A service that nobody has asked for so long is asked by us.
const IDLE_MS: Ms = 4_000;
/// The same of one that fails.
const RETRY_MS: Ms = 1_000;
/// How long a probe may take.
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
