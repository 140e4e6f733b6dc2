//! Notices to the caller besides deliveries: delayed messages, posts finished except for stragglers, subscribers to
//! suspend.
//!
//! **Delay notices.** Messages age in the order of acceptance: a cursor follows the live ones, behind by the shortest
//! warning time, so that a message that is gone by then costs nothing. A message that is older than that when the
//! scheduler first sees it (at a start) counts as warned.
//!
//! **Stragglers.** The fast lane has finished a list's post when no recipient got a fate for `QUIET_MS`, the post has
//! reached all of its domains, and no site waits in line for the budget.
//!
//! **Suspensions.** A subscriber whose mailbox is refused permanently (5xx at RCPT) for `suspend_posts` posts of a list
//! in a row, or for `suspend_ms`, is reported once. Any delivery of a post of the list clears the counts; they survive
//! a restart (`learned`).

pub mod coalesce;

use std::sync::Arc;

use smallvec::SmallVec;
use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_queue::store::Store;

use crate::effects::{Effect, RcptOutcome};
use crate::flows::FlowKey;
use crate::state::SchedState;
use crate::tables::{Parts, PartsCursor};
use crate::timers::Timer;

const QUIET_MS: Ms = 5_000;
/// A post that has not become quiet by this time is no longer checked.
const QUIET_WITHIN_MS: Ms = 3_600_000;
/// Messages that the cursor passes at a time.
const WARNED_MAX: usize = 512;
/// Largest number of subscribers' addresses with a count.
const STRIKES_MAX: usize = 1_000_000;

/// Posts in a row, and the time of the first, in seconds.
type Strike = (u32, u32);
/// A subscriber's counts, by list.
type Strikes = SmallVec<[(Arc<str>, Strike); 1]>;

#[derive(Default)]
pub struct Notices {
    /// The last message checked for its warning, and whether the timer is set.
    cursor: Option<u32>,
    armed: bool,
    /// Counts by address and list.
    strikes: Parts<AddressId, Strikes>,
}

impl Notices {
    /// Age at which a message's delay is reported.
    fn warn_ms(state: &SchedState, no: MessageNo) -> Option<Ms> {
        let own = state.messages.flow(no).and_then(|flow| state.flows.get(flow).rules.warn_ms);
        own.or(if state.messages.is_bulk(no) { state.cfg.bulk_warn_ms } else { state.cfg.warn_ms })
    }

    fn shortest_warning(state: &SchedState) -> Option<Ms> {
        let own = state.flows.shortest_warning();
        [state.cfg.warn_ms, state.cfg.bulk_warn_ms, own].into_iter().flatten().min()
    }

    /// Checks waiting messages again, because warning times may have changed. A timer that is already set fires once
    /// more, which does no harm.
    pub fn warn_anew(&self, state: &mut SchedState) {
        if self.armed {
            state.timers.set(0, Timer::Warnings);
        }
    }

    /// Watches a message that was accepted.
    pub fn watch(&mut self, state: &mut SchedState, store: &Store, no: MessageNo, now: Ms) {
        let Some(shortest) = Self::shortest_warning(state) else { return Self::watch_post(state, store, no, now) };
        let Some(accepted) = store.message(no).map(Message::accepted) else { return };
        let accepted = state.time.steady(accepted);
        if Self::warn_ms(state, no).is_some_and(|ms| now.saturating_sub(accepted) >= ms) {
            state.messages.warn(no);
        }
        if !self.armed {
            self.armed = true;
            state.timers.set((accepted + shortest).max(now), Timer::Warnings);
        }
        Self::watch_post(state, store, no, now);
    }

    fn watch_post(state: &mut SchedState, store: &Store, no: MessageNo, now: Ms) {
        let Some(message) = store.message(no) else { return };
        if message.pending().len() > 1
            && message.subscribers_list().is_some()
            && let Some(active) = state.messages.begin(no)
        {
            active.extra.get_or_insert_default().pending_before = message.pending().len() as u32;
            state.timers.set(now + QUIET_MS, Timer::Stragglers(no));
        }
    }

    /// Reports the messages that have become old enough for a warning.
    pub fn warnings_due(&mut self, state: &mut SchedState, store: &Store, now: Ms) {
        self.armed = false;
        let Some(shortest) = Self::shortest_warning(state) else { return };
        for _ in 0..WARNED_MAX {
            let cursor = self.cursor;
            let mut next = state.messages.next(cursor);
            if next.is_none() && cursor.is_some_and(|cursor| cursor > state.newest) {
                next = state.messages.next(None); // numbers have wrapped
            }
            let Some(no) = next else { return };
            let Some(accepted) = store.message(MessageNo(no)).map(Message::accepted) else {
                self.cursor = Some(no);
                continue;
            };
            let accepted = state.time.steady(accepted);
            if accepted + shortest > now {
                self.armed = true;
                state.timers.set(accepted + shortest, Timer::Warnings);
                return;
            }
            self.cursor = Some(no);
            match Self::warn_ms(state, MessageNo(no)).map(|ms| accepted + ms) {
                Some(at) if at > now => state.timers.set(at, Timer::Warn(MessageNo(no))),
                Some(_) => Self::warn(state, MessageNo(no)),
                None => {}
            }
        }
        self.armed = true;
        state.timers.set(now, Timer::Warnings);
    }

    pub fn warn(state: &mut SchedState, no: MessageNo) {
        if state.messages.warn(no) {
            state.effects.push(Effect::Delayed { no });
        }
    }

    /// Checks whether the fast lane has finished a post.
    pub fn stragglers_due(state: &mut SchedState, store: &Store, no: MessageNo, now: Ms) {
        let (Some(active), Some(message)) = (state.messages.get_mut(no), store.message(no)) else { return };
        let Some(extra) = active.extra.as_mut() else { return };
        let pending = message.pending().len() as u32;
        let is_quiet = std::mem::replace(&mut extra.pending_before, pending) == pending;
        let is_spread = extra.activation.is_none() && extra.held.is_none();
        let is_late = state.time.wall(now).saturating_sub(message.accepted()) > QUIET_WITHIN_MS;
        if is_late || is_quiet && is_spread && state.flows.wanting == [0, 0] {
            extra.pending_before = 0;
            state.effects.push(Effect::FastDone { no, pending });
            state.messages.rest(no);
        } else {
            state.timers.set(now + QUIET_MS, Timer::Stragglers(no));
        }
    }

    /// Counts a 5xx at RCPT.
    pub fn strike(&mut self, state: &mut SchedState, no: MessageNo, outcome: &RcptOutcome, now: Ms) {
        let Some(flow) = state.messages.flow(no) else { return };
        let entry = state.flows.get(flow);
        let (posts_max, ms_max) = (entry.rules.suspend_posts, entry.rules.suspend_ms);
        let Some(FlowKey::List(list)) = entry.key.clone() else { return };
        if posts_max.is_none() && ms_max.is_none() {
            return;
        }
        let now_s = (now / 1_000) as u32;
        let strikes = &mut self.strikes;
        if strikes.len() >= STRIKES_MAX && !strikes.contains_key(&outcome.id) {
            return;
        }
        let of_address = strikes.get_or_insert_with(outcome.id, SmallVec::new);
        let at = of_address.iter().position(|(of, _)| *of == list).unwrap_or_else(|| {
            of_address.push((list.clone(), (0, now_s)));
            of_address.len() - 1
        });
        let (posts, since_s) = &mut of_address[at].1;
        *posts += 1;
        let (posts, since_s) = (*posts, *since_s);
        let long = ms_max.is_some_and(|ms| posts > 1 && Ms::from(now_s - since_s) * 1_000 >= ms);
        if long || posts_max.is_some_and(|max| posts >= max) {
            self.end_strikes(&list, outcome.id);
            state.effects.push(Effect::Suspend {
                list,
                id: outcome.id,
                posts,
                since: state.time.wall(Ms::from(since_s) * 1_000),
                text: Arc::clone(&outcome.text),
            });
        }
    }

    /// Clears the counts after a delivery.
    pub fn end_strikes_of(&mut self, state: &SchedState, no: MessageNo, id: AddressId) {
        if !self.strikes.is_empty()
            && let Some(flow) = state.messages.flow(no)
            && let Some(FlowKey::List(list)) = &state.flows.get(flow).key
        {
            self.end_strikes(list, id);
        }
    }

    fn end_strikes(&mut self, list: &str, id: AddressId) {
        if let Some(of_address) = self.strikes.get_mut(&id) {
            of_address.retain(|(of, _)| **of != *list);
            if of_address.is_empty() {
                self.strikes.remove(&id);
            }
        }
    }

    /// The next counted subscribers: address, list, posts, and when the first was refused (steady).
    pub(crate) fn strikes(
        &self,
        at: &mut PartsCursor,
        max: usize,
    ) -> Option<impl Iterator<Item = (AddressId, &Arc<str>, u32, Ms)>> {
        let all = self.strikes.slice(at, max)?;
        Some(all.flat_map(|(id, lists)| {
            lists.iter().map(|(list, (posts, since_s))| (*id, list, *posts, Ms::from(*since_s) * 1_000))
        }))
    }

    /// Restores a count from before the start.
    pub(crate) fn recall_strike(&mut self, id: AddressId, list: Arc<str>, posts: u32, since: Ms) {
        if self.strikes.len() < STRIKES_MAX || self.strikes.contains_key(&id) {
            let of_address = self.strikes.get_or_insert_with(id, SmallVec::new);
            of_address.retain(|(of, _)| *of != list);
            of_address.push((list, (posts, (since / 1_000) as u32)));
        }
    }

    /// Forgets addresses whose ids will be reused.
    pub fn forget_strikes(&mut self, ids: &IdSet) {
        if !self.strikes.is_empty() {
            for id in ids {
                self.strikes.remove(&AddressId(id));
            }
        }
    }
}
