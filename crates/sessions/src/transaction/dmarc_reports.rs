//! DMARC reports (RFC 9990): messages counted for ours, and reports that others send to our address.
//!
//! Promise: a message for which DMARC was evaluated is counted once, if the domain requests reports and we send them.
//! Mail to the addresses for reports is not counted, so that reports about reports, and bounces of these, end. A report
//! that comes to our address is kept before it is acknowledged, unless its author fails DMARC; the message is then
//! delivered like any other.
//!
//! Failure: 451 if a report cannot be stored. One that cannot be read is logged, and the message is delivered.

use std::sync::Arc;

use stentor_config::DmarcAction;
use stentor_core::{Core, Settings, received_reports};
use stentor_domain_reports::dmarc::{
    DkimEntry, MessageCounter as _, OverrideReason, ReportDisposition, ReportRow, SpfEntry, read_reports,
};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_message_auth::{AuthResults, DkimResult, DmarcPolicy, DmarcResult, MethodResult, SpfIdentity};

use super::Transaction;
use super::authentication::applied_policy;

/// Octets of a message that may be a report.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Reports end at most a day after our clock, whatever theirs says.
const DAY_S: u64 = 86_400;
const NOT_STORED: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "The report could not be stored, try again later");

impl Transaction {
    /// Counts the message for reports.
    pub(super) fn count_dmarc(&mut self, core: &Core, settings: &Settings, results: &AuthResults) {
        let Some(sender) = &settings.config.dmarc_reports.sender else { return };
        let own = [Some(&sender.from), settings.config.dmarc_reports.address.as_ref()];
        if self.rcpts.named_mut().any(|(named, _)| own.contains(&Some(named))) {
            return;
        }
        let envelope_from = self.mail.path.as_str().rsplit_once('@').map_or("", |(_, domain)| domain);
        for result in &results.dmarc {
            let Some(record) = result.record.as_ref().filter(|record| record.requests_reports) else { continue };
            let action = settings.config.message_auth.action(&result.domain);
            if action != DmarcAction::Off {
                let row = row(results, result, action, envelope_from);
                core.dmarc_counts.lock().message(&record.policy, row, core.clock.now());
            }
        }
    }

    /// Keeps the reports in a message to our address for them.
    ///
    /// # Errors
    /// They cannot be stored.
    pub(super) async fn keep_dmarc_reports(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        last: &[u8],
    ) -> Result<(), Reply> {
        let Some(address) = &settings.config.dmarc_reports.address else { return Ok(()) };
        if !self.rcpts.named_mut().any(|(named, _)| named == address) {
            return Ok(());
        }
        let message = self.id;
        if self.fails_dmarc {
            tracing::info!(%message, "DMARC report ignored: its author fails DMARC");
            return Ok(());
        }
        // Limits the messages that are in memory as a whole.
        let Ok(_permit) = core.reports.acquire().await else { return Ok(()) };
        let mut octets = Vec::new();
        self.read_content(core, last, READ_BYTES_MAX, |piece| octets.extend_from_slice(piece));
        let (data_dir, now_s) = (settings.config.data_dir.clone(), core.clock.now() / 1_000);
        let stored = tokio::task::spawn_blocking(move || {
            let reports = match read_reports(&octets) {
                Ok(reports) => reports,
                Err(error) => {
                    tracing::info!(%message, %error, "message to the address for DMARC reports has no usable report");
                    return Ok(());
                }
            };
            for report in &reports {
                let (domain, organization) = (&report.policy.domain, &report.organization);
                if report.end_s > now_s + DAY_S {
                    tracing::info!(%message, domain, organization, "DMARC report ignored: its period ends in the future");
                    continue;
                }
                received_reports::keep(&data_dir, report)?;
                tracing::info!(%message, domain, organization, rows = report.rows.len(), "DMARC report received");
            }
            Ok::<(), std::io::Error>(())
        });
        match stored.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(
                    %message,
                    %error,
                    "DMARC report could not be stored; its sender will retry. Check space and permissions of data_dir/dmarc_received"
                );
                Err(NOT_STORED)
            }
            // The server is stopping.
            Err(_) => Err(NOT_STORED),
        }
    }
}

/// The row of a message for one author's domain.
fn row(results: &AuthResults, result: &DmarcResult, action: DmarcAction, envelope_from: &str) -> ReportRow {
    let requested = result.policy.unwrap_or(DmarcPolicy::None);
    let applied = applied_policy(action, result.disposition());
    let reason = |kind: &str, comment: &str| OverrideReason { kind: kind.to_owned(), comment: comment.to_owned() };
    let reasons = match result.result {
        MethodResult::Fail if result.is_test && requested != DmarcPolicy::None => {
            vec![reason("policy_test_mode", "")]
        }
        MethodResult::Fail if applied != requested => vec![reason("local_policy", "")],
        MethodResult::TempError if requested != DmarcPolicy::None => vec![reason("other", "the DNS did not answer")],
        _ => Vec::new(),
    };
    let disposition = match (result.result, applied) {
        (MethodResult::Pass, _) if requested != DmarcPolicy::None => ReportDisposition::Pass,
        (_, DmarcPolicy::None) => ReportDisposition::None,
        (_, DmarcPolicy::Quarantine) => ReportDisposition::Quarantine,
        (_, DmarcPolicy::Reject) => ReportDisposition::Reject,
    };
    ReportRow {
        source: results.client,
        disposition,
        is_dkim_aligned: result.is_dkim_aligned,
        is_spf_aligned: result.is_spf_aligned,
        reasons,
        header_from: result.domain.clone(),
        envelope_from: Some(envelope_from.to_ascii_lowercase()),
        dkim: dkim(&results.dkim, &result.domain),
        spf: spf(results),
    }
}

/// Signatures that pass come first, and among them those of the author (RFC 9990 section 2.1.4).
fn dkim(results: &[DkimResult], author: &str) -> Vec<DkimEntry> {
    let mut signed: Vec<_> = results.iter().filter_map(|one| Some((one.result, one.signature.as_ref()?))).collect();
    signed.sort_by_key(|(result, facts)| (*result != MethodResult::Pass, facts.domain != author));
    let entry = |(result, facts): (MethodResult, &stentor_message_auth::SignatureFacts)| DkimEntry {
        domain: facts.domain.clone(),
        selector: facts.selector.clone(),
        result: result.word().to_owned(),
    };
    signed.into_iter().map(entry).collect()
}

/// SPF result of the envelope sender; of the HELO name for the null sender (RFC 7208 section 2.4).
fn spf(results: &AuthResults) -> Option<SpfEntry> {
    let of = |identity| results.spf.iter().find(move |one| one.identity == identity);
    let found = of(SpfIdentity::MailFrom).or_else(|| of(SpfIdentity::Helo))?;
    let domain = found.name.rsplit_once('@').map_or(&*found.name, |(_, domain)| domain);
    Some(SpfEntry { domain: domain.to_ascii_lowercase(), result: found.result.word().to_owned() })
}

#[cfg(test)]
mod tests {
    use stentor_message_auth::{ArcResult, SignatureFacts, SpfResult};

    use super::*;

    fn results() -> AuthResults {
        let signature = |domain: &str, result| DkimResult {
            result,
            reason: None,
            signature: Some(SignatureFacts {
                domain: domain.to_owned(),
                selector: "s1".to_owned(),
                algorithm: "rsa-sha256",
                text: String::new(),
                fields: Vec::new(),
            }),
        };
        AuthResults {
            client: "192.0.2.1".parse().unwrap(),
            iprev: MethodResult::Pass,
            spf: vec![SpfResult {
                identity: SpfIdentity::MailFrom,
                name: "b@Bounces.test".to_owned(),
                result: MethodResult::SoftFail,
            }],
            dkim: vec![
                signature("a.test", MethodResult::Fail),
                signature("list.test", MethodResult::Pass),
                signature("a.test", MethodResult::Pass),
            ],
            skipped_signatures: 0,
            arc: ArcResult { result: MethodResult::None, reason: None, sets: 0 },
            dmarc: Vec::new(),
            has_more_authors: false,
            copies_have_more_authors: false,
            copies: Vec::new(),
        }
    }

    fn result(result: MethodResult, policy: DmarcPolicy, is_test: bool) -> DmarcResult {
        DmarcResult {
            domain: "a.test".to_owned(),
            result,
            policy: Some(policy),
            is_test,
            is_spf_aligned: false,
            is_dkim_aligned: result == MethodResult::Pass,
            record: None,
        }
    }

    #[test]
    fn what_was_done_and_why_not_what_the_policy_asks() {
        use DmarcPolicy::{None as Nothing, Quarantine, Reject};
        let shown = |of: &DmarcResult, action| {
            let row = row(&results(), of, action, "bounces.test");
            let reasons: Vec<&str> = row.reasons.iter().map(|reason| &*reason.kind).collect();
            format!("{} {}", row.disposition.word(), reasons.join(" "))
        };
        let fail = |policy, is_test| result(MethodResult::Fail, policy, is_test);
        let of_fail = |policy, action| shown(&fail(policy, false), action);
        assert_eq!(of_fail(Reject, DmarcAction::Reject), "reject ");
        assert_eq!(of_fail(Reject, DmarcAction::Quarantine), "quarantine local_policy");
        assert_eq!(of_fail(Quarantine, DmarcAction::Reject), "quarantine ");
        assert_eq!(of_fail(Reject, DmarcAction::Tag), "none local_policy");
        assert_eq!(of_fail(Nothing, DmarcAction::Reject), "none ");
        assert_eq!(shown(&fail(Reject, true), DmarcAction::Reject), "none policy_test_mode");
        assert_eq!(shown(&result(MethodResult::Pass, Reject, false), DmarcAction::Reject), "pass ");
        assert_eq!(shown(&result(MethodResult::Pass, Nothing, false), DmarcAction::Reject), "none ");
        assert_eq!(shown(&result(MethodResult::TempError, Reject, false), DmarcAction::Reject), "none other");
    }

    #[test]
    fn results_of_methods_are_reported_the_most_useful_first() {
        let row = row(&results(), &result(MethodResult::Pass, DmarcPolicy::Reject, false), DmarcAction::Reject, "");
        let dkim: Vec<String> = row.dkim.iter().map(|one| format!("{} {}", one.domain, one.result)).collect();
        assert_eq!(dkim, ["a.test pass", "list.test pass", "a.test fail"]);
        let spf = row.spf.unwrap();
        assert_eq!((&*spf.domain, &*spf.result), ("bounces.test", "softfail"));
        assert_eq!(row.envelope_from.as_deref(), Some(""));
    }
}
