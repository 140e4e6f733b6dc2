//! Our certificates and keys, chosen by the name that a client requests.
//!
//! Promise: a set is loaded completely or not at all, and replaced as a whole; a handshake uses the set that was in
//! force when it began. The first certificate is for clients that request no name, or one that no certificate covers.
//! Of several certificates for one name the first that the client can verify is used, so RSA and ECDSA can be
//! combined.

mod bundle;
mod challenge;
mod file;
mod self_signed;
mod source;
mod store;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use rustls::SignatureScheme;
use rustls::pki_types::UnixTime;
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;
use crate::verify::{TlsaRecord, by_tlsa};

pub use self::bundle::{RenewalId, bundle_key};
pub use self::challenge::ACME_TLS_ALPN;
pub use self::file::{IdentityError, Part};
pub use self::self_signed::SELF_SIGNED_FILE;
pub use self::source::{Source, SourceError};
pub use self::store::IdentityStore;
pub use self::watch::{IdentityWatch, WatchOutcome};

/// Days before expiry from which a warning is given.
pub const ENDS_SOON_DAYS: i64 = 14;

const DAY_S: i64 = 86_400;

/// The two files of one certificate; they may be the same file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Files {
    /// The certificate, followed by the intermediate ones up to the CA.
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// One certificate with its key.
#[derive(Debug)]
pub struct Identity {
    /// Files; `None` for the self-signed certificate.
    pub files: Option<Files>,
    pub certificate: Certificate,
    pub warnings: Vec<Warning>,
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) end_point: Option<Box<[u8]>>,
}

/// Problems of a usable certificate: it expires soon, or does not work for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    Expired {
        not_after: i64,
    },
    EndsSoon {
        not_after: i64,
    },
    NotYetValid {
        not_before: i64,
    },
    /// There is no certificate between this one and its CA, which is not a known root: clients may be unable to build
    /// a chain.
    NoIntermediate,
    /// The certificates of the chain are not in order.
    Order,
    /// Other users of this machine can read the key.
    KeyReadable {
        mode: u32,
    },
    /// It has no name.
    Nameless,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::certificate::day;
        match self {
            Warning::Expired { not_after } => write!(f, "the certificate expired on {}", day(*not_after)),
            Warning::EndsSoon { not_after } => write!(f, "the certificate expires on {}", day(*not_after)),
            Warning::NotYetValid { not_before } => {
                write!(f, "the certificate is not valid before {}", day(*not_before))
            }
            Warning::NoIntermediate => f.write_str(
                "the chain contains only the certificate: if there are intermediate CAs, verifying peers will refuse \
                 it (use fullchain.pem, not cert.pem)",
            ),
            Warning::Order => f.write_str("each certificate in the chain must be signed by the next one"),
            Warning::KeyReadable { mode } => write!(f, "others can read the key: its mode is {mode:o}, not 600"),
            Warning::Nameless => f.write_str("the certificate has no subjectAltName: verifying peers will refuse it"),
        }
    }
}

impl Identity {
    /// The warning about its dates, if any.
    pub fn dates(&self, now: i64) -> Option<Warning> {
        let Certificate { not_before, not_after, .. } = self.certificate;
        if not_after <= now {
            Some(Warning::Expired { not_after })
        } else if not_before > now {
            Some(Warning::NotYetValid { not_before })
        } else {
            (not_after - now < ENDS_SOON_DAYS * DAY_S).then_some(Warning::EndsSoon { not_after })
        }
    }

    /// Whether a TLSA record matches this certificate, for a client that requests the host; `now` in seconds since
    /// 1970.
    pub fn is_proven_by(&self, record: &TlsaRecord, host: &str, now: i64) -> bool {
        let Some((leaf, others)) = self.key.cert.split_first() else { return false };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.max(0).unsigned_abs()));
        by_tlsa(leaf, others, std::slice::from_ref(record), &[host.into()], now).is_ok()
    }

    /// Whether it is the server's self-signed certificate.
    pub fn is_self_made(&self) -> bool {
        self.files.is_none()
    }
}

/// All certificates of the server, at least one.
#[derive(Debug)]
pub struct Identities {
    all: Vec<Arc<Identity>>,
    by_name: HashMap<Arc<str>, Vec<usize>>,
    /// Wildcards, by the part after `*.`.
    by_parent: HashMap<Arc<str>, Vec<usize>>,
}

impl Identities {
    /// `None` if there is no certificate.
    pub(crate) fn new(all: Vec<Identity>) -> Option<Identities> {
        let all: Vec<_> = all.into_iter().map(Arc::new).collect();
        let (mut by_name, mut by_parent) = (HashMap::<_, Vec<usize>>::new(), HashMap::<_, Vec<usize>>::new());
        for (index, identity) in all.iter().enumerate() {
            for name in &identity.certificate.names {
                match name.strip_prefix("*.") {
                    Some(parent) => by_parent.entry(Arc::from(parent)).or_default().push(index),
                    None => by_name.entry(name.clone()).or_default().push(index),
                }
            }
        }
        (!all.is_empty()).then_some(Identities { all, by_name, by_parent })
    }

    /// Certificates in the order of the configuration; the first is the default.
    pub fn all(&self) -> &[Arc<Identity>] {
        &self.all
    }

    /// The certificate for a name, preferring those whose keys can sign as the client requests.
    pub fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<Identity> {
        let can_sign = |identity: &&Arc<Identity>| identity.key.key.choose_scheme(schemes).is_some();
        let mut candidates = self.candidates(name).peekable();
        let first = candidates.peek().copied();
        candidates.find(can_sign).or(first).unwrap_or(&self.all[0])
    }

    /// Whether one of them covers this name: exactly, or by a wildcard, which only matches the leftmost label (RFC
    /// 9525 6.3).
    pub fn has_name(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    fn named(&self, name: &str) -> Option<&Vec<usize>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.by_name.get(&*name).or_else(|| self.by_parent.get(parent?))
    }

    /// The certificates that a client requesting this name may get: all for that name, else the first and others for
    /// the same names.
    pub fn candidates(&self, name: Option<&str>) -> impl Iterator<Item = &Arc<Identity>> {
        let by_name = name.and_then(|name| self.named(name));
        let is_default = move |identity: &&Arc<Identity>| {
            by_name.is_none() && identity.certificate.names == self.all[0].certificate.names
        };
        by_name.into_iter().flatten().map(|index| &self.all[*index]).chain(self.all.iter().filter(is_default))
    }
}
