//! What the shell's resolver tells the scheduler about a domain.

use std::net::SocketAddr;
use std::sync::Arc;

/// One address of one host, with the preference of its MX record (0 for routes: tried in the order given).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub preference: u16,
    pub host: Arc<str>,
    pub addr: SocketAddr,
    /// Spoken to by LMTP (RFC 2033), not SMTP.
    pub lmtp: bool,
}

/// Where a domain's mail goes. Two plans with the same `key` are the same site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SitePlan {
    /// The sorted MX host names joined by `,`, or `route:` and the route's hosts.
    pub key: Arc<str>,
    /// Sorted by preference; for a route every host has its own preference (its position).
    pub targets: Vec<Target>,
    /// Whether one transaction may carry recipients of several domains (static routes; no public MX).
    pub mixes_domains: bool,
    /// How long the answer holds.
    pub ttl_s: u32,
}

/// The answer to [`crate::sched::Effect::Resolve`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    Site(SitePlan),
    /// The domain cannot get mail: null MX (5.1.10), no such domain (5.1.2), a loop to ourselves (5.4.6).
    Permanent {
        dsn: &'static str,
        text: String,
    },
    /// Ask again later: SERVFAIL, time-out, no answer (4.4.3).
    Temporary {
        dsn: &'static str,
        text: String,
    },
}
