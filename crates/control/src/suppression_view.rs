//! Suppressions: requests that add, remove and list them, and the rows of a list.
//!
//! Subjects, scopes, reasons and texts are checked by the server, which knows their forms.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::Ms;

/// Entries of one request at most.
pub const ENTRIES_MAX: usize = 1_000;
/// Default and maximum rows of one answer.
pub const ROWS_DEFAULT: u32 = 50;
pub const ROWS_MAX: u32 = 1_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuppressionRequest {
    /// Adds entries, all of them or none.
    Add(NewSuppressions),
    Remove(SuppressionRemoval),
    List(SuppressionOptions),
}

/// Entries to add.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct NewSuppressions {
    /// The entries, at most 1000.
    pub entries: Vec<NewSuppression>,
    /// The file or program that they come from; replaces the requester as source of entries without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Refuse all entries if a list of a scope is not configured (default: add them, with a remark).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known_lists_only: bool,
}

/// An entry to add.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct NewSuppression {
    /// An address, or `@domain`.
    pub subject: String,
    /// `everything`, `list:NAME`, `sender:ADDRESS` or `sender:DOMAIN` (default `everything`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// `unsubscribe`, `complaint`, `bounce` or `operator` (default `operator`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who or what entered it (default: the requester).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was entered (default: now).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    /// When it ends (default: never).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Ms>,
}

/// Entries to remove.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct SuppressionRemoval {
    /// The entries, at most 1000.
    pub entries: Vec<SuppressionName>,
    /// Recorded in the journal's audit record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Subject and scope of an entry.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct SuppressionName {
    /// An address, or `@domain`.
    pub subject: String,
    /// `everything`, `list:NAME`, `sender:ADDRESS` or `sender:DOMAIN`.
    pub scope: String,
}

/// The entries to list.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct SuppressionOptions {
    /// Entries of this address and its domain, or of this `@domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Entries of this scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Entries with this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Continue after this entry: `next` of the previous answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<SuppressionName>,
    /// Maximum number of entries returned.
    pub rows_max: u32,
}

impl Default for SuppressionOptions {
    fn default() -> SuppressionOptions {
        SuppressionOptions { subject: None, scope: None, reason: None, after: None, rows_max: ROWS_DEFAULT }
    }
}

impl SuppressionOptions {
    /// Whether it selects entries.
    pub fn is_narrow(&self) -> bool {
        self.subject.is_some() || self.scope.is_some() || self.reason.is_some()
    }
}

/// The reply to `stentor suppress list`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SuppressionList {
    pub now: Ms,
    /// Number of all entries, expired ones included until they are deleted.
    pub entries: u64,
    /// Doubts about the request, such as a list that is not configured.
    pub remarks: Vec<String>,
    /// Rows in the order of subject and scope.
    pub rows: Vec<SuppressionView>,
    /// The value of `after` for the next rows, if there may be more.
    pub next: Option<SuppressionName>,
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SuppressionView {
    /// An address, or `@domain`.
    pub subject: String,
    /// `everything`, `list:NAME`, `sender:ADDRESS` or `sender:DOMAIN`.
    pub scope: String,
    /// `unsubscribe`, `complaint`, `bounce` or `operator`.
    pub reason: String,
    /// Who or what entered it.
    pub source: String,
    /// Free text.
    pub note: String,
    /// When it was entered.
    pub since: Ms,
    /// When it ends; `None`: never.
    pub expires: Option<Ms>,
}

impl SuppressionRequest {
    /// Parses a verb's fields. `None`: another verb.
    ///
    /// # Errors
    /// The error in the fields.
    pub fn of_json(verb: &str, fields: Value) -> Option<Result<SuppressionRequest, String>> {
        let wrong = |error: serde_json::Error| error.to_string();
        let parsed = match verb {
            "suppress" => serde_json::from_value(fields).map_err(wrong).map(SuppressionRequest::Add),
            "unsuppress" => serde_json::from_value(fields).map_err(wrong).map(SuppressionRequest::Remove),
            "suppressions" => serde_json::from_value(fields).map_err(wrong).map(SuppressionRequest::List),
            _ => return None,
        };
        Some(parsed.and_then(SuppressionRequest::checked))
    }

    fn checked(self) -> Result<SuppressionRequest, String> {
        let entries = match &self {
            SuppressionRequest::Add(new) => new.entries.len(),
            SuppressionRequest::Remove(ended) => ended.entries.len(),
            SuppressionRequest::List(options) if !(1..=ROWS_MAX).contains(&options.rows_max) => {
                return Err(format!("rows_max must be from 1 to {ROWS_MAX}"));
            }
            SuppressionRequest::List(_) => return Ok(self),
        };
        if (1..=ENTRIES_MAX).contains(&entries) {
            Ok(self)
        } else {
            Err(format!("entries must have from 1 to {ENTRIES_MAX} entries"))
        }
    }

    pub fn verb(&self) -> &'static str {
        match self {
            SuppressionRequest::Add(_) => "suppress",
            SuppressionRequest::Remove(_) => "unsuppress",
            SuppressionRequest::List(_) => "suppressions",
        }
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let fields = match self {
            SuppressionRequest::Add(new) => serde_json::to_value(new),
            SuppressionRequest::Remove(ended) => serde_json::to_value(ended),
            SuppressionRequest::List(options) => serde_json::to_value(options),
        };
        // Plain structs with string keys: serialising them cannot fail.
        match fields {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

impl SuppressionName {
    pub fn of(subject: impl Into<String>, scope: impl Into<String>) -> SuppressionName {
        SuppressionName { subject: subject.into(), scope: scope.into() }
    }
}
