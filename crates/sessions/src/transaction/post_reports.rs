//! Bounces and complaints about posts of lists and managers: read once, when they come to the list's bounce address or
//! to a return path of the manager's mail ([`super::report_paths`]).
//!
//! Promise: for each recipient of a report the log says who, whether the return path proves it ([`stentor_copies`]),
//! and the cause ([`stentor_bounces`]). A complaint about a copy whose return path is proven suppresses its recipient
//! for the list or sender before the complaint is acknowledged, and counts in the rates once it is. What a message says
//! several times of one person is one finding. Proven bounces because of our reputation raise an alarm
//! ([`stentor_core::reputation_alarms`]). Proven reports are synced in the history before their 250, so that webhooks
//! get them whatever happens. Auto-replies are ignored. A list's report goes to the owner, with fields that say to
//! which return path it came and whom it is about; that of a manager's post goes to the manager as it came.
//!
//! Anybody can send such a message. One without a valid tag in its return path has no effect beyond a log line and
//! these fields. A report is read up to [`READ_BYTES_MAX`].
//!
//! Failure: 451 if the message cannot be read or a suppression cannot be stored; the reporter tries again.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use stentor_bounces::message::BounceParser;
use stentor_bounces::note::{ReportNote, ReportProof};
use stentor_bounces::{BounceCause, BounceKind, BounceReply, ParsedBounce, RecipientReport, ReportAction};
use stentor_copies::SenderPath;
use stentor_core::reputation_alarms::ReportedRecipient;
use stentor_core::suppression::sender_scope;
use stentor_core::{Core, Settings, log};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::MessageId;
use stentor_records::escape::field;
use stentor_records::record::domain;
use stentor_registry::{EntryEffect, Scope, Subject, Suppression, SuppressionReason};

use super::Transaction;
use super::report_paths::{ReportAddress, ReportedCopy};

/// Octets of a report that are read: its returned message may be as large as ours.
const READ_BYTES_MAX: usize = 512 * 1024;
/// Recipients of one report that are looked at: each is a line in the log, and anybody can send reports.
const FINDINGS_MAX: usize = 100;
const NOT_STORED: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "The complaint could not be stored, try again later");
/// A message that cannot be read is not acknowledged.
pub(super) const NOT_READ: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "The message could not be read, try again later");
/// Source of suppressions.
const SOURCE: &str = "complaint";
/// Recipients of one report that are named in the fields for its readers.
const FIELDS_MAX: usize = 10;
/// Longest address in such a field, so that its line stays short.
const FIELD_BYTES_MAX: usize = 320;

/// What a report says about one recipient of a post.
struct RecipientFinding {
    /// The list; none for a manager's post.
    list: Option<Arc<str>>,
    /// Envelope sender of the post.
    sender: String,
    recipient: String,
    proof: ReportProof,
    action: ReportAction,
    cause: BounceCause,
    confidence: u8,
    rule: String,
    text: String,
    status: Option<Enhanced>,
}

/// What a message reports about posts.
#[derive(Default)]
pub(super) struct PostReports {
    findings: Vec<RecipientFinding>,
    /// Message-ID of the post, without angle brackets; may be empty.
    post: String,
    /// X-Listmonk-Campaign of the post; may be empty.
    campaign: String,
}

impl Transaction {
    /// Reads a message that came to addresses of reports.
    ///
    /// # Errors
    /// It cannot be read, or a complaint cannot be stored.
    pub(super) async fn post_reports(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        last: &[u8],
    ) -> Result<PostReports, Reply> {
        let not_read = |error: io::Error| {
            tracing::error!(message = %self.id, %error, "report could not be read");
            NOT_READ
        };
        let to = self.report_addresses(core, settings, last, FINDINGS_MAX).map_err(not_read)?;
        if to.is_empty() {
            return Ok(PostReports::default());
        }
        let parsed = self.parse_report(core, settings, last).map_err(not_read)?;
        let mut findings: Vec<RecipientFinding> = Vec::new();
        for to in &to {
            // Without a return path all addresses of a list say the same.
            let is_of_list = |known: &RecipientFinding| to.list.is_some() && known.list == to.list;
            if to.return_path(&parsed).is_some() || !findings.iter().any(is_of_list) {
                for finding in read_findings(settings, to, &parsed) {
                    add(&mut findings, finding);
                }
            }
            if findings.len() >= FINDINGS_MAX {
                tracing::info!(message = %self.id, "more than {FINDINGS_MAX} recipients in a report; the others are not logged");
                findings.truncate(FINDINGS_MAX);
                break;
            }
        }
        for finding in findings.iter_mut().filter(|finding| finding.is_proven_complaint()) {
            // Else one copy would be enough to raise a list's complaint rate. Unchanged: the person complained before.
            if suppress(core, finding).await? == EntryEffect::Unchanged
                && !core.complaints.take_expected(finding.subject(), &finding.recipient, core.clock.now())
            {
                finding.proof = ReportProof::Repeated;
            }
        }
        let post = parsed.original_message_id.unwrap_or_default();
        let post = post.trim_matches(['<', '>']).to_owned();
        Ok(PostReports { findings, post, campaign: parsed.original_campaign.unwrap_or_default() })
    }

    /// Adds the return path and the subscribers to a report for the list's owner. If others get the message as well,
    /// nothing is added: they must not learn who subscribes.
    pub(super) fn add_report_fields(&mut self, reports: &PostReports) {
        if self.rcpts.reports().count() as u64 != self.rcpts.named() {
            return;
        }
        let mut fields = String::new();
        for (_, path) in self.rcpts.reports().take(FIELDS_MAX) {
            let _ = write!(fields, "X-Original-To: {path}\r\n");
        }
        fields.push_str(&reports.fields());
        self.added.extend_from_slice(fields.as_bytes());
    }

    fn parse_report(&self, core: &Core, settings: &Settings, last: &[u8]) -> io::Result<ParsedBounce> {
        let mut parser = BounceParser::new();
        self.read_content(core, last, READ_BYTES_MAX, |piece| parser.push(piece))?;
        Ok(parser.finish(settings.bounce_rules()))
    }
}

impl PostReports {
    /// Logs them and raises alarms, once the message `id` is accepted.
    pub(super) fn log(&self, core: &Core, settings: &Settings, id: MessageId) {
        for finding in &self.findings {
            let RecipientFinding { list, sender, recipient, proof, action, cause, text, status, .. } = finding;
            let note = ReportNote {
                list: list.as_deref().unwrap_or_default().into(),
                sender: sender.into(),
                recipient: recipient.into(),
                proof: *proof,
                action: action.name(),
                cause: cause.name(),
                confidence: finding.confidence,
                rule: (&finding.rule).into(),
                sender_domain: domain(sender).into(),
                dsn: status.map(|status| status.to_string()).unwrap_or_default().into(),
                post: (&self.post).into(),
                campaign: (&self.campaign).into(),
                text,
            };
            log::post_report(core, id, &note);
            if *cause == BounceCause::Reputation && *proof == ReportProof::Proven {
                // The host in a report is whatever its writer likes.
                let reply = BounceReply { text, code: None, enhanced: *status, host: domain(recipient) };
                let recipient = ReportedRecipient { subject: finding.subject(), recipient };
                core.reputation_alarms.record_report(settings.bounce_rules(), recipient, &reply, core.clock.now());
            }
        }
    }

    /// Waits until proven reports are in the history for good, where webhooks read them. Others cost no sync: anybody
    /// can send them.
    pub(super) async fn sync(&self, core: &Arc<Core>) {
        let is_proven = |finding: &RecipientFinding| finding.proof != ReportProof::Unproven;
        if core.history.is_on() && self.findings.iter().any(is_proven) {
            let core = core.clone();
            // A history that cannot be written counts what it loses.
            let _ = tokio::task::spawn_blocking(move || core.history.sync()).await;
        }
    }

    /// The message was not accepted: its complaints are stored, but count when the reporter sends it again.
    pub(super) fn expect_again(&self, core: &Core) {
        for finding in self.findings.iter().filter(|finding| finding.is_proven_complaint()) {
            core.complaints.expect_again(finding.subject(), &finding.recipient, core.clock.now());
        }
    }

    /// The fields that say whom the report is about, for the list's owner.
    fn fields(&self) -> String {
        let mut fields = String::new();
        for RecipientFinding { list, recipient, proof, action, cause, .. } in self.findings.iter().take(FIELDS_MAX) {
            let (list, recipient) = (list.as_deref().unwrap_or_default(), field(recipient, FIELD_BYTES_MAX));
            // Writing into a string cannot fail.
            let _ = write!(
                fields,
                "X-Stentor-Report: subscriber=<{recipient}>; list={list};\r\n\t{}; action={}; cause={cause}\r\n",
                proof.name(),
                action.name()
            );
        }
        fields
    }
}

/// Adds a finding unless there is one like it: a path in other letter case is the same path. A proof takes the place of
/// what is unproven.
fn add(findings: &mut Vec<RecipientFinding>, finding: RecipientFinding) {
    match findings.iter_mut().find(|known| known.is_same(&finding)) {
        Some(known) if known.proof == ReportProof::Unproven => *known = finding,
        Some(_) => {}
        None => findings.push(finding),
    }
}

/// Returns what a message says about recipients. The return path says who, else the report.
fn read_findings(settings: &Settings, to: &ReportAddress, parsed: &ParsedBounce) -> Vec<RecipientFinding> {
    let list = to.list.clone();
    // A list's sender is known, that of a manager is in the return path.
    let of_list = || Some(settings.list(list.as_ref()?)?.settings().bounces.as_str().to_owned());
    match parsed.kind {
        BounceKind::AutoReply | BounceKind::Other => Vec::new(),
        BounceKind::Complaint => {
            let facts = parsed.complaint.as_ref().filter(|facts| facts.is_by_person());
            let Some(facts) = facts else { return Vec::new() };
            let ReportedCopy { list, path } = to.copy_of_complaint(settings, parsed, facts);
            let Some(sender) = path.as_ref().map(|path| path.sender.clone()).or_else(of_list) else {
                return Vec::new();
            };
            let named = parsed.reports.first().map(|report| report.recipient.clone());
            let recipient = path.as_ref().map(|path| path.path.recipient.as_str().to_owned()).or(named);
            vec![RecipientFinding {
                proof: proof(path.as_ref()),
                action: ReportAction::Complained,
                cause: BounceCause::Content,
                text: facts.feedback_type.clone(),
                ..RecipientFinding::without_details(list, sender, recipient.unwrap_or_default())
            }]
        }
        BounceKind::Bounce => {
            let Some(path) = to.return_path(parsed) else {
                let Some(sender) = of_list() else { return Vec::new() };
                let all = parsed.reports.iter().take(FINDINGS_MAX);
                let new = |to: &RecipientReport| {
                    RecipientFinding::without_details(list.clone(), sender.clone(), to.recipient.clone())
                };
                return all.map(|report| new(report).with_details(report)).collect();
            };
            let recipient = path.path.recipient.as_str();
            // A bounce may name the alias's target.
            let is_same = |address: &str| address.eq_ignore_ascii_case(recipient);
            let report = parsed.reports.iter().find(|report| is_same(&report.recipient)).or(parsed.reports.first());
            let mut finding = RecipientFinding::without_details(list, path.sender.clone(), recipient.to_owned());
            finding.proof = proof(Some(path));
            vec![match report {
                Some(report) => finding.with_details(report),
                None => finding,
            }]
        }
    }
}

fn proof(path: Option<&SenderPath>) -> ReportProof {
    if path.is_some_and(|path| path.path.is_proven) { ReportProof::Proven } else { ReportProof::Unproven }
}

impl RecipientFinding {
    fn is_proven_complaint(&self) -> bool {
        self.action == ReportAction::Complained && self.proof == ReportProof::Proven
    }

    /// Whether both say the same of one person.
    fn is_same(&self, other: &RecipientFinding) -> bool {
        self.action == other.action
            && self.subject().eq_ignore_ascii_case(other.subject())
            && self.recipient.eq_ignore_ascii_case(&other.recipient)
    }

    /// Adds what a report says about the recipient.
    fn with_details(self, report: &RecipientReport) -> RecipientFinding {
        RecipientFinding {
            action: report.action,
            cause: report.cause,
            confidence: report.confidence,
            rule: report.rule.clone(),
            text: report.reply.clone(),
            status: report.status,
            ..self
        }
    }

    /// A finding without details, for a bounce that names no recipient.
    fn without_details(list: Option<Arc<str>>, sender: String, recipient: String) -> RecipientFinding {
        RecipientFinding {
            list,
            sender,
            recipient,
            proof: ReportProof::Unproven,
            action: ReportAction::Failed,
            cause: BounceCause::Unknown,
            confidence: 0,
            rule: String::new(),
            text: String::new(),
            status: None,
        }
    }

    /// The list or sender that the recipient complained about.
    fn subject(&self) -> &str {
        self.list.as_deref().unwrap_or(&self.sender)
    }
}

/// Stores a complaint; a recipient that cannot be suppressed counts as new.
async fn suppress(core: &Arc<Core>, finding: &RecipientFinding) -> Result<EntryEffect, Reply> {
    let list = finding.list.as_deref();
    let scope = list.map_or_else(|| sender_scope(&finding.sender), Scope::list);
    let (Ok(subject), Ok(scope)) = (Subject::parse(&finding.recipient), scope) else {
        return Ok(EntryEffect::Added);
    };
    let from = list.map_or_else(|| scope.text(), |list| format!("the list {list}"));
    let entry = Suppression::new(subject, scope, SuppressionReason::Complaint, SOURCE, core.clock.now());
    let effect = core.registry.suppress(entry).await.map_err(|error| {
        let (sender, recipient) = (&finding.sender, &finding.recipient);
        tracing::error!(list, sender, recipient, %error, "complaint could not be stored");
        NOT_STORED
    })?;
    if effect != EntryEffect::Unchanged {
        log::audit_note(core, "suppress", SOURCE, &format!("{} from {from}", finding.recipient));
    }
    Ok(effect)
}
