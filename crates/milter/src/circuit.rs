//! Pauses the use of a failing milter, so that not every session waits for it.
//!
//! States: closed (all sessions use it); open until a time (no session does); then one session tries, and the others
//! continue without it until there is an answer or the longest pause has passed.

use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::FailureKind;

/// Consecutive failures after which the circuit opens, if the milter accepts connections.
const FAILURES_MAX: u32 = 3;
/// First and maximum pause: each failure doubles it.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
pub const PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Circuit {
    failures: u32,
    open_until: Option<Instant>,
    last: Option<FailureKind>,
}

impl Circuit {
    /// Whether to use the milter; after a pause, the first caller makes the attempt.
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

    /// Records a failure. Returns the pause that begins, if any.
    pub fn failed(&mut self, failure: FailureKind, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(failure);
        // A refused connection is conclusive immediately.
        let others = if failure == FailureKind::Unreachable {
            self.failures - 1
        } else {
            self.failures.checked_sub(FAILURES_MAX)?
        };
        let pause = PAUSE_FIRST.saturating_mul(1 << others.min(8)).min(PAUSE_MAX);
        self.open_until = Some(now + pause);
        Some(pause)
    }

    /// Records that a connection was established and negotiated.
    pub fn connected(&mut self) {
        if self.last == Some(FailureKind::Unreachable) {
            *self = Circuit::default();
        }
    }

    /// Whether it has failed since its last answer.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// The last kind of failure; a milter that was only probed counts as unreachable.
    pub fn last_failure(&self) -> FailureKind {
        self.last.unwrap_or(FailureKind::Unreachable)
    }

    /// Records an answer for a message.
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
        assert_eq!(circuit.failed(FailureKind::Unreachable, begin), Some(PAUSE_FIRST));
        assert!(!circuit.admits(begin));
        let later = begin + PAUSE_FIRST;
        assert!(circuit.admits(later) && !circuit.admits(later));
        assert_eq!(circuit.failed(FailureKind::Unreachable, later), Some(PAUSE_FIRST * 2));
        assert!(circuit.admits(later + PAUSE_FIRST * 2));
        circuit.connected();
        assert!(circuit.admits(later) && circuit.admits(later));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_open_it_only_in_a_row() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for _ in 0..FAILURES_MAX - 1 {
            assert_eq!(circuit.failed(FailureKind::Timeout, now), None);
        }
        assert!(circuit.admits(now));
        circuit.succeeded();
        for _ in 0..FAILURES_MAX - 1 {
            assert_eq!(circuit.failed(FailureKind::Broken, now), None);
        }
        assert_eq!(circuit.failed(FailureKind::Timeout, now), Some(PAUSE_FIRST));
        circuit.connected();
        assert!(!circuit.admits(now), "it always takes connections");
        let pauses: Vec<_> = (0..40).filter_map(|_| circuit.failed(FailureKind::Timeout, now)).collect();
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
    }
}
