//! Delivery history of a mailbox and of a domain's hosts: a few bytes each, never needed for correctness.
//!
//! Promise: reads no clock and allocates nothing; an update takes some nanoseconds. Counts halve every
//! [`HALF_LIFE_MS`], and timestamps show the age. Checkpoints keep history, and the log receives changes between them
//! once a minute (`store/histories.rs`).
//!
//! Delays are kept on a logarithmic scale (eight steps an octave, 7 to 12 % apart), where an average moves by a
//! fraction of the difference, so a single slow answer hardly moves it.

use crate::codec::Reader;
use crate::event::EventError;
use crate::ids::Ms;

/// 2020-01-01T00:00:00Z.
const EPOCH_MS: Ms = 1_577_836_800_000;
/// Unit of a mailbox's times: 65,535 of them are 29 years.
pub const SLOT_MS: Ms = 4 * 3_600_000;
const MINUTE_MS: Ms = 60_000;
/// Time in which counts of successes and failures at a domain halve.
pub const HALF_LIFE_MS: Ms = 7 * 24 * 3_600_000;
/// Fraction bits of counts.
const COUNT_BITS: u32 = 8;
/// Fraction bits of a domain's averages and quantiles, below a step of the scale.
const FINE_BITS: u32 = 6;
/// Of 100 answers, one is slower than the stored quantile.
const QUANTILE_UP: u16 = 99;

/// The slot of an instant; 0 is "never".
pub fn slot(at: Ms) -> u16 {
    let slots = at.saturating_sub(EPOCH_MS) / SLOT_MS + 1;
    slots.min(Ms::from(u16::MAX)) as u16
}

fn slot_ms(slot: u16) -> Option<Ms> {
    (slot > 0).then(|| EPOCH_MS + Ms::from(slot - 1) * SLOT_MS)
}

/// Converts milliseconds to a step of the scale, from 1 on.
fn step(ms: Ms) -> u8 {
    let ms = (ms + 8).min(1 << 31);
    let exponent = ms.ilog2();
    let mantissa = (ms >> (exponent - 3)) & 7;
    ((u64::from(exponent) - 3) * 8 + mantissa + 1) as u8
}

/// The lower end of a step.
fn step_ms(step: u8) -> Ms {
    let step = Ms::from(step.saturating_sub(1));
    ((8 + step % 8) << (step / 8)) - 8
}

/// How the last attempt at a mailbox ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum LastOutcome {
    #[default]
    Untried = 0,
    Delivered = 1,
    /// A temporary failure.
    Deferred = 2,
    /// A permanent failure.
    Refused = 3,
}

impl LastOutcome {
    pub fn name(self) -> &'static str {
        match self {
            LastOutcome::Untried => "untried",
            LastOutcome::Delivered => "delivered",
            LastOutcome::Deferred => "deferred",
            LastOutcome::Refused => "refused",
        }
    }

    /// A code of a later version reads as if there had been no attempt.
    fn of(code: u8) -> LastOutcome {
        match code {
            1 => LastOutcome::Delivered,
            2 => LastOutcome::Deferred,
            3 => LastOutcome::Refused,
            _ => LastOutcome::Untried,
        }
    }
}

/// The history of one address: 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MailboxHistory {
    seen: u16,
    refused_since: u16,
    refusals: u8,
    xdelay: u8,
    last: LastOutcome,
    deliveries: u8,
}

impl MailboxHistory {
    /// Size in a record.
    pub const BYTES: usize = 8;

    /// When a message last named the address or it was last tried, to [`SLOT_MS`].
    pub fn last_seen(self) -> Option<Ms> {
        slot_ms(self.seen)
    }

    pub(super) fn seen_slot(self) -> u16 {
        self.seen
    }

    /// Average duration of an attempt that delivered, ms (sendmail's xdelay).
    pub fn xdelay_ms(self) -> Option<Ms> {
        (self.xdelay > 0).then(|| step_ms(self.xdelay))
    }

    /// Permanent refusals since the last delivery, at most 255.
    pub fn refusals(self) -> u8 {
        self.refusals
    }

    /// When the first of those refusals was, to [`SLOT_MS`].
    pub fn refused_since(self) -> Option<Ms> {
        slot_ms(self.refused_since)
    }

    /// Number of known deliveries, at most 255.
    pub fn deliveries(self) -> u8 {
        self.deliveries
    }

    pub fn last(self) -> LastOutcome {
        self.last
    }

    /// Records that the address was seen. Returns whether that is news.
    pub(super) fn saw(&mut self, now: Ms) -> bool {
        let slot = slot(now);
        let is_news = slot > self.seen;
        self.seen = self.seen.max(slot);
        is_news
    }

    pub(super) fn delivered(&mut self, now: Ms, xdelay_ms: Ms) {
        self.saw(now);
        let new = step(xdelay_ms);
        self.xdelay = if self.xdelay == 0 { new } else { towards(self.xdelay, new) };
        (self.refusals, self.refused_since) = (0, 0);
        self.deliveries = self.deliveries.saturating_add(1);
        self.last = LastOutcome::Delivered;
    }

    pub(super) fn refused(&mut self, now: Ms, permanent: bool) {
        self.saw(now);
        self.last = if permanent { LastOutcome::Refused } else { LastOutcome::Deferred };
        if permanent {
            self.refusals = self.refusals.saturating_add(1);
            if self.refused_since == 0 {
                self.refused_since = slot(now);
            }
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let ([s0, s1], [r0, r1]) = (self.seen.to_le_bytes(), self.refused_since.to_le_bytes());
        [s0, s1, r0, r1, self.refusals, self.xdelay, self.last as u8, self.deliveries]
    }

    pub(crate) fn of_bytes(bytes: [u8; Self::BYTES]) -> MailboxHistory {
        let [s0, s1, r0, r1, refusals, xdelay, last, deliveries] = bytes;
        MailboxHistory {
            seen: u16::from_le_bytes([s0, s1]),
            refused_since: u16::from_le_bytes([r0, r1]),
            refusals,
            xdelay,
            last: LastOutcome::of(last),
            deliveries,
        }
    }
}

/// Moves a quarter of the way from `old` to `new`, at least one step.
fn towards(old: u8, new: u8) -> u8 {
    let difference = i16::from(new) - i16::from(old);
    (i16::from(old) + (difference + 3 * difference.signum()) / 4) as u8
}

/// The result of one transaction or connection at a domain's hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteAttempt {
    /// The hosts answered: they delivered, or refused a mailbox. The duration, and the number of connections that were
    /// open to them then.
    Answered { xdelay_ms: Ms, connections: u16 },
    /// The hosts failed: no connection, a time-out, 421, or a temporary refusal of everything.
    Failed,
}

/// The history of one domain: 28 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DomainHistory {
    /// Minutes since 2020, 0 for never.
    succeeded: u32,
    failed: u32,
    /// Minutes since 2020 to which the counts are aged.
    counted: u32,
    successes: u32,
    failures: u32,
    xdelay: u16,
    p99: u16,
    connections: u16,
}

fn minute(at: Ms) -> u32 {
    (at.saturating_sub(EPOCH_MS) / MINUTE_MS + 1) as u32
}

fn minute_ms(minute: u32) -> Option<Ms> {
    (minute > 0).then(|| EPOCH_MS + Ms::from(minute - 1) * MINUTE_MS)
}

/// The count after ageing: it halves in each half-life, linearly in between.
fn aged(count: u32, minutes: u32) -> u32 {
    const HALF: u32 = (HALF_LIFE_MS / MINUTE_MS) as u32;
    let halved = count.checked_shr(minutes / HALF).unwrap_or(0);
    halved - (u64::from(halved) * u64::from(minutes % HALF) / u64::from(2 * HALF)) as u32
}

fn fine_ms(fine: u16) -> Option<Ms> {
    (fine > 0).then(|| step_ms((fine >> FINE_BITS) as u8))
}

impl DomainHistory {
    /// Size in a record.
    pub const BYTES: usize = 26;

    pub fn last_success(&self) -> Option<Ms> {
        minute_ms(self.succeeded)
    }

    pub fn last_failure(&self) -> Option<Ms> {
        minute_ms(self.failed)
    }

    /// Attempts that were answered and attempts that failed, aged to `now`.
    pub fn counts(&self, now: Ms) -> (u32, u32) {
        let minutes = minute(now).saturating_sub(self.counted);
        let rounded = |count| (aged(count, minutes) + (1 << (COUNT_BITS - 1))) >> COUNT_BITS;
        (rounded(self.successes), rounded(self.failures))
    }

    /// Average duration of an answered attempt, ms.
    pub fn xdelay_ms(&self) -> Option<Ms> {
        fine_ms(self.xdelay)
    }

    /// The 99th percentile: about one attempt in a hundred took longer, ms.
    pub fn p99_ms(&self) -> Option<Ms> {
        fine_ms(self.p99)
    }

    /// The largest number of connections with which an attempt was answered since the last failure but one.
    pub fn connections(&self) -> u16 {
        self.connections
    }

    pub(super) fn attempt(&mut self, now: Ms, attempt: SiteAttempt) {
        let now = minute(now).max(self.counted);
        let minutes = now - self.counted;
        if minutes > 0 {
            (self.successes, self.failures) = (aged(self.successes, minutes), aged(self.failures, minutes));
            self.counted = now;
        }
        match attempt {
            SiteAttempt::Answered { xdelay_ms, connections } => {
                self.succeeded = now;
                self.successes = self.successes.saturating_add(1 << COUNT_BITS);
                self.connections = self.connections.max(connections);
                self.took(u16::from(step(xdelay_ms)) << FINE_BITS);
            }
            SiteAttempt::Failed => {
                self.failed = now;
                self.failures = self.failures.saturating_add(1 << COUNT_BITS);
                self.connections /= 2;
            }
        }
    }

    fn took(&mut self, fine: u16) {
        if self.xdelay == 0 {
            (self.xdelay, self.p99) = (fine, fine);
            return;
        }
        let difference = i32::from(fine) - i32::from(self.xdelay);
        self.xdelay = (i32::from(self.xdelay) + (difference + 7 * difference.signum()) / 8) as u16;
        // A stochastic quantile: up by 99 for a slower answer, otherwise down by 1.
        self.p99 = if fine > self.p99 {
            self.p99.saturating_add(QUANTILE_UP).min(fine)
        } else {
            self.p99.saturating_sub(1).max(fine.min(self.p99))
        };
    }

    pub(crate) fn write(&self, buf: &mut Vec<u8>) {
        for word in [self.succeeded, self.failed, self.counted, self.successes, self.failures] {
            buf.extend_from_slice(&word.to_le_bytes());
        }
        for half in [self.xdelay, self.p99, self.connections] {
            buf.extend_from_slice(&half.to_le_bytes());
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<DomainHistory, EventError> {
        let mut words = [0u32; 5];
        for word in &mut words {
            *word = u32::from_le_bytes(r.take(4)?.try_into().map_err(|_| EventError::Short)?);
        }
        let mut halves = [0u16; 3];
        for half in &mut halves {
            *half = u16::from_le_bytes(r.take(2)?.try_into().map_err(|_| EventError::Short)?);
        }
        let ([succeeded, failed, counted, successes, failures], [xdelay, p99, connections]) = (words, halves);
        Ok(DomainHistory { succeeded, failed, counted, successes, failures, xdelay, p99, connections })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Ms = 1_800_000_000_000;
    const DAY: Ms = 24 * 3_600_000;

    fn answered(xdelay_ms: Ms) -> SiteAttempt {
        SiteAttempt::Answered { xdelay_ms, connections: 1 }
    }

    #[test]
    fn the_scale_is_monotone_and_six_percent_fine() {
        let mut last = 0;
        for ms in (0..5_000).chain((5_000..5_000_000).step_by(997)) {
            let step = step(ms);
            assert!(step >= 1 && step >= last, "{ms}");
            last = step;
            let low = step_ms(step);
            assert!(low <= ms && (ms - low) * 8 <= ms + 8, "{ms} became {low}");
        }
        assert!(step_ms(step(Ms::from(u32::MAX))) > 1 << 30);
    }

    #[test]
    fn a_mailbox_has_an_average_and_a_row_of_refusals() {
        let mut mailbox = MailboxHistory::default();
        assert_eq!((mailbox.last_seen(), mailbox.xdelay_ms(), mailbox.last()), (None, None, LastOutcome::Untried));
        for _ in 0..20 {
            mailbox.delivered(NOW, 1_000);
        }
        let average = mailbox.xdelay_ms().unwrap();
        assert!((900..=1_000).contains(&average), "{average}");
        mailbox.delivered(NOW, 60_000);
        assert!(mailbox.xdelay_ms().unwrap() < 4_000, "one outlier");
        for _ in 0..20 {
            mailbox.delivered(NOW, 60_000);
        }
        assert!(mailbox.xdelay_ms().unwrap() > 50_000, "it follows");
        mailbox.refused(NOW, false);
        assert_eq!((mailbox.refusals(), mailbox.refused_since(), mailbox.last()), (0, None, LastOutcome::Deferred));
        for day in 1..=3 {
            mailbox.refused(NOW + day * DAY, true);
        }
        let since = mailbox.refused_since().unwrap();
        assert!(since <= NOW + DAY && since + SLOT_MS > NOW + DAY);
        assert_eq!((mailbox.refusals(), mailbox.last()), (3, LastOutcome::Refused));
        assert!(mailbox.last_seen().unwrap() + SLOT_MS > NOW + 3 * DAY);
        assert_eq!(MailboxHistory::of_bytes(mailbox.to_bytes()), mailbox);
        mailbox.delivered(NOW + 4 * DAY, 10);
        assert_eq!((mailbox.refusals(), mailbox.refused_since()), (0, None));
    }

    #[test]
    fn a_site_has_quantiles_and_counts_that_age() {
        let (mut site, mut rng) = (DomainHistory::default(), fastrand::Rng::with_seed(3));
        for _ in 0..20_000 {
            // One in fifty takes 8 s, so the 99th percentile is there.
            let slow = rng.u32(0..50) == 0;
            site.attempt(NOW, answered(if slow { 8_000 } else { rng.u64(80..120) }));
        }
        let (average, p99) = (site.xdelay_ms().unwrap(), site.p99_ms().unwrap());
        assert!((70..200).contains(&average), "{average}");
        assert!((2_000..=8_000).contains(&p99), "{p99}");
        assert_eq!(site.counts(NOW), (20_000, 0));
        assert_eq!(site.counts(NOW + HALF_LIFE_MS), (10_000, 0));
        assert_eq!(site.counts(NOW + 3 * HALF_LIFE_MS / 2).0, 7_500);
        assert_eq!(site.counts(NOW + 100 * HALF_LIFE_MS).0, 0);
        site.attempt(NOW + HALF_LIFE_MS, SiteAttempt::Failed);
        assert_eq!(site.counts(NOW + HALF_LIFE_MS), (10_000, 1));
        assert_eq!(site.last_failure(), Some(NOW + HALF_LIFE_MS));
        assert_eq!(site.last_success(), Some(NOW));
        let mut bytes = Vec::new();
        site.write(&mut bytes);
        assert_eq!(bytes.len(), DomainHistory::BYTES);
        assert_eq!(DomainHistory::read(&mut Reader::new(&bytes)), Ok(site));
        // A site that has become slow as a whole is believed.
        for _ in 0..200 {
            site.attempt(NOW + HALF_LIFE_MS, answered(30_000));
        }
        assert!(site.xdelay_ms().unwrap() > 25_000 && site.p99_ms().unwrap() > 25_000);
    }

    #[test]
    fn connections_are_the_most_that_went_well() {
        let mut site = DomainHistory::default();
        for connections in [1, 5, 20, 3] {
            site.attempt(NOW, SiteAttempt::Answered { xdelay_ms: 5, connections });
        }
        assert_eq!(site.connections(), 20);
        site.attempt(NOW, SiteAttempt::Failed);
        assert_eq!(site.connections(), 10);
    }
}
