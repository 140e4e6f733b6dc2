//! A running lab: DNS and all hosts of a scenario, within the current tokio runtime.
//!
//! Promise: when [`Lab::start`] returns, everything listens. All hosts listen on the same port, which the server under
//! test is configured to use as "port 25". [`Lab::stop`], or dropping the lab, closes every socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hickory_proto::rr::RecordType;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::behaviour::Connect;
use crate::dns::{self, DnsStats};
use crate::error::LabError;
use crate::recorder::{Mode, Recorder, Stats};
use crate::scenario::Scenario;
use crate::sink::site::{Host, Schedule, SiteState};
use crate::sink::{Listening, listen, run_host};

const PORT_TRIES: u32 = 50;
/// Descriptors that are left to connections and the rest of the process when the limit is raised.
const DESCRIPTORS_SPARE: u64 = 4096;

/// What the lab has seen so far.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LabStats {
    pub sinks: Stats,
    pub dns: DnsStats,
}

/// See the module's text.
pub struct Lab {
    scenario: Arc<Scenario>,
    recorder: Arc<Recorder>,
    dns: Arc<dns::Server>,
    dns_address: SocketAddr,
    smtp_port: u16,
    tasks: JoinSet<()>,
}

impl Lab {
    /// Starts a scenario, recording each copy ([`Mode::Full`]).
    pub async fn start(scenario: Scenario) -> Result<Self, LabError> {
        Self::start_with(scenario, Mode::Full).await
    }

    /// Starts a scenario. Needs one descriptor per listening host; the soft limit is raised if that helps.
    pub async fn start_with(scenario: Scenario, mode: Mode) -> Result<Self, LabError> {
        dns::check_records(&scenario)?;
        let scenario = Arc::new(scenario);
        let recorder = Arc::new(Recorder::new(mode));
        let hosts = hosts(&scenario);
        want_descriptors(hosts.len() as u64)?;
        let (listeners, smtp_port) = listen_all(&hosts, scenario.smtp_port)?;
        let sockets = dns::Sockets::bind(scenario.dns_port).await?;
        let dns_address = sockets.address;
        let dns = Arc::new(dns::Server::new(Arc::clone(&scenario), Arc::clone(&recorder)));
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&dns).run(sockets));
        for (mut host, listener) in hosts.into_iter().zip(listeners) {
            host.address.set_port(smtp_port);
            tasks.spawn(run_host(Arc::new(host), Arc::clone(&recorder), listener));
        }
        Ok(Self { scenario, recorder, dns, dns_address, smtp_port, tasks })
    }

    /// UDP and TCP.
    pub fn dns_addr(&self) -> SocketAddr {
        self.dns_address
    }

    /// The port that every host listens on.
    pub fn smtp_port(&self) -> u16 {
        self.smtp_port
    }

    pub fn scenario(&self) -> &Arc<Scenario> {
        &self.scenario
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    pub fn stats(&self) -> LabStats {
        LabStats { sinks: self.recorder.stats(), dns: self.dns.stats() }
    }

    /// MX queries for a domain so far.
    pub fn mx_queries(&self, domain: &str) -> u64 {
        self.dns.queries(domain, RecordType::MX)
    }

    /// Closes everything and waits until it is closed.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn hosts(scenario: &Arc<Scenario>) -> Vec<Host> {
    let mut hosts = Vec::new();
    for (no, site) in scenario.sites().iter().enumerate() {
        let state = Arc::new(SiteState::new(no as u32, site.seed, Some(Arc::clone(scenario))));
        for (host_no, host) in site.hosts.iter().enumerate() {
            hosts.push(Host {
                name: host.name.clone(),
                no: host_no as u32,
                address: SocketAddr::from((host.address, 0)),
                schedule: Schedule { base: Arc::clone(&host.behaviour), windows: host.windows.clone() },
                site: Arc::clone(&state),
            });
        }
    }
    hosts
}

fn want_descriptors(listeners: u64) -> Result<(), LabError> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let Some(soft) = limit.current else { return Ok(()) };
    if soft >= listeners + DESCRIPTORS_SPARE {
        return Ok(());
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    limit.current = Some(hard.min(listeners + DESCRIPTORS_SPARE));
    // Where it may not be raised, what there is may still do.
    let raised = setrlimit(Resource::Nofile, limit).is_ok();
    let now = if raised { hard.min(listeners + DESCRIPTORS_SPARE) } else { soft };
    if now <= listeners { Err(LabError::Descriptors { needed: listeners, limit: now }) } else { Ok(()) }
}

type Listeners = Vec<Option<Listening>>;

/// A listener for each host that has one at the start, all on one port.
fn listen_all(hosts: &[Host], wanted: u16) -> Result<(Listeners, u16), LabError> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORT_TRIES {
        let port = if wanted == 0 { free_port()? } else { wanted };
        match try_listen_all(hosts, port) {
            Ok(listeners) => return Ok((listeners, port)),
            Err((address, source)) if wanted != 0 || source.kind() != io::ErrorKind::AddrInUse => {
                return Err(LabError::Listen { address, source });
            }
            Err((_, source)) => last = source,
        }
    }
    Err(LabError::NoCommonPort { hosts: hosts.len(), source: last })
}

/// Below those that the system gives to connections and to listeners without a port of their own: hosts that refuse
/// connections hold none, and what is given to nobody stays theirs.
fn free_port() -> io::Result<u16> {
    const PORTS: Range<u32> = 10_000..32_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in PORTS {
        let next = std::process::id().wrapping_mul(37).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = (PORTS.start + next % (PORTS.end - PORTS.start)) as u16;
        match StdListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn try_listen_all(hosts: &[Host], port: u16) -> Result<Listeners, (SocketAddr, io::Error)> {
    hosts
        .iter()
        .map(|host| {
            let address = SocketAddr::from((host.address.ip(), port));
            match host.schedule.at(0).connect {
                Connect::Refuse => Ok(None),
                connect => listen(address, connect).map(Some).map_err(|error| (address, error)),
            }
        })
        .collect()
}
