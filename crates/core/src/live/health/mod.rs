//! The health model: the conditions, and when each begins and ends. Every view (`status`, `doctor`, `realstat`,
//! `/readyz`, `/metrics`, the console, alerts) prints the same list.
//!
//! Promise: pure. Once a second the caller passes its observations ([`Observation`]) and the time, and gets the
//! changes. A condition is *well*, *suspected* (a streak of failures without a success between them) or *raised*. It is
//! raised when its streak has the number of failures and the length that its [`ConditionRule`] requires, so that one
//! failed look-up does not raise it. It ends after [`ConditionRule::clears_ms`] without a failure, counted from the
//! first success. Without any evidence it stays, for [`ConditionRule::forgets_ms`] at most. A subject that is no longer
//! observed (a milter that a reload removed) is well.
//!
//! Bounded: at most [`SUBJECTS_MAX`] conditions are watched.

mod names;
mod reach;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;
use stentor_records::health::{Condition, ServiceOutcomes, ServiceTally, Severity};

pub use self::names::{ConditionRule, Name};
pub use self::reach::{Reach, UnreachableHost};

/// Number of conditions watched at a time.
pub const SUBJECTS_MAX: usize = 512;

/// Identity of a condition: its kind and subject.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ConditionKey {
    name: Name,
    subject: String,
}

/// What failed and why, and what to do about it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ConditionTexts {
    pub what: String,
    pub next: String,
}

impl ConditionTexts {
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> ConditionTexts {
        ConditionTexts { what: what.into(), next: next.into() }
    }
}

/// Evidence about one condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The condition holds now.
    Holds,
    /// Successes and failures since the start.
    Counted { successes: u64, failures: u64 },
}

impl From<&ServiceTally> for Evidence {
    fn from(tally: &ServiceTally) -> Evidence {
        Evidence::Counted { successes: tally.successes, failures: tally.failures }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    pub name: Name,
    pub subject: String,
    pub evidence: Evidence,
    pub words: ConditionTexts,
    /// Whether new mail is refused; `None`: as the name defines it.
    pub refuses_mail: Option<bool>,
}

impl Observation {
    pub fn holds(name: Name, subject: impl Into<String>, words: ConditionTexts) -> Observation {
        Observation { name, subject: subject.into(), evidence: Evidence::Holds, words, refuses_mail: None }
    }

    pub fn counted(name: Name, subject: impl Into<String>, tally: &ServiceTally, words: ConditionTexts) -> Observation {
        Observation { name, subject: subject.into(), evidence: tally.into(), words, refuses_mail: None }
    }

    /// Overrides whether mail is refused because of the condition: the configuration decides.
    #[must_use]
    pub fn refusing(mut self, refuses_mail: bool) -> Observation {
        self.refuses_mail = Some(refuses_mail);
        self
    }
}

/// Wall clock for times shown to people, steady clock for durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    pub now: Ms,
    pub steady: Ms,
}

/// A condition has begun or ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConditionChange {
    Raised(Condition),
    Ended(Condition),
}

/// Failures without a success between them.
#[derive(Clone, Copy)]
struct Streak {
    first: Moment,
    last: Ms,
    failures: u64,
}

#[derive(Default)]
struct ConditionState {
    /// The counts at the last look; `None` before the first look, which does not show when they came.
    counts: Option<(u64, u64)>,
    streak: Option<Streak>,
    raised: Option<Condition>,
    /// When it was first seen well while raised.
    well_since: Option<Ms>,
    /// When there last was evidence of any kind.
    seen: Ms,
}

/// Result of one look.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NewEvidence {
    failures: u64,
    is_success: bool,
}

impl ConditionState {
    fn seen(&mut self, observed: Option<&Observation>) -> NewEvidence {
        match observed.map(|observation| &observation.evidence) {
            None => NewEvidence { failures: 0, is_success: true },
            Some(Evidence::Holds) => NewEvidence { failures: 1, is_success: false },
            Some(Evidence::Counted { successes, failures }) => {
                let (before_successes, before_failures) = self.counts.unwrap_or_default();
                self.counts = Some((*successes, *failures));
                NewEvidence {
                    // Counters of a new server process, or of a service that was set up anew, begin at zero.
                    failures: failures.checked_sub(before_failures).unwrap_or(*failures),
                    is_success: *successes > before_successes,
                }
            }
        }
    }

    fn look(&mut self, key: &ConditionKey, observed: Option<&Observation>, at: Moment) -> Option<ConditionChange> {
        let name = key.name;
        let (rule, seen) = (name.rule(), self.seen(observed));
        if seen.is_success || seen.failures > 0 {
            self.seen = at.steady;
        }
        if let Some(condition) = &mut self.raised {
            if let Some(observation) = observed.filter(|_| seen.failures > 0) {
                (condition.what, condition.next) = (observation.words.what.clone(), observation.words.next.clone());
            }
            if let Some(observation) = observed {
                condition.refuses_mail = observation.refuses_mail.unwrap_or(name.refuses_mail());
            }
            if seen.is_success {
                self.well_since.get_or_insert(at.steady);
            } else if seen.failures > 0 {
                self.well_since = None;
            }
            let is_well = self.well_since.is_some_and(|since| at.steady.saturating_sub(since) >= rule.clears_ms);
            let is_forgotten = at.steady.saturating_sub(self.seen) >= rule.forgets_ms;
            if is_well || is_forgotten {
                (self.streak, self.well_since) = (None, None);
                return self.raised.take().map(ConditionChange::Ended);
            }
            return None;
        }
        if seen.is_success {
            self.streak = None;
            return None;
        }
        if seen.failures > 0 {
            let new = Streak { first: at, last: at.steady, failures: 0 };
            let streak = self.streak.get_or_insert(new);
            (streak.failures, streak.last) = (streak.failures + seen.failures, at.steady);
        }
        let streak = self.streak?;
        if at.steady.saturating_sub(streak.last) >= rule.suspects_ms {
            self.streak = None;
            return None;
        }
        let is_long = at.steady.saturating_sub(streak.first.steady) >= rule.holds_ms;
        let observation = observed.filter(|_| is_long && streak.failures >= rule.failures_min)?;
        let condition = Condition {
            name: name.as_str().to_owned(),
            subject: key.subject.clone(),
            severity: name.severity(),
            since: streak.first.now,
            refuses_mail: observation.refuses_mail.unwrap_or(name.refuses_mail()),
            what: observation.words.what.clone(),
            next: observation.words.next.clone(),
        };
        self.raised = Some(condition.clone());
        Some(ConditionChange::Raised(condition))
    }

    fn is_idle(&self) -> bool {
        self.raised.is_none() && self.streak.is_none()
    }
}

/// All watched conditions.
#[derive(Default)]
pub struct Ledger(BTreeMap<ConditionKey, ConditionState>);

impl Ledger {
    /// Applies the observations of the last second.
    pub fn observe(&mut self, at: Moment, observations: Vec<Observation>) -> Vec<ConditionChange> {
        let mut observed: BTreeMap<ConditionKey, Observation> = BTreeMap::new();
        for observation in observations {
            let key = ConditionKey { name: observation.name, subject: observation.subject.clone() };
            if self.0.contains_key(&key) || self.0.len() < SUBJECTS_MAX {
                self.0
                    .entry(key.clone())
                    .or_insert_with(|| ConditionState { seen: at.steady, ..ConditionState::default() });
                observed.insert(key, observation);
            }
        }
        let mut changes = Vec::new();
        self.0.retain(|key, watched| {
            let observation = observed.get(key);
            changes.extend(watched.look(key, observation, at));
            observation.is_some() || !watched.is_idle()
        });
        changes
    }

    /// The conditions in force: first those that refuse mail, then problems, then warnings; each group the longest
    /// first.
    pub fn conditions(&self) -> Vec<Condition> {
        let mut all: Vec<Condition> = self.0.values().filter_map(|watched| watched.raised.clone()).collect();
        all.sort_by_key(|condition| (!condition.refuses_mail, condition.severity, condition.since));
        all
    }
}

/// The ledger of a server, and lasting states reported by its parts.
#[derive(Default)]
pub struct Health {
    ledger: Mutex<Ledger>,
    reported: Mutex<BTreeMap<ConditionKey, ConditionTexts>>,
    pub reach: Reach,
    pub intake: Intake,
    /// Outcomes of writing and syncing batches of the journal.
    pub journal: ServiceOutcomes,
}

/// Outcomes of recipients and messages from clients.
#[derive(Default)]
pub struct Intake {
    pub recipients: Replies,
    pub messages: Replies,
    pub accept_paused: AcceptPauses,
}

/// When accepting connections last paused, on the steady clock, by the role of the listener; 0: never.
#[derive(Default)]
pub struct AcceptPauses {
    /// Pauses of the `smtp` listeners.
    pub relay: AtomicU64,
    /// Pauses of the `smtps` and `submission` listeners.
    pub users: AtomicU64,
}

/// Successes for all clients, and temporary refusals by kind of client.
#[derive(Default)]
pub struct Replies {
    /// Refusals of trusted clients and users.
    pub known: ServiceOutcomes,
    /// Refusals of untrusted clients.
    pub untrusted: ServiceOutcomes,
}

/// The kind of client that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientKind {
    /// In the client networks.
    Trusted,
    /// An authenticated user, whose own limits defer as well.
    User,
    Stranger,
}

impl Replies {
    /// Counts a reply to RCPT, or to a message.
    pub fn answered(&self, reply: &Reply, client: ClientKind) {
        if reply.is_success() {
            self.known.success();
            return self.untrusted.success();
        }
        if !reply.is_temporary() || reply.limit.is_some() || !is_about_us(reply, client) {
            return;
        }
        let outcomes = if client == ClientKind::Stranger { &self.untrusted } else { &self.known };
        let code = reply.enhanced.map_or_else(String::new, |code| format!(" {code}"));
        outcomes.failure(format_args!("{}{code} {}", reply.code, reply.text));
    }
}

/// Whether a refusal is about this server (X.3 of RFC 3463). Rules, policy services, limits and call-ahead use other
/// codes for their intended refusals. A rule that defers trusted clients is a mistake, unless it is about the address
/// (X.1) or the connection (X.4).
fn is_about_us(reply: &Reply, client: ClientKind) -> bool {
    let subject = reply.enhanced.map(|code| code.subject);
    match client {
        ClientKind::Trusted => !matches!(subject, Some(1 | 4)),
        ClientKind::User | ClientKind::Stranger => subject == Some(3),
    }
}

impl Health {
    /// Reports a state that lasts until the next report about it; `None`: all is well.
    pub fn report(&self, name: Name, subject: &str, words: Option<ConditionTexts>) {
        let key = ConditionKey { name, subject: subject.to_owned() };
        let mut reported = self.reported.lock();
        match words {
            Some(words) => drop(reported.insert(key, words)),
            None => drop(reported.remove(&key)),
        }
    }

    /// Replaces all reports of a name.
    pub fn report_all(&self, name: Name, all: impl IntoIterator<Item = (String, ConditionTexts)>) {
        let mut reported = self.reported.lock();
        reported.retain(|key, _| key.name != name);
        reported.extend(all.into_iter().map(|(subject, words)| (ConditionKey { name, subject }, words)));
    }

    /// The current reports as observations.
    pub fn reports(&self) -> Vec<Observation> {
        let reported = self.reported.lock();
        let all = reported.iter();
        all.map(|(key, words)| Observation::holds(key.name, key.subject.clone(), words.clone())).collect()
    }

    /// Called once a second.
    pub fn observe(&self, at: Moment, mut observations: Vec<Observation>) -> Vec<ConditionChange> {
        observations.extend(self.reports());
        self.ledger.lock().observe(at, observations)
    }

    /// The conditions in force; see [`Ledger::conditions`].
    pub fn conditions(&self) -> Vec<Condition> {
        self.ledger.lock().conditions()
    }
}

/// One line about all conditions, with those that refuse mail first; `None`: nothing is wrong.
pub fn headline(conditions: &[Condition]) -> Option<String> {
    let worst = conditions.first().filter(|worst| worst.severity == Severity::Problem)?;
    let more = conditions.len() - 1;
    let start = if worst.refuses_mail { "refusing mail: " } else { "" };
    let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    Some(format!("PROBLEM: {start}{}{rest}", worst.what))
}

/// Whether new mail is refused because of one of the conditions.
pub fn refuses_mail(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| condition.refuses_mail)
}

/// Updates `old` to the counter's new value. Returns by how much it grew.
pub fn grown(new: u64, old: &mut u64) -> u64 {
    new.saturating_sub(mem::replace(old, new))
}
