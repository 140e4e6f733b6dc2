//! Why recipients wait, in the form that every answer uses.

use serde::{Deserialize, Serialize};
use stentor_queue::cause::Cause;
use stentor_queue::ids::Ms;

use crate::format::{grouped, next_try};

/// Recipients waiting for one cause. The rows of a site, a list, a message or the queue add up to its recipients.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct CauseRow {
    /// The cause's name, see docs/operate/waiting.md.
    pub cause: String,
    /// The cause in words; for a single connection being made, its progress and the last failure.
    pub words: String,
    /// When that connection reached its present stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    pub recipients: u64,
    /// The earliest next attempt; `None` if some wait for no clock.
    pub next_try: Option<Ms>,
    /// The last reply or error behind the cause; empty if there was none, or it is no longer known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_reply: String,
}

impl CauseRow {
    pub fn cause(&self) -> Cause {
        Cause::of_name(&self.cause).unwrap_or_default()
    }
}

/// The rows by recipients, most first; of equal ones, failures before mail on its way.
pub fn most_first(rows: &[CauseRow]) -> Vec<&CauseRow> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.recipients), row.cause().is_moving()));
    rows
}

/// The row with most recipients; of equal ones, failures before mail on its way.
pub fn main(rows: &[CauseRow]) -> Option<&CauseRow> {
    rows.iter().max_by_key(|row| (row.recipients, !row.cause().is_moving()))
}

/// When the first of them is tried: `-` if an operator or a transaction holds all of them.
pub fn next_try_of(rows: &[CauseRow], at: Option<Ms>, now: Ms) -> String {
    let is_tried = |row: &CauseRow| row.cause().is_tried_next();
    if at.is_none() && !rows.is_empty() && !rows.iter().any(is_tried) { "-".to_owned() } else { next_try(at, now) }
}

/// As [`next_try_of`], for one recipient or several with the same cause, given by name.
pub fn next_try_for(cause: &str, at: Option<Ms>, now: Ms) -> String {
    let is_tried = Cause::of_name(cause).is_none_or(Cause::is_tried_next);
    if at.is_none() && !is_tried { "-".to_owned() } else { next_try(at, now) }
}

/// Why mail waits: the last reply, which says more than the cause; or the progress of a connection being made.
pub fn why<'a>(words: &'a str, last_reply: &'a str, since: Option<Ms>) -> &'a str {
    if last_reply.is_empty() || since.is_some() { words } else { last_reply }
}

/// The causes of a row; for a single one, [`why`]. Mail that is kept back on purpose shows its cause, not the host's
/// last reply.
pub fn why_of(rows: &[CauseRow], last_reply: &str) -> String {
    match rows {
        [] => last_reply.to_owned(),
        [only] if only.cause().is_kept() => only.words.clone(),
        [only] => why(&only.words, last_reply, only.since).to_owned(),
        rows => summary(rows),
    }
}

/// A cause for a column or a headline: at most 16 characters.
pub fn short(cause: Cause) -> &'static str {
    match cause {
        Cause::Sending => "in delivery",
        Cause::Reporting => "DSN pending",
        Cause::Held => "held",
        Cause::Suspended => "suspended",
        Cause::LookUp => "DNS in progress",
        Cause::Dns => "DNS failed",
        Cause::Routing => "no route",
        Cause::BlockListed => "block list",
        Cause::Refused => "refused",
        Cause::Unreachable => "unreachable",
        Cause::TimedOut => "timed out",
        Cause::Silent => "slow host",
        Cause::Lost => "connection lost",
        Cause::Busy => "busy (421)",
        Cause::Greeting => "4xx at greeting",
        Cause::Tls => "TLS required",
        Cause::Auth => "login refused",
        Cause::Rate => "rate limited",
        Cause::Mailbox => "mailbox 4.2.x",
        Cause::Sender => "4xx at MAIL",
        Cause::Recipient => "4xx at RCPT",
        Cause::Message => "4xx at DATA",
        Cause::Unreadable => "unreadable",
        Cause::Unsigned => "not signed",
        Cause::Ready
        | Cause::QueueOnly
        | Cause::OwnLimit
        | Cause::Connecting
        | Cause::NoGreeting
        | Cause::Greylisted
        | Cause::MailboxFull
        | Cause::Table => cause.words(),
    }
}

/// The causes that fit this many columns, largest first: "700 mailbox full, 33 other". A single cause has no number.
pub fn headline(rows: &[CauseRow], columns: usize) -> String {
    if let [only] = rows
        && only.words.len() <= columns
    {
        return only.words.clone();
    }
    let rows = most_first(rows);
    let text = |shown: usize| {
        let (first, rest) = rows.split_at(shown);
        let rest: u64 = rest.iter().map(|row| row.recipients).sum();
        let first = first.iter().map(|row| format!("{} {}", grouped(row.recipients), short(row.cause())));
        first.chain((rest > 0).then(|| format!("{} other", grouped(rest)))).collect::<Vec<_>>().join(", ")
    };
    // The first cause is always shown.
    let fitting = (1..=rows.len()).rev().map(text).find(|text| text.len() <= columns);
    fitting.unwrap_or_else(|| text(rows.len().min(1)))
}

/// At most three causes, largest first: "700 mailbox full, 33 greylisted". A single cause has no number.
pub fn summary(rows: &[CauseRow]) -> String {
    const SHOWN: usize = 3;
    if let [only] = rows {
        return only.words.clone();
    }
    let rows = most_first(rows);
    let mut parts: Vec<String> =
        rows.iter().take(SHOWN).map(|row| format!("{} {}", grouped(row.recipients), row.words)).collect();
    let rest: u64 = rows.iter().skip(SHOWN).map(|row| row.recipients).sum();
    if rest > 0 {
        parts.push(format!("{} for other reasons", grouped(rest)));
    }
    parts.join(", ")
}

/// Formats a row as a line of text: "  33  greylisted, next try 12 min".
pub(crate) fn line_of(row: &CauseRow, now: Ms) -> String {
    let next = row.next_try.map_or_else(String::new, |at| format!(", next try {}", next_try(Some(at), now)));
    format!("{:>9}  {}{next}", grouped(row.recipients), row.words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cause: Cause, recipients: u64) -> CauseRow {
        CauseRow { cause: cause.name().into(), words: cause.words().into(), recipients, ..CauseRow::default() }
    }

    #[test]
    fn the_most_frequent_comes_first() {
        let rows = [row(Cause::Ready, 3), row(Cause::Refused, 3), row(Cause::Greylisted, 1_033), row(Cause::Held, 1)];
        assert_eq!(summary(&rows), "1,033 greylisted, 3 connection refused, 3 ready to send, 1 for other reasons");
        assert_eq!(main(&rows).unwrap().cause(), Cause::Greylisted);
        assert_eq!(summary(&rows[1..2]), "connection refused");
        assert_eq!(summary(&[]), "");
    }

    #[test]
    fn what_is_in_flight_has_no_next_try() {
        let next = |rows: &[CauseRow], at| next_try_of(rows, at, 1_000);
        for cause in Cause::ALL {
            let expected = match cause {
                Cause::Held | Cause::Suspended | Cause::QueueOnly | Cause::Sending | Cause::Reporting => "-",
                _ => "now",
            };
            assert_eq!(next(&[row(cause, 1)], None), expected, "{cause:?}");
            assert_eq!(next_try_for(cause.name(), None, 1_000), expected, "{cause:?}");
        }
        assert_eq!(next(&[row(Cause::Sending, 1), row(Cause::Held, 1)], None), "-");
        assert_eq!(next(&[row(Cause::Sending, 1), row(Cause::Ready, 1)], None), "now");
        assert_eq!(next(&[row(Cause::Sending, 1), row(Cause::Refused, 1)], Some(61_000)), "1m");
    }

    #[test]
    fn mail_that_is_kept_back_waits_for_that_and_not_for_a_host() {
        let why =
            |causes: &[Cause]| why_of(&causes.iter().map(|cause| row(*cause, 2)).collect::<Vec<_>>(), "452 4.2.2 full");
        assert_eq!(why(&[Cause::MailboxFull]), "452 4.2.2 full");
        assert_eq!(why(&[Cause::Suspended]), "suspended by an operator");
        assert_eq!(why(&[Cause::Suspended, Cause::MailboxFull]), "2 suspended by an operator, 2 mailbox full");
    }

    #[test]
    fn a_headline_has_the_largest_causes_and_fits() {
        let rows = [row(Cause::Dns, 363), row(Cause::Silent, 459), row(Cause::MailboxFull, 3_525), row(Cause::Held, 1)];
        assert_eq!(headline(&rows, 80), "3,525 mailbox full, 459 slow host, 363 DNS failed, 1 held");
        assert_eq!(headline(&rows, 50), "3,525 mailbox full, 459 slow host, 364 other");
        assert_eq!(headline(&rows, 3), "3,525 mailbox full, 823 other");
        assert_eq!((headline(&rows[..1], 80), headline(&[], 80)), ("DNS lookup failed".to_owned(), String::new()));
        for cause in Cause::ALL {
            assert!(short(cause).len() <= 16, "{}", short(cause));
        }
    }
}
