//! SMTP out: look-ups, connections and delivery reports, each a task that carries out one effect of the scheduler.

mod assignment;
mod body;
mod bounce;
mod connection;
pub mod outcome;

use std::sync::Arc;

pub use assignment::Assignment;
pub use bounce::{bounce, by_operator};
pub use connection::connect;
use stentor_mail::client::Ret;
use stentor_queue::event::Ret as QueueRet;
use stentor_queue::ids::DomainId;
use stentor_queue::site::Resolution;

use tokio::runtime::Handle;

use crate::core::hub::Act;
use crate::core::settings::route_hosts;
use crate::core::{Actor, Core, Settings};

/// The real world: each act is a task.
pub struct Tasks {
    runtime: Handle,
}

impl Tasks {
    pub fn new(runtime: Handle) -> Tasks {
        Tasks { runtime }
    }
}

impl Actor for Tasks {
    fn act(&self, core: &Arc<Core>, act: Act) {
        let core = core.clone();
        match act {
            Act::Resolve { domain, name } => drop(self.runtime.spawn(resolve(core, domain, name))),
            Act::Connect { conn, target, signal } => drop(self.runtime.spawn(connect(core, conn, target, signal))),
            Act::Wake(signal) => signal.wake(),
            Act::Close(signal) => signal.close(),
            Act::GiveWay(signal) => signal.give_way(),
            Act::Bounce { no, failures } => drop(self.runtime.spawn(bounce(core, no, failures))),
        }
    }
}

/// Answers `Effect::Resolve`: a static route if there is one, else the DNS.
pub async fn resolve(core: Arc<Core>, domain: DomainId, name: String) {
    loop {
        let settings = core.settings();
        let resolution = look_up(&core, &settings, &name).await;
        // Routes that changed meanwhile are looked at again.
        if Arc::ptr_eq(&settings, &core.settings()) {
            core.with(|hub, now| hub.sched.resolved(&hub.store, domain, resolution, now));
            return;
        }
    }
}

async fn look_up(core: &Core, settings: &Settings, name: &str) -> Resolution {
    match settings.policy.route(name) {
        Some(route) => {
            let mut resolution = core.resolver.route(&route_hosts(route)).await;
            if let Resolution::Site(plan) = &mut resolution {
                for target in &mut plan.targets {
                    // A route's hosts have their position as preference.
                    target.lmtp = route.hosts.get(usize::from(target.preference)).is_some_and(|host| host.lmtp);
                }
            }
            resolution
        }
        None => core.resolver.resolve(name).await,
    }
}

/// RET of RFC 3461 as the queue keeps it, for a session.
pub fn ret(ret: QueueRet) -> Ret {
    match ret {
        QueueRet::Full => Ret::Full,
        QueueRet::Headers => Ret::Headers,
    }
}

/// RET of RFC 3461 as a session gave it, for the queue.
pub fn queue_ret(ret: Ret) -> QueueRet {
    match ret {
        Ret::Full => QueueRet::Full,
        Ret::Headers => QueueRet::Headers,
    }
}
