//! Collects the pieces of a message that a report can stand in, each bounded.

use stentor_mime::charset::Charset;
use stentor_mime::html::Html;
use stentor_mime::walk::{Part, Visitor};
use stentor_mime::words;

use crate::reply::start_of;

/// Octets kept of each piece: the texts for people, the delivery status, the feedback report, the original.
pub const TEXT_BYTES_MAX: usize = 128 * 1024;
/// Octets kept of a header field.
const FIELD_BYTES_MAX: usize = 4096;

/// Fields of the message's own header section.
#[derive(Debug, Default)]
pub(super) struct OwnHeader {
    pub from: String,
    pub to: String,
    pub subject: String,
    pub auto_submitted: String,
    pub precedence: String,
    pub return_path: Option<String>,
    /// Names of fields that only programs for automatic answers set.
    pub has_auto_reply_field: bool,
    /// X-Failed-Recipients of Exim.
    pub failed_recipients: String,
    pub in_reply_to: String,
    pub content_type: String,
    /// CFBL-Feedback-ID and Feedback-Type of reports without a part of their own.
    pub feedback_id: Option<String>,
}

/// Facts of the message reported on.
#[derive(Debug, Default, Clone)]
pub(super) struct OriginalFacts {
    pub message_id: Option<String>,
    pub list_id: Option<String>,
    pub feedback_id: Option<String>,
    /// X-Listmonk-Campaign.
    pub campaign: Option<String>,
    pub to: String,
}

#[derive(Default)]
pub(super) struct Collector {
    pub header: OwnHeader,
    /// Texts for people, in order.
    pub text: String,
    /// `message/delivery-status` parts.
    pub status: String,
    /// The same within an attached message: a gateway may attach the report that it forwards.
    pub inner_status: String,
    /// `message/feedback-report` part.
    pub feedback: String,
    pub has_feedback: bool,
    /// `text/rfc822-headers` parts.
    returned_header: String,
    original: OriginalFacts,
    /// Path of the first message within the message: its texts are not the reporter's.
    inner: Option<Vec<u32>>,
    html: Option<(Vec<u32>, Html)>,
    /// Whether a text that is not HTML was seen: the HTML beside it says the same.
    has_plain: bool,
    html_text: String,
}

impl Collector {
    fn is_inner(&self, path: &[u32]) -> bool {
        self.inner.as_ref().is_some_and(|inner| path.starts_with(inner))
    }

    /// Ends the message.
    pub fn finish(&mut self) {
        self.end_html();
        // A group that is cut could name another address.
        for status in [&mut self.status, &mut self.inner_status] {
            if status.len() >= TEXT_BYTES_MAX {
                let end = status.rfind("\n\r\n").max(status.rfind("\n\n"));
                status.truncate(end.unwrap_or(0));
            }
        }
        if !self.has_plain || self.text.trim().is_empty() {
            self.text = std::mem::take(&mut self.html_text);
        }
    }

    fn end_html(&mut self) {
        if let Some((_, mut html)) = self.html.take() {
            html.finish(&mut self.html_text);
            self.html_text.push('\n');
        }
    }

    /// The facts of the original, from an attached message, an attached header section, or a copy in the text.
    pub fn original(&self) -> OriginalFacts {
        let mut facts = self.original.clone();
        for line in self.returned_header.lines().chain(self.text.lines()) {
            let line = line.trim_start_matches(['>', ' ', '|']);
            let Some((name, value)) = line.split_once(':') else { continue };
            facts.note(name.trim(), value.trim());
        }
        if facts.message_id.is_none() && self.header.in_reply_to.starts_with('<') {
            facts.message_id = Some(self.header.in_reply_to.clone());
        }
        facts
    }
}

impl OriginalFacts {
    fn note(&mut self, name: &str, value: &str) {
        let set = |slot: &mut Option<String>, value: &str| {
            if slot.is_none() && !value.is_empty() {
                *slot = Some(start_of(value, FIELD_BYTES_MAX).to_owned());
            }
        };
        if name.eq_ignore_ascii_case("message-id") && value.starts_with('<') && value.ends_with('>') {
            set(&mut self.message_id, value);
        } else if name.eq_ignore_ascii_case("list-id") {
            let id = value.rsplit_once('<').map_or(value, |(_, id)| id).trim_end_matches('>');
            set(&mut self.list_id, id);
        } else if name.eq_ignore_ascii_case("cfbl-feedback-id") {
            set(&mut self.feedback_id, value);
        } else if name.eq_ignore_ascii_case("x-listmonk-campaign") {
            set(&mut self.campaign, value);
        } else if name.eq_ignore_ascii_case("to") && self.to.is_empty() {
            start_of(value, FIELD_BYTES_MAX).clone_into(&mut self.to);
        }
    }
}

/// Names of fields that only automatic answers have.
const AUTO_REPLY_FIELDS: [&str; 6] =
    ["x-autoreply", "x-autorespond", "x-autoreply-from", "x-mail-autoreply", "x-vacation", "x-auto-response-for"];

impl Visitor for Collector {
    fn field(&mut self, path: &[u32], name: &[u8], value: &[u8], fallback: Charset) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        let is_of_original = self.is_inner(path);
        if !path.is_empty() && !is_of_original {
            return;
        }
        let decoded = words::decode(&value[..value.len().min(FIELD_BYTES_MAX)], fallback).text;
        let value = decoded.trim();
        if is_of_original {
            return self.original.note(name, value);
        }
        let lower = name.to_ascii_lowercase();
        let header = &mut self.header;
        let slot = match lower.as_str() {
            "from" => &mut header.from,
            "to" => &mut header.to,
            "subject" => &mut header.subject,
            "auto-submitted" => &mut header.auto_submitted,
            "precedence" => &mut header.precedence,
            "x-failed-recipients" => &mut header.failed_recipients,
            "in-reply-to" => &mut header.in_reply_to,
            "content-type" => &mut header.content_type,
            "return-path" => header.return_path.get_or_insert_default(),
            "cfbl-feedback-id" => header.feedback_id.get_or_insert_default(),
            name => {
                header.has_auto_reply_field |= AUTO_REPLY_FIELDS.contains(&name);
                return;
            }
        };
        if slot.is_empty() {
            value.clone_into(slot);
        } else if lower == "x-failed-recipients" && slot.len() < TEXT_BYTES_MAX {
            slot.push(',');
            slot.push_str(value);
        }
    }

    fn part(&mut self, part: &Part) {
        if part.of_message && !part.path.is_empty() && self.inner.is_none() {
            self.inner = Some(part.path.clone());
        }
        // The header section of an attached message is reported before its part: a message begins here.
        if matches!(part.content_type.value.as_str(), "message/rfc822" | "message/global")
            && !part.path.is_empty()
            && self.inner.is_none()
        {
            self.inner = Some(part.path.clone());
        }
        if part.content_type.value == "message/feedback-report" {
            self.has_feedback = true;
        }
    }

    fn text(&mut self, part: &Part, text: &str) {
        if self.is_inner(&part.path) {
            if part.content_type.value == "message/delivery-status" {
                let left = TEXT_BYTES_MAX.saturating_sub(self.inner_status.len());
                self.inner_status.push_str(start_of(text, left));
            }
            return;
        }
        let kept = match part.content_type.value.as_str() {
            "message/delivery-status" | "message/global-delivery-status" => &mut self.status,
            "message/feedback-report" => &mut self.feedback,
            "text/rfc822-headers" | "message/global-headers" | "message/partial" => &mut self.returned_header,
            _ if part.is_html() => {
                if self.html.as_ref().is_none_or(|(path, _)| *path != part.path) {
                    self.end_html();
                    self.html = Some((part.path.clone(), Html::default()));
                }
                if let Some((_, html)) = &mut self.html
                    && self.html_text.len() < TEXT_BYTES_MAX
                {
                    html.push(start_of(text, TEXT_BYTES_MAX), &mut self.html_text);
                }
                return;
            }
            _ => {
                self.has_plain = true;
                &mut self.text
            }
        };
        let left = TEXT_BYTES_MAX.saturating_sub(kept.len());
        kept.push_str(start_of(text, left));
    }

    fn end(&mut self, part: &Part, _size: u64) {
        // Parts are apart from each other, also where a line end is missing.
        if self.is_inner(&part.path) {
            return;
        }
        for (text, separator) in [(&mut self.status, "\n\n"), (&mut self.text, "\n")] {
            if !text.is_empty() && text.len() < TEXT_BYTES_MAX {
                text.push_str(separator);
            }
        }
    }
}
