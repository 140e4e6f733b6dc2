//! The durable states of key pairs, in the registry, as JSON with a version.
//!
//! Promise: a state is durable when [`write()`] returns. One of a newer version, or a damaged one, is an error and
//! stays as it is: without the state, published keys would be forgotten.

use serde::{Deserialize, Serialize};
use stentor_dkim::rotation::KeyRotation;
use stentor_registry::{AddressRegistry, DkimState, RegistryError};

const VERSION: u32 = 1;

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("their state in the registry is damaged: {0}; restore the registry from a backup")]
    Damaged(String),
    #[error("their state has version {0}, and this program reads version {VERSION}; run the newer program")]
    Newer(u32),
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

/// Returns the state of a domain; empty if there is none yet.
pub fn read(registry: &AddressRegistry, domain: &str) -> Result<KeyRotation, StoreError> {
    let Some(text) = registry.dkim_state(domain) else { return Ok(KeyRotation::default()) };
    let damaged = |error: serde_json::Error| StoreError::Damaged(error.to_string());
    let StoredVersion { version } = serde_json::from_str(&text).map_err(damaged)?;
    if version > VERSION {
        return Err(StoreError::Newer(version));
    }
    serde_json::from_str(&text).map(|StoredState { rotation, .. }| rotation).map_err(damaged)
}

/// Replaces the state of a domain, durably.
pub async fn write(registry: &AddressRegistry, domain: &str, rotation: &KeyRotation) -> Result<(), StoreError> {
    let state = StoredState { version: VERSION, rotation: rotation.clone() };
    let state = serde_json::to_string(&state).map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(registry.set_dkim_state(DkimState { domain: domain.to_owned(), state }).await?)
}

#[cfg(test)]
mod tests {
    use stentor_dkim::rotation::{KeyPair, KeyPhase};

    use super::*;

    #[tokio::test]
    async fn states_are_read_as_written_and_damage_is_not_an_empty_state() {
        let registry = AddressRegistry::in_memory().unwrap();
        assert_eq!(read(&registry, "example.org").unwrap(), KeyRotation::default());
        let pair = KeyPair {
            selector: "a".to_owned(),
            rsa_record: "v=DKIM1; k=rsa; p=RRRR".to_owned(),
            ed25519_record: "v=DKIM1; k=ed25519; p=EEEE".to_owned(),
            phase: KeyPhase::InUse,
            since: 7,
            cache_ms: 8,
            is_urgent: true,
            has_files: true,
        };
        let state = KeyRotation::default().with(pair);
        write(&registry, "example.org", &state).await.unwrap();
        assert_eq!(read(&registry, "example.org").unwrap(), state);
        let text = registry.dkim_state("example.org").unwrap();
        let put = async |state: String| {
            let domain = "example.org".to_owned();
            registry.set_dkim_state(DkimState { domain, state }).await.unwrap();
            read(&registry, "example.org")
        };
        assert!(matches!(put(text[..text.len() / 2].to_owned()).await, Err(StoreError::Damaged(_))));
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(matches!(put(newer).await, Err(StoreError::Newer(2))));
    }
}
