//! The hosts of a world, their moods, and its domains.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::site::{Endpoint, Resolution, SiteLimits, SitePlan, Target};
use stentor_sched::{CloseReason, RcptOutcome, Stage};

const MINUTE: Ms = 60_000;
const HOUR: Ms = 60 * MINUTE;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostMood {
    Good,
    Dead,
    /// No answer; the connection attempt takes half a minute.
    Hangs,
    DeadUntil(Ms),
    /// Each (message, recipient) is refused for a while from its first attempt.
    Greylists,
    /// 421 to MAIL after this many transactions.
    LeavesAfter(u32),
    /// 421 banner beyond this many connections.
    TakesConnections(u32),
    /// 452 4.5.3 beyond this many recipients.
    TakesRecipients(u32),
    /// Percent of the transactions that lose their connection, before or after the dot.
    Drops(u32),
    DropsAfterDot(u32),
    /// 450 to MAIL until this time.
    RefusesSenders(Ms),
    /// Percent of 451 to the data.
    RefusesData(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DomainKind {
    Site,
    /// Null MX.
    None,
    /// SERVFAIL for ever.
    NeverAnswers,
}

struct Domain {
    kind: DomainKind,
    hosts: Vec<usize>,
    equal: bool,
    servfail_until: Ms,
    mixes: bool,
    key: Arc<str>,
}

pub struct Answer {
    pub outcomes: Vec<RcptOutcome>,
    pub close: Option<CloseReason>,
}

pub struct Hosts {
    moods: Vec<HostMood>,
    connections: Vec<u32>,
    domains: Vec<Domain>,
    first_seen: HashMap<(u64, AddressId), Ms>,
    mailbox_full_until: HashMap<AddressId, Ms>,
}

fn mood(rng: &mut fastrand::Rng, start: Ms) -> HostMood {
    match rng.u32(0..20) {
        0 => HostMood::Dead,
        1 => HostMood::Hangs,
        2 => HostMood::DeadUntil(start + rng.u64(1..6 * HOUR)),
        3 | 4 => HostMood::Greylists,
        5 => HostMood::LeavesAfter(rng.u32(1..6)),
        6 => HostMood::TakesConnections(rng.u32(1..4)),
        7 => HostMood::TakesRecipients(rng.u32(1..12)),
        8 => HostMood::Drops(rng.u32(10..60)),
        9 => HostMood::DropsAfterDot(rng.u32(10..40)),
        10 => HostMood::RefusesSenders(start + rng.u64(1..5 * HOUR)),
        11 => HostMood::RefusesData(rng.u32(10..60)),
        _ => HostMood::Good,
    }
}

impl Hosts {
    pub fn new(rng: &mut fastrand::Rng, start: Ms) -> Hosts {
        let count = rng.usize(3..25);
        let moods: Vec<HostMood> = (0..count).map(|_| mood(rng, start)).collect();
        let route = rng.u32(0..4) == 0;
        let domains = (0..rng.usize(2..60))
            .map(|_| {
                let kind = match rng.u32(0..25) {
                    0 => DomainKind::None,
                    1 => DomainKind::NeverAnswers,
                    _ => DomainKind::Site,
                };
                let mixes = route && rng.u32(0..3) > 0;
                let mut hosts: Vec<usize> =
                    if mixes { vec![0, 1] } else { (0..rng.usize(1..4)).map(|_| rng.usize(0..count)).collect() };
                hosts.sort_unstable();
                hosts.dedup();
                let equal = !mixes && hosts.len().is_multiple_of(2);
                let key = format!("{}{equal}{hosts:?}", if mixes { "route:" } else { "" }).into();
                let servfail_until = if rng.u32(0..8) == 0 { start + rng.u64(1..3 * HOUR) } else { 0 };
                Domain { kind, hosts, equal, servfail_until, mixes, key }
            })
            .collect();
        let connections = vec![0; count];
        Hosts { moods, connections, domains, first_seen: HashMap::new(), mailbox_full_until: HashMap::new() }
    }

    pub fn domain(&self, rng: &mut fastrand::Rng) -> String {
        // Skewed: the first domains have most subscribers.
        let below = rng.usize(1..=self.domains.len());
        format!("d{}.example", rng.usize(0..below))
    }

    fn of(&self, name: &str) -> &Domain {
        let domain = name.rsplit('@').next().unwrap_or(name);
        let number = domain.trim_start_matches('d').trim_end_matches(".example");
        &self.domains[number.parse::<usize>().expect("a domain of this world")]
    }

    pub fn kind_of(&self, name: &str) -> DomainKind {
        self.of(name).kind
    }

    pub fn is_dead(&self, name: &str) -> bool {
        self.of(name).hosts.iter().all(|h| matches!(self.moods[*h], HostMood::Dead | HostMood::Hangs))
    }

    /// Whether a host of the site fails transactions at random.
    pub fn is_chancy(&self, name: &str) -> bool {
        let chancy = |mood| matches!(mood, HostMood::Drops(_) | HostMood::DropsAfterDot(_) | HostMood::RefusesData(_));
        self.of(name).hosts.iter().any(|h| chancy(self.moods[*h]))
    }

    pub fn is_unknown_user(id: AddressId) -> bool {
        id.0 % 17 == 3
    }

    pub fn moods_of(&self, name: &str) -> Vec<HostMood> {
        self.of(name).hosts.iter().map(|h| self.moods[*h]).collect()
    }

    pub fn index(addr: &Endpoint) -> usize {
        usize::from(addr.port()) - 1
    }

    pub fn resolve(&self, name: &str, now: Ms) -> Resolution {
        let domain = self.of(name);
        match domain.kind {
            DomainKind::None => return Resolution::Permanent { dsn: Enhanced::new(5, 1, 10), text: "null MX".into() },
            DomainKind::NeverAnswers => {
                return Resolution::Temporary {
                    cause: Cause::Dns,
                    dsn: Enhanced::new(4, 4, 3),
                    text: "SERVFAIL".into(),
                };
            }
            DomainKind::Site if now < domain.servfail_until => {
                return Resolution::Temporary {
                    cause: Cause::Dns,
                    dsn: Enhanced::new(4, 4, 3),
                    text: "SERVFAIL".into(),
                };
            }
            DomainKind::Site => {}
        }
        let targets = domain.hosts.iter().enumerate().map(|(i, host)| Target {
            preference: if domain.equal { 10 } else { 10 * i as u16 },
            host: format!("h{host}.example").into(),
            addr: Endpoint::by_port((Ipv4Addr::LOCALHOST, *host as u16 + 1)),
            lmtp: false,
            posture: None,
        });
        let (key, mixes_domains) = (domain.key.clone(), domain.mixes);
        Resolution::Site(SitePlan {
            key,
            targets: targets.collect(),
            mixes_domains,
            limits: SiteLimits::default(),
            ttl_s: 600,
        })
    }

    pub fn joined(&mut self, host: usize) {
        self.connections[host] += 1;
    }

    pub fn left(&mut self, host: usize) {
        self.connections[host] -= 1;
    }

    pub fn connect_ms(&self, host: usize, rng: &mut fastrand::Rng) -> Ms {
        if self.moods[host] == HostMood::Hangs { 30_000 } else { rng.u64(10..300) }
    }

    pub fn refuses(&self, host: usize, now: Ms) -> Option<&'static str> {
        match self.moods[host] {
            HostMood::Dead => Some("connection refused"),
            HostMood::Hangs => Some("timed out"),
            HostMood::DeadUntil(until) if now < until => Some("connection refused"),
            HostMood::TakesConnections(max) if self.connections[host] > max => Some("421 4.7.0 too many connections"),
            _ => None,
        }
    }

    /// The host's answer to a transaction.
    pub fn answer(
        &mut self,
        host: usize,
        message: u64,
        ids: &[AddressId],
        done: u32,
        now: Ms,
        rng: &mut fastrand::Rng,
    ) -> Answer {
        let all = |stage, code, dsn: Option<Enhanced>, text: &str| -> Vec<RcptOutcome> {
            let text: Arc<str> = text.into();
            ids.iter().map(|id| RcptOutcome { id: *id, stage, code, dsn, text: text.clone() }).collect()
        };
        let lost = || Some(CloseReason::Lost { text: "reset".into() });
        match self.moods[host] {
            HostMood::LeavesAfter(n) if done > n => {
                let refused = CloseReason::Refused { text: "421 enough".into() };
                return Answer { outcomes: all(Stage::Mail, 421, None, "421 enough"), close: Some(refused) };
            }
            HostMood::Drops(percent) if rng.u32(0..100) < percent => {
                // Some callers report the outcomes, some only that the connection is gone.
                let outcomes = if rng.bool() { all(Stage::Lost, 0, None, "reset") } else { Vec::new() };
                return Answer { outcomes, close: lost() };
            }
            HostMood::DropsAfterDot(percent) if rng.u32(0..100) < percent => {
                return Answer { outcomes: all(Stage::LostAfterDot, 0, None, "reset"), close: lost() };
            }
            HostMood::RefusesSenders(until) if now < until => {
                return Answer { outcomes: all(Stage::Mail, 450, Enhanced::parse("4.7.1"), "later"), close: None };
            }
            HostMood::RefusesData(percent) if rng.u32(0..100) < percent => {
                return Answer { outcomes: all(Stage::Final, 451, None, "later"), close: None };
            }
            _ => {}
        }
        let outcomes =
            ids.iter().enumerate().map(|(i, id)| self.recipient(host, message, *id, i as u32, now)).collect();
        Answer { outcomes, close: None }
    }

    fn recipient(&mut self, host: usize, message: u64, id: AddressId, i: u32, now: Ms) -> RcptOutcome {
        let outcome = |stage, code, dsn, text: &str| RcptOutcome {
            id,
            stage,
            code,
            dsn: Enhanced::parse(dsn),
            text: text.into(),
        };
        if Hosts::is_unknown_user(id) {
            return outcome(Stage::Rcpt, 550, "5.1.1", "unknown user");
        }
        if id.0 % 19 == 4 {
            let until = *self.mailbox_full_until.entry(id).or_insert(now + 3 * HOUR);
            if now < until {
                return outcome(Stage::Rcpt, 452, "4.2.2", "mailbox full");
            }
        }
        match self.moods[host] {
            HostMood::TakesRecipients(max) if i >= max => outcome(Stage::Rcpt, 452, "4.5.3", "too many recipients"),
            HostMood::Greylists if now < *self.first_seen.entry((message, id)).or_insert(now) + 4 * MINUTE => {
                outcome(Stage::Rcpt, 451, "4.7.1", "greylisted")
            }
            _ => outcome(Stage::Final, 250, "2.0.0", "ok"),
        }
    }
}
