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

use super::effects::RcptOutcome;
use super::flows::{FlowKey, FlowNo};
use super::sites::ORDINARY;
use super::tables::Parts;
use super::timers::Timer;
use super::{Active, Effect, Scheduler};
use crate::ids::{AddressId, MessageNo, Ms};
use crate::store::Store;

const QUIET_MS: Ms = 5_000;
/// A post that never gets quiet is looked at no longer.
const QUIET_WITHIN_MS: Ms = 3_600_000;
/// Messages passed by the cursor in one go.
const WARNED_MAX: usize = 512;
/// Subscribers counted; more are not.
const STRIKES_MAX: usize = 1_000_000;

/// Posts in a row, and the second of the first.
type Strike = (u32, u32);

#[derive(Default)]
pub(super) struct Notices {
    /// The last message looked at for its warning, and whether the timer is armed.
    cursor: Option<u32>,
    armed: bool,
    strikes: Parts<(FlowNo, AddressId), Strike>,
}

impl Scheduler {
    /// When a message's delay is worth a notice, from its acceptance.
    fn warn_ms(&self, active: &Active) -> Option<Ms> {
        let own = self.flows.get(active.flow).rules.warn_ms;
        own.or(if active.class == ORDINARY { self.cfg.warn_ms } else { self.cfg.bulk_warn_ms })
    }

    fn shortest_warning(&self) -> Option<Ms> {
        let own = self.flows.shortest_warning();
        [self.cfg.warn_ms, self.cfg.bulk_warn_ms, own].into_iter().flatten().min()
    }

    /// A message was heard of.
    pub(super) fn watch(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let Some(shortest) = self.shortest_warning() else { return self.watch_post(store, no, now) };
        let warned = self
            .messages
            .get(&no)
            .is_some_and(|active| self.warn_ms(active).is_some_and(|ms| now.saturating_sub(active.accepted) >= ms));
        if let Some(active) = self.messages.get_mut(&no) {
            active.warned = warned;
            if !self.notices.armed {
                self.notices.armed = true;
                let at = active.accepted + shortest;
                self.timers.set(at.max(now), Timer::Warnings);
            }
        }
        self.watch_post(store, no, now);
    }

    fn watch_post(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let Some(message) = store.message(no) else { return };
        if message.pending().len() > 1
            && message.list().is_some()
            && let Some(active) = self.messages.get_mut(&no)
        {
            active.extra.get_or_insert_default().pending_before = message.pending().len() as u32;
            self.timers.set(now + QUIET_MS, Timer::Stragglers(no));
        }
    }

    /// Looks at the messages that have become old enough for a warning.
    pub(super) fn warnings_due(&mut self, now: Ms) {
        self.notices.armed = false;
        let Some(shortest) = self.shortest_warning() else { return };
        for _ in 0..WARNED_MAX {
            let cursor = self.notices.cursor;
            let mut next = cursor.map_or_else(|| self.live.min(), |after| self.live.iter_from(after).next());
            if next.is_none() && cursor.is_some_and(|cursor| cursor > self.newest) {
                next = self.live.min(); // numbers have wrapped
            }
            let Some(no) = next else { return };
            let Some(active) = self.messages.get(&MessageNo(no)) else { return };
            if active.accepted + shortest > now {
                self.notices.armed = true;
                self.timers.set(active.accepted + shortest, Timer::Warnings);
                return;
            }
            self.notices.cursor = Some(no);
            match self.warn_ms(active).map(|ms| active.accepted + ms) {
                Some(at) if at > now => self.timers.set(at, Timer::Warn(MessageNo(no))),
                Some(_) => self.warn(MessageNo(no)),
                None => {}
            }
        }
        self.notices.armed = true;
        self.timers.set(now, Timer::Warnings);
    }

    pub(super) fn warn(&mut self, no: MessageNo) {
        if let Some(active) = self.messages.get_mut(&no)
            && !std::mem::replace(&mut active.warned, true)
        {
            self.effects.push(Effect::Delayed { no });
        }
    }

    /// Whether the fast lane is done with a post.
    pub(super) fn stragglers_due(&mut self, store: &Store, no: MessageNo, now: Ms) {
        let (Some(active), Some(message)) = (self.messages.get_mut(&no), store.message(no)) else { return };
        let Some(extra) = active.extra.as_mut() else { return };
        let pending = message.pending().len() as u32;
        let is_quiet = std::mem::replace(&mut extra.pending_before, pending) == pending;
        let is_spread = extra.activation.is_none() && extra.parked.is_none();
        let is_late = now.saturating_sub(active.accepted) > QUIET_WITHIN_MS;
        if is_late || is_quiet && is_spread && self.flows.wanting == [0, 0] {
            self.effects.push(Effect::FastDone { no, pending });
        } else {
            self.timers.set(now + QUIET_MS, Timer::Stragglers(no));
        }
    }

    /// 5xx at RCPT.
    pub(super) fn strike(&mut self, no: MessageNo, outcome: &RcptOutcome, now: Ms) {
        let Some(flow) = self.messages.get(&no).map(|active| active.flow) else { return };
        let entry = self.flows.get(flow);
        let (posts_max, ms_max) = (entry.rules.suspend_posts, entry.rules.suspend_ms);
        let Some(FlowKey::List(list)) = entry.key.clone() else { return };
        if posts_max.is_none() && ms_max.is_none() {
            return;
        }
        let key = (flow, outcome.id);
        let now_s = (now / 1_000) as u32;
        if self.notices.strikes.len() >= STRIKES_MAX && !self.notices.strikes.contains_key(&key) {
            return;
        }
        let (posts, since_s) = self.notices.strikes.get_or_insert_with(key, || (0, now_s));
        *posts += 1;
        let (posts, since_s) = (*posts, *since_s);
        let long = ms_max.is_some_and(|ms| posts > 1 && Ms::from(now_s - since_s) * 1_000 >= ms);
        if long || posts_max.is_some_and(|max| posts >= max) {
            self.notices.strikes.remove(&key);
            self.effects.push(Effect::Suspend {
                list,
                id: outcome.id,
                posts,
                since: Ms::from(since_s) * 1_000,
                text: Arc::clone(&outcome.text),
            });
        }
    }

    /// A delivery.
    pub(super) fn no_strike(&mut self, no: MessageNo, id: AddressId) {
        if !self.notices.strikes.is_empty()
            && let Some(flow) = self.messages.get(&no).map(|active| active.flow)
        {
            self.notices.strikes.remove(&(flow, id));
        }
    }
}
