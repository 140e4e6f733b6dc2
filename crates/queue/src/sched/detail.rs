//! Why mail waits at a site: its hosts' clocks, what each source may do there, and what an operator has stopped.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Scheduler;
use super::effects::SourceNo;
use super::flows::FlowKey;
use super::reasons::Reply;
use crate::ids::{Ms, SiteId};

/// One host address of a site, as one source knows it.
#[derive(Clone, PartialEq, Debug)]
pub struct HostStatus {
    pub host: Arc<str>,
    pub addr: SocketAddr,
    pub preference: u16,
    /// Failures in a row.
    pub fails: u8,
    /// Not tried before, if that is to come.
    pub until: Option<Ms>,
    /// One connection tries whether it is back.
    pub probing: bool,
    /// Connections that it keeps waiting.
    pub silent: usize,
    pub reason: Option<Reply>,
}

/// What one source may do at a site.
#[derive(Clone, PartialEq, Debug)]
pub struct PathStatus {
    pub source: SourceNo,
    pub connections: usize,
    pub idle: usize,
    /// Connections kept waiting by hosts; they are not among those of the limit.
    pub silent: usize,
    /// Connections that it may have.
    pub limit: usize,
    pub proven: bool,
    pub under_way: u32,
    /// What it has learned or was told: transactions of a connection, recipients of a transaction.
    pub transactions_max: Option<u32>,
    pub recipients_max: Option<usize>,
    pub messages_per_minute: Option<f64>,
    /// A rate reply stopped it until then.
    pub paused_until: Option<Ms>,
    pub latency_ms: u32,
    pub hosts: Vec<HostStatus>,
}

impl Scheduler {
    /// All sources' ways to a site; empty before anything was sent there.
    pub fn site_paths(&self, site: SiteId, now: Ms) -> Vec<PathStatus> {
        let Some(entry) = self.sites.list.get(site.0 as usize) else { return Vec::new() };
        let (max, adapts) = (entry.connections_max(self.cfg.connections_per_site_max), self.cfg.strategies.adaptation);
        let host = |(target, no): (&crate::site::Target, &u32)| {
            let host = &self.sites.hosts[*no as usize];
            HostStatus {
                host: target.host.clone(),
                addr: target.addr,
                preference: target.preference,
                fails: host.fails,
                until: Some(host.until).filter(|until| *until > now),
                probing: host.probe.is_some(),
                silent: host.silent as usize,
                reason: self.reasons.get(host.reason).filter(|_| host.fails > 0).cloned(),
            }
        };
        let path = |(source, path): (usize, &super::path::Path)| PathStatus {
            source: source as SourceNo,
            connections: path.conns,
            idle: path.idle.len(),
            silent: path.silent,
            limit: path.allowed(max, adapts),
            proven: path.proven,
            under_way: path.under_way,
            transactions_max: Some(path.transactions_max).filter(|max| *max < u32::MAX),
            recipients_max: Some(path.recipients_max).filter(|max| *max < usize::MAX),
            messages_per_minute: path.pace.as_ref().and_then(|pace| pace.per_minute()),
            paused_until: path.pace.as_ref().and_then(|pace| pace.paused_until(now)),
            latency_ms: path.latency_ms(),
            hosts: entry.targets.iter().zip(&path.hosts).map(host).collect(),
        };
        entry.paths.iter().enumerate().map(path).collect()
    }

    pub fn is_site_suspended(&self, site: SiteId) -> bool {
        self.sites.list.get(site.0 as usize).is_some_and(|entry| entry.suspended)
    }

    /// [`Self::suspend_site`], [`Self::suspend_flow`] and their ends, by the names that [`crate::event::Event::Suspend`]
    /// has. A kind that is not known changes nothing.
    pub fn set_suspended(&mut self, what: &str, suspended: bool) {
        let Some((kind, name)) = what.split_once(':') else { return };
        let key = match kind {
            "list" => FlowKey::List(name.into()),
            "sender" => FlowKey::Sender(name.into()),
            "site" if suspended => return self.suspend_site(name),
            "site" => return self.resume_site(name),
            _ => return,
        };
        if suspended { self.suspend_flow(&key) } else { self.resume_flow(&key) }
    }
}
