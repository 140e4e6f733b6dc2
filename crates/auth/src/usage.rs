//! Submissions of each user in the last hour and day, checked against the user's limits.
//!
//! The last hour is twelve parts of five minutes plus the current one, the last day 24 parts of an hour plus the
//! current one. So a limit is never exceeded within any hour or day, and used quota returns at most one part late. (The
//! buckets of `policy/rate.rs` leak by rate: suitable for detecting bulk mail, but they permit twice a limit.) Counts
//! are in memory; [`saved`] stores them as text over restarts. Every user who submits has an entry, as does every
//! Dovecot user who logs in. When the map is full, users inactive for a day are dropped; if that is not enough, the
//! sixteenth that was inactive longest.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use stentor_mail::Ms;
use stentor_users::{Limits, OwnLimits};

mod saved;
mod window;

pub use saved::NoCounts;

use self::window::{DAY_PART_MS, DAY_PARTS, HOUR_PART_MS, UsageWindows};

/// Maximum users counted; beyond that, those inactive longest are dropped.
const USERS_MAX: usize = 100_000;

#[derive(Debug, Clone, Copy, Default)]
struct UserUsage {
    messages: UsageWindows,
    recipients: UsageWindows,
    /// Dovecot's limits at the last login.
    given: OwnLimits,
    last: Ms,
}

/// A reached limit, in words for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Limit of {max} {what} per {per} is reached{}", retry_hint(*.wait_ms))]
pub struct OverLimit {
    pub what: &'static str,
    pub max: u32,
    pub per: &'static str,
    /// Time until one more is accepted; `None` if never.
    pub wait_ms: Option<Ms>,
}

/// When to try again, rounded up.
fn retry_hint(wait_ms: Option<Ms>) -> String {
    const MINUTE_MS: Ms = 60_000;
    match wait_ms.map(|wait| wait.div_ceil(MINUTE_MS).max(1)) {
        None => String::new(),
        Some(minutes) if minutes <= 120 => format!(", try again in {minutes} min"),
        Some(minutes) => format!(", try again in {} h", minutes.div_ceil(60)),
    }
}

/// Numbers of a user's submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubmissionCounts {
    pub messages_hour: u32,
    pub messages_day: u32,
    pub recipients_hour: u32,
    pub recipients_day: u32,
}

/// A counted user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedUser {
    pub user: Arc<str>,
    pub amounts: SubmissionCounts,
    /// Dovecot's limits at the last login.
    pub given: OwnLimits,
}

/// The counts of a server; a reload with other sources of users keeps them.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<Usage>>);

impl Counts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Usage> {
        self.0.lock()
    }

    /// The counts of the last day as text for [`Counts::restore`], if they have changed since the last call. `wall` and
    /// `now`: the same moment as time of day and as steady time.
    pub fn save(&self, wall: Ms, now: Ms) -> Option<String> {
        // Sessions wait at most for the copy, not for the text.
        let copy = self.lock().changed()?;
        Some(copy.text(wall, now))
    }

    /// Restores the counts saved before a restart. Invalid lines are skipped.
    ///
    /// # Errors
    /// The text is not in this format.
    pub fn restore(&self, text: &str, wall: Ms, now: Ms) -> Result<(), NoCounts> {
        self.lock().restore(text, wall, now)
    }

    /// Marks the counts as changed, after a failed save.
    pub fn set_changed(&self) {
        self.lock().has_changed = true;
    }
}

/// All users' counts.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    users: HashMap<Arc<str>, UserUsage>,
    /// Whether they have changed since the last [`Counts::save`].
    has_changed: bool,
}

impl Usage {
    /// A copy, if anything has changed since the last one.
    fn changed(&mut self) -> Option<Usage> {
        std::mem::take(&mut self.has_changed).then(|| self.clone())
    }

    fn of(&mut self, user: &Arc<str>, now: Ms) -> &mut UserUsage {
        if !self.users.contains_key(user) && self.users.len() >= USERS_MAX {
            self.make_room(now);
        }
        self.has_changed = true;
        let used = self.users.entry(user.clone()).or_default();
        used.last = used.last.max(now);
        let now = used.last;
        used.messages.move_to(now);
        used.recipients.move_to(now);
        used
    }

    /// Drops a sixteenth of all, so that the next ones need no search.
    fn make_room(&mut self, now: Ms) {
        self.users.retain(|_, used| now.saturating_sub(used.last) < DAY_PART_MS * DAY_PARTS as u64);
        let place = USERS_MAX / 16;
        let mut lasts: Vec<Ms> = self.users.values().map(|used| used.last).collect();
        if lasts.len() < USERS_MAX - place {
            return;
        }
        let (_, last, _) = lasts.select_nth_unstable(place);
        let (last, mut left) = (*last, place);
        self.users.retain(|_, used| {
            let goes = left > 0 && used.last <= last;
            left -= usize::from(goes);
            !goes
        });
    }

    /// Counts a message, or returns the reached limit.
    pub fn take_message(&mut self, user: &Arc<str>, limits: &Limits, now: Ms) -> Result<(), OverLimit> {
        self.of(user, now).messages.take("messages", limits.messages_per_hour_max, limits.messages_per_day_max, now)
    }

    /// Counts a recipient, or returns the reached limit.
    pub fn take_recipient(&mut self, user: &Arc<str>, limits: &Limits, now: Ms) -> Result<(), OverLimit> {
        let Limits { recipients_per_hour_max, recipients_per_day_max, .. } = *limits;
        self.of(user, now).recipients.take("recipients", recipients_per_hour_max, recipients_per_day_max, now)
    }

    /// Removes the counts of a failed transaction that began at `begun`. Recipients counted in a later part of an hour
    /// or day stay counted, since their part is not known.
    pub fn give_back(&mut self, user: &Arc<str>, messages: u32, recipients: u32, begun: Ms, now: Ms) {
        let used = self.of(user, now);
        for (counted, count) in [(&mut used.messages, messages), (&mut used.recipients, recipients)] {
            counted.hour.take_back(count, begun / HOUR_PART_MS);
            counted.day.take_back(count, begun / DAY_PART_MS);
        }
    }

    /// Records the login of a Dovecot user, with these limits.
    pub fn heard(&mut self, user: &Arc<str>, given: OwnLimits, now: Ms) {
        self.of(user, now).given = given;
    }

    /// Users who logged in or submitted something in the last day, unordered.
    pub fn all(&mut self, now: Ms) -> Vec<CountedUser> {
        let users: Vec<Arc<str>> = self.users.keys().cloned().collect();
        let all = users.into_iter().filter_map(|user| {
            let used = self.users.get(&user)?;
            let (given, last) = (used.given, used.last);
            let is_new = now.saturating_sub(last) < DAY_PART_MS * (DAY_PARTS - 1) as u64;
            let amounts = self.amounts(&user, now);
            (is_new || amounts != SubmissionCounts::default()).then_some(CountedUser { user, amounts, given })
        });
        all.collect()
    }

    /// A user's submissions in the last hour and day.
    pub fn amounts(&mut self, user: &Arc<str>, now: Ms) -> SubmissionCounts {
        if !self.users.contains_key(user) {
            return SubmissionCounts::default();
        }
        // Reading must not count as activity.
        let (last, had_changed) = (self.users.get(user).map_or(now, |used| used.last), self.has_changed);
        let used = self.of(user, now);
        used.last = last;
        let amounts = SubmissionCounts {
            messages_hour: used.messages.hour.sum(),
            messages_day: used.messages.day.sum(),
            recipients_hour: used.recipients.hour.sum(),
            recipients_day: used.recipients.day.sum(),
        };
        self.has_changed = had_changed;
        amounts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use stentor_users::Limit;

    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn a_limit_holds_in_each_hour_and_comes_back() {
        let (mut usage, ann, bob): (_, Arc<str>, Arc<str>) = (Usage::default(), "ann".into(), "bob".into());
        let limits = Limits { messages_per_hour_max: Some(3), messages_per_day_max: Some(4), ..Limits::default() };
        for n in 0..3 {
            assert_eq!(usage.take_message(&ann, &limits, n), Ok(()));
        }
        let over = usage.take_message(&ann, &limits, 4).unwrap_err();
        // Parts are five minutes long and expire as a whole.
        assert_eq!(over.to_string(), "Limit of 3 messages per hour is reached, try again in 65 min");
        assert_eq!(usage.take_message(&bob, &limits, 4), Ok(()));
        assert!(usage.take_message(&ann, &limits, HOUR_MS).is_err());
        assert_eq!(usage.take_message(&ann, &limits, HOUR_MS + HOUR_PART_MS), Ok(()));
        assert_eq!(usage.take_message(&ann, &limits, HOUR_MS + HOUR_PART_MS).unwrap_err().per, "day");
        assert_eq!(usage.take_message(&ann, &limits, 25 * HOUR_MS), Ok(()));
        let amounts = SubmissionCounts { messages_hour: 1, messages_day: 2, ..SubmissionCounts::default() };
        assert_eq!(usage.amounts(&ann, 25 * HOUR_MS), amounts);
        assert_eq!(usage.amounts(&"eve".into(), 0), SubmissionCounts::default());
        let counted =
            |user: &Arc<str>, amounts| CountedUser { user: user.clone(), amounts, given: OwnLimits::default() };
        assert_eq!(usage.all(25 * HOUR_MS), [counted(&ann, amounts)]);
        assert_eq!(usage.all(60 * HOUR_MS), []);
    }

    /// A user who has reached both limits gets the longer wait.
    #[test]
    fn the_time_to_wait_is_that_after_which_one_more_is_taken() {
        let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann".into());
        let limits = Limits::new([Some(1), Some(2), None, None]);
        let begin = 30 * HOUR_MS;
        assert_eq!(usage.take_message(&ann, &limits, begin), Ok(()));
        let over = usage.take_message(&ann, &limits, begin + 1).unwrap_err();
        assert_eq!((over.per, over.wait_ms), ("hour", Some(13 * HOUR_PART_MS - 1)));
        let later = begin + 13 * HOUR_PART_MS;
        assert_eq!(usage.take_message(&ann, &limits, later), Ok(()));
        let over = usage.take_message(&ann, &limits, later).unwrap_err();
        assert_eq!((over.per, over.max, over.wait_ms), ("day", 2, Some(25 * HOUR_MS - 13 * HOUR_PART_MS)));
        assert!(over.to_string().ends_with("is reached, try again in 24 h"), "{over}");
        assert!(usage.take_message(&ann, &limits, later + over.wait_ms.unwrap() - 1).is_err());
        assert_eq!(usage.take_message(&ann, &limits, later + over.wait_ms.unwrap()), Ok(()));
    }

    #[test]
    fn who_logs_in_is_listed_with_what_dovecot_gave() {
        let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann".into());
        let given = OwnLimits([Limit::AtMost(5), Limit::None, Limit::Default, Limit::Default]);
        usage.heard(&ann, given, HOUR_MS);
        let all = usage.all(2 * HOUR_MS);
        assert_eq!(all, [CountedUser { user: ann, amounts: SubmissionCounts::default(), given }]);
        assert!(usage.all(40 * HOUR_MS).is_empty());
    }

    #[test]
    fn no_limit_is_none_and_zero_is_nothing() {
        let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann".into());
        assert!((0..1_000).all(|_| usage.take_recipient(&ann, &Limits::default(), 0).is_ok()));
        let none = Limits { recipients_per_day_max: Some(0), ..Limits::default() };
        let over = usage.take_recipient(&"bob".into(), &none, 0).unwrap_err();
        assert_eq!(over.to_string(), "Limit of 0 recipients per day is reached");
        usage.give_back(&ann, 0, 999, 0, 1);
        assert_eq!(usage.amounts(&ann, 1).recipients_hour, 1);
        usage.give_back(&ann, 7, 7, 0, 1);
        assert_eq!(usage.amounts(&ann, 1), SubmissionCounts::default());
    }

    #[test]
    fn users_are_bounded_and_the_silent_go_first() {
        let mut usage = Usage::default();
        let user = |n: usize| -> Arc<str> { format!("{n}").into() };
        for n in 0..=USERS_MAX {
            assert_eq!(usage.take_message(&user(n), &Limits::default(), n as Ms), Ok(()));
            assert!(usage.users.len() <= USERS_MAX);
        }
        let gone = USERS_MAX / 16;
        assert_eq!(usage.users.len(), USERS_MAX + 1 - gone);
        assert!(!usage.users.contains_key(&user(gone - 1)) && usage.users.contains_key(&user(gone + 1)));
    }

    /// A transaction kept open and abandoned later must not free more than the limit.
    #[test]
    fn what_is_given_back_late_makes_no_place_before_its_time() {
        let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann".into());
        let limits = Limits { recipients_per_hour_max: Some(100), ..Limits::default() };
        let take = |usage: &mut Usage, n: usize, now| {
            (0..n).filter(|_| usage.take_recipient(&ann, &limits, now).is_ok()).count()
        };
        assert_eq!(take(&mut usage, 50, 0), 50);
        let later = HOUR_PART_MS;
        assert_eq!(take(&mut usage, 50, later), 50);
        usage.give_back(&"ann".into(), 0, 50, 0, later);
        assert_eq!(take(&mut usage, 999, later), 50);
        // One hour and one part after the first: all messages were sent within the hour before.
        assert_eq!(take(&mut usage, 999, HOUR_MS + HOUR_PART_MS), 0);
        assert_eq!(take(&mut usage, 999, later + HOUR_MS + HOUR_PART_MS), 100);
    }

    proptest! {
        /// Checks the definition: no hour exceeds the limit, and after an hour and a part all of it is available.
        #[test]
        fn no_hour_has_more(gaps in proptest::collection::vec(0u64..1_500_000, 1..200), max in 1u32..6) {
            let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann".into());
            let limits = Limits { messages_per_hour_max: Some(max), ..Limits::default() };
            let (mut now, mut taken) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                if usage.take_message(&ann, &limits, now).is_ok() {
                    taken.push(now);
                } else {
                    let wait = usage.take_message(&ann, &limits, now).unwrap_err().wait_ms.unwrap();
                    let mut later = Usage { users: usage.users.clone(), has_changed: false };
                    prop_assert!(later.take_message(&ann, &limits, now + wait - 1).is_err());
                    prop_assert_eq!(later.take_message(&ann, &limits, now + wait), Ok(()));
                    let lately = taken.iter().filter(|at| now - **at <= HOUR_MS + HOUR_PART_MS).count();
                    prop_assert!(lately >= max as usize);
                }
                let in_hour = taken.iter().filter(|at| now - **at < HOUR_MS).count();
                prop_assert!(in_hour <= max as usize);
            }
        }
    }
}
