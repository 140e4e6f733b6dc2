//! Rows of `realstat`: each shows an interval as time, hourly rate, count and bars on one scale.
//!
//! ```text
//! 09:00:45     2160/     9 *--
//! ```
//!
//! Promise: a row depends only on its interval and the scale. The scale starts at one recipient per mark and grows in
//! steps of 1, 2, 5, 10, ... until the interval fits; it never shrinks, so that rows can be compared. Anything above
//! zero has at least one mark.

use crate::record::{Ms, Record, Stat};

/// Length of the longest bar in marks, unless the caller knows the width.
pub const BAR_COLUMNS: usize = 48;
/// Largest number of empty intervals shown for a gap in a log; a longer gap is skipped.
const GAP_ROWS_MAX: u64 = 5_760;

/// Outcomes of attempts in an interval, in recipients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// When the interval ended.
    pub at: Ms,
    pub interval_ms: u64,
    pub delivered: u64,
    /// Recipients that failed attempts or failed sessions did not deliver.
    pub failed: u64,
}

impl Interval {
    /// Deliveries per hour at this rate.
    pub fn per_hour(&self) -> u64 {
        per_hour(self.delivered, self.interval_ms)
    }
}

/// Rate per hour, from a count and a duration.
pub fn per_hour(count: u64, interval_ms: u64) -> u64 {
    let scaled = u128::from(count) * 3_600_000 / u128::from(interval_ms.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Number of recipients that a mark stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    per_mark: u64,
    columns: usize,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale::new(BAR_COLUMNS)
    }
}

impl Scale {
    /// Creates a scale for bars of at most this many marks.
    pub fn new(columns: usize) -> Scale {
        Scale { per_mark: 1, columns: columns.max(2) }
    }

    pub fn per_mark(&self) -> u64 {
        self.per_mark
    }

    /// Grows until the interval fits. Returns whether it grew.
    pub fn fit(&mut self, interval: &Interval) -> bool {
        let before = self.per_mark;
        while self.marks(interval.delivered).saturating_add(self.marks(interval.failed)) > self.columns as u64 {
            self.per_mark = next_step(self.per_mark);
        }
        self.per_mark != before
    }

    fn marks(&self, count: u64) -> u64 {
        count.div_ceil(self.per_mark)
    }

    /// The bar: `*` for delivered, `-` for failed; cut at the columns if the interval was never fitted.
    pub fn bar(&self, interval: &Interval) -> String {
        let delivered = self.marks(interval.delivered).min(self.columns as u64) as usize;
        let failed = self.marks(interval.failed).min((self.columns - delivered) as u64) as usize;
        "*".repeat(delivered) + &"-".repeat(failed)
    }

    /// A line that explains the rows: the zone of their times, and the scale.
    pub fn legend(&self, zone: &str) -> String {
        format!(
            "# time {zone}, deliveries per hour/delivered; * = {0} delivered, - = {0} failed attempts",
            self.per_mark
        )
    }
}

/// The next step of 1, 2, 5, 10, 20, 50, ...
fn next_step(step: u64) -> u64 {
    let mut power = 1;
    while step / power >= 10 {
        power *= 10;
    }
    match step / power {
        2 => power.saturating_mul(5),
        5 => power.saturating_mul(10),
        _ => step.saturating_mul(2),
    }
}

/// One row, without a line end. `offset_s`: seconds east of Greenwich of the displayed clock.
pub fn row(interval: &Interval, scale: &Scale, offset_s: i64) -> String {
    let (time, rate, delivered) = (clock(interval.at, offset_s), interval.per_hour(), interval.delivered);
    let row = format!("{time} {rate:>8}/{delivered:>6} {}", scale.bar(interval));
    row.trim_end().to_owned()
}

/// Formats the time as `09:00:45`.
pub fn clock(at: Ms, offset_s: i64) -> String {
    let s = (i64::try_from(at / 1000).unwrap_or(i64::MAX / 2) + offset_s).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// Makes intervals out of records, from a log that is read or followed.
#[derive(Clone, Debug)]
pub struct Fold {
    interval_ms: u64,
    /// Where the open interval begins, a multiple of its length; `None` before the first record.
    begin: Option<Ms>,
    delivered: u64,
    failed: u64,
}

impl Fold {
    pub fn new(interval_ms: u64) -> Fold {
        Fold { interval_ms: interval_ms.max(1), begin: None, delivered: 0, failed: 0 }
    }

    /// Counts an attempt; `closed` gets the intervals that end before it. Late records count in the open interval.
    pub fn add(&mut self, record: &Record<'_>, closed: &mut dyn FnMut(Interval)) {
        let Record::Attempt(attempt) = record else { return };
        let recipients = attempt.to.len().max(1) as u64;
        let (delivered, failed) = match attempt.stat {
            Stat::Sent => (recipients, 0),
            // Recipients that are given up had an attempt with its own line.
            Stat::Deferred | Stat::Bounced if attempt.mailer != "bounce" => (0, recipients),
            _ => return,
        };
        self.until(attempt.at, closed);
        self.begin.get_or_insert(attempt.at - attempt.at % self.interval_ms);
        self.delivered += delivered;
        self.failed += failed;
    }

    /// Closes the intervals that have finished by `now`.
    pub fn until(&mut self, now: Ms, closed: &mut dyn FnMut(Interval)) {
        let mut rows = 0;
        while let Some(begin) = self.begin
            && now >= begin.saturating_add(self.interval_ms)
        {
            closed(self.close(begin));
            rows += 1;
            let next = if rows < GAP_ROWS_MAX { begin + self.interval_ms } else { now - now % self.interval_ms };
            self.begin = Some(next);
        }
    }

    /// Returns the open interval so far.
    pub fn finish(&mut self) -> Option<Interval> {
        self.begin.take().map(|begin| self.close(begin))
    }

    fn close(&mut self, begin: Ms) -> Interval {
        let (delivered, failed) = (std::mem::take(&mut self.delivered), std::mem::take(&mut self.failed));
        Interval { at: begin + self.interval_ms, interval_ms: self.interval_ms, delivered, failed }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::record::Attempt;

    fn interval(delivered: u64, failed: u64) -> Interval {
        Interval { at: 9 * 3_600_000 + 45_000, interval_ms: 15_000, delivered, failed }
    }

    #[test]
    fn rows_are_as_the_ancestors_were() {
        let mut scale = Scale::new(20);
        assert!(!scale.fit(&interval(9, 2)));
        assert_eq!(row(&interval(9, 2), &scale, 0), "09:00:45     2160/     9 *********--");
        assert_eq!(row(&interval(0, 0), &scale, 0), "09:00:45        0/     0");
        assert!(scale.fit(&interval(90, 4)), "it grows");
        assert_eq!(scale.per_mark(), 5);
        assert_eq!(row(&interval(9, 1), &scale, 3_600), "10:00:45     2160/     9 **-");
        assert!(!scale.fit(&interval(1, 0)), "it never shrinks");
        assert_eq!(scale.bar(&interval(u64::MAX, u64::MAX)).len(), 20);
        assert!(scale.fit(&interval(u64::MAX, u64::MAX)));
    }

    #[test]
    fn steps_are_one_two_five() {
        let steps: Vec<u64> = std::iter::successors(Some(1), |step| Some(next_step(*step))).take(8).collect();
        assert_eq!(steps, [1, 2, 5, 10, 20, 50, 100, 200]);
    }

    #[test]
    fn a_log_becomes_intervals() {
        let mut fold = Fold::new(15_000);
        let mut rows = Vec::new();
        let mut add = |at, stat, mailer| {
            let attempt = Attempt { at, stat, mailer, to: smallvec!["a", "b"], ..Attempt::default() };
            fold.add(&Record::Attempt(attempt), &mut |row| rows.push((row.at, row.delivered, row.failed)));
        };
        add(31_000, Stat::Sent, "esmtp");
        add(44_999, Stat::Deferred, "esmtp");
        add(44_999, Stat::Bounced, "bounce");
        add(29_000, Stat::Sent, "esmtp"); // late
        add(75_000, Stat::Sent, "esmtp");
        let last = fold.finish().map(|row| (row.at, row.delivered));
        assert_eq!(rows, [(45_000, 4, 2), (60_000, 0, 0), (75_000, 0, 0)]);
        assert_eq!((last, fold.finish()), (Some((90_000, 2)), None));
    }

    #[test]
    fn a_year_without_mail_is_not_a_million_rows() {
        let mut fold = Fold::new(15_000);
        let mut rows = 0;
        for at in [0, 365 * 86_400_000] {
            let attempt = Attempt { at, to: smallvec!["a"], ..Attempt::default() };
            fold.add(&Record::Attempt(attempt), &mut |_| rows += 1);
        }
        assert_eq!(rows, GAP_ROWS_MAX);
        assert_eq!(fold.finish().map(|row| row.at), Some(365 * 86_400_000 + 15_000));
    }
}
