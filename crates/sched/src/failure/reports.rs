//! Failed and expired recipients on their way into a delivery status notification.
//!
//! They stay pending in the store until the notification and the outcome are durable as one batch; until then their ids
//! are kept with the message so that nothing hands them out. A message's failures are reported together, after
//! `bounce_gather_ms` or as soon as no other recipient of it is in flight or waiting.

use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{AddressId, MessageNo, Ms};
use stentor_queue::store::Store;

use crate::Scheduler;
use crate::effects::{Effect, FailedRcpt};
use crate::reasons::HostReply;
use crate::state::SchedState;
use crate::timers::Timer;

/// The first and the longest pause before a refused report is made again.
const REFUSED_MS_MIN: Ms = 1_000;
const REFUSED_MS_MAX: Ms = 300_000;
const REFUSED_DOUBLINGS_MAX: u8 = 12;

/// Delivery time expired (RFC 3463 3.5).
const EXPIRED: Enhanced = Enhanced::new(4, 4, 7);
/// Other undefined permanent failure (RFC 3463 3.1).
const FAILED: Enhanced = Enhanced::new(5, 0, 0);

/// Fails a recipient, unless it is not pending or an operator is taking it out. `expired`: the last failure was
/// temporary and its lifetime is over.
pub fn gather(
    state: &mut SchedState,
    store: &Store,
    no: MessageNo,
    id: AddressId,
    expired: bool,
    reply: &HostReply,
    now: Ms,
) {
    if !store.message(no).is_some_and(|m| m.pending().contains(id.0)) {
        return;
    }
    let Some(active) = state.messages.begin(no) else { return };
    if active.meets_reservation(id) {
        return;
    }
    let failing = &mut active.extra.get_or_insert_default().failing;
    if !failing.ids.insert(id.0) {
        return;
    }
    let dsn = reply.dsn.unwrap_or(if expired { EXPIRED } else { FAILED });
    failing.list.push(FailedRcpt {
        id,
        expired,
        dsn: Enhanced { class: if expired { 4 } else { 5 }, ..dsn },
        code: reply.code,
        text: reply.text.clone(),
        host: reply.host.clone(),
    });
    if !failing.timed {
        failing.timed = true;
        state.timers.set(now + state.cfg.bounce_gather_ms, Timer::Bounce(no));
    }
}

/// Reports a message's failures if none of its other recipients is on its way.
pub fn report_if_last(state: &mut SchedState, store: &Store, no: MessageNo) {
    let Some(active) = state.messages.get(no) else { return };
    let Some(extra) = active.extra.as_ref().filter(|extra| !extra.failing.list.is_empty()) else { return };
    let all = store.message(no).is_some_and(|m| m.pending().len() == extra.failing.ids.len());
    if all && active.in_flight.is_empty() {
        report(state, no);
    }
}

/// Handles the end of the gathering time.
pub fn due(state: &mut SchedState, no: MessageNo) {
    if let Some(extra) = state.messages.get_mut(no).and_then(|m| m.extra.as_mut()) {
        extra.failing.timed = false;
        report(state, no);
    }
}

fn report(state: &mut SchedState, no: MessageNo) {
    let Some(extra) = state.messages.get_mut(no).and_then(|m| m.extra.as_mut()) else { return };
    let mut list = std::mem::take(&mut extra.failing.list);
    while !list.is_empty() {
        let rest = list.split_off(state.cfg.bounce_failures_max.min(list.len()));
        state.effects.push(Effect::Bounce { no, failures: std::mem::replace(&mut list, rest) });
    }
}

impl Scheduler {
    /// Called when report and outcomes are durable and applied to the store.
    pub fn bounced(&mut self, no: MessageNo, ids: &[AddressId]) {
        if let Some(extra) = self.state.messages.get_mut(no).and_then(|m| m.extra.as_mut()) {
            extra.failing.refused = 0;
            for id in ids {
                extra.failing.ids.remove(id.0);
            }
        }
    }

    /// Called when the journal refused the report (full, failed). The failures are reported again after the gathering
    /// time, which doubles each time: a report may be large, and disk space is short.
    pub fn bounce_refused(&mut self, no: MessageNo, failures: Vec<FailedRcpt>, now: Ms) {
        let now = self.steady(now);
        let Some(active) = self.state.messages.begin(no) else { return };
        let failing = &mut active.extra.get_or_insert_default().failing;
        failing.list.extend(failures);
        if !failing.timed {
            failing.timed = true;
            let pause = self.state.cfg.bounce_gather_ms.max(REFUSED_MS_MIN) << failing.refused;
            failing.refused = (failing.refused + 1).min(REFUSED_DOUBLINGS_MAX);
            self.state.timers.set(now + pause.min(REFUSED_MS_MAX), Timer::Bounce(no));
        }
    }
}
