//! DANE for SMTP (RFC 7672): from the security status of DNS answers to what holds for one host.
//!
//! Promise: the decisions are Postfix's (`dane` and `dane-only`, with its defaults); `tests/dane.toml` has them case by case, and
//! the benchmark `tls.dane` runs the same cases against Postfix. No answer that is not secure is ever a reason to trust; a failed
//! look-up is never taken for "no records" (RFC 7672 2.1.1): that is what an attacker would make of it.
//!
//! What is asked depends on what was answered, so [`decide`] is called again with each answer until it is [`Step::Done`]:
//!
//! | the host's addresses | the host is an alias (CNAME) | TLSA base domain (RFC 7672 2.2.2, 2.2.3) |
//! |---|---|---|
//! | secure | no | its name |
//! | secure | yes | where the chain ends; if nothing is there, the name itself |
//! | insecure | no | none: DANE does not apply |
//! | insecure | yes | the name itself, if its CNAME record is secure |
//!
//! | TLSA answer | `dane` | `dane-only` |
//! |---|---|---|
//! | secure, with usable records | the host must match | the same |
//! | secure, all records unusable | encryption is mandatory, nothing is proven | the host is not used |
//! | insecure, or there is none | DANE does not apply | the host is not used |
//! | failed (SERVFAIL, bogus, time-out) | the host is not used now | the same |
//!
//! An insecure MX answer (RFC 7672 2.2.1): `dane` still holds a host to its secure records, and the result does not count as
//! proven, since the name of the host is not; for `dane-only` no host can be used.

mod tlsa;

pub use tlsa::{Matching, RECORD_BYTES_MAX, RECORDS_MAX, Selector, Tlsa, Unusable, Usage, usable};

/// What is known of the truth of a DNS answer. Only a validating resolver that is trusted says `Secure`; an answer that fails
/// validation (bogus) does not arrive at all, it is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Security {
    #[default]
    Insecure,
    Secure,
}

impl Security {
    pub fn is_secure(self) -> bool {
        self == Security::Secure
    }
}

/// The MX answer of a domain. For a domain without MX records and for a route there is none: the name of the host is then the
/// operator's or the domain itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MxFacts {
    pub security: Security,
    /// The name that was asked for.
    pub domain: String,
    /// Where its CNAMEs lead; `domain` without any.
    pub canonical: String,
}

/// A host and its address answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    pub name: String,
    /// Where its CNAMEs lead; `name` without any.
    pub canonical: String,
    /// Of the addresses, the CNAMEs to them included: secure only if all are.
    pub security: Security,
    pub port: u16,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    Found(Security, T),
    /// There is no such name or record.
    Absent,
    /// SERVFAIL (which is what a validating resolver says of bogus data), time-out, nonsense.
    Failed(String),
}

/// What has been asked and answered so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// The CNAME record of the host's name itself.
    pub alias: Option<Answer<()>>,
    /// The data of the TLSA records where the host's CNAMEs end (without any, at its name).
    pub canonical: Option<Answer<Vec<Vec<u8>>>>,
    /// Those at the name of an alias.
    pub name: Option<Answer<Vec<Vec<u8>>>>,
}

/// What is to be asked next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The CNAME record of this name; the answer is [`Answers::alias`].
    AskAlias(String),
    /// The TLSA records of this owner (`_25._tcp.` and the host); [`Answers::canonical`].
    AskCanonical(String),
    /// The same for [`Answers::name`].
    AskName(String),
    Done(Decision),
}

/// What DANE makes of a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Nothing is published (securely): what else holds for the mail decides.
    NotApplicable(NotApplicable),
    /// Records are there, none of them usable: never in clear, and nothing is proven.
    Encrypt { base_domain: String, unusable: usize },
    /// The host must match.
    Match(Proof),
    /// The host is not used now; the mail waits if there is no other (4.7.5).
    Refuse(Refusal),
}

/// Why DANE does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotApplicable {
    #[error("no answer is secure, since not every name server in [dns] is on loopback")]
    NoDnssec,
    #[error("the MX records are not secured by DNSSEC")]
    InsecureMx,
    #[error("the addresses of the host are not secured by DNSSEC")]
    InsecureHost,
    #[error("there are no TLSA records, or none secured by DNSSEC")]
    NoRecords,
}

/// Why a host is not used.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("`dane-only`: {0}")]
    NotApplicable(NotApplicable),
    #[error("`dane-only`: none of the {unusable} TLSA records of {base_domain} is usable")]
    Unusable { base_domain: String, unusable: usize },
    #[error("TLSA lookup error for {host}:{port}: {why}")]
    LookUp { host: String, port: u16, why: String },
}

/// With what a host's certificates are compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proof {
    /// Those that count, never empty.
    pub records: Vec<Tlsa>,
    /// The name to ask for in the handshake (SNI, RFC 7672 8.1).
    pub base_domain: String,
    /// Names of which a certificate below a trust anchor must have one (RFC 7672 3.2.2), `base_domain` first.
    pub names: Vec<String>,
    /// Whether the MX answer was secure: only then the host is proven to be the domain's.
    pub mx: Security,
    /// Records of the set that cannot be used.
    pub unusable: usize,
}

/// What holds for `host`, or what to ask to find out. `only`: `dane-only`.
pub fn decide(only: bool, mx: Option<&MxFacts>, host: &HostFacts, answers: &Answers) -> Step {
    let not_applicable = |why| {
        Step::Done(if only { Decision::Refuse(Refusal::NotApplicable(why)) } else { Decision::NotApplicable(why) })
    };
    let failed = |why: &String| {
        let (host, port) = (host.name.clone(), host.port);
        Step::Done(Decision::Refuse(Refusal::LookUp { host, port, why: why.clone() }))
    };
    if only && mx.is_some_and(|mx| !mx.security.is_secure()) {
        return not_applicable(NotApplicable::InsecureMx);
    }
    let is_alias = host.canonical != host.name;
    if host.security.is_secure() {
        match &answers.canonical {
            None => return Step::AskCanonical(owner(host.port, &host.canonical)),
            Some(Answer::Failed(why)) => return failed(why),
            Some(Answer::Found(Security::Secure, rdata)) if !rdata.is_empty() => {
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
            Some(Answer::Found(Security::Secure, ())) => {}
            Some(Answer::Found(Security::Insecure, ())) => return not_applicable(NotApplicable::InsecureHost),
            // It was one a moment ago, as Postfix sees it.
            Some(Answer::Absent) => return failed(&"the host is no longer an alias".to_owned()),
            Some(Answer::Failed(why)) => return failed(why),
        }
    }
    match &answers.name {
        None => Step::AskName(owner(host.port, &host.name)),
        Some(Answer::Failed(why)) => failed(why),
        Some(Answer::Found(Security::Secure, rdata)) if !rdata.is_empty() => {
            Step::Done(of_records(only, mx, &host.name, rdata))
        }
        Some(_) => not_applicable(NotApplicable::NoRecords),
    }
}

/// Where the records of a host are.
pub fn owner(port: u16, base_domain: &str) -> String {
    format!("_{port}._tcp.{base_domain}")
}

fn of_records(only: bool, mx: Option<&MxFacts>, base_domain: &str, rdata: &[Vec<u8>]) -> Decision {
    let (records, unusable) = usable(rdata.iter().map(Vec::as_slice));
    let base_domain = base_domain.to_owned();
    if records.is_empty() {
        return if only {
            Decision::Refuse(Refusal::Unusable { base_domain, unusable })
        } else {
            Decision::Encrypt { base_domain, unusable }
        };
    }
    let mut names = vec![base_domain.clone()];
    for name in mx.iter().flat_map(|mx| [&mx.canonical, &mx.domain]) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mx = mx.map_or(Security::Secure, |mx| mx.security);
    Decision::Match(Proof { records, base_domain, names, mx, unusable })
}
