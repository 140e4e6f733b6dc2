//! A milter that fails is left alone for a while, so that not every session waits for it.
//!
//! States: closed (everybody asks); open until a time (nobody asks); then one session tries, and the others go on without until it
//! has an answer or as much time has passed again.

use std::time::Duration;

use stentor_milter::Failure;
use tokio::time::Instant;

/// Failures in a row that open it, of a milter that takes connections.
const FAILURES_MAX: u32 = 3;
/// How long it is open at first, and at most: each failure doubles it.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
pub const PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Circuit {
    failures: u32,
    open_until: Option<Instant>,
    last: Option<Failure>,
}

impl Circuit {
    /// Whether to ask; if it is time for a try, who asks now makes it.
    pub fn admits(&mut self, now: Instant) -> bool {
        match self.open_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                self.open_until = Some(now + PAUSE_MAX);
                true
            }
        }
    }

    /// It failed. Returns how long it is left alone from now on.
    pub fn failed(&mut self, failure: Failure, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(failure);
        // A refused connection is certain at once.
        let others = if failure == Failure::Unreachable {
            self.failures - 1
        } else {
            self.failures.checked_sub(FAILURES_MAX)?
        };
        let pause = PAUSE_FIRST.saturating_mul(1 << others.min(8)).min(PAUSE_MAX);
        self.open_until = Some(now + pause);
        Some(pause)
    }

    /// A connection came about and was negotiated.
    pub fn connected(&mut self) {
        if self.last == Some(Failure::Unreachable) {
            *self = Circuit::default();
        }
    }

    /// It has failed since it answered last.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// How it failed; one that was only probed cannot be reached.
    pub fn last_failure(&self) -> Failure {
        self.last.unwrap_or(Failure::Unreachable)
    }

    /// It has answered for a message.
    pub fn succeeded(&mut self) {
        *self = Circuit::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_session_tries_while_the_others_go_on() {
        let (mut circuit, begin) = (Circuit::default(), Instant::now());
        assert!(circuit.admits(begin));
        assert_eq!(circuit.failed(Failure::Unreachable, begin), Some(PAUSE_FIRST));
        assert!(!circuit.admits(begin));
        let later = begin + PAUSE_FIRST;
        assert!(circuit.admits(later) && !circuit.admits(later));
        assert_eq!(circuit.failed(Failure::Unreachable, later), Some(PAUSE_FIRST * 2));
        assert!(circuit.admits(later + PAUSE_FIRST * 2));
        circuit.connected();
        assert!(circuit.admits(later) && circuit.admits(later));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_open_it_only_in_a_row() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for _ in 0..FAILURES_MAX - 1 {
            assert_eq!(circuit.failed(Failure::Timeout, now), None);
        }
        assert!(circuit.admits(now));
        circuit.succeeded();
        for _ in 0..FAILURES_MAX - 1 {
            assert_eq!(circuit.failed(Failure::Broken, now), None);
        }
        assert_eq!(circuit.failed(Failure::Timeout, now), Some(PAUSE_FIRST));
        circuit.connected();
        assert!(!circuit.admits(now), "it always takes connections");
        let pauses: Vec<_> = (0..40).filter_map(|_| circuit.failed(Failure::Timeout, now)).collect();
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
    }
}
