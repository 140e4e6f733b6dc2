//! Counts as a text, so that a restart resets no limit. One line per user, with fields separated by TABs:
//!
//! ```text
//! stentor-user-counts 1
//! ann@example.org  1790000000000  default,none,default,default  h1789999800000:2:5  d1789999200000:2:5
//! ```
//!
//! The name, the user's last activity, Dovecot's limits, and the non-empty parts of hour (`h`) and day (`d`): their
//! beginning, messages, recipients. Times are in ms since the Unix epoch, since the steady time restarts with each
//! process.
//!
//! Failure: malformed lines are skipped. Times in the future (the clock was set back) count as now.

use std::fmt::Write as _;
use std::sync::Arc;

use stentor_mail::Ms;
use stentor_users::{OwnLimits, canonical_name};

use super::window::{DAY_PART_MS, HOUR_PART_MS};
use super::{USERS_MAX, Usage, UserUsage};

const HEADER: &str = "stentor-user-counts 1";

/// The text has no counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file does not begin with `{HEADER}`")]
pub struct NoCounts;

/// Converts times of one clock to another.
#[derive(Clone, Copy)]
struct Shift {
    from: Ms,
    to: Ms,
}

impl Shift {
    fn at(self, time: Ms) -> Ms {
        self.to.saturating_add(time).saturating_sub(self.from)
    }
}

impl Usage {
    /// The counts as text. `wall` and `now`: the same moment as time of day and as steady time.
    pub fn text(&self, wall: Ms, now: Ms) -> String {
        let to_wall = Shift { from: now, to: wall };
        let mut text = format!("{HEADER}\n");
        for (user, used) in &self.users {
            // Skip names that would be refused when read.
            if canonical_name(user).as_deref() == Ok(&**user) {
                line(&mut text, user, used, to_wall);
            }
        }
        text
    }

    /// Adds the counts of a text.
    pub fn restore(&mut self, text: &str, wall: Ms, now: Ms) -> Result<(), NoCounts> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADER) {
            return Err(NoCounts);
        }
        for line in lines.take(USERS_MAX) {
            self.restore_line(line, Shift { from: wall, to: now }, now);
        }
        Ok(())
    }

    /// Restores one line; `None` if it is invalid.
    fn restore_line(&mut self, text: &str, to_steady: Shift, now: Ms) -> Option<()> {
        let mut fields = text.split('\t');
        let user: Arc<str> = canonical_name(fields.next()?).ok()?.into();
        let last = to_steady.at(fields.next()?.parse().ok()?).min(now);
        let mut given = OwnLimits::default();
        let mut limits = fields.next()?.split(',');
        for limit in &mut given.0 {
            *limit = limits.next()?.parse().ok()?;
        }
        let used = self.of(&user, now);
        (used.given, used.last) = (given, last);
        for part in fields {
            let (kind, part) = part.split_at_checked(1)?;
            let mut numbers = part.split(':');
            let at = to_steady.at(numbers.next()?.parse().ok()?).min(now);
            let mut count = || numbers.next()?.parse::<u32>().ok();
            let (messages, recipients) = (count()?, count()?);
            // Rounded up, so that counts expire late rather than early.
            let [hour, day] = [HOUR_PART_MS, DAY_PART_MS].map(|part_ms| at.div_ceil(part_ms).min(now / part_ms));
            for (counted, count) in [(&mut used.messages, messages), (&mut used.recipients, recipients)] {
                match kind {
                    "h" => counted.hour.add_to(hour, count),
                    "d" => counted.day.add_to(day, count),
                    _ => return None,
                }
            }
        }
        Some(())
    }
}

fn line(text: &mut String, user: &str, used: &UserUsage, to_wall: Shift) {
    let limits = used.given.0.map(|limit| limit.to_string()).join(",");
    let _ = write!(text, "{user}\t{}\t{limits}", to_wall.at(used.last));
    let both = |text: &mut String, kind: char, part: u64, part_ms: u64, messages: u32, recipients: u32| {
        if messages > 0 || recipients > 0 {
            let _ = write!(text, "\t{kind}{}:{messages}:{recipients}", to_wall.at(part * part_ms));
        }
    };
    // The windows of messages and of recipients move together.
    for ((part, messages), (_, recipients)) in used.messages.hour.parts().zip(used.recipients.hour.parts()) {
        both(text, 'h', part, HOUR_PART_MS, messages, recipients);
    }
    for ((part, messages), (_, recipients)) in used.messages.day.parts().zip(used.recipients.day.parts()) {
        both(text, 'd', part, DAY_PART_MS, messages, recipients);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stentor_users::{Limit, Limits};

    use super::super::SubmissionCounts;
    use super::*;

    const HOUR_MS: Ms = 3_600_000;
    const WALL: Ms = 1_790_000_123_456;
    /// A pattern for valid and nearly valid lines.
    const LINE: &str = "[a-z]{1,3}\t[0-9]{1,20}\t(none|default|[0-9]{1,3}|,){0,7}\
                        (\t[hdx]?[0-9]{1,20}:[0-9]{1,10}:[0-9]{1,10}){0,3}|.{0,30}";

    #[test]
    fn a_restart_forgets_nothing_and_resets_no_limit() {
        let (mut usage, ann): (_, Arc<str>) = (Usage::default(), "ann@x.example".into());
        let given = OwnLimits([Limit::AtMost(3), Limit::None, Limit::Default, Limit::Default]);
        let begin = 50 * HOUR_MS;
        usage.heard(&ann, given, begin);
        let limits = given.over(&Limits::default());
        for after in [0, HOUR_MS / 2] {
            assert!(usage.take_message(&ann, &limits, begin + after).is_ok());
            assert!(usage.take_recipient(&ann, &limits, begin + after).is_ok());
        }
        let text = usage.changed().unwrap().text(WALL, begin + HOUR_MS / 2);
        assert!(usage.changed().is_none(), "nothing has changed");
        // Another steady clock, ten minutes later.
        let (mut after, now) = (Usage::default(), 7 * HOUR_MS);
        after.restore(&text, WALL + HOUR_MS / 6, now).unwrap();
        let amounts = SubmissionCounts { messages_hour: 2, messages_day: 2, recipients_hour: 2, recipients_day: 2 };
        assert_eq!(after.amounts(&ann, now), amounts);
        assert_eq!(after.all(now)[0].given, given);
        assert!(after.take_message(&ann, &limits, now).is_ok());
        assert!(after.take_message(&ann, &limits, now).is_err());
        // Expired counts are missing.
        let mut late = Usage::default();
        late.restore(&text, WALL + 5 * HOUR_MS, now).unwrap();
        assert_eq!(late.amounts(&ann, now), SubmissionCounts { messages_hour: 0, recipients_hour: 0, ..amounts });
    }

    #[test]
    fn what_is_no_count_is_left_out() {
        let mut usage = Usage::default();
        assert_eq!(usage.restore("", WALL, 0), Err(NoCounts));
        let good = format!("ann\t{WALL}\tnone,1,default,default\th{WALL}:1:2\td{WALL}:1:2");
        let text = format!("{HEADER}\n\nbob\nbob\tx\n{good}\n\u{7}\t1\tnone,none,none,none\neve\t1\t1,2\n");
        usage.restore(&text, WALL, HOUR_MS).unwrap();
        assert_eq!(usage.users.len(), 1);
        assert_eq!(usage.amounts(&"ann".into(), HOUR_MS).recipients_day, 2);
        // The clock was set back.
        let mut back = Usage::default();
        back.restore(&text, WALL - 90 * HOUR_MS, HOUR_MS).unwrap();
        assert_eq!(back.amounts(&"ann".into(), HOUR_MS).messages_hour, 1);
    }

    proptest! {
        /// No text causes a panic, and whatever is restored is saved and read back unchanged.
        #[test]
        fn any_text_is_read(
            lines in proptest::collection::vec(LINE, 0..6),
            now in 0..WALL,
        ) {
            let mut usage = Usage::default();
            usage.restore(&format!("{HEADER}\n{}\n", lines.join("\n")), WALL, now).unwrap();
            usage.has_changed = true;
            let text = usage.text(WALL, now);
            let mut again = Usage::default();
            again.restore(&text, WALL, now).unwrap();
            let sorted = |usage: &mut Usage| {
                let mut all = usage.all(now);
                all.sort_by(|a, b| a.user.cmp(&b.user));
                all
            };
            prop_assert_eq!(sorted(&mut usage), sorted(&mut again));
        }
    }
}
