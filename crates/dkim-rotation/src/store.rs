//! The durable states of key pairs, one file for each domain. All functions block.
//!
//! Promise: [`write()`] has replaced the state as a whole when it returns. A file of a newer version, or a damaged one,
//! is an error and stays as it is: without the state, published keys would be forgotten.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stentor_core::files;
use stentor_dkim::rotation::KeyRotation;

use crate::key_files::KeyFolder;

const VERSION: u32 = 1;
const MODE: u32 = 0o600;
/// Maximum size of a state: about 32 pairs of 1 KiB.
const BYTES_MAX: u64 = 1024 * 1024;

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{}: damaged: {why}; restore it from a backup, or move it away to begin with new keys",
        path.display()
    )]
    Damaged { path: PathBuf, why: String },
    #[error("{}: version {version}, and this program reads version {VERSION}; run the newer program", path.display())]
    Newer { path: PathBuf, version: u32 },
}

#[derive(Serialize, Deserialize)]
struct StoredState {
    version: u32,
    #[serde(flatten)]
    rotation: KeyRotation,
}

/// Only the version, which every version has.
#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

fn path(keys: &KeyFolder) -> PathBuf {
    keys.folder.join(format!("{}.json", keys.domain))
}

/// Reads the state of a domain; empty if there is none yet.
pub fn read(keys: &KeyFolder) -> Result<KeyRotation, StoreError> {
    let path = path(keys);
    let octets = match files::read(&path, BYTES_MAX) {
        Ok(Some(octets)) => octets,
        Ok(None) => return Ok(KeyRotation::default()),
        Err(source) => return Err(StoreError::File { path, source }),
    };
    match serde_json::from_slice::<StoredVersion>(&octets) {
        Ok(StoredVersion { version }) if version > VERSION => return Err(StoreError::Newer { path, version }),
        Ok(_) => {}
        Err(error) => return Err(StoreError::Damaged { path, why: error.to_string() }),
    }
    let stored = serde_json::from_slice::<StoredState>(&octets);
    stored.map(|stored| stored.rotation).map_err(|error| StoreError::Damaged { path, why: error.to_string() })
}

/// Replaces the state of a domain, durably.
pub fn write(keys: &KeyFolder, rotation: &KeyRotation) -> Result<(), StoreError> {
    let path = path(keys);
    let state = StoredState { version: VERSION, rotation: rotation.clone() };
    let octets = match serde_json::to_vec(&state) {
        Ok(octets) => octets,
        Err(error) => return Err(StoreError::File { path, source: io::Error::other(error) }),
    };
    files::replace(&path, &octets, MODE).map_err(|source| StoreError::File { path, source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn states_are_read_as_written_and_damage_is_not_an_empty_state() {
        let parent = tempfile::tempdir().unwrap();
        let keys = KeyFolder { folder: parent.path().join("dkim"), domain: "example.org".to_owned() };
        assert_eq!(read(&keys).unwrap(), KeyRotation::default());
        let pair = keys.create(&KeyRotation::default(), true, 7).unwrap();
        let state = KeyRotation::default().with(pair);
        write(&keys, &state).unwrap();
        assert_eq!(read(&keys).unwrap(), state);
        let path = path(&keys);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(matches!(read(&keys), Err(StoreError::Damaged { .. })));
        fs::write(&path, text.replace("\"version\":1", "\"version\":2")).unwrap();
        assert!(matches!(read(&keys), Err(StoreError::Newer { version: 2, .. })));
    }
}
