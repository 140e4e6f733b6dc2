//! Forgets unused addresses, driven by the committer: a search after each checkpoint, a `Forget` record at the end of a
//! batch, applied once that is durable.
//!
//! Ids used outside the store are protected by [`Pin`](super::pins::Pin)s: a holder keeps one until a job that refers
//! to the ids is in a batch. While a pin exists, its ids are not forgotten. The scheduler is asked about retry clocks
//! of mailboxes.
//!
//! Promise: the hub's lock is held for under a millisecond. No checkpoint begins while a search runs. When 9/10 of
//! `addresses_max` are in use, checkpoints are requested although none is due; these take at most a twentieth of the
//! time. Below that, not every checkpoint is followed by a search: looking at all messages and addresses costs more
//! than the checkpoint itself.

use std::sync::Arc;

use stentor_journal::Batch;
use stentor_queue::event::{Event, encode_forget};
use stentor_queue::ids::{AddressId, DomainId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::{Checkpoint, Sweep, SweepLimits};

use super::Core;
use super::hub::Hub;

/// Minimum pause between checkpoints made because the address book is nearly full: this multiple of the last one's
/// duration, and at least [`PRESSED_PAUSE_MS_MIN`].
const PRESSED_PAUSE: Ms = 20;
const PRESSED_PAUSE_MS_MIN: Ms = 1_000;
/// Interval between searches: `unseen_ms` divided by this, at most [`SEARCH_PAUSE_MS_MAX`].
const SEARCH_PART: Ms = 64;
const SEARCH_PAUSE_MS_MAX: Ms = 3_600_000;
/// Empty domains examined per turn.
const DOMAINS_MAX: usize = 64;
/// Upper bound of a `Forget` record: its ids lie close together.
const RECORD_BYTES_MAX: usize = 8 * 1024;

/// State of forgetting; see the module documentation.
pub struct Forgetter {
    limits: SweepLimits,
    sweep: Option<Sweep>,
    /// Ids forgotten by the batch being built.
    ids: IdSet,
    /// Whether empty domains are being examined, and the last one examined.
    is_walking: bool,
    walked_to: Option<DomainId>,
    /// Whether the address book was nearly full at the last turn.
    is_pressed: bool,
    /// When the last checkpoint began, and when its search ended.
    begun_at: Ms,
    ended_at: Ms,
    /// When the last search began.
    searched_at: Option<Ms>,
    /// Checkpoints that the journal has completed.
    complete: u64,
}

impl Forgetter {
    pub fn new(unseen_ms: Ms, addresses_max: usize) -> Forgetter {
        Forgetter {
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

    /// Whether a search is running, so that no checkpoint may begin.
    pub fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Whether it needs a turn.
    pub fn has_work(&self, now: Ms) -> bool {
        self.sweep.is_some() || self.is_walking || self.wants_checkpoint(now)
    }

    /// Whether the address book is nearly full, so that a checkpoint is wanted soon.
    pub fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// Shifts its times after the clock was set.
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

    /// Begins a checkpoint and returns its cursor.
    pub fn checkpoint_begins(&mut self, hub: &mut Hub, now: Ms) -> Checkpoint {
        self.begun_at = now;
        let pause = (self.limits.unseen_ms / SEARCH_PART).min(SEARCH_PAUSE_MS_MAX);
        if self.is_pressed || self.searched_at.is_none_or(|at| now >= at + pause) {
            hub.store.begin_checkpoint()
        } else {
            hub.store.begin_plain_checkpoint()
        }
    }

    /// Starts the search, after all slices of the checkpoint are made. Addresses marked by the checkpoint are kept.
    pub fn marked(&mut self, cursor: Checkpoint, now: Ms) {
        self.sweep = cursor.sweep();
        if self.sweep.is_some() {
            self.searched_at = Some(now);
        }
    }

    /// Adds the ids to forget to the batch, after all its jobs, if there is room.
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

    /// Applies the forgetting of a durable batch. `complete`: checkpoints that the journal has completed.
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

    /// Undoes the batch's forgetting and a running checkpoint after the batch was refused.
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
