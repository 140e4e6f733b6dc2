//! Files of private keys. All functions block.
//!
//! Promise: a pair's files are durable when [`create`] returns, readable only by the server's user, and never replaced.
//! Failure: a [`KeyFolderError`], after which the pair does not count as made.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stentor_core::files::{read, replace};
use stentor_dkim::rotation::{KeyPair, KeyRotation, selector_of};
use stentor_dkim::{Algorithm, KeyError, Signer, SigningKey};
use stentor_records::record::Ms;

const FOLDER_MODE: u32 = 0o700;
const KEY_MODE: u32 = 0o600;
/// Maximum size of a key file.
const KEY_BYTES_MAX: u64 = 64 * 1024;
pub const ALGORITHMS: [Algorithm; 2] = [Algorithm::RsaSha256, Algorithm::Ed25519Sha256];

/// Why keys cannot be made, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum KeyFolderError {
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("{path}: there is no such file; restore it from a backup")]
    Missing { path: String },
    #[error("{path}: {source}")]
    Key { path: String, source: KeyError },
    #[error("{path}: the key is not the one that is published; restore the file")]
    Other { path: String },
}

/// The key files of one domain.
#[derive(Clone, Debug)]
pub struct KeyFolder {
    pub folder: PathBuf,
    pub domain: String,
}

impl KeyFolder {
    fn path(&self, selector: &str) -> PathBuf {
        self.folder.join(format!("{}.{selector}.pem", self.domain))
    }

    /// Makes the folder.
    pub fn prepare(&self) -> Result<(), KeyFolderError> {
        let failed = |source| KeyFolderError::File { path: self.folder.display().to_string(), source };
        if !self.folder.is_dir() {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.folder).map_err(failed)?;
            sync(self.folder.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes a pair under a selector that neither the state nor a file has. A file without a state is of a start that
    /// crashed, or of a state that was lost; it stays.
    pub fn create(&self, rotation: &KeyRotation, is_urgent: bool, now: Ms) -> Result<KeyPair, KeyFolderError> {
        self.prepare()?;
        let has_file = |selector: &str| ALGORITHMS.iter().any(|one| self.path(&selector_of(selector, *one)).exists());
        let selector = KeyRotation::new_selector(now, |taken| rotation.pair(taken).is_some() || has_file(taken));
        let rsa = self.generate(&selector, Algorithm::RsaSha256)?;
        let ed25519 = self.generate(&selector, Algorithm::Ed25519Sha256)?;
        Ok(KeyPair::new(selector, &rsa, &ed25519, is_urgent, now))
    }

    fn generate(&self, selector: &str, algorithm: Algorithm) -> Result<SigningKey, KeyFolderError> {
        let path = self.path(&selector_of(selector, algorithm));
        let shown = path.display().to_string();
        let generated = SigningKey::generate(algorithm);
        let made = generated.map_err(|source| KeyFolderError::Key { path: shown.clone(), source })?;
        replace(&path, made.pem.as_bytes(), KEY_MODE).map_err(|source| KeyFolderError::File { path: shown, source })?;
        Ok(made.key)
    }

    /// Reads the keys of a pair.
    pub fn signers(&self, pair: &KeyPair) -> Result<Arc<[Signer]>, KeyFolderError> {
        ALGORITHMS.iter().map(|algorithm| self.signer(pair, *algorithm)).collect()
    }

    fn signer(&self, pair: &KeyPair, algorithm: Algorithm) -> Result<Signer, KeyFolderError> {
        let selector = pair.selector_of(algorithm);
        let file = self.path(&selector);
        let path = file.display().to_string();
        let octets = match read(&file, KEY_BYTES_MAX) {
            Ok(Some(octets)) => octets,
            Ok(None) => return Err(KeyFolderError::Missing { path }),
            Err(source) => return Err(KeyFolderError::File { path, source }),
        };
        let octets = zeroize::Zeroizing::new(octets);
        let key = match SigningKey::from_pem(&octets) {
            Ok(key) => key,
            Err(source) => return Err(KeyFolderError::Key { path, source }),
        };
        if key.record() != pair.record_of(algorithm) {
            return Err(KeyFolderError::Other { path });
        }
        Ok(Signer { domain: self.domain.as_str().into(), selector: selector.into(), key: Arc::new(key) })
    }

    /// Removes the files of a pair, as far as they exist.
    pub fn remove(&self, selector: &str) -> Result<(), KeyFolderError> {
        for algorithm in ALGORITHMS {
            let path = self.path(&selector_of(selector, algorithm));
            match fs::remove_file(&path) {
                Err(source) if source.kind() != ErrorKind::NotFound => {
                    return Err(KeyFolderError::File { path: path.display().to_string(), source });
                }
                _ => {}
            }
        }
        let failed = |source| KeyFolderError::File { path: self.folder.display().to_string(), source };
        sync(&self.folder).map_err(failed)
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW: Ms = 1_796_040_000_000;

    #[test]
    fn pairs_are_private_and_never_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let keys = KeyFolder { folder: parent.path().join("dkim"), domain: "example.org".to_owned() };
        let first = keys.create(&KeyRotation::default(), false, NOW).unwrap();
        assert_eq!(first.selector, "s20261130");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&keys.folder), FOLDER_MODE);
        let path = keys.folder.join("example.org.s20261130-ed25519.pem");
        assert_eq!(mode(&path), KEY_MODE);
        // As after a crash before the state was written.
        let second = keys.create(&KeyRotation::default(), true, NOW).unwrap();
        assert_eq!((&*second.selector, second.is_urgent), ("s20261130-2", true));
        let signers = keys.signers(&first).unwrap();
        let selectors: Vec<&str> = signers.iter().map(|one| &*one.selector).collect();
        assert_eq!(selectors, ["s20261130", "s20261130-ed25519"]);
        assert_eq!(signers[1].key.record(), first.ed25519_record);

        fs::copy(keys.folder.join("example.org.s20261130-2-ed25519.pem"), &path).unwrap();
        assert!(matches!(keys.signers(&first), Err(KeyFolderError::Other { .. })));
        fs::write(&path, "hello").unwrap();
        assert!(matches!(keys.signers(&first), Err(KeyFolderError::Key { .. })));
        fs::remove_file(&path).unwrap();
        assert!(matches!(keys.signers(&first), Err(KeyFolderError::Missing { .. })));
        keys.remove(&first.selector).unwrap();
        keys.remove(&first.selector).unwrap();
        assert_eq!(fs::read_dir(&keys.folder).unwrap().count(), 2);
        keys.signers(&second).unwrap();
    }
}
