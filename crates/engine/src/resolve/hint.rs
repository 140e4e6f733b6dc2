//! A hint for the log while no domain has resolved since the start: then the name servers are likelier wrong than every
//! domain, and mail bounces for good because of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stentor_queue::site::Resolution;

/// What has come of look-ups since the start.
#[derive(Default)]
pub(super) struct Hint {
    has_resolved: AtomicBool,
    unresolved: AtomicU64,
}

impl Hint {
    /// Domains that did not resolve, if none has.
    pub fn unresolved(&self) -> u64 {
        if self.has_resolved.load(Ordering::Relaxed) { 0 } else { self.unresolved.load(Ordering::Relaxed) }
    }

    /// Takes an outcome; gives the line to log after 1, 10, 100 ... outcomes without a single success.
    pub fn take(&self, resolution: &Resolution, name_servers: &[SocketAddr]) -> Option<String> {
        let text = match resolution {
            Resolution::Site(_) => {
                self.has_resolved.store(true, Ordering::Relaxed);
                return None;
            }
            Resolution::Permanent { text, .. } | Resolution::Temporary { text, .. } => text,
        };
        if self.has_resolved.load(Ordering::Relaxed) {
            return None;
        }
        let count = self.unresolved.fetch_add(1, Ordering::Relaxed) + 1;
        let is_power_of_ten = std::iter::successors(Some(1), |n: &u64| n.checked_mul(10)).any(|n| n == count);
        let servers = name_servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        is_power_of_ten.then(|| {
            format!(
                "no domain has resolved since the start ({count} tried; the last: {text}): if that is wrong, check [dns] servers \
                 ({servers}) and, in a lab, [dns] loopback_allowed"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::select::no_such_domain;
    use super::*;

    #[test]
    fn until_a_domain_resolves_each_power_of_ten_is_told() {
        let (hint, servers) = (Hint::default(), ["127.0.0.1:53".parse().unwrap()]);
        let told: Vec<usize> =
            (1..=100).filter(|n| hint.take(&no_such_domain(&format!("d{n}.example")), &servers).is_some()).collect();
        assert_eq!((told, hint.unresolved()), (vec![1, 10, 100], 100));
        let hint = Hint::default();
        let line = hint.take(&no_such_domain("d.example"), &servers).unwrap();
        assert!(line.contains("1 tried") && line.contains("d.example") && line.contains("127.0.0.1:53"), "{line}");
        hint.has_resolved.store(true, Ordering::Relaxed);
        assert_eq!(hint.unresolved(), 0);
        assert!((0..100).all(|_| hint.take(&no_such_domain("d.example"), &servers).is_none()));
    }
}
