//! Sweeps: find addresses that are no longer needed, a slice at a time, after a checkpoint.
//!
//! Marks: the checkpoint's cursor has noted the addresses that lists and messages refer to; the store notes those that
//! events refer to since its beginning ([`Store::refer`]). An address with neither mark that the owner does not need
//! otherwise is forgotten if it was not seen for `unseen_ms`. When the book holds 9/10 of `addresses_max`, those unseen
//! for the longest time go as well, until it holds 8/10: the ages are counted first.
//!
//! Promise: one [`Sweep::step`] looks at [`LOOK_IDS_MAX`] ids or moves [`MOVE_TEXTS_MAX`] texts: well under a
//! millisecond. It changes no durable state: the ids that it returns go into a `Forget` record at the end of the batch
//! whose other events have been passed to [`Store::refer`], and are applied once that is durable. If the batch is
//! refused, the next sweep finds them again.

use super::Store;
use crate::book::slot;
use crate::ids::{AddressId, Ms};
use crate::idset::IdSet;

/// Largest number of ids in one `Forget` record: applying it takes about a third of a millisecond.
pub const FORGET_IDS_MAX: usize = 1_024;
/// Number of ids that one step examines.
const LOOK_IDS_MAX: u32 = 8_192;
/// Number of texts that one step examines.
const MOVE_TEXTS_MAX: usize = 1_024;
/// Number of distinct ages, in slots; older addresses all count as the oldest.
const AGES: usize = 512;

/// Limits that decide when an address is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SweepLimits {
    pub unseen_ms: Ms,
    pub addresses_max: usize,
}

impl SweepLimits {
    /// From this number of addresses on, forgetting does not wait for `unseen_ms`.
    pub fn high(&self) -> usize {
        self.addresses_max - self.addresses_max / 10
    }

    fn low(&self) -> usize {
        self.addresses_max - self.addresses_max / 5
    }
}

#[derive(Debug)]
enum Stage {
    Begin,
    /// Counts the ages of forgettable addresses; the next id.
    Ages {
        next: u32,
        ages: Box<[u32; AGES]>,
    },
    Forget(SweepRule),
    Move,
    Done,
}

/// Rule for the addresses to forget.
#[derive(Clone, Copy, Debug)]
struct SweepRule {
    /// The next id.
    next: u32,
    /// Addresses last seen in this slot or before it are forgotten.
    cutoff: u16,
    /// Addresses of a higher age are forgotten, and `of_that_age` of this age.
    age: usize,
    of_that_age: usize,
}

/// A sweep; see the module's head.
#[derive(Debug)]
pub struct Sweep {
    marked: IdSet,
    stage: Stage,
}

impl Sweep {
    pub(super) fn new(marked: IdSet) -> Sweep {
        Sweep { marked, stage: Stage::Begin }
    }

    /// Does one slice of the search: puts forgettable ids into `ids`. Returns whether more follows. `is_known`: the
    /// owner or the scheduler needs the id.
    pub fn step(
        &mut self,
        store: &mut Store,
        limits: &SweepLimits,
        now: Ms,
        is_known: impl Fn(AddressId) -> bool,
        ids: &mut IdSet,
    ) -> bool {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Begin if store.book.len() >= limits.high() => Stage::Ages { next: 0, ages: Box::new([0; AGES]) },
            Stage::Begin => {
                Stage::Forget(SweepRule { next: 0, cutoff: cutoff(limits, now), age: AGES, of_that_age: 0 })
            }
            Stage::Ages { next, mut ages } => {
                let until = next.saturating_add(LOOK_IDS_MAX).min(store.book.id_bound());
                for id in (next..until).map(AddressId) {
                    if let Some(seen) = self.forgettable(store, id, &is_known) {
                        ages[age(seen, now)] += 1;
                    }
                }
                if until < store.book.id_bound() {
                    Stage::Ages { next: until, ages }
                } else {
                    let wanted = store.book.len().saturating_sub(limits.low());
                    let (age, of_that_age) = oldest(&ages, wanted);
                    Stage::Forget(SweepRule { next: 0, cutoff: cutoff(limits, now), age, of_that_age })
                }
            }
            Stage::Forget(choice) => self.forget(store, choice, now, &is_known, ids),
            Stage::Move if store.book.compact(MOVE_TEXTS_MAX) => Stage::Move,
            Stage::Move | Stage::Done => Stage::Done,
        };
        let is_done = matches!(self.stage, Stage::Done);
        if is_done {
            store.end_marking();
        }
        !is_done
    }

    fn forget(
        &self,
        store: &mut Store,
        mut choice: SweepRule,
        now: Ms,
        is_known: &impl Fn(AddressId) -> bool,
        ids: &mut IdSet,
    ) -> Stage {
        let bound = store.book.id_bound();
        let mut chosen = Vec::new();
        let first = choice.next;
        while choice.next < bound && choice.next - first < LOOK_IDS_MAX && chosen.len() < FORGET_IDS_MAX {
            let id = AddressId(choice.next);
            choice.next += 1;
            let Some(seen) = store.book.seen_slot(id) else { continue };
            let age = age(seen, now);
            let is_chosen = seen <= choice.cutoff || age > choice.age;
            // The marks are checked last: most addresses have been seen lately.
            let may_go = seen == 0 || is_chosen || (age == choice.age && choice.of_that_age > 0);
            if !may_go || self.forgettable(store, id, is_known).is_none() {
                continue;
            }
            if seen == 0 {
                // The time it was last seen is unknown: it counts as seen now.
                store.book.saw(id, now);
                continue;
            }
            choice.of_that_age = choice.of_that_age.saturating_sub(usize::from(age == choice.age));
            chosen.push(id.0);
        }
        ids.extend_ascending(&chosen);
        if choice.next < bound { Stage::Forget(choice) } else { Stage::Move }
    }

    /// The slot in which the address was last seen, if nothing refers to it.
    fn forgettable(&self, store: &Store, id: AddressId, is_known: &impl Fn(AddressId) -> bool) -> Option<u16> {
        let seen = store.book.seen_slot(id)?;
        let is_fresh = store.fresh.as_ref().is_none_or(|fresh| fresh.contains(id.0));
        (!is_fresh && !self.marked.contains(id.0) && !is_known(id)).then_some(seen)
    }
}

fn cutoff(limits: &SweepLimits, now: Ms) -> u16 {
    slot(now.saturating_sub(limits.unseen_ms))
}

fn age(seen: u16, now: Ms) -> usize {
    usize::from(slot(now).saturating_sub(seen)).min(AGES - 1)
}

/// The youngest age among the `wanted` oldest addresses, and how many of them are exactly that age.
fn oldest(ages: &[u32; AGES], wanted: usize) -> (usize, usize) {
    let mut older = 0;
    for (age, count) in ages.iter().enumerate().rev() {
        let count = *count as usize;
        if older + count >= wanted {
            return (age, wanted - older);
        }
        older += count;
    }
    (0, usize::MAX)
}

impl Store {
    /// Called when the checkpoint that began last is complete and durable: ids forgotten before it may be assigned
    /// again.
    pub fn checkpoint_complete(&mut self) {
        self.book.release();
    }

    /// Called when neither a checkpoint nor a sweep is in progress any more.
    pub fn end_marking(&mut self) {
        self.fresh = None;
    }

    /// Notes ids that an event of the batch being built names: neither this batch nor a later one of the current sweep
    /// forgets them.
    pub fn refer(&mut self, ids: &IdSet) {
        if let Some(fresh) = &mut self.fresh {
            fresh.union_with(ids);
        }
    }
}
