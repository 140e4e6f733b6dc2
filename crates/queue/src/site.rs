//! The resolver's answer for a domain: a site with its hosts and limits, or a temporary or permanent failure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stentor_mail::SUBMISSIONS_PORT;
pub use stentor_mail::reply::Enhanced;
use stentor_tls_policy::HostPosture;

use crate::cause::Cause;

/// Where and how to connect to a host. One address with two kinds of TLS counts as two hosts, each with its own clock
/// and connections.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// In clear until STARTTLS.
    Tcp(SocketAddr),
    /// TLS from the first octet.
    Tls(SocketAddr),
    /// The path of a Unix socket on this machine.
    Unix(Arc<str>),
}

impl Endpoint {
    /// An endpoint with the usual kind of TLS for its port.
    pub fn by_port(addr: impl Into<SocketAddr>) -> Endpoint {
        let addr = addr.into();
        if addr.port() == SUBMISSIONS_PORT { Endpoint::Tls(addr) } else { Endpoint::Tcp(addr) }
    }

    /// Whether TLS begins with the first octet.
    pub fn is_implicit_tls(&self) -> bool {
        matches!(self, Endpoint::Tls(_))
    }

    /// The socket address; a Unix socket has none.
    pub fn addr(&self) -> Option<SocketAddr> {
        match self {
            Endpoint::Tcp(addr) | Endpoint::Tls(addr) => Some(*addr),
            Endpoint::Unix(_) => None,
        }
    }

    /// The IP address; a Unix socket has none.
    pub fn ip(&self) -> Option<IpAddr> {
        self.addr().map(|addr| addr.ip())
    }

    /// The port; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        self.addr().map_or(0, |addr| addr.port())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(addr) | Endpoint::Tls(addr) => addr.fmt(out),
            Endpoint::Unix(path) => write!(out, "unix:{path}"),
        }
    }
}

/// One address of one host, with the preference of its MX record (0 for routes: tried in the order given).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub preference: u16,
    pub host: Arc<str>,
    pub addr: Endpoint,
    /// Whether the host speaks LMTP (RFC 2033) instead of SMTP.
    pub lmtp: bool,
    /// TLS requirements of this site's mail there; `None`: opportunistic. A host that does not meet them keeps back
    /// only this site's mail: at other sites it has its own clock.
    pub posture: Option<Arc<HostPosture>>,
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addr {
            Endpoint::Tcp(addr) | Endpoint::Tls(addr) => write!(out, "{} [{}]", self.host, addr.ip()),
            Endpoint::Unix(_) => out.write_str(&self.host),
        }
    }
}

/// Limits of a site, per source address. `None`: the configuration's general limit, and learned ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SiteLimits {
    pub connections_max: Option<u32>,
    pub transactions_per_connection_max: Option<u32>,
    pub recipients_per_transaction_max: Option<u32>,
    /// Messages (transactions) per second, minute, hour.
    pub per_second: Option<u32>,
    pub per_minute: Option<u32>,
    pub per_hour: Option<u32>,
    /// Whether one transaction may carry recipients of several domains.
    pub mixes_domains: bool,
}

impl SiteLimits {
    /// These limits, with missing ones taken from `base`.
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

/// Destination of a domain's mail. Two plans with the same `key` are the same site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SitePlan {
    /// The sorted MX host names joined by `,`, or `route:` and the route's hosts; then `;tls=` and the TLS
    /// requirements, if any ([`SitePlan::protect`]).
    pub key: Arc<str>,
    /// Sorted by preference; for a route every host has its own preference (its position).
    pub targets: Vec<Target>,
    /// Whether one transaction may carry recipients of several domains (static routes; no public MX).
    pub mixes_domains: bool,
    /// Limits from the operator's rules or a built-in profile for this site.
    pub limits: SiteLimits,
    /// How long the answer is valid.
    pub ttl_s: u32,
}

impl SitePlan {
    /// Applies TLS requirements: mail of this site goes only as `posture` requires for each host. `suffix`
    /// ([`stentor_tls_policy::site_suffix`]) is empty if nothing is required or published, so that the site keeps its
    /// plain name.
    pub fn protect(&mut self, suffix: &str, mut posture: impl FnMut(&Target) -> Option<Arc<HostPosture>>) {
        for target in &mut self.targets {
            target.posture = posture(target);
        }
        if !suffix.is_empty() {
            // Names of sites are used in commands, so they contain no spaces.
            let suffix = suffix.replace(", ", ",").replace(' ', "");
            self.key = format!("{};tls={suffix}", self.key).into();
        }
    }
}

/// The answer to a look-up of a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    Site(SitePlan),
    /// The domain cannot get mail: null MX (5.1.10), no such domain (5.1.2), a loop to ourselves (5.4.6).
    Permanent {
        dsn: Enhanced,
        text: String,
    },
    /// Ask again later: SERVFAIL, time-out, no answer (4.4.3); or one of our tables cannot be queried.
    Temporary {
        cause: Cause,
        dsn: Enhanced,
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use stentor_tls_policy::{Peer, PeerName, PublishedPolicies, Requirement, site_suffix};

    use super::*;

    #[test]
    fn one_address_with_two_kinds_of_tls_is_two_endpoints() {
        let addr: SocketAddr = ([192, 0, 2, 1], SUBMISSIONS_PORT).into();
        assert_eq!(Endpoint::by_port(addr), Endpoint::Tls(addr));
        assert!(Endpoint::by_port(addr) != Endpoint::Tcp(addr));
        let other: SocketAddr = ([192, 0, 2, 1], 4650).into();
        assert_eq!(Endpoint::by_port(other), Endpoint::Tcp(other));
        assert_eq!(Endpoint::Tls(other).to_string(), "192.0.2.1:4650");
    }

    #[test]
    fn a_demand_makes_another_site_of_the_same_hosts() {
        let target = Target {
            preference: 0,
            host: "mx".into(),
            addr: Endpoint::by_port(([192, 0, 2, 1], 25)),
            lmtp: false,
            posture: None,
        };
        let limits = SiteLimits::default();
        let plan = SitePlan { key: "mx".into(), targets: vec![target], mixes_domains: true, limits, ttl_s: 60 };
        let protected = |requirement: Requirement| {
            let (mut plan, posture, peer) = (plan.clone(), requirement.into(), Peer { hostname: "mx", nexthop: "a" });
            let host = HostPosture::new(&posture, None, peer, PublishedPolicies::default()).map(Arc::new);
            plan.protect(&site_suffix(&posture, "a", [host.as_deref()].into_iter()), |_| host.clone());
            plan
        };
        assert_eq!(protected(Requirement::May), plan);
        let names = [PeerName::Hostname, PeerName::parse(".example.com").unwrap()].into();
        let verified = protected(Requirement::Verify { names });
        assert_eq!(&*verified.key, "mx;tls=verify(hostname,.example.com)");
        assert!(verified.targets[0].posture.is_some() && verified.targets != plan.targets);
        assert_eq!(&*protected(Requirement::None).key, "mx;tls=none");
    }
}
