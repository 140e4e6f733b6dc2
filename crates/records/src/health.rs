//! Health of the server: its current problems, in the words that every view prints, and the counts by which a service
//! is judged. `core/live/health/` defines the conditions, and when each begins and ends.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::record::Ms;

/// Largest size of a failure's text in octets.
const WHY_BYTES_MAX: usize = 400;
/// Good probes, one a second, after which a service that failed on mail may have recovered. A milter's longest pause is
/// over by then, so that the next message is a try.
const PROBES_MAY_WORK: u32 = 10;
/// Good probes after which it counts as recovered even without mail. Streaks of failures are forgotten by then.
const PROBES_WORK: u32 = 60;

/// How bad a [`Condition`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It makes mail be refused, wait or lose protection.
    #[default]
    Problem,
    /// It will become a problem unless somebody acts.
    Warning,
}

impl Severity {
    pub fn words(self) -> &'static str {
        match self {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
        }
    }
}

/// A problem or warning in force now.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Condition {
    /// The condition's name, such as `dns` or `milter`: an interface, see docs/operate/health.md.
    pub name: String,
    /// The milter, table or certificate; empty if there is only one of the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// `problem` or `warning`.
    pub severity: Severity,
    /// When it began.
    pub since: Ms,
    /// Whether new mail is refused because of it.
    pub refuses_mail: bool,
    /// What failed, and why.
    pub what: String,
    /// What to do.
    pub next: String,
}

impl Condition {
    /// Title for people: `milter rspamd`, or just the name.
    pub fn title(&self) -> String {
        if self.subject.is_empty() { self.name.clone() } else { format!("{} {}", self.name, self.subject) }
    }
}

/// Prefix of a history note about a condition.
const NOTE: &str = "health: ";
/// Used in place of a severity when a condition has ended.
const OVER: &str = "over";

/// The note about a condition that begins or ends: `health: PROBLEM dns: what`, `health: over milter rspamd: what`.
pub fn note_of(condition: &Condition, is_raised: bool) -> String {
    let word = if is_raised { condition.severity.words() } else { OVER };
    format!("{NOTE}{word} {}: {}", condition.title(), condition.what)
}

/// Reads a note's severity (`problem`, `warning`, `over`), the title of its condition, and the text. `None`: it is
/// another kind of note.
pub fn read_note(text: &str) -> Option<(&'static str, &str, &str)> {
    let (word, rest) = text.strip_prefix(NOTE)?.split_once(' ')?;
    let (title, what) = rest.split_once(": ")?;
    let severity = match word {
        "PROBLEM" => "problem",
        "warning" => "warning",
        OVER => OVER,
        _ => return None,
    };
    Some((severity, title, what))
}

/// Successes and failures of a service since the start; one atomic addition each, plus the text of a failure.
#[derive(Default, Debug)]
pub struct ServiceOutcomes {
    successes: AtomicU64,
    failures: AtomicU64,
    /// Good probes since the last failure of a service that failed on mail.
    good_probes: AtomicU32,
    why: Mutex<String>,
}

/// A snapshot of [`ServiceOutcomes`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ServiceTally {
    pub successes: u64,
    pub failures: u64,
    /// Text of the last failure; empty if there was none.
    pub why: String,
}

impl ServiceOutcomes {
    pub fn success(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn failure(&self, why: impl Display) {
        let mut why = why.to_string();
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        *self.why() = why;
        self.good_probes.store(0, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a good probe of a service that failed on mail: a probe asks less of it. Many in a row are a success.
    pub fn probed(&self) {
        let count = self.good_probes.load(Ordering::Relaxed).saturating_add(1);
        self.good_probes.store(count, Ordering::Relaxed);
        if count >= PROBES_WORK {
            self.success();
        }
    }

    /// Whether a service that failed on mail has been probed well since: the next message will show whether it works.
    pub fn may_work(&self) -> bool {
        self.good_probes.load(Ordering::Relaxed) >= PROBES_MAY_WORK
    }

    pub fn read(&self) -> ServiceTally {
        // Failures first: a counted failure has its text.
        let failures = self.failures.load(Ordering::Relaxed);
        ServiceTally { failures, successes: self.successes.load(Ordering::Relaxed), why: self.why().clone() }
    }

    fn why(&self) -> MutexGuard<'_, String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let condition = Condition {
            name: "milter".to_owned(),
            subject: "rspamd".to_owned(),
            what: "milter rspamd fails: no connection: x".to_owned(),
            ..Condition::default()
        };
        let raised = note_of(&condition, true);
        assert_eq!(read_note(&raised), Some(("problem", "milter rspamd", condition.what.as_str())));
        let over = note_of(&condition, false);
        assert_eq!(read_note(&over), Some(("over", "milter rspamd", condition.what.as_str())));
        for text in ["", "health: ", "health: PROBLEM", "health: x dns: y", "history: 3 records were lost"] {
            assert_eq!(read_note(text), None, "{text}");
        }
    }

    #[test]
    fn good_probes_in_a_row_end_a_failure_at_mail() {
        let outcomes = ServiceOutcomes::default();
        let probes = |count: u32| (0..count).for_each(|_| outcomes.probed());
        outcomes.failure("closed in mid-message");
        probes(PROBES_MAY_WORK - 1);
        assert!(!outcomes.may_work());
        probes(1);
        assert!(outcomes.may_work());
        outcomes.failure("closed in mid-message");
        assert!(!outcomes.may_work(), "the next message failed as well");
        probes(PROBES_WORK - 1);
        assert_eq!(outcomes.read().successes, 0);
        probes(1);
        assert_eq!(outcomes.read().successes, 1);
    }

    #[test]
    fn outcomes_keep_the_last_failure_within_bounds() {
        let outcomes = ServiceOutcomes::default();
        outcomes.success();
        outcomes.failure("first");
        outcomes.failure("é".repeat(WHY_BYTES_MAX));
        let tally = outcomes.read();
        assert_eq!((tally.successes, tally.failures), (1, 2));
        assert_eq!(tally.why, "é".repeat(WHY_BYTES_MAX / 2));
    }
}
