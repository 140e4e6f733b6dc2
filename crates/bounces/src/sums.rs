//! Sums of causes over records: by cause, provider and list, block lists by source address, and clusters of replies
//! that no rule knows.
//!
//! Counting, as in `mailstat`: a recipient that was given up counts once, by its record of `bounce`; a deferral counts
//! for each attempt; a failure that came back to a list or manager by mail counts for each report, which anybody can
//! send about a return path without a tag. Records of `bounce` name neither host nor reply code, so cause and host are
//! those of the recipient's last refusal (deferral, if the message expired). Without one the record's own reply is
//! classified, and the provider of a domain is the last that answered for it.
//!
//! Bounds: [`ROWS_MAX`] rows and clusters, further ones share one; [`DOMAINS_MAX`] domains, [`REPLIES_MAX`] distinct
//! replies and [`FAILURES_MAX`] failures of recipients are remembered, at the bound they are forgotten together.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use serde::Serialize;
use stentor_mail::reply::Enhanced;
use stentor_records::record::{Attempt, Ms, Record, Stat, Topic, domain};

use crate::cause::BounceCause;
use crate::cluster;
use crate::message::ReportAction;
use crate::note::ReportNote;
use crate::provider;
use crate::reply::{BounceReply, start_of};
use crate::rules::BounceRules;

/// Maximum rows, and maximum clusters.
pub const ROWS_MAX: usize = 20_000;
/// Maximum domains whose provider is remembered.
pub const DOMAINS_MAX: usize = 200_000;
/// Maximum distinct replies whose cause is remembered.
pub const REPLIES_MAX: usize = 20_000;
/// Maximum failures of recipients that are remembered; of replies in them, [`REPLIES_MAX`] are shared.
pub const FAILURES_MAX: usize = 200_000;
/// Name of the row that further ones share.
const OTHERS: &str = "(others)";
/// Octets kept of an example.
const SAMPLE_BYTES_MAX: usize = 300;

/// Recipients with the same cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BounceCount {
    /// Recipients given up.
    pub given_up: u64,
    /// Deferrals, once per attempt and recipient.
    pub deferred: u64,
    /// Recipients that a bounce message to a list or manager named as failed.
    pub returned: u64,
}

impl BounceCount {
    fn add(&mut self, other: BounceCount) {
        self.given_up += other.given_up;
        self.deferred += other.deferred;
        self.returned += other.returned;
    }

    fn total(self) -> u64 {
        self.given_up + self.deferred + self.returned
    }
}

/// The subject of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BounceSubject {
    #[default]
    Cause,
    Provider,
    List,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SumKey {
    cause: BounceCause,
    provider: String,
    list: String,
}

/// One row: a subject and a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BounceRow {
    /// Provider or list, or the sender's domain if the mail is of no list; empty in rows by cause, and if the sender is
    /// not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub cause: BounceCause,
    #[serde(flatten)]
    pub count: BounceCount,
}

/// Replies that no rule knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownCluster {
    /// The words that its replies share.
    pub words: String,
    /// One of its replies.
    pub sample: String,
    #[serde(flatten)]
    pub count: BounceCount,
}

/// A block list that replies named, and our address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockedSource {
    /// The list; empty if replies speak of our reputation without a list's name.
    pub block_list: String,
    /// The configured source address; empty: the default.
    pub source: String,
    pub replies: u64,
    /// When the last reply came.
    pub last: Ms,
    pub sample: String,
}

/// The mail that failed, and the reply.
#[derive(Clone, Copy)]
struct SummedMail<'a> {
    list: &'a str,
    /// The envelope sender, or its domain.
    from: &'a str,
    reply: &'a str,
}

impl<'a> SummedMail<'a> {
    fn of(attempt: &Attempt<'a>) -> SummedMail<'a> {
        SummedMail { list: attempt.list, from: attempt.from, reply: attempt.reply }
    }
}

/// A classification without its borrowed rule.
struct KnownReply {
    cause: BounceCause,
    block_lists: Vec<String>,
    /// Organisational domain of the host that replied; empty without a host.
    provider: String,
}

/// The last failure of a recipient of a message.
struct LastFailure {
    stat: Stat,
    known: Rc<KnownReply>,
}

/// Sums, filled record by record.
pub struct BounceSums<'r> {
    rules: &'r BounceRules,
    since: Option<Ms>,
    until: Option<Ms>,
    records: u64,
    counts: BTreeMap<SumKey, BounceCount>,
    clusters: BTreeMap<String, UnknownCluster>,
    blocked: BTreeMap<[String; 2], BlockedSource>,
    providers: HashMap<String, String>,
    replies: HashMap<String, Rc<KnownReply>>,
    /// By the hash of message and recipient: a rare collision costs one row's cause.
    failures: HashMap<u64, LastFailure>,
    hasher: RandomState,
}

impl<'r> BounceSums<'r> {
    /// Counts records from `since` to before `until`.
    pub fn new(rules: &'r BounceRules, since: Option<Ms>, until: Option<Ms>) -> BounceSums<'r> {
        BounceSums {
            rules,
            since,
            until,
            records: 0,
            counts: BTreeMap::new(),
            clusters: BTreeMap::new(),
            blocked: BTreeMap::new(),
            providers: HashMap::new(),
            replies: HashMap::new(),
            failures: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    pub fn add(&mut self, record: &Record<'_>) {
        let at = record.at();
        if self.since.is_some_and(|since| at < since) || self.until.is_some_and(|until| at >= until) {
            return;
        }
        self.records += 1;
        match record {
            Record::Attempt(attempt) => self.attempt(attempt),
            Record::Note(note) if note.topic == Topic::Policy => {
                if let Some(report) = ReportNote::read(note.text) {
                    self.returned(&report);
                }
            }
            _ => {}
        }
    }

    /// Counts a bounce that came back by mail. The line has the cause that the rules found when it came.
    fn returned(&mut self, report: &ReportNote<'_>) {
        let Some(cause) = BounceCause::named(report.cause).filter(|_| report.action == ReportAction::Failed.name())
        else {
            return;
        };
        let known = KnownReply { cause, block_lists: Vec::new(), provider: String::new() };
        // Its domain, if an older line has no sender.
        let from = if report.sender.is_empty() { &*report.sender_domain } else { &*report.sender };
        let mail = SummedMail { list: &report.list, from, reply: report.text };
        let count = BounceCount { returned: 1, ..BounceCount::default() };
        self.count(mail, &known, domain(&report.recipient), count);
    }

    fn attempt(&mut self, attempt: &Attempt<'_>) {
        if !attempt.host.is_empty() && !attempt.is_fate_alone() {
            self.remember_provider(attempt);
        }
        let count = |recipients: u64| match attempt.stat {
            Stat::Deferred => Some(BounceCount { deferred: recipients, ..BounceCount::default() }),
            Stat::Bounced | Stat::Expired if attempt.is_given_up() => {
                Some(BounceCount { given_up: recipients, ..BounceCount::default() })
            }
            _ => None,
        };
        let is_refusal = attempt.stat == Stat::Bounced && !attempt.is_fate_alone();
        if count(1).is_none() && !is_refusal {
            return;
        }
        let known = self.classify(attempt);
        if !attempt.is_fate_alone() {
            self.note_blocked(attempt, &known);
            self.remember_failure(attempt, &known);
        }
        if let Some(unreached) = &attempt.unreached {
            let mut unnamed = unreached.waiting;
            for (domain, waiting) in &unreached.domains {
                unnamed = unnamed.saturating_sub(*waiting);
                self.count(SummedMail::of(attempt), &known, domain, count(*waiting).unwrap_or_default());
            }
            self.count(SummedMail::of(attempt), &known, unreached.site, count(unnamed).unwrap_or_default());
            return;
        }
        for to in &attempt.to {
            let last = if attempt.is_fate_alone() { self.failure_of(attempt, to) } else { None };
            let known = last.as_ref().unwrap_or(&known);
            self.count(SummedMail::of(attempt), known, domain(to), count(1).unwrap_or_default());
        }
    }

    fn remember_failure(&mut self, attempt: &Attempt<'_>, known: &Rc<KnownReply>) {
        if attempt.id.is_empty() {
            return;
        }
        for to in &attempt.to {
            if self.failures.len() >= FAILURES_MAX {
                self.failures.clear();
            }
            let key = self.hasher.hash_one((attempt.id, &**to));
            self.failures.insert(key, LastFailure { stat: attempt.stat, known: known.clone() });
        }
    }

    /// Takes the failure for which a recipient was given up. An operator may give up what was only deferred.
    fn failure_of(&mut self, attempt: &Attempt<'_>, to: &str) -> Option<Rc<KnownReply>> {
        let last = self.failures.remove(&self.hasher.hash_one((attempt.id, to)))?;
        let wanted = if attempt.stat == Stat::Expired { Stat::Deferred } else { Stat::Bounced };
        (last.stat == wanted).then_some(last.known)
    }

    fn remember_provider(&mut self, attempt: &Attempt<'_>) {
        let Some(first) = attempt.to.first() else { return };
        let domain = domain(first).to_ascii_lowercase();
        if self.providers.len() >= DOMAINS_MAX {
            self.providers.clear();
        }
        self.providers.insert(domain, provider::of_host(attempt.host));
    }

    fn classify(&mut self, attempt: &Attempt<'_>) -> Rc<KnownReply> {
        let key = format!("{}\n{}\n{}", attempt.host, attempt.dsn, attempt.reply);
        if let Some(known) = self.replies.get(&key) {
            return known.clone();
        }
        let found = self.rules.classify(&BounceReply {
            text: attempt.reply,
            code: None,
            enhanced: Enhanced::parse(attempt.dsn).filter(|enhanced| enhanced.class != 2),
            host: attempt.host,
        });
        let provider = provider::of_host(attempt.host);
        let known = Rc::new(KnownReply { cause: found.cause, block_lists: found.block_lists, provider });
        if self.replies.len() >= REPLIES_MAX {
            self.replies.clear();
        }
        self.replies.insert(key, known.clone());
        known
    }

    fn count(&mut self, mail: SummedMail<'_>, known: &KnownReply, domain: &str, count: BounceCount) {
        if count == BounceCount::default() {
            return;
        }
        let domain = domain.to_ascii_lowercase();
        let provider = match &*known.provider {
            "" => self.providers.get(&domain).cloned().unwrap_or(domain),
            provider => provider.to_owned(),
        };
        // Mail without a list is that of its sender's domain.
        let of_sender = || mail.from.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
        let list = if mail.list.is_empty() { of_sender() } else { mail.list.to_owned() };
        let mut key = SumKey { cause: known.cause, provider, list };
        // Senders' domains may be any number; they leave room for providers and lists.
        let is_crowded = mail.list.is_empty() && self.counts.len() >= ROWS_MAX / 2;
        if is_crowded && !self.counts.contains_key(&key) {
            OTHERS.clone_into(&mut key.list);
        }
        if self.counts.len() >= ROWS_MAX && !self.counts.contains_key(&key) {
            key = SumKey { cause: known.cause, provider: OTHERS.to_owned(), list: OTHERS.to_owned() };
        }
        self.counts.entry(key).or_default().add(count);
        if known.cause == BounceCause::Unknown {
            self.cluster(mail.reply, count);
        }
    }

    fn cluster(&mut self, reply: &str, count: BounceCount) {
        let mut key = cluster::key(reply);
        if self.clusters.len() >= ROWS_MAX && !self.clusters.contains_key(&key) {
            OTHERS.clone_into(&mut key);
        }
        let new = || UnknownCluster { words: String::new(), sample: sample(reply), count: BounceCount::default() };
        self.clusters.entry(key).or_insert_with(new).count.add(count);
    }

    fn note_blocked(&mut self, attempt: &Attempt<'_>, known: &KnownReply) {
        if known.cause != BounceCause::Reputation {
            return;
        }
        let unnamed = [String::new()];
        let lists = if known.block_lists.is_empty() { &unnamed[..] } else { &known.block_lists };
        for list in lists {
            let key = [list.clone(), attempt.source.to_owned()];
            if self.blocked.len() >= ROWS_MAX && !self.blocked.contains_key(&key) {
                continue;
            }
            let blocked = self.blocked.entry(key).or_insert_with(|| BlockedSource {
                block_list: list.clone(),
                source: attempt.source.to_owned(),
                replies: 0,
                last: 0,
                sample: String::new(),
            });
            blocked.replies += 1;
            if attempt.at >= blocked.last {
                blocked.last = attempt.at;
                blocked.sample = sample(attempt.reply);
            }
        }
    }

    /// Records of the period, of any kind.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Rows by subject and cause, those with most recipients first.
    pub fn rows(&self, by: BounceSubject) -> Vec<BounceRow> {
        let mut sums: BTreeMap<(String, BounceCause), BounceCount> = BTreeMap::new();
        for (key, count) in &self.counts {
            let name = match by {
                BounceSubject::Cause => String::new(),
                BounceSubject::Provider => key.provider.clone(),
                BounceSubject::List => key.list.clone(),
            };
            sums.entry((name, key.cause)).or_default().add(*count);
        }
        let mut rows: Vec<BounceRow> =
            sums.into_iter().map(|((name, cause), count)| BounceRow { name, cause, count }).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.count.given_up + row.count.returned, row.count.deferred)));
        rows
    }

    /// Clusters of replies without a rule, those with most recipients first.
    pub fn clusters(&self) -> Vec<UnknownCluster> {
        let named =
            |(words, cluster): (&String, &UnknownCluster)| UnknownCluster { words: words.clone(), ..cluster.clone() };
        let mut clusters: Vec<UnknownCluster> = self.clusters.iter().map(named).collect();
        clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.count.total()));
        clusters
    }

    /// Block lists and sources, those with most replies first.
    pub fn blocked(&self) -> Vec<BlockedSource> {
        let mut blocked: Vec<BlockedSource> = self.blocked.values().cloned().collect();
        blocked.sort_by_key(|blocked| std::cmp::Reverse(blocked.replies));
        blocked
    }
}

fn sample(reply: &str) -> String {
    start_of(reply, SAMPLE_BYTES_MAX).to_owned()
}

#[cfg(test)]
mod tests {
    use stentor_records::record::Note;

    use super::*;

    fn attempt<'a>(mailer: &'a str, host: &'a str, to: &[&'a str], stat: Stat, reply: &'a str) -> Attempt<'a> {
        Attempt {
            at: 5,
            mailer,
            host,
            to: to.iter().copied().collect(),
            stat,
            reply,
            list: "news",
            ..Attempt::default()
        }
    }

    #[test]
    fn recipients_count_by_cause_and_provider() {
        let rules = BounceRules::built_in();
        let mut sums = BounceSums::new(&rules, Some(5), Some(6));
        let unknown = "550 5.1.1 No such user";
        let records = [
            attempt("esmtp", "mx.one.example", &["a@x.example"], Stat::Bounced, unknown),
            attempt("bounce", "", &["a@x.example"], Stat::Bounced, "No such user"),
            attempt(
                "esmtp",
                "mx.one.example",
                &["b@x.example", "c@x.example"],
                Stat::Deferred,
                "452 4.2.2 Mailbox full",
            ),
            attempt("esmtp", "mx.two.example", &["d@y.example"], Stat::Deferred, "451 flurble 17 wobble"),
            attempt("esmtp", "mx.two.example", &["e@y.example"], Stat::Deferred, "451 flurble 18 wobble"),
            attempt("esmtp", "mx.two.example", &["e@y.example"], Stat::Sent, "250 OK"),
            Attempt { at: 6, ..attempt("esmtp", "mx.one.example", &["z@x.example"], Stat::Deferred, "later") },
        ];
        for record in records {
            sums.add(&Record::Attempt(record));
        }
        let rows = sums.rows(BounceSubject::Provider);
        let told: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {} {} {}", row.name, row.cause, row.count.given_up, row.count.deferred))
            .collect();
        assert_eq!(told[..2], ["one.example no_mailbox 1 0", "one.example full 0 2"]);
        assert_eq!(sums.rows(BounceSubject::List)[0].name, "news");
        assert_eq!(sums.rows(BounceSubject::Cause).iter().map(|row| row.count.deferred).sum::<u64>(), 4);
    }

    #[test]
    fn recipients_given_up_have_the_cause_of_their_refusal() {
        let rules = BounceRules::parse(
            "[[rule]]\nname = \"a\"\nprovider = [\"one.example\"]\ncode = [550]\ncause = \"policy\"\nconfidence = 9\n\
             [[rule]]\nname = \"b\"\ncode = [452]\ncause = \"full\"\nconfidence = 9",
        )
        .unwrap();
        let mut sums = BounceSums::new(&rules, None, None);
        let of = |id: &'static str, attempt: Attempt<'static>| Record::Attempt(Attempt { id, ..attempt });
        let (a, b, refusal) = ("a@x.example", "b@x.example", "550 5.1.1 user unknown");
        for record in [
            of("m1", attempt("esmtp", "mx.one.example", &[a, b], Stat::Bounced, refusal)),
            of("m2", attempt("esmtp", "mx.two.example", &[a], Stat::Bounced, refusal)),
            of("m3", attempt("esmtp", "mx.two.example", &[a], Stat::Deferred, "452 wait")),
            of("m4", attempt("esmtp", "mx.two.example", &[a], Stat::Deferred, "452 wait")),
            of("m1", attempt("bounce", "", &[a], Stat::Bounced, "user unknown")),
            of("m1", attempt("bounce", "", &[b], Stat::Bounced, "user unknown")),
            of("m2", attempt("bounce", "", &[a], Stat::Bounced, "user unknown")),
            of("m3", attempt("bounce", "", &[a], Stat::Expired, "wait")),
            of("m4", attempt("bounce", "", &[a], Stat::Bounced, "an operator gave up")),
        ] {
            sums.add(&record);
        }
        let rows = sums.rows(BounceSubject::Provider);
        let told =
            |row: &BounceRow| format!("{} {} {} {}", row.name, row.cause, row.count.given_up, row.count.deferred);
        let told: Vec<String> = rows.iter().map(told).collect();
        assert_eq!(told, ["one.example policy 2 0", "two.example unknown 2 0", "two.example full 1 2"]);
        assert!(sums.failures.is_empty());
    }

    #[test]
    fn bounces_that_come_back_count_by_provider_and_list() {
        let rules = BounceRules::built_in();
        let mut sums = BounceSums::new(&rules, None, None);
        sums.add(&Record::Attempt(attempt("esmtp", "mx.one.example", &["a@x.example"], Stat::Sent, "250 OK")));
        let line = |action, cause| {
            format!(
                "report: list=news, to=<b@X.example>, proven, action={action}, cause={cause}, rule=none: flurble 17"
            )
        };
        for text in
            [line("failed", "no_mailbox"), line("failed", "unknown"), line("delayed", "full"), line("failed", "x")]
        {
            sums.add(&Record::Note(Note { text: &text, topic: Topic::Policy, ..Note::default() }));
        }
        let rows = |by| {
            let rows = sums.rows(by).into_iter();
            rows.map(|row| format!("{} {} {}", row.name, row.cause, row.count.returned)).collect::<Vec<_>>()
        };
        assert_eq!(rows(BounceSubject::Provider), ["one.example no_mailbox 1", "one.example unknown 1"]);
        assert_eq!(rows(BounceSubject::List), ["news no_mailbox 1", "news unknown 1"]);
        assert_eq!((sums.clusters().len(), sums.clusters()[0].count.returned), (1, 1));
    }

    #[test]
    fn mail_without_a_list_counts_for_its_senders_domain() {
        let rules = BounceRules::built_in();
        let mut sums = BounceSums::new(&rules, None, None);
        let deferred = attempt("esmtp", "mx.one.example", &["a@x.example"], Stat::Deferred, "452 4.2.2 Mailbox full");
        sums.add(&Record::Attempt(Attempt { list: "", from: "news-bounces@Manager.example", ..deferred.clone() }));
        sums.add(&Record::Attempt(Attempt { list: "", ..deferred }));
        let text = "report: sender=<news-bounces@manager.example>, to=<b@x.example>, proven, action=failed, cause=full, \
                    rule=none, from=manager.example: full";
        sums.add(&Record::Note(Note { text, topic: Topic::Policy, ..Note::default() }));
        let rows = sums.rows(BounceSubject::List).into_iter();
        let rows: Vec<String> =
            rows.map(|row| format!("{} {} {}", row.name, row.count.returned, row.count.deferred)).collect();
        assert_eq!(rows, ["manager.example 1 1", " 0 1"]);
    }

    #[test]
    fn block_lists_are_named_by_source() {
        let rules = BounceRules::built_in();
        let mut sums = BounceSums::new(&rules, None, None);
        let reply = "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org";
        let blocked = attempt("esmtp", "mx.one.example", &["a@x.example"], Stat::Deferred, reply);
        sums.add(&Record::Attempt(Attempt { source: "bulk", ..blocked.clone() }));
        sums.add(&Record::Attempt(Attempt { source: "bulk", at: 9, ..blocked }));
        let found = sums.blocked();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&*found[0].block_list, &*found[0].source, found[0].replies, found[0].last),
            ("Spamhaus", "bulk", 2, 9)
        );
    }

    #[test]
    fn unknown_replies_form_clusters() {
        let rules = BounceRules::parse(
            "[[rule]]\nname = \"a\"\ntext = [\"nothing like it\"]\ncause = \"full\"\nconfidence = 9",
        )
        .unwrap();
        let mut sums = BounceSums::new(&rules, None, None);
        for reply in ["550 Flurble a@x.example by mx.a.example", "550 flurble b@y.example by mx.b.example", "550 other"]
        {
            sums.add(&Record::Attempt(attempt("esmtp", "mx.one.example", &["a@x.example"], Stat::Deferred, reply)));
        }
        let clusters = sums.clusters();
        assert_eq!((clusters.len(), clusters[0].count.deferred), (2, 2));
        assert_eq!(clusters[0].words, "550 flurble <address> by <host>");
    }
}
