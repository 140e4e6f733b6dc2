//! Probes of services that ordinary traffic does not use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stentor_core::Core;
use stentor_core::live::health::Name;
use stentor_queue::ids::Ms;
use stentor_records::health::{ServiceOutcomes, ServiceTally};
use stentor_resolve::{ProbeAnswer, Resolver};

use super::{IDLE_MS, PROBE_MAX, RETRY_MS};

/// When each service last answered or failed.
#[derive(Default)]
pub(super) struct Schedule(HashMap<(Name, String), ProbeState>);

#[derive(Default)]
struct ProbeState {
    counts: (u64, u64),
    /// When these counts changed, or a probe began.
    at: Ms,
    is_failing: bool,
    is_running: Arc<AtomicBool>,
}

/// Permission for one probe, released on drop.
pub(super) struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Schedule {
    /// Whether to probe a service now, given its counts.
    pub fn due(&mut self, name: Name, subject: &str, tally: &ServiceTally, steady: Ms) -> Option<Turn> {
        let fresh = || ProbeState { at: steady, ..ProbeState::default() };
        let last = self.0.entry((name, subject.to_owned())).or_insert_with(fresh);
        let counts = (tally.successes, tally.failures);
        if counts != last.counts {
            last.is_failing = counts.0 == last.counts.0;
            (last.counts, last.at) = (counts, steady);
        }
        let pause = if last.is_failing { RETRY_MS } else { IDLE_MS };
        if steady.saturating_sub(last.at) < pause || last.is_running.swap(true, Ordering::AcqRel) {
            return None;
        }
        last.at = steady;
        Some(Turn(last.is_running.clone()))
    }

    /// Drops services that no longer exist.
    pub fn retain(&mut self, steady: Ms) {
        self.0.retain(|_, last| steady.saturating_sub(last.at) < 100 * IDLE_MS);
    }
}

/// Whether the name servers reply, to look-ups or to probes.
#[derive(Default)]
pub(super) struct NameServers {
    pub outcomes: Arc<ServiceOutcomes>,
    /// Replies to look-ups at the last check.
    replies: u64,
}

impl NameServers {
    /// The name servers' counts; `None` if nothing was ever looked up, so they are not needed.
    pub fn look(&mut self, resolver: &Resolver, schedule: &mut Schedule, steady: Ms) -> Option<ServiceTally> {
        let counters = resolver.counters();
        if counters.queries == 0 || resolver.name_servers().is_empty() {
            return None;
        }
        // A look-up with a reply counts as a probe.
        if counters.replies != self.replies {
            self.replies = counters.replies;
            self.outcomes.success();
        }
        if let Some(turn) = schedule.due(Name::Dns, "", &self.outcomes.read(), steady) {
            let (resolver, outcomes) = (resolver.clone(), self.outcomes.clone());
            tokio::spawn(async move {
                let _turn = turn;
                match resolver.probe().await {
                    ProbeAnswer::Answers => outcomes.success(),
                    ProbeAnswer::Silent(why) => outcomes.failure(why),
                }
            });
        }
        Some(self.outcomes.read())
    }
}

/// Probes the milters and the services behind sockets that are due.
pub(super) fn services(core: &Core, schedule: &mut Schedule, steady: Ms) {
    let settings = core.settings();
    for milter in &settings.milters {
        if let Some(turn) = schedule.due(Name::Milter, &milter.settings.name, &milter.outcomes.read(), steady) {
            let milter = milter.clone();
            tokio::spawn(async move {
                milter.probe(PROBE_MAX).await;
                drop(turn);
            });
        }
    }
    for service in settings.tables.services() {
        let name = service_name(service.is_policy_service);
        if let Some(turn) = schedule.due(name, service.name, &service.remote.outcomes.read(), steady) {
            let remote = service.remote.clone();
            tokio::spawn(async move {
                remote.probe(PROBE_MAX).await;
                drop(turn);
            });
        }
    }
}

pub(super) fn service_name(is_policy_service: bool) -> Name {
    if is_policy_service { Name::PolicyService } else { Name::TableService }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use stentor_resolve::ResolverConfig;
    use tokio::net::UdpSocket;

    use super::*;

    #[test]
    fn a_service_that_others_ask_is_left_alone() {
        let mut schedule = Schedule::default();
        let tally = |successes, failures| ServiceTally { successes, failures, why: String::new() };
        let mut due = |tally: &ServiceTally, steady| schedule.due(Name::Milter, "m", tally, steady);
        assert!((0..100).all(|s| due(&tally(s, 0), s * 1_000).is_none()), "a message each second");
        assert!(due(&tally(99, 0), 99_000 + IDLE_MS - 1).is_none());
        let turn = due(&tally(99, 0), 99_000 + IDLE_MS);
        assert!(turn.is_some());
        assert!(due(&tally(99, 0), 99_000 + IDLE_MS * 3).is_none(), "one at a time");
        drop(turn);
        // It failed, so it is probed again soon, whatever found the failure.
        assert!(due(&tally(99, 1), 120_000).is_none());
        assert!(due(&tally(99, 1), 120_000 + RETRY_MS).is_some());
        assert!(due(&tally(99, 1), 120_000 + RETRY_MS * 2).is_some());
        assert!(due(&tally(100, 1), 130_000).is_none());
        assert!(due(&tally(100, 1), 130_000 + RETRY_MS).is_none());
    }

    /// A name server without data that counts queries for the root's name servers, which are our probes.
    async fn name_server(code: u8) -> (SocketAddr, Arc<AtomicU64>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, probes) = (socket.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let counter = probes.clone();
        tokio::spawn(async move {
            let mut packet = [0; 512];
            while let Ok((octets, from)) = socket.recv_from(&mut packet).await {
                counter.fetch_add(u64::from(packet[12] == 0), Ordering::Relaxed);
                packet[2] |= 0x80;
                packet[3] = 0x80 | code;
                socket.send_to(&packet[..octets], from).await.unwrap();
            }
        });
        (address, probes)
    }

    /// Tests with NXDOMAIN and REFUSED: both are replies.
    #[tokio::test]
    async fn name_servers_that_reply_to_look_ups_are_not_probed() {
        for code in [3, 5] {
            let (server, probes) = name_server(code).await;
            let config = ResolverConfig { name_servers: vec![server], ..ResolverConfig::default() };
            let resolver = Resolver::new(config).unwrap();
            let (mut name_servers, mut schedule) = (NameServers::default(), Schedule::default());
            assert!(name_servers.look(&resolver, &mut schedule, 0).is_none(), "nobody needs them");
            for second in 1..60 {
                resolver.resolve(&format!("d{second}.example")).await;
                assert!(name_servers.look(&resolver, &mut schedule, second * 1_000).is_some());
            }
            // Answers from the cache are not replies.
            let (mut at, outcomes) = (60_000, name_servers.outcomes.clone());
            assert_eq!(probes.load(Ordering::Relaxed), 0, "{code}");
            let before = outcomes.read().successes;
            while outcomes.read().successes == before {
                at += 1_000;
                name_servers.look(&resolver, &mut schedule, at);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(probes.load(Ordering::Relaxed) > 0, "{code}");
            assert_eq!(outcomes.read().failures, 0, "{code}: {}", outcomes.read().why);
        }
    }
}
