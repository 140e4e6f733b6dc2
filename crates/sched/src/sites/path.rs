//! A path: one source's connections to a site, and their limits. It holds everything that a host counts by client
//! address: number of connections, transaction sizes, rates.
//!
//! **Concurrency** is additive increase, multiplicative decrease. An unproven path has one connection. As long as
//! nothing was refused, each success allows one more; after a refusal one more per round of the window. 421 to a new
//! connection sets the window to what works, for a time that doubles with each such refusal; a rate reply halves it, a
//! latency that has risen `SLOWER` times reduces it to seven tenths. It never snaps back. A site that is always slow (a
//! tarpit) has one connection.
//!
//! **Transactions in flight** on all connections together are at most `IN_FLIGHT_MIN` plus what the site has taken
//! lately: doubling per round trip, so that a limit is not met with hundreds of transactions in flight.

use smallvec::SmallVec;
use stentor_queue::ids::Ms;

use super::{HostNo, Slot};
use crate::config::SourceConfig;
use crate::kept::PathMemory;
use crate::sites::history::Gaps;
use crate::sites::pace::Pace;
use crate::time::Time;

/// A transaction's size at a site that has not refused one.
pub(crate) const RECIPIENTS_UNLIMITED: usize = usize::MAX;
const IN_FLIGHT_MIN: u32 = 4;
const IN_FLIGHT_CREDIT_MAX: u32 = 4_096;
/// From this many messages on, the number that a site takes within a minute is counted.
const COUNTED_FROM: u32 = 8;
/// Growth beyond a refused number of connections is tried again after this time, doubling.
const GROW_MS_MIN: Ms = 60_000;
const GROW_MS_MAX: Ms = 3_600_000;
/// Factor over the best known latency that counts as rising, and the latency from which it applies.
const SLOWER: u32 = 4;
const SLOWER_MS_MIN: u32 = 1_000;
/// A site that takes this long for an answer gets one connection.
const SLUGGISH_MS: u32 = 2_000;
const SLOWER_PAUSE_MS: Ms = 10_000;
const DAY_MS: Ms = 86_400_000;

pub(crate) struct Path {
    /// One host per target of the site.
    pub hosts: SmallVec<[HostNo; 1]>,
    /// Idle connections, the most recently used one last.
    pub idle: SmallVec<[Slot; 2]>,
    pub conns: usize,
    /// The connection that was opened or woken for its host's offers (`next_host`).
    pub offered_conn: Option<Slot>,
    /// Connections on their way to a `take_work`: connecting, woken, or between two transactions.
    pub coming: usize,
    /// Connections that have greeted us.
    pub greeted: usize,
    /// Connections in the slow lane, which count in no window.
    pub silent: usize,
    /// Silent connections that are still connecting.
    pub silent_coming: usize,
    /// Whether a transaction has succeeded since the last trouble; until then it gets one connection.
    pub proven: bool,
    window: f32,
    /// Nothing has been refused so far: the window grows with each success.
    slow_start: bool,
    /// The window does not grow before this time.
    grow_at: Ms,
    grow_ms: Ms,
    /// Learned from 452 4.5.3, or offered (RFC 9422).
    pub recipients_max: usize,
    /// Learned from a 421 after that many transactions, or offered.
    pub transactions_max: u32,
    /// Since when a snapshot has had such a limit; 0 without one.
    limits_at: Ms,
    /// "Too many messages" was not a limit of a session: the next session was refused as well.
    pub counts_all_sessions: bool,
    /// Transactions in flight.
    pub in_flight: u32,
    credit: u32,
    pub pace: Option<Box<Pace>>,
    pub gaps: Gaps,
    latency_ms: u32,
    best_ms: u32,
    slower_at: Ms,
    /// The day of the source's warm-up, and the messages sent on it.
    warm: (u32, u32),
}

impl Path {
    pub fn new(hosts: SmallVec<[HostNo; 1]>) -> Path {
        Path {
            hosts,
            idle: SmallVec::new(),
            conns: 0,
            offered_conn: None,
            coming: 0,
            greeted: 0,
            silent: 0,
            silent_coming: 0,
            proven: false,
            window: 1.0,
            slow_start: true,
            grow_at: 0,
            grow_ms: GROW_MS_MIN,
            recipients_max: RECIPIENTS_UNLIMITED,
            transactions_max: u32::MAX,
            limits_at: 0,
            counts_all_sessions: false,
            in_flight: 0,
            credit: 0,
            pace: None,
            gaps: Gaps::default(),
            latency_ms: 0,
            best_ms: u32::MAX,
            slower_at: 0,
            warm: (0, 0),
        }
    }

    /// Connections that the path may have now, at most `max`; silent ones do not count.
    pub fn allowed(&self, max: usize, adapts: bool) -> usize {
        match (self.proven, adapts) {
            (false, _) => 1,
            // More connections would only use up the budget.
            (true, true) if self.latency_ms > SLUGGISH_MS => 1,
            (true, true) => (self.window as usize).clamp(1, max.max(1)),
            (true, false) => max.max(1),
        }
    }

    /// Whether one more transaction may begin.
    pub fn may_begin(&self) -> bool {
        self.in_flight < IN_FLIGHT_MIN + self.credit
    }

    /// Records a delivery.
    pub fn good(&mut self, max: usize, now: Ms) {
        self.proven = true;
        self.credit = (self.credit + 1).min(IN_FLIGHT_CREDIT_MAX);
        if self.credit >= COUNTED_FROM && self.pace.is_none() {
            self.pace = Some(Box::default());
        }
        if let Some(pace) = &mut self.pace {
            pace.took(now);
        }
        if now >= self.grow_at && (self.window as usize) < max && self.conns + 1 >= self.window as usize {
            self.window += if self.slow_start { 1.0 } else { 1.0 / self.window.max(1.0) };
        }
    }

    /// Records how long the site took for an answer.
    pub fn answered(&mut self, gap_ms: Ms, now: Ms) {
        self.gaps.add(gap_ms);
        let gap = gap_ms.min(Ms::from(u32::MAX / 8)) as u32;
        self.latency_ms = if self.latency_ms == 0 { gap } else { (self.latency_ms * 3 + gap) / 4 };
        self.best_ms = self.best_ms.min(gap.max(1));
        let slower = self.latency_ms > self.best_ms.saturating_mul(SLOWER).max(SLOWER_MS_MIN);
        if slower && now >= self.slower_at && self.greeted > 1 {
            self.slower_at = now + SLOWER_PAUSE_MS;
            self.shrink(0.7);
        }
    }

    fn shrink(&mut self, factor: f32) {
        let now = self.window.min(self.greeted.max(1) as f32);
        (self.window, self.slow_start) = ((now * factor).max(1.0), false);
    }

    /// Records that no more connections than `working` are accepted.
    pub fn crowded(&mut self, working: usize, now: Ms) {
        (self.window, self.slow_start) = (working.max(1) as f32, false);
        if now >= self.grow_at {
            self.grow_at = now + self.grow_ms;
            self.grow_ms = (self.grow_ms * 2).min(GROW_MS_MAX);
        }
    }

    /// Handles a rate reply.
    pub fn too_fast(&mut self, now: Ms) {
        let taken = self.credit.min(COUNTED_FROM);
        let pace = self.pace.get_or_insert_default();
        if pace.paused_until(now).is_none() {
            pace.refused(taken, now);
            self.shrink(0.5);
            self.credit /= 2;
        }
    }

    /// Marks the site as suspect: one connection until something succeeds, and growth from there.
    pub fn distrust(&mut self) {
        (self.proven, self.window, self.credit) = (false, 1.0, 0);
    }

    /// When the warm-up of its source lets the path send more, if not now.
    fn warm_up_wait(&self, source: &SourceConfig, time: Time, now: Ms) -> Option<Ms> {
        let day = time.wall(now).saturating_sub(source.since) / DAY_MS;
        let max = *source.warm_up_per_day.get(day as usize)?;
        (self.warm.0 == day as u32 && self.warm.1 >= max).then(|| time.steady(source.since + (day + 1) * DAY_MS))
    }

    /// Counts a message for the warm-up. `now` is wall-clock time.
    pub fn warm_up_sent(&mut self, source: &SourceConfig, now: Ms) {
        let day = (now.saturating_sub(source.since) / DAY_MS) as u32;
        self.warm = if self.warm.0 == day { (day, self.warm.1.saturating_add(1)) } else { (day, 1) };
    }

    /// When a transaction may begin, if the rate or the warm-up forbids it now.
    pub fn wait(&self, source: Option<&SourceConfig>, time: Time, now: Ms) -> Option<Ms> {
        let warm = source.and_then(|source| self.warm_up_wait(source, time, now));
        warm.max(self.pace.as_ref().and_then(|pace| pace.wait(now)))
    }

    /// The state that survives a restart, if anything was learned.
    pub fn memory(&mut self, now: Ms) -> Option<PathMemory> {
        let is_limited = self.recipients_max != RECIPIENTS_UNLIMITED || self.transactions_max != u32::MAX;
        self.limits_at = match self.limits_at {
            _ if !is_limited => 0,
            0 => now,
            known => known,
        };
        let pace = self.pace.as_ref().and_then(|pace| pace.memory());
        let window = (!self.slow_start && self.grow_ms > GROW_MS_MIN).then_some(self.window);
        let is_known = is_limited || pace.is_some() || window.is_some() || self.warm.1 > 0;
        is_known.then_some(PathMemory {
            window,
            grow_at: self.grow_at,
            grow_ms: self.grow_ms,
            recipients_max: self.recipients_max,
            transactions_max: self.transactions_max,
            limits_at: self.limits_at,
            warm: self.warm,
            pace,
        })
    }

    /// Restores an earlier run's knowledge. The path still has to prove itself again with one connection.
    pub fn recall(&mut self, memory: &PathMemory, now: Ms) {
        if let Some(window) = memory.window {
            (self.window, self.slow_start, self.grow_at) = (window, false, memory.grow_at);
            self.grow_ms = memory.grow_ms.clamp(GROW_MS_MIN, GROW_MS_MAX);
        }
        (self.recipients_max, self.transactions_max) = (memory.recipients_max.max(1), memory.transactions_max.max(1));
        (self.limits_at, self.warm) = (memory.limits_at, memory.warm);
        if let Some(pace) = memory.pace {
            self.pace.get_or_insert_default().recall(pace, now);
        }
    }

    /// Average latency of the last answers, 0 if none.
    pub fn latency_ms(&self) -> u32 {
        self.latency_ms
    }
}
