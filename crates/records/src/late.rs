//! Waiting recipients, from a log: those whose last attempt was deferred, counted by messages.
//!
//! Promise: a recipient that was delivered, given up or removed, or whose message is finished, does not count as
//! waiting. Bounded: `WAITING_MAX` pairs of message and recipient; beyond that new ones are ignored, and `left_out`
//! counts them.

use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::record::{Attempt, Ms, Record, Stat, domain};

/// Largest number of pairs of message and recipient; some 150 octets each.
pub const WAITING_MAX: usize = 5_000_000;
/// Largest size of a reply.
const REPLY_BYTES_MAX: usize = 300;

#[derive(Default)]
struct Recipient {
    messages: HashSet<Box<str>, FixedState>,
    /// When the oldest message was accepted, by the attempt's delay; the time of the attempt if the log has no delay.
    oldest: Ms,
    last_try: Ms,
    tries: u64,
    reply: Box<str>,
}

#[derive(Default)]
pub struct Waiting {
    recipients: HashMap<Box<str>, Recipient, FixedState>,
    /// Waiting recipients of each message; removed when it ends.
    messages: HashMap<Box<str>, HashSet<Box<str>, FixedState>, FixedState>,
    pairs: usize,
    pairs_max: Option<usize>,
    left_out: u64,
    last: Ms,
}

/// The row of a recipient or a domain.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Row {
    pub name: String,
    /// Waiting messages, once for each recipient.
    pub messages: u64,
    /// Distinct recipients; 1 for a recipient's own row.
    pub recipients: u64,
    pub oldest: Ms,
    pub last_try: Ms,
    /// Attempts that deferred one of these messages.
    pub tries: u64,
    pub reply: String,
}

impl Waiting {
    pub fn add(&mut self, record: &Record<'_>) {
        self.last = self.last.max(record.at());
        match record {
            Record::Attempt(attempt) => {
                for to in &attempt.to {
                    match attempt.stat {
                        Stat::Deferred => self.put_off(attempt, to),
                        // If the fate has a record of its own, that comes next.
                        _ => self.finish(attempt.id, to),
                    }
                }
            }
            Record::Note(note) if note.is_end => {
                for to in self.messages.remove(note.id).unwrap_or_default() {
                    self.take(note.id, &to);
                }
            }
            _ => {}
        }
    }

    fn put_off(&mut self, attempt: &Attempt<'_>, to: &str) {
        let to = to.to_ascii_lowercase();
        let known = self.messages.get(attempt.id).is_some_and(|recipients| recipients.contains(to.as_str()));
        if !known {
            if self.pairs >= self.pairs_max.unwrap_or(WAITING_MAX) {
                self.left_out += 1;
                return;
            }
            self.pairs += 1;
            self.messages.entry(attempt.id.into()).or_default().insert(to.as_str().into());
        }
        let recipient = self.recipients.entry(to.as_str().into()).or_default();
        let since = attempt.at.saturating_sub(attempt.delay_ms);
        recipient.oldest = if recipient.messages.is_empty() { since } else { recipient.oldest.min(since) };
        recipient.messages.insert(attempt.id.into());
        recipient.last_try = recipient.last_try.max(attempt.at);
        recipient.tries += 1;
        recipient.reply = cut(attempt.reply).into();
    }

    fn finish(&mut self, id: &str, to: &str) {
        if self.pairs == 0 {
            return;
        }
        let to = to.to_ascii_lowercase();
        let Some(recipients) = self.messages.get_mut(id) else { return };
        if !recipients.remove(to.as_str()) {
            return;
        }
        if recipients.is_empty() {
            self.messages.remove(id);
        }
        self.take(id, &to);
    }

    fn take(&mut self, id: &str, to: &str) {
        self.pairs -= 1;
        let Some(recipient) = self.recipients.get_mut(to) else { return };
        recipient.messages.remove(id);
        if recipient.messages.is_empty() {
            self.recipients.remove(to);
        }
    }

    /// Number of pairs of message and recipient.
    pub fn pending(&self) -> usize {
        self.pairs
    }

    /// Attempts of recipients that were ignored because too many wait.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Time of the last entry.
    pub fn last(&self) -> Ms {
        self.last
    }

    /// Recipients by number of waiting messages, fewest first as in the first tool of this kind; only the last `count`
    /// of them.
    pub fn recipients(&self, count: usize) -> Vec<Row> {
        let rows = self.recipients.iter().map(|(name, recipient)| Row {
            name: name.to_string(),
            messages: recipient.messages.len() as u64,
            recipients: 1,
            oldest: recipient.oldest,
            last_try: recipient.last_try,
            tries: recipient.tries,
            reply: recipient.reply.to_string(),
        });
        largest(rows.collect(), count)
    }

    /// Domains by number of waiting messages, each with the reply of its last attempt.
    pub fn domains(&self, count: usize) -> Vec<Row> {
        let mut domains: HashMap<&str, Row, FixedState> = HashMap::default();
        for (name, recipient) in &self.recipients {
            let row = domains.entry(domain(name)).or_insert_with(|| Row {
                name: domain(name).to_owned(),
                messages: 0,
                recipients: 0,
                oldest: Ms::MAX,
                last_try: 0,
                tries: 0,
                reply: String::new(),
            });
            row.messages += recipient.messages.len() as u64;
            row.recipients += 1;
            row.oldest = row.oldest.min(recipient.oldest);
            row.tries += recipient.tries;
            if recipient.last_try >= row.last_try {
                row.last_try = recipient.last_try;
                row.reply = recipient.reply.to_string();
            }
        }
        largest(domains.into_values().collect(), count)
    }
}

fn largest(mut rows: Vec<Row>, count: usize) -> Vec<Row> {
    rows.sort_by(|a, b| {
        a.messages.cmp(&b.messages).then_with(|| b.oldest.cmp(&a.oldest)).then_with(|| b.name.cmp(&a.name))
    });
    rows.split_off(rows.len().saturating_sub(count))
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(REPLY_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Suggests what an operator could do about such a reply.
pub fn action(row: &Row, now: Ms) -> &'static str {
    const DAY_MS: Ms = 86_400_000;
    let reply = row.reply.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| reply.contains(word));
    let old = now.saturating_sub(row.oldest) > 2 * DAY_MS;
    if says(&["full", "quota", "4.2.2"]) {
        if old { "suspend the subscriber: the mailbox has been full for days" } else { "wait: the mailbox is full" }
    } else if says(&["greylist", "greylisted", "4.7.1", "try again later"]) && !old {
        "wait: the host asks for a later attempt"
    } else if says(&["name server", "dns", "host not found", "name service", "lookup"]) {
        "check the domain's DNS"
    } else if says(&["refused", "timed out", "timeout", "no route", "unreachable", "reset"]) {
        if old { "remove or suspend: the host has not answered for days" } else { "wait: the host does not answer" }
    } else if says(&["spam", "policy", "reputation", "blocked", "blacklist", "rate"]) {
        "reduce the rate, and contact the site's postmaster"
    } else if old {
        "investigate: waiting for days"
    } else {
        "wait"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Note;

    fn attempt<'a>(at: Ms, id: &'a str, to: &[&'a str], stat: Stat) -> Record<'a> {
        let to = to.iter().copied().collect();
        Record::Attempt(Attempt { at, id, to, stat, delay_ms: 100, reply: "452 4.2.2 full", ..Attempt::default() })
    }

    fn names(rows: &[Row]) -> Vec<(&str, u64)> {
        rows.iter().map(|row| (row.name.as_str(), row.messages)).collect()
    }

    #[test]
    fn who_was_put_off_last_waits_and_nobody_else() {
        let mut waiting = Waiting::default();
        for id in ["A", "B", "C"] {
            waiting.add(&attempt(1000, id, &["a@x", "B@y"], Stat::Deferred));
        }
        waiting.add(&attempt(1500, "A", &["a@x"], Stat::Deferred));
        waiting.add(&attempt(2000, "A", &["A@X"], Stat::Sent));
        waiting.add(&attempt(2000, "B", &["b@y"], Stat::Expired));
        waiting.add(&attempt(2000, "B", &["nobody@y"], Stat::Sent));
        assert_eq!(names(&waiting.recipients(9)), [("b@y", 2), ("a@x", 2)]);
        waiting.add(&Record::Note(Note { at: 3000, id: "C", is_end: true, ..Note::default() }));
        assert_eq!(names(&waiting.recipients(9)), [("b@y", 1), ("a@x", 1)]);
        assert_eq!(names(&waiting.recipients(1)), [("a@x", 1)]);
        let row = &waiting.domains(9)[0];
        assert_eq!((row.name.as_str(), row.oldest, row.recipients), ("y", 900, 1));
        assert_eq!((waiting.pending(), waiting.last()), (2, 3000));
        waiting.add(&attempt(2000, "B", &["a@x"], Stat::Sent));
        waiting.add(&attempt(2000, "A", &["b@y"], Stat::Bounced));
        assert!(waiting.recipients.is_empty() && waiting.messages.is_empty() && waiting.pending() == 0);
    }

    #[test]
    fn pairs_are_bounded() {
        let mut waiting = Waiting { pairs_max: Some(2), ..Waiting::default() };
        waiting.add(&attempt(1000, "A", &["a@x", "b@x", "c@x"], Stat::Deferred));
        waiting.add(&attempt(1100, "A", &["a@x"], Stat::Deferred));
        assert_eq!((waiting.pending(), waiting.left_out()), (2, 1));
    }

    #[test]
    fn an_action_is_suggested_by_reply_and_age() {
        let mut waiting = Waiting::default();
        waiting.add(&attempt(1000, "A", &["a@x"], Stat::Deferred));
        let row = &waiting.recipients(1)[0];
        assert!(action(row, 2000).starts_with("wait"));
        assert!(action(row, 300_000_000).starts_with("suspend"));
    }
}
