//! Bounces and complaints about a list's posts: read once, when they come to the list's bounce address.
//!
//! Promise: for each recipient of a report the log says who, whether the return path proves it ([`stentor_copies`]),
//! and the cause ([`stentor_bounces`]). A complaint about a copy whose return path is proven suppresses its recipient
//! for the list before the complaint is acknowledged, and counts in the rates once it is. A proven bounce because of
//! our reputation raises an alarm ([`stentor_core::reputation_alarms`]). Auto-replies are ignored. The report goes to
//! the owner, with fields that say to which return path it came and whom it is about.
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
use stentor_copies::ReturnPath;
use stentor_core::reputation_alarms::{BlockedPlace, REPORT_SOURCE};
use stentor_core::{Core, Settings, log};
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::MessageId;
use stentor_records::escape::field;
use stentor_records::record::domain;
use stentor_registry::{EntryEffect, Scope, Subject, Suppression, SuppressionReason};

use super::Transaction;

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

/// A list's bounce address as the reporter named it.
pub(super) struct BounceAddress {
    list: Arc<str>,
    path: Address,
}

/// What a report says about one recipient of a post.
struct RecipientFinding {
    list: Arc<str>,
    recipient: String,
    proof: ReportProof,
    action: ReportAction,
    cause: BounceCause,
    rule: String,
    text: String,
    /// The host that replied; may be empty.
    host: String,
    status: Option<Enhanced>,
}

/// What a message reports about posts.
#[derive(Default)]
pub(super) struct ListReports {
    findings: Vec<RecipientFinding>,
}

impl Transaction {
    /// Reads a message that came to lists' bounce addresses.
    ///
    /// # Errors
    /// It cannot be read, or a complaint cannot be stored.
    pub(super) async fn list_reports(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        last: &[u8],
    ) -> Result<ListReports, Reply> {
        let to = self.rcpts.reports().map(|(list, path)| BounceAddress { list: list.clone(), path: path.clone() });
        let to: Vec<BounceAddress> = to.collect();
        if to.is_empty() {
            return Ok(ListReports::default());
        }
        let parsed = self.parse_report(core, settings, last).map_err(|error| {
            tracing::error!(message = %self.id, %error, "report could not be read");
            NOT_READ
        })?;
        let mut findings: Vec<RecipientFinding> = Vec::new();
        for to in &to {
            let of_path = read_path(settings, &to.list, &to.path);
            // Without a return path all addresses of a list say the same.
            if of_path.is_some() || !findings.iter().any(|known| known.list == to.list) {
                findings.extend(read_findings(settings, to, of_path, &parsed));
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
                && !core.complaints.take_expected(&finding.list, &finding.recipient, core.clock.now())
            {
                finding.proof = ReportProof::Repeated;
            }
        }
        Ok(ListReports { findings })
    }

    /// Adds the return path and the subscribers to a report for the list's owner. If others get the message as well,
    /// nothing is added: they must not learn who subscribes.
    pub(super) fn add_report_fields(&mut self, reports: &ListReports) {
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

impl ListReports {
    /// Logs them and raises alarms, once the message `id` is accepted.
    pub(super) fn log(&self, core: &Core, settings: &Settings, id: MessageId) {
        for finding in &self.findings {
            let RecipientFinding { list, recipient, proof, action, cause, rule, text, host, status } = finding;
            let sender = settings.list(list).map_or("", |list| domain(list.settings().bounces.as_str()));
            let note = ReportNote {
                list: (&**list).into(),
                recipient: recipient.into(),
                proof: *proof,
                action: action.name(),
                cause: cause.name(),
                rule: rule.into(),
                sender_domain: sender.into(),
                text,
            };
            log::list_report(core, id, &note);
            if *cause == BounceCause::Reputation && *proof == ReportProof::Proven {
                let host = if host.is_empty() { domain(recipient) } else { host };
                let place = BlockedPlace { source: REPORT_SOURCE, host };
                let reply = BounceReply { text, code: None, enhanced: *status, host };
                core.reputation_alarms.record_reply(settings.bounce_rules(), place, &reply, core.clock.now());
            }
        }
    }

    /// The message was not accepted: its complaints are stored, but count when the reporter sends it again.
    pub(super) fn expect_again(&self, core: &Core) {
        for finding in self.findings.iter().filter(|finding| finding.is_proven_complaint()) {
            core.complaints.expect_again(&finding.list, &finding.recipient, core.clock.now());
        }
    }

    /// The fields that say whom the report is about, for the list's owner.
    fn fields(&self) -> String {
        let mut fields = String::new();
        for RecipientFinding { list, recipient, proof, action, cause, .. } in self.findings.iter().take(FIELDS_MAX) {
            let recipient = field(recipient, FIELD_BYTES_MAX);
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

/// Returns what a message says about a list's recipients. The return path says who, else the report.
fn read_findings(
    settings: &Settings,
    to: &BounceAddress,
    of_path: Option<ReturnPath>,
    parsed: &ParsedBounce,
) -> Vec<RecipientFinding> {
    let list = to.list.clone();
    match parsed.kind {
        BounceKind::AutoReply | BounceKind::Other => Vec::new(),
        BounceKind::Complaint => {
            let facts = parsed.complaint.as_ref().filter(|facts| facts.is_by_person());
            let Some(facts) = facts else { return Vec::new() };
            let path = facts.mail_from.as_deref().and_then(|path| path.parse().ok());
            let of_post = path.and_then(|path: Address| read_path(settings, &to.list, &path)).or(of_path);
            let named = parsed.reports.first().map(|report| report.recipient.clone());
            let proof = proof(of_post.as_ref());
            let recipient = of_post.map(|path| path.recipient.as_str().to_owned()).or(named).unwrap_or_default();
            let text = facts.feedback_type.clone();
            let (action, cause, rule) = (ReportAction::Complained, BounceCause::Content, String::new());
            vec![RecipientFinding {
                list,
                recipient,
                proof,
                action,
                cause,
                rule,
                text,
                host: String::new(),
                status: None,
            }]
        }
        BounceKind::Bounce => {
            let Some(path) = of_path else {
                let all = parsed.reports.iter().take(FINDINGS_MAX);
                let finding = |report: &RecipientReport| {
                    RecipientFinding::from_report(list.clone(), report.recipient.clone(), report)
                };
                return all.map(finding).collect();
            };
            let recipient = path.recipient.as_str();
            // A bounce may name the alias's target.
            let is_same = |address: &str| address.eq_ignore_ascii_case(recipient);
            let report = parsed.reports.iter().find(|report| is_same(&report.recipient)).or(parsed.reports.first());
            let finding = report.map_or_else(
                || RecipientFinding::without_details(list.clone(), recipient.to_owned()),
                |report| RecipientFinding::from_report(list.clone(), recipient.to_owned(), report),
            );
            vec![RecipientFinding { proof: proof(Some(&path)), ..finding }]
        }
    }
}

fn proof(path: Option<&ReturnPath>) -> ReportProof {
    if path.is_some_and(|path| path.is_proven) { ReportProof::Proven } else { ReportProof::Unproven }
}

impl RecipientFinding {
    fn is_proven_complaint(&self) -> bool {
        self.action == ReportAction::Complained && self.proof == ReportProof::Proven
    }

    /// A finding from the part of a report about one recipient; its proof is added later.
    fn from_report(list: Arc<str>, recipient: String, report: &RecipientReport) -> RecipientFinding {
        RecipientFinding {
            action: report.action,
            cause: report.cause,
            rule: report.rule.clone(),
            text: report.reply.clone(),
            host: report.host.clone(),
            status: report.status,
            ..RecipientFinding::without_details(list, recipient)
        }
    }

    /// A finding without details, for a bounce that names no recipient.
    fn without_details(list: Arc<str>, recipient: String) -> RecipientFinding {
        RecipientFinding {
            list,
            recipient,
            proof: ReportProof::Unproven,
            action: ReportAction::Failed,
            cause: BounceCause::Unknown,
            rule: String::new(),
            text: String::new(),
            host: String::new(),
            status: None,
        }
    }
}

/// Reads a return path of a list's copies.
fn read_path(settings: &Settings, list: &str, path: &Address) -> Option<ReturnPath> {
    let copies = settings.copies.of(list, "")?;
    let sender = settings.list(list)?.settings().bounces.as_str();
    copies.verp.as_ref()?.read(path, sender, settings.copies.key()?)
}

/// Stores a complaint; a recipient that cannot be suppressed counts as new.
async fn suppress(core: &Arc<Core>, finding: &RecipientFinding) -> Result<EntryEffect, Reply> {
    let (Ok(subject), Ok(scope)) = (Subject::parse(&finding.recipient), Scope::list(&finding.list)) else {
        return Ok(EntryEffect::Added);
    };
    let entry = Suppression::new(subject, scope, SuppressionReason::Complaint, SOURCE, core.clock.now());
    let detail = format!("{} from the list {}", finding.recipient, finding.list);
    let effect = core.registry.suppress(entry).await.map_err(|error| {
        tracing::error!(list = %finding.list, recipient = finding.recipient, %error, "complaint could not be stored");
        NOT_STORED
    })?;
    if effect != EntryEffect::Unchanged {
        log::audit_note(core, "suppress", SOURCE, &detail);
    }
    Ok(effect)
}
