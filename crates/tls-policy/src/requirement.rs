//! Requirements for the proof of a host, in order of strength.
//!
//! | strength | requirement | encryption | proof of the host | if the host fails |
//! |---|---|---|---|---|
//! | 0 | `none` | never | nothing | |
//! | 1 | `may` | if offered | nothing | sent in clear |
//! | 2 | `encrypt` | always | nothing | waits |
//! | 3 | `dane` | always if the domain has secure TLSA records | these records (RFC 7672) | waits; without records as `may` |
//! | 4 | `sts` | always if the domain has DANE or enforces MTA-STS | records, else CA and policy (RFC 8461) | waits; without either as `may` |
//! | 5 | `verify` | always | a CA and a name | waits |
//! | 6 | `dane-only` | always | TLSA records, which must exist | waits |
//! | 7 | `fingerprint` | always | a certificate or key named by the operator | waits |
//!
//! For a domain that publishes nothing `encrypt` is stricter than `dane`, otherwise it is weaker. Therefore two
//! requirements for the same mail are joined ([`Posture::join`]): the stronger one determines how the host is proven,
//! and the higher [`Floor`] the minimum in any case. `encrypt` with `dane` means DANE if published, and never in
//! clear.

use std::fmt;
use std::sync::Arc;

use crate::fingerprint::Fingerprint;
use crate::names::PeerName;

/// The order of requirements, without their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    None,
    May,
    Encrypt,
    Dane,
    Sts,
    Verify,
    DaneOnly,
    Fingerprint,
}

impl Strength {
    pub const ALL: [Strength; 8] = [
        Strength::None,
        Strength::May,
        Strength::Encrypt,
        Strength::Dane,
        Strength::Sts,
        Strength::Verify,
        Strength::DaneOnly,
        Strength::Fingerprint,
    ];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Strength::None => "none",
            Strength::May => "may",
            Strength::Encrypt => "encrypt",
            Strength::Dane => "dane",
            Strength::Sts => "sts",
            Strength::Verify => "verify",
            Strength::DaneOnly => "dane-only",
            Strength::Fingerprint => "fingerprint",
        }
    }

    pub fn parse(name: &str) -> Option<Strength> {
        Strength::ALL.into_iter().find(|strength| strength.name() == name)
    }

    /// Whether TLSA records are looked up.
    pub const fn asks_dane(self) -> bool {
        matches!(self, Strength::Dane | Strength::Sts | Strength::DaneOnly)
    }

    /// Whether an MTA-STS policy is looked up.
    pub const fn asks_sts(self) -> bool {
        matches!(self, Strength::Sts)
    }

    /// The minimum, whatever the domain publishes.
    pub const fn floor(self) -> Floor {
        match self {
            Strength::None | Strength::May | Strength::Dane | Strength::Sts => Floor::Clear,
            Strength::Encrypt => Floor::Encrypted,
            Strength::Verify | Strength::DaneOnly | Strength::Fingerprint => Floor::Proven,
        }
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Minimum protection of mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Floor {
    /// In clear, if nothing better works.
    Clear,
    /// Encrypted, with any host.
    Encrypted,
    /// Encrypted, to a proven host.
    Proven,
}

/// A requirement with its arguments. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Requirement {
    None,
    May,
    Encrypt,
    Dane,
    Sts,
    /// Names, never empty: `hostname` if the operator gives none.
    Verify {
        names: Arc<[PeerName]>,
    },
    DaneOnly,
    /// Fingerprints, never empty.
    Fingerprint {
        fingerprints: Arc<[Fingerprint]>,
    },
}

/// A requirement does not fit its arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{0}` is not a valid requirement: use none, may, encrypt, dane, sts, verify, dane-only or fingerprint")]
    Unknown(String),
    #[error("`names` are only valid with `verify`, not with `{0}`")]
    NamesNotWanted(Strength),
    #[error("`fingerprints` are only valid with `fingerprint`, not with `{0}`")]
    FingerprintsNotWanted(Strength),
    #[error("`fingerprint` needs `fingerprints`: the SHA-256 of the certificate or its public key")]
    FingerprintsMissing,
    #[error("at most {NAMED_MAX} names or fingerprints")]
    TooMany,
}

/// Maximum names or fingerprints of one requirement.
pub const NAMED_MAX: usize = 64;

impl Requirement {
    /// Makes a requirement of the configuration's keyword and arguments.
    pub fn new(
        word: &str,
        names: Vec<PeerName>,
        fingerprints: Vec<Fingerprint>,
    ) -> Result<Requirement, RequirementError> {
        let strength =
            Strength::parse(word).ok_or_else(|| RequirementError::Unknown(word.chars().take(64).collect()))?;
        if names.len() > NAMED_MAX || fingerprints.len() > NAMED_MAX {
            return Err(RequirementError::TooMany);
        }
        if !names.is_empty() && strength != Strength::Verify {
            return Err(RequirementError::NamesNotWanted(strength));
        }
        if !fingerprints.is_empty() && strength != Strength::Fingerprint {
            return Err(RequirementError::FingerprintsNotWanted(strength));
        }
        Ok(match strength {
            Strength::None => Requirement::None,
            Strength::May => Requirement::May,
            Strength::Encrypt => Requirement::Encrypt,
            Strength::Dane => Requirement::Dane,
            Strength::Sts => Requirement::Sts,
            Strength::Verify if names.is_empty() => Requirement::Verify { names: [PeerName::Hostname].into() },
            Strength::Verify => Requirement::Verify { names: names.into() },
            Strength::DaneOnly => Requirement::DaneOnly,
            Strength::Fingerprint if fingerprints.is_empty() => return Err(RequirementError::FingerprintsMissing),
            Strength::Fingerprint => Requirement::Fingerprint { fingerprints: fingerprints.into() },
        })
    }

    pub const fn strength(&self) -> Strength {
        match self {
            Requirement::None => Strength::None,
            Requirement::May => Strength::May,
            Requirement::Encrypt => Strength::Encrypt,
            Requirement::Dane => Strength::Dane,
            Requirement::Sts => Strength::Sts,
            Requirement::Verify { .. } => Strength::Verify,
            Requirement::DaneOnly => Strength::DaneOnly,
            Requirement::Fingerprint { .. } => Strength::Fingerprint,
        }
    }

    pub const fn floor(&self) -> Floor {
        self.strength().floor()
    }
}

/// Formats the keyword and its arguments: `verify (nexthop, .example.com)`.
impl fmt::Display for Requirement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.strength().name())?;
        match self {
            Requirement::Verify { names } => listed(out, names),
            Requirement::Fingerprint { fingerprints } => listed(out, fingerprints),
            _ => Ok(()),
        }
    }
}

fn listed(out: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(out, "{}{item}", if i == 0 { " (" } else { ", " })?;
    }
    out.write_str(")")
}

/// Protection of a message on its way to a domain: how a host is proven, and the minimum in any case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Posture {
    pub requirement: Requirement,
    /// Minimum, at least that of `requirement`.
    pub floor: Floor,
    /// Whether REQUIRETLS (RFC 8689) applies: the host must offer it, and it is passed on with the message.
    pub require_tls: bool,
}

impl From<Requirement> for Posture {
    fn from(requirement: Requirement) -> Posture {
        Posture { floor: requirement.floor(), requirement, require_tls: false }
    }
}

impl Posture {
    /// Joins both: the stronger requirement (if equal, `self`'s), and the higher floor.
    #[must_use]
    pub fn join(self, other: Posture) -> Posture {
        let floor = self.floor.max(other.floor);
        let require_tls = self.require_tls || other.require_tls;
        let is_stronger = other.requirement.strength() > self.requirement.strength();
        Posture { requirement: if is_stronger { other.requirement } else { self.requirement }, floor, require_tls }
    }

    /// Whether mail may be sent in clear if the host offers no TLS, or the handshake fails.
    pub fn allows_clear(&self) -> bool {
        self.floor == Floor::Clear && !self.require_tls
    }

    /// Key of connections that may be shared: two messages to the same hosts may share a connection if and only if
    /// their keys are equal. Empty for `may`, so that the sites of most mail keep their names.
    pub fn key(&self) -> String {
        let mut key = match (&self.requirement, self.floor) {
            (Requirement::May, Floor::Clear) => String::new(),
            (requirement, _) => requirement.to_string(),
        };
        if self.floor > self.requirement.floor() {
            key.push_str(if self.floor == Floor::Proven { "+proven" } else { "+encrypt" });
        }
        if self.require_tls {
            key.push_str("+requiretls");
        }
        key
    }
}

impl fmt::Display for Posture {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requirement.fmt(out)?;
        match self.floor {
            floor if floor <= self.requirement.floor() => {}
            Floor::Proven => out.write_str(", never unproven")?,
            _ => out.write_str(", never in clear")?,
        }
        if self.require_tls { out.write_str(", REQUIRETLS") } else { Ok(()) }
    }
}
