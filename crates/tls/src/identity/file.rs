//! Certificates and keys from files.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{Files, Identities, Identity, Warning};
use crate::cause::certificate_words;
use crate::certificate::{Certificate, end_point};
use crate::pem::{self, read};
use crate::provider;

/// Which of the two files is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Chain,
    Key,
}

/// A certificate that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityError {
    /// Index in the list of files.
    pub index: usize,
    pub part: Part,
    pub file: PathBuf,
    pub why: String,
    /// Remedy.
    pub next: &'static str,
}

/// Requirements for the files.
const CHAIN_NEXT: &str =
    "give the PEM file from the CA, with the server's own certificate first (certbot: fullchain.pem)";
const KEY_NEXT: &str = "give the PEM file with the certificate's private key (certbot: privkey.pem)";
const READABLE_NEXT: &str = "let the server's user read it (`chgrp stentor FILE`, `chmod 0640 FILE`)";

/// Why one certificate cannot be used.
pub(super) struct Failure {
    part: Part,
    pub(super) why: String,
    next: &'static str,
}

impl Failure {
    fn new(part: Part, why: String) -> Failure {
        let next = if part == Part::Chain { CHAIN_NEXT } else { KEY_NEXT };
        Failure { part, why, next }
    }

    /// The failure to read a file.
    fn read(part: Part, error: &io::Error) -> Failure {
        let failure = Failure::new(part, pem::unreadable(error));
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure { next: READABLE_NEXT, ..failure },
            _ => failure,
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for IdentityError {}

impl Identities {
    /// Loads all certificates, or returns every error.
    pub fn load(files: &[Files], now: i64) -> Result<Identities, Vec<IdentityError>> {
        let none = || {
            let why = "no certificate is given".to_owned();
            vec![IdentityError { index: 0, part: Part::Chain, file: PathBuf::new(), why, next: CHAIN_NEXT }]
        };
        Identities::new(Identities::load_all(files, now)?).ok_or_else(none)
    }

    pub(super) fn load_all(files: &[Files], now: i64) -> Result<Vec<Identity>, Vec<IdentityError>> {
        let (mut loaded, mut errors) = (Vec::with_capacity(files.len()), Vec::new());
        for (index, files) in files.iter().enumerate() {
            match load(files, now) {
                Ok(identity) => loaded.push(identity),
                Err(Failure { part, why, next }) => {
                    let file = if part == Part::Chain { &files.chain } else { &files.key };
                    errors.push(IdentityError { index, part, file: file.clone(), why, next });
                }
            }
        }
        if errors.is_empty() { Ok(loaded) } else { Err(errors) }
    }
}

fn load(files: &Files, now: i64) -> Result<Identity, Failure> {
    let (chain, _) = read(&files.chain).map_err(|error| Failure::read(Part::Chain, &error))?;
    let chain = pem::certificates(&chain).map_err(|why| Failure::new(Part::Chain, why))?;
    let (key, mode) = read(&files.key).map_err(|error| Failure::read(Part::Key, &error))?;
    let key = pem::key(&key).map_err(|why| Failure::new(Part::Key, why))?;
    let mut identity = identity(chain, key)?;
    identity.warnings.extend(identity.dates(now));
    if mode & 0o007 != 0 {
        identity.warnings.push(Warning::KeyReadable { mode: mode & 0o777 });
    }
    identity.files = Some(files.clone());
    Ok(identity)
}

/// Combines a chain with its key.
pub(super) fn identity(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Identity, Failure> {
    let of_chain = |why: &str| Failure::new(Part::Chain, why.to_owned());
    let leaf = chain.first().ok_or_else(|| of_chain("it has no certificate"))?;
    let certificate = Certificate::read(leaf).ok_or_else(|| of_chain("its first certificate is not X.509"))?;
    let (end_point, warnings) = (end_point(leaf).map(Into::into), chain_warnings(&chain, &certificate));
    let key = CertifiedKey::from_der(chain, key, provider()).map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            Failure::new(Part::Key, format!("the key does not belong to the certificate for {}", certificate.subject))
        }
        Error::InvalidCertificate(why) => {
            of_chain(&format!("its first certificate is unusable: {}", certificate_words(&why)))
        }
        _ => Failure::new(Part::Key, "unsupported key type; use RSA of 2,048 to 8,192 bits, ECDSA, Ed25519".to_owned()),
    })?;
    Ok(Identity { files: None, certificate, warnings, key: Arc::new(key), end_point })
}

fn chain_warnings(chain: &[CertificateDer<'static>], leaf: &Certificate) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if leaf.names.is_empty() {
        warnings.push(Warning::Nameless);
    }
    if chain.len() == 1 && !leaf.is_self_issued {
        warnings.push(Warning::NoIntermediate);
    }
    let facts: Vec<_> = chain.iter().filter_map(Certificate::read).collect();
    if facts.windows(2).any(|pair| pair[0].issuer != pair[1].subject) {
        warnings.push(Warning::Order);
    }
    warnings
}
