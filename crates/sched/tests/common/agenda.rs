//! The agenda of a simulated world: its planned events, and the scheduler's next tick.
//!
//! Events are ordered by time; within a millisecond by when they were planned, after the scheduler's own work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stentor_queue::ids::Ms;
use stentor_sched::Scheduler;

pub struct Agenda<E> {
    /// Times with the numbers of their events; a world that stops early removes some.
    pub times: BinaryHeap<Reverse<(Ms, u64)>>,
    pub events: HashMap<u64, E>,
    planned: u64,
}

pub enum Next<E> {
    /// The scheduler's tick.
    Tick,
    Event(E),
}

impl<E> Agenda<E> {
    pub fn new() -> Agenda<E> {
        Agenda { times: BinaryHeap::new(), events: HashMap::new(), planned: 0 }
    }

    pub fn plan(&mut self, at: Ms, event: E) {
        self.planned += 1;
        self.times.push(Reverse((at, self.planned)));
        self.events.insert(self.planned, event);
    }

    /// Time of the next event, `now` or later.
    pub fn next_at(&self, sched: &Scheduler, now: Ms) -> Option<Ms> {
        let tick = sched.next_tick().map(|at| at.max(now));
        self.times.peek().map(|next| next.0.0).into_iter().chain(tick).min()
    }

    /// The event at that time.
    pub fn take(&mut self, at: Ms, sched: &Scheduler, now: Ms) -> Option<Next<E>> {
        if sched.next_tick().is_some_and(|tick| tick.max(now) == at) {
            return Some(Next::Tick);
        }
        let Reverse((_, number)) = self.times.pop()?;
        self.events.remove(&number).map(Next::Event)
    }
}
