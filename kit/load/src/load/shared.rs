//! What the workers of a load share, and what can be seen of it from outside.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use stentor_measure::Stop;

use super::plan::Plan;

/// What can be seen of a load while it runs; some 100 ms old.
#[derive(Default, Debug)]
pub struct Watch {
    /// Messages that were accepted or failed.
    pub done: AtomicU64,
    /// Messages that are due and not begun, of one worker.
    pub backlog: AtomicU64,
}

/// What all workers share.
pub(super) struct Shared<'a> {
    pub plan: &'a Plan,
    pub stop: &'a Stop,
    pub watch: &'a Watch,
    /// The next message's number.
    pub next: AtomicU64,
    pub timeout_ns: u64,
    /// How many workers there are.
    pub threads: usize,
    pub start: Instant,
}

impl Shared<'_> {
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
