//! The recipients of a submission that are done while the others are tried again: `reported-STEM` beside it.
//!
//! Promise: a recipient that is in a message of the queue, or was reported to the sender as failed, gets neither
//! another delivery nor another report from this submission, even if the server is killed in between. No other
//! recipient is treated as done. A report, or a message for some of the recipients, is recorded with its queue id
//! before it is submitted: the next start asks the journal whether that id was accepted.
//!
//! Format: lines of text. `1` is the version; `done N ...` are recipients by their index in the envelope; `report ID N
//! ...` are those of a report or message whose outcome is unknown.

use std::collections::BTreeSet;
use std::fmt::Write;

use stentor_queue::ids::MessageId;

const VERSION: &str = "1";

/// Finished recipients of a submission; see the module documentation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FinishedRcpts {
    pub done: BTreeSet<usize>,
    /// Messages and reports whose outcome is unknown, with their recipients.
    pub under_way: Vec<(MessageId, Vec<usize>)>,
}

impl FinishedRcpts {
    pub fn to_text(&self) -> String {
        let mut out = format!("{VERSION}\ndone{}\n", numbers(self.done.iter()));
        for (id, recipients) in &self.under_way {
            // Writing into a string cannot fail.
            let _ = writeln!(out, "report {id}{}", numbers(recipients.iter()));
        }
        out
    }

    /// Parses the file's text. `None`: damaged.
    pub fn parse(text: &str) -> Option<FinishedRcpts> {
        let mut lines = text.strip_suffix('\n')?.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let numbers =
            |text: &str| text.split_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<_>>>();
        let done = numbers(lines.next()?.strip_prefix("done")?)?.into_iter().collect();
        let report = |line: &str| {
            let line = line.strip_prefix("report ")?;
            let (id, recipients) = line.split_once(' ').unwrap_or((line, ""));
            Some((id.parse().ok()?, numbers(recipients)?))
        };
        Some(FinishedRcpts { done, under_way: lines.map(report).collect::<Option<_>>()? })
    }

    /// Whether the message under this id is for some of the recipients only, with an unknown outcome.
    pub fn is_under_way(&self, id: MessageId) -> bool {
        self.under_way.iter().any(|(known, _)| *known == id)
    }

    /// Settles the messages and reports with unknown outcomes. Returns whether there were any.
    pub fn resolve(&mut self, is_taken: impl Fn(MessageId) -> bool) -> bool {
        let reports = std::mem::take(&mut self.under_way);
        let had_some = !reports.is_empty();
        self.done.extend(reports.into_iter().filter(|(id, _)| is_taken(*id)).flat_map(|(_, recipients)| recipients));
        had_some
    }
}

fn numbers<'n>(all: impl Iterator<Item = &'n usize>) -> String {
    let mut out = String::new();
    for number in all {
        // Writing into a string cannot fail.
        let _ = write!(out, " {number}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut all = FinishedRcpts::default();
        assert_eq!(FinishedRcpts::parse(&all.to_text()).as_ref(), Some(&all));
        all.done = BTreeSet::from([0, 7, 12]);
        all.under_way = vec![(MessageId(5), vec![1, 2]), (MessageId(6), vec![3])];
        let text = all.to_text();
        assert_eq!(FinishedRcpts::parse(&text).as_ref(), Some(&all));
        for bad in ["", "1", "2\ndone\n", "1\ndone x\n", "1\ndone\nreport\n", "1\ndone\nother 1\n", "1\ndone -1\n"] {
            assert_eq!(FinishedRcpts::parse(bad), None, "{bad:?}");
        }
        assert_eq!(FinishedRcpts::parse(&text[..text.len() - 1]), None, "cut");
        assert!(all.resolve(|id| id == MessageId(5)));
        assert_eq!(all, FinishedRcpts { done: BTreeSet::from([0, 1, 2, 7, 12]), under_way: Vec::new() });
        assert!(!all.resolve(|_| true));
    }
}
