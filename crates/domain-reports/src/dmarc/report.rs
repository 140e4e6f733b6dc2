//! Contents of an aggregate report (RFC 9990 section 2.1).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::fnv1a;

/// What was done with a message because of DMARC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportDisposition {
    /// Nothing.
    None,
    /// Nothing, since it passed; the policy asks for more.
    Pass,
    Quarantine,
    Reject,
}

impl ReportDisposition {
    pub const ALL: [ReportDisposition; 4] =
        [ReportDisposition::None, ReportDisposition::Pass, ReportDisposition::Quarantine, ReportDisposition::Reject];

    pub fn word(self) -> &'static str {
        match self {
            ReportDisposition::None => "none",
            ReportDisposition::Pass => "pass",
            ReportDisposition::Quarantine => "quarantine",
            ReportDisposition::Reject => "reject",
        }
    }
}

/// The policy record of the domain that a report is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPolicy {
    pub domain: String,
    /// Words: `none`, `quarantine`, `reject`.
    pub policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdomains: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_subdomains: Option<String>,
    #[serde(default)]
    pub is_dkim_strict: bool,
    #[serde(default)]
    pub is_spf_strict: bool,
    /// `t=y`.
    #[serde(default)]
    pub is_test: bool,
}

/// Why the policy was not applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OverrideReason {
    /// A word of RFC 9990 section 2.1.6, or another.
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// Result of one DKIM signature.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DkimEntry {
    pub domain: String,
    pub selector: String,
    pub result: String,
}

/// Result of SPF for the envelope's sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpfEntry {
    pub domain: String,
    pub result: String,
}

/// What messages of one row have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReportRow {
    pub source: IpAddr,
    pub disposition: ReportDisposition,
    pub is_dkim_aligned: bool,
    pub is_spf_aligned: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<OverrideReason>,
    pub header_from: String,
    /// Domain of the envelope's sender; empty: the null sender. `None`: not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope_from: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dkim: Vec<DkimEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spf: Option<SpfEntry>,
}

impl ReportRow {
    pub fn is_pass(&self) -> bool {
        self.is_dkim_aligned || self.is_spf_aligned
    }
}

/// A row and its number of messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowCount {
    pub messages: u64,
    pub row: ReportRow,
}

/// A report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AggregateReport {
    pub organization: String,
    pub email: String,
    pub id: String,
    /// Seconds since 1970.
    pub begin_s: u64,
    pub end_s: u64,
    pub errors: Vec<String>,
    pub policy: PublishedPolicy,
    pub rows: Vec<RowCount>,
}

/// Whether a text of a report may have the character: XML forbids some, and terminals obey others.
pub(super) fn is_text(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

impl AggregateReport {
    /// Identifies the report of a reporter: one that is sent again has the same. It begins with the reporter's hash.
    pub fn key(&self, reporter: &str) -> String {
        let report = fnv1a(&[&self.organization, &self.email, &self.policy.domain, &self.id]);
        format!("{:016x}-{report:016x}", fnv1a(&[reporter]))
    }
}
