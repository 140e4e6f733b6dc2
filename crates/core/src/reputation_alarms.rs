//! Replies about our reputation: for each block list (or provider that names none) and source address, an alarm that
//! lasts until mail is taken again.
//!
//! A reply counts if the bounce rules give it the cause `reputation`. Its alarm ends when each provider that sent such
//! replies has taken mail from the source again, or a configured time after the last reply.
//!
//! Replies in reports come from anybody who got one copy, so a report is worth one voice: it counts once for each
//! recipient of a list or sender, for the domain of that recipient, whatever host it names. Only block lists have such
//! alarms, and one is in force only while recipients in [`REPORTED_DOMAINS_MIN`] domains report it.
//!
//! Promise: a transaction without failures costs one relaxed load while there is no alarm. Of a failed one at most
//! [`CLASSIFIED_MAX`] different replies are classified, each once and without a lock. Any host can make up names of
//! block lists, so only those of the rules file have places of their own. Alarms by kind, with [`PROVIDERS_MAX`]
//! providers each: [`ALARMS_MAX`] of known lists, where a new one displaces the one with the oldest reply;
//! [`UNKNOWN_ALARMS_MAX`] of other lists, and the further ones share one; [`PROVIDER_ALARMS_MAX`] of providers, where a
//! new one displaces the one with the fewest replies. At most [`WARNINGS_MAX`] warnings an hour are logged.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use stentor_bounces::provider::of_host;
use stentor_bounces::{BounceCause, BounceReply, BounceRules};
use stentor_mail::domain::is_at_or_below;
use stentor_queue::ids::Ms;
use stentor_sched::RcptOutcome;

/// Maximum alarms about block lists of the rules file, and counters of these lists.
const ALARMS_MAX: usize = 64;
/// Maximum alarms about other lists, and counters of these.
const UNKNOWN_ALARMS_MAX: usize = 8;
const UNKNOWN_COUNTERS_MAX: usize = 16;
/// Maximum alarms about providers.
const PROVIDER_ALARMS_MAX: usize = 32;
/// Name that further lists share.
const OTHERS: &str = "(others)";
/// Maximum warnings in the log in [`WARN_EVERY_MS`].
const WARNINGS_MAX: u32 = 16;
/// Maximum providers of an alarm.
const PROVIDERS_MAX: usize = 32;
/// Maximum different replies of a transaction that are classified.
const CLASSIFIED_MAX: usize = 8;
/// Reply codes from here on defer or refuse.
pub const FAILED_CODE_MIN: u16 = 400;
/// Octets kept of a sample.
const SAMPLE_BYTES_MAX: usize = 400;
/// Minimum interval between two warnings in the log about one alarm.
const WARN_EVERY_MS: Ms = 3_600_000;
/// Organizational domains of recipients that must report a block list.
const REPORTED_DOMAINS_MIN: usize = 3;
/// Maximum recipients of an alarm that are remembered; further ones do not count.
const REPORTERS_MAX: usize = 64;
/// The source of replies in reports, which do not say which address had sent the mail.
pub const REPORT_SOURCE: &str = "(report)";

/// Where mail was refused.
#[derive(Clone, Copy, Debug)]
pub struct BlockedPlace<'a> {
    /// Name of the configured source, empty for the default, or [`REPORT_SOURCE`].
    pub source: &'a str,
    pub host: &'a str,
}

/// Whose copy a report is about.
#[derive(Clone, Copy, Debug)]
pub struct ReportedRecipient<'a> {
    /// The list or sender.
    pub subject: &'a str,
    pub recipient: &'a str,
}

impl ReportedRecipient<'_> {
    fn hash(self) -> u64 {
        // Seeded by the process: nobody can look for recipients with equal values.
        static SEEDS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        SEEDS.hash_one((self.subject.to_ascii_lowercase(), self.recipient.to_ascii_lowercase()))
    }
}

/// The kind of the name in an alarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmKind {
    /// A block list of the rules file.
    KnownList,
    /// Another one, named by the host.
    UnknownList,
    /// The provider at which our reputation is bad.
    Provider,
}

/// An alarm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReputationAlarm {
    /// The block list, or the provider.
    pub list: String,
    pub kind: AlarmKind,
    pub source: String,
    pub replies: u64,
    pub first: Ms,
    pub last: Ms,
    /// The host that sent the last reply, and the reply.
    pub host: String,
    pub sample: String,
    /// Organizational domains of hosts that sent such a reply and have accepted no mail since.
    providers: Vec<String>,
    /// Recipients whose reports count, with their providers.
    reporters: HashMap<u64, String>,
    warned: Option<Ms>,
}

impl ReputationAlarm {
    /// Whether it holds, not only a report or two.
    fn is_in_force(&self) -> bool {
        self.source != REPORT_SOURCE || self.providers.len() >= REPORTED_DOMAINS_MIN
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AlarmKey {
    list: String,
    source: String,
}

#[derive(Default)]
struct AlarmState {
    alarms: BTreeMap<AlarmKey, ReputationAlarm>,
    /// Replies by list since the server started, of lists of the rules file and of others.
    replies: [BTreeMap<String, u64>; 2],
    /// Warnings in the log, and when their period began.
    warnings: u32,
    warnings_since: Ms,
}

impl AlarmState {
    fn count(&mut self, kind: AlarmKind, list: &str) {
        let (replies, counters_max) = match kind {
            AlarmKind::KnownList => (&mut self.replies[0], ALARMS_MAX),
            AlarmKind::UnknownList => (&mut self.replies[1], UNKNOWN_COUNTERS_MAX),
            AlarmKind::Provider => return,
        };
        let is_own = replies.len() < counters_max || replies.contains_key(list);
        *replies.entry(if is_own { list } else { OTHERS }.to_owned()).or_default() += 1;
    }

    /// The key of an alarm. Makes room for it.
    fn place(&mut self, kind: AlarmKind, list: &str, source: &str) -> AlarmKey {
        let key = AlarmKey { list: list.to_owned(), source: source.to_owned() };
        if self.alarms.contains_key(&key) {
            return key;
        }
        let of_kind = || self.alarms.iter().filter(|(_, alarm)| alarm.kind == kind);
        let displaced = match kind {
            AlarmKind::UnknownList if of_kind().count() >= UNKNOWN_ALARMS_MAX => {
                return AlarmKey { list: OTHERS.to_owned(), ..key };
            }
            AlarmKind::KnownList if of_kind().count() >= ALARMS_MAX => of_kind().min_by_key(|(_, alarm)| alarm.last),
            AlarmKind::Provider if of_kind().count() >= PROVIDER_ALARMS_MAX => {
                of_kind().min_by_key(|(_, alarm)| (alarm.replies, alarm.last))
            }
            _ => None,
        };
        if let Some(displaced) = displaced.map(|(key, _)| key.clone()) {
            self.alarms.remove(&displaced);
        }
        key
    }

    /// Whether a further warning may be logged.
    fn may_warn(&mut self, now: Ms) -> bool {
        if self.warnings == 0 || now.abs_diff(self.warnings_since) >= WARN_EVERY_MS {
            (self.warnings, self.warnings_since) = (0, now);
        }
        self.warnings += 1;
        self.warnings <= WARNINGS_MAX
    }
}

/// A reply that an alarm counts.
#[derive(Clone, Copy)]
struct Blocked<'a> {
    place: BlockedPlace<'a>,
    /// The recipient of a report.
    reporter: Option<u64>,
    text: &'a str,
}

fn kind(rules: &BounceRules, list: &str) -> AlarmKind {
    if rules.has_block_list(list) { AlarmKind::KnownList } else { AlarmKind::UnknownList }
}

/// Alarms; see the module's head.
#[derive(Default)]
pub struct ReputationAlarms {
    /// Number of alarms.
    active: AtomicUsize,
    state: Mutex<AlarmState>,
}

impl ReputationAlarms {
    /// Records the outcomes of a transaction in which a reply failed.
    pub fn record_outcomes(&self, rules: &BounceRules, place: BlockedPlace<'_>, outcomes: &[RcptOutcome], now: Ms) {
        let (mut before, mut classified, mut is_blocked) = (None, 0, false);
        for outcome in outcomes.iter().filter(|outcome| outcome.code >= FAILED_CODE_MIN) {
            // A reply repeated for a hundred recipients is classified once.
            if before.replace(&outcome.text) == Some(&outcome.text) {
                continue;
            }
            let reply =
                BounceReply { text: &outcome.text, code: Some(outcome.code), enhanced: outcome.dsn, host: place.host };
            is_blocked |= self.record_reply(rules, place, &reply, now);
            classified += 1;
            if classified >= CLASSIFIED_MAX {
                break;
            }
        }
        if !is_blocked && outcomes.iter().any(|outcome| (200..300).contains(&outcome.code)) {
            self.record_delivery(place);
        }
    }

    /// Records one reply that defers or refuses. Returns whether it is about our reputation.
    pub fn record_reply(&self, rules: &BounceRules, place: BlockedPlace<'_>, reply: &BounceReply<'_>, now: Ms) -> bool {
        let found = rules.classify(reply);
        if found.cause != BounceCause::Reputation {
            return false;
        }
        if found.block_lists.is_empty() {
            self.note(
                &of_host(place.host),
                AlarmKind::Provider,
                Blocked { place, reporter: None, text: reply.text },
                now,
            );
        }
        for list in &found.block_lists {
            self.note(list, kind(rules, list), Blocked { place, reporter: None, text: reply.text }, now);
        }
        true
    }

    /// Records a reply in a report about a proven copy.
    pub fn record_report(&self, rules: &BounceRules, about: ReportedRecipient<'_>, reply: &BounceReply<'_>, now: Ms) {
        let found = rules.classify(reply);
        if found.cause != BounceCause::Reputation {
            return;
        }
        let host = about.recipient.rsplit_once('@').map_or("", |(_, domain)| domain);
        let place = BlockedPlace { source: REPORT_SOURCE, host };
        for list in &found.block_lists {
            self.note(list, kind(rules, list), Blocked { place, reporter: Some(about.hash()), text: reply.text }, now);
        }
    }

    fn note(&self, list: &str, kind: AlarmKind, blocked: Blocked<'_>, now: Ms) {
        let Blocked { place, reporter, text } = blocked;
        let mut state = self.state.lock();
        let key = state.place(kind, list, place.source);
        if let (Some(reporter), Some(alarm)) = (reporter, state.alarms.get(&key))
            && (alarm.reporters.contains_key(&reporter) || alarm.reporters.len() >= REPORTERS_MAX)
        {
            return;
        }
        state.count(kind, list);
        let alarm = state.alarms.entry(key).or_insert_with_key(|key| ReputationAlarm {
            list: key.list.clone(),
            kind,
            source: key.source.clone(),
            replies: 0,
            first: now,
            last: now,
            host: String::new(),
            sample: String::new(),
            providers: Vec::new(),
            reporters: HashMap::new(),
            warned: None,
        });
        alarm.reporters.extend(reporter.map(|reporter| (reporter, of_host(place.host))));
        (alarm.replies, alarm.last) = (alarm.replies + 1, now);
        place.host.clone_into(&mut alarm.host);
        text[..text.floor_char_boundary(SAMPLE_BYTES_MAX)].clone_into(&mut alarm.sample);
        if !alarm.providers.iter().any(|known| is_at_or_below(place.host.trim_end_matches('.'), known))
            && alarm.providers.len() < PROVIDERS_MAX
        {
            alarm.providers.push(of_host(place.host));
        }
        let is_due = alarm.is_in_force() && alarm.warned.is_none_or(|at| now.abs_diff(at) >= WARN_EVERY_MS);
        if is_due {
            alarm.warned = Some(now);
        }
        let is_logged = is_due && state.may_warn(now);
        self.active.store(state.alarms.len(), Ordering::Relaxed);
        drop(state);
        if is_logged {
            let BlockedPlace { source, host } = place;
            let source = if source.is_empty() { "default" } else { source };
            tracing::warn!(list, source, host, reply = text, "mail is refused because of our reputation");
        }
    }

    /// Records that a host accepted mail from a source: its provider no longer counts as refusing.
    pub fn record_delivery(&self, place: BlockedPlace<'_>) {
        if self.active.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.alarms.retain(|_, alarm| {
            if alarm.source == place.source || alarm.source == REPORT_SOURCE {
                alarm.providers.retain(|provider| !is_at_or_below(place.host.trim_end_matches('.'), provider));
                alarm.reporters.retain(|_, provider| alarm.providers.contains(provider));
            }
            !alarm.providers.is_empty()
        });
        self.active.store(state.alarms.len(), Ordering::Relaxed);
    }

    /// The alarms in force; those whose last reply is `lasts_ms` old have ended.
    pub fn alarms(&self, now: Ms, lasts_ms: Ms) -> Vec<ReputationAlarm> {
        if self.active.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut state = self.state.lock();
        state.alarms.retain(|_, alarm| now.saturating_sub(alarm.last) < lasts_ms);
        self.active.store(state.alarms.len(), Ordering::Relaxed);
        state.alarms.values().filter(|alarm| alarm.is_in_force()).cloned().collect()
    }

    /// Replies that named each block list since the server started.
    pub fn replies(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for (list, count) in state.replies.iter().flatten() {
            *all.entry(list.clone()).or_default() += count;
        }
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use stentor_queue::ids::AddressId;
    use stentor_sched::Stage;

    use super::*;

    const LISTED: &str = "Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org";
    const POOR: &str = "4.7.0 Our system has detected that this message is suspicious due to the very low reputation of the sending IP address";
    const LASTS_MS: Ms = 1_000;

    fn outcome(code: u16, text: &str) -> RcptOutcome {
        RcptOutcome { id: AddressId(1), stage: Stage::Rcpt, code, dsn: None, text: text.into() }
    }

    fn attempt(blocked: &ReputationAlarms, place: (&str, &str), outcomes: &[RcptOutcome], now: Ms) {
        let place = BlockedPlace { source: place.0, host: place.1 };
        if outcomes.iter().all(|outcome| outcome.code < FAILED_CODE_MIN) {
            return blocked.record_delivery(place);
        }
        blocked.record_outcomes(BounceRules::shared_built_in(), place, outcomes, now);
    }

    fn names(blocked: &ReputationAlarms, now: Ms) -> Vec<(String, String, u64)> {
        let alarms = blocked.alarms(now, LASTS_MS).into_iter();
        alarms.map(|alarm| (alarm.list, alarm.source, alarm.replies)).collect()
    }

    #[test]
    fn an_alarm_ends_when_every_provider_takes_mail_from_the_source_again() {
        let blocked = ReputationAlarms::default();
        let listed = [outcome(554, LISTED), outcome(554, LISTED), outcome(250, "OK")];
        attempt(&blocked, ("bulk", "mx1.one.example"), &listed, 5);
        attempt(&blocked, ("bulk", "mx.two.example"), &listed[..1], 7);
        attempt(&blocked, ("bulk", "mx.two.example"), &[outcome(550, "User unknown")], 8);
        assert_eq!(names(&blocked, 9), [("Spamhaus".to_owned(), "bulk".to_owned(), 2)]);
        let alarm = blocked.alarms(9, LASTS_MS).remove(0);
        assert_eq!((alarm.first, alarm.last, &*alarm.host, &*alarm.sample), (5, 7, "mx.two.example", LISTED));
        let sent = [outcome(250, "OK")];
        attempt(&blocked, ("other", "mx1.one.example"), &sent, 10);
        attempt(&blocked, ("bulk", "mx2.one.example"), &sent, 10);
        assert_eq!(names(&blocked, 10).len(), 1, "the other provider still refuses");
        attempt(&blocked, ("bulk", "mx.two.example"), &sent, 11);
        assert_eq!(names(&blocked, 11), []);
        assert_eq!(blocked.replies(), [("Spamhaus".to_owned(), 2)], "counters only grow");
    }

    #[test]
    fn an_alarm_ends_by_itself_and_reputation_without_a_list_has_the_provider() {
        let blocked = ReputationAlarms::default();
        let reply = outcome(421, POOR);
        attempt(&blocked, ("", "gmail-smtp-in.l.google.com"), &[reply], 5);
        assert_eq!(names(&blocked, 6), [("google.com".to_owned(), String::new(), 1)]);
        assert_eq!(blocked.alarms(6, LASTS_MS)[0].kind, AlarmKind::Provider);
        assert_eq!(blocked.replies(), []);
        assert_eq!(names(&blocked, 5 + LASTS_MS), []);
    }

    #[test]
    fn names_that_hosts_make_up_displace_no_known_list() {
        let blocked = ReputationAlarms::default();
        attempt(&blocked, ("bulk", "mx.one.example"), &[outcome(554, LISTED)], 1);
        attempt(&blocked, ("", "mx.big.example"), &[outcome(554, POOR)], 2);
        attempt(&blocked, ("", "mx.big.example"), &[outcome(554, POOR)], 3);
        for n in 0..200 {
            let listed = outcome(554, &format!("Client host [192.0.2.1] blocked using bl.n{n}.example"));
            let host = format!("mx.n{n}.example");
            attempt(&blocked, ("bulk", &host), &[listed], n + 10);
            attempt(&blocked, ("bulk", &host), &[outcome(554, POOR)], n + 10);
        }
        let alarms = blocked.alarms(0, Ms::MAX);
        let count = |kind| alarms.iter().filter(|alarm| alarm.kind == kind).count();
        assert_eq!(count(AlarmKind::KnownList), 1);
        assert_eq!(count(AlarmKind::UnknownList), UNKNOWN_ALARMS_MAX + 1);
        assert_eq!(count(AlarmKind::Provider), PROVIDER_ALARMS_MAX);
        assert!(alarms.iter().any(|alarm| alarm.list == "big.example"));
        let others = alarms.iter().find(|alarm| alarm.list == OTHERS).unwrap();
        assert_eq!((others.replies, &*others.host), (200 - UNKNOWN_ALARMS_MAX as u64, "mx.n199.example"));
        let replies = blocked.replies();
        assert_eq!(replies.len(), UNKNOWN_COUNTERS_MAX + 2);
        assert!(replies.contains(&("Spamhaus".to_owned(), 1)));
        assert!(replies.contains(&(OTHERS.to_owned(), 200 - UNKNOWN_COUNTERS_MAX as u64)));
    }

    fn reported(blocked: &ReputationAlarms, subject: &str, recipient: &str, text: &str, now: Ms) {
        let reply = BounceReply { text, code: None, enhanced: None, host: "mx.invented.example" };
        let about = ReportedRecipient { subject, recipient };
        blocked.record_report(BounceRules::shared_built_in(), about, &reply, now);
    }

    /// One person can write as many reports as they like about their own copies.
    #[test]
    fn reports_count_once_for_a_recipient_and_raise_an_alarm_from_three_domains() {
        let blocked = ReputationAlarms::default();
        let of_reports = |replies| vec![("Spamhaus".to_owned(), REPORT_SOURCE.to_owned(), replies)];
        for n in 0..100 {
            reported(&blocked, "news", "eve@one.example", LISTED, n);
            reported(&blocked, "NEWS", "Eve@ONE.example", LISTED, n);
        }
        assert_eq!(blocked.replies(), [("Spamhaus".to_owned(), 1)]);
        reported(&blocked, "news", "eve@a.one.example", LISTED, 101);
        reported(&blocked, "other", "eve@one.example", LISTED, 102);
        assert_eq!(names(&blocked, 103), [], "one domain");
        reported(&blocked, "news", "ann@two.example", LISTED, 104);
        assert_eq!(names(&blocked, 105), [], "two domains");
        reported(&blocked, "news", "bob@three.example", LISTED, 106);
        assert_eq!(names(&blocked, 107), of_reports(5));
        assert_eq!(blocked.alarms(107, LASTS_MS)[0].host, "three.example", "not the host that the report names");
        attempt(&blocked, ("bulk", "mx.two.example"), &[outcome(250, "OK")], 108);
        assert_eq!(names(&blocked, 109), [], "two again");
        reported(&blocked, "news", "ann@two.example", LISTED, 110);
        assert_eq!(names(&blocked, 111), of_reports(6));
        // Opinions of one provider come from one domain.
        for n in 0..9 {
            reported(&blocked, "news", &format!("u@n{n}.example"), POOR, 112);
        }
        assert_eq!(names(&blocked, 113), of_reports(6));
    }

    #[test]
    fn recipients_of_an_alarm_are_bounded_and_hold_no_place_of_a_session() {
        let blocked = ReputationAlarms::default();
        for n in 0..3 * REPORTERS_MAX {
            reported(&blocked, "news", &format!("u@n{n}.example"), LISTED, 1);
        }
        assert_eq!(names(&blocked, 2)[0].2, REPORTERS_MAX as u64);
        attempt(&blocked, ("bulk", "mx.one.example"), &[outcome(554, LISTED)], 3);
        assert_eq!(names(&blocked, 4).len(), 2);
    }

    #[test]
    fn warnings_are_limited_over_all_names() {
        let mut state = AlarmState::default();
        let warned = |state: &mut AlarmState, now| (0..50).filter(|_| state.may_warn(now)).count();
        assert_eq!(warned(&mut state, 7), WARNINGS_MAX as usize);
        assert_eq!(warned(&mut state, 7 + WARN_EVERY_MS - 1), 0);
        assert_eq!(warned(&mut state, 7 + WARN_EVERY_MS), WARNINGS_MAX as usize);
    }
}
