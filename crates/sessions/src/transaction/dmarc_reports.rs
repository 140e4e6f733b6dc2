//! DMARC reports (RFC 9990): messages counted for ours, and reports that others send to our address.
//!
//! Promise: a message for which DMARC was evaluated is counted once, when it is taken or the policy refuses it, if the
//! domain requests reports and we send them. Mail to the addresses for reports is not counted, so that reports about
//! reports, and bounces of these, end. A report about one of our domains that comes to our address is kept before it is
//! acknowledged, if its author passes DMARC; the message is then delivered like any other. Reports are read in bounded
//! memory, one message at a time.
//!
//! Failure: 451 if a message cannot be read, waits too long or a report cannot be stored, 452 if there is no memory. A
//! report that is none is logged, and the message is delivered.

use std::sync::Arc;
use std::time::Duration;

use stentor_config::{Config, DmarcAction};
use stentor_core::received_reports::{KeptReport, ReportFolder, is_own_domain};
use stentor_core::{Core, Settings};
use stentor_domain_reports::dmarc::{
    AggregateReport, DAY_S, DkimEntry, MessageCounter as _, OverrideReason, PublishedPolicy, ReportDisposition,
    ReportError, ReportRow, SpfEntry, each_report,
};
use stentor_domain_reports::likely_organization;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_message_auth::{AuthResults, DkimResult, DmarcPolicy, DmarcResult, MethodResult, SpfIdentity};
use stentor_policy::is_same_local;
use stentor_queue::ids::MessageId;

use super::Transaction;
use super::authentication::applied_policy;
use super::post_reports::NOT_READ;

/// Octets of a message that may be a report.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Reports of a message.
const REPORTS_MAX: usize = 4;
/// Memory for reading them: the message, its attachments, a report, and its text when it is written.
const READ_MEMORY_BYTES: u64 = 48 * 1024 * 1024;
/// How long a message waits for its turn to be read: reporters wait ten minutes (RFC 5321 section 4.5.3.2.6).
const TURN_WAIT: Duration = Duration::from_secs(30);
/// Signatures in a row.
const SIGNATURES_MAX: usize = 2;
const NOT_STORED: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "The report could not be stored, try again later");
const BUSY: Reply = Reply::fixed(451, Enhanced::new(4, 3, 2), "Other reports are being read, try again later");
const NO_MEMORY: Reply = Reply::fixed(452, Enhanced::new(4, 3, 1), "No memory for the report now, try again later");

/// What DMARC says about a message.
#[derive(Debug, Default)]
pub(super) struct DmarcOutcome {
    /// The author's domain, if the message passes for it and all other authors.
    passed: Option<String>,
    /// What it adds to reports, once it has its final reply.
    counted: Vec<(PublishedPolicy, ReportRow)>,
    /// The policy refuses it.
    pub is_refused: bool,
}

impl DmarcOutcome {
    /// The author's domain, if the message passes for it and all other authors.
    pub(super) fn passed(&self) -> Option<&str> {
        self.passed.as_deref()
    }

    /// Counts a message that was taken, or refused by the policy. One that its client sends again is counted then.
    pub(super) fn count(self, core: &Core, reply: &Reply) {
        if reply.code == 250 || self.is_refused {
            for (policy, row) in self.counted {
                core.dmarc_counts.lock().message(&policy, row, core.clock.now());
            }
        }
    }
}

/// What became of the reports in a message.
#[derive(Debug, Default)]
struct ReportTally {
    kept: u32,
    /// Received before.
    repeated: u32,
    /// About domains of others.
    others: u32,
    /// About days to come.
    future: u32,
    too_large: u32,
    /// Domain and organization of the first that was kept, or else of the last that was not.
    first: (String, String),
    why: Option<ReportError>,
}

impl Transaction {
    /// Notes the results of DMARC.
    pub(super) fn note_dmarc(&mut self, settings: &Settings, results: &AuthResults) {
        let passes = results.dmarc.iter().all(|one| one.result == MethodResult::Pass);
        self.dmarc.passed = results.dmarc.first().filter(|_| passes).map(|one| one.domain.clone());
        let Some(sender) = &settings.config.dmarc_reports.sender else { return };
        let own = [Some(&sender.from), settings.config.dmarc_reports.address.as_ref()];
        if self.rcpts.named_mut().any(|(named, _)| own.into_iter().flatten().any(|own| is_same_local(named, own))) {
            return;
        }
        let envelope_from = self.mail.path.as_str().rsplit_once('@').map_or("", |(_, domain)| domain);
        for result in &results.dmarc {
            let Some(record) = result.record.as_ref().filter(|record| record.requests_reports) else { continue };
            let action = settings.config.message_auth.action(&result.domain);
            if action != DmarcAction::Off {
                self.dmarc.counted.push((record.policy.clone(), row(results, result, action, envelope_from)));
            }
        }
    }

    /// Keeps the reports in a message to our address for them.
    ///
    /// # Errors
    /// They cannot be read now, or not be stored.
    pub(super) async fn keep_dmarc_reports(
        &mut self,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        last: &[u8],
    ) -> Result<(), Reply> {
        let Some(address) = &settings.config.dmarc_reports.address else { return Ok(()) };
        if !self.rcpts.named_mut().any(|(named, _)| is_same_local(named, address)) {
            return Ok(());
        }
        let (message, config) = (self.id, &settings.config.message_auth);
        let reporter = self.dmarc.passed.as_deref().map(|domain| likely_organization(domain).to_owned());
        if config.is_on && config.evaluates_dmarc() && reporter.is_none() && !self.is_of_trusted() {
            tracing::info!(%message, "DMARC report ignored: its author does not pass DMARC");
            return Ok(());
        }
        let turn = tokio::time::timeout(TURN_WAIT, core.report_reading.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(BUSY) };
        let memory = core.memory.take(READ_MEMORY_BYTES).ok_or(NO_MEMORY)?;
        let mut octets = Vec::new();
        self.read_content(core, last, READ_BYTES_MAX, |piece| octets.extend_from_slice(piece)).map_err(|error| {
            tracing::error!(%message, %error, "DMARC report could not be read");
            NOT_READ
        })?;
        let (settings, now_s) = (settings.clone(), core.clock.now() / 1_000);
        let stored = tokio::task::spawn_blocking(move || {
            // Held even if the session ends first.
            let _held = (turn, memory);
            store_reports(&settings.config, &octets, reporter.as_deref(), now_s)
        });
        match stored.await {
            Ok(Ok(tally)) => {
                tally.log(message);
                Ok(())
            }
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

/// Stores the reports of a message about our domains.
fn store_reports(config: &Config, octets: &[u8], reporter: Option<&str>, now_s: u64) -> std::io::Result<ReportTally> {
    let mut tally = ReportTally::default();
    let mut folder = None;
    let mut failure = None;
    let mut keep = |report: &AggregateReport| -> std::io::Result<()> {
        if !is_own_domain(config, &report.policy.domain) {
            tally.others += 1;
            tally.name(report);
            return Ok(());
        }
        // The reporter's clock may differ from ours by a day.
        if report.end_s > now_s + DAY_S {
            tally.future += 1;
            tally.name(report);
            return Ok(());
        }
        let folder = match &mut folder {
            Some(folder) => folder,
            none => none.insert(ReportFolder::open(&config.data_dir)?),
        };
        let became = folder.keep(reporter.unwrap_or(&report.organization), report)?;
        tally.name(report);
        match became {
            KeptReport::New => tally.kept += 1,
            KeptReport::Repeated => tally.repeated += 1,
            KeptReport::TooLarge => tally.too_large += 1,
        }
        Ok(())
    };
    let read = each_report(octets, REPORTS_MAX, &mut |report| {
        if failure.is_none() {
            failure = keep(&report).err();
        }
    });
    tally.why = read.err();
    failure.map_or(Ok(tally), Err)
}

impl ReportTally {
    fn name(&mut self, report: &AggregateReport) {
        if self.kept == 0 {
            self.first = (report.policy.domain.clone(), report.organization.clone());
        }
    }

    /// One line for a message, since anybody can send any number of reports.
    fn log(&self, message: MessageId) {
        let ReportTally { kept, repeated, others, future, too_large, first: (domain, organization), why } = self;
        let why = why.as_ref().map(tracing::field::display);
        match kept {
            0 if *repeated > 0 => tracing::info!(
                %message, repeated, domain, organization, others, future, too_large, why,
                "DMARC report received again: it is already here"
            ),
            0 if *others + *future + *too_large == 0 => {
                tracing::info!(%message, why, "message to the address for DMARC reports has no usable report");
            }
            0 => tracing::info!(
                %message, domain, organization, others, future, too_large, why,
                "DMARC report ignored: it is about a domain of others or the future, or too large"
            ),
            _ => tracing::info!(
                %message, kept, repeated, domain, organization, others, future, too_large, why,
                "DMARC report received"
            ),
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
    // A few say all; any number would make any number of rows.
    signed.into_iter().take(SIGNATURES_MAX).map(entry).collect()
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
        // Not the third, that of the author's domain which fails.
        assert_eq!(dkim, ["a.test pass", "list.test pass"]);
        let spf = row.spf.unwrap();
        assert_eq!((&*spf.domain, &*spf.result), ("bounces.test", "softfail"));
        assert_eq!(row.envelope_from.as_deref(), Some(""));
    }
}
