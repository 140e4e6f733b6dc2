//! Why recipients wait: the same rows in every answer.

use serde::{Deserialize, Serialize};
use stentor_queue::cause::Cause;
use stentor_queue::ids::Ms;

use crate::format::{grouped, next_try};

/// Recipients that wait for one cause. Of a site, a list, a message or the queue, the rows add up to the recipients there.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct CauseRow {
    /// [`Cause::name`].
    pub cause: String,
    /// [`Cause::words`]; of one connection that is being made, how far it is and what failed last.
    pub words: String,
    /// Since when that connection has been where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    pub recipients: u64,
    /// The earliest among them; `None`: some wait for no clock.
    pub next_try: Option<Ms>,
    /// The last reply or error behind it; empty if there was none, or it is no longer known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_reply: String,
}

impl CauseRow {
    pub fn cause(&self) -> Cause {
        Cause::of_name(&self.cause).unwrap_or_default()
    }
}

/// The causes of most first; of equal ones, what has gone wrong before what is on its way.
pub fn most_first(rows: &[CauseRow]) -> Vec<&CauseRow> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.recipients), row.cause().is_moving()));
    rows
}

/// The cause of most; of equal ones, what has gone wrong before what is on its way.
pub fn main(rows: &[CauseRow]) -> Option<&CauseRow> {
    rows.iter().max_by_key(|row| (row.recipients, !row.cause().is_moving()))
}

/// When the first of them is tried: `-` where an operator keeps all of them.
pub fn next_try_of(rows: &[CauseRow], at: Option<Ms>, now: Ms) -> String {
    let is_kept = |row: &CauseRow| row.cause().is_kept();
    if at.is_none() && !rows.is_empty() && rows.iter().all(is_kept) { "-".to_owned() } else { next_try(at, now) }
}

/// Why something waits: the last reply, which says more than the cause; of a connection that is being made, how far it is.
pub fn why<'a>(words: &'a str, last_reply: &'a str, since: Option<Ms>) -> &'a str {
    if last_reply.is_empty() || since.is_some() { words } else { last_reply }
}

/// The causes of a row; of a single one [`why`].
pub fn why_of(rows: &[CauseRow], last_reply: &str) -> String {
    match rows {
        [] => last_reply.to_owned(),
        [only] => why(&only.words, last_reply, only.since).to_owned(),
        rows => summary(rows),
    }
}

/// Largest first, at most three: "700 mailbox full, 33 greylisted". A single cause has no number.
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

/// A row in a line of text: "  33  greylisted, next try 12 min".
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
}
