//! Complaints: `message/feedback-report` (RFC 5965, RFC 6591), and CFBL-Feedback-ID of the message (RFC 9477).

use super::collect::Collector;
use super::region::addresses_of;
use super::{ComplaintFacts, REPORTS_MAX};

pub(super) struct FeedbackReport {
    pub complaint: ComplaintFacts,
    pub recipients: Vec<String>,
}

/// The complaint, if the message is one. Its recipients are those that the report names, else those in To of the
/// original.
pub(super) fn read(collected: &Collector, feedback_id: Option<String>, to: &str) -> Option<FeedbackReport> {
    if !collected.has_feedback {
        return None;
    }
    let mut complaint = ComplaintFacts {
        feedback_id: feedback_id.or_else(|| collected.header.feedback_id.clone()),
        ..ComplaintFacts::default()
    };
    let mut recipients: Vec<String> = Vec::new();
    for line in collected.feedback.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let text = || Some(value.to_owned()).filter(|text| !text.is_empty());
        match name.trim().to_ascii_lowercase().as_str() {
            "feedback-type" => complaint.feedback_type = value.to_ascii_lowercase(),
            "source-ip" => complaint.source_ip = text(),
            "reported-domain" => complaint.domain = complaint.domain.or_else(text),
            "original-mail-from" => complaint.mail_from = addresses_of(value).into_iter().next(),
            "cfbl-feedback-id" => complaint.feedback_id = text(),
            "original-rcpt-to" | "removal-recipient" => recipients.extend(addresses_of(value)),
            _ => {}
        }
    }
    if recipients.is_empty() {
        recipients = addresses_of(to);
    }
    recipients.dedup();
    recipients.truncate(REPORTS_MAX);
    Some(FeedbackReport { complaint, recipients })
}
