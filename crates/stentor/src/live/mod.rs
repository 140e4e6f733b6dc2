//! What happens now, counted as it happens: for `realstat`, metrics and the console.
//!
//! Promise: an event costs a few atomic additions, no lock of the hub's, no allocation; whoever watches pays for the
//! watching.

use std::sync::atomic::{AtomicU64, Ordering};

use stentor_queue::event::Accept;
use stentor_queue::ids::Ms;
use stentor_queue::sched::{Failure, RcptOutcome, Stage};
use stentor_queue::site::Target;

use crate::delivery::Assignment;

#[derive(Default)]
pub struct Live {
    /// Messages taken over.
    pub accepted: AtomicU64,
    /// Recipients delivered.
    pub delivered: AtomicU64,
    /// Recipients of attempts that did not deliver them, and sessions that did not come about.
    pub failed: AtomicU64,
    /// Recipients given up: bounced or expired.
    pub given_up: AtomicU64,
}

impl Live {
    /// A message became durable.
    pub fn accepted(&self, _accept: &Accept) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction ended.
    pub fn attempt(&self, _now: Ms, _assignment: &Assignment, outcomes: &[RcptOutcome], _target: &Target) {
        let delivered = outcomes.iter().filter(|o| o.stage == Stage::Final && (200..300).contains(&o.code)).count();
        self.delivered.fetch_add(delivered as u64, Ordering::Relaxed);
        self.failed.fetch_add((outcomes.len() - delivered) as u64, Ordering::Relaxed);
    }

    /// No session came about.
    pub fn connect_failed(&self, _now: Ms, _target: &Target) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Recipients whose attempts are over.
    pub fn given_up(&self, _now: Ms, failures: &[Failure]) {
        self.given_up.fetch_add(failures.len() as u64, Ordering::Relaxed);
    }
}
