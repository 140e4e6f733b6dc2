//! What the shell is told about posts and subscribers beside deliveries: delays, stragglers, suspensions.
//!
//! **Delay notices.** Messages get old in the order in which they came: a cursor walks over the live ones behind the
//! shortest time of warning, so that a message that is gone by then costs nothing. One that is older than that when it
//! is heard of (a start) counts as warned.
//!
//! **Stragglers.** The fast lane is done with a list's post when nothing of it was settled for `QUIET_MS`, it is spread
//! to all of its domains, and no site stands in line for the budget.
//!
//! **Suspensions.** A subscriber whose mailbox is refused for good (5xx at RCPT) by `suspend_posts` posts of a list in a
//! row, or for `suspend_ms`, is named once. The counts are volatile; any delivery of the list's ends them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::effects::RcptOutcome;
use super::flows::{FlowKey, FlowNo};
use super::tables::Parts;
use super::timers::Timer;
use super::{Effect, Scheduler};
use crate::ids::{AddressId, MessageNo, Ms};
use crate::idset::IdSet;
use crate::message::Message;
use crate::store::Store;

const QUIET_MS: Ms = 5_000;
/// A post that never gets quiet is looked at no longer.
const QUIET_WITHIN_MS: Ms = 3_600_000;
/// Messages passed by the cursor in one go.
const WARNED_MAX: usize = 512;
/// Addresses of subscribers counted; more are not.
const STRIKES_MAX: usize = 1_000_000;

/// Posts in a row, and the second of the first.
type Strike = (u32, u32);

#[derive(Default)]
pub(super) struct Notices {
    /// The last message looked at for its warning, and whether the timer is armed.
    cursor: Option<u32>,
    armed: bool,
    strikes: Parts<AddressId, SmallVec<[(FlowNo, Strike); 1]>>,
}

impl Scheduler {
    /// When a message's delay is worth a notice, from its acceptance.
    fn warn_ms(&self, no: MessageNo) -> Option<Ms> {
        let own = self.messages.flow(no).and_then(|flow| self.flows.get(flow).rules.warn_ms);
        own.or(if self.messages.is_bulk(no) { self.cfg.bulk_warn_ms } else { self.cfg.warn_ms })
    }

    fn shortest_warning(&self) -> Option<Ms> {
        let own = self.flows.shortest_warning();
        [self.cfg.warn_ms, self.cfg.bulk_warn_ms, own].into_iter().flatten().min()
    }

    /// Times of warning may have changed: who waits for the old ones is looked at now. A timer that is armed already
    /// looks once more, which does no harm.
    pub(super) fn warn_anew(&mut self) {
        if self.notices.armed {
            self.timers.set(0, Timer::Warnings);
        }
    }

    /// A message was heard of.
    pub(super) fn watch(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let Some(shortest) = self.shortest_warning() else { return self.watch_post(store, no, now) };
        let Some(accepted) = store.message(no).map(Message::accepted) else { return };
        let accepted = self.steady(accepted);
        if self.warn_ms(no).is_some_and(|ms| now.saturating_sub(accepted) >= ms) {
            self.messages.warn(no);
        }
        if !self.notices.armed {
            self.notices.armed = true;
            self.timers.set((accepted + shortest).max(now), Timer::Warnings);
        }
        self.watch_post(store, no, now);
    }

    fn watch_post(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let Some(message) = store.message(no) else { return };
        if message.pending().len() > 1
            && message.list().is_some()
            && let Some(active) = self.messages.begin(no)
        {
            active.extra.get_or_insert_default().pending_before = message.pending().len() as u32;
            self.timers.set(now + QUIET_MS, Timer::Stragglers(no));
        }
    }

    /// Looks at the messages that have become old enough for a warning.
    pub(super) fn warnings_due(&mut self, store: &Store, now: Ms) {
        self.notices.armed = false;
        let Some(shortest) = self.shortest_warning() else { return };
        for _ in 0..WARNED_MAX {
            let cursor = self.notices.cursor;
            let mut next = self.messages.next(cursor);
            if next.is_none() && cursor.is_some_and(|cursor| cursor > self.newest) {
                next = self.messages.next(None); // numbers have wrapped
            }
            let Some(no) = next else { return };
            let Some(accepted) = store.message(MessageNo(no)).map(Message::accepted) else {
                self.notices.cursor = Some(no);
                continue;
            };
            let accepted = self.steady(accepted);
            if accepted + shortest > now {
                self.notices.armed = true;
                self.timers.set(accepted + shortest, Timer::Warnings);
                return;
            }
            self.notices.cursor = Some(no);
            match self.warn_ms(MessageNo(no)).map(|ms| accepted + ms) {
                Some(at) if at > now => self.timers.set(at, Timer::Warn(MessageNo(no))),
                Some(_) => self.warn(MessageNo(no)),
                None => {}
            }
        }
        self.notices.armed = true;
        self.timers.set(now, Timer::Warnings);
    }

    pub(super) fn warn(&mut self, no: MessageNo) {
        if self.messages.warn(no) {
            self.effects.push(Effect::Delayed { no });
        }
    }

    /// Whether the fast lane is done with a post.
    pub(super) fn stragglers_due(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let (Some(active), Some(message)) = (self.messages.get_mut(no), store.message(no)) else { return };
        let Some(extra) = active.extra.as_mut() else { return };
        let pending = message.pending().len() as u32;
        let is_quiet = std::mem::replace(&mut extra.pending_before, pending) == pending;
        let is_spread = extra.activation.is_none() && extra.parked.is_none();
        let is_late = self.time.wall(now).saturating_sub(message.accepted()) > QUIET_WITHIN_MS;
        if is_late || is_quiet && is_spread && self.flows.wanting == [0, 0] {
            extra.pending_before = 0;
            self.effects.push(Effect::FastDone { no, pending });
            self.messages.rest(no);
        } else {
            self.timers.set(now + QUIET_MS, Timer::Stragglers(no));
        }
    }

    /// 5xx at RCPT.
    pub(super) fn strike(&mut self, no: MessageNo, outcome: &RcptOutcome, now: Ms) {
        let Some(flow) = self.messages.flow(no) else { return };
        let entry = self.flows.get(flow);
        let (posts_max, ms_max) = (entry.rules.suspend_posts, entry.rules.suspend_ms);
        let Some(FlowKey::List(list)) = entry.key.clone() else { return };
        if posts_max.is_none() && ms_max.is_none() {
            return;
        }
        let now_s = (now / 1_000) as u32;
        let strikes = &mut self.notices.strikes;
        if strikes.len() >= STRIKES_MAX && !strikes.contains_key(&outcome.id) {
            return;
        }
        let of_address = strikes.get_or_insert_with(outcome.id, SmallVec::new);
        let at = of_address.iter().position(|(f, _)| *f == flow).unwrap_or_else(|| {
            of_address.push((flow, (0, now_s)));
            of_address.len() - 1
        });
        let (posts, since_s) = &mut of_address[at].1;
        *posts += 1;
        let (posts, since_s) = (*posts, *since_s);
        let long = ms_max.is_some_and(|ms| posts > 1 && Ms::from(now_s - since_s) * 1_000 >= ms);
        if long || posts_max.is_some_and(|max| posts >= max) {
            self.end_strikes(flow, outcome.id);
            self.effects.push(Effect::Suspend {
                list,
                id: outcome.id,
                posts,
                since: self.time.wall(Ms::from(since_s) * 1_000),
                text: Arc::clone(&outcome.text),
            });
        }
    }

    /// A delivery.
    pub(super) fn no_strike(&mut self, no: MessageNo, id: AddressId) {
        if !self.notices.strikes.is_empty()
            && let Some(flow) = self.messages.flow(no)
        {
            self.end_strikes(flow, id);
        }
    }

    fn end_strikes(&mut self, flow: FlowNo, id: AddressId) {
        if let Some(of_address) = self.notices.strikes.get_mut(&id) {
            of_address.retain(|(f, _)| *f != flow);
            if of_address.is_empty() {
                self.notices.strikes.remove(&id);
            }
        }
    }

    /// The ids will be other addresses'.
    pub(super) fn forget_strikes(&mut self, ids: &IdSet) {
        if !self.notices.strikes.is_empty() {
            for id in ids {
                self.notices.strikes.remove(&AddressId(id));
            }
        }
    }
}
