//! Hints for the log and `doctor` if the name servers are probably at fault: no query has been answered since the
//! start (timeouts or refusals by all servers, reported at the first one), or no domain has resolved, so that mail
//! may bounce permanently.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hickory_resolver::net::NetError;
use stentor_queue::site::Resolution;

/// Results of lookups since the start.
#[derive(Default)]
pub(super) struct Hint {
    has_answered: AtomicBool,
    unanswered: AtomicU64,
    has_resolved: AtomicBool,
    unresolved: AtomicU64,
}

impl Hint {
    /// Number of domains that did not resolve, if none has resolved.
    pub fn unresolved(&self) -> u64 {
        if self.has_resolved.load(Ordering::Relaxed) { 0 } else { self.unresolved.load(Ordering::Relaxed) }
    }

    /// Number of queries without an answer, if none has been answered.
    pub fn unanswered(&self) -> u64 {
        if self.has_answered.load(Ordering::Relaxed) { 0 } else { self.unanswered.load(Ordering::Relaxed) }
    }

    /// Records the result of a query: an answer of any kind, or (`Some`) the reason why there was none. Returns the
    /// line to log after 1, 10, 100 ... queries without a single answer.
    pub fn take_answer(&self, failure: Option<&NetError>, name_servers: &[SocketAddr]) -> Option<String> {
        let Some(failure) = failure else {
            self.has_answered.store(true, Ordering::Relaxed);
            return None;
        };
        if self.has_answered.load(Ordering::Relaxed) {
            return None;
        }
        let count = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        is_power_of_ten(count).then(|| {
            format!(
                "no name server has answered since the server started ({count} tried; last: {failure}): check [dns] \
                 servers ({})",
                named(name_servers)
            )
        })
    }

    /// Records that the name of a domain or of a route's host was found.
    pub fn resolved(&self) {
        self.has_resolved.store(true, Ordering::Relaxed);
    }

    /// Records a resolution; returns the line to log after 10, 100 ... of them without a single success, since one
    /// name may well not exist.
    pub fn take(&self, resolution: &Resolution, name_servers: &[SocketAddr]) -> Option<String> {
        let text = match resolution {
            Resolution::Site(_) => {
                self.resolved();
                return None;
            }
            Resolution::Permanent { text, .. } | Resolution::Temporary { text, .. } => text,
        };
        if self.has_resolved.load(Ordering::Relaxed) {
            return None;
        }
        let count = self.unresolved.fetch_add(1, Ordering::Relaxed) + 1;
        if self.unanswered() > 0 {
            return None; // reported already, and better
        }
        (count > 1 && is_power_of_ten(count)).then(|| {
            format!(
                "no domain has resolved since the server started ({count} tried; last: {text}): if that is wrong, \
                 check [dns] servers ({}) and, in a lab, [dns] loopback_allowed",
                named(name_servers)
            )
        })
    }
}

fn named(name_servers: &[SocketAddr]) -> String {
    name_servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn is_power_of_ten(count: u64) -> bool {
    std::iter::successors(Some(1), |n: &u64| n.checked_mul(10)).any(|n| n == count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::no_such_domain;

    #[test]
    fn the_first_question_without_an_answer_is_told() {
        let (hint, servers) = (Hint::default(), ["127.0.0.1:53".parse().unwrap()]);
        let line = hint.take_answer(Some(&NetError::Timeout), &servers).unwrap();
        assert!(line.contains("request timed out") && line.contains("127.0.0.1:53"), "{line}");
        assert!(hint.take_answer(Some(&NetError::Timeout), &servers).is_none());
        assert_eq!(hint.unanswered(), 2);
        assert!(hint.take_answer(None, &servers).is_none());
        assert!(hint.take_answer(Some(&NetError::Timeout), &servers).is_none() && hint.unanswered() == 0);
    }

    #[test]
    fn until_a_domain_resolves_each_power_of_ten_from_ten_on_is_told() {
        let (hint, servers) = (Hint::default(), ["127.0.0.1:53".parse().unwrap()]);
        let reported: Vec<usize> =
            (1..=100).filter(|n| hint.take(&no_such_domain(&format!("d{n}.example")), &servers).is_some()).collect();
        assert_eq!((reported, hint.unresolved()), (vec![10, 100], 100));
        let hint = Hint::default();
        let lines: Vec<String> = (0..10).filter_map(|_| hint.take(&no_such_domain("d.example"), &servers)).collect();
        let line = lines.last().expect("the tenth");
        assert!(line.contains("10 tried") && line.contains("d.example") && line.contains("127.0.0.1:53"), "{line}");
        hint.has_resolved.store(true, Ordering::Relaxed);
        assert_eq!(hint.unresolved(), 0);
        assert!((0..100).all(|_| hint.take(&no_such_domain("d.example"), &servers).is_none()));
    }
}
