//! A host's refusals of a sender's domain at MAIL, and the mail of that domain that is worth a trial.
//!
//! The host may refuse the whole domain, one address of it, or a message (by its size, RFC 1870). It sees only what
//! MAIL carries: address, size, type of content. So mail of a refused address that is not smaller would be refused as
//! well, and waits for the clock. All other mail of the domain is worth a *trial* ahead of the clock, which shows
//! whether the refusal is about it.
//!
//! Trials are finite, [`TRIALS`] at once and as many again after each [`ROUND_MS`] of the first minute, and only a
//! delivery of the domain's mail by that host restores them. Each needs another address, a smaller message or another
//! type of content, so a host that refuses the domain sees few of them. When the clock runs out one message is the
//! *probe*.

use smallvec::SmallVec;
use stentor_queue::ids::{MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_queue::store::Store;

use crate::effects::SourceNo;
use crate::flows::FlowNo;
use crate::kept::KeptRefusal;
use crate::sites::HostNo;
use crate::sites::early::EarlyProbes;
use crate::state::SchedState;

/// Trials per round: hosts close sessions with 20 errors (Postfix).
const TRIALS: u8 = 16;
const ROUNDS: u8 = 6;
const ROUND_MS: Ms = 10_000;
/// Trials in one series of refusals.
const TRIALS_MAX: u8 = TRIALS * ROUNDS;
/// When the next probe may go if one has got no reply to MAIL.
const PROBE_MS: Ms = 60_000;
/// Number of messages that are remembered as refused.
const REFUSED_MAX: usize = 256;
/// Number of messages among which one is chosen.
const CHOICE_MAX: usize = 256;

/// Messages that wait, by flow and class.
pub type WaitingSets = SmallVec<[(FlowNo, usize, IdSet); 1]>;

/// Properties of a message that a host sees at MAIL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MailProfile {
    pub no: MessageNo,
    /// The sender's address and the type of the content, hashed.
    pub kind: u64,
    pub size: u64,
}

impl MailProfile {
    pub fn of(no: MessageNo, message: &Message) -> MailProfile {
        use std::hash::BuildHasher;
        let kind = (message.sender(), message.eight_bit(), message.smtputf8());
        MailProfile { no, kind: foldhash::fast::FixedState::default().hash_one(kind), size: message.size() }
    }

    /// Whether a host that refused the other message would refuse this one, too.
    pub fn is_like(&self, refused: &MailProfile) -> bool {
        self.kind == refused.kind && self.size >= refused.size
    }
}

/// A host's 4xx at MAIL to a sender.
pub struct MailRefusal {
    pub host: HostNo,
    /// End of the clock. While a probe is out: when the next one may go.
    pub until: Ms,
    /// Refusals in this series, without those of trials.
    pub fails: u8,
    /// Time of the series' first refusal.
    pub since: Ms,
    /// When the clock would have run out if no early probe had ended it.
    pub ended_early: Ms,
    pub early: EarlyProbes,
    pub is_probed: bool,
    /// Trials in this series.
    pub trials: u8,
    /// Refused mail, the last at the end.
    pub refused: Vec<MailProfile>,
    /// Waiting messages that may be worth a trial. Those that left are removed when they are found.
    pub candidates: IdSet,
}

impl MailRefusal {
    /// Restores a series after a restart.
    pub fn recalled(host: HostNo, kept: &KeptRefusal, refused: Vec<MailProfile>, now: Ms) -> MailRefusal {
        let (until, fails, trials) = (kept.until, kept.fails, kept.trials.min(TRIALS_MAX));
        let since = now.saturating_sub(ROUND_MS * Ms::from(trials / TRIALS));
        MailRefusal {
            until,
            fails,
            trials,
            refused,
            ..MailRefusal::new(host, EarlyProbes::NONE, &WaitingSets::new(), since)
        }
    }

    /// Starts a series whose clock is not set yet. `waiting`: waiting messages of the sender.
    pub fn new(host: HostNo, early: EarlyProbes, waiting: &WaitingSets, now: Ms) -> MailRefusal {
        let candidates = waiting.iter().fold(IdSet::new(), |all, (.., set)| all.union(set));
        let (refused, is_probed) = (Vec::new(), false);
        MailRefusal {
            host,
            until: 0,
            fails: 0,
            since: now,
            ended_early: 0,
            early,
            is_probed,
            trials: 0,
            refused,
            candidates,
        }
    }

    /// Number of trials allowed so far in this series.
    fn trials_max(&self, now: Ms) -> u8 {
        let rounds = (now.saturating_sub(self.since) / ROUND_MS).min(Ms::from(ROUNDS - 1)) as u8;
        TRIALS * (1 + rounds)
    }

    /// Whether a trial may go, ahead of the clock.
    pub fn may_try(&self, now: Ms) -> bool {
        self.trials < self.trials_max(now) && !self.candidates.is_empty()
    }

    /// Whether the probe or a trial may begin.
    pub fn may_attempt(&self, now: Ms) -> bool {
        self.until <= now || self.may_try(now)
    }

    /// Whether the host would refuse the message as it refused others.
    pub fn would_refuse(&self, mail: &MailProfile) -> bool {
        self.refused.iter().any(|refused| mail.is_like(refused))
    }

    /// Ends the clock since the host has accepted MAIL. If it refuses the next one, the clock goes on as it was.
    pub fn end_early(&mut self, now: Ms) {
        if self.until > now && !self.is_probed {
            self.ended_early = self.ended_early.max(self.until);
        }
        self.until = now;
    }

    pub fn note_waiting(&mut self, mail: &MailProfile) {
        if !self.would_refuse(mail) {
            self.candidates.insert(mail.no.0);
        }
    }

    pub fn note_refused(&mut self, mail: MailProfile) {
        self.refused.retain(|refused| refused.no != mail.no);
        self.refused.push(mail);
        if self.refused.len() > REFUSED_MAX {
            self.refused.remove(0);
        }
    }

    /// Charges the attempt that begins now: a probe if the clock has run out, otherwise a trial. Returns when to look
    /// at the series again.
    pub fn begin(&mut self, now: Ms) -> Option<Ms> {
        if self.until <= now {
            (self.until, self.is_probed) = (now + PROBE_MS, true);
            return Some(self.until);
        }
        self.trials = self.trials.saturating_add(1);
        let is_round_over = self.trials == self.trials_max(now) && self.trials < TRIALS_MAX;
        is_round_over.then(|| self.since + ROUND_MS * Ms::from(self.trials / TRIALS))
    }

    /// Chooses the message for a trial or the probe. A probe alternates between an untried message and the one refused
    /// longest ago: the first so that refused ones do not crowd it out, the second for hosts that greylist. Also
    /// returns its index in `waiting`. `came_back`: whether a message has returned from the site before.
    pub fn choose(
        &mut self,
        state: &mut SchedState,
        store: &Store,
        waiting: &WaitingSets,
        source: SourceNo,
        came_back: impl Fn(MessageNo) -> bool,
        now: Ms,
    ) -> Option<(usize, MessageNo)> {
        let SchedState { flows, rng, .. } = state;
        let may = |flow| flows.get(flow).sources.has(source);
        let find = |no: MessageNo| waiting.iter().position(|(flow, _, set)| set.contains(no.0) && may(*flow));
        let is_probe = self.until <= now;
        if is_probe {
            // Other hosts may have taken many.
            let still = |set: &IdSet| set.intersection(&self.candidates);
            self.candidates = waiting.iter().fold(IdSet::new(), |all, (.., set)| all.union(&still(set)));
        }
        let longest_ago = self.refused.iter().find_map(|refused| Some((find(refused.no)?, refused.no)));
        if is_probe && self.fails.is_multiple_of(2) && longest_ago.is_some() {
            return longest_ago;
        }
        let best = self.best_candidate(rng, store, |no| find(no).is_some(), came_back);
        if let Some(no) = best {
            return Some((find(no)?, no));
        }
        let is_untried = |no: &u32| self.refused.iter().all(|refused| refused.no.0 != *no);
        let mut sets = waiting.iter().enumerate().filter(|(_, (flow, ..))| is_probe && may(*flow));
        let untried = sets.find_map(|(at, (.., set))| Some((at, MessageNo(from_random(set, rng)?.find(is_untried)?))));
        untried.or(longest_ago).filter(|_| is_probe)
    }

    /// The message whose trial shows most: one that never came back before others; the smallest, unless the host has
    /// refused one that is as small; otherwise any.
    fn best_candidate(
        &mut self,
        rng: &mut fastrand::Rng,
        store: &Store,
        is_here: impl Fn(MessageNo) -> bool,
        came_back: impl Fn(MessageNo) -> bool,
    ) -> Option<MessageNo> {
        let some: Vec<u32> = from_random(&self.candidates, rng)?.take(CHOICE_MAX).collect();
        let least = self.refused.iter().map(|refused| refused.size).min().unwrap_or(0);
        let mut best: Option<((bool, u64, u32), MessageNo)> = None;
        for no in some.into_iter().map(MessageNo) {
            let mail = store.message(no).filter(|_| is_here(no)).map(|message| MailProfile::of(no, message));
            let Some(mail) = mail.filter(|mail| !self.would_refuse(mail)) else {
                self.candidates.remove(no.0);
                continue;
            };
            let rank = (came_back(no), if mail.size < least { mail.size } else { u64::MAX }, rng.u32(..));
            if best.is_none_or(|(of_best, _)| rank < of_best) {
                best = Some((rank, no));
            }
        }
        let (_, no) = best?;
        self.candidates.remove(no.0);
        Some(no)
    }
}

/// Iterates over all ids, from a random one, and wraps around. `None` if the set is empty.
fn from_random<'a>(set: &'a IdSet, rng: &mut fastrand::Rng) -> Option<impl Iterator<Item = u32> + use<'a>> {
    Some(set.iter_around(rng.u32(set.min()?..=set.max()?)))
}
