//! The SCRAM keys that a server stores for a password, and the computations of both sides (RFC 5802 section 3).
//!
//! The text form is that of `PostgreSQL` and others: `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, the last
//! three in base64.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroize as _;

use crate::limits::{ITERATIONS_MAX, ITERATIONS_MIN, PASSWORD_BYTES_MAX, SALT_BYTES_MAX};
use crate::prep::{PrepError, prepare};
use crate::secret::is_same;

/// Octets of a SHA-256 hash and of all keys.
pub(crate) const KEY_BYTES: usize = 32;
pub(crate) type Key = [u8; KEY_BYTES];

const PREFIX: &str = "SCRAM-SHA-256$";
/// Maximum length of the text: a salt of [`SALT_BYTES_MAX`] and two keys.
const TEXT_BYTES_MAX: usize = 512;
/// Octets of made-up salts for unknown users; same as for real ones.
const SALT_BYTES: usize = 16;

/// The keys of one user.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
    pub(crate) stored_key: Key,
    pub(crate) server_key: Key,
    /// Made up: no proof matches.
    pub(crate) is_made_up: bool,
}

/// Why a text is not a valid form of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("not of the form SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY")]
    Form,
    #[error("salt or keys are not base64, or have a wrong length")]
    Base64,
    #[error("fewer than {ITERATIONS_MIN} iterations, or more than {ITERATIONS_MAX}")]
    Iterations,
}

pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> Key {
    // HMAC accepts keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(crate) fn hash(octets: &[u8]) -> Key {
    Sha256::digest(octets).into()
}

pub(crate) fn xor(a: &Key, b: &Key) -> Key {
    std::array::from_fn(|at| a[at] ^ b[at])
}

/// `Hi()`: PBKDF2 with HMAC-SHA-256 for one block.
pub(crate) fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let keyed = Hmac::<Sha256>::new_from_slice(password).expect("any length is a key");
    let mut last: Key = keyed.clone().chain_update(salt).chain_update([0, 0, 0, 1]).finalize().into_bytes().into();
    let mut sum = last;
    for _ in 1..iterations {
        last = keyed.clone().chain_update(last).finalize().into_bytes().into();
        sum = xor(&sum, &last);
    }
    sum
}

pub(crate) fn client_key(salted: &Key) -> Key {
    mac(salted, &[b"Client Key"])
}

pub(crate) fn server_key(salted: &Key) -> Key {
    mac(salted, &[b"Server Key"])
}

impl ScramKeys {
    /// Derives the keys of a password. The duration depends on `iterations`: do not call it on a thread that must not
    /// wait.
    pub fn new(password: &str, salt: &[u8], iterations: u32) -> Result<ScramKeys, PrepError> {
        let prepared = prepare(password, PASSWORD_BYTES_MAX)?;
        let iterations = iterations.clamp(ITERATIONS_MIN, ITERATIONS_MAX);
        let mut salted = salted_password(prepared.as_bytes(), salt, iterations);
        let mut client = client_key(&salted);
        let keys = ScramKeys {
            salt: salt.to_vec(),
            iterations,
            stored_key: hash(&client),
            server_key: server_key(&salted),
            is_made_up: false,
        };
        salted.zeroize();
        client.zeroize();
        Ok(keys)
    }

    /// Made-up keys for an unknown user: always the same for a name, so that asking twice reveals nothing. No proof
    /// matches them. `secret` is the server's own, and stays the same over restarts; `iterations` must be those of real
    /// users.
    pub fn made_up(secret: &[u8; 32], user: &str, iterations: u32) -> ScramKeys {
        let of = |what: &[u8]| mac(secret, &[what, b"\0", user.as_bytes()]);
        ScramKeys {
            salt: of(b"salt")[..SALT_BYTES].to_vec(),
            iterations,
            stored_key: of(b"stored key"),
            server_key: of(b"server key"),
            is_made_up: true,
        }
    }

    /// Whether this is the user's password: for PLAIN and LOGIN without another stored form. Takes as long as
    /// [`ScramKeys::new`].
    pub fn is_password(&self, password: &str) -> bool {
        match ScramKeys::new(password, &self.salt, self.iterations) {
            Ok(keys) => is_same(&keys.stored_key, &self.stored_key) && !self.is_made_up,
            Err(_) => false,
        }
    }

    pub fn iterations(&self) -> u32 {
        self.iterations
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScramKeys").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl fmt::Display for ScramKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |octets: &[u8]| Base64::encode_string(octets);
        let (salt, stored, server) = (text(&self.salt), text(&self.stored_key), text(&self.server_key));
        write!(out, "{PREFIX}{}:{salt}${stored}:{server}", self.iterations)
    }
}

impl FromStr for ScramKeys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<ScramKeys, KeysError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(KeysError::Form);
        }
        let rest = text.strip_prefix(PREFIX).ok_or(KeysError::Form)?;
        let (head, keys) = rest.split_once('$').ok_or(KeysError::Form)?;
        let (iterations, salt) = head.split_once(':').ok_or(KeysError::Form)?;
        let (stored, server) = keys.split_once(':').ok_or(KeysError::Form)?;
        if !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(KeysError::Form);
        }
        let iterations = iterations.parse().map_err(|_| KeysError::Iterations)?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(KeysError::Iterations);
        }
        let octets = |text: &str| Base64::decode_vec(text).map_err(|_| KeysError::Base64);
        let key = |text: &str| Key::try_from(octets(text)?).map_err(|_| KeysError::Base64);
        let salt = octets(salt)?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            return Err(KeysError::Base64);
        }
        Ok(ScramKeys { salt, iterations, stored_key: key(stored)?, server_key: key(server)?, is_made_up: false })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The vectors of RFC 7914 section 11.
    #[test]
    fn pbkdf2_is_that_of_the_rfc() {
        let of = |password: &str, salt: &str, count| {
            Base64::encode_string(&salted_password(password.as_bytes(), salt.as_bytes(), count))
        };
        assert_eq!(of("passwd", "salt", 1), "VawEblbjCJ/sFpHCJUS2BflBhSFt3gRl5oudV8INrLw=");
        assert_eq!(of("Password", "NaCl", 80_000), "TdzY9guYviGDDO5e8icB+WQaRBjQTAQUrv8Ih2s0q1Y=");
    }

    /// Computed with Python's hashlib for RFC 7677's example.
    #[test]
    fn keys_are_those_of_the_password() {
        let salt = Base64::decode_vec("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let keys = ScramKeys::new("pencil", &salt, 4_096).unwrap();
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(keys.to_string(), text);
        assert_eq!(text.parse(), Ok(keys.clone()));
        assert!(keys.is_password("pencil") && !keys.is_password("pencils") && !keys.is_password(""));
        assert!(!format!("{keys:?}").contains("WG5d"));
    }

    #[test]
    fn what_is_not_keys_is_refused() {
        let good = ScramKeys::new("x", b"salt", 4_096).unwrap().to_string();
        for (text, wanted) in [
            (good.replace("SHA-256", "SHA-1"), KeysError::Form),
            (good.replace(":4", ":+4").replace("$4096", "$+4096"), KeysError::Form),
            (good.replace("$4096", "$1000"), KeysError::Iterations),
            (good.replace("$4096", "$99999999999"), KeysError::Iterations),
            (good.replace("c2FsdA==", "c2FsdA="), KeysError::Base64),
            (good.replace("c2FsdA==", ""), KeysError::Base64),
            (good[..good.len() - 4].to_owned(), KeysError::Base64),
            ("x".repeat(10_000), KeysError::Form),
        ] {
            assert_eq!(text.parse::<ScramKeys>(), Err(wanted), "{text}");
        }
    }

    #[test]
    fn made_up_keys_stay_the_same_and_fit_nobody() {
        let of = |secret: u8, user: &str| ScramKeys::made_up(&[secret; 32], user, 4_096);
        assert_eq!(of(1, "ann"), of(1, "ann"));
        assert_ne!(of(1, "ann").salt, of(1, "bob").salt);
        assert_ne!(of(1, "ann").salt, of(2, "ann").salt);
        assert_eq!(of(1, "ann").salt.len(), SALT_BYTES);
        assert!(!of(1, "ann").is_password("x"));
    }

    proptest! {
        #[test]
        fn any_text_is_keys_or_an_error(text in "(SCRAM-SHA-256\\$)?[0-9]{0,6}:?[A-Za-z0-9+/=]{0,40}\\$?[A-Za-z0-9+/=]{0,44}:?[A-Za-z0-9+/=]{0,44}") {
            if let Ok(keys) = text.parse::<ScramKeys>() {
                prop_assert_eq!(keys.to_string(), text);
            }
        }
    }
}
