//! A list's day: 2,000 subscribers over 700 sites (Zipf), 200 posts with bursts, some hosts dead or hanging.
//!
//! Per post: the time until 95 % and 100 % of the reachable subscribers have it. Measure: what the slowest good site
//! needs by itself, that is one post to its subscribers alone, from nothing (look-up and connection included), with the
//! same limits. Reachable is who is at a site that accepts at the first attempt and answers within a second.
//!
//! Two bounds that no scheduler gets below stand beside it: where sites that hold 5 % of the subscribers need more than
//! 2 s each by itself, 95 % take as long; and posts of a burst queue up at a host that takes few connections and has no
//! PIPELINING (`queue_ms`).

use serde_json::{Value, json};
use stentor_mail::Class;
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::idset::IdSet;
use stentor_sched::SchedConfig;

use crate::engine::{Counts, Post, START, Sim};
use crate::host::{Host, Mood};
use crate::net::{Net, Shape};

pub(super) const HOUR_MS: Ms = 3_600_000;
pub(super) const DAY_MS: Ms = 24 * HOUR_MS;
/// In which 95 % are to have a post.
const QUICK_MS: u32 = 2_000;

/// Sizes of a day.
#[derive(Clone)]
pub struct Day {
    pub seed: u64,
    pub subscribers: u32,
    pub sites: u32,
    pub posts: u32,
    pub bad_percent: u32,
    pub odd_percent: u32,
    pub copies: bool,
    pub cfg: SchedConfig,
    /// Transactions pipelined on a connection.
    pub pipeline: usize,
}

impl Day {
    pub fn new(seed: u64) -> Day {
        Day {
            seed,
            subscribers: 2_000,
            sites: 700,
            posts: 200,
            bad_percent: 2,
            odd_percent: 20,
            copies: false,
            cfg: shipped(),
            pipeline: 16,
        }
    }

    /// A smaller day of the same shape.
    #[must_use]
    pub fn part(mut self, part: u32) -> Day {
        for size in [&mut self.subscribers, &mut self.sites, &mut self.posts] {
            *size = size.div_ceil(part);
        }
        self
    }
}

/// The limits that the binary has as it is shipped (`delivery.*`).
pub fn shipped() -> SchedConfig {
    SchedConfig::default()
}

/// What good sites need by themselves for one post.
#[derive(Clone, Copy)]
pub struct Alone {
    pub slowest_ms: u32,
    /// 95 % of the reachable subscribers are at sites that need at most so long.
    pub most_ms: u32,
}

/// What a day was like.
pub struct Result {
    /// Per post: milliseconds to 95 % and to 100 % of the reachable.
    pub posts: Vec<(u32, u32)>,
    /// Posts with reachable subscribers that were not all served by the end.
    pub unserved: usize,
    pub alone: Alone,
    /// What the worst post needs at the host where posts queue up most, with all the connections that it takes open.
    pub queue_ms: u32,
    pub counts: Counts,
    /// Transactions and connections that hosts refused by 4xx.
    pub refused: u64,
    /// The last delivery of the worst post.
    pub worst: String,
}

impl Result {
    pub fn worst_100(&self) -> f64 {
        f64::from(self.posts.iter().map(|p| p.1).max().unwrap_or(0)) / f64::from(self.alone.slowest_ms.max(1))
    }

    pub fn worst_95_ms(&self) -> u32 {
        self.posts.iter().map(|p| p.0).max().unwrap_or(0)
    }

    /// Of 2 s, or of what 95 % of the subscribers' sites need by themselves if that is more.
    pub fn worst_95(&self) -> f64 {
        f64::from(self.worst_95_ms()) / f64::from(self.alone.most_ms.max(QUICK_MS))
    }

    /// Of twice the slowest alone, or of what queues up whatever the scheduler does if that is more.
    pub fn worst_100_of_bound(&self) -> f64 {
        let worst_ms = self.posts.iter().map(|p| p.1).max().unwrap_or(0);
        f64::from(worst_ms) / f64::from((2 * self.alone.slowest_ms).max(self.queue_ms).max(1))
    }

    pub fn median(&self, which: impl Fn(&(u32, u32)) -> u32) -> u32 {
        let mut all: Vec<u32> = self.posts.iter().map(which).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    }

    pub fn json(&self) -> Value {
        let last = f64::from(self.alone.slowest_ms.max(1));
        json!({
            "slowest_alone_ms": self.alone.slowest_ms,
            "most_alone_ms": self.alone.most_ms,
            "queue_ms": self.queue_ms,
            "worst_100_of_bound": self.worst_100_of_bound(),
            "worst_95": self.worst_95(),
            "worst_95_ms": self.worst_95_ms(),
            "median_95_ms": self.median(|p| p.0),
            "worst_100_ms": self.posts.iter().map(|p| p.1).max().unwrap_or(0),
            "median_100_ms": self.median(|p| p.1),
            "first_95_ms": self.posts.first().map_or(0, |p| p.0),
            "first_100": f64::from(self.posts.first().map_or(0, |p| p.1)) / last,
            "worst_100": self.worst_100(),
            "median_100": f64::from(self.median(|p| p.1)) / last,
            "unserved": self.unserved,
            "connects": self.counts.connects,
            "connect_failures": self.counts.connect_failures,
            "transactions": self.counts.transactions,
            "delivered": self.counts.delivered,
            "refused": self.refused,
            "worst": self.worst,
            "cut": self.counts.cut,
        })
    }
}

/// Subscribers per domain, by Zipf's law.
fn zipf(day: &Day, rng: &mut fastrand::Rng) -> Vec<u32> {
    let weights: Vec<f64> = (1..=day.sites).map(|rank| 1.0 / f64::from(rank)).collect();
    let sum: f64 = weights.iter().sum();
    // Each has one at least.
    let mut counts = vec![1; day.sites as usize];
    let rest = day.subscribers.saturating_sub(day.sites);
    for _ in 0..rest {
        let mut at = rng.f64() * sum;
        let site = weights.iter().position(|w| {
            at -= w;
            at <= 0.0
        });
        counts[site.unwrap_or(0)] += 1;
    }
    counts
}

/// Half of the posts spread over the day, the others in bursts of up to 20 within half a minute.
pub(super) fn times(day: &Day, rng: &mut fastrand::Rng) -> Vec<Ms> {
    let mut times: Vec<Ms> = (0..day.posts / 2).map(|_| START + rng.u64(0..DAY_MS)).collect();
    while times.len() < day.posts as usize {
        let begin = START + rng.u64(0..DAY_MS);
        let count = rng.usize(5..=20).min(day.posts as usize - times.len());
        times.extend((0..count).map(|_| begin + rng.u64(0..30_000)));
    }
    times.sort_unstable();
    times
}

pub(super) fn sim(day: &Day, net: &Net) -> Sim {
    let mut sim = Sim::new(net.clone(), day.cfg.clone(), day.seed);
    sim.pipeline(day.pipeline);
    sim
}

/// What reachable domains need for one post alone.
fn alone(day: &Day, net: &Net, subscribers: &[u32]) -> Alone {
    let mut times: Vec<(u32, u32)> = Vec::new();
    for (domain, count) in subscribers.iter().enumerate() {
        if !net.is_reachable(domain as u32, *count) {
            continue;
        }
        let mut hosts = Net::default();
        let own = &net.domains[domain];
        let first = hosts.hosts.len() as u32;
        hosts.hosts.extend(own.hosts.iter().map(|h| net.hosts[*h as usize].clone()));
        hosts.add((first..hosts.hosts.len() as u32).collect(), own.equal, own.look_up_ms);
        let mut sim = sim(day, &hosts);
        let recipients: IdSet = (0..*count).filter_map(|n| sim.subscriber(n, 0)).map(|id| id.0).collect();
        let watched = recipients.clone();
        sim.post(Post {
            at: START,
            recipients,
            class: Class::Bulk,
            list: Some("l".into()),
            copies: day.copies,
            watched,
        });
        sim.run_empty(START + HOUR_MS);
        let ms = sim.delays[0].iter().map(|d| d.0).max().unwrap_or(0);
        times.push((ms, *count));
    }
    times.sort_unstable();
    let mut served = times.iter().map(|(_, count)| count).sum::<u32>() * 95 / 100;
    let most = times.iter().find(|(_, count)| {
        served = served.saturating_sub(*count);
        served == 0
    });
    Alone { slowest_ms: times.last().map_or(0, |t| t.0), most_ms: most.map_or(0, |t| t.0) }
}

/// What the worst post needs where posts queue up: each reachable domain by itself, first come first served, over as
/// many connections as its hosts take, all of them open already. No scheduler gets below it.
fn queue_ms(day: &Day, net: &Net, subscribers: &[u32], times: &[Ms]) -> u32 {
    let mut worst = 0;
    for (domain, count) in subscribers.iter().enumerate() {
        if day.copies || !net.is_reachable(domain as u32, *count) {
            continue;
        }
        let (mut connections, mut occupied_ms, mut takes_ms) = (0, Ms::MAX, Ms::MAX);
        for host in net.domains[domain].hosts.iter().map(|host| &net.hosts[*host as usize]) {
            let work = host.work_ms(*count as usize);
            let takes = host.before_ms(*count as usize) + host.rtt_ms + work;
            occupied_ms = occupied_ms.min(if host.overlaps() { work } else { takes });
            takes_ms = takes_ms.min(takes);
            connections += match host.mood {
                Mood::TakesConnections(max) => max as usize,
                _ => day.cfg.connections_per_site_max,
            };
        }
        let mut free = vec![0; connections.min(day.cfg.connections_per_site_max)];
        for at in times {
            let Some(next) = free.iter_mut().min() else { break };
            let begin = (*next).max(*at);
            *next = begin + occupied_ms;
            worst = worst.max(begin + takes_ms - at);
        }
    }
    worst as u32
}

fn describe(host: &Host) -> String {
    let (pipelining, chunking) = (host.pipelining, host.chunking);
    format!("{:?} rtt {} pipelining {pipelining} chunking {chunking}", host.mood, host.rtt_ms)
}

pub(super) fn made(day: &Day) -> (fastrand::Rng, Net, Vec<u32>) {
    let mut rng = fastrand::Rng::with_seed(day.seed ^ 0xda1);
    let shape = Shape { sites: day.sites, bad_percent: day.bad_percent, odd_percent: day.odd_percent };
    let subscribers = zipf(day, &mut rng);
    (rng, Net::generate(day.seed, &shape), subscribers)
}

/// What good sites of a day need by themselves.
pub fn sites_alone(day: &Day) -> Alone {
    let (_, net, subscribers) = made(day);
    alone(day, &net, &subscribers)
}

pub fn run(day: &Day) -> Result {
    run_beside(day, sites_alone(day))
}

/// A day, measured by what good sites need by themselves.
pub fn run_beside(day: &Day, alone: Alone) -> Result {
    let (mut rng, net, subscribers) = made(day);
    let times = times(day, &mut rng);
    let queue_ms = queue_ms(day, &net, &subscribers, &times);
    let mut sim = sim(day, &net);
    let (mut recipients, mut watched) = (IdSet::new(), IdSet::new());
    let mut number = 0;
    let mut order: Vec<u32> =
        subscribers.iter().enumerate().flat_map(|(d, n)| std::iter::repeat_n(d as u32, *n as usize)).collect();
    rng.shuffle(&mut order);
    for domain in order {
        number += 1;
        let Some(id) = sim.subscriber(number, domain) else { continue };
        recipients.insert(id.0);
        if net.is_reachable(domain, subscribers[domain as usize]) {
            watched.insert(id.0);
        }
    }
    for at in times {
        let (recipients, watched) = (recipients.clone(), watched.clone());
        sim.post(Post { at, recipients, class: Class::Bulk, list: Some("l".into()), copies: day.copies, watched });
    }
    sim.run_until(START + DAY_MS + HOUR_MS);
    let reachable = watched.len();
    let posts = sim.delays.iter_mut().map(|delays| {
        delays.sort_unstable();
        let at = |share: usize| delays.get((reachable * share).div_ceil(100).max(1) - 1).map_or(u32::MAX, |d| d.0);
        (at(95), at(100))
    });
    let posts: Vec<(u32, u32)> = posts.collect();
    let last = sim.delays.iter().enumerate().filter_map(|(i, d)| d.last().map(|last| (*last, i))).max();
    let worst = last.map(|((ms, id), post)| {
        let name = sim.store.book.domain_name(sim.store.book.domain(AddressId(id)));
        let domain = &net.domains[Net::number(name).unwrap_or(0)];
        let hosts: Vec<String> = domain.hosts.iter().map(|h| describe(&net.hosts[*h as usize])).collect();
        format!("post {post} at {} s, {ms} ms, {name}: {}", (sim.posts[post].at - START) / 1_000, hosts.join(", "))
    });
    let refused = sim.net.hosts.iter().map(|h| h.refused).sum();
    let unserved = posts.iter().filter(|p| p.1 == u32::MAX).count();
    Result { posts, unserved, alone, queue_ms, counts: sim.counts, refused, worst: worst.unwrap_or_default() }
}
