//! Trusted CAs: those of the system, or those of a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashSet;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use crate::cause::TlsError;
use crate::certificate::issuer_name;
use crate::pem::{self, read};

#[derive(Clone, Debug)]
pub struct Roots {
    pub(crate) store: Arc<RootCertStore>,
    /// Certificates of a file that are trusted directly, by SHA-256, such as a server's self-signed one.
    pinned: Arc<HashSet<[u8; 32]>>,
}

/// A file of CAs that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootsError {
    pub file: PathBuf,
    pub why: String,
}

impl fmt::Display for RootsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for RootsError {}

impl Roots {
    /// No CAs: nothing can be proven by a CA.
    pub fn none() -> Roots {
        Roots { store: Arc::new(RootCertStore::empty()), pinned: Arc::default() }
    }

    /// The system's CAs. Unreadable ones are skipped; there may be none.
    pub fn of_system() -> Roots {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(%error, "a system CA certificate could not be read");
        }
        store.add_parsable_certificates(found.certs);
        Roots { store: Arc::new(store), pinned: Arc::default() }
    }

    /// The CAs of a PEM file, and no others.
    pub fn from_file(path: &Path) -> Result<Roots, RootsError> {
        let failed = |why| RootsError { file: path.to_owned(), why };
        let (text, _) = read(path).map_err(|error| failed(pem::unreadable(&error)))?;
        Roots::from_certificates(pem::certificates(&text).map_err(failed)?).map_err(failed)
    }

    pub fn from_certificates(certificates: Vec<CertificateDer<'static>>) -> Result<Roots, String> {
        let mut store = RootCertStore::empty();
        let mut pinned = HashSet::new();
        for (index, certificate) in certificates.into_iter().enumerate() {
            pinned.insert(Sha256::digest(&certificate).into());
            store
                .add(certificate)
                .map_err(|error| format!("its certificate {} is unusable: {}", index + 1, TlsError::from(&error)))?;
        }
        Ok(Roots { store: Arc::new(store), pinned: Arc::new(pinned) })
    }

    /// Whether a certificate names one of these CAs as its issuer; its signature is not verified.
    pub(crate) fn have_issuer_of(&self, certificate: &CertificateDer<'_>) -> bool {
        let issuer = issuer_name(certificate);
        self.store.subjects().iter().any(|subject| issuer == Some(subject.as_ref()))
    }

    pub fn len(&self) -> usize {
        self.store.len()
    }

    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    pub(crate) fn has_pinned(&self, certificate: &CertificateDer<'_>) -> bool {
        !self.pinned.is_empty() && self.pinned.contains(&<[u8; 32]>::from(Sha256::digest(certificate)))
    }
}
