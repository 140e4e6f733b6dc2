//! Retry clocks of mailboxes, after 4.2.x.
//!
//! While the clock runs, every message for the mailbox waits here, at the cost of one entry. When the clock has run
//! out, the oldest message goes as a probe, and its outcome decides for all. After `STRIKES_MAX` messages in a row with
//! another 4xx for a recipient the mailbox gets the clock too. Times are in seconds: a million clocks take about 60
//! bytes each, timer included.

use smallvec::SmallVec;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use super::same_jitter;
use crate::STEPS_MAX;
use crate::kept::KeptClock;
use crate::reasons::Reason;
use crate::state::SchedState;
use crate::tables::{Map, Parts, PartsCursor};
use crate::timers::Timer;

/// Messages in a row with a 4xx for a recipient after which the mailbox gets the clock.
const STRIKES_MAX: u8 = 3;

/// Messages whose recipient may be tried again.
pub type ReleasedMessages = SmallVec<[MessageNo; 2]>;

/// Whether a message is suspended or queue-only, so that it must not probe a mailbox.
pub trait IsKept: Fn(&SchedState, MessageNo) -> bool {}

impl<F: Fn(&SchedState, MessageNo) -> bool> IsKept for F {}

/// A mailbox whose next probe is chosen.
pub struct MailboxTurn<'a, K> {
    pub state: &'a SchedState,
    pub id: AddressId,
    pub is_kept: K,
    pub now: Ms,
}

struct Mailbox {
    until_s: u32,
    fails: u8,
    reason: Reason,
    /// The message that probes the mailbox, once the clock has run out.
    probe: Option<MessageNo>,
    waiters: IdSet,
}

#[derive(Default)]
pub struct Mailboxes {
    list: Parts<AddressId, Mailbox>,
    strikes: Parts<AddressId, u8>,
    /// Failures in a row of mailboxes whose clock was running before the start.
    ladder: Map<AddressId, u8>,
}

impl Mailboxes {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn contains(&self, id: AddressId) -> bool {
        self.list.contains_key(&id)
    }

    /// Whether the mailbox's clock keeps this message back; if so the message is recorded there.
    pub fn keeps_back(&mut self, id: AddressId, no: MessageNo, now: Ms) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let Some(mailbox) = self.list.get_mut(&id) else { return false };
        let keeps = u64::from(mailbox.until_s) * 1_000 > now || mailbox.probe.is_some_and(|probe| probe != no);
        if keeps {
            mailbox.waiters.insert(no.0);
        }
        keeps
    }

    /// Until when the message waits for the mailbox, and why.
    pub fn wait(&self, id: AddressId, no: MessageNo) -> Option<(Ms, Reason)> {
        let mailbox = self.list.get(&id).filter(|m| m.waiters.contains(no.0))?;
        Some((Ms::from(mailbox.until_s) * 1_000, mailbox.reason))
    }

    /// The reply that the mailbox was deferred with, if the message is its probe.
    pub fn probe_reason(&self, no: MessageNo, id: AddressId) -> Option<Reason> {
        self.list.get(&id).filter(|mailbox| mailbox.probe == Some(no)).map(|m| m.reason)
    }

    /// Ends a mailbox's clock early (a flush); the caller fires its timer.
    pub fn hasten(&mut self, id: AddressId) {
        if let Some(mailbox) = self.list.get_mut(&id) {
            mailbox.until_s = 0;
        }
    }

    /// Counts a 4xx at RCPT that is not about the mailbox, for a message that had none yet. Returns whether the mailbox
    /// gets the clock from now on.
    pub fn strike(&mut self, id: AddressId) -> bool {
        let strikes = self.strikes.get_or_insert_with(id, || 0);
        *strikes = strikes.saturating_add(1);
        *strikes >= STRIKES_MAX
    }

    pub fn end_strikes(&mut self, id: AddressId) {
        if !self.ladder.is_empty() {
            self.ladder.remove(&id);
        }
        if !self.strikes.is_empty() {
            self.strikes.remove(&id);
        }
    }

    /// Forgets addresses whose ids will be reused.
    pub fn forget(&mut self, ids: &IdSet) {
        if self.strikes.is_empty() && self.ladder.is_empty() {
            return;
        }
        for id in ids {
            self.strikes.remove(&AddressId(id));
            self.ladder.remove(&AddressId(id));
        }
    }

    /// The next mailboxes with a clock.
    pub(crate) fn slice(
        &self,
        at: &mut PartsCursor,
        max: usize,
    ) -> Option<impl Iterator<Item = (AddressId, KeptClock)>> {
        self.list.slice(at, max).map(|all| {
            all.map(|(id, Mailbox { until_s, fails, reason, .. })| {
                (*id, KeptClock { until: Ms::from(*until_s) * 1_000, fails: *fails, reason: *reason })
            })
        })
    }

    /// Restores a clock from before the start.
    pub(crate) fn recall(&mut self, state: &mut SchedState, id: AddressId, clock: KeptClock, now: Ms) {
        let KeptClock { until, fails, reason } = clock;
        self.ladder.insert(id, fails);
        if until > now {
            let until_s = until.div_ceil(1_000) as u32;
            let mailbox = Mailbox { until_s, fails, reason, probe: None, waiters: IdSet::new() };
            self.list.insert(id, mailbox);
            state.timers.set(Ms::from(until_s) * 1_000, Timer::Mailbox(id));
        }
    }

    /// Handles 4.2.x for a message: the clock begins, unless it already runs.
    pub fn refused(
        &mut self,
        state: &mut SchedState,
        no: MessageNo,
        id: AddressId,
        domain: Option<DomainId>,
        reason: Reason,
        now: Ms,
    ) {
        let fails = if self.ladder.is_empty() { 0 } else { self.ladder.remove(&id).unwrap_or(0) };
        let new = || Mailbox { until_s: 0, fails, reason, probe: None, waiters: IdSet::new() };
        let mailbox = self.list.get_or_insert_with(id, new);
        mailbox.waiters.insert(no.0);
        if u64::from(mailbox.until_s) * 1_000 > now {
            return;
        }
        mailbox.fails = mailbox.fails.saturating_add(1);
        let mut jitter = same_jitter(state.jitter_seed, domain, 0);
        let until = now + state.cfg.mailbox_retry.delay_ms(mailbox.fails, &mut jitter);
        mailbox.until_s = until.div_ceil(1_000) as u32;
        mailbox.probe = None;
        mailbox.reason = reason;
        state.timers.set(Ms::from(mailbox.until_s) * 1_000, Timer::Mailbox(id));
    }

    /// Removes and returns the overdue messages that wait for the mailbox and are not kept: an attempt has just failed,
    /// so it counts as theirs. Held and finished messages that are found before are returned, too.
    pub fn take_over_age(
        &mut self,
        state: &SchedState,
        store: &Store,
        id: AddressId,
        is_kept: impl Fn(&SchedState, MessageNo) -> bool,
        now: Ms,
    ) -> ReleasedMessages {
        let mut taken = ReleasedMessages::new();
        let Some(mailbox) = self.list.get_mut(&id) else { return taken };
        // If lifetimes differ, younger messages may expire before the oldest.
        let differs = state.lifetimes_differ();
        for no in mailbox.waiters.iter_around(state.newest).map(MessageNo) {
            if !state.messages.is_live(no) || state.messages.is_held(no) {
                taken.push(no);
            } else if !state.is_over_age(store, no, now) {
                if !differs {
                    break;
                }
            } else if !is_kept(state, no) {
                taken.push(no);
            }
        }
        for no in &taken {
            mailbox.waiters.remove(no.0);
        }
        taken
    }

    /// Handles a clock that has run out: the oldest message becomes the probe, except a held, suspended or queue-only
    /// one, which would keep the others back for as long as that lasts. If there is no other, all are released.
    pub fn due(&mut self, turn: &MailboxTurn<'_, impl IsKept>) -> ReleasedMessages {
        let MailboxTurn { state, id, ref is_kept, now } = *turn;
        let Some(mailbox) = self.list.get_mut(&id) else { return ReleasedMessages::new() };
        if u64::from(mailbox.until_s) * 1_000 > now || mailbox.probe.is_some() {
            return ReleasedMessages::new();
        }
        let may_probe = |no: &MessageNo| state.messages.is_live(*no) && !is_kept(state, *no);
        let probe = mailbox.waiters.iter_around(state.newest).take(STEPS_MAX as usize).map(MessageNo).find(may_probe);
        if let Some(no) = probe {
            mailbox.waiters.remove(no.0);
            mailbox.probe = Some(no);
            return ReleasedMessages::from_slice(&[no]);
        }
        self.list.remove(&id).map(|mailbox| mailbox.waiters.iter().map(MessageNo).collect()).unwrap_or_default()
    }

    /// Ends the mailbox's clock and its count of failures because an operator wants the message tried now.
    pub fn try_now(&mut self, no: MessageNo, turn: &MailboxTurn<'_, impl IsKept>) -> ReleasedMessages {
        let mailbox = self.list.get_mut(&turn.id).filter(|m| m.probe.is_none() && m.waiters.contains(no.0));
        let Some(mailbox) = mailbox else { return ReleasedMessages::new() };
        (mailbox.until_s, mailbox.fails) = (0, 0);
        if (turn.is_kept)(turn.state, no) {
            return self.due(turn);
        }
        mailbox.waiters.remove(no.0);
        mailbox.probe = Some(no);
        ReleasedMessages::from_slice(&[no])
    }

    /// Ends the message's role as the mailbox's probe, unless it is in flight.
    pub fn end_probe(&mut self, no: MessageNo, turn: &MailboxTurn<'_, impl IsKept>) -> ReleasedMessages {
        if turn.state.messages.get(no).is_some_and(|active| active.in_flight.contains(turn.id.0)) {
            return ReleasedMessages::new();
        }
        let Some(mailbox) = self.list.get_mut(&turn.id).filter(|m| m.probe == Some(no)) else {
            return ReleasedMessages::new();
        };
        mailbox.probe = None;
        self.due(turn)
    }

    /// Called when the recipient of this message is finished, or waits for something other than its mailbox. If it was
    /// the probe, or no clock runs, the other waiting messages may be tried.
    pub fn release(&mut self, no: MessageNo, id: AddressId, now: Ms) -> Option<IdSet> {
        if self.list.is_empty() {
            return None;
        }
        let mailbox = self.list.get(&id)?;
        if !mailbox.probe.map_or(u64::from(mailbox.until_s) * 1_000 <= now, |probe| probe == no) {
            return None;
        }
        self.list.remove(&id).map(|mailbox| mailbox.waiters)
    }

    /// Records that the mailbox has taken the message: its strikes end and, once the message is released, so does its
    /// clock, even if another message has just set one. Returns the waiting messages.
    pub fn succeeded(&mut self, no: MessageNo, id: AddressId) -> Option<&IdSet> {
        self.end_strikes(id);
        let mailbox = self.list.get_mut(&id)?;
        mailbox.probe = Some(no);
        Some(&mailbox.waiters)
    }
}
