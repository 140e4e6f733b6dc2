//! What the tests of this crate share.

use stentor_dkim::rotation::{KeyPair, KeyPhase};

/// A key pair with files and without records.
pub fn pair(selector: &str, phase: KeyPhase) -> KeyPair {
    KeyPair {
        selector: selector.to_owned(),
        rsa_record: String::new(),
        ed25519_record: String::new(),
        phase,
        since: 0,
        cache_ms: 0,
        is_urgent: false,
        has_files: true,
    }
}
