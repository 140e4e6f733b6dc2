//! Refusals of requests.

use serde::{Deserialize, Serialize};

/// The class of a refusal; snake case in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    BadRequest,
    BadVersion,
    UnknownVerb,
    /// Reserved for verbs that are planned.
    NotInThisVersion,
    /// No such message, site or list.
    NotFound,
    /// The configuration has errors: the old one stays in force.
    BadConfiguration,
    /// The configuration is in force, except for changed keys that need a restart.
    NeedsRestart,
    TooLarge,
    /// Too many connections.
    Busy,
    Forbidden,
    /// The attempt failed.
    Failed,
    /// A code from a newer server.
    #[serde(other)]
    Other,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Problem {
    pub code: ErrorCode,
    pub text: String,
}

impl Problem {
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Problem {
        Problem { code, text: text.into() }
    }
}
