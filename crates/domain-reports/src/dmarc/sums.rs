//! Sums of reports: by domain, and by source.
//!
//! Limits: sources beyond [`SOURCES_MAX`] are in the sums of their domains alone, and domains beyond [`DOMAINS_MAX`] in
//! none; both are counted.

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

/// Numbers of messages by result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MessageSums {
    pub messages: u64,
    /// Messages that pass DMARC, by DKIM, and by SPF.
    pub passed: u64,
    pub dkim_passed: u64,
    pub spf_passed: u64,
    pub quarantined: u64,
    pub rejected: u64,
}

impl MessageSums {
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
    pub domain: String,
    pub reports: u64,
    /// Number of organizations that reported.
    pub reporters: usize,
    /// Seconds since 1970 of the first report's begin and the last one's end.
    pub begin_s: u64,
    pub end_s: u64,
    /// The policy in the latest report.
    pub policy: String,
    #[serde(flatten)]
    pub sums: MessageSums,
}

/// Sums of one address that sent mail of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceSums {
    pub domain: String,
    pub source: IpAddr,
    #[serde(flatten)]
    pub sums: MessageSums,
    /// Domains of signatures and of the envelope in a failed row: who it may be.
    pub dkim_domain: String,
    pub envelope_from: String,
}

#[derive(Debug, Default)]
struct DomainState {
    sums: DomainSums,
    reporters: BTreeSet<String>,
}

/// Sums of all reports added.
#[derive(Debug, Default)]
pub struct DmarcSums {
    domains: BTreeMap<String, DomainState>,
    sources: HashMap<(String, IpAddr), SourceSums>,
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
        for row in &report.rows {
            sums.sums.add(row);
            add_source(&mut self.sources, domain, row, &mut self.unlisted);
        }
    }

    /// Sums of domains, those with most messages first.
    pub fn domains(&self) -> Vec<DomainSums> {
        let mut all: Vec<DomainSums> = self.domains.values().map(|state| state.sums.clone()).collect();
        all.sort_by_key(|sums| std::cmp::Reverse(sums.sums.messages));
        all
    }

    /// Sources with messages that failed, those with most of these first.
    pub fn failed_sources(&self) -> Vec<SourceSums> {
        let mut all: Vec<SourceSums> =
            self.sources.values().filter(|sums| sums.sums.passed < sums.sums.messages).cloned().collect();
        let failed = |sums: &SourceSums| sums.sums.messages - sums.sums.passed;
        all.sort_by(|one, other| {
            let by_name = || (&one.domain, one.source).cmp(&(&other.domain, other.source));
            failed(other).cmp(&failed(one)).then_with(by_name)
        });
        all
    }
}

fn add_source(
    sources: &mut HashMap<(String, IpAddr), SourceSums>,
    domain: &str,
    counted: &RowCount,
    unlisted: &mut u64,
) {
    let RowCount { messages, row } = counted;
    let key = (domain.to_owned(), row.source);
    if sources.len() == SOURCES_MAX && !sources.contains_key(&key) {
        *unlisted = unlisted.saturating_add(*messages);
        return;
    }
    let sums = sources.entry(key).or_insert_with(|| SourceSums {
        domain: domain.to_owned(),
        source: row.source,
        sums: MessageSums::default(),
        dkim_domain: String::new(),
        envelope_from: String::new(),
    });
    sums.sums.add(counted);
    if !row.is_pass() {
        if let (true, Some(dkim)) = (sums.dkim_domain.is_empty(), row.dkim.first()) {
            sums.dkim_domain.clone_from(&dkim.domain);
        }
        // Without the envelope's sender, the domain of which SPF was checked is the nearest to it.
        let from = row.envelope_from.as_ref().filter(|from| !from.is_empty());
        let from = from.or(row.spf.as_ref().map(|spf| &spf.domain));
        if let (true, Some(from)) = (sums.envelope_from.is_empty(), from) {
            sums.envelope_from.clone_from(from);
        }
    }
}
