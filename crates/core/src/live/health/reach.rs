//! Detects that no host can be reached: the network is down, or a firewall drops outgoing traffic.
//!
//! An unreachable host is ordinary, and a quiet server may know only dead hosts. So only hosts that worked within the
//! last hour count. The network counts as down if two of them cannot be reached and none can; or the one to which all
//! mail went; or if there is no route to two public IPv4 networks, since routers on the way also report a missing one.
//! A single established connection proves the opposite.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use parking_lot::Mutex;
use stentor_http_client::is_public;
use stentor_queue::ids::Ms;

/// How long a host that worked is expected to keep working.
const KNOWN_MS: Ms = 3_600_000;
/// Largest number of hosts remembered, working and failing each.
const HOSTS_MAX: usize = 1_024;
/// Number of hosts that worked and now fail.
const LOST_MIN: usize = 2;
/// Number of networks (/16) without a route.
const UNROUTABLE_MIN: usize = 2;
/// Connections to the only host before its loss counts, and how long it must fail.
const ONLY_HOST_CONNECTIONS_MIN: u32 = 3;
const ONLY_HOST_MS: Ms = 8_000;
/// Without attempts for this long, nothing is known.
const FORGET_MS: Ms = 1_800_000;

/// A failed connection attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnreachableHost<'a> {
    pub host: IpAddr,
    /// Whether the kernel has no route to the host.
    pub is_unroutable: bool,
    pub why: &'a str,
}

#[derive(Default)]
struct Hosts {
    /// When each host was last reached, and how often.
    worked: HashMap<IpAddr, (Ms, u32)>,
    failing: HashSet<IpAddr>,
    /// Networks (/16) without a route, at most [`UNROUTABLE_MIN`].
    unroutable: HashSet<[u8; 2]>,
    since: Ms,
    last: Ms,
    why: String,
}

#[derive(Default)]
pub struct Reach(Mutex<Hosts>);

impl Reach {
    /// Records an established connection.
    pub fn reached(&self, host: IpAddr, now: Ms) {
        let mut hosts = self.0.lock();
        hosts.failing.clear();
        hosts.unroutable.clear();
        if hosts.worked.len() >= HOSTS_MAX && !hosts.worked.contains_key(&host) {
            hosts.worked.retain(|_, (at, _)| *at + KNOWN_MS > now);
            if hosts.worked.len() >= HOSTS_MAX {
                return;
            }
        }
        let (at, times) = hosts.worked.entry(host).or_default();
        (*at, *times) = (now, times.saturating_add(1));
    }

    /// Records a failed connection attempt.
    pub fn unreached(&self, unreached: UnreachableHost<'_>, now: Ms) {
        let mut hosts = self.0.lock();
        if hosts.failing.is_empty() {
            hosts.since = now;
        }
        if hosts.failing.len() < HOSTS_MAX {
            hosts.failing.insert(unreached.host);
        }
        if let IpAddr::V4(host) = unreached.host
            && unreached.is_unroutable
            && is_public(unreached.host)
            && hosts.unroutable.len() < UNROUTABLE_MIN
        {
            let [first, second, ..] = host.octets();
            hosts.unroutable.insert([first, second]);
        }
        hosts.last = now;
        unreached.why.clone_into(&mut hosts.why);
    }

    /// The reason if nothing can be reached.
    pub fn trouble(&self, now: Ms) -> Option<String> {
        let hosts = self.0.lock();
        if hosts.failing.is_empty() || hosts.last + FORGET_MS < now {
            return None;
        }
        let is_known = |host: &&IpAddr| hosts.worked.get(*host).is_some_and(|(at, _)| *at + KNOWN_MS > hosts.since);
        let lost = hosts.failing.iter().filter(is_known).count();
        let known = hosts.worked.values().filter(|(at, _)| *at + KNOWN_MS > hosts.since).count();
        let is_only = lost == 1
            && known == 1
            && hosts.since + ONLY_HOST_MS <= now
            && hosts
                .failing
                .iter()
                .any(|host| hosts.worked.get(host).is_some_and(|(_, times)| *times >= ONLY_HOST_CONNECTIONS_MIN));
        if hosts.unroutable.len() >= UNROUTABLE_MIN {
            return Some(format!("no route to any host; last error: {}", hosts.why));
        }
        if lost >= LOST_MIN {
            let tried = hosts.failing.len();
            return Some(format!("no host can be reached: {tried} tried, none connected; last error: {}", hosts.why));
        }
        is_only.then(|| format!("the only host that receives our mail cannot be reached: {}", hosts.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn fails(reach: &Reach, n: u8, now: Ms) {
        reach.unreached(UnreachableHost { host: host(n), is_unroutable: false, why: "Connection timed out" }, now);
    }

    #[test]
    fn hosts_that_never_worked_say_nothing_of_the_network() {
        let reach = Reach::default();
        (0..200).for_each(|n| fails(&reach, n, 1_000));
        assert_eq!(reach.trouble(60_000), None);
    }

    #[test]
    fn two_hosts_that_worked_and_none_that_works_do() {
        let reach = Reach::default();
        (1..=3).for_each(|n| reach.reached(host(n), 1_000));
        fails(&reach, 1, 10_000);
        assert_eq!(reach.trouble(20_000), None, "one of three");
        fails(&reach, 2, 11_000);
        assert!(reach.trouble(11_000).unwrap().contains("2 tried"), "{:?}", reach.trouble(11_000));
        reach.reached(host(3), 12_000);
        assert_eq!(reach.trouble(30_000), None);
        // Hosts that worked long ago do not count.
        fails(&reach, 1, KNOWN_MS * 3);
        fails(&reach, 2, KNOWN_MS * 3);
        assert_eq!(reach.trouble(KNOWN_MS * 3), None);
    }

    #[test]
    fn the_only_host_counts_after_a_restart_of_it_could_be_over() {
        let reach = Reach::default();
        reach.reached(host(1), 0);
        fails(&reach, 1, 1_000);
        assert_eq!(reach.trouble(60_000), None, "one message in an hour");
        (0..3).for_each(|n| reach.reached(host(1), 60_000 + n));
        fails(&reach, 1, 70_000);
        assert_eq!(reach.trouble(70_000 + ONLY_HOST_MS - 1), None);
        assert!(reach.trouble(70_000 + ONLY_HOST_MS).unwrap().contains("only host"));
        assert_eq!(reach.trouble(70_000 + FORGET_MS + 1), None, "nobody tries any more");
    }

    #[test]
    fn no_route_to_two_public_networks_is_certain() {
        let reach = Reach::default();
        let v6 = UnreachableHost { host: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), is_unroutable: true, why: "x" };
        reach.unreached(v6, 1_000);
        assert_eq!(reach.trouble(2_000), None, "a machine without IPv6 is ordinary");
        let no_route_to = |host: [u8; 4]| {
            let host = host.into();
            reach.unreached(UnreachableHost { host, is_unroutable: true, why: "Network is unreachable" }, 3_000);
            reach.trouble(3_000)
        };
        for host in
            [[10, 1, 0, 1], [192, 168, 0, 1], [172, 16, 0, 1], [192, 0, 2, 9], [198, 51, 100, 9], [100, 64, 0, 1]]
        {
            assert_eq!(no_route_to(host), None, "{host:?} is routed nowhere");
        }
        for host in [[240, 0, 0, 1], [0, 0, 0, 1], [198, 18, 0, 1], [127, 99, 0, 1], [192, 0, 0, 8]] {
            assert_eq!(no_route_to(host), None, "{host:?} is routed nowhere");
        }
        assert_eq!(no_route_to([8, 8, 8, 8]), None, "one network");
        assert_eq!(no_route_to([8, 8, 4, 4]), None, "the same network");
        assert!(no_route_to([9, 9, 9, 9]).unwrap().ends_with("Network is unreachable"));
        reach.reached([8, 8, 8, 8].into(), 4_000);
        assert_eq!(no_route_to([9, 9, 9, 9]), None, "one connection proves the opposite");
    }
}
