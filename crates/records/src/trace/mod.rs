//! The story of a message or a subscriber, from records in chronological order: `stentor trace`.
//!
//! The key is a queue id, a Message-ID, a recipient or a domain; the records show which. A message belongs to the story
//! if a record's id or Message-ID equals the key, or if an attempt names the recipient or one at the domain. It also
//! belongs if the client named the recipient but others get the mail (an alias, a virtual user, a recipient that was
//! redirected, rewritten or dropped); then the whole message is shown. A bounce or complaint about the recipient is
//! shown as the message that it came in, without other recipients. If a message is found by its recipients, only their
//! attempts are shown. A record that names a recipient does not contain its message's acceptance, so the last
//! [`RECENT_MAX`] acceptances are kept. Failed sessions and look-ups name domains: [`MailTrace::finish`] puts them
//! among the attempts of the messages that waited for them.
//!
//! A story since a time ([`MailTrace::since`]) contains the messages with a record since then. Their older records are
//! counted in the sums but not shown, so the state of a message covers all its recipients.
//!
//! Promise: memory is bounded by the limits below, whatever the input; everything left out is counted, and included in
//! the sums.

#[cfg(test)]
mod tests;
mod text;
mod unreached;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use serde::Serialize;

pub use self::unreached::Unreached;
use self::unreached::{AtDomain, Failures};
use crate::record::{Accepted, Attempt, Ms, Note, REPORT, Record, Refused, Stat, domain};

/// Messages in one story; further ones are only counted.
pub const MESSAGES_MAX: usize = 1_000;
/// Largest number of further messages that are counted.
pub const LEFT_OUT_MAX: usize = 1_000_000;
/// Attempts shown per message; the others are in the sums.
pub const ATTEMPTS_MAX: usize = 200;
/// Addresses shown per attempt.
pub const TO_SHOWN_MAX: usize = 20;
/// Refusals and notes shown.
pub const REMARKS_MAX: usize = 200;
/// Recipients of one message whose fate is stored.
const RECIPIENTS_MAX: usize = 2_000_000;
/// The words of rules about a copy.
const COPIED: &str = ": copied to ";
/// Acceptances kept for a recipient's story.
const RECENT_MAX: usize = 20_000;
/// For a story since a time: messages whose records are all older so far; the last ones are kept.
const OLDER_MAX: usize = 20_000;

/// The story of a message or a subscriber.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MailTrace {
    /// The requested key.
    pub what: String,
    /// Messages in the order found; once the records have ended, in the order of acceptance.
    pub messages: Vec<MessageTrace>,
    /// Further messages, each counted once; known when the records have ended, and at most [`LEFT_OUT_MAX`].
    pub messages_left_out: u64,
    pub refusals: Vec<Refusal>,
    pub refusals_left_out: u64,
    /// Failed sessions and look-ups of the requested domain, or of the requested recipient's if none of its messages is
    /// known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<Try>,
    /// Start of the shown records.
    #[serde(skip)]
    since: Ms,
    /// Number of messages with a record since then.
    #[serde(skip)]
    shown: usize,
    /// Indices of messages that had none when they were added, in that order.
    #[serde(skip)]
    older: VecDeque<usize>,
    /// Hashed ids of older messages that were replaced by later ones.
    #[serde(skip)]
    replaced: HashSet<u64>,
    /// Whether the key is an envelope sender, or a sender's domain.
    #[serde(skip)]
    is_of_sender: bool,
    /// Hashed ids of the messages that were left out.
    #[serde(skip)]
    left_out: HashSet<u64>,
    #[serde(skip)]
    failures: Failures,
    #[serde(skip)]
    numbers: HashMap<String, usize>,
    #[serde(skip)]
    recent: HashMap<String, Acceptance>,
    /// Ids of `recent` in order of acceptance, including some that have been removed; without those of `expected`.
    #[serde(skip)]
    recent_ids: VecDeque<String>,
    /// Ids of messages that have a record further on: their acceptances are never dropped.
    #[serde(skip)]
    expected: HashSet<String>,
    /// Some acceptances were dropped before the first other record of their messages.
    #[serde(skip)]
    has_forgotten: bool,
    #[serde(skip)]
    hasher: RandomState,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct MessageTrace {
    pub id: String,
    /// `None` if it was accepted before the records begin.
    pub accepted: Option<Acceptance>,
    pub attempts: Vec<Try>,
    pub attempts_left_out: u64,
    /// Attempts and notes before the requested time: not shown, but counted in the sums.
    #[serde(skip_serializing_if = "is_zero")]
    pub earlier: u64,
    /// There may have been more earlier records, which the state leaves out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_earlier_unknown: bool,
    pub notes: Vec<TraceNote>,
    /// State of the message's recipients, or of the requested recipient only.
    pub sums: Sums,
    /// The log says that no recipient is pending.
    pub is_over: bool,
    /// Recipients, as the client named them, whose mail was accepted and dropped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub discarded: Vec<String>,
    /// Message-ID of dropped mail; that of queued mail is in its acceptance.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message_id: String,
    /// Who holds the message, according to the server; empty: nobody, or unknown.
    #[serde(skip)]
    pub held: String,
    /// It has a record since the requested time, or the server says that it is pending.
    #[serde(skip)]
    is_since: bool,
    /// Found by a recipient, or by a domain: its other recipients are not shown.
    #[serde(skip)]
    is_of_recipient: bool,
    /// Found by a recipient that the client named.
    #[serde(skip)]
    is_named: bool,
    #[serde(skip)]
    fates: HashMap<u64, Stat>,
    /// Further copies for addresses that are recipients already.
    #[serde(skip)]
    copies: u64,
    /// Found by a recipient whom it reports on.
    #[serde(skip)]
    is_report: bool,
    /// Number of recipients that the server says are pending.
    #[serde(skip)]
    pending_now: u64,
    /// State of its recipients by domain.
    #[serde(skip)]
    domains: HashMap<String, AtDomain>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Acceptance {
    pub at: Ms,
    pub from: String,
    pub size: u64,
    pub recipients: u64,
    pub message_id: String,
    pub client_host: String,
    pub client: Option<IpAddr>,
    pub proto: String,
    pub is_bulk: bool,
    pub list: String,
    pub policy: String,
    pub tls: String,
    /// Recipients as the client named them, where the message has others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orig_to: Vec<String>,
    /// Actions of rules on the message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub marks: String,
    /// The sender that the client gave, if `from` differs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_from: String,
    /// The local user who submitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Try {
    pub at: Ms,
    pub to: Vec<String>,
    /// Number of recipients of this attempt besides those named.
    pub others: u64,
    pub stat: &'static str,
    pub mailer: String,
    pub host: String,
    pub ip: Option<IpAddr>,
    pub port: u16,
    pub source: String,
    pub tls: String,
    pub dsn: String,
    pub reply: String,
    pub delay_ms: u64,
    pub xdelay_ms: u64,
    /// How the transmitted content differed from the stored one: `7bit`, `lines`, `7bit+lines`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub recoded: &'static str,
    /// Recorded again by a start.
    pub is_repeated: bool,
    /// Set for a failed session or look-up, or several in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreached: Option<Unreached>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TraceNote {
    pub at: Ms,
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    pub at: Ms,
    pub client: Option<IpAddr>,
    pub from: String,
    pub to: String,
    pub step: String,
    pub reply: String,
    /// What refused it; empty if the reply says it.
    pub policy: String,
    /// For a whole message: recipients as the client named them, and its Message-ID.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orig_to: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message_id: String,
    /// The local user who submitted it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
}

/// Recipients by their latest fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sums {
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
    pub removed: u64,
    pub coalesced: u64,
    pub quarantined: u64,
    /// Released from the quarantine, as another message.
    pub released: u64,
    /// Tried so far without success.
    pub deferred: u64,
    /// Recipients that no record names.
    pub untried: u64,
}

impl Sums {
    fn of(&mut self, fate: Stat) -> &mut u64 {
        match fate {
            Stat::Sent => &mut self.delivered,
            Stat::Deferred => &mut self.deferred,
            Stat::Bounced => &mut self.bounced,
            Stat::Expired => &mut self.expired,
            Stat::Removed => &mut self.removed,
            Stat::Coalesced => &mut self.coalesced,
            Stat::Quarantined => &mut self.quarantined,
            Stat::Released => &mut self.released,
        }
    }
}

impl MailTrace {
    /// The story of a queue id, a Message-ID, a recipient or a domain, with or without its `@`.
    pub fn new(what: &str) -> MailTrace {
        MailTrace { what: what.strip_prefix('@').unwrap_or(what).to_owned(), ..MailTrace::default() }
    }

    /// The story of a sender: an address, `<>`, or a domain with or without its `@`. All of the sender's messages are
    /// shown with all recipients.
    pub fn of_sender(sender: &str) -> MailTrace {
        MailTrace { what: sender.to_owned(), is_of_sender: true, ..MailTrace::default() }
    }

    /// Leaves out what is older than `since`: older records are only counted, and messages without a later one are
    /// dropped at the end.
    #[must_use]
    pub fn since(self, since: Ms) -> MailTrace {
        MailTrace { since, ..self }
    }

    /// Whether the record is about the requested domain or sender. For a recipient, a queue id or a Message-ID the
    /// record's keys decide.
    pub fn is_about(&self, record: &Record<'_>) -> bool {
        match record {
            Record::Accepted(r) => self.is_accepted_from(r) || r.named.iter().any(|to| self.is_recipient(to)),
            Record::Attempt(r) => {
                r.unreached.is_none() && (self.is_sender(r.from) || r.to.iter().any(|to| self.is_recipient(to)))
            }
            Record::Refused(r) => {
                self.is_sender(r.from) || self.is_recipient(r.to) || r.named.iter().any(|to| self.is_recipient(to))
            }
            Record::Note(r) => r.to.iter().any(|to| self.is_recipient(to)),
            Record::Machine(_) => false,
        }
    }

    fn is_sender(&self, from: &str) -> bool {
        let what = bare(&self.what);
        if what.is_empty() {
            return self.is_of_sender && from.is_empty();
        }
        self.is_of_sender && (is_same(from, what) || is_same(domain(from), what.trim_start_matches('@')))
    }

    /// Whether the sender or its domain sent the message. Posts to lists, forwarded mail and mail of aliases with an
    /// owner leave with a sender of this server.
    fn is_accepted_from(&self, r: &Accepted<'_>) -> bool {
        self.is_sender(r.from) || !r.orig_from.is_empty() && self.is_sender(r.orig_from)
    }

    fn is_recipient(&self, to: &str) -> bool {
        !self.is_of_sender && is_about(to, bare(&self.what))
    }

    fn is_key(&self, id: &str, message_id: &str) -> bool {
        !self.is_of_sender && (is_same(id, &self.what) || is_same(bare(message_id), bare(&self.what)))
    }

    /// Keeps only the attempts that ended as named, by the names in [`Try::stat`], and the messages that have any.
    pub fn only(&mut self, stats: &[String]) {
        let is_wanted = |attempt: &Try| stats.iter().any(|stat| stat.as_str() == attempt.stat);
        for message in &mut self.messages {
            message.attempts.retain(is_wanted);
        }
        self.messages.retain(|message| !message.attempts.is_empty());
        let has = |wanted: &str| stats.iter().any(|stat| stat == wanted);
        if !has("refused") {
            (self.refusals_left_out, self.refusals) = (0, Vec::new());
        }
        // Recipients that waited for a connection count as deferred.
        if !has("deferred") {
            self.unreached.clear();
        }
    }

    /// Names a message that has a record of the key, before its records are added.
    pub fn expect(&mut self, id: &str) {
        self.expected.insert(id.to_owned());
    }

    /// Ids of the messages found so far.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().map(|message| message.id.as_str())
    }

    /// Ids of the messages in which the client named the requested recipient, but others get the mail.
    pub fn ids_named(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().filter(|message| message.is_named).map(|message| message.id.as_str())
    }

    /// Whether nothing is known of the key.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.refusals.is_empty() && self.unreached.is_empty()
    }

    pub fn add(&mut self, record: &Record<'_>) {
        match record {
            Record::Accepted(r) => self.accepted(r),
            Record::Attempt(r) => self.attempt(r),
            Record::Refused(r) => self.refused(r),
            Record::Note(r) => self.note(r),
            Record::Machine(_) => {}
        }
    }

    fn accepted(&mut self, r: &Accepted<'_>) {
        let acceptance = || Acceptance {
            at: r.at,
            from: r.from.to_owned(),
            size: r.size,
            recipients: r.recipients,
            message_id: r.message_id.to_owned(),
            client_host: r.client_host.to_owned(),
            client: r.client,
            proto: r.proto.to_owned(),
            is_bulk: r.is_bulk,
            list: r.list.to_owned(),
            policy: r.policy.to_owned(),
            tls: r.tls.to_owned(),
            orig_to: r.named.iter().take(TO_SHOWN_MAX).map(|to| (*to).to_owned()).collect(),
            marks: r.marks.to_owned(),
            orig_from: r.orig_from.to_owned(),
            user: r.user.to_owned(),
        };
        let is_named = r.named.iter().any(|to| self.is_recipient(to));
        let is_asked = is_named || self.is_accepted_from(r) || self.is_key(r.id, r.message_id);
        if is_asked || self.numbers.contains_key(r.id) {
            if let Some(message) = self.message(r.id, r.at, false) {
                message.is_named |= is_named;
                message.accepted = Some(acceptance());
                // There are no earlier records.
                message.is_earlier_unknown = false;
                message.count_untried();
            }
            return;
        }
        if self.expected.contains(r.id) {
            self.recent.insert(r.id.to_owned(), acceptance());
            return;
        }
        if self.recent_ids.len() == RECENT_MAX
            && let Some(oldest) = self.recent_ids.pop_front()
        {
            self.has_forgotten |= self.recent.remove(&oldest).is_some();
        }
        self.recent.insert(r.id.to_owned(), acceptance());
        self.recent_ids.push_back(r.id.to_owned());
    }

    fn attempt(&mut self, r: &Attempt<'_>) {
        if r.unreached.is_some() {
            return self.failures.push(r);
        }
        let is_recipients = r.to.iter().any(|to| self.is_recipient(to));
        // Many logs omit the sender of an attempt; a null sender is known from the acceptance.
        let is_senders = !r.from.is_empty() && self.is_sender(r.from);
        let is_known = self.is_key(r.id, "") || is_senders || self.numbers.contains_key(r.id);
        if r.id.is_empty() || !(is_recipients || is_known) {
            return;
        }
        let (what, hasher, since) = (bare(&self.what).to_owned(), self.hasher.clone(), self.since);
        let Some(message) = self.message(r.id, r.at, is_recipients && !is_known) else { return };
        if message.is_of_recipient && !is_recipients {
            return;
        }
        let is_told = |to: &&&str| !message.is_of_recipient || is_about(to, &what);
        let told: Vec<&str> = r.to.iter().filter(is_told).copied().collect();
        for to in &told {
            let key = hasher.hash_one(to.to_ascii_lowercase());
            if message.fates.len() < RECIPIENTS_MAX || message.fates.contains_key(&key) {
                let mut before = message.fates.insert(key, r.stat);
                if before.is_some_and(|before| before != Stat::Deferred) && !r.is_repeated && message.may_be_copy() {
                    message.copies += 1;
                    before = None;
                }
                if let Some(before) = before {
                    *message.sums.of(before) -= 1;
                }
                *message.sums.of(r.stat) += 1;
                message.was_tried(to, before, r.stat, r.at);
            }
        }
        message.count_untried();
        if r.at < since {
            message.earlier += 1;
            return;
        }
        if message.attempts.len() == ATTEMPTS_MAX {
            message.attempts_left_out += 1;
            return;
        }
        message.attempts.push(Try {
            at: r.at,
            to: told.iter().take(TO_SHOWN_MAX).map(|to| (*to).to_owned()).collect(),
            others: (r.to.len() - told.len().min(TO_SHOWN_MAX)) as u64,
            stat: stat_text(r.stat),
            mailer: r.mailer.to_owned(),
            host: r.host.to_owned(),
            ip: r.ip,
            port: r.port,
            source: r.source.to_owned(),
            tls: r.tls.to_owned(),
            recoded: r.recoded.name(),
            dsn: r.dsn.to_owned(),
            reply: r.reply.to_owned(),
            delay_ms: r.delay_ms,
            xdelay_ms: r.xdelay_ms,
            is_repeated: r.is_repeated,
            unreached: None,
        });
    }

    fn refused(&mut self, r: &Refused<'_>) {
        let is_named = r.named.iter().chain([&r.to]).any(|to| self.is_recipient(to));
        let is_asked = is_named || self.is_sender(r.from) || self.is_key("", r.message_id);
        if !is_asked || r.at < self.since {
            return;
        }
        let orig_to = r.named.iter().take(TO_SHOWN_MAX).map(|to| (*to).to_owned()).collect();
        if self.refusals.len() == REMARKS_MAX {
            self.refusals_left_out += 1;
            return;
        }
        self.refusals.push(Refusal {
            at: r.at,
            client: r.client,
            from: r.from.to_owned(),
            to: r.to.to_owned(),
            step: r.step.to_owned(),
            reply: r.reply.to_owned(),
            policy: r.policy.to_owned(),
            orig_to,
            message_id: r.message_id.to_owned(),
            user: r.user.to_owned(),
        });
    }

    fn note(&mut self, r: &Note<'_>) {
        let is_named = r.to.iter().any(|to| self.is_recipient(to));
        let is_asked = is_named || self.is_key(r.id, r.message_id);
        // A message found by a recipient may be held before its first attempt.
        let is_expected = self.expected.contains(r.id);
        if r.id.is_empty() || !(is_asked || is_expected || self.numbers.contains_key(r.id)) {
            return;
        }
        let since = self.since;
        let is_report = !r.to.is_empty() && r.text.starts_with(REPORT);
        // Recipients of the message that brings a report are others.
        let is_whole = is_asked && !(is_named && is_report) || self.is_of_sender;
        let Some(message) = self.message(r.id, r.at, !is_whole) else { return };
        if is_report {
            if !is_named && (message.is_of_recipient || message.is_named) {
                return;
            }
            message.is_report |= is_named;
        }
        if message.message_id.is_empty() {
            r.message_id.clone_into(&mut message.message_id);
        }
        message.is_over |= r.is_end;
        message.is_named |= is_named && !is_report;
        let room = if is_report { 0 } else { TO_SHOWN_MAX.saturating_sub(message.discarded.len()) };
        message.discarded.extend(r.to.iter().take(room).map(|to| (*to).to_owned()));
        if r.text.is_empty() {
            return;
        }
        if r.at < since {
            message.earlier += 1;
        } else if message.notes.len() < REMARKS_MAX {
            message.notes.push(TraceNote { at: r.at, text: r.text.to_owned() });
        }
    }

    /// Counts a message that is not shown, unless it is shown later.
    pub fn leave_out(&mut self, id: &str) {
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.insert(self.hasher.hash_one(id));
        }
    }

    /// The message with an id, added if new; `None` if there are too many. `at`: the time of the record.
    fn message(&mut self, id: &str, at: Ms, is_of_recipient: bool) -> Option<&mut MessageTrace> {
        let is_since = at >= self.since;
        let known = self.numbers.get(id).copied();
        let was_since = known.and_then(|number| self.messages.get(number)).is_some_and(|message| message.is_since);
        if is_since && !was_since {
            if self.shown == MESSAGES_MAX {
                self.leave_out(id);
                return None;
            }
            self.shown += 1;
        }
        if let Some(number) = known {
            let message = self.messages.get_mut(number)?;
            message.is_since |= is_since;
            return Some(message);
        }
        let accepted = self.recent.remove(id);
        // With that many, it is unknown which were replaced.
        let is_replaced = self.replaced.len() == LEFT_OUT_MAX || self.replaced.contains(&self.hasher.hash_one(id));
        let is_earlier_unknown = is_replaced && accepted.is_none();
        let id = id.to_owned();
        let message = MessageTrace {
            id: id.clone(),
            accepted,
            is_of_recipient,
            is_since,
            is_earlier_unknown,
            ..MessageTrace::default()
        };
        let number = self.place(is_since);
        self.numbers.insert(id, number);
        if number == self.messages.len() {
            self.messages.push(message);
        } else {
            self.messages[number] = message;
        }
        self.messages.get_mut(number)
    }

    /// Index for a new message: after all others, or in place of the first if there are too many older ones.
    fn place(&mut self, is_since: bool) -> usize {
        if is_since {
            return self.messages.len();
        }
        let mut number = self.messages.len();
        if self.messages.len() - self.shown >= OLDER_MAX {
            while let Some(first) = self.older.pop_front() {
                if !self.messages[first].is_since {
                    let id = &self.messages[first].id;
                    self.numbers.remove(id);
                    if self.replaced.len() < LEFT_OUT_MAX {
                        self.replaced.insert(self.hasher.hash_one(id));
                    }
                    number = first;
                    break;
                }
            }
        }
        self.older.push_back(number);
        number
    }
}

impl MessageTrace {
    fn count_untried(&mut self) {
        let all = self.accepted.as_ref().filter(|_| !self.is_of_recipient).map_or(0, |accepted| accepted.recipients);
        self.sums.untried = all.saturating_sub(self.fates.len() as u64 + self.copies);
    }

    /// When the message was accepted; if that is unknown, when it was first tried or remarked on.
    fn begin(&self) -> Ms {
        let tried = self.attempts.first().map(|attempt| attempt.at);
        let noted = self.notes.first().map(|note| note.at);
        let first = tried.into_iter().chain(noted).min().unwrap_or(Ms::MAX);
        self.accepted.as_ref().map_or(first, |accepted| accepted.at)
    }

    /// Whether a record after a recipient's end may be about a copy for the same address at another next hop: a rule
    /// made copies, and not all are accounted for.
    fn may_be_copy(&self) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| {
            accepted.marks.contains(COPIED) && accepted.recipients > self.fates.len() as u64 + self.copies
        })
    }

    /// Copies that wait, according to the server, for an address for which the records have another end.
    fn waiting_copies(&self) -> u64 {
        let is_copied = self.accepted.as_ref().is_some_and(|accepted| accepted.marks.contains(COPIED));
        let known = self.sums.deferred + self.sums.untried;
        if is_copied && self.is_of_recipient { self.pending_now.saturating_sub(known) } else { 0 }
    }

    /// Recipients that may still be tried, according to the records.
    pub fn pending(&self) -> u64 {
        if self.is_over { 0 } else { self.sums.deferred + self.sums.untried }
    }
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_same(a: &str, b: &str) -> bool {
    !a.is_empty() && a.eq_ignore_ascii_case(b)
}

/// Whether a recipient is the requested one, or at the requested domain.
fn is_about(to: &str, what: &str) -> bool {
    is_same(to, what) || is_same(domain(to), what)
}

/// The text without angle brackets.
fn bare(text: &str) -> &str {
    text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text)
}

fn stat_text(stat: Stat) -> &'static str {
    match stat {
        Stat::Sent => "sent",
        Stat::Deferred => "deferred",
        Stat::Bounced => "bounced",
        Stat::Expired => "expired",
        Stat::Removed => "removed",
        Stat::Coalesced => "coalesced",
        Stat::Quarantined => "quarantined",
        Stat::Released => "released",
    }
}
