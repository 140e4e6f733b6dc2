//! Why a posture holds, in words for operators.

use std::fmt;

use crate::requirement::{Posture, Requirement};

/// Where a requirement was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// `[delivery] tls`: no rule is for this mail.
    Default,
    /// `[[tls_policy]]` with this key and value.
    Domain(String),
    Site(String),
    List(String),
    Sender(String),
    /// A message that came with REQUIRETLS (RFC 8689).
    RequireTls,
    /// A message with `TLS-Required: No` (RFC 8689).
    TlsRequiredNo,
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Default => out.write_str("[delivery] tls"),
            Rule::Domain(value) => write!(out, "[[tls_policy]] domain = \"{value}\""),
            Rule::Site(value) => write!(out, "[[tls_policy]] site = \"{value}\""),
            Rule::List(value) => write!(out, "[[tls_policy]] list = \"{value}\""),
            Rule::Sender(value) => write!(out, "[[tls_policy]] sender = \"{value}\""),
            Rule::RequireTls => out.write_str("REQUIRETLS of the sender"),
            Rule::TlsRequiredNo => out.write_str("TLS-Required: No of the sender"),
        }
    }
}

/// One rule and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub rule: Rule,
    pub requirement: Requirement,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} by {}", self.requirement, self.rule)
    }
}

/// A posture and the rules that it comes from, the one that says how hosts are proven first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub posture: Posture,
    /// Never empty.
    pub reasons: Vec<Reason>,
}

impl Held {
    /// Both hold; the reasons of the stronger requirement come first.
    #[must_use]
    pub fn join(self, other: Held) -> Held {
        let is_stronger = other.posture.requirement.strength() > self.posture.requirement.strength();
        let posture = self.posture.join(other.posture);
        let (mut reasons, more) =
            if is_stronger { (other.reasons, self.reasons) } else { (self.reasons, other.reasons) };
        reasons.extend(more);
        Held { posture, reasons }
    }
}

impl From<Reason> for Held {
    fn from(reason: Reason) -> Held {
        Held { posture: reason.requirement.clone().into(), reasons: vec![reason] }
    }
}

/// `dane, never in clear: dane by [delivery] tls; encrypt by [[tls_policy]] list = "press"`.
impl fmt::Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One rule that holds as it is needs no sum.
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
