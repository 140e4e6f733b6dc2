//! Complaint rates: complaints and delivered copies of each list, sender domain and provider, over a rolling day and
//! thirty days.
//!
//! A fold over the records of a history. A delivery counts by the organizational domain of the host that took it
//! (`provider`), a complaint by the host that last took mail for the recipient's domain. Only complaints whose return
//! path proves that the person got a copy are in the rate: anybody can send the others, which are counted apart.
//!
//! Promise: adding a record takes constant time; at most [`HOURS`] + [`DAYS`] periods with [`ROWS_MAX`] names of each
//! kind: a further one takes the place of the one with the fewest deliveries, whose counts go to a common row. An
//! unproven complaint names no provider that has not taken mail, and displaces no name.
//! At most [`DOMAINS_MAX`] domains with their provider, forgotten together. Records older than the windows change
//! nothing. Failure: none; the state is stored with serde.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use stentor_records::record::{Attempt, Ms, Record, Stat, Topic, domain};

use crate::note::{ReportNote, ReportProof};
use crate::provider;

/// Periods kept of each kind.
pub const HOURS: u64 = 24;
pub const DAYS: u64 = 30;
/// Maximum names of a kind in a period.
pub const ROWS_MAX: usize = 500;
/// Maximum domains whose provider is remembered.
pub const DOMAINS_MAX: usize = 5_000;
/// Name of the row that further names share.
pub const OTHERS: &str = "(others)";
/// Fewest complaints that raise an alarm: fewer may be chance.
const COMPLAINTS_MIN: u64 = 3;
const HOUR_MS: Ms = 3_600_000;
const DAY_MS: Ms = 24 * HOUR_MS;

/// Deliveries and complaints of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComplaintCount {
    /// Delivered copies.
    pub delivered: u64,
    /// Complaints whose return path proves the copy.
    pub complaints: u64,
    /// Complaints that anybody may have sent; not in the rate.
    pub unproven: u64,
}

/// The limits of the alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComplaintLimits {
    pub per_10000_warn: u64,
    pub per_10000_alarm: u64,
    pub deliveries_min: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComplaintLevel {
    Alarm,
    Warning,
}

impl ComplaintCount {
    fn add(&mut self, other: ComplaintCount) {
        self.delivered += other.delivered;
        self.complaints += other.complaints;
        self.unproven += other.unproven;
    }

    /// Complaints per delivered copy; 0 without deliveries.
    pub fn ratio(self) -> f64 {
        if self.delivered == 0 { 0.0 } else { self.complaints as f64 / self.delivered as f64 }
    }

    /// `None`: below the limits, or too few deliveries or complaints to tell.
    pub fn level(self, limits: ComplaintLimits) -> Option<ComplaintLevel> {
        if self.delivered < limits.deliveries_min || self.complaints < COMPLAINTS_MIN {
            return None;
        }
        let is_over =
            |limit: u64| u128::from(self.complaints) * 10_000 >= u128::from(limit) * u128::from(self.delivered);
        match () {
            () if is_over(limits.per_10000_alarm) => Some(ComplaintLevel::Alarm),
            () if is_over(limits.per_10000_warn) => Some(ComplaintLevel::Warning),
            () => None,
        }
    }
}

/// What a rate is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComplaintSubject {
    List,
    /// The domain of envelope senders.
    Sender,
    /// The organizational domain of the hosts that took the mail.
    Provider,
}

impl ComplaintSubject {
    pub const ALL: [ComplaintSubject; 3] =
        [ComplaintSubject::List, ComplaintSubject::Sender, ComplaintSubject::Provider];

    pub fn name(self) -> &'static str {
        match self {
            ComplaintSubject::List => "list",
            ComplaintSubject::Sender => "sender",
            ComplaintSubject::Provider => "provider",
        }
    }
}

/// The window of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComplaintWindow {
    /// The last 24 hours, by the hour.
    Day,
    /// The last 30 days, by the day (UTC).
    Month,
}

impl ComplaintWindow {
    pub const ALL: [ComplaintWindow; 2] = [ComplaintWindow::Day, ComplaintWindow::Month];

    pub fn name(self) -> &'static str {
        match self {
            ComplaintWindow::Day => "24h",
            ComplaintWindow::Month => "30d",
        }
    }
}

/// One row: a name with its counts in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComplaintRow {
    pub name: String,
    pub count: ComplaintCount,
}

type Rows = BTreeMap<Box<str>, ComplaintCount>;

/// Counts of one hour or day, by [`ComplaintSubject`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Period([Rows; 3]);

impl Period {
    fn add(&mut self, subject: ComplaintSubject, name: &str, count: ComplaintCount) {
        let rows = &mut self.0[subject as usize];
        if let Some(known) = rows.get_mut(name) {
            return known.add(count);
        }
        let mut name = name;
        if rows.len() >= ROWS_MAX {
            // Anybody can send unproven complaints: they displace nothing.
            if count.delivered + count.complaints == 0 {
                name = OTHERS;
            } else if let Some((fewest, displaced)) = fewest_deliveries(rows) {
                rows.remove(&fewest);
                rows.entry(OTHERS.into()).or_default().add(displaced);
            }
        }
        rows.entry(name.into()).or_default().add(count);
    }
}

fn fewest_deliveries(rows: &Rows) -> Option<(Box<str>, ComplaintCount)> {
    let named = rows.iter().filter(|(name, _)| ***name != *OTHERS);
    let fewest = named.min_by_key(|(_, count)| (count.delivered, count.complaints));
    fewest.map(|(name, count)| (name.clone(), *count))
}

/// Periods by number since the epoch; the newest `keep` of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Periods(BTreeMap<u64, Period>);

impl Periods {
    fn at(&mut self, number: u64, keep: u64) -> Option<&mut Period> {
        let newest = self.0.last_key_value().map_or(number, |(newest, _)| number.max(*newest));
        if number + keep <= newest {
            return None;
        }
        if !self.0.contains_key(&number) {
            self.0.retain(|old, _| old + keep > newest);
        }
        Some(self.0.entry(number).or_default())
    }
}

/// Names that one record counts for; empty ones do not count.
#[derive(Clone, Copy)]
struct CountedNames<'a> {
    list: &'a str,
    sender: &'a str,
    provider: &'a str,
}

/// The fold; see the module's head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComplaintRates {
    hours: Periods,
    days: Periods,
    /// The provider of a recipient domain.
    providers: HashMap<Box<str>, Box<str>>,
}

impl ComplaintRates {
    pub fn add(&mut self, record: &Record<'_>) {
        match record {
            Record::Attempt(attempt) if attempt.stat == Stat::Sent && attempt.mailer == "esmtp" => {
                self.delivered(attempt);
            }
            Record::Note(note) if note.topic == Topic::Policy => {
                if let Some(report) = ReportNote::read(note.text).filter(ReportNote::is_complaint) {
                    self.complained(&report, note.at);
                }
            }
            _ => {}
        }
    }

    fn delivered(&mut self, attempt: &Attempt<'_>) {
        let Some(first) = attempt.to.first().filter(|_| !attempt.is_repeated) else { return };
        let provider = provider::of_host(attempt.host);
        let to = domain(first);
        if self.providers.get(to).is_none_or(|known| **known != *provider) {
            if self.providers.len() >= DOMAINS_MAX {
                self.providers.clear();
            }
            self.providers.insert(to.into(), provider.as_str().into());
        }
        // Anybody may have written the sender of a stranger's mail.
        let sender = if attempt.is_of_stranger { "" } else { domain(attempt.from) };
        let names = CountedNames { list: attempt.list, sender, provider: &provider };
        let count = ComplaintCount { delivered: attempt.to.len() as u64, ..ComplaintCount::default() };
        self.count(attempt.at, names, count);
    }

    fn complained(&mut self, report: &ReportNote<'_>, at: Ms) {
        let count = match report.proof {
            ReportProof::Proven => ComplaintCount { complaints: 1, ..ComplaintCount::default() },
            ReportProof::Unproven => ComplaintCount { unproven: 1, ..ComplaintCount::default() },
            ReportProof::Repeated => return,
        };
        let to = domain(&report.recipient).to_ascii_lowercase();
        let provider = match (self.providers.get(&*to), report.proof) {
            (Some(provider), _) => provider.to_string(),
            (None, ReportProof::Proven) => provider::of_host(&to),
            // The name is the sender's, who may have made it up.
            (None, _) => OTHERS.to_owned(),
        };
        let names = CountedNames { list: &report.list, sender: &report.sender_domain, provider: &provider };
        self.count(at, names, count);
    }

    fn count(&mut self, at: Ms, names: CountedNames<'_>, count: ComplaintCount) {
        let named = [
            (ComplaintSubject::List, names.list),
            (ComplaintSubject::Sender, names.sender),
            (ComplaintSubject::Provider, names.provider),
        ];
        for period in [self.hours.at(at / HOUR_MS, HOURS), self.days.at(at / DAY_MS, DAYS)].into_iter().flatten() {
            for (subject, name) in named.into_iter().filter(|(_, name)| !name.is_empty()) {
                period.add(subject, name, count);
            }
        }
    }

    /// Rows of a window that ends now, those with most complaints first.
    pub fn rows(&self, subject: ComplaintSubject, window: ComplaintWindow, now: Ms) -> Vec<ComplaintRow> {
        let (periods, number, keep) = match window {
            ComplaintWindow::Day => (&self.hours, now / HOUR_MS, HOURS),
            ComplaintWindow::Month => (&self.days, now / DAY_MS, DAYS),
        };
        let mut sums: BTreeMap<&str, ComplaintCount> = BTreeMap::new();
        for (_, period) in periods.0.iter().filter(|(at, _)| **at + keep > number) {
            for (name, count) in &period.0[subject as usize] {
                sums.entry(name).or_default().add(*count);
            }
        }
        let row = |(name, count): (&str, ComplaintCount)| ComplaintRow { name: name.to_owned(), count };
        let mut rows: Vec<ComplaintRow> = sums.into_iter().map(row).collect();
        rows.sort_by_key(|row| Reverse((row.count.complaints, row.count.unproven, row.count.delivered)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Ms = 400 * DAY_MS + 5 * HOUR_MS;
    const LIMITS: ComplaintLimits = ComplaintLimits { per_10000_warn: 10, per_10000_alarm: 30, deliveries_min: 1_000 };

    fn delivery<'a>(at: Ms, host: &'a str, to: &'a str) -> Attempt<'a> {
        Attempt {
            at,
            host,
            mailer: "esmtp",
            list: "news",
            from: "news-bounces@lists.example",
            to: std::iter::once(to).collect(),
            ..Attempt::default()
        }
    }

    fn complain(rates: &mut ComplaintRates, at: Ms, proof: &str) {
        let text = format!(
            "report: list=news, to=<ann@hosted.example>, {proof}, action=complained, cause=content, rule=none, from=lists.example: abuse"
        );
        let note = stentor_records::record::Note { at, text: &text, topic: Topic::Policy, ..Default::default() };
        rates.add(&Record::Note(note));
    }

    fn row(rates: &ComplaintRates, subject: ComplaintSubject, window: ComplaintWindow, now: Ms) -> (String, [u64; 3]) {
        let rows = rates.rows(subject, window, now);
        let ComplaintRow { name, count } = rows
            .first()
            .cloned()
            .unwrap_or_else(|| ComplaintRow { name: String::new(), count: ComplaintCount::default() });
        (name, [count.delivered, count.complaints, count.unproven])
    }

    #[test]
    fn complaints_count_for_list_sender_and_the_provider_that_took_the_copy() {
        let mut rates = ComplaintRates::default();
        rates.add(&Record::Attempt(delivery(NOW, "mx1.big.example", "ann@hosted.example")));
        rates.add(&Record::Attempt(delivery(NOW, "mx.other.example", "bob@other.example")));
        for proof in ["proven", "unproven", "repeated"] {
            complain(&mut rates, NOW, proof);
        }
        let of = |subject| row(&rates, subject, ComplaintWindow::Day, NOW);
        assert_eq!(of(ComplaintSubject::List), ("news".to_owned(), [2, 1, 1]));
        assert_eq!(of(ComplaintSubject::Sender), ("lists.example".to_owned(), [2, 1, 1]));
        assert_eq!(of(ComplaintSubject::Provider), ("big.example".to_owned(), [1, 1, 1]));
        let stored = serde_json::to_vec(&rates).unwrap();
        assert_eq!(serde_json::from_slice::<ComplaintRates>(&stored).unwrap(), rates);
    }

    #[test]
    fn windows_roll() {
        let mut rates = ComplaintRates::default();
        for at in [NOW - 31 * DAY_MS, NOW - 2 * DAY_MS, NOW - 23 * HOUR_MS, NOW] {
            complain(&mut rates, at, "proven");
        }
        let list = |window, now| row(&rates, ComplaintSubject::List, window, now).1[1];
        assert_eq!((list(ComplaintWindow::Day, NOW), list(ComplaintWindow::Month, NOW)), (2, 3));
        assert_eq!(list(ComplaintWindow::Day, NOW + HOUR_MS), 1);
        assert_eq!(list(ComplaintWindow::Month, NOW + 31 * DAY_MS), 0);
    }

    #[test]
    fn few_deliveries_or_complaints_raise_no_alarm() {
        let level = |delivered, complaints| ComplaintCount { delivered, complaints, unproven: 0 }.level(LIMITS);
        assert_eq!(level(3, 1), None);
        assert_eq!(level(999, 900), None);
        assert_eq!(level(1_000, 2), None, "two may be chance");
        assert_eq!(level(3_001, 3), None);
        assert_eq!(level(3_000, 3), Some(ComplaintLevel::Warning));
        assert_eq!(level(1_000, 3), Some(ComplaintLevel::Alarm));
    }

    #[test]
    fn names_are_bounded() {
        let mut rates = ComplaintRates::default();
        for n in 0..ROWS_MAX + 50 {
            let list = format!("l{n}");
            rates.add(&Record::Attempt(Attempt { list: &list, ..delivery(NOW, "mx.big.example", "a@x.example") }));
        }
        let rows = rates.rows(ComplaintSubject::List, ComplaintWindow::Day, NOW);
        assert!(rows.len() <= ROWS_MAX + 1, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.count.delivered).sum::<u64>(), ROWS_MAX as u64 + 50);
    }

    #[test]
    fn forged_complaints_displace_no_provider() {
        let mut rates = ComplaintRates::default();
        let forge = |rates: &mut ComplaintRates, n: usize| {
            let to = format!("to=<x@forged{n}.example>, unproven");
            let text =
                format!("report: list=news, {to}, action=complained, cause=content, rule=none, from=l.example: x");
            let note =
                stentor_records::record::Note { at: NOW, text: &text, topic: Topic::Policy, ..Default::default() };
            rates.add(&Record::Note(note));
        };
        (0..ROWS_MAX + 10).for_each(|n| forge(&mut rates, n));
        rates.add(&Record::Attempt(delivery(NOW, "mx1.big.example", "ann@hosted.example")));
        complain(&mut rates, NOW, "proven");
        complain(&mut rates, NOW, "unproven");
        let rows = rates.rows(ComplaintSubject::Provider, ComplaintWindow::Day, NOW);
        let told: Vec<_> = rows.iter().map(|row| (&*row.name, row.count.complaints, row.count.unproven)).collect();
        assert_eq!(told, [("big.example", 1, 1), (OTHERS, 0, ROWS_MAX as u64 + 10)]);
    }

    #[test]
    fn a_provider_that_takes_much_mail_keeps_its_row() {
        let mut rates = ComplaintRates::default();
        for n in 0..2 * ROWS_MAX {
            for (host, to) in [("mx.big.example", "a@big.example"), (&*format!("mx.p{n}.example"), "a@x.example")] {
                rates.add(&Record::Attempt(delivery(NOW, host, to)));
            }
        }
        let rows = rates.rows(ComplaintSubject::Provider, ComplaintWindow::Day, NOW);
        let delivered = |name: &str| rows.iter().find(|row| row.name == name).map_or(0, |row| row.count.delivered);
        assert_eq!((delivered("big.example"), delivered("p0.example")), (2 * ROWS_MAX as u64, 0));
        assert_eq!(rows.iter().map(|row| row.count.delivered).sum::<u64>(), 4 * ROWS_MAX as u64);
    }
}
