//! Copies and octets by recipient and by domain.
//!
//! Promise: exact for the first [`NAMES_MAX`] names of each kind; further names share one counter. A known name costs a
//! look-up and no memory.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Names kept of each kind: about 100 octets each.
pub const NAMES_MAX: usize = 1_000_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallied {
    pub copies: u64,
    /// Octets of message.
    pub bytes: u64,
}

impl Tallied {
    fn add(&mut self, more: Tallied) {
        self.copies += more.copies;
        self.bytes += more.bytes;
    }
}

#[derive(Debug, Default)]
struct Names {
    by_name: HashMap<Box<str>, Tallied>,
    beyond: Tallied,
}

impl Names {
    fn add(&mut self, name: &str, more: Tallied) {
        if let Some(tallied) = self.by_name.get_mut(name) {
            tallied.add(more);
        } else if self.by_name.len() >= NAMES_MAX {
            self.beyond.add(more);
        } else {
            self.by_name.insert(name.into(), more);
        }
    }

    fn join(&mut self, list: &[(String, Tallied)], beyond: Tallied) {
        for (name, tallied) in list {
            self.add(name, *tallied);
        }
        self.beyond.add(beyond);
    }

    /// The `count` with the most copies, then by name.
    fn top(&self, count: usize) -> Vec<(String, Tallied)> {
        let mut all: Vec<(&str, &Tallied)> = self.by_name.iter().map(|(name, tallied)| (&**name, tallied)).collect();
        let order = |a: &(&str, &Tallied), b: &(&str, &Tallied)| b.1.copies.cmp(&a.1.copies).then_with(|| a.0.cmp(b.0));
        if count < all.len() {
            all.select_nth_unstable_by(count, order);
            all.truncate(count);
        }
        all.sort_unstable_by(order);
        all.into_iter().map(|(name, tallied)| (name.to_string(), *tallied)).collect()
    }
}

/// Who got how much.
#[derive(Debug, Default)]
pub struct Tally {
    recipients: Names,
    domains: Names,
    lowered: String,
}

/// The largest of [`Tally`], and how many there are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Top {
    pub recipients: Vec<(String, Tallied)>,
    pub domains: Vec<(String, Tallied)>,
    pub recipients_seen: usize,
    pub domains_seen: usize,
    /// Copies for names beyond [`NAMES_MAX`].
    pub recipients_beyond: Tallied,
    pub domains_beyond: Tallied,
}

impl Tally {
    /// The local part counts as it is, the domain without case (RFC 5321 2.4).
    pub fn add(&mut self, recipient: &str, bytes: u64) {
        let one = Tallied { copies: 1, bytes };
        let at = recipient.rfind('@').map_or(recipient.len(), |at| at + 1);
        if recipient.as_bytes()[at..].iter().any(u8::is_ascii_uppercase) {
            self.lowered.clear();
            self.lowered.push_str(recipient);
            self.lowered[at..].make_ascii_lowercase();
            self.recipients.add(&self.lowered, one);
            self.domains.add(&self.lowered[at..], one);
        } else {
            self.recipients.add(recipient, one);
            self.domains.add(&recipient[at..], one);
        }
    }

    /// Adds another recorder's, or a part of it.
    pub fn join(&mut self, other: &Top) {
        self.recipients.join(&other.recipients, other.recipients_beyond);
        self.domains.join(&other.domains, other.domains_beyond);
    }

    /// JSON lines: each recipient and each domain, the most first; then those beyond [`NAMES_MAX`] together.
    pub fn dump(&self, out: &mut dyn Write) -> io::Result<()> {
        for (kind, names) in [("by_recipient", &self.recipients), ("by_domain", &self.domains)] {
            for (name, Tallied { copies, bytes }) in names.top(usize::MAX) {
                writeln!(out, "{}", serde_json::json!({ kind: name, "copies": copies, "bytes": bytes }))?;
            }
            if names.beyond.copies > 0 {
                let Tallied { copies, bytes } = names.beyond;
                writeln!(out, "{}", serde_json::json!({ kind: null, "copies": copies, "bytes": bytes }))?;
            }
        }
        Ok(())
    }

    pub fn top(&self, count: usize) -> Top {
        Top {
            recipients: self.recipients.top(count),
            domains: self.domains.top(count),
            recipients_seen: self.recipients.by_name.len(),
            domains_seen: self.domains.by_name.len(),
            recipients_beyond: self.recipients.beyond,
            domains_beyond: self.domains.beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_without_case_and_the_most_come_first() {
        let mut tally = Tally::default();
        for (who, times) in [("ann@x.example", 2), ("Ann@X.example", 1), ("bob@Y.example", 3), ("postmaster", 1)] {
            (0..times).for_each(|_| tally.add(who, 10));
        }
        let top = tally.top(2);
        let names = |list: &[(String, Tallied)]| list.iter().map(|(n, t)| (n.clone(), t.copies)).collect::<Vec<_>>();
        assert_eq!(names(&top.recipients), [("bob@y.example".to_owned(), 3), ("ann@x.example".to_owned(), 2)]);
        assert_eq!(names(&top.domains), [("x.example".to_owned(), 3), ("y.example".to_owned(), 3)]);
        assert_eq!((top.recipients_seen, top.domains_seen, top.domains[0].1.bytes), (4, 3, 30));
    }
}
