//! Outgoing SMTP: lookups, connections and DSNs, each a task that performs one effect of the scheduler.

mod body;
pub mod bounce;
pub mod call_ahead;
pub mod check;
mod coalesce;
mod connect_progress;
mod connection;
mod copies;
mod delays;
mod dkim;
mod ending;
mod generic;
mod login;
mod look_up;
mod loops;
mod merge;
mod opening;
pub mod outcome;
mod protection;
mod report_counts;
mod secret;
mod short_session;
mod stream;
mod suspend;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_core::hub::Act;
use stentor_core::{Actor, Core, log};
use stentor_queue::ids::DomainId;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

pub use bounce::{bounce, by_operator};
pub use connection::connect;
pub use generic::address as generic_address;
pub use look_up::{LookupContext, dane_of, has_mx_hosts, look_up};
pub use suspend::resume_when_over;

/// From this number on, finished look-ups are removed.
const LOOK_UPS_KEPT_MAX: usize = 4_096;

/// The real actor: each act is a task.
pub struct Tasks {
    runtime: Handle,
    /// Look-ups by domain, some of which may have ended.
    look_ups: Mutex<HashMap<DomainId, AbortHandle>>,
}

impl Tasks {
    pub fn new(runtime: Handle) -> Tasks {
        Tasks { runtime, look_ups: Mutex::default() }
    }
}

impl Actor for Tasks {
    fn act(&self, core: &Arc<Core>, act: Act) {
        let core = core.clone();
        match act {
            Act::Resolve { domain, name } => {
                let task = self.runtime.spawn(resolve(core, domain, name));
                let mut look_ups = self.look_ups.lock();
                if look_ups.len() >= LOOK_UPS_KEPT_MAX {
                    look_ups.retain(|_, task| !task.is_finished());
                }
                look_ups.insert(domain, task.abort_handle());
            }
            Act::ForgetLookUp { domain } => {
                if let Some(task) = self.look_ups.lock().remove(&domain) {
                    task.abort();
                }
            }
            Act::Connect { conn, source, target, signal } => {
                drop(self.runtime.spawn(connect(core, conn, source, target, signal)));
            }
            Act::Wake(signal) => signal.wake(),
            Act::Close(signal) => signal.close(),
            Act::GiveWay(signal) => signal.give_way(),
            Act::Delayed { no } => drop(self.runtime.spawn(delays::warn(core, no))),
            Act::FastDone { id, list, total, pending } => {
                core.live.posts.fast_done(id, core.clock.now());
                tracing::info!(post = %id, list, recipients = total, stragglers = pending, "delivered except for stragglers");
            }
            Act::Suspend { list, address, posts, since, text } => {
                drop(self.runtime.spawn(suspend::subscriber(core, list, address, posts, since, text)));
            }
            Act::Coalesce { list, posts, ids } => drop(self.runtime.spawn(coalesce::coalesce(core, list, posts, ids))),
            Act::Bounce { no, failures } => drop(self.runtime.spawn(bounce(core, no, failures))),
        }
    }
}

/// Answers `Effect::Resolve`: by a static route if there is one, else by DNS.
pub async fn resolve(core: Arc<Core>, domain: DomainId, name: String) {
    loop {
        let (settings, begun) = (core.settings(), core.clock.now());
        let resolution = look_up(&LookupContext::of(&core, &core.resolver(), &settings), &name).await;
        // Routes that changed meanwhile are looked up again.
        if Arc::ptr_eq(&settings, &core.settings()) {
            if let Some(failed) = core.with(|hub, now| hub.resolved(domain, resolution, now)) {
                let unreached = failed.tally.count(&core).await;
                log::look_up_failed(&core, begun, failed.dsn, &failed.text, &unreached);
            }
            return;
        }
    }
}
