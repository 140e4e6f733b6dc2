//! Sources of certificates: files named in the configuration, files of certificates obtained from a CA, and the
//! self-signed one while there is no other.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::file::IdentityError;
use super::{Files, Identities, Identity, Warning};
use crate::Roots;
use crate::pem::{read, unreadable};

/// Sources in this order: the first certificate is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Configured files; all of them must be usable.
    pub files: Vec<Files>,
    /// Obtained certificates with keys, one file each, as far as they exist. An unusable one is skipped, since
    /// another will be obtained.
    pub obtained: Vec<PathBuf>,
    /// CAs trusted in addition to the system's: a certificate signed by one of them needs no others in its chain.
    pub ca_files: Vec<PathBuf>,
    /// Folder of the self-signed certificate, and the host name.
    pub own: (PathBuf, String),
}

/// Why there is no certificate.
#[derive(Debug)]
pub enum SourceError {
    Files(Vec<IdentityError>),
    /// The self-signed one could not be created.
    Own(io::Error),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Files(errors) => {
                f.write_str(&errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            }
            SourceError::Own(error) => write!(f, "the certificate could not be created: {error}"),
        }
    }
}

impl std::error::Error for SourceError {}

impl Source {
    /// Loads all certificates. Blocks.
    ///
    /// # Errors
    /// One of `files` cannot be used, or there is no other and none can be created.
    pub fn load(&self, now: i64) -> Result<Identities, SourceError> {
        if let Some(found) = self.found(now).map_err(SourceError::Files)? {
            return Ok(found);
        }
        let (folder, host) = &self.own;
        Identities::self_signed(folder, host, now).map_err(SourceError::Own)
    }

    /// Loads all certificates except the self-signed one.
    ///
    /// # Errors
    /// One of `files` cannot be used.
    pub fn found(&self, now: i64) -> Result<Option<Identities>, Vec<IdentityError>> {
        let mut all = Identities::load_all(&self.files, now)?;
        for path in &self.obtained {
            match obtained(path, now) {
                Ok(identity) => all.extend(identity),
                Err(why) => tracing::warn!(file = %path.display(), %why, "a certificate is unusable"),
            }
        }
        self.forgive(&mut all);
        Ok(Identities::new(all))
    }

    /// Removes the warning about a chain of one certificate if a root has signed it. The CAs are read only if there
    /// is such a chain.
    fn forgive(&self, all: &mut [Identity]) {
        let mut doubted = all.iter_mut().filter(|one| one.warnings.contains(&Warning::NoIntermediate)).peekable();
        if doubted.peek().is_none() {
            return;
        }
        let files = self.ca_files.iter().filter_map(|file| Roots::from_file(file).ok());
        let roots: Vec<Roots> = files.chain([Roots::of_system()]).collect();
        for identity in doubted {
            let Some(leaf) = identity.key.cert.first() else { continue };
            if roots.iter().any(|roots| roots.have_issuer_of(leaf)) {
                identity.warnings.retain(|warning| *warning != Warning::NoIntermediate);
            }
        }
    }
}

/// `None` if there is no file. Obtained certificates are renewed automatically, so only an expired one causes a
/// warning.
fn obtained(path: &Path, now: i64) -> Result<Option<Identity>, String> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(None);
    }
    let (text, _) = read(path).map_err(|error| unreadable(&error))?;
    let mut identity = Identity::from_bundle(&text)?;
    identity.warnings.extend(identity.dates(now).filter(|warning| !matches!(warning, Warning::EndsSoon { .. })));
    identity.files = Some(Files { chain: path.to_owned(), key: path.to_owned() });
    Ok(Some(identity))
}
