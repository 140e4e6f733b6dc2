//! The certificates in force, replaced as a whole while sessions continue, and those for ACME challenges.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;
use rustls::sign::CertifiedKey;

use super::{Identities, challenge};

/// Maximum challenges at a time.
const CHALLENGES_MAX: usize = 100;

#[derive(Debug)]
pub struct IdentityStore {
    current: RwLock<Arc<Identities>>,
    challenges: RwLock<HashMap<Box<str>, Arc<CertifiedKey>>>,
}

impl IdentityStore {
    pub fn new(identities: Identities) -> Arc<IdentityStore> {
        Arc::new(IdentityStore { current: RwLock::new(Arc::new(identities)), challenges: RwLock::default() })
    }

    /// Certificates for handshakes that begin now.
    pub fn current(&self) -> Arc<Identities> {
        self.current.read().clone()
    }

    /// Replaces the certificates for new handshakes. Existing sessions continue.
    pub fn replace(&self, identities: Identities) {
        *self.current.write() = Arc::new(identities);
    }

    /// Answers a `tls-alpn-01` challenge for this name: `digest` is the SHA-256 of the key authorization (RFC 8737
    /// section 3).
    pub fn put_challenge(&self, name: &str, digest: &[u8; 32]) -> Result<(), String> {
        let key = challenge::certificate(name, digest)?;
        let mut challenges = self.challenges.write();
        if challenges.len() >= CHALLENGES_MAX {
            return Err(format!("more than {CHALLENGES_MAX} challenges at a time"));
        }
        challenges.insert(name.to_ascii_lowercase().into(), key);
        Ok(())
    }

    pub fn remove_challenge(&self, name: &str) {
        self.challenges.write().remove(&*name.to_ascii_lowercase());
    }

    pub(crate) fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.challenges.read().get(&*name.to_ascii_lowercase()).cloned()
    }
}
