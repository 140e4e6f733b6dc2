//! Sites and host addresses: their lines, paths and hosts, and which target is tried next.
//!
//! A host address has one clock per source and TLS requirement, shared by all sites that use it so. From its failure
//! until it has proven itself again, one connection (the probe) may try it when the clock has run out; its outcome
//! decides for all these sites.

pub mod early;
pub mod history;
pub mod pace;
pub mod path;
pub mod persistence;
pub mod vacancy;

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{MessageNo, Ms, SiteId};
use stentor_queue::idset::IdSet;
use stentor_queue::site::{Endpoint, SiteLimits, SitePlan, Target};
use stentor_tls_policy::HostPosture;

use crate::effects::SourceNo;
use crate::flows::lines::{Lines, oldest};
use crate::flows::{CLASSES, ORDINARY, SourceSet};
use crate::kept::DormantState;
use crate::reasons::Reason;
use crate::sites::early::EarlyProbes;
use crate::sites::history::SiteHistory;
use crate::sites::pace::Pace;
use crate::sites::path::Path;
use crate::sites::persistence::kept_name;
use crate::tables::{Parts, Pieces};

pub type HostNo = u32;
/// Index of a connection in the pool.
pub type Slot = u32;

/// Source, address and TLS requirements: a host that does not meet them has failed only for those who set them.
type HostKey = (u8, Endpoint, Option<Arc<HostPosture>>);

/// The host of a site to which a connection from a source goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    pub site: SiteId,
    pub source: SourceNo,
    pub host: HostNo,
}

/// Deferrals of senders whose messages are offered to a host.
pub struct HostOffers {
    pub host: HostNo,
    pub deferrals: IdSet,
    /// The deferral that was served last.
    pub last: u32,
    /// Deferrals passed over since the last one that was served: another host is tried first for their mail.
    pub passed: usize,
}

/// Domains of a site that are being looked up again: their hosts may have moved.
pub struct Refresh {
    pub site: SiteId,
    /// The last of the site's domains that was visited.
    pub last: Option<u32>,
    /// Requested by an operator: also domains whose TTL is not over.
    pub is_asked: bool,
}

/// How long a host that refused a connection beside others gets no more than it has.
pub const GROW_MS: Ms = 60_000;

#[derive(Default)]
pub struct Host {
    /// Failures in a row; 0 is healthy.
    pub fails: u8,
    /// The failures that were charged with `host_retry`.
    pub retries: u8,
    /// Short pauses since its last delivery.
    pub pauses: u8,
    /// Total length of these pauses.
    pub paused_ms: Ms,
    /// The host has refused all mail (521, RFC 7504), or lacks something that this mail requires, and has opened no
    /// session since. This counts until its clock ends: [`Host::is_closed`].
    pub has_closed: bool,
    /// Open connections that it has greeted.
    pub greeted: u32,
    /// Not tried before this time.
    pub until: Ms,
    /// When that would have been if no operator or early probe had ended the clock.
    pub ended_early: Ms,
    /// When it last took a delivery, 0 if never.
    pub good_at: Ms,
    /// When the first failure of the row happened.
    pub failing_since: Ms,
    /// Probes left ahead of its clock (`early`).
    pub early: EarlyProbes,
    /// The connection that probes it while it has failed.
    pub probe: Option<Slot>,
    /// Connections that are silent now.
    pub silent: u32,
    /// Connections to it, connecting ones included.
    pub conns: usize,
    /// Connections open when it refused another.
    pub conns_max: usize,
    /// No connection beyond `conns_max` before this time.
    pub grow_at: Ms,
    pub reason: Reason,
    /// Sites that are woken when it comes back.
    pub sites: IdSet,
    /// Whether a timer is set that checks if it is vacant (`vacancy`).
    pub is_leaving: bool,
    addr: Option<HostKey>,
}

impl Host {
    /// Whether it takes no further connection at the moment.
    pub fn is_full(&self, now: Ms) -> bool {
        self.conns >= self.conns_max && self.grow_at > now
    }

    /// Records that it refused a connection beside `working` others.
    pub fn full(&mut self, working: usize, now: Ms) {
        (self.conns_max, self.grow_at) = (working, now + GROW_MS);
    }
}

impl Site {
    /// The paths of some sources, with the sources' numbers.
    pub fn paths_of(&self, sources: SourceSet) -> impl Iterator<Item = (u8, &Path)> {
        let all = self.paths.iter().enumerate().map(|(source, path)| (source as u8, path));
        all.filter(move |(source, _)| sources.has(*source))
    }
}

#[derive(Default)]
pub struct Site {
    /// The plan's key. Empty: the place is free.
    pub key: Arc<str>,
    pub mixes_domains: bool,
    pub limits: SiteLimits,
    pub targets: SmallVec<[Target; 1]>,
    /// Domains that resolved to the site; up to two may be stale (`leave_site`).
    pub domains: IdSet,
    /// Number of domains that resolve to it now.
    pub members: u32,
    /// Whether a timer is set that checks if it is vacant (`vacancy`).
    pub is_leaving: bool,
    /// The messages that wait here.
    pub lines: Lines,
    /// Messages offered to hosts that have not refused them.
    pub offers: Vec<HostOffers>,
    /// Whether offers had the last turn.
    pub offer_served: bool,
    /// Paths, by the number of their source.
    pub paths: SmallVec<[Path; 1]>,
    pub history: SiteHistory,
    /// Number of deferrals (of messages or senders) here.
    pub deferrals: u32,
    pub reason: Reason,
    /// When the armed timer fires, 0 if none.
    pub timer_at: Ms,
    /// Choices for ordinary mail since bulk last had one.
    pub turn: u8,
    /// Whether it is in the line of sites to look at.
    pub dirty: bool,
    /// Whether its domains are being looked up again.
    pub refreshing: bool,
    /// Whether an operator suspended it.
    pub suspended: bool,
}

impl Site {
    /// Classes in the order of their turn: ordinary first; bulk after `ordinary_per_bulk` ordinary choices.
    pub fn classes(&self, ordinary_per_bulk: u8) -> [usize; CLASSES] {
        if self.turn >= ordinary_per_bulk && self.lines.count(1) > 0 { [1, ORDINARY] } else { [ORDINARY, 1] }
    }

    pub fn class_served(&mut self, class: usize) {
        self.turn = if class == ORDINARY { self.turn.saturating_add(1) } else { 0 };
    }

    /// Connections that a path may have at most.
    pub fn connections_max(&self, default: usize) -> usize {
        self.limits.connections_max.map_or(default, |max| max as usize).max(1)
    }

    /// The oldest waiting message.
    pub fn oldest_of_all(&self, newest: u32) -> Option<MessageNo> {
        let all = self.lines.list.iter().filter_map(|line| oldest(&line.waiting, newest));
        // Cyclic order: the distance from the oldest possible number.
        all.min_by_key(|no| no.0.wrapping_sub(newest).wrapping_sub(1))
    }

    pub fn conns(&self) -> usize {
        self.paths.iter().map(|path| path.conns).sum()
    }
}

/// The target of a new connection.
#[derive(Clone, Copy)]
pub enum Pick {
    Target(usize),
    /// All are under clocks; the earliest runs out then. `None`: other connections probe them, and their outcome wakes
    /// the site.
    Wait(Option<Ms>),
    /// The hosts that may be tried have as many connections as they take; the first may get more at this time.
    Full(Ms),
}

#[derive(Default)]
pub struct Sites {
    pub list: Pieces<Site>,
    by_key: Parts<Arc<str>, SiteId>,
    pub hosts: Pieces<Host>,
    free: Vec<SiteId>,
    free_hosts: Vec<HostNo>,
    host_by_addr: Parts<HostKey, HostNo>,
    /// Sites to look at again.
    pub dirty: VecDeque<SiteId>,
    /// Sites whose domains are to be looked up again.
    pub refreshes: VecDeque<Refresh>,
    /// Names of sites that an operator suspended, known or not.
    pub suspended: Vec<Arc<str>>,
    /// Names of the sources by number.
    pub sources: Vec<Box<str>>,
    /// State that earlier runs learned about hosts and sites that are not known yet.
    pub remembered: DormantState,
}

/// The more useful reason: a failing login or TLS at one of these hosts, if `reason` is only that a host cannot be
/// connected to. Somebody has to fix a login or TLS, while one address may never be reachable (IPv6, where there is
/// none).
pub fn telling<'h>(reason: Reason, hosts: impl IntoIterator<Item = &'h Host>) -> Reason {
    if !matches!(reason.cause, Cause::Refused | Cause::Unreachable | Cause::TimedOut) {
        return reason;
    }
    let mut reasons = hosts.into_iter().filter(|host| host.fails > 0).map(|host| host.reason);
    reasons.find(|other| matches!(other.cause, Cause::Auth | Cause::Tls)).unwrap_or(reason)
}

impl Sites {
    pub fn get(&mut self, site: SiteId) -> &mut Site {
        &mut self.list[site.0 as usize]
    }

    pub fn path(&mut self, site: SiteId, source: SourceNo) -> &mut Path {
        &mut self.get(site).paths[source as usize]
    }

    pub fn host(&mut self, host: HostNo) -> &mut Host {
        &mut self.hosts[host as usize]
    }

    /// Finds or creates the site of a plan; an existing site takes over the plan's targets and limits. Also returns the
    /// hosts that it no longer has.
    pub fn of_plan(&mut self, plan: SitePlan, now: Ms) -> (SiteId, SmallVec<[HostNo; 1]>) {
        let mut left = SmallVec::new();
        let known = self.by_key.get(&plan.key).copied();
        let id = if let Some(id) = known {
            id
        } else {
            let suspended = self.suspended.contains(&plan.key);
            let site = Site { key: plan.key.clone(), suspended, ..Site::default() };
            let id = self.free.pop().unwrap_or(SiteId(self.list.len() as u32));
            self.by_key.insert(plan.key, id);
            if (id.0 as usize) < self.list.len() {
                self.list[id.0 as usize] = site;
            } else {
                self.list.push(site);
            }
            id
        };
        let site = &mut self.list[id.0 as usize];
        site.mixes_domains = plan.mixes_domains || plan.limits.mixes_domains;
        if site.limits != plan.limits {
            site.limits = plan.limits;
            for path in &mut site.paths {
                give_pace(path, &site.limits, now);
            }
        }
        if site.targets[..] != plan.targets[..] {
            site.targets = plan.targets.into();
            for source in 0..self.list[id.0 as usize].paths.len() {
                let hosts = self.hosts_of(id, source as u8);
                let before = std::mem::replace(&mut self.list[id.0 as usize].paths[source].hosts, hosts);
                for host in before {
                    if !self.list[id.0 as usize].paths[source].hosts.contains(&host) {
                        self.hosts[host as usize].sites.remove(id.0);
                        left.push(host);
                    }
                }
            }
            let site = &mut self.list[id.0 as usize];
            site.offers.retain(|offers| site.paths.iter().any(|path| path.hosts.contains(&offers.host)));
            // A host at a new address may be tried at once, whatever the clock of the previous one.
            self.mark_dirty(id);
        }
        (id, left)
    }

    /// Frees a vacant site's place. Returns its hosts.
    pub fn free(&mut self, site: SiteId) -> SmallVec<[HostNo; 1]> {
        let gone = std::mem::take(&mut self.list[site.0 as usize]);
        if self.by_key.get(&gone.key) == Some(&site) {
            self.by_key.remove(&gone.key);
        }
        self.free.push(site);
        let hosts: SmallVec<[HostNo; 1]> = gone.paths.iter().flat_map(|path| &path.hosts).copied().collect();
        for host in &hosts {
            self.hosts[*host as usize].sites.remove(site.0);
        }
        hosts
    }

    pub fn free_host(&mut self, host: HostNo) {
        let gone = std::mem::take(&mut self.hosts[host as usize]);
        if let Some(addr) = gone.addr {
            self.host_by_addr.remove(&addr);
            self.free_hosts.push(host);
        }
    }

    /// Number of known sites and hosts.
    pub fn known(&self) -> (usize, usize) {
        (self.list.len() - self.free.len(), self.hosts.len() - self.free_hosts.len())
    }

    /// The site, unless its place is free.
    pub fn peek(&self, site: SiteId) -> Option<&Site> {
        self.list.get(site.0 as usize).filter(|site| !site.key.is_empty())
    }

    /// Creates the site's missing paths for the first `sources` sources.
    pub fn ensure_paths(&mut self, site: SiteId, sources: usize, now: Ms) {
        while self.list[site.0 as usize].paths.len() < sources {
            let hosts = self.hosts_of(site, self.list[site.0 as usize].paths.len() as u8);
            let mut path = Path::new(hosts);
            self.recall_path(site, &mut path, now);
            give_pace(&mut path, &self.list[site.0 as usize].limits, now);
            self.list[site.0 as usize].paths.push(path);
        }
    }

    fn hosts_of(&mut self, site: SiteId, source: u8) -> SmallVec<[HostNo; 1]> {
        let targets = &self.list[site.0 as usize].targets;
        let keys: SmallVec<[HostKey; 4]> =
            targets.iter().map(|target| (source, target.addr.clone(), target.posture.clone())).collect();
        keys.into_iter().map(|key| self.host_of(key, site)).collect()
    }

    fn host_of(&mut self, key: HostKey, site: SiteId) -> HostNo {
        let no = *self.host_by_addr.get_or_insert_with(key.clone(), || {
            let mut host = Host { addr: Some(key), ..Host::default() };
            if !self.remembered.hosts.is_empty()
                && let Some(kept) = kept_name(&self.sources, &host).and_then(|name| self.remembered.hosts.remove(&name))
            {
                host.recall(&kept);
            }
            if let Some(no) = self.free_hosts.pop() {
                self.hosts[no as usize] = host;
                return no;
            }
            self.hosts.push(host);
            (self.hosts.len() - 1) as HostNo
        });
        self.hosts[no as usize].sites.insert(site.0);
        no
    }

    /// The best usable target of a path: lowest preference, equal ones at random (RFC 5321 5.1). A host with a silent
    /// connection does not get another one.
    pub fn pick(&self, site: SiteId, source: u8, now: Ms, rng: &mut fastrand::Rng) -> Pick {
        self.pick_of(site, source, now, rng, |_| true)
    }

    /// The best usable target among some of the hosts.
    pub fn pick_of(
        &self,
        site: SiteId,
        source: u8,
        now: Ms,
        rng: &mut fastrand::Rng,
        is_wanted: impl Fn(HostNo) -> bool,
    ) -> Pick {
        let entry = &self.list[site.0 as usize];
        let Some(path) = entry.paths.get(source as usize) else { return Pick::Wait(None) };
        let (mut best, mut ties) = (None::<usize>, 0u32);
        let (mut earliest, mut full) = (None::<Ms>, None::<Ms>);
        let all = entry.targets.iter().zip(&path.hosts).enumerate();
        for (i, (target, host)) in all.filter(|(_, (_, host))| is_wanted(**host)) {
            let host = &self.hosts[*host as usize];
            if host.until > now {
                earliest = Some(earliest.map_or(host.until, |e| e.min(host.until)));
                continue;
            }
            if host.fails > 0 && host.probe.is_some() || host.silent > 0 {
                continue;
            }
            if host.is_full(now) {
                full = Some(full.map_or(host.grow_at, |f| f.min(host.grow_at)));
                continue;
            }
            match best {
                Some(b) if entry.targets[b].preference < target.preference => {}
                Some(b) if entry.targets[b].preference == target.preference => {
                    ties += 1;
                    if rng.u32(0..=ties) == 0 {
                        best = Some(i);
                    }
                }
                _ => (best, ties) = (Some(i), 0),
            }
        }
        match best {
            Some(target) => Pick::Target(target),
            None => full.map_or(Pick::Wait(earliest), Pick::Full),
        }
    }

    /// Whether all hosts of the site have failed and not recovered.
    pub fn has_failed(&self, site: SiteId) -> bool {
        let mut hosts = self.list[site.0 as usize].paths.iter().flat_map(|path| &path.hosts).peekable();
        hosts.peek().is_some() && hosts.all(|host| self.hosts[*host as usize].fails > 0)
    }

    pub fn named(&self, key: &str) -> Option<SiteId> {
        self.by_key.get(&Arc::from(key)).copied()
    }

    /// Looks all domains of a site up again where mail waits, if their TTL is over or `is_asked`: the site fails, or an
    /// operator wants it tried. The next ticks do the work.
    pub fn refresh(&mut self, site: SiteId, is_asked: bool) {
        let entry = &mut self.list[site.0 as usize];
        if is_asked || !std::mem::replace(&mut entry.refreshing, true) {
            self.refreshes.push_back(Refresh { site, last: None, is_asked });
        }
    }

    /// Looks again at all sites of a host.
    pub fn wake_sites_of(&mut self, host: HostNo) {
        let at = self.hosts[host as usize].sites.clone();
        for site in at.iter().map(SiteId) {
            self.mark_dirty(site);
        }
    }

    /// Ends the clocks of a site's hosts because an operator wants it tried. A host that fails again continues with its
    /// old clock.
    pub fn end_host_clocks(&mut self, site: SiteId) {
        for path in &self.list[site.0 as usize].paths {
            for host in &path.hosts {
                let host = &mut self.hosts[*host as usize];
                host.ended_early = host.ended_early.max(std::mem::take(&mut host.until));
            }
        }
        self.mark_dirty(site);
    }

    /// When the earliest host of a site may be tried, if none may now.
    pub fn clock(&self, site: SiteId, now: Ms) -> Option<Ms> {
        let hosts = self.list.get(site.0 as usize)?.paths.iter().flat_map(|path| &path.hosts);
        hosts.map(|host| self.hosts[*host as usize].until).min().filter(|until| *until > now)
    }

    /// When the earliest host for some sources may be tried, if none may now, and its last failure.
    pub fn clock_of(&self, site: SiteId, sources: SourceSet, now: Ms) -> Option<(Ms, Reason)> {
        let entry = self.list.get(site.0 as usize)?;
        let first = self.hosts_from(entry, sources).min_by_key(|host| host.until).filter(|host| host.until > now)?;
        let reason = if first.reason.is_none() { entry.reason } else { first.reason };
        Some((first.until, telling(reason, self.hosts_from(entry, sources))))
    }

    /// Whether no mail from any of these sources may go to the site now: each source is paused after repeated rate
    /// replies, or all its hosts have clocks and none has an open session. A host that is being probed or is silent has
    /// none: it may still take mail. So may one that refuses further connections while it serves others.
    pub fn is_shut(&self, site: SiteId, sources: SourceSet, sources_len: usize, now: Ms) -> bool {
        let is_shut = |path: &Path| {
            let is_paused = path.pace.as_ref().is_some_and(|pace| pace.is_paused_again(now));
            is_paused || path.greeted == 0 && path.hosts.iter().all(|host| self.hosts[*host as usize].until > now)
        };
        self.all_paths(site, sources, sources_len, is_shut)
    }

    /// Whether every host of these sources lacks what the site's mail requires, or takes no mail.
    pub fn is_closed(&self, site: SiteId, sources: SourceSet, sources_len: usize, now: Ms) -> bool {
        let is_closed = |path: &Path| path.hosts.iter().all(|host| self.hosts[*host as usize].is_closed(now));
        self.all_paths(site, sources, sources_len, is_closed)
    }

    /// Whether the predicate holds for the path of each source; false if a source has no path yet.
    fn all_paths(&self, site: SiteId, sources: SourceSet, sources_len: usize, is_true: impl Fn(&Path) -> bool) -> bool {
        let Some(entry) = self.list.get(site.0 as usize) else { return false };
        let mut used = (0..sources_len).filter(|source| sources.has(*source as u8));
        used.all(|source| entry.paths.get(source).is_some_and(&is_true))
    }

    /// The failure of a host that is being probed.
    pub fn failure_of(&self, site: SiteId, sources: SourceSet) -> Option<Reason> {
        let entry = self.list.get(site.0 as usize)?;
        let failed = self.hosts_from(entry, sources).find(|host| host.fails > 0 && !host.reason.is_none())?;
        Some(telling(failed.reason, self.hosts_from(entry, sources)))
    }

    /// Whether all hosts that may be tried from these sources have failed and not recovered.
    pub fn all_failed(&self, site: SiteId, sources: SourceSet) -> bool {
        let Some(entry) = self.list.get(site.0 as usize) else { return false };
        let mut hosts = self.hosts_from(entry, sources).peekable();
        hosts.peek().is_some() && hosts.all(|host| host.fails > 0)
    }

    fn hosts_from<'a>(&'a self, entry: &'a Site, sources: SourceSet) -> impl Iterator<Item = &'a Host> {
        entry.paths_of(sources).flat_map(|(_, path)| &path.hosts).map(|host| &self.hosts[*host as usize])
    }

    pub fn mark_dirty(&mut self, site: SiteId) {
        let entry = &mut self.list[site.0 as usize];
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push_back(site);
        }
    }
}

fn give_pace(path: &mut Path, limits: &SiteLimits, now: Ms) {
    let given = [limits.per_second, limits.per_minute, limits.per_hour];
    if given.iter().any(Option::is_some) || path.pace.is_some() {
        path.pace.get_or_insert_with(Box::<Pace>::default).give(given, now);
    }
}
