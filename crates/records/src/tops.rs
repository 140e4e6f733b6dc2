//! The tables of `mailstat --top`: the top senders, and the most frequent reasons why mail is refused, deferred and
//! given up.
//!
//! Replies are counted by their reason: parts that differ from mail to mail (addresses, ids, numbers, links) are
//! replaced. Bounded: [`KEYS_MAX`] names of each kind; further ones are summed as others.

use std::fmt::Write;
use std::net::IpAddr;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use serde::Serialize;

use crate::escape::printable;
use crate::mailstat::octets;
use crate::record::{Accepted, Attempt, Ms, Record, Refused, Stat};

const KEYS_MAX: usize = 100_000;
/// Longer reasons are cut.
const REASON_BYTES_MAX: usize = 120;
/// Words with at least this many digits are ids.
const ID_DIGITS_MIN: usize = 4;

/// Counts of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TopCount {
    pub messages: u64,
    pub recipients: u64,
    pub bytes: u64,
}

impl TopCount {
    fn add(&mut self, more: TopCount) {
        self.messages += more.messages;
        self.recipients += more.recipients;
        self.bytes += more.bytes;
    }
}

#[derive(Default)]
struct Names {
    counts: HashMap<Box<str>, TopCount, FixedState>,
    others: TopCount,
}

impl Names {
    fn add(&mut self, name: &str, more: TopCount) {
        if let Some(count) = self.counts.get_mut(name) {
            count.add(more);
        } else if self.counts.len() < KEYS_MAX {
            self.counts.insert(name.into(), more);
        } else {
            self.others.add(more);
        }
    }

    /// The rows with most recipients first, then with most messages.
    fn top(&self, rows: usize) -> Vec<Row> {
        let mut all: Vec<(&str, &TopCount)> = self.counts.iter().map(|(name, count)| (&**name, count)).collect();
        all.sort_unstable_by_key(|(name, count)| (u64::MAX - count.recipients, u64::MAX - count.messages, *name));
        let row = |(name, count): &(&str, &TopCount)| Row { name: (*name).to_owned(), count: **count };
        all.iter().take(rows).map(row).collect()
    }
}

/// A name with its count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    pub name: String,
    #[serde(flatten)]
    pub count: TopCount,
}

/// The first rows of each table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Top {
    /// Envelope senders of accepted messages.
    pub senders: Vec<Row>,
    /// Replies to clients: refusals as `messages`, and the recipients of refused whole messages.
    pub refusals: Vec<Row>,
    /// Why attempts deferred recipients.
    pub deferrals: Vec<Row>,
    /// Why recipients were given up.
    pub bounces: Vec<Row>,
}

#[derive(Default)]
pub struct Tops {
    since: Option<Ms>,
    until: Option<Ms>,
    senders: Names,
    refusals: Names,
    deferrals: Names,
    bounces: Names,
}

impl Tops {
    /// Counts records from `since` to before `until`.
    pub fn new(since: Option<Ms>, until: Option<Ms>) -> Tops {
        Tops { since, until, ..Tops::default() }
    }

    pub fn add(&mut self, record: &Record<'_>) {
        let at = record.at();
        if self.since.is_some_and(|since| at < since) || self.until.is_some_and(|until| at >= until) {
            return;
        }
        match record {
            Record::Accepted(accepted) if accepted.is_release() => {}
            Record::Accepted(accepted) => self.accepted(accepted),
            Record::Attempt(attempt) => self.attempt(attempt),
            Record::Refused(refused) => self.refused(refused),
            Record::Note(_) | Record::Machine(_) => {}
        }
    }

    fn accepted(&mut self, r: &Accepted<'_>) {
        let name = if r.from.is_empty() { "<>".to_owned() } else { r.from.to_ascii_lowercase() };
        self.senders.add(&name, TopCount { messages: 1, recipients: r.recipients, bytes: r.size });
    }

    fn attempt(&mut self, r: &Attempt<'_>) {
        let names = match r.stat {
            Stat::Deferred => &mut self.deferrals,
            Stat::Bounced | Stat::Expired if r.is_given_up() => &mut self.bounces,
            _ => return,
        };
        let count = TopCount { messages: 1, recipients: r.recipients(), bytes: 0 };
        let given_up = if r.stat == Stat::Expired { "expired: " } else { "" };
        // A session that deferred nobody is not counted.
        if count.recipients > 0 {
            // The reply of a fate does not contain the code.
            let dsn = if r.is_fate_alone() && !r.dsn.is_empty() { format!("{} ", r.dsn) } else { String::new() };
            names.add(&format!("{given_up}{dsn}{}", reason(r.reply)), count);
        }
    }

    fn refused(&mut self, r: &Refused<'_>) {
        let step = if r.step.is_empty() { String::new() } else { format!(" (at {})", r.step) };
        let recipients = if r.to.is_empty() { r.recipients } else { 1 };
        self.refusals.add(&format!("{}{step}", reason(r.reply)), TopCount { messages: 1, recipients, bytes: 0 });
    }

    pub fn top(&self, rows: usize) -> Top {
        Top {
            senders: self.senders.top(rows),
            refusals: self.refusals.top(rows),
            deferrals: self.deferrals.top(rows),
            bounces: self.bounces.top(rows),
        }
    }

    /// Formats the tables as text for people.
    pub fn text(&self, rows: usize) -> String {
        let top = self.top(rows);
        let mut out = String::new();
        section(&mut out, "Senders", &top.senders, &self.senders, true);
        section(&mut out, "Refusals to clients", &top.refusals, &self.refusals, false);
        section(&mut out, "Deferrals", &top.deferrals, &self.deferrals, false);
        section(&mut out, "Bounces", &top.bounces, &self.bounces, false);
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

/// Appends one table. Writing into a string cannot fail.
fn section(out: &mut String, heading: &str, rows: &[Row], names: &Names, is_mail: bool) {
    let what = if is_mail { ("messages", "octets", "sender") } else { ("times", "", "reason") };
    let _ = writeln!(out, "{heading}");
    if rows.is_empty() {
        let _ = writeln!(out, "  none\n");
        return;
    }
    let _ = writeln!(out, "{:>12} {:>10} {:>8}  {}", "recipients", what.0, what.1, what.2);
    let mut row = |name: &str, count: &TopCount| {
        let bytes = if is_mail { octets(count.bytes) } else { String::new() };
        let name = printable(name, 2 * REASON_BYTES_MAX);
        let _ = writeln!(out, "{:>12} {:>10} {bytes:>8}  {name}", count.recipients, count.messages);
    };
    let mut rest = names.others;
    for count in names.counts.values() {
        rest.add(*count);
    }
    for one in rows {
        row(&one.name, &one.count);
        rest.recipients -= one.count.recipients;
        rest.messages -= one.count.messages;
        rest.bytes -= one.count.bytes;
    }
    if rest.messages > 0 {
        row("(others)", &rest);
    }
    out.push('\n');
}

/// A reply without the parts that differ from mail to mail.
pub fn reason(reply: &str) -> String {
    let mut out = String::new();
    for (at, word) in reply.split_whitespace().enumerate() {
        let bare =
            word.trim_matches(|c: char| matches!(c, '<' | '>' | '[' | ']' | '(' | ')' | ',' | ';' | ':' | '"' | '\''));
        let bare = bare.trim_end_matches('.');
        let digits = bare.bytes().filter(u8::is_ascii_digit).count();
        // Keep codes of three digits, and enhanced ones, which give the meaning.
        let is_code =
            bare.split('.').count() == 3 && bare.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'));
        let shown = if bare.contains('@') {
            "<address>"
        } else if bare.contains("://") {
            "<link>"
        } else if bare.parse::<IpAddr>().is_ok() {
            "<ip>"
        } else if digits >= ID_DIGITS_MIN && !is_code {
            "<id>"
        } else {
            word
        };
        if at > 0 {
            out.push(' ');
        }
        out.push_str(shown);
        if out.len() > REASON_BYTES_MAX {
            out.truncate(out.floor_char_boundary(REASON_BYTES_MAX));
            out.push_str("...");
            break;
        }
    }
    if out.is_empty() { "no reason given".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_leave_out_what_differs() {
        for (reply, expected) in [
            ("550 5.1.1 <ann@x.example>: Recipient address rejected", "550 5.1.1 <address> Recipient address rejected"),
            (
                "550-5.7.1 [192.0.2.1] is listed, see https://x.example/q?ip=192.0.2.1",
                "550-5.7.1 <ip> is listed, see <link>",
            ),
            ("421 4.7.0 try later d9443c01a7336-2a1b.45", "421 4.7.0 try later <id>"),
            ("Connection refused", "Connection refused"),
            ("", "no reason given"),
        ] {
            assert_eq!(reason(reply), expected);
        }
        assert!(reason(&"word ".repeat(100)).len() < REASON_BYTES_MAX + 10);
    }

    fn attempt<'a>(mailer: &'a str, to: &[&'a str], stat: Stat, reply: &'a str) -> Record<'a> {
        Record::Attempt(Attempt { at: 5, mailer, to: to.iter().copied().collect(), stat, reply, ..Attempt::default() })
    }

    #[test]
    fn the_most_come_first_and_the_rest_is_summed() {
        let mut tops = Tops::new(Some(5), Some(6));
        for (from, recipients) in [("A@x", 3), ("a@x", 4), ("b@x", 9), ("", 1)] {
            tops.add(&Record::Accepted(Accepted { at: 5, from, recipients, size: 100, ..Accepted::default() }));
        }
        tops.add(&Record::Accepted(Accepted { at: 6, from: "late@x", recipients: 99, ..Accepted::default() }));
        tops.add(&attempt("esmtp", &["a@x", "b@x"], Stat::Deferred, "451 4.3.0 later 12345"));
        tops.add(&attempt("esmtp", &["a@x"], Stat::Deferred, "451 4.3.0 later 67890"));
        tops.add(&attempt("esmtp", &["a@x"], Stat::Bounced, "550 no"));
        tops.add(&attempt("bounce", &["a@x"], Stat::Bounced, "550 no"));
        tops.add(&attempt("bounce", &["b@x"], Stat::Expired, "451 4.3.0 later"));
        let refused =
            Refused { at: 5, to: "c@x", step: "RCPT", reply: "550 5.1.1 <c@x> unknown", ..Refused::default() };
        tops.add(&Record::Refused(refused));
        let top = tops.top(2);
        let senders: Vec<_> = top.senders.iter().map(|row| (row.name.as_str(), row.count.recipients)).collect();
        assert_eq!(senders, [("b@x", 9), ("a@x", 7)]);
        let of = |rows: &[Row]| rows.iter().map(|row| (row.name.clone(), row.count.recipients)).collect::<Vec<_>>();
        assert_eq!(of(&top.deferrals), [("451 4.3.0 later <id>".to_owned(), 3)]);
        assert_eq!(of(&top.bounces), [("550 no".to_owned(), 1), ("expired: 451 4.3.0 later".to_owned(), 1)]);
        assert_eq!(of(&top.refusals), [("550 5.1.1 <address> unknown (at RCPT)".to_owned(), 1)]);
        let text = tops.text(2);
        let expected = "\
Senders
  recipients   messages   octets  sender
           9          1      100  b@x
           7          2      200  a@x
           1          1      100  (others)

Refusals to clients
  recipients      times           reason
           1          1           550 5.1.1 <address> unknown (at RCPT)
";
        assert!(text.starts_with(expected), "{text}");
        assert!(Tops::default().text(5).contains("Bounces\n  none\n"));
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names::default();
        for n in 0..KEYS_MAX + 7 {
            names.add(&n.to_string(), TopCount { messages: 1, recipients: 1, bytes: 0 });
        }
        assert_eq!((names.counts.len(), names.others.messages), (KEYS_MAX, 7));
    }
}
