//! The key files of `[[dkim]]`. They are read at the start, at a reload, and by `stentor check` and `stentor dkim
//! show`; errors point to the key that names the file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use stentor_dkim::{Algorithm, KeyError, RSA_BITS_USUAL_MAX, Signer, SigningKey};
use zeroize::Zeroizing;

use super::configuration::Config;
use super::diagnose::{Diagnostic, FilePosition, Severity};
use super::dkim::{DkimConfig, DkimKeyFile};

/// Maximum size of a key file.
const KEY_BYTES_MAX: u64 = 64 * 1024;
/// Mode bit with which all users of the machine read a file.
const OTHERS_READ: u32 = 0o004;

/// A domain with its keys read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DkimDomain {
    pub config: DkimConfig,
    pub signers: Arc<[Signer]>,
}

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("there is no such file; `stentor dkim new DOMAIN` makes one")]
    Missing,
    #[error("permission denied: the server's user must be able to read it")]
    Denied,
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("both keys are {0}: the second key must have the other algorithm")]
    SameAlgorithm(&'static str),
}

impl Config {
    /// Reads the keys of `[[dkim]]`. Warns of files that all users of the machine can read, and of long RSA keys.
    ///
    /// # Errors
    /// All files that cannot be used, at the keys that name them.
    pub fn dkim_domains(&self) -> Result<DkimKeys, Vec<Diagnostic>> {
        let (mut keys, mut errors) = (DkimKeys::default(), Vec::new());
        for config in &self.dkim {
            let mut signers: Vec<Signer> = Vec::new();
            for file in &config.keys {
                match signer(config, file, &signers) {
                    Ok((signer, mode)) => {
                        if mode & OTHERS_READ != 0 {
                            let shown = file.path.display();
                            let message = format!(
                                "{shown}: every user can read this private key (mode {:03o}): run `chmod o= {shown}`",
                                mode & 0o777
                            );
                            keys.warnings.push(self.dkim_finding(file, Severity::Warning, message));
                        }
                        if let Some(message) = signer.key.rsa_bits().and_then(too_long) {
                            let message = format!("{}: {message}", file.path.display());
                            keys.warnings.push(self.dkim_finding(file, Severity::Warning, message));
                        }
                        signers.push(signer);
                    }
                    Err(error) => {
                        let message = format!("{}: {error}", file.path.display());
                        errors.push(self.dkim_finding(file, Severity::Error, message));
                    }
                }
            }
            keys.domains.push(DkimDomain { config: config.clone(), signers: signers.into() });
        }
        if errors.is_empty() { Ok(keys) } else { Err(errors) }
    }

    fn dkim_finding(&self, file: &DkimKeyFile, severity: Severity, message: String) -> Diagnostic {
        let FilePosition { line, column } = file.named_at;
        Diagnostic { file: self.file.clone().unwrap_or_default(), line, column, severity, message }
    }
}

/// The domains that sign, and doubts about their key files.
#[derive(Debug, Default)]
pub struct DkimKeys {
    pub domains: Vec<DkimDomain>,
    pub warnings: Vec<Diagnostic>,
}

fn signer(config: &DkimConfig, file: &DkimKeyFile, others: &[Signer]) -> Result<(Signer, u32), KeyFileError> {
    let KeyFile { octets, mode } = read_file(&file.path)?;
    let key = SigningKey::from_pem(&octets)?;
    if others.iter().any(|other| other.key.algorithm() == key.algorithm()) {
        let name = match key.algorithm() {
            Algorithm::RsaSha256 => "RSA",
            Algorithm::Ed25519Sha256 => "Ed25519",
        };
        return Err(KeyFileError::SameAlgorithm(name));
    }
    Ok((Signer { domain: (&*config.domain).into(), selector: (&*file.selector).into(), key: Arc::new(key) }, mode))
}

/// Doubts about an RSA key of this length.
fn too_long(bits: usize) -> Option<String> {
    (bits > RSA_BITS_USUAL_MAX).then(|| {
        format!(
            "the RSA key has {bits} bits; many receivers verify only up to {RSA_BITS_USUAL_MAX} and count the signature \
             as failed: make one of 2048 bits with `stentor dkim new DOMAIN`"
        )
    })
}

struct KeyFile {
    octets: Zeroizing<Vec<u8>>,
    mode: u32,
}

fn read_file(path: &Path) -> Result<KeyFile, KeyFileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing,
        io::ErrorKind::PermissionDenied => KeyFileError::Denied,
        _ => KeyFileError::Unreadable(error),
    };
    // Opening a pipe would block until there is a writer.
    let meta = std::fs::metadata(path).map_err(failed)?;
    if !meta.is_file() || meta.len() > KEY_BYTES_MAX {
        return Err(KeyFileError::Unreadable(io::Error::other("it is not a key file")));
    }
    let mut octets = Zeroizing::new(Vec::with_capacity(meta.len() as usize + 1));
    let file = File::open(path).map_err(failed)?;
    file.take(KEY_BYTES_MAX).read_to_end(&mut octets).map_err(failed)?;
    Ok(KeyFile { octets, mode: meta.mode() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::check_text;
    use super::*;

    #[test]
    fn key_files_are_read_and_faults_are_at_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, algorithm, mode| {
            let path = folder.path().join(name);
            fs::write(&path, SigningKey::generate(algorithm).unwrap().pem.as_bytes()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("rsa", Algorithm::RsaSha256, 0o600);
        write("ed", Algorithm::Ed25519Sha256, 0o644);
        let file = folder.path().join("stentor.toml");
        let read = |first: &str, second: &str| {
            let text = format!(
                "[[dkim]]\ndomain = \"example.org\"\nselector = \"a\"\nkey = \"{first}\"\nsecond_selector = \"b\"\n\
                 second_key = \"{second}\"\n"
            );
            check_text(&file, &text).unwrap().dkim_domains()
        };
        let keys = read("rsa", "ed").unwrap();
        let algorithms: Vec<Algorithm> = keys.domains[0].signers.iter().map(|one| one.key.algorithm()).collect();
        assert_eq!(algorithms, [Algorithm::RsaSha256, Algorithm::Ed25519Sha256]);
        assert_eq!((keys.warnings.len(), keys.warnings[0].line), (1, 6));
        assert!(keys.warnings[0].message.contains("every user can read this private key (mode 644)"));
        let errors = |first, second| -> Vec<(usize, String)> {
            read(first, second).unwrap_err().into_iter().map(|found| (found.line, found.message)).collect()
        };
        let found = errors("nothing", "stentor.toml.missing");
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [4, 6]);
        assert!(found[0].1.contains("there is no such file"), "{found:?}");
        let same = errors("rsa", "rsa");
        assert!(same[0].1.contains("both keys are RSA"), "{same:?}");
        assert_eq!((too_long(2048), too_long(RSA_BITS_USUAL_MAX)), (None, None));
        assert!(too_long(5120).is_some_and(|message| message.contains("has 5120 bits")));
        fs::write(folder.path().join("text"), "hello").unwrap();
        assert!(errors("text", "ed")[0].1.contains("contains no private key"));
    }
}
