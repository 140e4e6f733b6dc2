//! Converts DNS answers to a [`Resolution`]. It is pure, so that every rule of RFC 5321 5.1 is tested by table.
//!
//! There are two steps, since addresses are looked up between them: [`candidates`] orders, cleans and limits the MX
//! hosts; [`plan`] makes a [`SitePlan`] of their addresses, or gives the reason why no host can receive the mail.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stentor_policy::{HostSpec, RouteHost};
use stentor_queue::cause::Cause;
use stentor_queue::site::{Endpoint, Enhanced, Resolution, SiteLimits, SitePlan, Target};

/// Maximum hosts of one domain that are looked up and tried; the rest of a longer MX set is ignored.
pub const MX_HOSTS_MAX: usize = 20;
/// Maximum addresses of one host that are tried, alternating between the families.
pub const HOST_ADDRESSES_MAX: usize = 8;
/// Bounds of [`SitePlan::ttl_s`]: a zone with TTL 0 must not cause queries for every message.
pub const TTL_S_MIN: u32 = 10;
pub const TTL_S_MAX: u32 = 86_400;
/// None of the domain's hosts has an address (RFC 3463 X.4.4: unable to route).
pub(super) const NO_ADDRESS: Enhanced = Enhanced::new(5, 4, 4);

/// One MX record as received: any name, any order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MxRecord {
    pub preference: u16,
    /// Host in lower case without the final dot; empty for the root (RFC 7505).
    pub host: String,
}

/// Result of the MX lookup of a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MxAnswer {
    Records {
        records: Vec<MxRecord>,
        ttl_s: u32,
    },
    /// The domain exists and has no MX: the domain itself is the host (RFC 5321 5.1, "implicit MX").
    NoData,
    /// As `NoData`, but not authoritative: the domain itself is tried, and a missing address is not final.
    Unproven,
    NoDomain,
    Failed(String),
}

/// Result of the address lookups (A and AAAA together) of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddressAnswer {
    Found {
        v4: Vec<IpAddr>,
        v6: Vec<IpAddr>,
        ttl_s: u32,
    },
    NoData,
    NoDomain,
    /// A CNAME loop, or a chain that is too long.
    CnameLoop,
    Failed(String),
}

/// A host to look up, in the order of attempts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MxHost {
    pub preference: u16,
    pub name: Arc<str>,
}

/// This server's identity, and the addresses that it refuses.
pub struct LocalIdentity<'a> {
    /// Host name in lower case, without the final dot.
    pub hostname: &'a str,
    /// Whether mail sent there would come back to one of our listeners.
    pub is_own: &'a dyn Fn(SocketAddr) -> bool,
    /// Whether loopback addresses in DNS answers are used (lab, tests) and not refused as a trap.
    pub loopback_allowed: bool,
    /// Port of MX hosts: 25 except in labs.
    pub port: u16,
    /// The only address family that is looked up, if there is just one.
    pub only_family: Option<&'static str>,
}

/// The MX hosts of `domain` to look up, best first, equal preferences in order of name (the scheduler spreads them).
///
/// # Errors
/// The final resolution without address lookups: null MX, or a set without usable hosts.
pub fn candidates(domain: &str, records: Vec<MxRecord>, own_name: &str) -> Result<Vec<MxHost>, Resolution> {
    if let [only] = records.as_slice()
        && only.host.is_empty()
    {
        return Err(permanent(Enhanced::new(5, 1, 10), format!("{domain} does not accept mail (null MX)")));
    }
    let mut records: Vec<_> = records.into_iter().filter(|r| is_host_name(&r.host)).collect();
    if records.is_empty() {
        return Err(permanent(NO_ADDRESS, format!("the MX records of {domain} contain no usable host")));
    }
    records.sort_unstable_by(|a, b| (a.preference, &a.host).cmp(&(b.preference, &b.host)));
    // RFC 5321 5.1: this server and all hosts that are not closer to the destination are dropped.
    let own = records.iter().find(|r| r.host == own_name).map(|r| r.preference);
    records.retain(|r| own.is_none_or(|own| r.preference < own));
    if records.is_empty() {
        return Err(loops(domain));
    }
    let mut hosts: Vec<MxHost> = Vec::new();
    for r in records {
        if hosts.len() == MX_HOSTS_MAX {
            break;
        }
        // A host that is repeated keeps its best preference.
        if hosts.iter().all(|h| *h.name != *r.host) {
            hosts.push(MxHost { preference: r.preference, name: r.host.into() });
        }
    }
    Ok(hosts)
}

/// The plan for `hosts` (in order) with their addresses; `ttl_s` is that of the MX answer.
pub fn plan(domain: &str, hosts: &[(MxHost, AddressAnswer)], ttl_s: u32, us: &LocalIdentity<'_>) -> Resolution {
    let mut targets = Vec::new();
    let mut ttl_s = ttl_s;
    let mut own: Option<u16> = None;
    let (mut bad, mut looped, mut no_domain, mut no_data) = (false, false, true, false);
    let mut failure: Option<String> = None;
    for (host, answer) in hosts {
        no_domain &= *answer == AddressAnswer::NoDomain;
        no_data |= *answer == AddressAnswer::NoData;
        if *host.name == *us.hostname {
            own = Some(own.map_or(host.preference, |p| p.min(host.preference)));
            continue;
        }
        match answer {
            AddressAnswer::Found { v4, v6, ttl_s: ttl } => {
                ttl_s = ttl_s.min(*ttl);
                for ip in interleave(v4, v6) {
                    let addr = SocketAddr::new(ip, us.port);
                    if (us.is_own)(addr) {
                        own = Some(own.map_or(host.preference, |p| p.min(host.preference)));
                    } else if is_target(ip, us.loopback_allowed) {
                        targets.push(Target {
                            preference: host.preference,
                            host: host.name.clone(),
                            addr: Endpoint::by_port(addr),
                            lmtp: false,
                            posture: None,
                        });
                    } else {
                        bad = true;
                    }
                }
            }
            AddressAnswer::NoData | AddressAnswer::NoDomain => {}
            AddressAnswer::CnameLoop => looped = true,
            AddressAnswer::Failed(why) => failure = Some(format!("{}: {why}", host.name)),
        }
    }
    if let Some(own) = own {
        targets.retain(|t| t.preference < own);
    }
    if !targets.is_empty() {
        return Resolution::Site(site(key(hosts), targets, ttl_s));
    }
    if let Some(why) = failure {
        // A host that could not be looked up may work, so never bounce because of it.
        return temporary(Enhanced::new(4, 4, 3), format!("address lookup of {why}"));
    }
    // An existing name may have addresses of the other family: the restriction is ours.
    if let Some(family) = us.only_family.filter(|_| no_data && own.is_none()) {
        let why = format!("no host for {domain} has an {family} address, the only family [dns] inet_protocols allows");
        return temporary(Enhanced::new(4, 4, 4), why);
    }
    match () {
        () if own.is_some() => loops(domain),
        () if looped => permanent(Enhanced::new(5, 4, 6), format!("the CNAME records of {domain} form a loop")),
        () if bad => permanent(Enhanced::new(5, 4, 6), format!("{domain} resolves to a loopback or unusable address")),
        () if no_domain && hosts.len() == 1 && *hosts[0].0.name == *domain => no_such_domain(domain),
        () => permanent(NO_ADDRESS, format!("no host for {domain} has an address")),
    }
}

/// The plan of a static route: `hosts` in the order of attempts, each with its addresses (a Unix socket has none).
///
/// An operator's route never bounces mail: all its errors are temporary until the lifetime ends.
pub fn route_plan(
    hosts: &[(&RouteHost, AddressAnswer)],
    ttl_s: u32,
    is_own: &dyn Fn(SocketAddr) -> bool,
) -> Resolution {
    let mut key = String::from("route:");
    let mut targets = Vec::new();
    let mut ttl_s = ttl_s;
    // An error of the configuration is not a failure of the DNS.
    let (mut cause, mut dsn) = (Cause::Routing, Enhanced::new(4, 4, 4));
    let mut why = String::from("the route names no host");
    for (position, (route, answer)) in hosts.iter().enumerate() {
        let RouteHost { host, port, lmtp, implicit_tls } = route;
        if position > 0 {
            key.push(',');
        }
        let (preference, lmtp) = (u16::try_from(position).unwrap_or(u16::MAX), *lmtp);
        let name: Arc<str> = match host {
            HostSpec::Name(name) | HostSpec::Mx(name) => (&**name).into(),
            HostSpec::Addr(addr) => addr.to_string().into(),
            HostSpec::Unix(path) => {
                let host: Arc<str> = format!("unix:{path}").into();
                key.push_str(&host);
                targets.push(Target { preference, host, addr: Endpoint::Unix((&**path).into()), lmtp, posture: None });
                continue;
            }
        };
        key.push_str(route.tls_prefix());
        key.push_str(&host_port(&name, *port));
        match answer {
            AddressAnswer::Found { v4, v6, ttl_s: ttl } => {
                ttl_s = ttl_s.min(*ttl);
                for ip in interleave(v4, v6) {
                    let addr = SocketAddr::new(ip, *port);
                    if is_own(addr) {
                        (cause, dsn) = (Cause::Routing, Enhanced::new(4, 4, 6));
                        why = format!("the route to {addr} loops back to this server");
                    } else {
                        let addr = if *implicit_tls { Endpoint::Tls(addr) } else { Endpoint::Tcp(addr) };
                        targets.push(Target { preference, host: name.clone(), addr, lmtp, posture: None });
                    }
                }
            }
            AddressAnswer::NoData | AddressAnswer::NoDomain => why = format!("the route's host {name} has no address"),
            AddressAnswer::CnameLoop => why = format!("the CNAME records of the route's host {name} form a loop"),
            AddressAnswer::Failed(error) => {
                cause = Cause::Dns;
                why = format!("address lookup of the route's host {name}: {error}");
            }
        }
    }
    if targets.is_empty() {
        return Resolution::Temporary { cause, dsn, text: why };
    }
    let mut plan = site(key, targets, ttl_s);
    plan.mixes_domains = true;
    Resolution::Site(plan)
}

/// Parses a domain written as an address, `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC 5321 4.1.3); `None` for an
/// ordinary name.
pub fn address_literal(domain: &str) -> Option<Result<IpAddr, Resolution>> {
    let inner = domain.strip_prefix('[')?;
    let parsed = inner.strip_suffix(']').and_then(|inner| match inner.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("IPv6:") => inner[5..].parse().ok().map(IpAddr::V6),
        _ => inner.parse().ok().map(IpAddr::V4),
    });
    Some(
        parsed.ok_or_else(|| permanent(Enhanced::new(5, 1, 2), format!("{domain} is not a reachable address literal"))),
    )
}

/// Whether `name` can be a host: characters of RFC 1123 and the underscore, no empty label, not too long. Other names
/// in the DNS (with commas, control characters, spaces) are not mail hosts and must not reach a log.
pub fn is_host_name(name: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty() && l.len() <= 63 && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// The domain does not exist (RFC 3463 X.1.2).
pub fn no_such_domain(domain: &str) -> Resolution {
    permanent(Enhanced::new(5, 1, 2), format!("the domain {domain} does not exist"))
}

/// A temporary failure; the queue tries again.
pub fn temporary(dsn: Enhanced, text: String) -> Resolution {
    Resolution::Temporary { cause: Cause::Dns, dsn, text }
}

pub(super) fn permanent(dsn: Enhanced, text: String) -> Resolution {
    Resolution::Permanent { dsn, text }
}

fn loops(domain: &str) -> Resolution {
    permanent(Enhanced::new(5, 4, 6), format!("mail for {domain} loops back to this server"))
}

fn site(key: String, targets: Vec<Target>, ttl_s: u32) -> SitePlan {
    let ttl_s = ttl_s.clamp(TTL_S_MIN, TTL_S_MAX);
    SitePlan { key: key.into(), targets, mixes_domains: false, limits: SiteLimits::default(), ttl_s }
}

/// The key of a site: all candidates, even those without an address at present, so that it does not change when one
/// of the hosts is unavailable.
fn key(hosts: &[(MxHost, AddressAnswer)]) -> String {
    let mut names: Vec<&str> = hosts.iter().map(|(h, _)| &*h.name).collect();
    names.sort_unstable();
    names.join(",")
}

fn host_port(name: &str, port: u16) -> String {
    if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
}

/// Alternates the families, IPv4 first, so that many addresses of one do not hide the other.
fn interleave(v4: &[IpAddr], v6: &[IpAddr]) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = Vec::with_capacity((v4.len() + v6.len()).min(HOST_ADDRESSES_MAX));
    for i in 0..v4.len().max(v6.len()) {
        for ip in [v4.get(i), v6.get(i)].into_iter().flatten() {
            if ips.len() < HOST_ADDRESSES_MAX && !ips.contains(ip) {
                ips.push(*ip);
            }
        }
    }
    ips
}

fn is_target(ip: IpAddr, loopback_allowed: bool) -> bool {
    let ip = ip.to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0);
    !ip.is_unspecified() && !ip.is_multicast() && !broadcast && (loopback_allowed || !ip.is_loopback())
}
