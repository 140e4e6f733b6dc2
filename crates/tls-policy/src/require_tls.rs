//! REQUIRETLS and `TLS-Required: No` (RFC 8689): a sender's requests about one message.
//!
//! REQUIRETLS: the message goes only to hosts that are proven to be the domain's (by DNSSEC and DANE, or by an
//! enforced MTA-STS policy; RFC 8689 4.2.1) and that offer REQUIRETLS themselves. If none of the hosts does, the
//! message is returned without its content, which must not be sent unprotected (5).
//!
//! `TLS-Required: No`: policies published by the recipient's domain are ignored (RFC 8689 4.2.2), but not the
//! requirements of this server's operator. With REQUIRETLS the field has no effect (4.1).

use crate::reason::{AppliedRule, ReasonedPosture, RequirementSource};
use crate::requirement::{Floor, Posture, Requirement};

/// A sender's requests about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// Whether MAIL had REQUIRETLS.
    pub require_tls: bool,
    /// Whether there is exactly one `TLS-Required` field, with the value No.
    pub tls_required_no: bool,
}

/// The posture for REQUIRETLS.
fn required() -> Posture {
    Posture { floor: Floor::Proven, require_tls: true, requirement: Requirement::Sts }
}

impl Posture {
    /// Applies the sender's requests.
    #[must_use]
    pub fn wished(mut self, wish: Wish) -> Posture {
        if wish.require_tls {
            return self.join(required());
        }
        if let Some(requirement) = self.left_by(wish) {
            self.requirement = requirement;
        }
        self
    }

    /// The remaining requirement with `TLS-Required: No`, if that changes it.
    fn left_by(&self, wish: Wish) -> Option<Requirement> {
        let is_published = matches!(self.requirement, Requirement::Dane | Requirement::Sts);
        let left = || if self.floor == Floor::Clear { Requirement::May } else { Requirement::Encrypt };
        (wish.tls_required_no && is_published).then(left)
    }
}

impl ReasonedPosture {
    /// Applies the sender's requests.
    #[must_use]
    pub fn wished(mut self, wish: Wish) -> ReasonedPosture {
        if wish.require_tls {
            let posture = required();
            let reasons =
                vec![AppliedRule { source: RequirementSource::RequireTls, requirement: posture.requirement.clone() }];
            return self.join(ReasonedPosture { posture, reasons });
        }
        if let Some(requirement) = self.posture.left_by(wish) {
            self.posture.requirement = requirement.clone();
            self.reasons.insert(0, AppliedRule { source: RequirementSource::TlsRequiredNo, requirement });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(word: &str) -> ReasonedPosture {
        let fingerprints = if word == "fingerprint" { vec![crate::Fingerprint([1; 32])] } else { Vec::new() };
        let requirement = Requirement::new(word, vec![], fingerprints).unwrap();
        AppliedRule { source: RequirementSource::Default, requirement }.into()
    }

    const REQUIRE: Wish = Wish { require_tls: true, tls_required_no: false };
    const NO: Wish = Wish { require_tls: false, tls_required_no: true };

    #[test]
    fn requiretls_demands_proof_and_keeps_what_is_stronger() {
        for (word, wanted) in [
            ("none", "sts+proven+requiretls"),
            ("may", "sts+proven+requiretls"),
            ("encrypt", "sts+proven+requiretls"),
            ("dane", "sts+proven+requiretls"),
            ("verify", "verify (hostname)+requiretls"),
            ("dane-only", "dane-only+requiretls"),
        ] {
            let posture = held(word).wished(REQUIRE).posture;
            assert_eq!(posture.key(), wanted);
            assert!(!posture.allows_clear());
        }
    }

    #[test]
    fn no_lowers_what_domains_publish_and_nothing_else() {
        let key = |held: ReasonedPosture| held.wished(NO).posture.key();
        assert_eq!(key(held("sts")), "");
        assert_eq!(key(held("dane")), "");
        assert_eq!(key(held("sts").join(held("encrypt"))), "encrypt");
        for word in ["none", "encrypt", "verify", "dane-only", "fingerprint"] {
            assert_eq!(key(held(word)), held(word).posture.key());
        }
        let text = held("dane").wished(NO).to_string();
        assert_eq!(text, "may: may by TLS-Required: No of the sender; dane by [delivery] tls");
    }

    #[test]
    fn requiretls_goes_before_no() {
        let both = Wish { require_tls: true, tls_required_no: true };
        assert_eq!(held("may").wished(both), held("may").wished(REQUIRE));
        assert_eq!(held("may").wished(Wish::default()), held("may"));
        for word in ["none", "may", "encrypt", "dane", "dane-only", "sts", "verify"] {
            for wish in [REQUIRE, NO, both, Wish::default()] {
                assert_eq!(held(word).posture.wished(wish), held(word).wished(wish).posture, "{word}");
            }
        }
    }
}
