//! Types for the state that survives a restart, and the text that holds it. `learned` fills and restores them.

pub mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use stentor_queue::ids::Ms;

use crate::reasons::Reason;
use crate::time::Time;
use text::{Fields, Line};

/// How much of a stop counts towards the time for which a subscriber was refused.
const STOP_COUNTED_MS: Ms = 24 * 3_600_000;

/// A learned rate, kept over a restart. Steady times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PaceMemory {
    pub per_ms: f64,
    pub capacity: f64,
    pub pause_until: Ms,
    pub pause_ms: Ms,
    pub changed_at: Ms,
    pub taken_since_pause: bool,
}

/// The longest pause that a learned rate may have.
const PAUSE_MS_MAX: Ms = 3_600_000;

/// Learned facts about a path. Steady times.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PathMemory {
    /// Window of connections, if the site has refused some.
    pub window: Option<f32>,
    pub grow_at: Ms,
    pub grow_ms: Ms,
    pub recipients_max: usize,
    pub transactions_max: u32,
    /// Since when there have been such limits.
    pub limits_at: Ms,
    pub warm: (u32, u32),
    pub pace: Option<PaceMemory>,
}

impl PathMemory {
    pub(crate) fn write(&self, line: Line<'_>, time: Time) {
        let wall = |at: Ms| if at == 0 { 0 } else { time.wall(at) };
        let line = line.word(self.window.unwrap_or(0.0)).word(wall(self.grow_at)).word(self.grow_ms);
        let line = line.word(self.recipients_max).word(self.transactions_max).word(wall(self.limits_at));
        let line = line.word(self.warm.0).word(self.warm.1);
        match self.pace {
            None => line.word(0).end(),
            Some(pace) => line
                .word(pace.per_ms)
                .word(pace.capacity)
                .word(wall(pace.pause_until))
                .word(pace.pause_ms)
                .word(wall(pace.changed_at))
                .word(pace.taken_since_pause)
                .end(),
        }
    }

    pub(crate) fn read(fields: &mut Fields<'_>, gap: Gap, now: Ms) -> Option<PathMemory> {
        let past = |at: Ms| if at == 0 { 0 } else { now.saturating_sub(gap.now.saturating_sub(at)) };
        let window = fields.word::<f32>().filter(|window| window.is_finite())?;
        let grow_at = now + gap.left(fields.word()?, PAUSE_MS_MAX);
        let grow_ms = fields.word()?;
        let (recipients_max, transactions_max, limits_at) = (fields.word()?, fields.word()?, past(fields.word()?));
        let warm = (fields.word()?, fields.word()?);
        let per_ms = fields.word::<f64>().filter(|rate| rate.is_finite() && *rate >= 0.0)?;
        let mut pace = None;
        if per_ms > 0.0 {
            let capacity = fields.word::<f64>().filter(|capacity| capacity.is_finite())?;
            let pause_until = now + gap.left(fields.word()?, PAUSE_MS_MAX);
            let (pause_ms, changed_at) = (fields.word()?, past(fields.word()?));
            let taken_since_pause = fields.word()?;
            pace = Some(PaceMemory { per_ms, capacity, pause_until, pause_ms, changed_at, taken_since_pause });
        }
        let window = Some(window).filter(|window| *window >= 1.0);
        Some(PathMemory { window, grow_at, grow_ms, recipients_max, transactions_max, limits_at, warm, pace })
    }

    /// Drops the limits, which are then learned anew.
    pub(crate) fn forget_limits(&mut self) {
        (self.recipients_max, self.transactions_max, self.limits_at) = (usize::MAX, u32::MAX, 0);
    }
}

/// When a text was written, and now; wall-clock times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub written: Ms,
    pub now: Ms,
}

impl Gap {
    /// The time since the text was written, by a clock that may have been set.
    fn passed(self) -> Ms {
        self.now.saturating_sub(self.written)
    }

    /// The time left of a clock that was to end at `until`, at most `max_ms`.
    pub fn left(self, until: Ms, max_ms: Ms) -> Ms {
        until.saturating_sub(self.written).saturating_sub(self.passed()).min(max_ms)
    }

    /// How long ago a count began that started at `since`.
    pub fn age(self, since: Ms) -> Ms {
        self.written.saturating_sub(since) + self.passed().min(STOP_COUNTED_MS)
    }
}

/// A retry clock; steady times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct KeptClock {
    pub until: Ms,
    pub fails: u8,
    pub reason: Reason,
}

/// A host that no site has used since the start.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeptHost {
    pub clock: KeptClock,
    pub retries: u8,
    pub pauses: u8,
    pub paused_ms: Ms,
    pub conns_max: usize,
    pub grow_at: Ms,
    /// When it was last used.
    pub used: Ms,
}

/// A deferral at a site that is not known yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeptDeferral {
    pub key: KeptKey,
    pub clock: KeptClock,
    pub returns: u8,
    /// Refusals of a sender.
    pub refusals: Vec<KeptRefusal>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeptRefusal {
    pub host: Box<str>,
    pub until: Ms,
    pub fails: u8,
    pub trials: u8,
    /// Refused mail: queue id, address and type of content (hashed), size.
    pub refused: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeptKey {
    /// A message, by its queue id.
    Message(u64),
    /// A sender's domain, hashed.
    Sender(u64),
}

/// State kept for sites and hosts that nothing has needed yet.
#[derive(Default)]
pub(crate) struct DormantState {
    pub hosts: BTreeMap<Box<str>, KeptHost>,
    /// Learned facts by site and source, and when they were written.
    pub paths: BTreeMap<(Arc<str>, Box<str>), (PathMemory, Ms)>,
    pub deferrals: BTreeMap<Arc<str>, Vec<KeptDeferral>>,
}
