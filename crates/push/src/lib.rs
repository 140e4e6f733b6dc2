//! What the server sends over HTTP by itself: outcomes to webhooks, spans to a collector, TLS reports to the domains
//! that request them.
//!
//! Promise: none of them delays mail; each bounds what it holds in memory, and says in its module what a server that is
//! slow or down costs.

mod outbound;
pub mod telemetry;
pub mod tls_reports;
pub mod webhooks;
