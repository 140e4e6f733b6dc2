//! Resolves the hosts for a domain's mail: MX and address lookups (RFC 5321 5.1), static routes, address literals.
//! Rules' queries about an untrusted client are in [`asker`], those of SPF, DKIM and DMARC in [`message_auth`], DANE
//! and TXT records of domains in [`published`], TXT records at all name servers of a zone in [`authority`].
//!
//! Promise: [`Resolver::resolve`] always ends within [`RESOLVE_MS_MAX`] and makes a bounded number of queries,
//! whatever the DNS returns; it bounces (`Permanent`) only on authoritative answers, and defers in all other cases.
//!
//! | DNS answer | result |
//! |---|---|
//! | MX records | the hosts by preference, at most 20 of them, at most 8 addresses each |
//! | no MX, but A or AAAA | the domain itself (implicit MX) |
//! | one MX to `.` | permanent 5.1.10 (RFC 7505) |
//! | NXDOMAIN | permanent 5.1.2 |
//! | no host with an address | permanent 5.4.4 |
//! | this server is the best MX, a loopback address from the public DNS, a CNAME loop | permanent 5.4.6 |
//! | SERVFAIL, REFUSED, timeout, malformed, neither records nor an SOA, the only host could not be looked up | temporary 4.4.3 |
//! | NXDOMAIN or no records, from a name server that does not validate while one that does is awaited ([`truth`]) | temporary 4.4.3 |
//!
//! Which name server is asked, again, without EDNS or over TCP, is in [`inquiry`] and [`servers`]. The cache is
//! hickory's (bounded; negative answers by their SOA, at most `negative_ttl_ms_max`). The number of resolutions at a
//! time is the caller's. Rules are in [`select`], which is pure.

mod aliases;
mod answers;
mod asker;
mod authority;
mod connection;
mod expansion;
mod hint;
mod inquiry;
mod message_auth;
pub mod offline;
mod own;
mod probe;
mod published;
mod rating;
mod select;
mod servers;
#[cfg(test)]
mod tests;
mod transport;
mod truth;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use answers::{Empty, Origin};
pub use asker::{Asker, ListCounts};
pub use authority::{PublishedText, PublishedTexts, ServerAnswers, ZONE_PORT};
use connection::Provider;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig as OneServer};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};
use hint::Hint;
pub use message_auth::AnsweredQuestion;
use own::OwnAddresses;
pub use probe::ProbeAnswer;
use published::MxOrigin;
pub use published::{DaneResult, DnssecFacts};
use select::{AddressAnswer, LocalIdentity, MxAnswer, MxHost, TTL_S_MAX};
use servers::{Asking, Servers};
use stentor_policy::{HostSpec, RouteHost};
use stentor_queue::site::{Enhanced, Resolution};
use tokio::task::JoinSet;

/// Time limit of one resolution, with all its lookups and repeats.
pub const RESOLVE_MS_MAX: u64 = 60_000;
/// Default of [`ResolverConfig::negative_ttl_ms_max`].
pub const NEGATIVE_TTL_S_MAX: u64 = 900;
/// Maximum CNAMEs followed to distinguish a loop from a name without addresses.
const CNAME_STEPS_MAX: usize = 8;
/// Time limit for a client's name; after it the name is unknown.
pub const NAME_MS_MAX: u64 = 5_000;
/// Maximum names of one client that are examined.
const CLIENT_NAMES_MAX: usize = 4;

/// Settings of the resolver, and our identity.
#[derive(Clone, Debug)]
pub struct ResolverConfig {
    /// Name servers, queried in this order over UDP, and TCP if truncated, until one answers.
    pub name_servers: Vec<SocketAddr>,
    /// Port of MX hosts: 25 except in labs.
    pub port: u16,
    /// Port of the name servers of zones: 53 except in tests.
    pub zone_port: u16,
    /// Our name; an MX of this name is this server.
    pub hostname: String,
    /// Our listening addresses. A wildcard (`0.0.0.0`, `::`) means every address of this machine.
    pub listeners: Vec<SocketAddr>,
    /// Loopback addresses in DNS answers are used (lab, tests), but never those of our listeners.
    pub loopback_allowed: bool,
    /// Timeout of one query to one server.
    pub timeout_ms: u64,
    /// Repeats of a query without an answer.
    pub retries: usize,
    /// Maximum answers cached.
    pub cache_entries_max: u64,
    /// Maximum TTL of a negative answer, whatever its SOA says (RFC 2308 5).
    pub negative_ttl_ms_max: u64,
    pub ipv4: bool,
    pub ipv6: bool,
    /// The configuration asks for DANE in so many words: where several name servers are believed, one that has not
    /// shown whether it validates counts as one that does.
    pub dane_required: bool,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        ResolverConfig {
            name_servers: Vec::new(),
            port: 25,
            zone_port: ZONE_PORT,
            hostname: String::new(),
            listeners: Vec::new(),
            loopback_allowed: false,
            timeout_ms: 5_000,
            retries: 2,
            cache_entries_max: 65_536,
            negative_ttl_ms_max: NEGATIVE_TTL_S_MAX * 1000,
            ipv4: true,
            ipv6: true,
            dane_required: false,
        }
    }
}

/// The resolver could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    #[error("the resolver could not be set up: {0}")]
    SetUp(NetError),
    #[error("neither IPv4 nor IPv6 is enabled for delivery")]
    NoFamily,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Domains and routes resolved, whatever the result.
    pub resolutions: u64,
    /// Queries, including those answered by the cache.
    pub queries: u64,
    /// Replies of name servers over the network, of any kind.
    pub replies: u64,
    /// Queries that ended in an error other than "no such name" and "no such data".
    pub failures: u64,
    /// Queries that no name server answered, or all refused, while none was answered; 0 once one is.
    pub unanswered: u64,
    /// Domains that did not resolve while none has; 0 once one does.
    pub unresolved: u64,
}

/// Cheap to clone; all clones share cache and counters.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    dns: hickory_resolver::Resolver<Provider>,
    servers: Arc<Servers>,
    own: OwnAddresses,
    config: ResolverConfig,
    /// Whether authenticated answers are trusted.
    is_trusted: bool,
    resolutions: AtomicU64,
    queries: AtomicU64,
    failures: AtomicU64,
    hint: Hint,
    lists: asker::Lists,
}

impl Resolver {
    /// Starts no tasks; lookups open the sockets.
    pub fn new(config: ResolverConfig) -> Result<Resolver, ResolverError> {
        if !config.ipv4 && !config.ipv6 {
            return Err(ResolverError::NoFamily);
        }
        let is_trusted = connection::are_trusted(&config.name_servers);
        let timeout = Duration::from_millis(config.timeout_ms);
        let asking = Asking {
            timeout,
            retries: config.retries,
            asks_for_truth: is_trusted,
            unknown_may_validate: config.dane_required,
        };
        let servers = Arc::new(Servers::new(&config.name_servers, asking));
        let provider = Provider::new(servers.clone());
        // One server represents all: which one is queried, and how often, is decided behind it.
        let one = OneServer::from_name_servers(config.name_servers.iter().take(1).map(|s| name_server(*s)).collect());
        let mut builder = hickory_resolver::Resolver::builder_with_config(one, provider);
        let options = builder.options_mut();
        options.timeout = timeout;
        options.attempts = 0;
        options.cache_size = config.cache_entries_max;
        options.use_hosts_file = ResolveHosts::Never;
        options.preserve_intermediates = true;
        options.positive_max_ttl = Some(Duration::from_secs(TTL_S_MAX.into()));
        options.negative_max_ttl = Some(Duration::from_millis(config.negative_ttl_ms_max));
        let dns = builder.build().map_err(ResolverError::SetUp)?;
        let mut config = config;
        config.hostname = plain(&config.hostname);
        let zero = || AtomicU64::new(0);
        Ok(Resolver(Arc::new(Inner {
            dns,
            servers,
            own: OwnAddresses::default(),
            config,
            is_trusted,
            resolutions: zero(),
            queries: zero(),
            failures: zero(),
            hint: Hint::default(),
            lists: asker::Lists::default(),
        })))
    }

    /// Returns a resolver with other name servers and an empty cache. Counters and paused DNS lists carry over. This
    /// resolver keeps its servers, so an answer is never trusted because of the new ones.
    ///
    /// # Errors
    /// As [`Resolver::new`].
    pub fn with_name_servers(&self, name_servers: Vec<SocketAddr>) -> Result<Resolver, ResolverError> {
        let next = Resolver::new(ResolverConfig { name_servers, ..self.0.config.clone() })?;
        let counters = self.counters();
        next.0.resolutions.store(counters.resolutions, Ordering::Relaxed);
        next.0.queries.store(counters.queries, Ordering::Relaxed);
        next.0.failures.store(counters.failures, Ordering::Relaxed);
        next.0.servers.replies.store(counters.replies, Ordering::Relaxed);
        next.0.lists.continue_from(&self.0.lists);
        Ok(next)
    }

    /// Finds the hosts for mail to `domain` (A-labels, or an address literal).
    pub async fn resolve(&self, domain: &str) -> Resolution {
        self.resolve_with_facts(domain).await.0
    }

    /// As [`Self::resolve`], also returning the authentication of the answers.
    pub async fn resolve_with_facts(&self, domain: &str) -> (Resolution, DnssecFacts) {
        self.0.resolutions.fetch_add(1, Ordering::Relaxed);
        let limit = Duration::from_millis(RESOLVE_MS_MAX);
        let mut facts = DnssecFacts::default();
        let resolution = match tokio::time::timeout(limit, self.resolve_domain(&plain(domain), &mut facts)).await {
            Ok(resolution) => resolution,
            Err(_) => select::temporary(Enhanced::new(4, 4, 3), format!("lookup of {domain} timed out")),
        };
        // Address literals need no name server.
        let hint = || self.0.hint.take(&resolution, &self.0.config.name_servers);
        if let Some(hint) = (!domain.starts_with('[')).then(hint).flatten() {
            tracing::warn!("{hint}");
        }
        (resolution, facts)
    }

    /// The plan of a static route; `hosts` are tried in this order. The result is never permanent.
    pub async fn route(&self, hosts: &[RouteHost]) -> Resolution {
        self.route_with_facts(hosts).await.0
    }

    /// As [`Self::route`], also returning the authentication of the answers.
    pub async fn route_with_facts(&self, hosts: &[RouteHost]) -> (Resolution, DnssecFacts) {
        self.0.resolutions.fetch_add(1, Ordering::Relaxed);
        let limit = Duration::from_millis(RESOLVE_MS_MAX);
        let mut facts = DnssecFacts::default();
        let planned = async {
            let (hosts, ttl_s) = match self.expanded(hosts, &mut facts).await {
                Ok(found) => found,
                Err(why) => return select::temporary(Enhanced::new(4, 4, 4), why),
            };
            let names = hosts.iter().map(|host| match &host.host {
                HostSpec::Name(name) | HostSpec::Mx(name) => Arc::from(plain(name)),
                HostSpec::Addr(addr) => addr.to_string().into(),
                // There is no name to look up.
                HostSpec::Unix(_) => Arc::from(""),
            });
            let answers = self.host_addresses(names.collect()).await;
            for (host, (name, (_, origin))) in hosts.iter().zip(&answers) {
                facts.add(name, host.port, origin);
            }
            let hosts: Vec<_> = hosts.iter().zip(answers.into_iter().map(|(_, (answer, _))| answer)).collect();
            select::route_plan(&hosts, ttl_s, &|addr| self.is_own(addr))
        };
        let resolution = match tokio::time::timeout(limit, planned).await {
            Ok(resolution) => resolution,
            Err(_) => select::temporary(Enhanced::new(4, 4, 3), "lookup of the route's hosts timed out".to_owned()),
        };
        let is_named = hosts.iter().any(|host| matches!(host.host, HostSpec::Name(_) | HostSpec::Mx(_)));
        if is_named && matches!(resolution, Resolution::Site(_)) {
            self.0.hint.resolved();
        }
        (resolution, facts)
    }

    /// The hosts of a route, with `mx:` entries replaced by the MX hosts of their domain, and the TTL; the error is
    /// the reason why there are none.
    async fn expanded(&self, hosts: &[RouteHost], facts: &mut DnssecFacts) -> Result<(Vec<RouteHost>, u32), String> {
        let (mut named, mut ttl_s, mut failure) = (Vec::with_capacity(hosts.len()), TTL_S_MAX, None);
        for host in hosts {
            let HostSpec::Mx(domain) = &host.host else {
                named.push(host.clone());
                continue;
            };
            match self.mx_hosts(&plain(domain)).await {
                Ok((found, ttl, _, origin)) => {
                    ttl_s = ttl_s.min(ttl);
                    facts.found_mx(domain, &origin, found.iter().map(|host| &*host.name));
                    let name =
                        |found: MxHost| RouteHost { host: HostSpec::Name((&*found.name).into()), ..host.clone() };
                    named.extend(found.into_iter().map(name));
                }
                Err(Resolution::Permanent { text, .. } | Resolution::Temporary { text, .. }) => failure = Some(text),
                Err(Resolution::Site(_)) => {}
            }
        }
        match failure {
            Some(why) if named.is_empty() => Err(why),
            _ => Ok((named, ttl_s)),
        }
    }

    /// A client's name: that of its PTR record, if that name has the client's address. `None`: the DNS has no such
    /// name, definitively. Empty: unknown for now. Ends within [`NAME_MS_MAX`].
    pub async fn client_name(&self, client: IpAddr) -> Option<String> {
        let client = client.to_canonical();
        let named = async {
            let reverse = Name::from(client);
            let Ok(names) = answers::names(self.lookup(&reverse, RecordType::PTR).await) else {
                return Some(String::new());
            };
            let mut is_certain = true;
            for name in names.into_iter().take(CLIENT_NAMES_MAX).map(|name| plain(&name)) {
                match self.addresses(&name).await {
                    AddressAnswer::Found { v4, v6, .. } if v4.iter().chain(&v6).any(|ip| *ip == client) => {
                        return Some(name);
                    }
                    AddressAnswer::Failed(_) => is_certain = false,
                    _ => {}
                }
            }
            if is_certain { None } else { Some(String::new()) }
        };
        let limit = Duration::from_millis(NAME_MS_MAX);
        tokio::time::timeout(limit, named).await.unwrap_or_else(|_| Some(String::new()))
    }

    /// The name servers in use.
    pub fn name_servers(&self) -> &[SocketAddr] {
        &self.0.config.name_servers
    }

    /// Queries the name servers directly, bypassing the cache, to find out whether any answers.
    pub async fn probe(&self) -> ProbeAnswer {
        probe::ask(&self.0.config.name_servers).await
    }

    pub fn counters(&self) -> Counters {
        Counters {
            resolutions: self.0.resolutions.load(Ordering::Relaxed),
            queries: self.0.queries.load(Ordering::Relaxed),
            replies: self.0.servers.replies(),
            failures: self.0.failures.load(Ordering::Relaxed),
            unanswered: self.0.hint.unanswered(),
            unresolved: self.0.hint.unresolved(),
        }
    }

    /// Clears the cache (operator's reload).
    pub fn clear_cache(&self) {
        self.0.dns.clear_cache();
    }

    async fn resolve_domain(&self, domain: &str, facts: &mut DnssecFacts) -> Resolution {
        if let Some(literal) = select::address_literal(domain) {
            return match literal {
                Ok(ip) => {
                    let host = MxHost { preference: 0, name: domain.into() };
                    select::plan(domain, &[(host, found(ip))], TTL_S_MAX, &self.identity(&|addr| self.is_own(addr)))
                }
                Err(resolution) => resolution,
            };
        }
        let (hosts, ttl_s, is_unproven, origin) = match self.mx_hosts(domain).await {
            Ok(found) => found,
            Err(resolution) => return resolution,
        };
        facts.found_mx(domain, &origin, hosts.iter().map(|host| &*host.name));
        let answers = self.host_addresses(hosts.iter().map(|h| h.name.clone()).collect()).await;
        for (name, (_, origin)) in &answers {
            facts.add(name, self.0.config.port, origin);
        }
        let hosts: Vec<_> = hosts.into_iter().zip(answers).map(|(host, (_, (answer, _)))| (host, answer)).collect();
        match select::plan(domain, &hosts, ttl_s, &self.identity(&|addr| self.is_own(addr))) {
            Resolution::Permanent { dsn: select::NO_ADDRESS, .. } if is_unproven => select::temporary(
                Enhanced::new(4, 4, 3),
                format!("MX lookup of {domain}: the answer has neither MX records for that name nor an SOA"),
            ),
            resolution => resolution,
        }
    }

    /// The MX hosts of a domain, best first, how long that holds, and whether nothing proves that there are none.
    /// Without MX records, the domain itself (RFC 5321 5.1).
    ///
    /// # Errors
    /// The resolution that needs no addresses.
    async fn mx_hosts(&self, domain: &str) -> Result<(Vec<MxHost>, u32, bool, MxOrigin), Resolution> {
        let Some(name) = dns_name(domain) else {
            return Err(select::permanent(Enhanced::new(5, 1, 2), format!("{domain} is not a valid domain name")));
        };
        let result = self.lookup(&name, RecordType::MX).await;
        let awaited = truth::why_awaited(&result);
        let (answer, origin) = answers::mx_answer(&name, result);
        let answer = awaited.map_or(answer, MxAnswer::Failed);
        // Many small forwarders omit the SOA, so the domain itself is tried; but a missing address is not final then.
        let is_unproven = answer == MxAnswer::Unproven;
        match answer {
            MxAnswer::Records { records, ttl_s } => {
                let hosts = select::candidates(domain, records, &self.0.config.hostname)?;
                Ok((hosts, ttl_s, is_unproven, MxOrigin::Records(origin)))
            }
            MxAnswer::NoData | MxAnswer::Unproven => Ok((
                vec![MxHost { preference: 0, name: domain.into() }],
                TTL_S_MAX,
                is_unproven,
                MxOrigin::None(origin.unchecked),
            )),
            MxAnswer::NoDomain => Err(select::no_such_domain(domain)),
            MxAnswer::Failed(why) => {
                Err(select::temporary(Enhanced::new(4, 4, 3), format!("MX lookup of {domain}: {why}")))
            }
        }
    }

    fn identity<'a>(&'a self, is_own: &'a dyn Fn(SocketAddr) -> bool) -> LocalIdentity<'a> {
        let config = &self.0.config;
        let only_family = match (config.ipv4, config.ipv6) {
            (true, false) => Some("IPv4"),
            (false, true) => Some("IPv6"),
            _ => None,
        };
        let ResolverConfig { hostname, loopback_allowed, port, .. } = config;
        LocalIdentity { hostname, is_own, loopback_allowed: *loopback_allowed, port: *port, only_family }
    }

    /// The addresses of `names`, in order, looked up in parallel.
    async fn host_addresses(&self, names: Vec<Arc<str>>) -> Vec<(Arc<str>, (AddressAnswer, Origin))> {
        if let [only] = names.as_slice() {
            let answer = self.located(only).await;
            return vec![(only.clone(), answer)];
        }
        let mut tasks = JoinSet::new();
        for (i, name) in names.iter().cloned().enumerate() {
            let resolver = self.clone();
            tasks.spawn(async move { (i, resolver.located(&name).await) });
        }
        let unfinished = || (AddressAnswer::Failed("the lookup did not finish".to_owned()), Origin::default());
        let mut results: Vec<_> = names.into_iter().map(|name| (name, unfinished())).collect();
        while let Some(joined) = tasks.join_next().await {
            if let Ok((i, answer)) = joined {
                results[i].1 = answer;
            }
        }
        results
    }

    async fn addresses(&self, host: &str) -> AddressAnswer {
        self.located(host).await.0
    }

    async fn located(&self, host: &str) -> (AddressAnswer, Origin) {
        if let Ok(ip) = host.parse() {
            return (found(ip), Origin::default());
        }
        let Some(name) = dns_name(host) else { return (AddressAnswer::NoDomain, Origin::default()) };
        let family = async |wanted: bool, kind| {
            if !wanted {
                return Err(Empty::NoData);
            }
            let result = self.lookup(&name, kind).await;
            let awaited = truth::why_awaited(&result);
            answers::addresses(&name, kind, result).map_err(|none| awaited.map_or(none, Empty::Failed))
        };
        let config = &self.0.config;
        let (v4, v6) = tokio::join!(family(config.ipv4, RecordType::A), family(config.ipv6, RecordType::AAAA));
        let is_unproven = answers::is_unproven(&v4) || answers::is_unproven(&v6);
        let (answer, origin) = answers::both(v4, v6);
        let answer = match answer {
            AddressAnswer::NoData if self.cnames_loop(&name).await => AddressAnswer::CnameLoop,
            AddressAnswer::NoData if is_unproven => {
                AddressAnswer::Failed("the answer has neither an address for that name nor an SOA".to_owned())
            }
            answer => answer,
        };
        (answer, origin)
    }

    /// Hickory reports a loop of CNAMEs as "no data"; one more lookup distinguishes it from a name without addresses.
    async fn cnames_loop(&self, name: &Name) -> bool {
        let mut seen = vec![name.clone()];
        while seen.len() <= CNAME_STEPS_MAX {
            let last = &seen[seen.len() - 1];
            match answers::cname_target(last, self.lookup(last, RecordType::CNAME).await) {
                Some(next) if seen.contains(&next) => return true,
                Some(next) => seen.push(next),
                None => return false,
            }
        }
        true
    }

    async fn lookup(&self, name: &Name, kind: RecordType) -> Result<Lookup, NetError> {
        let result = self.uncounted(name, kind).await;
        if result.as_ref().is_err_and(|e| !e.is_no_records_found()) {
            self.0.failures.fetch_add(1, Ordering::Relaxed);
        }
        let is_unanswered = result.as_ref().err().is_some_and(answers::is_unanswered);
        let result = result.map_err(|error| self.0.servers.in_words(error));
        let failure = result.as_ref().err().filter(|_| is_unanswered);
        if let Some(hint) = self.0.hint.take_answer(failure, &self.0.config.name_servers) {
            tracing::warn!("{hint}");
        }
        result
    }

    /// A lookup whose failure says nothing about our name servers, for zones whose operators may let them die.
    async fn uncounted(&self, name: &Name, kind: RecordType) -> Result<Lookup, NetError> {
        self.0.queries.fetch_add(1, Ordering::Relaxed);
        self.0.dns.lookup(name.clone(), kind).await
    }

    /// Whether a connection to `addr` would reach one of our own listeners.
    fn is_own(&self, addr: SocketAddr) -> bool {
        let ip = addr.ip().to_canonical();
        self.0
            .config
            .listeners
            .iter()
            .any(|listener| listener.port() == addr.port() && self.is_listened_to(listener.ip().to_canonical(), ip))
    }
}

impl Resolver {
    /// Whether this address literal means this server: one of its listeners has the address (RFC 5321 4.1.3, RFC 1123
    /// 5.2.17).
    pub fn is_own_literal(&self, domain: &str) -> bool {
        let Some(Ok(ip)) = select::address_literal(domain) else { return false };
        let ip = ip.to_canonical();
        let mut listeners = self.0.config.listeners.iter();
        listeners.any(|listener| self.is_listened_to(listener.ip().to_canonical(), ip))
    }

    /// Whether a listener at this address receives connections to `ip`.
    fn is_listened_to(&self, listener: IpAddr, ip: IpAddr) -> bool {
        if listener.is_unspecified() { self.0.own.has(ip) } else { listener == ip }
    }
}

fn name_server(addr: SocketAddr) -> NameServerConfig {
    NameServerConfig::new(addr.ip(), true, vec![ConnectionConfig::udp()])
}

fn found(ip: IpAddr) -> AddressAnswer {
    let (v4, v6) = if ip.is_ipv4() { (vec![ip], Vec::new()) } else { (Vec::new(), vec![ip]) };
    AddressAnswer::Found { v4, v6, ttl_s: TTL_S_MAX }
}

/// The name in lower case, without the final dot.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The fully qualified name (no search list), if it is valid.
fn dns_name(name: &str) -> Option<Name> {
    if !select::is_host_name(name) {
        return None;
    }
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}
