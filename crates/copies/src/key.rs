//! The key that seals tags and tokens: 32 octets, separated by use, so that no seal of one kind is valid for another.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Octets of a key.
pub const KEY_BYTES: usize = 32;

/// The use of a seal; each has its own context.
#[derive(Clone, Copy)]
pub(crate) enum SealUse {
    Verp,
    Unsubscribe,
}

impl SealUse {
    fn context(self) -> &'static [u8] {
        match self {
            SealUse::Verp => b"stentor return path 1\0",
            SealUse::Unsubscribe => b"stentor unsubscribe 1\0",
        }
    }
}

/// The server's key for copies.
#[derive(Clone)]
pub struct CopyKey {
    mac: Hmac<Sha256>,
}

impl CopyKey {
    pub fn new(key: &[u8; KEY_BYTES]) -> CopyKey {
        // HMAC accepts keys of any length.
        CopyKey { mac: Hmac::new_from_slice(key).expect("an HMAC key has any length") }
    }

    pub(crate) fn seal(&self, purpose: SealUse, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(purpose.context());
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl std::fmt::Debug for CopyKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CopyKey")
    }
}
