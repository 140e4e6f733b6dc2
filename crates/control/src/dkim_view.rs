//! DKIM keys that the server makes: the DNS records that they need, and requests to replace them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::Ms;

use crate::selection;

/// A request about keys that the server makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DkimRequest {
    /// The DNS records of all domains, or of one.
    Records { domain: Option<String> },
    /// Makes a new key pair for a domain.
    Rotate(DkimRotateOptions),
}

/// Options of `dkim_rotate`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct DkimRotateOptions {
    pub domain: String,
    /// The key in use is compromised: the new one is used as soon as its records are seen, and the old records may be
    /// removed at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// Recorded in the audit record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordsArguments {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
}

impl DkimRequest {
    pub fn verb(&self) -> &'static str {
        match self {
            DkimRequest::Records { .. } => "dkim_records",
            DkimRequest::Rotate(_) => "dkim_rotate",
        }
    }

    /// Parses the fields of a verb. `None`: another verb.
    pub fn of_json(verb: &str, fields: Value) -> Option<Result<DkimRequest, String>> {
        match verb {
            "dkim_records" => {
                let arguments = serde_json::from_value(fields).map_err(|error| error.to_string());
                Some(arguments.map(|RecordsArguments { domain }| DkimRequest::Records { domain }))
            }
            "dkim_rotate" => {
                let options = serde_json::from_value(fields).map_err(|error| error.to_string());
                let checked = options.and_then(|options: DkimRotateOptions| {
                    selection::check_reason(options.reason.as_deref())?;
                    Ok(DkimRequest::Rotate(options))
                });
                Some(checked)
            }
            _ => None,
        }
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let value = match self {
            DkimRequest::Records { domain } => serde_json::to_value(RecordsArguments { domain: domain.clone() }),
            DkimRequest::Rotate(options) => serde_json::to_value(options),
        };
        // Plain structs with string keys: serialising them cannot fail.
        if let Ok(Value::Object(fields)) = value { fields } else { Map::new() }
    }
}

/// The records of keys that the server makes.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct DkimRecords {
    pub now: Ms,
    pub rows: Vec<DkimRecordView>,
}

/// The record of one key.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct DkimRecordView {
    pub domain: String,
    pub selector: String,
    /// The name in DNS, without the final dot.
    pub name: String,
    /// The text of the TXT record.
    pub text: String,
    /// What to do with it: `publish`, `keep`, or `remove`, if it may be removed.
    pub action: String,
    /// State of its key: `created`, `published`, `in_use`, `retired`, `removable`; `configured` for keys in files that
    /// the configuration names.
    pub state: String,
    /// When the state began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    /// What the name servers had when they were last asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub seen: String,
}
