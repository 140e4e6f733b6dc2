//! Secrets of `[http]`: creating, hashing and comparing them.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, Params};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use sha2::{Digest, Sha256};

/// Memory that checking a configured password may take, KiB.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Passes over it.
const PASSES_MAX: u32 = 64;

/// A program's key for the HTTP API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub name: Arc<str>,
    /// SHA-256 of its text.
    pub hash: [u8; 32],
    pub read_only: bool,
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Compares in constant time.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Random octets.
///
/// # Panics
/// If the system has no random numbers: nothing would be safe then.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A secret as text without characters that need quoting.
pub fn random_text() -> String {
    Base64UrlUnpadded::encode_string(&random::<32>())
}

/// An argon2id hash with the parameters that OWASP recommends (19 MiB, two passes).
pub fn hash(password: &str) -> Result<String, String> {
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &random::<16>());
    hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

/// What is wrong with a configured hash, if anything.
pub fn check_hash(text: &str) -> Result<(), String> {
    let hash = PasswordHash::new(text).map_err(|error| error.to_string())?;
    if hash.algorithm.as_str() != "argon2id" || hash.hash.is_none() || hash.salt.is_none() {
        return Err("only complete argon2id hashes are taken".to_owned());
    }
    let params = Params::try_from(&hash).map_err(|error| error.to_string())?;
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX {
        return Err(format!("it asks for more than {MEMORY_KIB_MAX} KiB of memory or {PASSES_MAX} passes"));
    }
    Ok(())
}

pub fn verify(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A SHA-256 as the configuration has it.
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
