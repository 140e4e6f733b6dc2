//! History of a site: moving averages of past attempts, for the order of sites and for the silence that is normal
//! there.
//!
//! It is never needed for correctness. After `HALF_LIFE_MS` without news it counts half, and after several half-lives
//! the site counts as unknown. The address book keeps the part that survives a restart; [`SiteHistory`] is seeded from
//! there when a domain joins its site.

use stentor_queue::ids::{DomainId, Ms};
use stentor_queue::store::Store;

/// A week: lists post daily to weekly.
const HALF_LIFE_MS: Ms = 7 * 24 * 3_600_000;
/// A new observation counts 1/WEIGHT in an average.
const WEIGHT: u32 = 4;
/// A site whose observations weigh less (after ageing) is unknown.
const KNOWN_MIN: f32 = 0.2;
/// A site is slow if its expected xdelay is at least this.
const SLOW_MS: u32 = 4_000;

/// Buckets of [`Gaps`]: powers of two from 16 ms.
const BUCKETS: usize = 16;
const FIRST_BITS: u32 = 4;
/// All counts are halved when one reaches this.
const COUNT_MAX: u8 = 250;
/// Quantiles of fewer values are not used.
const VALUES_MIN: u32 = 20;

/// How much later than their arrival a good, an unknown and a slow site are placed in line. Differences in time and not
/// absolute orders, so that nobody starves.
const GOOD_LATER_MS: Ms = 2_000;
const UNKNOWN_LATER_MS: Ms = 2_500;
const SLOW_LATER_MS: Ms = 5_000;

/// Averages for one site.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SiteHistory {
    /// Average xdelay of a delivery: from the beginning of the connection, or of the transaction on a connection that
    /// was open.
    pub xdelay_ms: u32,
    /// Weight of the observations, after ageing.
    pub weight: f32,
    /// Recent attempts in a row that failed (time-out, refused connection).
    pub failures: u8,
    /// When the last observation was made.
    pub at: Ms,
}

impl SiteHistory {
    fn aged(&self, now: Ms) -> f32 {
        let halves = now.saturating_sub(self.at) as f32 / HALF_LIFE_MS as f32;
        self.weight * (-halves).exp2()
    }

    pub(crate) fn delivered(&mut self, xdelay_ms: u32, now: Ms) {
        let weight = self.aged(now);
        self.xdelay_ms = if weight < KNOWN_MIN {
            xdelay_ms
        } else {
            let old = u64::from(self.xdelay_ms) * u64::from(WEIGHT - 1);
            ((old + u64::from(xdelay_ms)) / u64::from(WEIGHT)) as u32
        };
        self.weight = (weight + 1.0).min(100.0);
        (self.failures, self.at) = (0, now);
    }

    pub(crate) fn failed(&mut self, now: Ms) {
        self.weight = (self.aged(now) + 1.0).min(100.0);
        (self.failures, self.at) = (self.failures.saturating_add(1), now);
    }

    /// How much later than its arrival a site is placed in the line for connections: good sites first, the slower ones
    /// of them leading (a post is through when the last of them is), then unknown ones, then slow ones.
    pub(crate) fn later_ms(&self, now: Ms) -> Ms {
        if self.aged(now) < KNOWN_MIN {
            UNKNOWN_LATER_MS
        } else if self.failures > 0 || self.xdelay_ms >= SLOW_MS {
            SLOW_LATER_MS
        } else {
            GOOD_LATER_MS.saturating_sub(Ms::from(self.xdelay_ms))
        }
    }

    /// Adds another source's knowledge, if it has more.
    pub(crate) fn learn(&mut self, other: SiteHistory, now: Ms) {
        if other.aged(now) > self.aged(now) {
            *self = other;
        }
    }
}

/// The address book's knowledge about a domain from earlier runs of the process.
pub(crate) fn known(store: &Store, domain: DomainId) -> Option<SiteHistory> {
    let book = store.book.site_history(domain);
    let (success, failure) = (book.last_success(), book.last_failure());
    let at = success.max(failure)?;
    let (answered, failed) = book.counts(at);
    Some(SiteHistory {
        xdelay_ms: book.xdelay_ms().unwrap_or(0).min(Ms::from(u32::MAX)) as u32,
        weight: (answered + failed).clamp(1, 100) as f32,
        failures: u8::from(failure > success),
        at,
    })
}

/// Histogram of how long a site is silent between two signs of life, in 16 octets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gaps {
    counts: [u8; BUCKETS],
}

impl Gaps {
    pub fn add(&mut self, gap_ms: Ms) {
        let bucket = (Ms::BITS - (gap_ms >> FIRST_BITS).leading_zeros()).min(BUCKETS as u32 - 1) as usize;
        self.counts[bucket] += 1;
        if self.counts[bucket] >= COUNT_MAX {
            // Rare buckets keep one, or the tail would be forgotten first.
            self.counts.iter_mut().for_each(|c| *c = c.div_ceil(2));
        }
    }

    /// The upper end of the bucket with the 99th percentile.
    pub fn p99_ms(&self) -> Option<Ms> {
        let sum: u32 = self.counts.iter().map(|c| u32::from(*c)).sum();
        if sum < VALUES_MIN {
            return None;
        }
        let mut above = sum / 100;
        for (bucket, count) in self.counts.iter().enumerate().rev() {
            if u32::from(*count) > above {
                return Some(1 << (bucket as u32 + FIRST_BITS));
            }
            above -= u32::from(*count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_sites_come_first_then_unknown_then_slow_ones() {
        let now = 1_800_000_000_000;
        let mut good = SiteHistory::default();
        assert_eq!(good.later_ms(now), UNKNOWN_LATER_MS);
        good.delivered(200, now);
        assert_eq!(good.later_ms(now), 1_800);
        good.delivered(4_000, now);
        assert_eq!((good.xdelay_ms, good.later_ms(now)), (1_150, 850), "it must begin earlier to end at the same time");
        good.failed(now);
        assert_eq!(good.later_ms(now), SLOW_LATER_MS);
        good.delivered(100, now);
        assert!(good.later_ms(now) < UNKNOWN_LATER_MS);
        assert_eq!(good.later_ms(now + 10 * HALF_LIFE_MS), UNKNOWN_LATER_MS, "history ages");
        let mut other = SiteHistory::default();
        other.learn(good, now);
        assert_eq!(other, good);
    }

    #[test]
    fn the_address_book_says_what_was_known_before_a_start() {
        use stentor_queue::book::SiteAttempt;
        let now = 1_800_000_000_000;
        let mut store = Store::new();
        let (id, _) = store.book.intern("ann@example.com").unwrap();
        let domain = store.book.domain(id);
        assert_eq!(known(&store, domain), None);
        for _ in 0..3 {
            store.book.site_attempt(domain, now, SiteAttempt::Answered { xdelay_ms: 300, connections: 1 });
        }
        let good = known(&store, domain).unwrap();
        assert!((250..=350).contains(&good.xdelay_ms) && good.failures == 0 && good.weight >= 2.0, "{good:?}");
        assert!(good.later_ms(now) < UNKNOWN_LATER_MS);
        store.book.site_attempt(domain, now + 60_000, SiteAttempt::Failed);
        let failed = known(&store, domain).unwrap();
        assert_eq!((failed.failures, failed.later_ms(now + 60_000)), (1, SLOW_LATER_MS));
        assert_eq!(failed.later_ms(now + 20 * HALF_LIFE_MS), UNKNOWN_LATER_MS, "it ages");
    }

    #[test]
    fn the_99th_percentile_is_the_gaps_own() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.p99_ms(), None);
        for i in 0..5_000 {
            gaps.add(if i % 200 == 0 { 9_000 } else { 100 });
        }
        assert_eq!(gaps.p99_ms(), Some(128), "half a percent is not in it");
        for i in 0..5_000 {
            gaps.add(if i % 20 == 0 { 9_000 } else { 100 });
        }
        assert_eq!(gaps.p99_ms(), Some(16_384));
    }
}
