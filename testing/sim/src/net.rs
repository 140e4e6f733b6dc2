//! The simulated Internet: domains, their sites and hosts, and the links between them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::ids::Ms;
use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};

use crate::host::{Host, Mood};

const HOST_BASE: u32 = 0x0a00_0000;
/// Sites with many subscribers come first; those offer PIPELINING.
const GREAT_SITES: u32 = 50;
const TTL_S: u32 = 3_600;

#[derive(Clone)]
pub struct Domain {
    pub hosts: Vec<u32>,
    /// All hosts have the same preference.
    pub equal: bool,
    pub look_up_ms: Ms,
    key: Arc<str>,
}

/// What is there before any mail is sent. Domains are called `d0.example`, `d1.example` ...
#[derive(Clone, Default)]
pub struct Net {
    pub hosts: Vec<Host>,
    pub domains: Vec<Domain>,
    /// What the sites' profile says.
    pub limits: SiteLimits,
}

/// How a generated Internet is made up.
pub struct Shape {
    pub sites: u32,
    /// Hosts that are dead or let attempts hang.
    pub bad_percent: u32,
    /// Of the others: hosts with limits and greylisting ones.
    pub odd_percent: u32,
}

impl Net {
    /// One site per domain; round trips of 20 to 300 ms.
    pub fn generate(seed: u64, shape: &Shape) -> Net {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut net = Net::default();
        for rank in 0..shape.sites {
            let rtt = rng.u64(20..=300);
            let count = [1, 1, 1, 1, 2, 2, 3][rng.usize(0..7)];
            let (equal, odd) = (rng.bool(), odd_mood(&mut rng, shape.odd_percent));
            let (chunking, pipelining) = (rng.u32(0..100) < 60, rng.u32(0..100) < 97 || rank < GREAT_SITES);
            let hosts = (0..count)
                .map(|_| {
                    let mood = if rng.u32(0..10_000) < shape.bad_percent * 100 { bad_mood(&mut rng) } else { odd };
                    let mut host = Host::new(mood, rtt);
                    (host.chunking, host.pipelining) = (chunking, pipelining);
                    host.transaction_ms = rng.u64(2..=60);
                    net.hosts.push(host);
                    net.hosts.len() as u32 - 1
                })
                .collect();
            let look_up_ms = if rng.u32(0..50) == 0 { rng.u64(200..=600) } else { rng.u64(2..=150) };
            net.add(hosts, equal, look_up_ms);
        }
        net
    }

    pub fn add(&mut self, hosts: Vec<u32>, equal: bool, look_up_ms: Ms) -> u32 {
        let key = format!("mx{hosts:?}").into();
        self.domains.push(Domain { hosts, equal, look_up_ms, key });
        self.domains.len() as u32 - 1
    }

    /// A domain with a single host.
    pub fn add_site(&mut self, host: Host, look_up_ms: Ms) -> u32 {
        self.hosts.push(host);
        let host = self.hosts.len() as u32 - 1;
        self.add(vec![host], true, look_up_ms)
    }

    pub fn number(name: &str) -> Option<usize> {
        name.strip_prefix('d')?.strip_suffix(".example")?.parse().ok()
    }

    pub fn resolve(&self, name: &str) -> Resolution {
        let Some(domain) = Net::number(name).and_then(|n| self.domains.get(n)) else {
            return Resolution::Permanent { dsn: Enhanced::new(5, 1, 2), text: "no such domain".into() };
        };
        let target = |(i, host): (usize, &u32)| Target {
            preference: if domain.equal { 10 } else { 10 + i as u16 },
            host: format!("h{host}.example").into(),
            addr: Endpoint::by_port((Ipv4Addr::from(HOST_BASE + host), 25)),
            lmtp: false,
            posture: None,
        };
        let targets = domain.hosts.iter().enumerate().map(target).collect();
        Resolution::Site(SitePlan {
            key: domain.key.clone(),
            targets,
            mixes_domains: false,
            limits: self.limits,
            ttl_s: TTL_S,
        })
    }

    pub fn host_at(addr: &Endpoint) -> usize {
        match addr.ip() {
            Some(IpAddr::V4(ip)) => (u32::from(ip) - HOST_BASE) as usize,
            _ => 0,
        }
    }

    /// Whether a domain takes every recipient at its first attempt and answers within a second: all of its hosts do
    /// (which of several is tried first is chance).
    pub fn is_reachable(&self, domain: u32, subscribers: u32) -> bool {
        let takes_all = |mood| !matches!(mood, Mood::TakesRecipients(max) if max < subscribers);
        let moods = self.domains[domain as usize].hosts.iter().map(|h| self.hosts[*h as usize].mood);
        moods.into_iter().all(|mood| mood.accepts_at_once() && takes_all(mood))
    }
}

fn bad_mood(rng: &mut fastrand::Rng) -> Mood {
    match rng.u32(0..7) {
        0 => Mood::Dead,
        1 => Mood::BlackHole,
        2 => Mood::NoBanner,
        3 => Mood::NoEhlo,
        4 => Mood::NoMail,
        5 => Mood::NoFinal,
        _ => Mood::Tarpit(rng.u64(5..=20) * 1_000),
    }
}

fn odd_mood(rng: &mut fastrand::Rng, percent: u32) -> Mood {
    if rng.u32(0..100) >= percent {
        return Mood::Good;
    }
    match rng.u32(0..6) {
        0 => Mood::Greylists(rng.u64(60..=300) * 1_000),
        1 | 2 => Mood::TakesConnections(rng.u32(1..=5)),
        3 => Mood::LeavesAfter(rng.u32(5..=50)),
        4 => Mood::TakesRecipients(rng.u32(10..=50)),
        _ => Mood::TakesPerMinute(rng.u32(30..=200), rng.u32(5..=20)),
    }
}
