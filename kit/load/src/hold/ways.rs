//! Source and target of each connection.

use std::net::{IpAddr, SocketAddr};

/// Where the kernel says nothing.
const DEFAULT_PORTS: (u16, u16) = (32768, 60999);

/// Source and port of each connection: one (source, target) pair after the other, each with all ports of the range.
pub(super) struct Ways {
    pub sources: Vec<Option<IpAddr>>,
    pub targets: Vec<SocketAddr>,
    pub ports: (u16, u16),
    /// Of all ways this process takes this one, and then each `step`-th.
    pub next: u64,
    pub step: u64,
}

impl Ways {
    /// The range that the kernel would choose from.
    pub fn ports() -> (u16, u16) {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        numbers.next().zip(numbers.next()).unwrap_or(DEFAULT_PORTS)
    }

    pub fn pairs(&self) -> u64 {
        (self.sources.len() * self.targets.len()) as u64
    }

    /// The next one; none when all ports of all pairs were used. Without sources of our own the kernel chooses.
    pub fn next(&mut self) -> Option<(Option<SocketAddr>, SocketAddr)> {
        let (pair, round) = (self.next % self.pairs(), self.next / self.pairs());
        self.next += self.step;
        let target = self.targets[pair as usize % self.targets.len()];
        let source = self.sources[pair as usize / self.targets.len()];
        let Some(source) = source else { return Some((None, target)) };
        let port = u64::from(self.ports.0) + round;
        (port <= u64::from(self.ports.1)).then(|| (Some(SocketAddr::new(source, port as u16)), target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Targets;

    #[test]
    fn every_pair_of_source_and_target_uses_all_ports() {
        let source = |n: u8| Some(IpAddr::from([127, 0, 1, n]));
        let targets: Vec<SocketAddr> = ["127.0.0.1-127.0.0.2:25".parse::<Targets>().expect("a range").0].concat();
        // By one process or by several.
        for step in [1, 3, 4] {
            let mut seen = std::collections::HashSet::new();
            for next in 0..step {
                let (sources, targets) = (vec![source(1), source(2)], targets.clone());
                let mut ways = Ways { sources, targets, ports: (100, 102), next, step };
                while let Some((from, to)) = ways.next() {
                    assert!(seen.insert((from.expect("bound"), to)));
                }
            }
            assert_eq!(seen.len(), 2 * 2 * 3, "{step}");
        }
    }
}
