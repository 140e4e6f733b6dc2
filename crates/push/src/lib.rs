//! Sends outgoing HTTP: outcomes to webhooks, spans to a collector, and daily reports to the domains
//! that request them.
//!
//! Promise: none of them delays mail; each bounds its memory, and its module says what a slow or unreachable server
//! costs.

mod client;
mod daily_reports;
pub mod telemetry;
pub mod webhooks;

use std::sync::Arc;

use stentor_core::Core;

use self::client::PushClient;
use self::daily_reports::{DmarcKind, TlsKind, send_when_due};
use self::webhooks::Registry;

/// Starts the tasks; returns the states of the webhooks.
pub fn start(core: &Arc<Core>) -> Arc<Registry> {
    let client = Arc::<PushClient>::default();
    telemetry::start(core, client.clone());
    tokio::spawn(send_when_due::<TlsKind>(core.clone(), client.clone()));
    tokio::spawn(send_when_due::<DmarcKind>(core.clone(), client.clone()));
    webhooks::start(core, &client)
}
