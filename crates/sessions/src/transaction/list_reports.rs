//! Bounces and complaints about a list's posts: read once, when they come to the list's bounce address.
//!
//! Promise: for each recipient of a report the log says who, whether the return path proves it ([`stentor_copies`]),
//! and the cause ([`stentor_bounces`]). A complaint about a copy whose return path is proven suppresses its recipient
//! for the list before the complaint is acknowledged. Auto-replies are no bounces. The report goes to the owner as
//! before.
//!
//! Anybody can send such a message, so nothing follows from one without a seal but a line in the log. A report is read
//! up to [`READ_BYTES_MAX`].
//!
//! Failure: 451 if a suppression cannot be stored; the reporter tries again.

use std::sync::Arc;

use stentor_bounces::message::BounceParser;
use stentor_bounces::{BounceCause, BounceKind, ParsedBounce, ReportAction};
use stentor_copies::ReturnPath;
use stentor_core::{Core, Settings, log};
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_registry::{Scope, Subject, Suppression, SuppressionReason};

use super::Transaction;

/// Octets of a report that are read: its returned message may be as large as ours.
const READ_BYTES_MAX: usize = 512 * 1024;
const PIECE_BYTES: usize = 64 * 1024;
/// Recipients of one report that are looked at: each is a line in the log, and anybody can send reports.
const FINDINGS_MAX: usize = 100;
const NOT_STORED: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "The complaint could not be stored, try again later");
/// Source of suppressions.
const SOURCE: &str = "complaint";
/// Types of feedback from people who do not want the mail (RFC 5965 section 7.3); others are about its authentication.
const COMPLAINTS: [&str; 4] = ["abuse", "fraud", "opt-out", "opt-out-list"];

/// A list's bounce address as the reporter named it.
pub(super) struct ReportAddress {
    list: Arc<str>,
    path: Address,
}

/// One recipient of a post, and what became of it.
struct Finding {
    list: Arc<str>,
    recipient: String,
    is_proven: bool,
    action: ReportAction,
    cause: BounceCause,
    rule: String,
    text: String,
}

/// What a message reports about posts.
#[derive(Default)]
pub(super) struct ListReports {
    findings: Vec<Finding>,
}

impl Transaction {
    /// Reads a message that came to lists' bounce addresses.
    ///
    /// # Errors
    /// A complaint cannot be stored.
    pub(super) async fn list_reports(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        last: &[u8],
    ) -> Result<ListReports, Reply> {
        let to = self.rcpts.reports().map(|(list, path)| ReportAddress { list: list.clone(), path: path.clone() });
        let to: Vec<ReportAddress> = to.collect();
        if to.is_empty() {
            return Ok(ListReports::default());
        }
        let parsed = self.parse_report(core, settings, last);
        let mut findings: Vec<Finding> = Vec::new();
        for to in &to {
            let of_path = read_path(settings, &to.list, &to.path);
            // Without a return path all addresses of a list say the same.
            if of_path.is_some() || !findings.iter().any(|known| known.list == to.list) {
                findings.extend(self::findings(settings, to, of_path, &parsed));
            }
            if findings.len() >= FINDINGS_MAX {
                tracing::info!(message = %self.id, "more than {FINDINGS_MAX} recipients in a report; the others are not logged");
                findings.truncate(FINDINGS_MAX);
                break;
            }
        }
        for finding in findings.iter().filter(|finding| finding.action == ReportAction::Complained && finding.is_proven)
        {
            suppress(core, finding).await?;
        }
        Ok(ListReports { findings })
    }

    fn parse_report(&self, core: &Core, settings: &Settings, last: &[u8]) -> ParsedBounce {
        let mut parser = BounceParser::new();
        self.each_piece(core, last, READ_BYTES_MAX, |piece| parser.push(piece));
        parser.finish(settings.bounce_rules())
    }

    /// Reads the content in pieces, at most `bytes_max` octets of it.
    pub(super) fn each_piece(&self, core: &Core, last: &[u8], bytes_max: usize, mut sink: impl FnMut(&[u8])) {
        let mut left = bytes_max;
        if let Some(pieces) = &self.pieces {
            let (mut at, mut piece) = (0, vec![0; PIECE_BYTES]);
            while left > 0 && at < pieces.stored {
                let wanted = left.min(PIECE_BYTES).min((pieces.stored - at) as usize);
                // What cannot be read is refused by the commit.
                let Ok(read @ 1..) = core.reader.read_at(pieces.content.0, at, &mut piece[..wanted]) else { break };
                sink(&piece[..read]);
                (at, left) = (at + read as u64, left - read);
            }
        }
        sink(&last[..last.len().min(left)]);
    }
}

impl ListReports {
    /// Logs them, once the message is accepted.
    pub(super) fn log(&self, core: &Core) {
        for Finding { list, recipient, is_proven, action, cause, rule, text } in &self.findings {
            let proof = if *is_proven { "proven" } else { "unproven" };
            log::list_report(
                core,
                &log::ListReport { list, recipient, proof, action: action.name(), cause: cause.name(), rule, text },
            );
        }
    }
}

/// Returns what a message says about a list's recipients. The return path says who, else the report.
fn findings(
    settings: &Settings,
    to: &ReportAddress,
    of_path: Option<ReturnPath>,
    parsed: &ParsedBounce,
) -> Vec<Finding> {
    let list = to.list.clone();
    match parsed.kind {
        BounceKind::AutoReply | BounceKind::Other => Vec::new(),
        BounceKind::Complaint => {
            let facts = parsed.complaint.as_ref().filter(|facts| COMPLAINTS.contains(&&*facts.feedback_type));
            let Some(facts) = facts else { return Vec::new() };
            let path = facts.mail_from.as_deref().and_then(|path| path.parse().ok());
            let of_post = path.and_then(|path: Address| read_path(settings, &to.list, &path)).or(of_path);
            let named = parsed.reports.first().map(|report| report.recipient.clone());
            let is_proven = of_post.as_ref().is_some_and(|path| path.is_proven);
            let recipient = of_post.map(|path| path.recipient.as_str().to_owned()).or(named).unwrap_or_default();
            let text = facts.feedback_type.clone();
            let (action, cause) = (ReportAction::Complained, BounceCause::Content);
            vec![Finding { list, recipient, is_proven, action, cause, rule: String::new(), text }]
        }
        BounceKind::Bounce => {
            let Some(ReturnPath { recipient, is_proven }) = of_path else {
                let finding = |report: &stentor_bounces::RecipientReport| Finding {
                    list: list.clone(),
                    recipient: report.recipient.clone(),
                    is_proven: false,
                    action: report.action,
                    cause: report.cause,
                    rule: report.rule.clone(),
                    text: report.reply.clone(),
                };
                return parsed.reports.iter().take(FINDINGS_MAX).map(finding).collect();
            };
            // A bounce may name the alias's target.
            let is_same = |address: &str| address.eq_ignore_ascii_case(recipient.as_str());
            let report = parsed.reports.iter().find(|report| is_same(&report.recipient)).or(parsed.reports.first());
            vec![Finding {
                list,
                recipient: recipient.as_str().to_owned(),
                is_proven,
                action: report.map_or(ReportAction::Failed, |report| report.action),
                cause: report.map_or(BounceCause::Unknown, |report| report.cause),
                rule: report.map_or_else(String::new, |report| report.rule.clone()),
                text: report.map_or_else(String::new, |report| report.reply.clone()),
            }]
        }
    }
}

/// Reads a return path of a list's copies.
fn read_path(settings: &Settings, list: &str, path: &Address) -> Option<ReturnPath> {
    let copies = settings.copies.of(list, "")?;
    let sender = settings.list(list)?.settings().bounces.as_str();
    copies.verp.as_ref()?.read(path, sender, settings.copies.key()?)
}

async fn suppress(core: &Arc<Core>, finding: &Finding) -> Result<(), Reply> {
    let (Ok(subject), Ok(scope)) = (Subject::parse(&finding.recipient), Scope::list(&finding.list)) else {
        return Ok(());
    };
    let entry = Suppression::new(subject, scope, SuppressionReason::Complaint, SOURCE, core.clock.now());
    let detail = format!("{} from the list {}", finding.recipient, finding.list);
    core.registry.suppress(entry).await.map(|_| log::audit_note(core, "suppress", SOURCE, &detail)).map_err(|error| {
        tracing::error!(list = %finding.list, recipient = finding.recipient, %error, "complaint could not be stored");
        NOT_STORED
    })
}
