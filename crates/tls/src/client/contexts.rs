//! A bounded table of settings for each host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rustls::ClientConfig;

use crate::verify::{PeerRequirement, Verifier};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub requirement: PeerRequirement,
    pub name: Box<str>,
    pub host: Box<str>,
}

/// Shared state of all sessions with one host.
#[derive(Debug)]
pub(super) struct Context {
    pub config: Arc<ClientConfig>,
    pub verifier: Arc<Verifier>,
    pub made: Instant,
}

#[derive(Debug)]
pub(super) struct Contexts {
    /// Contexts, each with the turn of its last use.
    all: HashMap<Key, (Arc<Context>, u64)>,
    turn: u64,
    max: usize,
}

impl Contexts {
    pub fn new(max: usize) -> Contexts {
        Contexts { all: HashMap::new(), turn: 0, max: max.max(1) }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&mut self, key: &Key, now: Instant, age_max: Duration) -> Option<Arc<Context>> {
        self.turn += 1;
        let (context, used) = self.all.get_mut(key)?;
        if now.duration_since(context.made) >= age_max {
            self.all.remove(key);
            return None;
        }
        *used = self.turn;
        Some(context.clone())
    }

    /// Stores a context. One that another thread stored meanwhile remains valid for its users.
    pub fn put(&mut self, key: Key, context: Arc<Context>) {
        if self.all.len() >= self.max && !self.all.contains_key(&key) {
            self.drop_oldest();
        }
        self.all.insert(key, (context, self.turn));
    }

    /// Drops a quarter at once, so that a full table is not searched for each new host.
    fn drop_oldest(&mut self) {
        let mut turns: Vec<u64> = self.all.values().map(|(_, used)| *used).collect();
        let at = turns.len() / 4;
        let (_, limit, _) = turns.select_nth_unstable(at);
        let limit = *limit;
        self.all.retain(|_, (_, used)| *used > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::client::{ClientSettings, Connector};

    #[test]
    fn the_number_is_bounded_and_those_in_use_stay() {
        let client = Connector::new(ClientSettings { hosts_max: 8, ..ClientSettings::default() });
        let requirement = PeerRequirement::Encrypted { names: Vec::new() };
        let used = client.context(&requirement, "mx.example", "192.0.2.1:25").unwrap();
        for host in 0..100 {
            client.context(&requirement, "mx.example", &format!("198.51.100.{host}:25")).unwrap();
            let again = client.context(&requirement, "mx.example", "192.0.2.1:25").unwrap();
            assert!(Arc::ptr_eq(&used, &again), "after {host}");
            assert!(client.hosts() <= 8);
        }
    }

    #[test]
    fn none_is_used_under_another_requirement_name_or_host_nor_for_ever() {
        let client = Connector::new(ClientSettings::default());
        let any = PeerRequirement::Encrypted { names: vec!["mx.example".into()] };
        let ca = PeerRequirement::Ca { names: vec!["mx.example".into()] };
        let one = client.context(&any, "mx.example", "192.0.2.1:25").unwrap();
        for (requirement, name, host) in [
            (&ca, "mx.example", "192.0.2.1:25"),
            (&any, "example", "192.0.2.1:25"),
            (&any, "mx.example", "192.0.2.1:24"),
        ] {
            let other = client.context(requirement, name, host).unwrap();
            assert!(!Arc::ptr_eq(&one, &other), "{requirement:?} {name} {host}");
        }
        let key = Key { requirement: any, name: "mx.example".into(), host: "192.0.2.1:25".into() };
        let mut contexts = client.contexts.lock();
        assert!(contexts.get(&key, one.made + Duration::from_secs(10), Duration::from_secs(11)).is_some());
        assert!(contexts.get(&key, one.made + Duration::from_secs(11), Duration::from_secs(11)).is_none());
    }
}
