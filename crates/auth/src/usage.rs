//! How much each user has submitted in the last hour and day, against the user's limits.
//!
//! The last hour is twelve parts of five minutes and the one that is running, the last day 24 parts of an hour and the running one. So a
//! limit is never exceeded within any hour or day, and what was used comes back at most a part late. (The buckets of `policy/rate.rs` forget by rate:
//! right to tell bulk mail, twice too much for a limit.) Counts are in memory: a restart begins anew. Every user who submits has an
//! entry. Where there are too many, those of users who were silent for a day go, and if that is not enough, a sixteenth of all.

use std::sync::Arc;

use hashbrown::HashMap;
use stentor_mail::Ms;
use stentor_users::Limits;

const HOUR_PARTS: usize = 13;
const DAY_PARTS: usize = 25;
const HOUR_PART_MS: u64 = 5 * 60_000;
const DAY_PART_MS: u64 = 60 * 60_000;
/// Users that are counted; beyond, those who have been silent longest are forgotten.
const USERS_MAX: usize = 100_000;

/// Counts in parts of a window, the newest at `now / part`.
#[derive(Debug, Clone, Copy)]
struct Window<const N: usize> {
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
    fn move_to(&mut self, part: u64) {
        if part.saturating_sub(self.newest) >= N as u64 {
            self.parts = [0; N];
            self.newest = part;
        }
        while self.newest < part {
            self.newest += 1;
            self.parts[(self.newest % N as u64) as usize] = 0;
        }
    }

    fn sum(&self) -> u32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    fn add(&mut self, count: u32) {
        let part = &mut self.parts[(self.newest % N as u64) as usize];
        *part = part.saturating_add(count);
    }

    /// Out of the part in which it was counted: out of a newer one, that would forget too early what was counted there.
    fn take_back(&mut self, count: u32, from: u64) {
        if from <= self.newest && self.newest - from < N as u64 {
            let part = &mut self.parts[(from % N as u64) as usize];
            *part = part.saturating_sub(count);
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    hour: Window<HOUR_PARTS>,
    day: Window<DAY_PARTS>,
}

impl Counted {
    fn move_to(&mut self, now: Ms) {
        self.hour.move_to(now / HOUR_PART_MS);
        self.day.move_to(now / DAY_PART_MS);
    }

    /// Counts one if both have place, else says which has not.
    fn take(&mut self, per_hour_max: Option<u32>, per_day_max: Option<u32>) -> Result<(), (u32, &'static str)> {
        if let Some(max) = per_hour_max.filter(|max| self.hour.sum() >= *max) {
            return Err((max, "hour"));
        }
        if let Some(max) = per_day_max.filter(|max| self.day.sum() >= *max) {
            return Err((max, "day"));
        }
        self.hour.add(1);
        self.day.add(1);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Used {
    messages: Counted,
    recipients: Counted,
    last: Ms,
}

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("limit of {max} {what} per {per} is reached")]
pub struct OverLimit {
    pub what: &'static str,
    pub max: u32,
    pub per: &'static str,
}

/// What a user has submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    pub messages_hour: u32,
    pub messages_day: u32,
    pub recipients_hour: u32,
    pub recipients_day: u32,
}

/// All users' counts.
#[derive(Debug, Default)]
pub struct Usage {
    users: HashMap<Arc<str>, Used>,
}

impl Usage {
    fn of(&mut self, user: &Arc<str>, now: Ms) -> &mut Used {
        if !self.users.contains_key(user) && self.users.len() >= USERS_MAX {
            self.make_room(now);
        }
        let used = self.users.entry(user.clone()).or_default();
        used.last = used.last.max(now);
        let now = used.last;
        used.messages.move_to(now);
        used.recipients.move_to(now);
        used
    }

    /// A sixteenth of all goes, so that the next ones find room without a search.
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

    /// Counts a message, or says why it is one too many.
    pub fn take_message(&mut self, user: &Arc<str>, limits: &Limits, now: Ms) -> Result<(), OverLimit> {
        let taken = self.of(user, now).messages.take(limits.messages_per_hour_max, limits.messages_per_day_max);
        taken.map_err(|(max, per)| OverLimit { what: "messages", max, per })
    }

    /// Counts a recipient, or says why it is one too many.
    pub fn take_recipient(&mut self, user: &Arc<str>, limits: &Limits, now: Ms) -> Result<(), OverLimit> {
        let taken = self.of(user, now).recipients.take(limits.recipients_per_hour_max, limits.recipients_per_day_max);
        taken.map_err(|(max, per)| OverLimit { what: "recipients", max, per })
    }

    /// A transaction that began at `begun` has come to nothing: what was counted for it counts no more. Recipients of it that were
    /// named in a later part of an hour or day go on counting as far as that is not known.
    pub fn give_back(&mut self, user: &Arc<str>, (messages, recipients): (u32, u32), begun: Ms, now: Ms) {
        let used = self.of(user, now);
        for (counted, count) in [(&mut used.messages, messages), (&mut used.recipients, recipients)] {
            counted.hour.take_back(count, begun / HOUR_PART_MS);
            counted.day.take_back(count, begun / DAY_PART_MS);
        }
    }

    /// Those who have submitted something in the last day.
    pub fn all(&mut self, now: Ms) -> Vec<(Arc<str>, Amounts)> {
        let users: Vec<Arc<str>> = self.users.keys().cloned().collect();
        let all = users.into_iter().map(|user| {
            let amounts = self.amounts(&user, now);
            (user, amounts)
        });
        all.filter(|(_, amounts)| *amounts != Amounts::default()).collect()
    }

    /// What a user has submitted in the last hour and day.
    pub fn amounts(&mut self, user: &Arc<str>, now: Ms) -> Amounts {
        if !self.users.contains_key(user) {
            return Amounts::default();
        }
        // To be looked at is no sign of life.
        let last = self.users.get(user).map_or(now, |used| used.last);
        let used = self.of(user, now);
        used.last = last;
        Amounts {
            messages_hour: used.messages.hour.sum(),
            messages_day: used.messages.day.sum(),
            recipients_hour: used.recipients.hour.sum(),
            recipients_day: used.recipients.day.sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert_eq!(over.to_string(), "limit of 3 messages per hour is reached");
        assert_eq!(usage.take_message(&bob, &limits, 4), Ok(()));
        assert!(usage.take_message(&ann, &limits, HOUR_MS).is_err());
        assert_eq!(usage.take_message(&ann, &limits, HOUR_MS + HOUR_PART_MS), Ok(()));
        assert_eq!(usage.take_message(&ann, &limits, HOUR_MS + HOUR_PART_MS).unwrap_err().per, "day");
        assert_eq!(usage.take_message(&ann, &limits, 25 * HOUR_MS), Ok(()));
        let amounts = Amounts { messages_hour: 1, messages_day: 2, ..Amounts::default() };
        assert_eq!(usage.amounts(&ann, 25 * HOUR_MS), amounts);
        assert_eq!(usage.amounts(&"eve".into(), 0), Amounts::default());
        assert_eq!(usage.all(25 * HOUR_MS), [(ann.clone(), amounts)]);
        assert_eq!(usage.all(60 * HOUR_MS), []);
    }

    #[test]
    fn no_limit_is_none_and_zero_is_nothing() {
        let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann".into());
        assert!((0..1_000).all(|_| usage.take_recipient(&ann, &Limits::default(), 0).is_ok()));
        let none = Limits { recipients_per_day_max: Some(0), ..Limits::default() };
        assert!(usage.take_recipient(&"bob".into(), &none, 0).is_err());
        usage.give_back(&ann, (0, 999), 0, 1);
        assert_eq!(usage.amounts(&ann, 1).recipients_hour, 1);
        usage.give_back(&ann, (7, 7), 0, 1);
        assert_eq!(usage.amounts(&ann, 1), Amounts::default());
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

    /// A transaction that is kept open and given up later must not make place for more than the limit.
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
        usage.give_back(&"ann".into(), (0, 50), 0, later);
        assert_eq!(take(&mut usage, 999, later), 50);
        // An hour and a part after the first: all that was sent was sent within the hour before.
        assert_eq!(take(&mut usage, 999, HOUR_MS + HOUR_PART_MS), 0);
        assert_eq!(take(&mut usage, 999, later + HOUR_MS + HOUR_PART_MS), 100);
    }

    proptest! {
        /// Against the definition: in no hour more than the limit is taken, and after an hour and a part all of it can be.
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
                    let lately = taken.iter().filter(|at| now - **at <= HOUR_MS + HOUR_PART_MS).count();
                    prop_assert!(lately >= max as usize);
                }
                let in_hour = taken.iter().filter(|at| now - **at < HOUR_MS).count();
                prop_assert!(in_hour <= max as usize);
            }
        }
    }
}
