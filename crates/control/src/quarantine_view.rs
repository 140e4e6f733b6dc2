//! The quarantine: rows of a list, and one message in detail.
//!
//! All texts are decoded and come from strangers: display code must escape them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::{MessageId, Ms};

use super::selection::{self, NO_SITE, Selection};

/// Default and maximum rows of one answer.
pub const ROWS_DEFAULT: u32 = 50;
pub const ROWS_MAX: u32 = 1_000;

/// The messages to list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QuarantineOptions {
    pub selection: Selection,
    /// Maximum number of messages returned.
    pub rows_max: u32,
    /// Continue after this queue id: `next` of the previous answer.
    pub after: Option<MessageId>,
}

impl QuarantineOptions {
    /// Parses the request's fields.
    ///
    /// # Errors
    /// The error in the fields.
    pub fn of_json(verb: &str, fields: Value) -> Result<QuarantineOptions, String> {
        let Value::Object(mut fields) = fields else { return Err("not a JSON object".to_owned()) };
        let rows_max = match fields.remove("rows_max") {
            None => ROWS_DEFAULT,
            Some(rows) => rows
                .as_u64()
                .and_then(|rows| u32::try_from(rows).ok())
                .filter(|rows| (1..=ROWS_MAX).contains(rows))
                .ok_or_else(|| format!("rows_max must be from 1 to {ROWS_MAX}"))?,
        };
        let after = match fields.remove("after") {
            None => None,
            Some(Value::String(id)) => Some(id.parse().map_err(|error| format!("{id:?}: {error}"))?),
            Some(_) => return Err("after must be a queue id".to_owned()),
        };
        let parsed = selection::parse(verb, &Value::Object(fields), false).map_err(|problem| problem.text)?;
        if parsed.selection.site.is_some() {
            return Err(NO_SITE.to_owned());
        }
        Ok(QuarantineOptions { selection: parsed.selection, rows_max, after })
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let mut fields = self.selection.to_json();
        fields.insert("rows_max".to_owned(), self.rows_max.into());
        fields.extend(self.after.map(|id| ("after".to_owned(), id.to_string().into())));
        fields
    }
}

/// The reply to `stentor quarantine list`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QuarantineList {
    pub hostname: String,
    pub now: Ms,
    /// Number of all quarantined messages.
    pub messages: u64,
    /// Number of their recipients.
    pub recipients: u64,
    pub octets: u64,
    /// Rows, oldest first.
    pub rows: Vec<QuarantinedView>,
    /// The value of `after` for the next rows, if there are more.
    pub next: Option<String>,
}

/// A quarantined message.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QuarantinedView {
    pub id: String,
    pub accepted: Ms,
    /// When it is deleted.
    pub expires: Ms,
    /// The envelope sender; empty for the null path.
    pub sender: String,
    pub list: Option<String>,
    /// The client's address, or `local`.
    pub origin: String,
    pub size: u64,
    /// The rule or milter that holds it, in words.
    pub by: String,
    /// The first recipients; `recipients_total` counts all.
    pub recipients: Vec<String>,
    /// Number of recipients.
    pub recipients_total: u64,
    /// The header's From, decoded.
    pub from: String,
    /// The header's Subject, decoded.
    pub subject: String,
}

/// The reply to `stentor quarantine show`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QuarantinedMessage {
    #[serde(flatten)]
    pub message: QuarantinedView,
    pub now: Ms,
    /// Header fields, decoded.
    pub fields: Vec<(String, String)>,
    /// The text of its parts, without markup.
    pub text: String,
    /// Its attachments.
    pub attachments: Vec<AttachmentView>,
    /// Why the text is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// A part that is a file, or is shown as one.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AttachmentView {
    /// File name.
    pub name: String,
    /// Media type.
    pub content_type: String,
    pub size: u64,
}
