//! What the server sends over HTTP by itself: outcomes to webhooks, spans to a collector, TLS reports to the domains
//! that request them.
//!
//! Promise: none of them delays mail; each bounds what it holds in memory, and says in its module what a server that is
//! slow or down costs.

mod outbound;
pub mod telemetry;
mod tls_reports;
pub mod webhooks;

use std::sync::Arc;

use stentor_core::Core;

use self::outbound::Outbound;
use self::webhooks::Registry;

/// Starts all of them. Returns the states of the webhooks.
pub fn start(core: &Arc<Core>) -> Arc<Registry> {
    let outbound = Arc::<Outbound>::default();
    telemetry::start(core, outbound.clone());
    tokio::spawn(tls_reports::send_when_due(core.clone(), outbound.clone()));
    webhooks::start(core, &outbound)
}
