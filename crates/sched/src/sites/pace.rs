//! Rates of messages at a site from one source, per second, minute and hour: configured limits, and limits learned from
//! replies.
//!
//! No period of a configured limit has more messages than the limit. Limits up to [`SPACED_MAX`] space messages evenly,
//! as fast as the limit allows. Higher limits are token buckets of a fiftieth of the limit, by which the rate is
//! reduced. A rate reply ("450 ... rate limited") teaches a rate: the number of messages that the host took within the
//! last minute. From then on mail is paced; the rate rises by `GROW` after `GROW_AFTER_MS` without a refusal and falls
//! by `SHRINK` after one. A refusal pauses mail until all messages of the last minute are a minute old. If the host
//! refuses again without having taken any, the pause doubles, up to an hour. So limits over any period are found, with
//! one probe at a time.

use stentor_queue::ids::Ms;

use crate::kept::PaceMemory;

const SECOND_MS: Ms = 1_000;
const MINUTE_MS: Ms = 60 * SECOND_MS;
const HOUR_MS: Ms = 60 * MINUTE_MS;
const GROW_AFTER_MS: Ms = 10 * MINUTE_MS;
const GROW: f64 = 1.01;
const SHRINK: f64 = 0.97;
const PAUSE_MS_MIN: Ms = 2 * SECOND_MS;
const SLOTS: usize = 12;
/// Limits up to this one allow no bursts.
const SPACED_MAX: u32 = 50;
const SLOT_MS: Ms = MINUTE_MS / SLOTS as Ms;

#[derive(Clone, Copy)]
struct Bucket {
    per_ms: f64,
    capacity: f64,
    tokens: f64,
    at: Ms,
}

impl Bucket {
    fn new(limit: u32, window_ms: Ms, now: Ms) -> Bucket {
        let limit = f64::from(limit);
        let capacity = (limit / f64::from(SPACED_MAX)).max(1.0);
        // With messages this far apart, a window that begins with one ends before the one that would be too many.
        let per_window = if capacity > 1.0 { limit - capacity } else { limit };
        let per_ms = per_window / window_ms as f64;
        Bucket { per_ms, capacity, tokens: capacity, at: now }
    }

    /// The bucket with the tokens gained since.
    fn filled(self, now: Ms) -> Bucket {
        let passed = now.saturating_sub(self.at) as f64;
        Bucket { tokens: (self.tokens + passed * self.per_ms).min(self.capacity), at: now, ..self }
    }

    /// When a token will be there, if there is none now.
    fn wait(&self, now: Ms) -> Option<Ms> {
        (self.tokens < 1.0).then(|| now + ((1.0 - self.tokens) / self.per_ms).ceil().max(1.0) as Ms)
    }
}

#[derive(Default)]
pub(crate) struct Pace {
    given: [Option<Bucket>; 3],
    learned: Option<Bucket>,
    /// Messages taken: slot number and count, for the last minute.
    taken: [(Ms, u32); SLOTS],
    pause_until: Ms,
    pause_ms: Ms,
    /// When the last refusal or growth happened.
    changed_at: Ms,
    taken_since_pause: bool,
}

impl Pace {
    /// Sets configured limits: messages per second, minute, hour.
    pub fn give(&mut self, limits: [Option<u32>; 3], now: Ms) {
        for (bucket, (limit, window)) in
            self.given.iter_mut().zip(limits.into_iter().zip([SECOND_MS, MINUTE_MS, HOUR_MS]))
        {
            *bucket = limit.map(|limit| Bucket::new(limit, window, now));
        }
    }

    /// When the next message may go, if not now.
    pub fn wait(&self, now: Ms) -> Option<Ms> {
        if self.pause_until > now {
            return Some(self.pause_until);
        }
        self.given.iter().chain([&self.learned]).flatten().filter_map(|bucket| bucket.filled(now).wait(now)).max()
    }

    /// Counts a message that goes.
    pub fn go(&mut self, now: Ms) {
        for bucket in self.given.iter_mut().chain([&mut self.learned]).flatten() {
            *bucket = bucket.filled(now);
            bucket.tokens -= 1.0;
        }
    }

    pub fn took(&mut self, now: Ms) {
        let slot = now / SLOT_MS;
        let entry = &mut self.taken[slot as usize % SLOTS];
        *entry = if entry.0 == slot { (slot, entry.1 + 1) } else { (slot, 1) };
        self.taken_since_pause = true;
        if let Some(bucket) = &mut self.learned
            && now.saturating_sub(self.changed_at) >= GROW_AFTER_MS
        {
            *bucket = bucket.filled(now);
            bucket.per_ms *= GROW;
            self.changed_at = now;
        }
    }

    fn taken_within_a_minute(&self, now: Ms) -> (u32, Ms) {
        let first = (now / SLOT_MS).saturating_sub(SLOTS as Ms - 1);
        let recent = self.taken.iter().filter(|(slot, count)| *slot >= first && *count > 0);
        let oldest = recent.clone().map(|(slot, _)| slot * SLOT_MS).min().unwrap_or(now);
        (recent.map(|(_, count)| count).sum(), oldest)
    }

    /// Handles a rate reply. At least `taken` messages were taken lately.
    pub fn refused(&mut self, taken: u32, now: Ms) {
        if self.pause_until > now {
            return; // concurrent attempts
        }
        let (counted, oldest) = self.taken_within_a_minute(now);
        let taken = counted.max(taken);
        match &mut self.learned {
            None => {
                let mut bucket = Bucket::new(taken.max(2), MINUTE_MS, now);
                bucket.capacity = bucket.capacity.min(2.0);
                self.learned = Some(bucket);
            }
            Some(bucket) if self.taken_since_pause => bucket.per_ms *= SHRINK,
            Some(_) => {}
        }
        if let Some(bucket) = &mut self.learned {
            (bucket.tokens, bucket.at) = (0.0, now);
        }
        self.pause_ms = if self.taken_since_pause || self.pause_ms == 0 {
            PAUSE_MS_MIN.max(oldest.saturating_add(MINUTE_MS).saturating_sub(now).min(MINUTE_MS))
        } else {
            (self.pause_ms * 2).min(HOUR_MS)
        };
        // The minute at the learned rate is nearly used up all the time, so a short pause is enough.
        if self.changed_at > 0 && self.taken_since_pause {
            self.pause_ms = PAUSE_MS_MIN;
        }
        (self.pause_until, self.changed_at, self.taken_since_pause) = (now + self.pause_ms, now, false);
    }

    /// Whether a refusal followed a pause, and nothing was taken in between.
    pub fn is_refused_again(&self) -> bool {
        self.pause_ms > MINUTE_MS && !self.taken_since_pause
    }

    /// Whether the pause after such a refusal still runs.
    pub fn is_paused_again(&self, now: Ms) -> bool {
        self.is_refused_again() && self.pause_until > now
    }

    /// Messages allowed per minute, as far as is known.
    pub fn per_minute(&self) -> Option<f64> {
        let rates = self.given.iter().chain([&self.learned]).flatten().map(|b| b.per_ms * MINUTE_MS as f64);
        rates.min_by(f64::total_cmp)
    }

    /// The rate learned from replies, if any.
    pub fn memory(&self) -> Option<PaceMemory> {
        self.learned.map(|Bucket { per_ms, capacity, .. }| PaceMemory {
            per_ms,
            capacity,
            pause_until: self.pause_until,
            pause_ms: self.pause_ms,
            changed_at: self.changed_at,
            taken_since_pause: self.taken_since_pause,
        })
    }

    /// Restores the rate that an earlier run learned, without the messages that could have gone since.
    pub fn recall(&mut self, memory: PaceMemory, now: Ms) {
        let PaceMemory { per_ms, capacity, pause_until, pause_ms, changed_at, taken_since_pause } = memory;
        self.learned = Some(Bucket { per_ms, capacity: capacity.clamp(1.0, 2.0), tokens: 0.0, at: now });
        (self.pause_until, self.pause_ms) = (pause_until.min(now + HOUR_MS), pause_ms.min(HOUR_MS));
        (self.changed_at, self.taken_since_pause) = (changed_at.min(now), taken_since_pause);
    }

    /// When the next message may go by the learned rate, if not now.
    pub fn taught_wait(&self, now: Ms) -> Option<Ms> {
        let learned = self.learned.as_ref().and_then(|bucket| bucket.filled(now).wait(now));
        self.paused_until(now).max(learned)
    }

    pub fn paused_until(&self, now: Ms) -> Option<Ms> {
        Some(self.pause_until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_sees_more_than_is_given() {
        let mut pace = Pace::default();
        pace.give([None, Some(100), Some(1_000)], 0);
        let (mut now, mut sent) = (0, Vec::new());
        while now < 2 * HOUR_MS {
            if let Some(until) = pace.wait(now) {
                now = until;
            } else {
                pace.go(now);
                sent.push(now);
            }
        }
        let most = |window: Ms| {
            (0..sent.len()).map(|i| sent[i..].iter().take_while(|at| **at < sent[i] + window).count()).max()
        };
        assert!(most(MINUTE_MS) <= Some(100) && most(HOUR_MS) <= Some(1_000), "{:?}", most(HOUR_MS));
        assert!(most(HOUR_MS) >= Some(950));
    }

    #[test]
    fn a_small_limit_is_reached_and_never_passed() {
        for limit in [1, 2, 3, 7, 49, 50, 51, 100] {
            let mut pace = Pace::default();
            pace.give([None, Some(limit), None], 0);
            let (mut now, mut sent) = (0, Vec::new());
            while now < 2 * HOUR_MS {
                if let Some(until) = pace.wait(now) {
                    now = until;
                } else {
                    pace.go(now);
                    sent.push(now);
                }
            }
            let most =
                (0..sent.len()).map(|i| sent[i..].iter().take_while(|at| **at < sent[i] + MINUTE_MS).count()).max();
            let (all, wanted) = (sent.len(), limit as usize * 120);
            assert!(most <= Some(limit as usize), "{most:?} in a minute by {limit} a minute");
            // Spaced messages lose less than a millisecond each; bursts reduce the rate.
            let least = if limit <= SPACED_MAX { wanted * 999 / 1_000 } else { wanted * 97 / 100 };
            assert!(all >= least, "{all} in two hours by {limit} a minute");
        }
    }

    #[test]
    fn a_refusal_that_follows_a_pause_doubles_it() {
        let mut pace = Pace::default();
        let mut now = HOUR_MS;
        for _ in 0..50 {
            pace.took(now);
        }
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pace.refused(0, now);
            let until = pace.wait(now).unwrap();
            pauses.push(until - now);
            now = until;
        }
        assert!(pauses[0] > 50_000, "the minute must pass: {pauses:?}");
        assert!(pauses.windows(2).all(|p| p[1] == (2 * p[0]).min(HOUR_MS)), "{pauses:?}");
    }
}
