//! Filter of reports, and their sums as shown by the command, API and console.

use serde::Serialize;
use stentor_mail::domain::is_at_or_below;

use super::report::AggregateReport;
use super::sums::{DmarcSums, DomainSums, SourceSums};

/// A choice of reports; the default is all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportFilter {
    /// Seconds since 1970. Reports on days that ended before are ignored.
    pub since_s: u64,
    /// Only reports about this domain and domains below it.
    pub domain: Option<String>,
}

impl ReportFilter {
    pub fn includes(&self, report: &AggregateReport) -> bool {
        report.end_s >= self.since_s && self.is_about(report)
    }

    /// Whether the report is about the domain, whenever it was.
    pub fn is_about(&self, report: &AggregateReport) -> bool {
        self.domain.as_ref().is_none_or(|domain| is_at_or_below(&report.policy.domain, domain))
    }
}

/// Sums of reports: what `stentor dmarc --json` and the HTTP API give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DmarcSummary {
    /// Domains, those with most messages first.
    pub domains: Vec<DomainSums>,
    /// Number of domains, including those beyond the rows returned.
    pub domains_total: usize,
    /// Addresses with mail that fails, those with most of it first.
    pub failed_sources: Vec<SourceSums>,
    /// Number of such addresses, including those beyond the rows returned.
    pub failed_sources_total: usize,
    /// Reports ignored because another file has the same organization and report id.
    pub reports_repeated: u64,
    /// Reports ignored because there are more domains than the limit.
    pub reports_left_out: u64,
    /// Messages of sources beyond the limit; counted only for their domains.
    pub messages_of_other_sources: u64,
    /// Files ignored because they cannot be read as reports.
    pub files_unreadable: u64,
}

impl DmarcSummary {
    /// Sums with at most `rows_max` rows of each kind.
    pub fn new(sums: &DmarcSums, rows_max: usize, files_unreadable: u64) -> DmarcSummary {
        DmarcSummary {
            domains: sums.domains(rows_max),
            domains_total: sums.domains_total(),
            failed_sources: sums.failed_sources(rows_max),
            failed_sources_total: sums.failed_sources_total(),
            reports_repeated: sums.repeated,
            reports_left_out: sums.left_out,
            messages_of_other_sources: sums.unlisted,
            files_unreadable,
        }
    }

    /// The same with fewer rows of each kind.
    #[must_use]
    pub fn with_rows(&self, rows_max: usize) -> DmarcSummary {
        DmarcSummary {
            domains: self.domains.iter().take(rows_max).cloned().collect(),
            failed_sources: self.failed_sources.iter().take(rows_max).cloned().collect(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::PublishedPolicy;
    use super::*;

    #[test]
    fn reports_are_chosen_by_domain_and_day() {
        let about = |domain: &str, end_s| AggregateReport {
            policy: PublishedPolicy { domain: domain.to_owned(), ..PublishedPolicy::default() },
            end_s,
            ..AggregateReport::default()
        };
        let filter = ReportFilter { since_s: 10, domain: Some("a.test".to_owned()) };
        assert!(filter.includes(&about("a.test", 10)) && filter.includes(&about("b.a.test", 11)));
        assert!(!filter.includes(&about("a.test", 9)) && !filter.includes(&about("ba.test", 10)));
        assert!(ReportFilter::default().includes(&about("ba.test", 0)));
    }
}
