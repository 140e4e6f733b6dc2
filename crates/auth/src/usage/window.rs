//! Counts of the last hour and day, in parts.

use stentor_mail::Ms;

use super::OverLimit;

pub(super) const HOUR_PARTS: usize = 13;
pub(super) const DAY_PARTS: usize = 25;
pub(super) const HOUR_PART_MS: u64 = 5 * 60_000;
pub(super) const DAY_PART_MS: u64 = 60 * 60_000;

/// Counts by part of a window, the newest at `now / part`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<const N: usize> {
    parts: [u32; N],
    /// Number of the newest part.
    newest: u64,
}

impl<const N: usize> Default for Window<N> {
    fn default() -> Self {
        Window { parts: [0; N], newest: 0 }
    }
}

impl<const N: usize> Window<N> {
    pub fn move_to(&mut self, part: u64) {
        if part.saturating_sub(self.newest) >= N as u64 {
            self.parts = [0; N];
            self.newest = part;
        }
        while self.newest < part {
            self.newest += 1;
            self.parts[(self.newest % N as u64) as usize] = 0;
        }
    }

    pub fn sum(&self) -> u32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Subtracts from the part that was counted in: a newer part would lose its count too early.
    pub fn take_back(&mut self, count: u32, from: u64) {
        if from <= self.newest && self.newest - from < N as u64 {
            let part = &mut self.parts[(from % N as u64) as usize];
            *part = part.saturating_sub(count);
        }
    }

    /// The reached limit, if the window has `max` or more; `part_ms`: a part's length.
    fn over(&self, max: u32, part_ms: u64, now: Ms) -> Option<FullWindow> {
        (self.sum() >= max).then(|| {
            let wait_ms = self.free_at(max, part_ms).map(|at| at.saturating_sub(now));
            FullWindow { max, wait_ms }
        })
    }

    /// When the window has fewer than `max`, if nothing is added. `None`: never.
    fn free_at(&self, max: u32, part_ms: u64) -> Option<Ms> {
        let (n, mut left) = (N as u64, self.sum());
        (self.newest.saturating_sub(n - 1)..=self.newest).find_map(|part| {
            left = left.saturating_sub(self.parts[(part % n) as usize]);
            (left < max).then_some((part + n) * part_ms)
        })
    }

    /// Numbers and counts of parts, oldest first.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u32)> {
        let n = N as u64;
        (self.newest.saturating_sub(n - 1)..=self.newest).map(move |part| (part, self.parts[(part % n) as usize]))
    }

    /// Adds to a part, if it is still in the window.
    pub fn add_to(&mut self, part: u64, count: u32) {
        if part <= self.newest && self.newest - part < N as u64 {
            let part = &mut self.parts[(part % N as u64) as usize];
            *part = part.saturating_add(count);
        }
    }
}

/// A full window.
struct FullWindow {
    max: u32,
    wait_ms: Option<Ms>,
}

/// Messages or recipients of a user.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UsageWindows {
    pub hour: Window<HOUR_PARTS>,
    pub day: Window<DAY_PARTS>,
}

impl UsageWindows {
    pub fn move_to(&mut self, now: Ms) {
        self.hour.move_to(now / HOUR_PART_MS);
        self.day.move_to(now / DAY_PART_MS);
    }

    /// Counts one, unless the hour or the day is full; if both are, returns the one that stays full longer. `what`: the
    /// unit, for the message.
    pub fn take(
        &mut self,
        what: &'static str,
        per_hour_max: Option<u32>,
        per_day_max: Option<u32>,
        now: Ms,
    ) -> Result<(), OverLimit> {
        let hour = per_hour_max.and_then(|max| self.hour.over(max, HOUR_PART_MS, now)).map(|over| (over, "hour"));
        let day = per_day_max.and_then(|max| self.day.over(max, DAY_PART_MS, now)).map(|over| (over, "day"));
        let lasting = hour.into_iter().chain(day).max_by_key(|(over, _)| over.wait_ms.unwrap_or(Ms::MAX));
        if let Some((FullWindow { max, wait_ms }, per)) = lasting {
            return Err(OverLimit { what, max, per, wait_ms });
        }
        self.hour.add_to(self.hour.newest, 1);
        self.day.add_to(self.day.newest, 1);
        Ok(())
    }
}
