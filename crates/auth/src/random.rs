//! Random numbers from the system, and the server's secret for users that do not exist.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64ct::{Base64UrlUnpadded, Encoding as _};

/// Random octets of a nonce.
const NONCE_BYTES: usize = 24;

/// Returns random octets.
///
/// # Panics
/// If the system has no random numbers: nothing would be safe then.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A random nonce: printable, without commas.
pub(crate) fn nonce() -> String {
    Base64UrlUnpadded::encode_string(&random::<NONCE_BYTES>())
}

/// Loads or creates the secret from which salts of unknown users are derived. It stays the same over restarts, since a
/// changing salt would reveal which users do not exist. Blocks.
pub fn load_secret(path: &Path) -> io::Result<[u8; 32]> {
    let read = |mut file: File| -> io::Result<[u8; 32]> {
        let mut secret = [0; 32];
        file.read_exact(&mut secret)?;
        Ok(secret)
    };
    match File::open(path) {
        Ok(file) => return read(file),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let secret = random::<32>();
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    // A crash must not revert it, since salts would change.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret = load_secret(&path).unwrap();
        assert_eq!(load_secret(&path).unwrap(), secret);
        std::fs::write(&path, "short").unwrap();
        assert!(load_secret(&path).is_err());
        assert!(load_secret(&folder.path().join("none/secret")).is_err());
    }

    #[test]
    fn nonces_differ_and_are_printable() {
        assert_ne!(nonce(), nonce());
        assert!(nonce().len() == 32 && nonce().bytes().all(|octet| octet.is_ascii_graphic() && octet != b','));
    }
}
