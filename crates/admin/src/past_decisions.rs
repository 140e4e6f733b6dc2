//! Past decisions from the history: client, sender and recipient of each, so that another configuration can decide
//! about them again.
//!
//! Promise: the sender and the recipients are those that the client gave. Recipients added only by rules are not
//! decisions: copies, and the targets of aliases.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use stentor_mail::address::Address;
use stentor_records::escape::unescaped;
use stentor_records::record::{Accepted, Attempt, Record, Stat, Topic};
use stentor_rules::{AUTHENTICATED, CERTIFIED, COPIED, REDIRECTED};

/// Text in the log that precedes a copy's recipient and rule.
const COPIED_TO: &str = ": copied to ";
/// Maximum different decisions kept; further ones are only counted.
const DECISIONS_MAX: usize = 1_000_000;

/// One decision asked of the server.
#[derive(PartialEq, Eq, Hash)]
pub struct PastRecipient {
    pub client: IpAddr,
    pub may_relay: bool,
    pub from: Box<str>,
    pub to: Box<str>,
}

/// An accepted message.
struct PastMessage {
    client: IpAddr,
    may_relay: bool,
    from: Box<str>,
    /// Set if rules have copied the message.
    copied: Option<Box<RuleCopies>>,
}

/// The addresses that rules copied a message to, and the recipients counted so far.
struct RuleCopies {
    to: HashSet<Box<str>>,
    counted: HashSet<Box<str>>,
}

/// The decisions in a history.
#[derive(Default)]
pub struct PastDecisions {
    /// How often each was made.
    pub asked: HashMap<PastRecipient, u64>,
    /// Accepted messages whose recipients are counted when they end.
    by_id: HashMap<Box<str>, PastMessage>,
    /// Total number of decisions.
    pub all: u64,
    /// Decisions missing in `asked`, because there are too many different ones.
    pub left_out: u64,
}

impl PastDecisions {
    fn add(&mut self, client: IpAddr, may_relay: bool, from: &str, to: &str) {
        self.all += 1;
        let asked = PastRecipient { client, may_relay, from: from.into(), to: to.into() };
        if self.asked.len() >= DECISIONS_MAX && !self.asked.contains_key(&asked) {
            self.left_out += 1;
            return;
        }
        *self.asked.entry(asked).or_default() += 1;
    }

    /// Adds the next record. `lists`: the addresses of lists by name.
    pub fn record(&mut self, record: &Record<'_>, lists: &HashMap<&str, &Address>) {
        match record {
            Record::Accepted(accepted) => self.accepted(accepted, lists),
            // A retry is not a decision: deferred recipients are counted when they end.
            Record::Attempt(attempt)
                if !attempt.is_repeated && !attempt.is_fate_alone() && attempt.stat != Stat::Deferred =>
            {
                self.ended(attempt);
            }
            Record::Note(note) if note.topic == Topic::Policy => {
                if let Some((from, client)) = discarded(note.text) {
                    note.to.iter().for_each(|to| self.add(client, false, &from, to));
                }
            }
            Record::Refused(refused) if refused.step == "RCPT" => {
                if let Some(client) = refused.client {
                    self.add(client, false, refused.from, refused.to);
                }
            }
            _ => {}
        }
    }

    fn accepted(&mut self, accepted: &Accepted<'_>, lists: &HashMap<&str, &Address>) {
        let Some(client) = accepted.client else { return };
        let Accepted { policy, marks, .. } = accepted;
        let may_relay = [AUTHENTICATED, CERTIFIED].iter().any(|word| policy.contains(word));
        // A canonical table, an owner or SRS replaced the sender.
        let from = if accepted.orig_from.is_empty() { accepted.from } else { accepted.orig_from };
        if policy.contains(REDIRECTED) {
            return accepted.named.iter().for_each(|to| self.add(client, may_relay, from, to));
        }
        if let Some(address) = lists.get(accepted.list) {
            return self.add(client, may_relay, from, address.as_str());
        }
        // For an alias or a virtual user the record names the address that the client gave.
        match alias_of(policy) {
            _ if !accepted.list.is_empty() => {}
            Some(to) => self.add(client, may_relay, from, to),
            None if is_copy(policy, marks) => {}
            None => {
                let taken = PastMessage { client, may_relay, from: from.into(), copied: copied(marks) };
                self.by_id.insert(accepted.id.into(), taken);
            }
        }
    }

    /// Handles the end of recipients.
    fn ended(&mut self, attempt: &Attempt<'_>) {
        let Some(taken) = self.by_id.get_mut(attempt.id) else { return };
        let (client, may_relay, from) = (taken.client, taken.may_relay, taken.from.clone());
        let is_named = |to: &&str| match &mut taken.copied {
            None => true,
            Some(copied) => !copied.to.contains(*to) && copied.counted.insert((*to).into()),
        };
        let named: Vec<&str> = attempt.to.iter().copied().filter(is_named).collect();
        for to in named {
            self.add(client, may_relay, &from, to);
        }
    }
}

/// Whether an envelope is only for addresses that rules copied the message to.
fn is_copy(policy: &str, marks: &str) -> bool {
    let relay = policy.strip_prefix("relay: ");
    let is_bcc =
        relay.and_then(|why| why.strip_prefix(COPIED)).is_some_and(|rest| rest.is_empty() || rest.starts_with(';'));
    // A copy for a single recipient: an alias and a list have their own envelopes.
    let is_further =
        !policy.contains("relay: ") && !policy.starts_with("reports of list ") && marks.contains(COPIED_TO);
    is_bcc || is_further
}

/// The addresses that rules copied the message to, except those that the client named too: `ann@x.example: copied to
/// archive@x.example by rule 1`.
fn copied(marks: &str) -> Option<Box<RuleCopies>> {
    if !marks.contains(COPIED_TO) {
        return None;
    }
    let all = marks.split("; ").filter_map(|mark| {
        let (who, rest) = mark.split_once(COPIED_TO)?;
        Some((who, rest.split_once(" by ")?.0))
    });
    let (mut to, mut named): (HashSet<Box<str>>, Vec<&str>) = Default::default();
    for (who, address) in all {
        named.extend(who.split(", "));
        to.insert(address.into());
    }
    for who in named {
        to.remove(who.split_once(" and ").map_or(who, |(last, _)| last));
    }
    Some(Box::new(RuleCopies { to, counted: HashSet::new() }))
}

/// Sender and client of discarded mail. The record is escaped, so a client's address cannot end a field here.
fn discarded(text: &str) -> Option<(String, IpAddr)> {
    let (from, rest) = text.strip_prefix("discarded: from=<")?.split_once(">, relay=[")?;
    let (client, _) = rest.split_once(']')?;
    Some((unescaped(from).into_owned(), client.parse().ok()?))
}

/// The address that the client named, for an envelope with its targets: the reason begins with it.
fn alias_of(policy: &str) -> Option<&str> {
    let address = policy.strip_prefix("alias ")?.split(';').next()?;
    address.contains('@').then_some(address)
}

#[cfg(test)]
mod tests {
    use stentor_records::escape::field;

    use super::*;

    #[test]
    fn a_sender_cannot_name_the_client_of_its_mail() {
        let from = "\"a>, relay=[9.9.9.9], x\"@evil.example";
        let text = format!(
            "discarded: from=<{}>, relay=[192.0.2.1], size=1, nrcpts=1: rule 1, relay=[9.9.9.9]",
            field(from, 256)
        );
        assert_eq!(discarded(&text), Some((from.to_owned(), "192.0.2.1".parse().unwrap())));
    }

    #[test]
    fn copies_are_known_by_what_rules_did() {
        let marks = "a@x.example, b@x.example: copied to kept@x.example by rule 1 (f:2); \
                     a@x.example, b@x.example and 3 more: copied to b@x.example by rule 1 (f:2); \
                     a@x.example: copied to mx:gate.example:25 by rule 2; table t has a (t:1); a@x.example: held by rule 3 (f:9)";
        let copied = copied(marks).unwrap();
        let mut to: Vec<&str> = copied.to.iter().map(|to| &**to).collect();
        to.sort_unstable();
        assert_eq!(to, ["kept@x.example", "mx:gate.example:25"], "who was named, too, is counted");
        assert!(super::copied("a@x.example: held by rule 3 (f:9)").is_none());
        for (policy, is_copied) in [
            ("relay: copied by a rule; to mx:a.example:25 by [routes] * (f:4); bulk: its header", true),
            ("relay: copied by a rule", true),
            ("; bulk: its header", true),
            ("relay: client network 10.0.0.0/8", false),
            ("reports of list news to its owner; relay: copied by a rule", false),
        ] {
            assert_eq!(is_copy(policy, marks), is_copied, "{policy}");
        }
        assert!(!is_copy("", ""), "nothing was copied");
    }
}
