//! Status queries: which mail waits where, until when, and why.

pub mod attempt;
pub mod census;
pub mod explain;
pub mod place;
pub mod waiters;

use smallvec::SmallVec;
use stentor_queue::ids::{ConnId, DomainId, MessageNo, Ms, SiteId};

use self::census::WaitingPlace;
use crate::Scheduler;
use crate::connections::pool::State;
use crate::domains::LookUp;
use crate::reasons::HostReply;

/// One site as it is now.
#[derive(Clone, PartialEq, Debug)]
pub struct SiteStatus {
    pub site: SiteId,
    /// The plan's key: the MX host names, or the route.
    pub name: std::sync::Arc<str>,
    /// Messages that wait there and could go now (not those behind their own clocks).
    pub messages: usize,
    pub connections: usize,
    pub idle: usize,
    /// Connections that the site may have.
    pub limit: usize,
    /// Whether a delivery has succeeded since the last trouble.
    pub proven: bool,
    /// When the earliest of its hosts may be tried, if none may be tried now.
    pub until: Option<Ms>,
    /// The last failure there.
    pub reason: Option<HostReply>,
    /// The oldest message in line.
    pub oldest: Option<MessageNo>,
}

/// How mail is progressing at a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SiteProgress {
    /// The site is, or may be, served in the fast lane.
    #[default]
    Fast,
    /// The site has connections, but none of them has a session.
    Connecting,
    /// All of its connections are silent: it is in the slow lane.
    Slow,
    /// No host may be tried before a clock runs out.
    Clock,
    /// An operator suspended it.
    Suspended,
}

/// How a host belongs to a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostRole {
    /// By a route; otherwise as an MX host.
    pub is_route: bool,
    /// No other host of the site has a better preference.
    pub is_best: bool,
}

/// A quick summary of a site without texts: takes some tens of nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SiteSummary {
    pub standing: SiteProgress,
    pub connections: usize,
    pub silent: usize,
    /// Messages in line: ordinary and bulk.
    pub in_line: [usize; 2],
    /// Average latency of its slowest path; 0 if there were no answers.
    pub latency_ms: u32,
    /// Failures in a row of the host that failed most often.
    pub fails: u8,
    pub until: Option<Ms>,
}

/// Sizes of the scheduler's tables, for limits and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSizes {
    pub messages: usize,
    pub sites: usize,
    pub hosts: usize,
    pub connections_fast: usize,
    pub connections_slow: usize,
    /// Sites in line for a connection.
    pub wanting: usize,
    /// Lists of ready recipients (domain, message).
    pub lists: usize,
    pub clocks: usize,
    pub timers: usize,
    /// Domains whose look-up waits for its turn.
    pub look_ups_waiting: usize,
    /// How many times mail waited because its site had as many connections as it may.
    pub at_site_max: u64,
}

impl Scheduler {
    pub fn load(&self) -> TableSizes {
        let (sites, hosts) = self.state.sites.known();
        TableSizes {
            messages: self.state.messages.len(),
            sites,
            hosts,
            connections_fast: self.pool.fast,
            connections_slow: self.pool.slow,
            wanting: self.state.flows.wanting.iter().sum(),
            lists: self.waits.lists.len(),
            clocks: self.failure.clocks(),
            timers: self.state.timers.len(),
            look_ups_waiting: self.domains.look_ups.waiting(),
            at_site_max: self.pool.at_site_max,
        }
    }

    pub fn site_name(&self, site: SiteId) -> Option<&str> {
        self.state.sites.peek(site).map(|s| &*s.key)
    }

    /// Finds a site by its name, as in [`SiteStatus::name`].
    pub fn site_named(&self, name: &str) -> Option<SiteId> {
        self.state.sites.named(name)
    }

    /// The site of a domain, once known.
    pub fn site_of(&self, domain: DomainId) -> Option<SiteId> {
        self.domains.peek(domain)?.site
    }

    /// Connections open to a domain's hosts.
    pub fn connections_at(&self, domain: DomainId) -> usize {
        let site = self.site_of(domain).and_then(|site| self.state.sites.list.get(site.0 as usize));
        site.map_or(0, crate::sites::Site::conns)
    }

    /// The first few domains of a connection's site; none if we are closing the connection.
    pub fn domains_of(&mut self, conn: ConnId) -> SmallVec<[DomainId; 8]> {
        let Some(site) = self.pool.get(conn).filter(|c| c.state != State::Closing).map(|c| c.hop.site) else {
            return SmallVec::new();
        };
        let all = self.state.sites.get(site).domains.iter().map(DomainId);
        all.filter(|domain| self.domains.peek(*domain).is_some_and(|d| d.site == Some(site))).take(8).collect()
    }

    /// How a host of this preference belongs to the connection's site.
    pub fn way_of(&mut self, conn: ConnId, preference: u16) -> Option<HostRole> {
        let site = self.pool.get(conn).map(|entry| entry.hop.site)?;
        let site = self.state.sites.peek(site)?;
        let is_best = site.targets.iter().all(|target| target.preference >= preference);
        Some(HostRole { is_route: site.key.starts_with("route:"), is_best })
    }

    /// When a domain is looked up next, and the last failure of its look-up.
    pub fn look_up_of(&self, domain: DomainId) -> Option<(Option<Ms>, Option<HostReply>)> {
        let entry = self.domains.peek(domain)?;
        let until = (entry.look_up == LookUp::Clock).then(|| self.state.time.wall(entry.until));
        Some((until, self.state.reasons.get(entry.reason).cloned()))
    }

    /// Failures in a row of a site's hosts, or of the lookups of a domain without a site.
    pub fn failures_at(&self, at: WaitingPlace) -> u8 {
        match at {
            WaitingPlace::Site(site) => self.state.sites.peek(site).map_or(0, |entry| entry.history.failures),
            WaitingPlace::Domain(domain) => self.domains.peek(domain).map_or(0, |entry| entry.fails),
        }
    }

    /// All sites.
    pub fn sites(&self, now: Ms) -> impl Iterator<Item = SiteStatus> + '_ {
        (0..self.state.sites.list.len()).filter_map(move |i| self.site_status(SiteId(i as u32), now))
    }

    pub fn site_status(&self, site: SiteId, now: Ms) -> Option<SiteStatus> {
        let now = self.steady(now);
        let entry = self.state.sites.peek(site)?;
        let (max, adapts) =
            (entry.connections_max(self.state.cfg.connections_per_site_max), self.state.cfg.strategies.adaptation);
        Some(SiteStatus {
            site,
            name: entry.key.clone(),
            messages: entry.lines.len(),
            connections: entry.conns(),
            idle: entry.paths.iter().map(|path| path.idle.len()).sum(),
            limit: entry.paths.iter().map(|path| path.allowed(max, adapts)).sum(),
            proven: entry.paths.iter().any(|path| path.proven),
            until: self.state.sites.clock(site, now).map(|until| self.state.time.wall(until)),
            reason: self.state.reasons.get(entry.reason).cloned(),
            oldest: entry.oldest_of_all(self.state.newest),
        })
    }

    /// A quick summary of a site.
    pub fn glance(&self, site: SiteId, now: Ms) -> Option<SiteSummary> {
        let now = self.steady(now);
        let entry = self.state.sites.peek(site)?;
        let (connections, silent) = (entry.conns(), entry.paths.iter().map(|path| path.silent).sum());
        let until = self.state.sites.clock(site, now).map(|until| self.state.time.wall(until));
        let standing = match until {
            _ if entry.suspended => SiteProgress::Suspended,
            Some(_) => SiteProgress::Clock,
            None if connections > 0 && entry.paths.iter().all(|path| path.greeted == 0) => SiteProgress::Connecting,
            None if silent > 0 && silent >= connections => SiteProgress::Slow,
            None => SiteProgress::Fast,
        };
        let hosts = entry.paths.iter().flat_map(|path| &path.hosts).map(|host| &self.state.sites.hosts[*host as usize]);
        Some(SiteSummary {
            standing,
            connections,
            silent,
            in_line: [0, 1].map(|class| entry.lines.count(class)),
            latency_ms: entry.paths.iter().map(crate::sites::path::Path::latency_ms).max().unwrap_or(0),
            fails: hosts.map(|host| host.fails).max().unwrap_or(0),
            until,
        })
    }

    /// The domains that are at a site now.
    pub fn domains_at(&self, site: SiteId) -> impl Iterator<Item = DomainId> {
        let all = self.state.sites.peek(site).into_iter().flat_map(|entry| entry.domains.iter()).map(DomainId);
        all.filter(move |domain| self.site_of(*domain) == Some(site))
    }

    /// Number of recipients of a message in transactions now.
    pub fn in_flight(&self, no: MessageNo) -> usize {
        self.state.messages.get(no).map_or(0, |active| active.in_flight.len())
    }

    /// Recipients in transactions, and transactions, on connections of the fast and of the slow lane. Visits each
    /// connection.
    pub fn in_transactions(&self) -> [(usize, usize); 2] {
        self.pool.in_transactions()
    }

    /// The budget: fast connections, silent ones, and the part of the fast ones that bulk mail may not use.
    pub fn budget(&self) -> (usize, usize, usize) {
        (self.state.cfg.connections_max, self.state.cfg.slow_connections_max, self.state.cfg.ordinary_reserve)
    }

    /// Number of places for sites: their ids are below this.
    pub fn sites_known(&self) -> u32 {
        self.state.sites.list.len() as u32
    }
}
