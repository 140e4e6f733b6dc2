//! Retry clocks of single recipients of single messages, after a 4xx at RCPT that is not about the mailbox
//! (greylisting).

use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms};

use super::same_jitter;
use crate::kept::KeptClock;
use crate::reasons::Reason;
use crate::state::SchedState;
use crate::tables::{Parts, PartsCursor};
use crate::timers::Timer;

struct RecipientClock {
    /// End of the clock in seconds. 0: it has run out, and only counts failures.
    until_s: u32,
    reason: Reason,
    fails: u8,
}

#[derive(Default)]
pub struct RecipientClocks {
    list: Parts<(MessageNo, AddressId), RecipientClock>,
    /// Whether some clocks are from before the start: their recipients may be among those not looked at yet.
    are_recalled: bool,
}

impl RecipientClocks {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn contains(&self, no: MessageNo, id: AddressId) -> bool {
        self.list.contains_key(&(no, id))
    }

    /// Whether a recipient that was not looked at yet may have a clock.
    pub fn are_recalled(&self) -> bool {
        self.are_recalled
    }

    /// The next clocks.
    pub(crate) fn slice(
        &self,
        at: &mut PartsCursor,
        max: usize,
    ) -> Option<impl Iterator<Item = ((MessageNo, AddressId), KeptClock)>> {
        self.list.slice(at, max).map(|all| {
            all.map(|(key, RecipientClock { until_s, reason, fails })| {
                (*key, KeptClock { until: Ms::from(*until_s) * 1_000, fails: *fails, reason: *reason })
            })
        })
    }

    /// Restores a clock from before the start.
    pub(crate) fn recall(&mut self, state: &mut SchedState, key: (MessageNo, AddressId), clock: KeptClock, now: Ms) {
        let KeptClock { until, fails, reason } = clock;
        let until_s = if until > now { until.div_ceil(1_000) as u32 } else { 0 };
        self.list.insert(key, RecipientClock { until_s, reason, fails });
        if until_s > 0 {
            self.are_recalled = true;
            state.timers.set(Ms::from(until_s) * 1_000, Timer::Recipient(key.0, key.1));
        }
    }

    /// The clock in force, and why.
    pub fn wait(&self, no: MessageNo, id: AddressId, now: Ms) -> Option<(Ms, Reason)> {
        let clock = self.list.get(&(no, id))?;
        Some((Ms::from(clock.until_s) * 1_000, clock.reason)).filter(|(until, _)| *until > now)
    }

    pub fn reason(&self, no: MessageNo, id: AddressId) -> Option<Reason> {
        self.list.get(&(no, id)).map(|clock| clock.reason)
    }

    /// Ends a clock early (a flush); the caller fires its timer.
    pub fn hasten(&mut self, no: MessageNo, id: AddressId) {
        if let Some(clock) = self.list.get_mut(&(no, id)) {
            // Not 0: that means that the timer has fired.
            clock.until_s = 1;
        }
    }

    /// Forgets clock and count. Returns whether the clock was running.
    pub fn forget(&mut self, no: MessageNo, id: AddressId) -> bool {
        !self.list.is_empty() && self.list.remove(&(no, id)).is_some_and(|clock| clock.until_s > 0)
    }

    /// Begins the clock, longer than the last one.
    pub fn refused(
        &mut self,
        state: &mut SchedState,
        no: MessageNo,
        id: AddressId,
        domain: Option<DomainId>,
        reason: Reason,
        now: Ms,
    ) {
        let new = || RecipientClock { until_s: 0, reason, fails: 0 };
        let clock = self.list.get_or_insert_with((no, id), new);
        clock.fails = clock.fails.saturating_add(1);
        clock.reason = reason;
        let mut jitter = same_jitter(state.jitter_seed, domain, no.0);
        let is_bulk = state.messages.is_bulk(no);
        let retry = state.cfg.bulk_recipient_retry.filter(|_| is_bulk).unwrap_or(state.cfg.recipient_retry);
        let until = now + retry.delay_ms(clock.fails, &mut jitter);
        clock.until_s = until.div_ceil(1_000) as u32;
        state.timers.set(Ms::from(clock.until_s) * 1_000, Timer::Recipient(no, id));
    }

    /// Handles a timer. Returns whether the clock has run out and the recipient may be tried. The count of failures is
    /// kept.
    pub fn due(&mut self, state: &SchedState, no: MessageNo, id: AddressId, now: Ms) -> bool {
        let Some(clock) = self.list.get_mut(&(no, id)) else { return false };
        // 0: it has fired, and this timer belongs to an earlier clock.
        if clock.until_s == 0 || u64::from(clock.until_s) * 1_000 > now {
            return false;
        }
        if state.messages.is_live(no) {
            clock.until_s = 0;
            return true;
        }
        self.list.remove(&(no, id));
        false
    }
}
