//! Links with which recipients view and release their own quarantined mail.
//!
//! Promise: a link is for one message and one recipient, and valid until the message expires. It is sealed by
//! HMAC-SHA-256 with a key of this server alone (`quarantine.key` in the data directory, mode 0600), created with the
//! first link; nobody without the key can create or alter one. The seal is compared in constant time before anything
//! else is examined.
//!
//! Failure: a key that cannot be read or created is an error for whoever creates links, and no link opens. Removing the
//! file invalidates all links.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use stentor_core::secret_key::{self, KEY_BYTES};
use stentor_queue::ids::{MessageId, Ms};

const FILE: &str = "quarantine.key";
const SEAL_BYTES: usize = 32;
/// Context of the seal, and layout of a token: message, expiry (8 octets each, big-endian), recipient, seal.
const CONTEXT: &[u8] = b"stentor quarantine link 1\0";
const FIXED_BYTES: usize = 16;
/// Longest token accepted: an address has at most 254 octets.
const TOKEN_BYTES_MAX: usize = 512;
/// Maximum releases remembered, so that a second click is told about the first.
const RELEASED_MAX: usize = 10_000;

/// The subject of a link.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinkSubject {
    pub message: MessageId,
    pub expires: Ms,
    pub recipient: String,
}

/// Creates and opens links; see the module's documentation.
#[derive(Default)]
pub struct Links {
    path: PathBuf,
    key: OnceLock<[u8; KEY_BYTES]>,
    released: Mutex<(HashSet<LinkSubject>, VecDeque<LinkSubject>)>,
}

impl Links {
    /// Loads the existing key, if any. Blocks.
    pub fn load(data_dir: &Path) -> Links {
        let links = Links { path: data_dir.join(FILE), ..Links::default() };
        match secret_key::read(&links.path) {
            Ok(Some(key)) => drop(links.key.set(key)),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(path = %links.path.display(), %error, "quarantine digest links will not work");
            }
        }
        links
    }

    /// The key, created durably if missing. Blocks.
    fn key(&self) -> io::Result<&[u8; KEY_BYTES]> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let key = secret_key::read_or_create(&self.path)?;
        Ok(self.key.get_or_init(|| key))
    }

    /// The token of a link. Blocks.
    ///
    /// # Errors
    /// There is no key and none can be created.
    pub fn seal(&self, ticket: &LinkSubject) -> io::Result<String> {
        let mut octets = [ticket.message.0.to_be_bytes(), ticket.expires.to_be_bytes()].concat();
        octets.extend_from_slice(ticket.recipient.as_bytes());
        let seal = mac(self.key()?, &octets).finalize().into_bytes();
        octets.extend_from_slice(&seal);
        Ok(Base64UrlUnpadded::encode_string(&octets))
    }

    /// Verifies a token; `None` if it is not ours, or has expired.
    pub fn open(&self, token: &str, now: Ms) -> Option<LinkSubject> {
        let key = self.key.get()?;
        let octets = Some(token).filter(|token| token.len() <= TOKEN_BYTES_MAX)?;
        let octets = Base64UrlUnpadded::decode_vec(octets).ok()?;
        let (body, seal) = octets.split_at_checked(octets.len().checked_sub(SEAL_BYTES)?)?;
        mac(key, body).verify_slice(seal).ok()?;
        let (fixed, recipient) = body.split_at_checked(FIXED_BYTES)?;
        let number = |at: usize| fixed[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        let (message, expires) = (MessageId(number(0)?), number(8)?);
        let recipient = String::from_utf8(recipient.to_vec()).ok()?;
        (now < expires).then_some(LinkSubject { message, expires, recipient })
    }

    /// Remembers a release.
    pub fn released(&self, ticket: &LinkSubject) {
        let mut released = self.released.lock();
        let (known, order) = &mut *released;
        if known.insert(ticket.clone()) {
            order.push_back(ticket.clone());
        }
        if order.len() > RELEASED_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    /// Whether this link has released its message, as far as remembered.
    pub fn has_released(&self, ticket: &LinkSubject) -> bool {
        self.released.lock().0.contains(ticket)
    }
}

fn mac(key: &[u8; KEY_BYTES], body: &[u8]) -> Hmac<Sha256> {
    // HMAC accepts keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("an HMAC key has any length");
    mac.update(CONTEXT);
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn ticket(recipient: &str) -> LinkSubject {
        LinkSubject { message: MessageId(7), expires: 100, recipient: recipient.to_owned() }
    }

    #[test]
    fn a_link_opens_what_it_was_made_for_until_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let links = Links::load(folder.path());
        let token = links.seal(&ticket("ann@x.example")).unwrap();
        assert_eq!(links.open(&token, 99), Some(ticket("ann@x.example")));
        assert_eq!(links.open(&token, 100), None, "it is over");
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Links::load(folder.path()).open(&token, 0), Some(ticket("ann@x.example")), "after a start, too");
        let other = tempfile::tempdir().unwrap();
        let others = Links::load(other.path());
        assert_eq!(others.open(&token, 0), None, "without a key");
        others.seal(&ticket("x@y")).unwrap();
        assert_eq!(others.open(&token, 0), None, "another server's");
    }

    #[test]
    fn whatever_is_changed_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let links = Links::load(folder.path());
        let token = links.seal(&ticket("ann@x.example")).unwrap();
        let octets = Base64UrlUnpadded::decode_vec(&token).unwrap();
        for at in 0..octets.len() {
            for bit in 0..8 {
                let mut changed = octets.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(links.open(&Base64UrlUnpadded::encode_string(&changed), 0), None, "{at}.{bit}");
            }
            assert_eq!(links.open(&Base64UrlUnpadded::encode_string(&octets[..at]), 0), None, "{at} octets");
        }
        let bob = Base64UrlUnpadded::decode_vec(&links.seal(&ticket("bob@x.example")).unwrap()).unwrap();
        let mixed = [&octets[..octets.len() - SEAL_BYTES], &bob[bob.len() - SEAL_BYTES..]].concat();
        assert_eq!(links.open(&Base64UrlUnpadded::encode_string(&mixed), 0), None, "another recipient's seal");
        for bad in ["", "a", "/kept/", &format!("{token}="), &"A".repeat(5_000)] {
            assert_eq!(links.open(bad, 0), None, "{bad:.20}");
        }
    }

    #[test]
    fn a_damaged_key_is_not_taken_and_releases_are_remembered_for_some_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "short").unwrap();
        let links = Links::load(folder.path());
        assert!(links.seal(&ticket("ann@x.example")).unwrap_err().to_string().contains("remove the file"));
        for n in 0..=RELEASED_MAX {
            links.released(&ticket(&n.to_string()));
        }
        links.released(&ticket("5"));
        assert!(!links.has_released(&ticket("0")) && links.has_released(&ticket("1")));
        assert_eq!(links.released.lock().1.len(), RELEASED_MAX);
    }
}
