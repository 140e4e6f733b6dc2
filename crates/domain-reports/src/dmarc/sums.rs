//! Sums of reports: by domain, and by source.
//!
//! Limits: sources beyond [`SOURCES_MAX`] are in the sums of their domains alone, and domains beyond [`DOMAINS_MAX`] in
//! none; both are counted. Names of senders and signers are left out beyond [`HINT_BYTES_MAX`] octets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use serde::Serialize;

use super::report::{AggregateReport, ReportDisposition, RowCount};
use crate::fnv1a;

/// Maximum different sources.
pub const SOURCES_MAX: usize = 100_000;
/// Maximum domains, and organizations that report about one of them.
const DOMAINS_MAX: usize = 10_000;
const REPORTERS_MAX: usize = 1_000;
/// Octets of all names of senders and signers, and of one: domain names are no longer.
const HINT_BYTES_MAX: usize = 8 * 1024 * 1024;
const NAME_BYTES_MAX: usize = 255;
/// Seconds of a day.
pub const DAY_S: u64 = 86_400;

/// Numbers of messages by result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MessageSums {
    pub messages: u64,
    /// Messages that pass DMARC: by DKIM, by SPF or by both.
    pub passed: u64,
    /// Messages with a signature that passes for the organization of the domain.
    pub dkim_passed: u64,
    /// Messages with an envelope sender that passes for the organization of the domain.
    pub spf_passed: u64,
    /// Messages that receivers quarantined.
    pub quarantined: u64,
    /// Messages that receivers rejected.
    pub rejected: u64,
}

impl MessageSums {
    /// Number of messages that fail.
    pub fn failed(&self) -> u64 {
        self.messages.saturating_sub(self.passed)
    }

    fn add(&mut self, counted: &RowCount) {
        let RowCount { messages, row } = counted;
        let of = |is| if is { *messages } else { 0 };
        for (sum, added) in [
            (&mut self.messages, *messages),
            (&mut self.passed, of(row.is_pass())),
            (&mut self.dkim_passed, of(row.is_dkim_aligned)),
            (&mut self.spf_passed, of(row.is_spf_aligned)),
            (&mut self.quarantined, of(row.disposition == ReportDisposition::Quarantine)),
            (&mut self.rejected, of(row.disposition == ReportDisposition::Reject)),
        ] {
            *sum = sum.saturating_add(added);
        }
    }
}

/// Sums of one domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DomainSums {
    /// The domain whose policy applied.
    pub domain: String,
    /// Number of reports.
    pub reports: u64,
    /// Number of organizations that reported.
    pub reporters: usize,
    /// Seconds since 1970 of the first report's begin.
    pub begin_s: u64,
    /// Seconds since 1970 of the last report's end.
    pub end_s: u64,
    /// The policy in the latest report.
    pub policy: String,
    #[serde(flatten)]
    pub sums: MessageSums,
}

/// Sums of one address that sent mail of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceSums {
    /// The domain whose policy applied.
    pub domain: String,
    /// The address.
    pub source: IpAddr,
    #[serde(flatten)]
    pub sums: MessageSums,
    /// Domain of a signature of failed mail; empty: unknown.
    pub dkim_domain: String,
    /// Domain of the envelope sender of failed mail; empty: unknown.
    pub envelope_from: String,
}

#[derive(Debug, Default)]
struct DomainState {
    sums: DomainSums,
    reporters: BTreeSet<String>,
    /// Days on which reports begin, since 1970.
    days: BTreeSet<u64>,
    sources: HashMap<IpAddr, SourceState>,
}

/// One address: see [`SourceSums`].
#[derive(Debug, Default)]
struct SourceState {
    sums: MessageSums,
    dkim_domain: String,
    envelope_from: String,
}

/// Sums of all reports added.
#[derive(Debug, Default)]
pub struct DmarcSums {
    domains: BTreeMap<String, DomainState>,
    /// Number of sources of all domains, and octets of their names.
    sources: usize,
    hint_bytes: usize,
    /// Hashes of what identifies the reports.
    known: HashSet<u64>,
    /// Reports that were there before, in another file.
    pub repeated: u64,
    /// Reports about domains beyond the limit.
    pub left_out: u64,
    /// Messages of sources beyond the limit.
    pub unlisted: u64,
}

impl DmarcSums {
    pub fn add(&mut self, report: &AggregateReport) {
        let domain = &report.policy.domain;
        let begin = report.begin_s.to_string();
        let identity = fnv1a(&[&report.organization, domain, &report.id, &begin]);
        // Some leave the id empty.
        if !report.id.is_empty() && !self.known.insert(identity) {
            self.repeated += 1;
            return;
        }
        if !self.domains.contains_key(domain) && self.domains.len() == DOMAINS_MAX {
            self.left_out += 1;
            return;
        }
        let state = self.domains.entry(domain.clone()).or_default();
        if state.reporters.len() < REPORTERS_MAX {
            state.reporters.insert(report.organization.clone());
        }
        state.days.insert(report.begin_s / DAY_S);
        let sums = &mut state.sums;
        sums.domain.clone_from(domain);
        sums.reports += 1;
        sums.reporters = state.reporters.len();
        if sums.begin_s == 0 || report.begin_s < sums.begin_s {
            sums.begin_s = report.begin_s;
        }
        if report.end_s >= sums.end_s {
            sums.end_s = report.end_s;
            sums.policy.clone_from(&report.policy.policy);
        }
        for counted in &report.rows {
            state.sums.sums.add(counted);
            let source = counted.row.source.to_canonical();
            if let Some(known) = state.sources.get_mut(&source) {
                known.add(counted, &mut self.hint_bytes);
            } else if self.sources < SOURCES_MAX {
                self.sources += 1;
                state.sources.entry(source).or_default().add(counted, &mut self.hint_bytes);
            } else {
                self.unlisted = self.unlisted.saturating_add(counted.messages);
            }
        }
    }

    /// Sums of domains, those with most messages first.
    pub fn domains(&self, rows_max: usize) -> Vec<DomainSums> {
        let mut all: Vec<&DomainSums> = self.domains.values().map(|state| &state.sums).collect();
        all.sort_by_key(|sums| Reverse(sums.sums.messages));
        all.into_iter().take(rows_max).cloned().collect()
    }

    /// Number of domains.
    pub fn domains_total(&self) -> usize {
        self.domains.len()
    }

    /// Sources with messages that failed, those with most of these first.
    pub fn failed_sources(&self, rows_max: usize) -> Vec<SourceSums> {
        let mut all: Vec<(&str, IpAddr, &SourceState)> = self.all_failed().collect();
        all.sort_unstable_by_key(|(domain, source, state)| (Reverse(state.sums.failed()), *domain, *source));
        let row = |(domain, source, state): (&str, IpAddr, &SourceState)| SourceSums {
            domain: domain.to_owned(),
            source,
            sums: state.sums.clone(),
            dkim_domain: state.dkim_domain.clone(),
            envelope_from: state.envelope_from.clone(),
        };
        all.into_iter().take(rows_max).map(row).collect()
    }

    /// Number of sources with messages that failed.
    pub fn failed_sources_total(&self) -> usize {
        self.all_failed().count()
    }

    fn all_failed(&self) -> impl Iterator<Item = (&str, IpAddr, &SourceState)> {
        let all = self.domains.iter().flat_map(|(domain, of_domain)| {
            of_domain.sources.iter().map(move |(source, state)| (domain.as_str(), *source, state))
        });
        all.filter(|(.., state)| state.sums.failed() > 0)
    }

    /// Sums of one domain.
    pub fn of_domain(&self, domain: &str) -> Option<&DomainSums> {
        self.domains.get(domain).map(|state| &state.sums)
    }

    /// Number of days with reports about a domain.
    pub fn days(&self, domain: &str) -> usize {
        self.domains.get(domain).map_or(0, |state| state.days.len())
    }

    /// Sums of one address that sent mail of a domain.
    pub fn of_source(&self, domain: &str, source: IpAddr) -> Option<&MessageSums> {
        self.domains.get(domain)?.sources.get(&source).map(|state| &state.sums)
    }
}

impl SourceState {
    /// `hint_bytes`: octets of all names so far.
    fn add(&mut self, counted: &RowCount, hint_bytes: &mut usize) {
        self.sums.add(counted);
        let row = &counted.row;
        if row.is_pass() {
            return;
        }
        let mut note = |name: &mut String, noted: Option<&String>| {
            let Some(noted) = noted.filter(|noted| noted.len() <= NAME_BYTES_MAX) else { return };
            if name.is_empty() && *hint_bytes + noted.len() <= HINT_BYTES_MAX {
                *hint_bytes += noted.len();
                name.clone_from(noted);
            }
        };
        note(&mut self.dkim_domain, row.dkim.first().map(|dkim| &dkim.domain));
        // Without the envelope's sender, the domain of which SPF was checked is the nearest to it.
        let from = row.envelope_from.as_ref().filter(|from| !from.is_empty());
        note(&mut self.envelope_from, from.or(row.spf.as_ref().map(|spf| &spf.domain)));
    }
}
