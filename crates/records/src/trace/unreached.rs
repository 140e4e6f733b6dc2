//! Failed sessions and look-ups in a story: they name domains, not messages, and are kept until the waiting messages
//! are known.
//!
//! Failures between a message's acceptance and the fate of its last recipient at the domain become entries among its
//! attempts; equal ones in a row become one. Bounded by the limits below; failures left out are counted.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;

use serde::Serialize;

use super::{MailTrace, MessageTrace, Try, bare, is_about};
use crate::record::{Attempt, Ms, Stat, domain};

/// Number of failures kept, the newest.
const FAILURES_MAX: usize = 20_000;
/// Number of domains of one message whose failures are looked for.
const DOMAINS_MAX: usize = 1_000;
/// Number of entries of one message, the newest.
const SHOWN_MAX: usize = 50;
/// How many entries back an equal one is looked for: hosts of a site fail in turn.
const ALIKE_WITHIN: usize = 8;

/// Details of an entry for which no copy was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreached {
    pub domains: Vec<String>,
    /// The largest number of recipients deferred at once, at all domains of the site; 0 if another host could still be
    /// tried.
    pub waiting: u64,
    /// How often it failed in the same way, and when it last did.
    pub times: u64,
    pub last: Ms,
}

/// A message's recipients at one domain.
#[derive(Clone, Debug, Default)]
pub struct AtDomain {
    /// Time of the last record about one of them.
    last: Ms,
    /// Number of recipients deferred so far, by the records.
    open: u64,
    /// Whether the server says that one is pending.
    pub(super) is_pending: bool,
}

/// All failures so far, oldest first, each with its domains.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    all: VecDeque<Try>,
}

impl Failures {
    pub fn push(&mut self, r: &Attempt<'_>) {
        let Some(unreached) = &r.unreached else { return };
        if self.all.len() == FAILURES_MAX {
            self.all.pop_front();
        }
        self.all.push_back(Try {
            at: r.at,
            stat: if r.is_look_up() { "lookup_failed" } else { "connect_failed" },
            mailer: r.mailer.to_owned(),
            host: r.host.to_owned(),
            ip: r.ip,
            port: r.port,
            source: r.source.to_owned(),
            dsn: r.dsn.to_owned(),
            reply: r.reply.to_owned(),
            xdelay_ms: r.xdelay_ms,
            unreached: Some(Unreached {
                domains: unreached.domains.iter().map(|(domain, _)| domain.to_ascii_lowercase()).collect(),
                waiting: unreached.waiting,
                times: 1,
                last: r.at,
            }),
            ..Try::default()
        });
    }

    /// The failures that `wanted` selects by time and domain, with only those domains; and how many entries are left
    /// out.
    fn select(&self, wanted: impl Fn(Ms, &str) -> bool) -> (Vec<Try>, u64) {
        let mut found: Vec<Try> = Vec::new();
        for failure in &self.all {
            let Some(unreached) = &failure.unreached else { continue };
            let domains: Vec<String> =
                unreached.domains.iter().filter(|domain| wanted(failure.at, domain)).cloned().collect();
            if domains.is_empty() {
                continue;
            }
            let unreached = Unreached { domains, ..unreached.clone() };
            let alike = found.iter_mut().rev().take(ALIKE_WITHIN).find(|entry| is_alike(entry, failure));
            match alike.and_then(|entry| entry.unreached.as_mut()) {
                Some(before) => before.merge(unreached),
                None => found.push(Try { unreached: Some(unreached), ..failure.clone() }),
            }
        }
        let left_out = found.len().saturating_sub(SHOWN_MAX);
        found.drain(..left_out);
        (found, left_out as u64)
    }
}

fn is_alike(a: &Try, b: &Try) -> bool {
    (&a.host, a.ip, a.port, &a.source, &a.reply) == (&b.host, b.ip, b.port, &b.source, &b.reply)
}

impl Unreached {
    fn merge(&mut self, later: Unreached) {
        self.times += later.times;
        self.last = later.last;
        self.waiting = self.waiting.max(later.waiting);
        for domain in later.domains {
            if !self.domains.contains(&domain) {
                self.domains.push(domain);
            }
        }
    }
}

impl MailTrace {
    /// Records that the running server has this recipient of a message pending. Call it before feeding the records.
    pub fn mark_pending(&mut self, id: &str, address: &str) {
        let is_of_recipient = is_about(address, bare(&self.what));
        let Some(message) = self.message(id, Ms::MAX, is_of_recipient) else { return };
        message.pending_now += 1;
        if let Some(at) = message.at_domain(domain(address)) {
            at.is_pending = true;
        }
    }

    /// Called when the records have ended: assigns failed sessions and look-ups to the messages that waited for them.
    pub fn finish(&mut self) {
        let mut failures = std::mem::take(&mut self.failures);
        // Threads of a server and its resolver finish in any order.
        failures.all.make_contiguous().sort_by_key(|failure| failure.at);
        for message in &mut self.messages {
            message.take_failures(&failures);
        }
        // The server named some messages whose records are not written yet.
        let has_records =
            |m: &MessageTrace| m.accepted.is_some() || m.earlier > 0 || !(m.attempts.is_empty() && m.notes.is_empty());
        self.messages.retain(|message| message.is_since && has_records(message));
        self.messages.sort_by_key(MessageTrace::begin);
        for message in &self.messages {
            self.left_out.remove(&self.hasher.hash_one(message.id.as_str()));
        }
        self.messages_left_out = self.left_out.len() as u64;
        // A refused recipient did not wait.
        if self.messages.is_empty() && self.refusals.is_empty() {
            let asked = self.own_domain();
            self.unreached = failures.select(|_, domain| domain == asked).0;
        }
    }

    /// The domain of the requested recipient, or the requested domain itself.
    fn own_domain(&self) -> String {
        let what = bare(&self.what).to_ascii_lowercase();
        what.rsplit_once('@').map_or_else(|| what.clone(), |(_, domain)| domain.to_owned())
    }

    /// The domains whose failures belong to the story, once its messages' records have been fed.
    pub fn domains(&self) -> Vec<String> {
        let known = self.messages.iter().flat_map(|message| message.domains.keys().cloned());
        let all: BTreeSet<String> = known.chain([self.own_domain()]).collect();
        all.into_iter().take(DOMAINS_MAX).collect()
    }

    /// When the first of its messages was accepted, if that is known for all.
    pub fn begin(&self) -> Option<Ms> {
        let accepted = self.messages.iter().map(|message| message.accepted.as_ref().map(|accepted| accepted.at));
        accepted.min().flatten()
    }
}

impl MessageTrace {
    /// State of the recipients at a domain; `None`: the message has recipients at too many domains.
    fn at_domain(&mut self, domain: &str) -> Option<&mut AtDomain> {
        let domain = domain.to_ascii_lowercase();
        if self.domains.len() >= DOMAINS_MAX && !self.domains.contains_key(&domain) {
            return None;
        }
        Some(self.domains.entry(domain).or_default())
    }

    /// Records that a recipient was tried; `before` is its fate so far by the records.
    pub(super) fn was_tried(&mut self, to: &str, before: Option<Stat>, now: Stat, at: Ms) {
        // Quarantined mail is never sent from the quarantine.
        if matches!(now, Stat::Quarantined | Stat::Released) || before == Some(Stat::Quarantined) {
            return;
        }
        let Some(domain) = self.at_domain(domain(to)) else { return };
        domain.last = domain.last.max(at);
        domain.open += u64::from(now == Stat::Deferred);
        domain.open -= u64::from(before == Some(Stat::Deferred)).min(domain.open);
    }

    fn take_failures(&mut self, failures: &Failures) {
        let accepted = self.accepted.as_ref().map_or(0, |accepted| accepted.at);
        let (domains, is_over) = (&self.domains, self.is_over);
        let (mut found, left_out) = failures.select(|at, domain| {
            let known = domains.get(domain);
            let is_open = |known: &AtDomain| known.is_pending || known.open > 0 && !is_over;
            at >= accepted && known.is_some_and(|known| is_open(known) || at <= known.last)
        });
        for failure in &mut found {
            failure.delay_ms = if accepted > 0 { failure.at.saturating_sub(accepted) } else { 0 };
        }
        self.attempts_left_out += left_out;
        self.attempts.append(&mut found);
        self.attempts.sort_by_key(|attempt| attempt.at);
    }
}
