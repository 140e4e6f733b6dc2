//! Problems that a running server finds with itself: the reply to `doctor`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;
use stentor_records::health;

/// [`Finding::id`] of the warning about a disk that confirms writes at once. `stentor doctor` drops it for a file
/// system in memory, which it reports itself.
pub const FAST_SYNCS: &str = "fast_syncs";

/// The reply to `stentor doctor` by a running server.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Doctor {
    pub hostname: String,
    pub now: Ms,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something must be done, or mail is refused or lost.
    Problem,
    #[default]
    Warning,
    /// Nothing needs to be done.
    Fine,
}

impl Severity {
    pub fn words(self) -> &'static str {
        match self {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
            Severity::Fine => "ok",
        }
    }
}

impl From<health::Severity> for Severity {
    fn from(severity: health::Severity) -> Severity {
        match severity {
            health::Severity::Problem => Severity::Problem,
            health::Severity::Warning => Severity::Warning,
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Finding {
    pub severity: Severity,
    /// The name of the server's health condition (docs/operate/health.md); empty if it is not one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The affected object, as in the condition; empty if there is only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Identifies a finding that is not a condition; empty for most.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub what: String,
    /// Advice; empty if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Finding {
    pub fn new(severity: Severity, what: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { severity, what: what.into(), next: next.into(), ..Finding::default() }
    }

    /// Formats one or two lines, without the last line's end.
    pub fn text(&self) -> String {
        let severity = self.severity.words();
        if self.next.is_empty() {
            return format!("{severity}: {}", self.what);
        }
        format!("{severity}: {}\n    next: {}", self.what, self.next)
    }
}
