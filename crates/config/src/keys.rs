//! Creates, hashes and compares the secrets of `[http]`.

use std::sync::Arc;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest, Sha256};
pub use stentor_sasl::is_same;
pub use stentor_users::password::{check_hash, verify};

/// A program's key for the HTTP API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiToken {
    pub name: Arc<str>,
    /// SHA-256 of the token's text.
    pub hash: [u8; 32],
    pub read_only: bool,
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns random octets.
///
/// # Panics
/// The system has no random numbers: nothing would be secure then.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// Creates a secret as text without characters that need quoting.
pub fn random_text() -> String {
    Base64UrlUnpadded::encode_string(&random::<32>())
}

/// Hashes a password with argon2id, in the format of the users file.
pub fn hash(password: &str) -> Result<String, String> {
    stentor_users::password::hash(password, &random())
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses a SHA-256 in hexadecimal.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}
