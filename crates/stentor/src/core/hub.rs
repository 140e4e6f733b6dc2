//! Queue and scheduler together, with the outcomes that are not yet synced.
//!
//! An outcome changes the store at once and its record rides with the next batch. Should that batch fail, the records
//! are kept for the one after it: an outcome is never lost, at worst repeated by a crash, and how many can be is capped
//! (`completions_max`): at the cap no new transaction starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use smallvec::SmallVec;
use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{ConnId, DomainId, MessageId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::sched::{Effect, Failure, Scheduler, Work};
use stentor_queue::site::Target;
use stentor_queue::store::{Applied, Store};
use tokio::sync::Notify;

use super::bodies::Bodies;

/// Recipients handed out plus outcomes not yet synced: what a crash can repeat.
pub const COMPLETIONS_MAX: usize = 50_000;

/// How a connection's task is told that there is something to do.
#[derive(Default)]
pub struct Signal {
    notify: Notify,
    close: AtomicBool,
}

impl Signal {
    pub fn wake(&self) {
        self.notify.notify_one();
    }

    pub fn close(&self) {
        self.close.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub async fn signalled(&self) {
        self.notify.notified().await;
    }

    pub fn must_close(&self) -> bool {
        self.close.load(Ordering::Acquire)
    }
}

/// An effect of the scheduler, with what the shell needs to carry it out.
pub enum Act {
    Resolve { domain: DomainId, name: String },
    Connect { conn: ConnId, target: Target, signal: Arc<Signal> },
    Wake(Arc<Signal>),
    Close(Arc<Signal>),
    Bounce { no: MessageNo, failures: Vec<Failure> },
}

/// What else the holder of the lock has to do after it is released.
pub struct FollowUp {
    pub tick: bool,
    pub completions: bool,
}

/// Encoded outcomes, one after the other with their lengths, so that the committer copies them as they are.
#[derive(Default)]
pub struct Outcomes {
    pub bytes: Vec<u8>,
    pub ends: Vec<u32>,
    pub recipients: usize,
}

impl Outcomes {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let record = &self.bytes[start..*end as usize];
            start = *end as usize;
            record
        })
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.recipients = 0;
    }
}

pub struct Hub {
    pub store: Store,
    pub sched: Scheduler,
    pub bodies: Bodies,
    /// Waiting for a batch.
    pub outcomes: Outcomes,
    /// In the batch that is being written: they count as unsynced.
    pub syncing_recipients: usize,
    handed_out: usize,
    starved: Vec<ConnId>,
    signals: HashMap<ConnId, Arc<Signal>, foldhash::fast::FixedState>,
    /// When the ticker will wake.
    tick_at: Option<Ms>,
    completions_announced: bool,
    /// Messages that ended under this hold of the lock.
    finished: Vec<MessageNo>,
    /// Contents that nothing refers to any more, for the committer to drop.
    pub unreferenced: Vec<u64>,
}

impl Hub {
    pub fn new(store: Store, sched: Scheduler, bodies_bytes_max: usize) -> Hub {
        Hub {
            store,
            sched,
            bodies: Bodies::new(bodies_bytes_max),
            outcomes: Outcomes::default(),
            syncing_recipients: 0,
            handed_out: 0,
            starved: Vec::new(),
            signals: HashMap::default(),
            tick_at: None,
            completions_announced: false,
            finished: Vec::new(),
            unreferenced: Vec::new(),
        }
    }

    /// Turns the scheduler's effects into acts, and says what else is due.
    pub fn settle(&mut self, acts: &mut SmallVec<[Act; 8]>) -> FollowUp {
        for no in self.finished.drain(..) {
            self.sched.finished(no);
        }
        for effect in self.sched.effects() {
            match effect {
                Effect::Resolve { domain } => {
                    acts.push(Act::Resolve { domain, name: self.store.book.domain_name(domain).to_owned() });
                }
                Effect::Connect { conn, target, .. } => {
                    let signal = Arc::new(Signal::default());
                    self.signals.insert(conn, signal.clone());
                    acts.push(Act::Connect { conn, target, signal });
                }
                Effect::Work { conn } => acts.extend(self.signals.get(&conn).cloned().map(Act::Wake)),
                Effect::Close { conn } => acts.extend(self.signals.get(&conn).cloned().map(Act::Close)),
                Effect::Bounce { no, failures } => acts.push(Act::Bounce { no, failures }),
            }
        }
        let next = self.sched.next_tick();
        let tick = next.is_some_and(|next| self.tick_at.is_none_or(|at| next < at));
        if tick {
            self.tick_at = next;
        }
        let completions = !self.outcomes.is_empty() && !std::mem::replace(&mut self.completions_announced, true);
        FollowUp { tick, completions }
    }

    /// When the scheduler wants to be called again; remembered, so that [`Hub::settle`] wakes the ticker only for what
    /// is earlier.
    pub fn next_tick(&mut self) -> Option<Ms> {
        self.tick_at = self.sched.next_tick();
        self.tick_at
    }

    /// The next transaction for a connection, unless as much is unsynced as a crash may repeat.
    pub fn take_work(&mut self, conn: ConnId, now: Ms) -> Option<Work> {
        if self.handed_out + self.outcomes.recipients + self.syncing_recipients >= COMPLETIONS_MAX {
            self.starved.push(conn);
            return None;
        }
        let work = self.sched.take_work(&self.store, conn, now)?;
        self.handed_out += work.ids.len();
        Some(work)
    }

    /// As many recipients as a transaction had are no longer handed out.
    pub fn handed_back(&mut self, recipients: usize) {
        self.handed_out -= recipients;
    }

    /// Records what became of recipients: in the store now, in the journal with the next batch.
    pub fn outcome(&mut self, no: MessageNo, fate: Fate, ids: &IdSet, now: Ms) {
        let applied = self.store.settle(no, fate, ids, None, now, &mut self.outcomes.bytes);
        let (Applied::Settled { recipients, .. } | Applied::Finished { recipients, .. }) = applied else { return };
        self.outcomes.ends.push(self.outcomes.bytes.len() as u32);
        self.outcomes.recipients += recipients as usize;
        self.ended(applied);
    }

    /// Applies an event to the store and forgets what ended with it.
    pub fn apply(&mut self, event: Event<'_>) -> Applied {
        let applied = self.store.apply(event);
        self.ended(applied);
        applied
    }

    /// Recipients that an operator took out, durably: reserved until now.
    pub fn taken_out(&mut self, message: MessageId, fate: Fate, ids: IdSet, by: &str, now: Ms) {
        let Some(no) = self.store.no_of(message) else { return };
        self.apply(Event::Outcome { message, fate, ids: ids.clone(), by: Some(by), at: now });
        self.sched.removed(&self.store, no, &ids, now);
    }

    fn ended(&mut self, applied: Applied) {
        if let Applied::Finished { no, content, unreferenced, .. } = applied {
            // Said to the scheduler when it has heard of the transaction that ended it.
            self.finished.push(no);
            if unreferenced {
                self.bodies.forget(content);
                self.unreferenced.push(content.0);
            }
        }
    }

    /// The committer has taken the outcomes: the next one is announced anew.
    pub fn take_outcomes(&mut self, into: &mut Outcomes) {
        std::mem::swap(&mut self.outcomes, into);
        self.completions_announced = false;
        self.syncing_recipients = into.recipients;
    }

    /// What was taken is durable: connections that waited for it go on.
    pub fn outcomes_synced(&mut self) {
        self.syncing_recipients = 0;
        for conn in self.starved.drain(..) {
            if let Some(signal) = self.signals.get(&conn) {
                signal.wake();
            }
        }
    }

    /// What was taken could not be written: it goes before what came since.
    pub fn outcomes_refused(&mut self, taken: &mut Outcomes) {
        let since = std::mem::take(&mut self.outcomes);
        std::mem::swap(&mut self.outcomes, taken);
        let offset = self.outcomes.bytes.len() as u32;
        self.outcomes.bytes.extend_from_slice(&since.bytes);
        self.outcomes.ends.extend(since.ends.iter().map(|end| end + offset));
        self.outcomes.recipients += since.recipients;
        self.syncing_recipients = 0;
    }

    pub fn connection_gone(&mut self, conn: ConnId) {
        self.signals.remove(&conn);
    }

    pub fn connections(&self) -> usize {
        self.signals.len()
    }
}
