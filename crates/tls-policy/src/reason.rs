//! Why a posture applies, in words for operators.

use std::fmt;

use crate::requirement::{Posture, Requirement};

/// Source of a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequirementSource {
    /// `[delivery] tls`: no rule matches this mail.
    Default,
    /// A `[[tls_policy]]` with this key and value.
    Domain(String),
    Site(String),
    List(String),
    Sender(String),
    /// A message that came with REQUIRETLS (RFC 8689).
    RequireTls,
    /// A message with `TLS-Required: No` (RFC 8689).
    TlsRequiredNo,
}

impl fmt::Display for RequirementSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequirementSource::Default => out.write_str("[delivery] tls"),
            RequirementSource::Domain(value) => write!(out, "[[tls_policy]] domain = \"{value}\""),
            RequirementSource::Site(value) => write!(out, "[[tls_policy]] site = \"{value}\""),
            RequirementSource::List(value) => write!(out, "[[tls_policy]] list = \"{value}\""),
            RequirementSource::Sender(value) => write!(out, "[[tls_policy]] sender = \"{value}\""),
            RequirementSource::RequireTls => out.write_str("REQUIRETLS of the sender"),
            RequirementSource::TlsRequiredNo => out.write_str("TLS-Required: No of the sender"),
        }
    }
}

/// One rule and its requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedRule {
    pub source: RequirementSource,
    pub requirement: Requirement,
}

impl fmt::Display for AppliedRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} by {}", self.requirement, self.source)
    }
}

/// A posture and the rules that caused it; the rule that determines the proof of hosts comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasonedPosture {
    pub posture: Posture,
    /// The rules; never empty.
    pub reasons: Vec<AppliedRule>,
}

impl ReasonedPosture {
    /// Combines both; the reasons of the stronger requirement come first.
    #[must_use]
    pub fn join(self, other: ReasonedPosture) -> ReasonedPosture {
        let is_stronger = other.posture.requirement.strength() > self.posture.requirement.strength();
        let posture = self.posture.join(other.posture);
        let (mut reasons, more) =
            if is_stronger { (other.reasons, self.reasons) } else { (self.reasons, other.reasons) };
        reasons.extend(more);
        ReasonedPosture { posture, reasons }
    }
}

impl From<AppliedRule> for ReasonedPosture {
    fn from(reason: AppliedRule) -> ReasonedPosture {
        ReasonedPosture { posture: reason.requirement.clone().into(), reasons: vec![reason] }
    }
}

/// Formats as `dane, never in clear: dane by [delivery] tls; encrypt by [[tls_policy]] list = "press"`.
impl fmt::Display for ReasonedPosture {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A single rule that applies unchanged needs no summary.
        if let [reason] = self.reasons.as_slice()
            && self.posture.to_string() == reason.requirement.to_string()
        {
            return write!(out, "{reason}");
        }
        write!(out, "{}:", self.posture)?;
        for (i, reason) in self.reasons.iter().enumerate() {
            write!(out, "{} {reason}", if i == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}
