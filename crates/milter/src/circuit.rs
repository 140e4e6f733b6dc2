//! Pauses the use of a failing milter, so that not every session waits for it.
//!
//! Promise: no client can make others skip a milter. There is a circuit for trusted clients and one for
//! untrusted ones, and neither affects the other. A connection that a milter drops during a client's message is
//! evidence about that message first, since clients choose what it contains. So a circuit opens only
//! - at once, if connecting or negotiating fails, when the milter has received nothing from a client, or
//! - after [`FAILURES_MAX`] failures without a decision on a message between them, if at least two clients had them
//!   since the last pause began or ended.
//!
//! So the first connection finds a milter that is down, and mail of two clients one that fails on all mail. If all mail
//! comes from one client, sessions keep trying, each for at most its timeout.
//!
//! States: closed (all sessions use it); open until a time (no session does); then in trial.
//! - If the milter could not be reached, one session tries to connect, which no client can prolong.
//! - Otherwise one session of each client may try, so that a client that never ends a message cannot keep the milter
//!   from others. A trial ends with its transaction, and counts for [`PAUSE_MAX`] at most. If it fails, its client's
//!   sessions skip the milter for [`PAUSE_MAX`].
//! - The circuit closes as soon as a connection is negotiated. After a timeout during a message it closes only when the
//!   milter decides on a message: one that hangs there usually still negotiates, and would delay all sessions again.
//!   Sessions that fail without waiting need no such protection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::MilterFailure;
use crate::protocol::FailureKind;

/// Failures during messages after which the circuit opens, if the milter accepts connections.
const FAILURES_MAX: u32 = 3;
/// First and maximum pause: each one doubles it.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
pub const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Maximum clients in trial at a time.
const TRIALS_MAX: usize = 1_000;

/// A client, as circuits see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitClient {
    /// The address under which it is counted.
    pub address: IpAddr,
    pub is_trusted: bool,
}

/// Whether a session may use the milter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MilterAccess {
    Admitted,
    /// As the trial of its client, since this time.
    Trial(Instant),
    Refused,
}

/// Clients whose messages failed since the last pause began or ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FailedClients {
    #[default]
    None,
    One(IpAddr),
    Several,
}

impl FailedClients {
    fn add(&mut self, client: IpAddr) {
        *self = match *self {
            FailedClients::None => FailedClients::One(client),
            FailedClients::One(first) if first == client => return,
            _ => FailedClients::Several,
        };
    }
}

/// The circuit of trusted or of untrusted clients; see the module documentation.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Failures since its last decision on a message.
    failures: u32,
    /// Pauses since its last decision on a message.
    pauses: u32,
    clients: FailedClients,
    /// End of the pause, which is followed by trials.
    open_until: Option<Instant>,
    /// Clients with a session in trial, or whose trial failed, since when.
    trials: HashMap<IpAddr, Instant>,
    last: Option<FailureKind>,
    /// Whether the last failure was to connect or negotiate.
    is_unreachable: bool,
    /// Whether an answer during a message timed out since its last decision on one.
    has_hung: bool,
}

impl Circuit {
    /// Whether a client's session may use the milter.
    pub fn admits(&mut self, client: IpAddr, now: Instant) -> MilterAccess {
        match self.open_until {
            None => return MilterAccess::Admitted,
            Some(until) if now < until => return MilterAccess::Refused,
            Some(_) => {}
        }
        let is_current = |since: &Instant| now.saturating_duration_since(*since) < PAUSE_MAX;
        if self.trials.get(&client).is_some_and(is_current) {
            return MilterAccess::Refused;
        }
        let trials_max = if self.is_unreachable { 1 } else { TRIALS_MAX };
        if self.trials.len() >= trials_max {
            self.trials.retain(|_, since| is_current(since));
            if self.trials.len() >= trials_max {
                return MilterAccess::Refused;
            }
        }
        self.trials.insert(client, now);
        MilterAccess::Trial(now)
    }

    /// Ends a client's trial that began at `since`, without a result.
    pub fn give_back(&mut self, client: IpAddr, since: Instant) {
        if self.trials.get(&client) == Some(&since) {
            self.trials.remove(&client);
        }
    }

    /// Records a failure. Returns the pause that begins, if any.
    pub fn failed(&mut self, client: IpAddr, failed: &MilterFailure, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        // A session from before the pause shows nothing new.
        if self.open_until.is_some_and(|until| now < until) {
            return None;
        }
        (self.last, self.is_unreachable) = (Some(failed.failure), failed.is_before_client);
        if !failed.is_before_client {
            self.has_hung |= failed.failure == FailureKind::Timeout;
            self.clients.add(client);
            if self.failures < FAILURES_MAX || self.clients != FailedClients::Several {
                // In trial, its client does not try again at once.
                if let Some(since) = self.trials.get_mut(&client) {
                    *since = now;
                }
                return None;
            }
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << self.pauses.min(8)).min(PAUSE_MAX);
        self.pauses = self.pauses.saturating_add(1);
        self.clients = FailedClients::None;
        self.trials.clear();
        self.open_until = Some(now + pause);
        Some(pause)
    }

    /// Records that a connection was negotiated.
    pub fn connected(&mut self) {
        if self.open_until.is_none() {
            return;
        }
        let was_unreachable = std::mem::take(&mut self.is_unreachable);
        if self.has_hung {
            return;
        }
        if was_unreachable {
            *self = Circuit::default();
        } else {
            // The failures stay: the next pause is longer, unless it decides on a message before.
            (self.open_until, self.clients) = (None, FailedClients::None);
            self.trials.clear();
        }
    }

    /// Whether it has failed since its last decision on a message.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether no session uses it, or only trials do.
    pub fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    /// The last kind of failure, if there was one.
    pub fn last_failure(&self) -> Option<FailureKind> {
        self.last
    }

    /// Records a decision on a message.
    pub fn succeeded(&mut self) {
        *self = Circuit::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn during_message(failure: FailureKind) -> MilterFailure {
        MilterFailure { failure, why: String::new(), is_untried: false, is_before_client: false, is_closed: false }
    }

    fn no_connection() -> MilterFailure {
        MilterFailure {
            failure: FailureKind::Unreachable,
            why: String::new(),
            is_untried: false,
            is_before_client: true,
            is_closed: false,
        }
    }

    /// Opens it by failures of clients 1 and 2; returns when the pause has ended.
    fn opened(circuit: &mut Circuit, failure: FailureKind, now: Instant) -> Instant {
        for n in [1, 1] {
            assert_eq!(circuit.failed(client(n), &during_message(failure), now), None);
        }
        assert_eq!(circuit.failed(client(2), &during_message(failure), now), Some(PAUSE_FIRST));
        assert_eq!(circuit.admits(client(3), now), MilterAccess::Refused);
        now + PAUSE_FIRST
    }

    #[tokio::test(start_paused = true)]
    async fn one_session_tries_to_connect_while_the_others_go_on() {
        let (mut circuit, begin) = (Circuit::default(), Instant::now());
        assert_eq!(circuit.admits(client(1), begin), MilterAccess::Admitted);
        assert_eq!(circuit.failed(client(1), &no_connection(), begin), Some(PAUSE_FIRST));
        assert_eq!(circuit.admits(client(1), begin), MilterAccess::Refused);
        let later = begin + PAUSE_FIRST;
        assert_eq!(circuit.admits(client(1), later), MilterAccess::Trial(later));
        assert_eq!(circuit.admits(client(2), later), MilterAccess::Refused);
        assert_eq!(circuit.failed(client(1), &no_connection(), later), Some(PAUSE_FIRST * 2));
        let later = later + PAUSE_FIRST * 2;
        assert_eq!(circuit.admits(client(2), later), MilterAccess::Trial(later));
        circuit.connected();
        assert_eq!(circuit.admits(client(1), later), MilterAccess::Admitted);
        let (mut now, mut last) = (later, PAUSE_FIRST);
        for n in 0..40 {
            last = circuit.failed(client(1), &no_connection(), now).expect("a pause");
            assert_eq!(last, PAUSE_FIRST.saturating_mul(1 << n.min(8)).min(PAUSE_MAX));
            // Sessions that were connecting meanwhile do not lengthen it.
            assert_eq!(circuit.failed(client(2), &no_connection(), now), None);
            now += last;
        }
        assert_eq!(last, PAUSE_MAX);
    }

    /// Whatever it sends, a client affects only itself.
    #[tokio::test(start_paused = true)]
    async fn failures_of_one_client_never_open_it() {
        for failure in [FailureKind::Broken, FailureKind::Timeout] {
            let (mut circuit, mut now) = (Circuit::default(), Instant::now());
            for _ in 0..1_000 {
                assert_eq!(circuit.failed(client(1), &during_message(failure), now), None);
                circuit.connected();
                assert_eq!(circuit.admits(client(2), now), MilterAccess::Admitted);
            }
            // Nor do they prolong a pause that others began, too.
            assert_eq!(circuit.failed(client(2), &during_message(failure), now), Some(PAUSE_FIRST));
            now += PAUSE_FIRST;
            for n in 0..100 {
                assert!(matches!(circuit.admits(client(100 + n), now), MilterAccess::Trial(_)));
                assert_eq!(circuit.failed(client(1), &during_message(failure), now), None);
            }
            circuit.succeeded();
            assert_eq!(circuit.admits(client(1), now), MilterAccess::Admitted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_two_clients_open_it_only_in_a_row() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for n in 1..=2 {
            assert_eq!(circuit.failed(client(n), &during_message(FailureKind::Broken), now), None);
        }
        circuit.succeeded();
        let later = opened(&mut circuit, FailureKind::Broken, now);
        // It negotiates again: all are admitted, and only failures of two clients begin the next pause, a longer one.
        assert_eq!(circuit.admits(client(3), later), MilterAccess::Trial(later));
        circuit.connected();
        assert_eq!(circuit.admits(client(4), later), MilterAccess::Admitted);
        assert_eq!(circuit.failed(client(1), &during_message(FailureKind::Broken), later), None);
        assert_eq!(circuit.failed(client(1), &during_message(FailureKind::Broken), later), None);
        assert_eq!(circuit.failed(client(2), &during_message(FailureKind::Broken), later), Some(PAUSE_FIRST * 2));
        circuit.succeeded();
        assert!(!circuit.is_failing() && !circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_milter_that_hung_must_decide_on_a_message() {
        let (mut circuit, begin) = (Circuit::default(), Instant::now());
        let now = opened(&mut circuit, FailureKind::Timeout, begin);
        circuit.connected();
        assert_eq!(circuit.admits(client(1), now), MilterAccess::Trial(now));
        assert_eq!(circuit.admits(client(1), now), MilterAccess::Refused, "one session of each client");
        assert_eq!(circuit.admits(client(2), now), MilterAccess::Trial(now));
        // A trial that fails keeps its own client away, and nobody else.
        assert_eq!(circuit.failed(client(1), &during_message(FailureKind::Timeout), now), None);
        circuit.give_back(client(1), begin);
        let soon = now + PAUSE_MAX / 2;
        assert_eq!(circuit.admits(client(1), soon), MilterAccess::Refused);
        assert_eq!(circuit.admits(client(3), soon), MilterAccess::Trial(soon));
        assert_eq!(circuit.admits(client(1), now + PAUSE_MAX), MilterAccess::Trial(now + PAUSE_MAX));
        // It fails for another, too.
        let pause = circuit.failed(client(3), &during_message(FailureKind::Timeout), soon);
        assert_eq!(pause, Some(PAUSE_FIRST * 2));
        circuit.succeeded();
        assert_eq!(circuit.admits(client(1), soon), MilterAccess::Admitted);
    }

    #[tokio::test(start_paused = true)]
    async fn trials_that_end_without_a_result_postpone_nothing() {
        for failure in [FailureKind::Broken, FailureKind::Timeout] {
            let mut circuit = Circuit::default();
            let now = opened(&mut circuit, failure, Instant::now());
            for _ in 0..100 {
                let MilterAccess::Trial(since) = circuit.admits(client(1), now) else { panic!("its slot is free") };
                circuit.give_back(client(1), since);
            }
            // Nor does a client that holds its slot.
            assert_eq!(circuit.admits(client(1), now), MilterAccess::Trial(now));
            assert_eq!(circuit.admits(client(9), now), MilterAccess::Trial(now));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn trials_are_limited() {
        let mut circuit = Circuit::default();
        let now = opened(&mut circuit, FailureKind::Timeout, Instant::now());
        let address = |n: usize| IpAddr::from(u32::try_from(n).expect("small").to_be_bytes());
        for n in 0..TRIALS_MAX {
            assert_eq!(circuit.admits(address(n), now), MilterAccess::Trial(now));
        }
        assert_eq!(circuit.admits(address(TRIALS_MAX), now), MilterAccess::Refused);
        assert!(matches!(circuit.admits(address(TRIALS_MAX), now + PAUSE_MAX), MilterAccess::Trial(_)));
        assert!(circuit.trials.len() <= TRIALS_MAX);
    }
}
