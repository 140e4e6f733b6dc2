//! Combines a posture with the published policies: how the client uses one host.
//!
//! The order is that of RFC 8461 2: if DANE applies to a host, it alone decides; MTA-STS cannot replace failed DANE
//! or a failed TLSA lookup. Otherwise an enforced policy decides.

use std::sync::Arc;

use crate::dane::{DaneDecision, DaneProof, DaneRefusal, SecurityStatus};
use crate::fingerprint::Fingerprint;
use crate::names::{HostPattern, Peer};
use crate::requirement::{Floor, Posture, Requirement, Strength};
use crate::sts::{FetchFailureKind, StsMode, StsPolicy};
use crate::tlsrpt::{AppliedPolicy, PolicyType, ResultType};

/// Facts about a host that is to be connected to.
#[derive(Debug, Clone, Copy)]
pub struct HostQuestion<'a> {
    pub posture: &'a Posture,
    pub peer: Peer<'a>,
    /// Looked up if [`Strength::asks_dane`].
    pub dane: Option<&'a DaneDecision>,
    /// Policy of the recipient's domain, if [`Strength::asks_sts`] and there is one that has not expired.
    pub sts: Option<&'a StsPolicy>,
}

/// How a host is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostUse {
    pub level: Level,
    /// Published policy that was applied, under which TLSRPT counts the session.
    pub applied: PolicySource,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Level {
    /// No STARTTLS.
    Clear,
    /// TLS if it works, otherwise in clear. The `wanted` proof is only checked and reported.
    Opportunistic { wanted: Option<Proof> },
    /// TLS with any host. The `wanted` proof is only checked and reported.
    Encrypted { wanted: Option<Proof> },
    /// TLS with this proof.
    Proven(Proof),
    /// The host is not used now.
    Refused(HostRefusal),
}

/// Proof of a host's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Proof {
    Dane(DaneProof),
    /// A CA-signed certificate for a name that matches one of these.
    Names(Vec<HostPattern>),
    Fingerprints(Arc<[Fingerprint]>),
}

/// Published policy that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicySource {
    /// None was looked up: only the operator's requirement applies.
    Own,
    NotFound,
    Sts {
        is_testing: bool,
        is_listed: bool,
    },
    Tlsa,
}

/// Why a host is not used now; a temporary failure, 4.7.5, unless the message itself requires TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HostRefusal {
    #[error(transparent)]
    Dane(#[from] DaneRefusal),
    #[error("the MTA-STS policy of {domain} does not list {host}")]
    NotListed { domain: String, host: String },
    /// REQUIRETLS, or a requirement of a list or sender: neither DANE nor MTA-STS proves the host.
    #[error("neither DANE nor an enforced MTA-STS policy proves that {host} is a host of {domain}")]
    Unproven { domain: String, host: String },
}

/// Decides how to use the host.
pub fn host_use(about: &HostQuestion<'_>) -> HostUse {
    let names = |patterns| HostUse { level: Level::Proven(Proof::Names(patterns)), applied: PolicySource::Own };
    match &about.posture.requirement {
        Requirement::None => HostUse { level: Level::Clear, applied: PolicySource::Own },
        Requirement::May | Requirement::Encrypt => at_floor(about, Floor::Clear, PolicySource::Own),
        Requirement::Verify { names: wanted } => names(wanted.iter().map(|name| name.pattern(about.peer)).collect()),
        Requirement::Fingerprint { fingerprints } => {
            HostUse { level: Level::Proven(Proof::Fingerprints(fingerprints.clone())), applied: PolicySource::Own }
        }
        Requirement::Dane | Requirement::Sts | Requirement::DaneOnly => published(about),
    }
}

impl HostUse {
    /// The policy under which reports count a session with this host; `None`: none was looked up.
    pub fn counted_under(&self, about: &HostQuestion<'_>) -> Option<AppliedPolicy> {
        let none = AppliedPolicy { kind: PolicyType::NoPolicyFound, lines: Vec::new(), mx: Vec::new() };
        match self.applied {
            PolicySource::Own => None,
            PolicySource::NotFound => Some(none),
            PolicySource::Sts { .. } => about.sts.map(|policy| AppliedPolicy {
                kind: PolicyType::Sts,
                lines: policy.lines(),
                mx: policy.mx.clone(),
            }),
            PolicySource::Tlsa => {
                let records = match about.dane {
                    Some(DaneDecision::Match(proof)) => proof.records.iter().map(ToString::to_string).collect(),
                    _ => Vec::new(),
                };
                Some(AppliedPolicy { kind: PolicyType::Tlsa, lines: records, mx: vec![about.peer.hostname.to_owned()] })
            }
        }
    }

    /// The reported failure if the host is, or would be, refused; `None`: there is none so far.
    pub fn finding(&self) -> Option<(ResultType, String)> {
        match (&self.level, self.applied) {
            (_, PolicySource::Sts { is_listed: false, .. }) => {
                Some((ResultType::ValidationFailure, "mx-not-in-policy".to_owned()))
            }
            (Level::Refused(HostRefusal::Dane(refusal)), _) => {
                let result = match refusal {
                    DaneRefusal::Unusable { .. } => ResultType::TlsaInvalid,
                    DaneRefusal::LookUp { .. } => ResultType::DnssecInvalid,
                    DaneRefusal::NotApplicable(_) => ResultType::DaneRequired,
                };
                Some((result, refusal.to_string()))
            }
            _ => None,
        }
    }
}

impl From<FetchFailureKind> for ResultType {
    fn from(kind: FetchFailureKind) -> ResultType {
        match kind {
            FetchFailureKind::Certificate => ResultType::StsWebpkiInvalid,
            FetchFailureKind::Invalid => ResultType::StsPolicyInvalid,
            FetchFailureKind::Fetch => ResultType::StsPolicyFetchError,
        }
    }
}

fn published(about: &HostQuestion<'_>) -> HostUse {
    let strength = about.posture.requirement.strength();
    let tlsa = |level| HostUse { level, applied: PolicySource::Tlsa };
    let least = match about.dane {
        Some(DaneDecision::Refuse(why)) => return tlsa(Level::Refused(HostRefusal::Dane(why.clone()))),
        Some(DaneDecision::Match(proof)) if counts(about, proof) => {
            return tlsa(Level::Proven(Proof::Dane(proof.clone())));
        }
        // It matches, but nothing proves that the host is the domain's.
        Some(DaneDecision::Match(_)) => return tlsa(Level::Refused(unproven(about))),
        Some(DaneDecision::Encrypt { .. }) => Floor::Encrypted,
        Some(DaneDecision::NotApplicable(_)) | None => Floor::Clear,
    };
    let is_unusable = least == Floor::Encrypted;
    if strength == Strength::DaneOnly {
        return tlsa(Level::Refused(unproven(about)));
    }
    let not_found = if is_unusable { PolicySource::Tlsa } else { PolicySource::NotFound };
    match about.sts.filter(|policy| strength.asks_sts() && policy.mode != StsMode::None) {
        Some(policy) => by_policy(about, policy, least),
        None => at_floor(about, least, not_found),
    }
}

/// Whether a match is sufficient: after an insecure MX answer the host may be anyone's, unless the domain's policy
/// lists it.
fn counts(about: &HostQuestion<'_>, proof: &DaneProof) -> bool {
    let is_listed = |policy: &StsPolicy| policy.mode == StsMode::Enforce && policy.allows(about.peer.hostname);
    proof.mx == SecurityStatus::Secure || about.posture.floor < Floor::Proven || about.sts.is_some_and(is_listed)
}

fn by_policy(about: &HostQuestion<'_>, policy: &StsPolicy, least: Floor) -> HostUse {
    let (host, domain) = (about.peer.hostname, about.peer.nexthop);
    let is_listed = policy.allows(host);
    let is_testing = policy.mode == StsMode::Testing;
    let applied = PolicySource::Sts { is_testing, is_listed };
    let wanted = is_listed.then(|| Proof::Names(vec![HostPattern::Exact(host.to_owned())]));
    if is_testing {
        let mut used = at_floor(about, least, applied);
        if let Level::Opportunistic { wanted: own } | Level::Encrypted { wanted: own } = &mut used.level {
            *own = wanted;
        }
        return used;
    }
    let not_listed = || HostRefusal::NotListed { domain: domain.to_owned(), host: host.to_owned() };
    HostUse { level: wanted.map_or_else(|| Level::Refused(not_listed()), Level::Proven), applied }
}

/// The use of a host if no published policy applies.
fn at_floor(about: &HostQuestion<'_>, least: Floor, applied: PolicySource) -> HostUse {
    let level = match about.posture.floor.max(least) {
        Floor::Clear => Level::Opportunistic { wanted: None },
        Floor::Encrypted => Level::Encrypted { wanted: None },
        Floor::Proven => Level::Refused(unproven(about)),
    };
    HostUse { level, applied }
}

fn unproven(about: &HostQuestion<'_>) -> HostRefusal {
    HostRefusal::Unproven { domain: about.peer.nexthop.to_owned(), host: about.peer.hostname.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "cases in one line each")]

    use super::*;
    use crate::dane::{NotApplicable, Tlsa};

    const PEER: Peer<'_> = Peer { hostname: "mx.a.test", nexthop: "a.test" };

    fn proof(mx: SecurityStatus) -> DaneProof {
        let record = Tlsa::parse(&[&[3, 1, 1][..], &[7; 32]].concat()).unwrap();
        DaneProof {
            records: vec![record],
            base_domain: "mx.a.test".into(),
            names: vec!["mx.a.test".into()],
            mx,
            unusable: 0,
        }
    }

    fn policy(mode: StsMode, mx: &str) -> StsPolicy {
        StsPolicy { mode, max_age_s: 1, mx: vec![mx.to_owned()] }
    }

    fn used(posture: &Posture, dane: Option<DaneDecision>, sts: Option<StsPolicy>) -> (String, PolicySource) {
        let found = host_use(&HostQuestion { posture, peer: PEER, dane: dane.as_ref(), sts: sts.as_ref() });
        let level = match found.level {
            Level::Clear => "clear".to_owned(),
            Level::Opportunistic { wanted } => format!("may{}", if wanted.is_some() { ", tested" } else { "" }),
            Level::Encrypted { wanted } => format!("encrypt{}", if wanted.is_some() { ", tested" } else { "" }),
            Level::Proven(Proof::Dane(_)) => "dane".to_owned(),
            Level::Proven(Proof::Names(names)) => format!("CA for {}", names[0]),
            Level::Proven(Proof::Fingerprints(_)) => "fingerprint".to_owned(),
            Level::Refused(HostRefusal::Dane(_)) => "refused: DANE".to_owned(),
            Level::Refused(HostRefusal::NotListed { .. }) => "refused: not listed".to_owned(),
            Level::Refused(HostRefusal::Unproven { .. }) => "refused: unproven".to_owned(),
        };
        (level, found.applied)
    }

    fn held(word: &str, floor: Floor) -> Posture {
        let posture = Posture::from(Requirement::new(word, vec![], vec![]).unwrap());
        Posture { floor: floor.max(posture.floor), ..posture }
    }

    fn none() -> Option<DaneDecision> {
        Some(DaneDecision::NotApplicable(NotApplicable::NoRecords))
    }

    fn unusable() -> Option<DaneDecision> {
        Some(DaneDecision::Encrypt { base_domain: "mx.a.test".into(), unusable: 1 })
    }

    fn matched(mx: SecurityStatus) -> Option<DaneDecision> {
        Some(DaneDecision::Match(proof(mx)))
    }

    fn failed() -> Option<DaneDecision> {
        Some(DaneDecision::Refuse(DaneRefusal::LookUp { host: "mx.a.test".into(), port: 25, why: "SERVFAIL".into() }))
    }

    #[test]
    fn words_of_the_operator_alone() {
        let level = |word, floor| used(&held(word, floor), None, Some(policy(StsMode::Enforce, "x.test"))).0;
        assert_eq!(level("none", Floor::Clear), "clear");
        assert_eq!(level("may", Floor::Clear), "may");
        assert_eq!(level("encrypt", Floor::Clear), "encrypt");
        assert_eq!(level("verify", Floor::Clear), "CA for mx.a.test");
        assert_eq!(level("dane-only", Floor::Clear), "refused: unproven");
        assert_eq!(level("dane", Floor::Encrypted), "encrypt", "a policy is not looked at for `dane`");
    }

    #[test]
    fn dane_wins() {
        let sts = held("sts", Floor::Clear);
        let not_listed = || Some(policy(StsMode::Enforce, "x.test"));
        let listed = || Some(policy(StsMode::Enforce, "mx.a.test"));
        assert_eq!(used(&sts, matched(SecurityStatus::Secure), not_listed()), ("dane".into(), PolicySource::Tlsa));
        assert_eq!(used(&sts, failed(), listed()), ("refused: DANE".into(), PolicySource::Tlsa));
        let enforced = |is_listed| PolicySource::Sts { is_testing: false, is_listed };
        assert_eq!(used(&sts, none(), listed()), ("CA for mx.a.test".into(), enforced(true)));
        assert_eq!(used(&sts, none(), not_listed()), ("refused: not listed".into(), enforced(false)));
        assert_eq!(used(&sts, unusable(), listed()), ("CA for mx.a.test".into(), enforced(true)));
        assert_eq!(used(&sts, None, listed()).0, "CA for mx.a.test", "without a trusted resolver");
    }

    #[test]
    fn testing_and_none_change_nothing() {
        let sts = held("sts", Floor::Clear);
        let testing = |is_listed| PolicySource::Sts { is_testing: true, is_listed };
        assert_eq!(
            used(&sts, none(), Some(policy(StsMode::Testing, "*.a.test"))),
            ("may, tested".into(), testing(true))
        );
        assert_eq!(used(&sts, none(), Some(policy(StsMode::Testing, "x.test"))), ("may".into(), testing(false)));
        assert_eq!(used(&sts, unusable(), Some(policy(StsMode::Testing, "*.a.test"))).0, "encrypt, tested");
        assert_eq!(used(&sts, none(), Some(policy(StsMode::None, "x.test"))), ("may".into(), PolicySource::NotFound));
        assert_eq!(used(&sts, none(), None), ("may".into(), PolicySource::NotFound));
        assert_eq!(used(&sts, unusable(), None), ("encrypt".into(), PolicySource::Tlsa));
    }

    #[test]
    fn reports_hear_of_what_was_applied_and_what_is_wrong() {
        let posture = held("sts", Floor::Clear);
        let of = |dane: Option<DaneDecision>, sts: Option<StsPolicy>| {
            let about = HostQuestion { posture: &posture, peer: PEER, dane: dane.as_ref(), sts: sts.as_ref() };
            let used = host_use(&about);
            let policy = used.counted_under(&about).unwrap();
            (policy.kind, policy.lines.len(), used.finding().map(|(result, _)| result.name()))
        };
        assert_eq!(of(none(), None), (PolicyType::NoPolicyFound, 0, None));
        assert_eq!(of(matched(SecurityStatus::Secure), None), (PolicyType::Tlsa, 1, None));
        assert_eq!(of(failed(), None), (PolicyType::Tlsa, 0, Some("dnssec-invalid")));
        for mode in [StsMode::Enforce, StsMode::Testing] {
            assert_eq!(of(none(), Some(policy(mode, "mx.a.test"))), (PolicyType::Sts, 4, None));
            let not_listed = of(none(), Some(policy(mode, "x.test")));
            assert_eq!(not_listed, (PolicyType::Sts, 4, Some("validation-failure")));
        }
        let own = held("verify", Floor::Clear);
        let about = HostQuestion { posture: &own, peer: PEER, dane: None, sts: None };
        assert_eq!(host_use(&about).counted_under(&about), None);
        assert_eq!(ResultType::from(FetchFailureKind::Certificate).name(), "sts-webpki-invalid");
    }

    #[test]
    fn what_must_be_proven_is_never_less() {
        let strict = held("sts", Floor::Proven);
        assert_eq!(used(&strict, none(), None).0, "refused: unproven");
        assert_eq!(used(&strict, unusable(), None).0, "refused: unproven");
        assert_eq!(used(&strict, none(), Some(policy(StsMode::Testing, "mx.a.test"))).0, "refused: unproven");
        assert_eq!(used(&strict, matched(SecurityStatus::Insecure), None).0, "refused: unproven");
        assert_eq!(
            used(&strict, matched(SecurityStatus::Insecure), Some(policy(StsMode::Enforce, "mx.a.test"))).0,
            "dane"
        );
        assert_eq!(used(&strict, matched(SecurityStatus::Secure), None).0, "dane");
        // As in Postfix: without required proof, the published records are still enforced.
        assert_eq!(used(&held("sts", Floor::Clear), matched(SecurityStatus::Insecure), None).0, "dane");
    }
}
