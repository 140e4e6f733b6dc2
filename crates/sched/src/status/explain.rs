//! Explains why mail waits at a site, for `stentor site NAME`.

use std::sync::Arc;

use stentor_queue::cause::Cause;
use stentor_queue::ids::{Ms, SiteId};
use stentor_queue::site::{Endpoint, SiteLimits};

use super::attempt::{Attempts, ConnectionAttempt};
use crate::flows::FlowKey;
use crate::flows::ORDINARY;
use crate::reasons::HostReply;
use crate::sites::Pick;
use crate::sites::history::SiteHistory;
use crate::status::SiteStatus;
use crate::{Scheduler, SourceNo, SourceSet};

/// The reason why mail at a site waits: the first that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// There is no mail that could go.
    Nothing,
    /// An operator suspended the site.
    Operator,
    /// All of its hosts failed; the earliest is tried again at this time.
    HostClock(Ms),
    /// Another connection probes the failed hosts.
    Probe,
    /// Its first connections are being opened.
    Connecting,
    /// All of its connections are silent.
    Silent,
    /// Its hosts refused connections beyond those that they serve; another is tried at this time.
    Full(Ms),
    /// The rate or a source's warm-up: the next message may go at this time.
    Rate(Ms),
    /// A rate learned from rate replies, or a pause after one: the next message may go at this time.
    Pause(Ms),
    /// As many connections as the site can bear are busy.
    Connections,
    /// As many transactions as the site has earned are in flight.
    Transactions,
    /// There is no free place in the budget for a connection.
    Budget,
    /// Mail is going now.
    Going,
}

/// One source's path to the site.
#[derive(Clone, PartialEq, Debug)]
pub struct PathStatus {
    pub source: SourceNo,
    pub connections: usize,
    /// Connections that have been silent for too long, in the slow lane.
    pub silent: usize,
    pub connections_max: usize,
    pub transactions_under_way: u32,
    /// The learned limit; `None`: nothing was refused so far.
    pub transactions_per_connection_max: Option<u32>,
    pub recipients_per_transaction_max: Option<usize>,
    /// Messages allowed per minute, as far as is known.
    pub per_minute: Option<u32>,
    /// End of the pause after a rate reply.
    pub paused_until: Option<Ms>,
    /// Average latency of the last answers; 0 if there were none.
    pub latency_ms: u32,
    /// Longer silences change lanes.
    pub silence_ms: Ms,
}

/// One host address, from one source.
#[derive(Clone, PartialEq, Debug)]
pub struct HostStatus {
    pub host: Arc<str>,
    pub addr: Endpoint,
    pub source: SourceNo,
    /// Failures in a row.
    pub fails: u8,
    pub until: Option<Ms>,
    pub is_probed: bool,
    pub is_silent: bool,
    /// The last failure.
    pub reason: Option<HostReply>,
    /// The connection attempt in progress.
    pub attempt: Option<ConnectionAttempt>,
}

/// A site, explained.
#[derive(Clone, PartialEq, Debug)]
pub struct SiteExplanation {
    pub status: SiteStatus,
    pub waits_for: WaitsFor,
    /// Why its mail waits, as far as the reason is the same for all.
    pub cause: Cause,
    /// The connection attempt that mail waits for, if no connection has a session.
    pub attempt: Option<ConnectionAttempt>,
    pub limits: SiteLimits,
    pub history: SiteHistory,
    pub paths: Vec<PathStatus>,
    pub hosts: Vec<HostStatus>,
    /// Waiting messages by list or sender (`None`: all other mail): the key, whether it is bulk, and their number.
    /// Suspended lists come last.
    pub flows: Vec<(Option<FlowKey>, bool, usize)>,
}

impl Scheduler {
    pub fn explain_site(&self, site: SiteId, now: Ms) -> Option<SiteExplanation> {
        let status = self.site_status(site, now)?;
        let (now, time) = (self.steady(now), self.state.time);
        let waits_for = match self.waits_for(site, SourceSet::ALL, now) {
            WaitsFor::HostClock(until) => WaitsFor::HostClock(time.wall(until)),
            WaitsFor::Rate(until) => WaitsFor::Rate(time.wall(until)),
            WaitsFor::Pause(until) => WaitsFor::Pause(time.wall(until)),
            WaitsFor::Full(until) => WaitsFor::Full(time.wall(until)),
            other => other,
        };
        let entry = self.state.sites.peek(site)?;
        let max = entry.connections_max(self.state.cfg.connections_per_site_max);
        let (adapts, least) = (self.state.cfg.strategies.adaptation, self.state.cfg.fast_silence_ms);
        let paths = entry.paths.iter().enumerate().map(|(source, path)| PathStatus {
            source: source as SourceNo,
            connections: path.conns,
            silent: path.silent,
            connections_max: path.allowed(max, adapts),
            transactions_under_way: path.in_flight,
            transactions_per_connection_max: Some(path.transactions_max).filter(|max| *max < u32::MAX),
            recipients_per_transaction_max: Some(path.recipients_max).filter(|max| *max < usize::MAX),
            per_minute: path.pace.as_ref().and_then(|pace| pace.per_minute()).map(|rate| rate as u32),
            paused_until: path.pace.as_ref().and_then(|pace| pace.paused_until(now)).map(|until| time.wall(until)),
            latency_ms: path.latency_ms(),
            silence_ms: crate::connections::silence_ms(least, path.gaps.p99_ms()),
        });
        let paths: Vec<PathStatus> = paths.collect();
        let lines = entry.lines.list.iter().chain(&entry.lines.aside).filter(|line| !line.waiting.is_empty());
        let flows = &self.state.flows;
        let flows: Vec<_> =
            lines.map(|line| (flows.get(line.flow).key.clone(), line.class != ORDINARY, line.waiting.len())).collect();
        let (limits, mut history) = (entry.limits, entry.history);
        history.at = time.wall(history.at);
        let attempts = self.attempts(Some(site));
        let attempt = self.attempt_at(site, SourceSet::ALL, &attempts).map(|attempt| self.dated(attempt));
        let cause = self.cause_at(site, &attempts, now);
        let hosts = self.hosts_of(site, &attempts, now);
        Some(SiteExplanation { status, waits_for, cause, attempt, limits, history, paths, hosts, flows })
    }

    fn hosts_of(&self, site: SiteId, attempts: &Attempts, now: Ms) -> Vec<HostStatus> {
        let Some(entry) = self.state.sites.list.get(site.0 as usize) else { return Vec::new() };
        let mut all = Vec::new();
        for (source, path) in entry.paths.iter().enumerate() {
            for (target, no) in entry.targets.iter().zip(&path.hosts) {
                let host = &self.state.sites.hosts[*no as usize];
                all.push(HostStatus {
                    host: target.host.clone(),
                    addr: target.addr.clone(),
                    source: source as SourceNo,
                    fails: host.fails,
                    until: Some(host.until).filter(|until| *until > now).map(|until| self.state.time.wall(until)),
                    is_probed: host.probe.is_some(),
                    is_silent: host.silent > 0,
                    reason: self.state.reasons.get(host.reason).cloned(),
                    attempt: attempts.get(no).map(|attempt| self.dated(*attempt)),
                });
            }
        }
        all
    }

    /// The reason why mail from some sources waits.
    pub(super) fn waits_for(&self, site: SiteId, sources: SourceSet, now: Ms) -> WaitsFor {
        let (adapts, default) = (self.state.cfg.strategies.adaptation, self.state.cfg.connections_per_site_max);
        let Some(entry) = self.state.sites.peek(site) else { return WaitsFor::Nothing };
        if entry.suspended {
            return WaitsFor::Operator;
        }
        if entry.lines.is_empty() && entry.offers.is_empty() {
            return WaitsFor::Nothing;
        }
        if let Some((until, _)) = self.state.sites.clock_of(site, sources, now) {
            return WaitsFor::HostClock(until);
        }
        let max = entry.connections_max(default);
        let (given, time) = (&self.state.cfg.sources, self.state.time);
        let paths = || entry.paths_of(sources);
        let waits = paths().map(|(source, path)| (path.wait(given.get(usize::from(source)), time, now), path));
        if let Some((Some(until), path)) = waits.min_by_key(|(until, _)| *until) {
            let taught = path.pace.as_ref().and_then(|pace| pace.taught_wait(now));
            let is_reply = taught.is_some_and(|at| at >= until);
            return if is_reply { WaitsFor::Pause(until) } else { WaitsFor::Rate(until) };
        }
        let sum = |of: fn(&crate::sites::path::Path) -> usize| paths().map(|(_, path)| of(path)).sum::<usize>();
        let (conns, silent) = (sum(|path| path.conns), sum(|path| path.silent));
        if conns > 0 && silent >= conns {
            return WaitsFor::Silent;
        }
        if adapts && paths().all(|(_, path)| !path.may_begin()) && paths().next().is_some() {
            return WaitsFor::Transactions;
        }
        match self.room_at(site, sources, now) {
            Pick::Wait(_) => return WaitsFor::Probe,
            Pick::Full(until) => return WaitsFor::Full(until),
            Pick::Target(_) => {}
        }
        // Offers to single hosts get their turn on an open connection.
        if entry.lines.is_empty() {
            return WaitsFor::Going;
        }
        if paths().all(|(_, path)| path.conns - path.silent >= path.allowed(max, adapts)) {
            let is_made = paths().any(|(_, path)| path.conns > path.coming);
            return if is_made || conns == 0 { WaitsFor::Connections } else { WaitsFor::Connecting };
        }
        if entry.lines.list.iter().any(|line| line.wants) { WaitsFor::Budget } else { WaitsFor::Going }
    }

    /// Whether some host may be tried from some source.
    fn room_at(&self, site: SiteId, sources: SourceSet, now: Ms) -> Pick {
        let mut rng = fastrand::Rng::with_seed(0);
        let paths = self.state.sites.peek(site).into_iter().flat_map(|entry| entry.paths_of(sources));
        let picks = paths.map(|(source, _)| self.state.sites.pick(site, source, now, &mut rng));
        let rank = |pick: &Pick| match pick {
            Pick::Target(_) => 0,
            Pick::Full(_) => 1,
            Pick::Wait(_) => 2,
        };
        picks.min_by_key(rank).unwrap_or(Pick::Target(0))
    }
}
