//! Early probes: how soon after its failure a host that worked a moment ago is tried again.
//!
//! Most failures of such a host are restarts, over in seconds, while the clocks are made for hosts that stay away. So
//! for [`WINDOW_MS`] after the first failure of the row one probe may go [`FIRST_MS`] after it, and then one every
//! [`EVERY_MS`], whatever the clock says. The clock itself runs on as if there were no early probes: one that fails
//! does not change it, so after the window attempts come when they would have come anyway.
//!
//! **Why this cannot cause endless attempts without a growing clock**: each early probe uses up one of [`PROBES_MAX`],
//! and only a delivery by the host restores them. They are kept per host (and per sender that a host refuses at MAIL),
//! not per message, site or connection.

use stentor_queue::ids::Ms;

/// Early probes per delivery: one a second after the failure, fifteen more in the window.
const PROBES_MAX: u8 = 16;
const FIRST_MS: Ms = 1_000;
const EVERY_MS: Ms = 2_000;
/// Outages up to this length cost no more than a probe's interval.
const WINDOW_MS: Ms = 30_000;
/// How long ago the last delivery may be: longer than most hosts wait between two messages, but short enough that a
/// restart is the likely cause.
const MOMENT_MS: Ms = 3_600_000;

/// Number of early probes left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EarlyProbes(u8);

impl EarlyProbes {
    /// The number after a delivery.
    pub const ALL: EarlyProbes = EarlyProbes(PROBES_MAX);
    pub const NONE: EarlyProbes = EarlyProbes(0);

    /// All probes if a host that fails now last worked recently, at `good_at` (0: never); otherwise none.
    pub fn after(good_at: Ms, now: Ms) -> EarlyProbes {
        if good_at > 0 && now.saturating_sub(good_at) <= MOMENT_MS { EarlyProbes::ALL } else { EarlyProbes::NONE }
    }

    /// Whether an early probe is allowed, for a row of failures that began at `since`.
    pub fn may_go(self, since: Ms, now: Ms) -> bool {
        self.0 > 0 && now < since.saturating_add(WINDOW_MS)
    }

    /// When the next early probe goes, after a failure now in a row that began at `since`. It is used up only if it
    /// comes before `until`, when the clock allows an attempt anyway.
    pub fn take(&mut self, since: Ms, until: Ms, now: Ms) -> Option<Ms> {
        let at = now + if now == since { FIRST_MS } else { EVERY_MS };
        if !self.may_go(since, now) || at >= until {
            return None;
        }
        self.0 -= 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Ms = 10 * MOMENT_MS;

    #[test]
    fn a_delivery_pays_for_the_probes_of_one_window() {
        let mut early = EarlyProbes::after(1, 5_000);
        let (since, mut now, mut gaps) = (5_000, 5_000, Vec::new());
        while let Some(at) = early.take(since, LATE, now) {
            gaps.push(at - now);
            now = at;
        }
        assert_eq!((gaps[0], gaps.len()), (FIRST_MS, usize::from(PROBES_MAX)));
        assert!(gaps[1..].iter().all(|gap| *gap == EVERY_MS));
        assert_eq!(now, since + WINDOW_MS + FIRST_MS);
        assert!(!early.may_go(since, now));
    }

    #[test]
    fn who_never_worked_or_long_ago_gets_none() {
        assert_eq!(EarlyProbes::after(0, 5_000), EarlyProbes::NONE);
        assert_eq!(EarlyProbes::after(1, 2 + MOMENT_MS), EarlyProbes::NONE);
        let mut none = EarlyProbes::NONE;
        assert_eq!(none.take(5, LATE, 5), None);
        let mut early = EarlyProbes::ALL;
        assert_eq!(early.take(5, 5 + FIRST_MS, 5), None, "the clock is as soon");
        assert_eq!(early, EarlyProbes::ALL, "and costs none");
        assert_eq!(early.take(5, LATE, 5 + WINDOW_MS), None);
    }
}
