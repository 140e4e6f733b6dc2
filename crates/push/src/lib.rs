//! Sends outgoing HTTP: outcomes to webhooks, spans to a collector, TLS reports to the domains that request them.
//!
//! Promise: none of them delays mail; each bounds its memory, and its module says what a slow or unreachable server
//! costs.

mod client;
pub mod telemetry;
mod tls_reports;
pub mod webhooks;

use std::sync::Arc;

use stentor_core::Core;

use self::client::PushClient;
use self::webhooks::Registry;

/// Starts the tasks; returns the states of the webhooks.
pub fn start(core: &Arc<Core>) -> Arc<Registry> {
    let client = Arc::<PushClient>::default();
    telemetry::start(core, client.clone());
    tokio::spawn(tls_reports::send_when_due(core.clone(), client.clone()));
    webhooks::start(core, &client)
}
