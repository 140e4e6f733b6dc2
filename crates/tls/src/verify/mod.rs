//! Requirements for a server's certificate, and their verification.
//!
//! Promise: the signature of the handshake is always verified, so the peer has the key of the certificate that it
//! sends. A [`PeerRequirement`] states the further conditions; [`judge`] returns how the certificate is proven, or why
//! it is not, even if nothing is required.

mod chain;
mod dane;
mod roots;
mod system_roots;
mod verifier;
mod web;

use std::fmt;

use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};

use crate::cause::{TlsError, TlsErrorCause};
use crate::certificate::{Certificate, public_key};

pub use self::dane::{TlsaRecord, TlsaUse};
pub use self::roots::{Roots, RootsError};
pub use self::system_roots::SystemRoots;

pub(crate) use self::chain::is_client_of;
pub(crate) use self::dane::verify as by_tlsa;
pub(crate) use self::verifier::{Verifier, refusal, verify_signature_12, verify_signature_13};

/// A requirement for a peer's certificate.
///
/// Names: `mx.example.org` means that host; `.example.org` means any host below that domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerRequirement {
    /// Any certificate. Whether it is proven by name and CA is recorded anyway.
    Encrypted { names: Vec<Box<str>> },
    /// A certificate for one of the names, signed by a trusted CA.
    Ca { names: Vec<Box<str>> },
    /// One of these certificates; names, dates and CA do not matter.
    Fingerprint(Vec<PinnedHash>),
    /// A certificate that matches one of the TLSA records (RFC 7672 section 3.1). The names are only for records of
    /// usage 2.
    Dane { records: Vec<TlsaRecord>, names: Vec<Box<str>> },
    /// Any certificate. Whether it meets this requirement is recorded anyway.
    Wanted(Box<PeerRequirement>),
}

/// SHA-256 of a certificate or of its public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinnedHash {
    Certificate([u8; 32]),
    PublicKey([u8; 32]),
    /// A hash of unspecified kind: either may match, as in Postfix.
    Either([u8; 32]),
}

impl PinnedHash {
    /// Whether it is the hash of this certificate or its key.
    pub fn is_of(&self, certificate: &Certificate) -> bool {
        match self {
            PinnedHash::Certificate(hash) => *hash == certificate.sha256,
            PinnedHash::PublicKey(hash) => *hash == certificate.key_sha256,
            PinnedHash::Either(hash) => *hash == certificate.sha256 || *hash == certificate.key_sha256,
        }
    }
}

/// How a peer has proven its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerProof {
    /// It has not, and the reason.
    Nothing(TlsError),
    /// By a CA, for this name.
    Ca(Box<str>),
    Fingerprint,
    /// By a TLSA record.
    Dane(TlsaUse),
}

impl PeerProof {
    /// Name in records and logs.
    pub fn key(&self) -> &'static str {
        match self {
            PeerProof::Nothing(_) => "none",
            PeerProof::Ca(_) => "ca",
            PeerProof::Fingerprint => "fingerprint",
            PeerProof::Dane(TlsaUse::TrustAnchor) => "dane-ta",
            PeerProof::Dane(TlsaUse::EndEntity) => "dane-ee",
        }
    }

    /// Whether the identity is proven.
    pub fn is_proven(&self) -> bool {
        !matches!(self, PeerProof::Nothing(_))
    }

    pub(crate) fn not_asked() -> PeerProof {
        PeerProof::Nothing(TlsError::new(TlsErrorCause::NotAsked, "nobody asked for a certificate"))
    }
}

impl fmt::Display for PeerProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerProof::Nothing(why) => write!(f, "not proven: {why}"),
            PeerProof::Ca(name) => write!(f, "proven for {name} by a CA"),
            PeerProof::Fingerprint => f.write_str("proven by its fingerprint"),
            PeerProof::Dane(TlsaUse::TrustAnchor) => f.write_str("proven by DANE (trust anchor)"),
            PeerProof::Dane(TlsaUse::EndEntity) => f.write_str("proven by DANE (its own certificate)"),
        }
    }
}

/// Answers questions about a session when its handshake is complete.
pub(crate) trait Proof: fmt::Debug + Send + Sync {
    /// How the peer with this chain is proven.
    fn proven(&self, chain: &[CertificateDer<'_>]) -> PeerProof;
    /// The hash of the server's certificate for `tls-server-end-point`; the chain is the peer's.
    fn server_end_point(&self, chain: &[CertificateDer<'_>]) -> Option<Box<[u8]>>;
}

/// How a chain is proven under a requirement; the error is the reason why it is not.
pub(crate) fn judge(
    requirement: &PeerRequirement,
    roots: &Roots,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<PeerProof, TlsError> {
    let Some((leaf, others)) = chain.split_first() else {
        return Err(TlsError::new(TlsErrorCause::NoCertificate, "the peer presented no certificate"));
    };
    match requirement {
        PeerRequirement::Encrypted { names } | PeerRequirement::Ca { names } => {
            chain::verify(leaf, others, roots, names, now).map(PeerProof::Ca)
        }
        PeerRequirement::Fingerprint(wanted) => by_fingerprint(leaf, wanted).map(|()| PeerProof::Fingerprint),
        PeerRequirement::Dane { records, names } => {
            dane::verify(leaf, others, records, names, now).map(PeerProof::Dane)
        }
        PeerRequirement::Wanted(wanted) => judge(wanted, roots, chain, now),
    }
}

fn by_fingerprint(leaf: &CertificateDer<'_>, wanted: &[PinnedHash]) -> Result<(), TlsError> {
    let certificate: [u8; 32] = Sha256::digest(leaf).into();
    let key = public_key(leaf).map(|key| <[u8; 32]>::from(Sha256::digest(key)));
    let is_wanted = wanted.iter().any(|wanted| match wanted {
        PinnedHash::Certificate(hash) => *hash == certificate,
        PinnedHash::PublicKey(hash) => Some(*hash) == key,
        PinnedHash::Either(hash) => *hash == certificate || Some(*hash) == key,
    });
    if is_wanted {
        return Ok(());
    }
    let shown = |hash: &[u8; 32]| hash.map(|octet| format!("{octet:02x}")).concat();
    let key = key.as_ref().map_or_else(|| "unreadable".to_owned(), shown);
    let text = format!("no fingerprint matches: the certificate has {}, its key {key}", shown(&certificate));
    Err(TlsError::new(TlsErrorCause::WrongFingerprint, text))
}
