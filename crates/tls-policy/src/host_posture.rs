//! How one host of a site is used for the site's mail, and which of these properties are part of the site's name.
//!
//! Domains at the same hosts share a site, with its connections and clocks. One domain's requirements or policies
//! must not delay the mail of another; domains with equivalent ones still share. So the name of a site contains the
//! properties that differ between domains, but none of the hosts' own:
//!
//! | property of the domain | in the name |
//! |---|---|
//! | the operator's requirement | `sts`, `verify(nexthop)`, ...; `may` if there are only ones for lists and senders |
//! | its MTA-STS policy lists all hosts | `+enforce`, `+testing` |
//! | its policy omits a host, a host is unproven, or a trust anchor's certificate may have its name | `+for(DOMAIN)` |
//! | its MX records are insecure, and this matters | `+insecure-mx` |
//!
//! The TLSA records of hosts, and failures to look them up, are not in the name. If the domain publishes nothing,
//! nothing is added to the name.

use std::sync::Arc;

use crate::dane::{CertificateUsage, DaneDecision, DaneRefusal, NotApplicable};
use crate::hosts::{HostQuestion, HostRefusal, HostUse, Level, PolicySource, Proof, host_use};
use crate::names::Peer;
use crate::requirement::{Floor, Posture, Requirement};
use crate::sts::{StsMode, StsPolicy};

/// Published policies about one host of a domain, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PublishedPolicies {
    /// Result of DANE; `None` also if it does not apply.
    pub dane: Option<DaneDecision>,
    /// The domain's policy, reduced to this host: it lists the host or nothing, and has no age.
    pub sts: Option<Arc<StsPolicy>>,
}

impl PublishedPolicies {
    /// Removes data that is irrelevant for the host, so that equivalent policies are equal.
    pub fn new(host: &str, dane: Option<DaneDecision>, sts: Option<&StsPolicy>) -> PublishedPolicies {
        let dane = dane.filter(|dane| !matches!(dane, DaneDecision::NotApplicable(_))).map(|mut dane| {
            if let DaneDecision::Match(proof) = &mut dane
                && !proof.records.iter().any(|record| record.usage == CertificateUsage::TrustAnchor)
            {
                // A host's own certificate may have any name (RFC 7672 3.1.1).
                proof.names.truncate(1);
            }
            dane
        });
        let sts = sts.filter(|policy| policy.mode != StsMode::None).map(|policy| {
            let mx = policy.allows(host).then(|| host.to_owned());
            Arc::new(StsPolicy { mode: policy.mode, max_age_s: 0, mx: mx.into_iter().collect() })
        });
        PublishedPolicies { dane, sts }
    }

    fn question<'a>(&'a self, posture: &'a Posture, peer: Peer<'a>) -> HostQuestion<'a> {
        HostQuestion { posture, peer, dane: self.dane.as_ref(), sts: self.sts.as_deref() }
    }

    /// How the host is used for mail with this posture.
    pub fn used(&self, posture: &Posture, peer: Peer<'_>) -> HostUse {
        host_use(&self.question(posture, peer))
    }
}

/// How a host is used for the mail of a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPosture {
    pub posture: Posture,
    pub used: HostUse,
    /// Published policies, for mail of lists and senders with stricter requirements.
    pub published: PublishedPolicies,
}

impl HostPosture {
    /// `None`: opportunistic TLS, as for a host without requirements and published policies. `by_mail`: the
    /// requirement that a list or sender may have; the handshake shows whether the host meets it.
    pub fn new(
        posture: &Posture,
        by_mail: Option<&Requirement>,
        peer: Peer<'_>,
        published: PublishedPolicies,
    ) -> Option<HostPosture> {
        let mut used = published.used(posture, peer);
        if let Some(by_mail) = by_mail
            && let Level::Opportunistic { wanted: wanted @ None } | Level::Encrypted { wanted: wanted @ None } =
                &mut used.level
        {
            let demanded = Posture { requirement: by_mail.clone(), floor: Floor::Clear, require_tls: false };
            if let Level::Proven(proof) = published.used(&demanded, peer).level {
                *wanted = Some(proof);
            }
        }
        let is_open = posture.allows_clear() && matches!(used.level, Level::Opportunistic { wanted: None });
        let is_plain = is_open && published == PublishedPolicies::default();
        (!is_plain).then(|| HostPosture { posture: posture.clone(), used, published })
    }

    /// Whether another domain at this host might have to use it differently.
    fn is_of_domain(&self) -> bool {
        let has_names = match &self.published.dane {
            Some(DaneDecision::Match(proof)) => proof.names.len() > 1,
            _ => false,
        };
        let is_unlisted = self.published.sts.as_ref().is_some_and(|policy| policy.mx.is_empty());
        let is_unproven =
            matches!(self.used.level, Level::Refused(HostRefusal::NotListed { .. } | HostRefusal::Unproven { .. }));
        has_names || is_unlisted || is_unproven
    }

    fn is_of_insecure_mx(&self) -> bool {
        match &self.published.dane {
            Some(DaneDecision::Match(proof)) => !proof.mx.is_secure(),
            Some(DaneDecision::Refuse(DaneRefusal::NotApplicable(why))) => *why == NotApplicable::InsecureMx,
            _ => false,
        }
    }

    /// Name of the published policy under which the host is used, for records; `None`: there is none.
    pub fn applied(&self) -> Option<&'static str> {
        match (&self.used.level, self.used.applied) {
            (Level::Proven(Proof::Names(_)), PolicySource::Sts { .. }) => Some("sts"),
            _ => None,
        }
    }
}

/// The part of the site's name for `domain` that follows its hosts; empty without requirements and published
/// policies.
#[allow(clippy::needless_pass_by_value, reason = "callers write the iterator in place")]
pub fn site_suffix<'a>(
    posture: &Posture,
    domain: &str,
    hosts: impl Iterator<Item = Option<&'a HostPosture>> + Clone,
) -> String {
    let of_hosts = || hosts.clone().flatten();
    let mut suffix = posture.key();
    if of_hosts().next().is_none() {
        // `dane` and `sts` are equivalent to `may` here.
        return if posture.allows_clear() && posture.requirement != Requirement::None { String::new() } else { suffix };
    }
    if suffix.is_empty() {
        suffix.push_str("may");
    }
    let has_mode = |mode| of_hosts().any(|host| host.published.sts.as_ref().is_some_and(|policy| policy.mode == mode));
    if has_mode(StsMode::Enforce) {
        suffix.push_str("+enforce");
    } else if has_mode(StsMode::Testing) {
        suffix.push_str("+testing");
    }
    if of_hosts().any(HostPosture::is_of_insecure_mx) {
        suffix.push_str("+insecure-mx");
    }
    if of_hosts().any(HostPosture::is_of_domain) {
        suffix = format!("{suffix}+for({domain})");
    }
    suffix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dane::{DaneProof, SecurityStatus, Tlsa};

    fn matched(usage: u8, domain: &str, mx: SecurityStatus) -> DaneDecision {
        let record = Tlsa::parse(&[&[usage, 1, 1][..], &[7; 32]].concat()).unwrap();
        let names = vec!["mx.host.test".into(), domain.into()];
        DaneDecision::Match(DaneProof {
            records: vec![record],
            base_domain: "mx.host.test".into(),
            names,
            mx,
            unusable: 0,
        })
    }

    fn policy(mode: StsMode, mx: &str, max_age_s: u64) -> StsPolicy {
        StsPolicy { mode, max_age_s, mx: vec![mx.to_owned()] }
    }

    fn host(
        posture: &Posture,
        domain: &str,
        dane: Option<DaneDecision>,
        sts: Option<&StsPolicy>,
    ) -> Option<HostPosture> {
        let peer = Peer { hostname: "mx.host.test", nexthop: domain };
        HostPosture::new(posture, None, peer, PublishedPolicies::new(peer.hostname, dane, sts))
    }

    fn named(
        posture: &Posture,
        domain: &str,
        dane: Option<DaneDecision>,
        sts: Option<&StsPolicy>,
    ) -> (String, Option<HostPosture>) {
        let host = host(posture, domain, dane, sts);
        (site_suffix(posture, domain, [host.as_ref()].into_iter()), host)
    }

    #[test]
    fn what_comes_to_the_same_is_one_site_and_what_does_not_is_another() {
        let sts: Posture = Requirement::Sts.into();
        let nothing = named(&sts, "a.test", Some(DaneDecision::NotApplicable(NotApplicable::NoRecords)), None);
        assert_eq!(nothing, named(&Requirement::May.into(), "b.test", None, None));
        assert_eq!(nothing, (String::new(), None));
        let secure = SecurityStatus::Secure;
        let ee = named(&sts, "a.test", Some(matched(3, "a.test", secure)), None);
        assert_eq!(ee, named(&sts, "b.test", Some(matched(3, "b.test", secure)), None));
        assert_eq!(ee.0, "sts");
        let half = named(&sts, "a.test", Some(matched(3, "a.test", SecurityStatus::Insecure)), None);
        assert_eq!(half.0, "sts+insecure-mx");
        let ta = named(&sts, "a.test", Some(matched(2, "a.test", secure)), None);
        assert_eq!(ta.0, "sts+for(a.test)");
        let enforced = named(&sts, "a.test", None, Some(&policy(StsMode::Enforce, "mx.host.test", 5)));
        assert_eq!(enforced, named(&sts, "b.test", None, Some(&policy(StsMode::Enforce, "*.host.test", 6))));
        assert_eq!(enforced.0, "sts+enforce");
        let broken = named(&sts, "b.test", None, Some(&policy(StsMode::Enforce, "mx.other.test", 5)));
        assert_eq!(broken.0, "sts+enforce+for(b.test)");
        assert!(matches!(broken.1.unwrap().used.level, Level::Refused(HostRefusal::NotListed { .. })));
        assert_eq!(named(&sts, "a.test", None, Some(&policy(StsMode::Testing, "mx.host.test", 5))).0, "sts+testing");
        assert_eq!(named(&sts, "a.test", None, Some(&policy(StsMode::None, "mx.host.test", 5))).0, "");
    }

    #[test]
    fn demands_have_the_names_that_they_had() {
        for requirement in [Requirement::None, Requirement::Encrypt, Requirement::DaneOnly] {
            let posture: Posture = requirement.into();
            let (suffix, host) = named(&posture, "a.test", None, None);
            assert_eq!(suffix.split('+').next(), Some(&*posture.key()));
            assert!(host.is_some());
        }
        assert_eq!(named(&Requirement::DaneOnly.into(), "a.test", None, None).0, "dane-only+for(a.test)");
    }

    #[test]
    fn what_a_list_may_demand_is_looked_at_and_not_held_to() {
        let peer = Peer { hostname: "mx.host.test", nexthop: "a.test" };
        let published = PublishedPolicies::new(peer.hostname, Some(matched(3, "a.test", SecurityStatus::Secure)), None);
        let may = Requirement::May.into();
        let found = HostPosture::new(&may, Some(&Requirement::Dane), peer, published.clone()).unwrap();
        assert!(matches!(found.used.level, Level::Opportunistic { wanted: Some(Proof::Dane(_)) }));
        assert_eq!(site_suffix(&may, "a.test", [Some(&found)].into_iter()), "may");
        let demanded = Requirement::Dane.into();
        assert!(matches!(found.published.used(&demanded, peer).level, Level::Proven(_)));
    }
}
