//! DANE for SMTP (RFC 7672): derives the requirements for one host from DNS answers and their security status.
//!
//! Promise: the decisions are Postfix's (`dane` and `dane-only`, with its defaults); `tests/dane.toml` has them case
//! by case, and the benchmark `tls.dane` runs the same cases against Postfix. An insecure answer never establishes
//! trust; a failed lookup is never taken for "no records" (RFC 7672 2.1.1), because an attacker can cause failures.
//!
//! Each query depends on earlier answers, so [`decide`] is called again with each answer until it returns
//! [`Step::Done`]:
//!
//! | the host's addresses | the host is an alias (CNAME) | TLSA base domain (RFC 7672 2.2.2, 2.2.3) |
//! |---|---|---|
//! | secure | no | its name |
//! | secure | yes | the end of the chain; if it has no records, the name itself |
//! | insecure | no | none: DANE does not apply |
//! | insecure | yes | the name itself, if its CNAME record is secure |
//!
//! | TLSA answer | `dane` | `dane-only` |
//! |---|---|---|
//! | secure, with usable records | the host must match | as `dane` |
//! | secure, all records unusable | encryption is mandatory, without proof | the host is not used |
//! | insecure, or no records | DANE does not apply | the host is not used |
//! | failed (SERVFAIL, bogus, timeout) | the host is not used now | as `dane` |
//!
//! After an insecure MX answer (RFC 7672 2.2.1), `dane` still requires a host to match its secure records, but the
//! result does not count as proven, since the host's name is not; `dane-only` cannot use any host.

mod tlsa;

pub use tlsa::{CertificateUsage, Matching, RECORD_BYTES_MAX, RECORDS_MAX, Selector, Tlsa, Unusable, usable};

/// Security status of a DNS answer. Only a trusted validating resolver reports `Secure`; an answer that fails
/// validation (bogus) is never returned, but is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SecurityStatus {
    #[default]
    Insecure,
    Secure,
}

impl SecurityStatus {
    pub fn is_secure(self) -> bool {
        self == SecurityStatus::Secure
    }
}

/// The MX answer of a domain. There is none for a domain without MX records and for a route: the host's name then
/// comes from the domain or the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MxFacts {
    pub security: SecurityStatus,
    /// The queried name.
    pub domain: String,
    /// The end of its CNAMEs; `domain` without any.
    pub canonical: String,
}

/// A host and its address answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    pub name: String,
    /// The end of its CNAMEs; `name` without any.
    pub canonical: String,
    /// Status of the addresses, including CNAMEs that lead to them: secure only if all are.
    pub security: SecurityStatus,
    pub port: u16,
}

/// The answer to one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    Found(SecurityStatus, T),
    /// The name or record does not exist.
    Absent,
    /// SERVFAIL (the reply of a validating resolver to bogus data), timeout, or a malformed reply.
    Failed(String),
}

/// Answers so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// The CNAME record of the host's name.
    pub alias: Option<Answer<()>>,
    /// Data of the TLSA records at the end of the host's CNAMEs (without any, at its name).
    pub canonical: Option<Answer<Vec<Vec<u8>>>>,
    /// Data of the TLSA records at the name of an alias.
    pub name: Option<Answer<Vec<Vec<u8>>>>,
}

/// The next query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The CNAME record of this name; stored in [`Answers::alias`].
    AskAlias(String),
    /// The TLSA records of this owner (`_25._tcp.` and the host); stored in [`Answers::canonical`].
    AskCanonical(String),
    /// The TLSA records of this owner; stored in [`Answers::name`].
    AskName(String),
    Done(DaneDecision),
}

/// Result of DANE for a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DaneDecision {
    /// Nothing is (securely) published, so other policies decide.
    NotApplicable(NotApplicable),
    /// There are records, but none is usable: never in clear, without proof.
    Encrypt { base_domain: String, unusable: usize },
    /// The host must match these records.
    Match(DaneProof),
    /// The host is not used now; the mail waits if there is no other (4.7.5).
    Refuse(DaneRefusal),
}

/// Why DANE does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotApplicable {
    #[error("no answer is secure, because not every name server in [dns] is on loopback")]
    NoDnssec,
    #[error("the MX records are not secured by DNSSEC")]
    InsecureMx,
    #[error("the addresses of the host are not secured by DNSSEC")]
    InsecureHost,
    #[error("no TLSA records secured by DNSSEC")]
    NoRecords,
}

/// Why a host is not used.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DaneRefusal {
    #[error("`dane-only`: {0}")]
    NotApplicable(NotApplicable),
    #[error("`dane-only`: none of the {unusable} TLSA records of {base_domain} is usable")]
    Unusable { base_domain: String, unusable: usize },
    #[error("TLSA lookup error for {host}:{port}: {why}")]
    LookUp { host: String, port: u16, why: String },
}

/// Data that a host's certificates are compared with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DaneProof {
    /// Effective records, never empty.
    pub records: Vec<Tlsa>,
    /// Name for the handshake (SNI, RFC 7672 8.1).
    pub base_domain: String,
    /// Names of which a certificate below a trust anchor must have one (RFC 7672 3.2.2), `base_domain` first.
    pub names: Vec<String>,
    /// Status of the MX answer: only a secure one proves that the host is the domain's.
    pub mx: SecurityStatus,
    /// Number of unusable records in the set.
    pub unusable: usize,
}

/// Decides about `host`, or returns the next query. `only`: `dane-only`.
pub fn decide(only: bool, mx: Option<&MxFacts>, host: &HostFacts, answers: &Answers) -> Step {
    let not_applicable = |why| {
        Step::Done(if only {
            DaneDecision::Refuse(DaneRefusal::NotApplicable(why))
        } else {
            DaneDecision::NotApplicable(why)
        })
    };
    let failed = |why: &String| {
        let (host, port) = (host.name.clone(), host.port);
        Step::Done(DaneDecision::Refuse(DaneRefusal::LookUp { host, port, why: why.clone() }))
    };
    if only && mx.is_some_and(|mx| !mx.security.is_secure()) {
        return not_applicable(NotApplicable::InsecureMx);
    }
    let is_alias = host.canonical != host.name;
    if host.security.is_secure() {
        match &answers.canonical {
            None => return Step::AskCanonical(owner(host.port, &host.canonical)),
            Some(Answer::Failed(why)) => return failed(why),
            Some(Answer::Found(SecurityStatus::Secure, rdata)) if !rdata.is_empty() => {
                return Step::Done(of_records(only, mx, &host.canonical, rdata));
            }
            Some(_) if !is_alias => return not_applicable(NotApplicable::NoRecords),
            Some(_) => {}
        }
    } else {
        if !is_alias {
            return not_applicable(NotApplicable::InsecureHost);
        }
        match &answers.alias {
            None => return Step::AskAlias(host.name.clone()),
            Some(Answer::Found(SecurityStatus::Secure, ())) => {}
            Some(Answer::Found(SecurityStatus::Insecure, ())) => return not_applicable(NotApplicable::InsecureHost),
            // It was an alias a moment ago; Postfix treats this as a failure, too.
            Some(Answer::Absent) => return failed(&"the host is no longer an alias".to_owned()),
            Some(Answer::Failed(why)) => return failed(why),
        }
    }
    match &answers.name {
        None => Step::AskName(owner(host.port, &host.name)),
        Some(Answer::Failed(why)) => failed(why),
        Some(Answer::Found(SecurityStatus::Secure, rdata)) if !rdata.is_empty() => {
            Step::Done(of_records(only, mx, &host.name, rdata))
        }
        Some(_) => not_applicable(NotApplicable::NoRecords),
    }
}

/// The owner name of a host's records.
pub fn owner(port: u16, base_domain: &str) -> String {
    format!("_{port}._tcp.{base_domain}")
}

fn of_records(only: bool, mx: Option<&MxFacts>, base_domain: &str, rdata: &[Vec<u8>]) -> DaneDecision {
    let (records, unusable) = usable(rdata.iter().map(Vec::as_slice));
    let base_domain = base_domain.to_owned();
    if records.is_empty() {
        return if only {
            DaneDecision::Refuse(DaneRefusal::Unusable { base_domain, unusable })
        } else {
            DaneDecision::Encrypt { base_domain, unusable }
        };
    }
    let mut names = vec![base_domain.clone()];
    for name in mx.iter().flat_map(|mx| [&mx.canonical, &mx.domain]) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mx = mx.map_or(SecurityStatus::Secure, |mx| mx.security);
    DaneDecision::Match(DaneProof { records, base_domain, names, mx, unusable })
}
