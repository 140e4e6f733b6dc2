//! Failures of TLS, as classified in RFC 8460 4.3.

use serde::{Deserialize, Serialize};

/// Result types (RFC 8460 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultType {
    // 4.3.1, negotiation
    StarttlsNotSupported,
    CertificateHostMismatch,
    CertificateExpired,
    CertificateNotTrusted,
    /// Any other failure, stated in `failure-reason-code`.
    ValidationFailure,
    // 4.3.2.1, DANE
    TlsaInvalid,
    DnssecInvalid,
    DaneRequired,
    // 4.3.2.2, MTA-STS
    StsPolicyFetchError,
    StsPolicyInvalid,
    StsWebpkiInvalid,
}

impl ResultType {
    pub const ALL: [ResultType; 11] = [
        ResultType::StarttlsNotSupported,
        ResultType::CertificateHostMismatch,
        ResultType::CertificateExpired,
        ResultType::CertificateNotTrusted,
        ResultType::ValidationFailure,
        ResultType::TlsaInvalid,
        ResultType::DnssecInvalid,
        ResultType::DaneRequired,
        ResultType::StsPolicyFetchError,
        ResultType::StsPolicyInvalid,
        ResultType::StsWebpkiInvalid,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            ResultType::StarttlsNotSupported => "starttls-not-supported",
            ResultType::CertificateHostMismatch => "certificate-host-mismatch",
            ResultType::CertificateExpired => "certificate-expired",
            ResultType::CertificateNotTrusted => "certificate-not-trusted",
            ResultType::ValidationFailure => "validation-failure",
            ResultType::TlsaInvalid => "tlsa-invalid",
            ResultType::DnssecInvalid => "dnssec-invalid",
            ResultType::DaneRequired => "dane-required",
            ResultType::StsPolicyFetchError => "sts-policy-fetch-error",
            ResultType::StsPolicyInvalid => "sts-policy-invalid",
            ResultType::StsWebpkiInvalid => "sts-webpki-invalid",
        }
    }
}

/// Kinds of policies (RFC 8460 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyType {
    Tlsa,
    Sts,
    NoPolicyFound,
}

/// A policy that was applied to a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AppliedPolicy {
    pub kind: PolicyType,
    /// Its lines: the records of a TLSA set, or those of an MTA-STS policy. Empty without a policy.
    pub lines: Vec<String>,
    /// For an MTA-STS policy, its `mx` patterns; for TLSA, the host.
    pub mx: Vec<String>,
}

/// A session without the protection that a policy requires, or a failed attempt to find the policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FailureDetails {
    pub result: ResultType,
    /// Our address; empty: unknown.
    pub sending_ip: String,
    pub receiving_host: String,
    pub receiving_ip: String,
    /// Name of the host in its greeting.
    pub receiving_helo: String,
    /// Details for people: a TLS error, `mx-not-in-policy`.
    pub reason: String,
}
