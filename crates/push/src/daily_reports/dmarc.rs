//! DMARC aggregate reports (RFC 9990). An address at another organization gets one only if it agrees (section 3), and
//! an address whose record limits the size gets none that is larger.

use std::time::Duration;

use parking_lot::Mutex;
use stentor_config::{Config, ReportSenderConfig};
use stentor_core::Core;
use stentor_domain_reports::dmarc::{DmarcCount, dmarc_report};
use stentor_domain_reports::{DailyCounts, DomainReport, ReportDestination, ReportForm, Submitter};
use stentor_message_auth::{DestinationChoice, DestinationSearch, DestinationStep, ReportAddress};
use stentor_tls_policy::Wish;
use tokio::time::Instant;

use super::ReportKind;

/// Time limit of all DNS questions about one report.
const LOOK_UP_TIMEOUT: Duration = Duration::from_mins(1);

pub struct DmarcKind;

impl ReportKind for DmarcKind {
    type Count = DmarcCount;
    const FORM: ReportForm = ReportForm::Dmarc;
    const WISH: Wish = Wish { require_tls: false, tls_required_no: false };

    fn sender(config: &Config) -> Option<&ReportSenderConfig> {
        config.dmarc_reports.sender.as_ref()
    }

    fn counts(core: &Core) -> &Mutex<DailyCounts<DmarcCount>> {
        &core.dmarc_counts
    }

    fn report(domain: &str, day: u64, count: &DmarcCount, by: Submitter<'_>) -> DomainReport {
        dmarc_report(domain, day, count, by)
    }

    async fn destinations(core: &Core, report: &DomainReport) -> Option<Vec<ReportDestination>> {
        let domain = &report.domain;
        let mut search = DestinationSearch::new(domain);
        let until = Instant::now() + LOOK_UP_TIMEOUT;
        let DestinationChoice { permitted, refused } = loop {
            match search.step() {
                DestinationStep::Ask(_) if until <= Instant::now() => return None,
                DestinationStep::Ask(questions) => {
                    for answered in core.resolver().answer_all(questions, until).await {
                        search.answer(answered.question, answered.answer);
                    }
                }
                DestinationStep::Failed => {
                    tracing::debug!(domain, "the destinations of DMARC reports could not be looked up");
                    return None;
                }
                DestinationStep::Found(choice) => break choice,
            }
        };
        for to in refused {
            tracing::info!(
                domain,
                to,
                "DMARC report not sent: the destination does not permit reports about this domain"
            );
        }
        // As base64, with line ends (RFC 9990 section 2.6).
        let bytes = report.compressed().len() as u64 * 78 / 57;
        let fits = |one: &ReportAddress| {
            let fits = one.bytes_max.is_none_or(|most| bytes <= most);
            if !fits {
                tracing::info!(
                    domain,
                    to = one.address,
                    bytes,
                    "DMARC report not sent: larger than its record permits"
                );
            }
            fits
        };
        Some(permitted.into_iter().filter(fits).map(|one| ReportDestination::Mail(one.address)).collect())
    }
}
