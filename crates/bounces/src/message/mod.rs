//! Reads messages that report on our mail: bounces, delay notices, complaints, and auto-replies, which are none.
//!
//! ```text
//! octets --> Collector (walks the parts, keeps bounded pieces) --> finish:
//!   feedback-report part             -> Complaint   (RFC 5965, RFC 9477)
//!   delivery-status with recipients  -> Bounce      (RFC 3464)
//!   a sender or words of a bounce    -> Bounce      (qmail, Exim, sendmail, Exchange and others: `free`)
//!   signs of an automatic answer     -> AutoReply   (RFC 3834 and older fields)
//!   else                             -> Other
//! ```
//!
//! Promise: linear time; memory bounded by [`TEXT_BYTES_MAX`] for each piece and [`REPORTS_MAX`] recipients, whatever
//! the message's size. Addresses and texts are the reporter's: nothing here proves that the report is genuine, so the
//! caller checks the address that it came to. Failure: none; unreadable facts are absent.

mod automatic;
mod collect;
mod feedback;
mod free;
mod region;
mod status;
#[cfg(test)]
mod tests;

use serde::Serialize;
use stentor_mail::reply::Enhanced;
use stentor_mime::walk::Walker;

use self::collect::Collector;
pub use self::collect::TEXT_BYTES_MAX;
use crate::cause::BounceCause;
use crate::reply::{BounceReply, ReplyWords, start_of};
use crate::rules::{BounceRules, Classification};

/// Maximum recipients of one message.
pub const REPORTS_MAX: usize = 1_000;
/// Octets kept of a recipient's reply.
pub const REPLY_BYTES_MAX: usize = 2_000;
/// Octets of replies and texts that are classified for one message; recipients beyond have their codes only.
const CLASSIFIED_BYTES_MAX: usize = 256 * 1024;
/// Classifications of this confidence are not looked for elsewhere in the message.
const CONFIDENCE_SURE: u8 = 70;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BounceKind {
    /// Reports what became of recipients; `reports` says for each whether it failed.
    Bounce,
    /// A person complained about a message, or a receiver reports on its authentication.
    Complaint,
    /// A person's program answered: a vacation notice, a ticket number.
    AutoReply,
    /// Anything else.
    Other,
}

/// What became of a recipient (RFC 3464 section 2.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportAction {
    Failed,
    Delayed,
    Delivered,
    Relayed,
    Expanded,
    /// The recipient of a complaint.
    Complained,
}

impl ReportAction {
    pub fn name(self) -> &'static str {
        match self {
            ReportAction::Failed => "failed",
            ReportAction::Delayed => "delayed",
            ReportAction::Delivered => "delivered",
            ReportAction::Relayed => "relayed",
            ReportAction::Expanded => "expanded",
            ReportAction::Complained => "complained",
        }
    }
}

/// One recipient of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecipientReport {
    /// The address that we sent to, as far as the report says.
    pub recipient: String,
    /// The address that failed, if it differs (an alias or forwarding).
    pub final_recipient: Option<String>,
    pub action: ReportAction,
    /// Reply code in the reply.
    pub code: Option<u16>,
    /// Enhanced code of the reply, else the report's Status.
    #[serde(serialize_with = "as_text")]
    pub status: Option<Enhanced>,
    /// The reply or reason, in one line.
    pub reply: String,
    /// The host that replied (Remote-MTA); may be empty.
    pub host: String,
    pub cause: BounceCause,
    /// Percent.
    pub confidence: u8,
    /// The rule that decided; empty if none did.
    pub rule: String,
    /// Block lists named in the reply.
    pub block_lists: Vec<String>,
}

/// The facts of a complaint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ComplaintFacts {
    /// Feedback-Type: `abuse`, `fraud`, `auth-failure`, `not-spam`, ...
    pub feedback_type: String,
    /// Source-IP: our address that sent the message.
    pub source_ip: Option<String>,
    /// Reported-Domain, the first.
    pub domain: Option<String>,
    /// Original-Mail-From.
    pub mail_from: Option<String>,
    /// CFBL-Feedback-ID of the message complained about (RFC 9477).
    pub feedback_id: Option<String>,
}

impl ComplaintFacts {
    /// Whether a person does not want the mail (RFC 5965 section 7.3); other types are about its authentication.
    pub fn is_by_person(&self) -> bool {
        ["abuse", "fraud", "opt-out", "opt-out-list"].contains(&&*self.feedback_type)
    }
}

/// A message that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParsedBounce {
    pub kind: BounceKind,
    pub reports: Vec<RecipientReport>,
    /// Message-ID of the message reported on, with its angle brackets.
    pub original_message_id: Option<String>,
    /// List-Id of that message, without angle brackets.
    pub original_list_id: Option<String>,
    /// X-Listmonk-Campaign of that message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_campaign: Option<String>,
    /// Original-Envelope-Id (ENVID).
    pub envelope_id: Option<String>,
    /// The host that reports (Reporting-MTA), else the sender's domain; may be empty.
    pub reporter: String,
    pub complaint: Option<ComplaintFacts>,
}

// The signature is serde's.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
fn as_text<S: serde::Serializer>(enhanced: &Option<Enhanced>, serializer: S) -> Result<S::Ok, S::Error> {
    match enhanced {
        Some(enhanced) => serializer.collect_str(enhanced),
        None => serializer.serialize_none(),
    }
}

/// Reads a whole message.
pub fn parse(octets: &[u8], rules: &BounceRules) -> ParsedBounce {
    let mut parser = BounceParser::new();
    parser.push(octets);
    parser.finish(rules)
}

/// Reads a message in pieces: `push` its octets, then `finish`.
pub struct BounceParser {
    walker: Walker,
    collector: Collector,
}

impl Default for BounceParser {
    fn default() -> BounceParser {
        BounceParser::new()
    }
}

impl BounceParser {
    pub fn new() -> BounceParser {
        BounceParser { walker: Walker::new(), collector: Collector::default() }
    }

    pub fn push(&mut self, octets: &[u8]) {
        self.walker.push(octets, &mut self.collector);
    }

    pub fn finish(mut self, rules: &BounceRules) -> ParsedBounce {
        self.walker.finish(&mut self.collector);
        self.collector.finish();
        read(&self.collector, rules)
    }
}

fn read(collected: &Collector, rules: &BounceRules) -> ParsedBounce {
    let original = collected.original();
    let status = status::read(&collected.status);
    let mut parsed = ParsedBounce {
        kind: BounceKind::Other,
        reports: Vec::new(),
        original_message_id: original.message_id,
        original_list_id: original.list_id,
        original_campaign: original.campaign,
        envelope_id: status.envelope_id,
        reporter: status.reporter.unwrap_or_else(|| domain_of(&collected.header.from)),
        complaint: None,
    };
    if let Some(facts) = feedback::read(collected, original.feedback_id, &original.to) {
        parsed.kind = BounceKind::Complaint;
        let cause = if facts.complaint.is_by_person() { BounceCause::Content } else { BounceCause::Unknown };
        parsed.reports = facts.recipients.into_iter().map(|to| complaint_report(to, cause)).collect();
        parsed.complaint = Some(facts.complaint);
        return parsed;
    }
    let signs = automatic::signs(collected);
    let mut drafts = status.recipients;
    let mut has_diagnostics = !drafts.is_empty();
    if drafts.is_empty() && signs.is_bounce() {
        drafts = status::read(&collected.inner_status).recipients;
        has_diagnostics = !drafts.is_empty();
        if drafts.is_empty() {
            drafts = free::read(collected, signs.is_delay);
        } else {
            // The attached message is the report, not the message reported on.
            (parsed.original_message_id, parsed.original_campaign) = (None, None);
        }
    }
    // A bounce whose recipient is not named is still one.
    parsed.kind = if !drafts.is_empty() || signs.is_bounce() {
        BounceKind::Bounce
    } else if signs.is_auto_reply {
        BounceKind::AutoReply
    } else {
        BounceKind::Other
    };
    let mut classifier = ReplyClassifier::new(collected, rules);
    classifier.has_own_replies = has_diagnostics && drafts.len() > 1;
    parsed.reports = drafts.into_iter().take(REPORTS_MAX).map(|draft| classifier.report(draft)).collect();
    parsed
}

/// What a report says of a recipient, before its reply is classified.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecipientDraft {
    recipient: String,
    final_recipient: Option<String>,
    action: ReportAction,
    status: Option<Enhanced>,
    reply: String,
    host: String,
}

fn complaint_report(recipient: String, cause: BounceCause) -> RecipientReport {
    RecipientReport {
        recipient,
        final_recipient: None,
        action: ReportAction::Complained,
        code: None,
        status: None,
        reply: String::new(),
        host: String::new(),
        cause,
        // The person says so.
        confidence: if cause == BounceCause::Unknown { 0 } else { 100 },
        rule: String::new(),
        block_lists: Vec::new(),
    }
}

/// Classifies recipients' replies within a limit of octets for the whole message.
struct ReplyClassifier<'r> {
    rules: &'r BounceRules,
    texts: region::Texts,
    /// All words of the part for people.
    all: String,
    /// Whether replies are the recipients' own (Diagnostic-Code), and words for people may be about another one.
    has_own_replies: bool,
    octets_left: usize,
}

impl<'r> ReplyClassifier<'r> {
    fn new(collected: &Collector, rules: &'r BounceRules) -> ReplyClassifier<'r> {
        let texts = region::Texts::of(collected);
        let all = texts.all();
        ReplyClassifier { rules, texts, all, has_own_replies: false, octets_left: CLASSIFIED_BYTES_MAX }
    }

    fn classify(&mut self, text: &str, code: Option<u16>, draft: &RecipientDraft) -> Classification<'r> {
        let domain = domain_of(&draft.recipient);
        let host = if draft.host.is_empty() { &domain } else { &draft.host };
        let text = start_of(text, self.octets_left);
        self.octets_left -= text.len();
        self.rules.classify(&BounceReply { text, code, enhanced: draft.status, host })
    }

    /// The report on a recipient. If its reply says little, the part for people is examined, too: first what it says of
    /// the recipient, then all of it. If there are several, one with a Diagnostic-Code has no other
    /// cause than that.
    fn report(&mut self, draft: RecipientDraft) -> RecipientReport {
        let words = ReplyWords::read(&draft.reply);
        let mut best = self.classify(&draft.reply, words.code, &draft);
        let mut reply = draft.reply.clone();
        let is_failure = matches!(draft.action, ReportAction::Failed | ReportAction::Delayed);
        let has_own_words = self.has_own_replies && !draft.reply.trim().is_empty();
        if is_failure && best.confidence < CONFIDENCE_SURE && !has_own_words {
            let address = draft.final_recipient.as_ref().unwrap_or(&draft.recipient);
            for text in [self.texts.about(address), self.all.clone()] {
                let other = self.classify(&text, words.code, &draft);
                if best.confidence < CONFIDENCE_SURE && other.confidence > best.confidence {
                    best = other;
                    if reply.trim().is_empty() {
                        reply = text;
                    }
                }
            }
        }
        if !is_failure {
            best = Classification::default();
        }
        let reply = reply.split_whitespace().collect::<Vec<_>>().join(" ");
        RecipientReport {
            recipient: draft.recipient,
            final_recipient: draft.final_recipient,
            action: draft.action,
            code: words.code,
            status: words.enhanced.or(draft.status),
            reply: start_of(&reply, REPLY_BYTES_MAX).to_owned(),
            host: draft.host,
            cause: best.cause,
            confidence: best.confidence,
            rule: best.rule.to_owned(),
            block_lists: best.block_lists,
        }
    }
}

fn domain_of(address: &str) -> String {
    address.rsplit_once('@').map_or_else(String::new, |(_, domain)| domain.trim_end_matches('>').to_ascii_lowercase())
}
