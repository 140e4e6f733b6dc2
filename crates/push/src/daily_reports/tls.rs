//! TLS reports (RFC 8460). Mail for a report ignores the domain's TLS policy (5.3, RFC 8689): a domain with a broken
//! policy must learn of it.

use parking_lot::Mutex;
use stentor_config::{Config, ReportSenderConfig};
use stentor_core::Core;
use stentor_domain_reports::{DailyCounts, DomainReport, ReportDestination, ReportForm, Submitter};
use stentor_tls_policy::Wish;
use stentor_tls_policy::tlsrpt::{DomainCount, Record, record_name, tls_report};

use super::ReportKind;

pub struct TlsKind;

impl ReportKind for TlsKind {
    type Count = DomainCount;
    const FORM: ReportForm = ReportForm::Tls;
    const WISH: Wish = Wish { require_tls: false, tls_required_no: true };

    fn sender(config: &Config) -> Option<&ReportSenderConfig> {
        config.tls_reports.as_ref()
    }

    fn counts(core: &Core) -> &Mutex<DailyCounts<DomainCount>> {
        &core.tls_counts
    }

    fn report(domain: &str, day: u64, count: &DomainCount, by: Submitter<'_>) -> DomainReport {
        tls_report(domain, day, count, by)
    }

    async fn destinations(core: &Core, report: &DomainReport) -> Option<Vec<ReportDestination>> {
        let domain = &report.domain;
        match core.resolver().texts(&record_name(domain)).await {
            Err(why) => {
                tracing::debug!(domain, why, "the destination of TLS reports could not be looked up");
                None
            }
            Ok(texts) => match Record::of(texts.iter().map(Vec::as_slice)) {
                Record::Destinations(destinations) => Some(destinations),
                Record::Absent => Some(Vec::new()),
                Record::Invalid(why) => {
                    tracing::info!(domain, %why, "the domain's TLSRPT record is invalid; no report is sent");
                    Some(Vec::new())
                }
            },
        }
    }
}
