//! The resolver's answer for a domain: a site with its hosts and limits, or a temporary or permanent failure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where a host is connected to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    Tcp(SocketAddr),
    /// The path of a Unix socket on this machine.
    Unix(Arc<str>),
}

impl Endpoint {
    /// A Unix socket has none.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Endpoint::Tcp(addr) => Some(addr.ip()),
            Endpoint::Unix(_) => None,
        }
    }

    /// 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        match self {
            Endpoint::Tcp(addr) => addr.port(),
            Endpoint::Unix(_) => 0,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(addr) => addr.fmt(out),
            Endpoint::Unix(path) => write!(out, "unix:{path}"),
        }
    }
}

impl<A: Into<SocketAddr>> From<A> for Endpoint {
    fn from(addr: A) -> Endpoint {
        Endpoint::Tcp(addr.into())
    }
}

/// One address of one host, with the preference of its MX record (0 for routes: tried in the order given).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub preference: u16,
    pub host: Arc<str>,
    pub addr: Endpoint,
    /// Spoken to by LMTP (RFC 2033), not SMTP.
    pub lmtp: bool,
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addr {
            Endpoint::Tcp(addr) => write!(out, "{} [{}]", self.host, addr.ip()),
            Endpoint::Unix(_) => out.write_str(&self.host),
        }
    }
}

/// What may be asked of a site, per source address. `None`: as the configuration has it for all, and what the site teaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SiteLimits {
    pub connections_max: Option<u32>,
    pub transactions_per_connection_max: Option<u32>,
    pub recipients_per_transaction_max: Option<u32>,
    /// Messages (transactions) per second, minute, hour.
    pub per_second: Option<u32>,
    pub per_minute: Option<u32>,
    pub per_hour: Option<u32>,
    /// One transaction may carry recipients of several domains.
    pub mixes_domains: bool,
}

impl SiteLimits {
    /// These, with what they leave open as in `base`.
    #[must_use]
    pub fn over(self, base: SiteLimits) -> SiteLimits {
        SiteLimits {
            connections_max: self.connections_max.or(base.connections_max),
            transactions_per_connection_max: self
                .transactions_per_connection_max
                .or(base.transactions_per_connection_max),
            recipients_per_transaction_max: self.recipients_per_transaction_max.or(base.recipients_per_transaction_max),
            per_second: self.per_second.or(base.per_second),
            per_minute: self.per_minute.or(base.per_minute),
            per_hour: self.per_hour.or(base.per_hour),
            mixes_domains: self.mixes_domains || base.mixes_domains,
        }
    }
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
    /// What the operator's rules or a built-in profile say about this site.
    pub limits: SiteLimits,
    /// How long the answer holds.
    pub ttl_s: u32,
}

/// The answer to a look-up of a domain.
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
