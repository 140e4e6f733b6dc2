//! Tracks how far a connection is from a session, for operators: whether the host has greeted.
//!
//! Promise: the scheduler is only notified if a host takes longer than [`TOLD_AFTER_MS`]; other hosts cost nothing.

use stentor_queue::ids::Ms;
use stentor_sched::SessionStep;

/// Healthy hosts have greeted by then.
const TOLD_AFTER_MS: Ms = 500;

pub struct ConnectProgress {
    reach: SessionStep,
    since: Ms,
    is_told: bool,
}

impl ConnectProgress {
    /// Begins when the host has accepted the connection.
    pub fn begin(now: Ms) -> ConnectProgress {
        ConnectProgress { reach: SessionStep::Greeting, since: now, is_told: false }
    }

    /// Notes how many replies the host has sent.
    pub fn see(&mut self, replies: u64, now: Ms) {
        if replies > 0 && self.reach == SessionStep::Greeting {
            *self = ConnectProgress { reach: SessionStep::Hello, since: now, is_told: false };
        }
    }

    /// Returns when the scheduler must be notified.
    pub fn due(&self) -> Ms {
        if self.is_told { Ms::MAX } else { self.since + TOLD_AFTER_MS }
    }

    /// Returns the state to report now, and how long it has lasted.
    pub fn tell(&mut self, now: Ms) -> Option<(SessionStep, Ms)> {
        let is_due = now >= self.due();
        self.is_told |= is_due;
        is_due.then(|| (self.reach, now.saturating_sub(self.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_hosts_are_reported_once_for_each_step() {
        let mut way = ConnectProgress::begin(1_000);
        assert_eq!((way.tell(1_499), way.due()), (None, 1_500));
        assert_eq!(way.tell(1_600), Some((SessionStep::Greeting, 600)));
        assert_eq!((way.tell(9_000), way.due()), (None, Ms::MAX));
        way.see(0, 9_000);
        assert_eq!(way.due(), Ms::MAX);
        way.see(1, 9_000);
        way.see(1, 9_400);
        assert_eq!(way.tell(9_500), Some((SessionStep::Hello, 500)));
    }
}
