//! Forgetting of addresses, driven by the committer: a search after each checkpoint, a `Forget` record at the end of a
//! batch, applied when that is durable.
//!
//! Ids used outside the store are protected by [`Pin`](super::pins::Pin)s: a holder of ids keeps one until a job that refers to them is
//! in a batch. While a pin exists, its ids are not forgotten. The scheduler is asked about retry clocks of mailboxes.
//!
//! Promise: nothing here holds the hub's lock for a millisecond. No checkpoint begins while a search runs. From 9/10 of
//! `addresses_max` on a checkpoint is requested although none is due; these take at most a twentieth of the time. Below
//! that not every checkpoint is followed by a search: looking at all messages and addresses costs more than the
//! checkpoint itself.

use std::sync::Arc;

use stentor_journal::Batch;
use stentor_queue::event::{Event, encode_forget};
use stentor_queue::ids::{AddressId, DomainId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::{Checkpoint, Sweep, SweepLimits};

use super::Core;
use super::hub::Hub;

/// Pause between checkpoints made because the address book is full: a multiple of the last one's duration, and at least
/// this long.
const PRESSED_PAUSE: Ms = 20;
const PRESSED_PAUSE_MS_MIN: Ms = 1_000;
/// From one search to the next: this part of the time after which addresses are forgotten, and at most so long.
const SEARCH_PART: Ms = 64;
const SEARCH_PAUSE_MS_MAX: Ms = 3_600_000;
/// Empty domains looked at in one turn.
const DOMAINS_MAX: usize = 64;
/// A `Forget` record is smaller: its ids lie near each other.
const RECORD_BYTES_MAX: usize = 8 * 1024;

/// Forgetting in progress; see the module's documentation.
pub struct Forgetting {
    limits: SweepLimits,
    sweep: Option<Sweep>,
    /// In the batch being built.
    ids: IdSet,
    /// Whether empty domains are being looked at, and the last one that was.
    is_walking: bool,
    walked_to: Option<DomainId>,
    /// Whether the book was nearly full at the last turn.
    is_pressed: bool,
    /// When the last checkpoint began, and when its search ended.
    begun_at: Ms,
    ended_at: Ms,
    /// When the last search began.
    searched_at: Option<Ms>,
    /// Checkpoints that the journal has counted as complete.
    complete: u64,
}

impl Forgetting {
    pub fn new(unseen_ms: Ms, addresses_max: usize) -> Forgetting {
        Forgetting {
            limits: SweepLimits { unseen_ms, addresses_max },
            sweep: None,
            ids: IdSet::new(),
            is_walking: false,
            walked_to: None,
            is_pressed: false,
            begun_at: 0,
            ended_at: 0,
            searched_at: None,
            complete: 0,
        }
    }

    /// Whether no checkpoint may begin.
    pub fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Whether a turn is wanted for it.
    pub fn has_work(&self, now: Ms) -> bool {
        self.sweep.is_some() || self.is_walking || self.wants_checkpoint(now)
    }

    /// Whether the address book is nearly full: a checkpoint is wanted soon.
    pub fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// The clock that its times are taken from was set.
    pub fn clock_moved(&mut self, by: i64) {
        for at in [Some(&mut self.begun_at), Some(&mut self.ended_at), self.searched_at.as_mut()].into_iter().flatten()
        {
            *at = at.saturating_add_signed(by);
        }
    }

    /// Whether a checkpoint is wanted although none is due.
    pub fn wants_checkpoint(&self, now: Ms) -> bool {
        let took = self.ended_at.saturating_sub(self.begun_at);
        let pause = (took * PRESSED_PAUSE).max(PRESSED_PAUSE_MS_MIN);
        self.is_pressed && now >= self.ended_at.max(self.begun_at) + pause
    }

    /// The cursor of a checkpoint that begins.
    pub fn checkpoint_begins(&mut self, hub: &mut Hub, now: Ms) -> Checkpoint {
        self.begun_at = now;
        let pause = (self.limits.unseen_ms / SEARCH_PART).min(SEARCH_PAUSE_MS_MAX);
        if self.is_pressed || self.searched_at.is_none_or(|at| now >= at + pause) {
            hub.store.begin_checkpoint()
        } else {
            hub.store.begin_plain_checkpoint()
        }
    }

    /// All slices of the checkpoint are made: what it has marked stays.
    pub fn marked(&mut self, cursor: Checkpoint, now: Ms) {
        self.sweep = cursor.sweep();
        if self.sweep.is_some() {
            self.searched_at = Some(now);
        }
    }

    /// Behind all jobs of the batch: what is to be forgotten with it, if there is room.
    pub fn plan(&mut self, hub: &mut Hub, batch: &mut Batch, batch_bytes_max: usize, now: Ms) {
        self.is_pressed = hub.store.book.len() >= self.limits.high();
        self.forget_domains(hub);
        if batch.bytes() + RECORD_BYTES_MAX > batch_bytes_max {
            return;
        }
        let Some(sweep) = &mut self.sweep else { return };
        hub.pins.refresh();
        let (sched, pins) = (&hub.sched, &hub.pins);
        let is_known = |id: AddressId| pins.ids.contains(id.0) || sched.knows_address(id);
        if !sweep.step(&mut hub.store, &self.limits, now, is_known, &mut self.ids) {
            self.sweep = None;
            self.ended_at = now;
            (self.is_walking, self.walked_to) = (true, None);
        }
        if !self.ids.is_empty() {
            batch.record_with(|buffer| encode_forget(buffer, &self.ids));
        }
    }

    /// The batch is durable. `complete`: checkpoints that the journal has counted as complete.
    pub fn durable(&mut self, core: &Arc<Core>, complete: u64) {
        let is_complete = std::mem::replace(&mut self.complete, complete) != complete;
        if !is_complete && self.ids.is_empty() {
            return;
        }
        let ids = std::mem::take(&mut self.ids);
        core.with(|hub, _| {
            if is_complete {
                hub.store.checkpoint_complete();
            }
            if !ids.is_empty() {
                hub.sched.forget_addresses(&ids);
                hub.apply(Event::Forget { ids });
            }
        });
    }

    /// The batch was refused, and a checkpoint that was under way is given up: nothing of both has happened.
    pub fn refused(&mut self, hub: &mut Hub) {
        self.ids = IdSet::new();
        if self.sweep.is_none() {
            hub.store.end_marking();
        }
    }

    fn forget_domains(&mut self, hub: &mut Hub) {
        if !self.is_walking {
            return;
        }
        let domains = hub.store.book.emptied_domains(self.walked_to, DOMAINS_MAX);
        for domain in &domains {
            if hub.sched.forget_domain(*domain) {
                hub.store.book.forget_domain(*domain);
            }
        }
        self.walked_to = domains.last().copied();
        self.is_walking = self.walked_to.is_some();
    }
}
