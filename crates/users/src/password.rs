//! Password hashes: argon2id, in the PHC string format that other programs use too.
//!
//! A check takes 19 MiB and about 20 ms: do not run it on a thread that must not wait, or many at a time.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, Params};
use stentor_sasl::ScramKeys;
use stentor_sasl::limits::{ITERATIONS_DEFAULT, PASSWORD_BYTES_MAX};

/// Maximum memory for checking a hash from a file, in KiB.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Maximum passes over that memory.
const PASSES_MAX: u32 = 64;
/// Octets of a salt.
pub const SALT_BYTES: usize = 16;

/// An argon2id hash with the parameters that OWASP recommends (19 MiB, two passes).
pub fn hash(password: &str, salt: &[u8; SALT_BYTES]) -> Result<String, String> {
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), salt);
    hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

/// The error in a hash from a file, if any.
pub fn check_hash(text: &str) -> Result<(), String> {
    let hash = PasswordHash::new(text).map_err(|error| error.to_string())?;
    if hash.algorithm.as_str() != "argon2id" || hash.hash.is_none() || hash.salt.is_none() {
        return Err("only complete argon2id hashes are accepted".to_owned());
    }
    let params = Params::try_from(&hash).map_err(|error| error.to_string())?;
    if params.m_cost() > MEMORY_KIB_MAX || params.t_cost() > PASSES_MAX {
        return Err(format!("it needs more than {MEMORY_KIB_MAX} KiB of memory or {PASSES_MAX} passes"));
    }
    Ok(())
}

pub fn verify(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

/// The stored forms of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPassword {
    pub hash: String,
    pub scram: ScramKeys,
}

/// Both forms of a new password, prepared (RFC 4013), each with its own salt.
pub fn store(
    password: &str,
    hash_salt: &[u8; SALT_BYTES],
    scram_salt: &[u8; SALT_BYTES],
) -> Result<StoredPassword, String> {
    let prepared = stentor_sasl::prepare(password, PASSWORD_BYTES_MAX).map_err(|error| error.to_string())?;
    let scram = ScramKeys::new(&prepared, scram_salt, ITERATIONS_DEFAULT).map_err(|error| error.to_string())?;
    Ok(StoredPassword { hash: hash(&prepared, hash_salt)?, scram })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_take_the_password_and_no_other() {
        let stored = store("\u{2168} pencils", &[1; SALT_BYTES], &[2; SALT_BYTES]).unwrap();
        assert!(verify("IX pencils", &stored.hash) && stored.scram.is_password("IX pencils"));
        assert!(!verify("IX pencil", &stored.hash) && !stored.scram.is_password("IX pencil"));
        assert_eq!(check_hash(&stored.hash), Ok(()));
        assert_eq!(stored.scram.iterations(), ITERATIONS_DEFAULT);
        assert!(store("\u{7}", &[1; SALT_BYTES], &[2; SALT_BYTES]).is_err());
    }

    #[test]
    fn other_hashes_are_refused() {
        assert!(check_hash("$2y$05$abc").is_err());
        assert!(check_hash("plain").is_err());
        assert!(check_hash("$argon2id$v=19$m=19456,t=2,p=1").is_err());
        let dear = hash("x", &[1; SALT_BYTES]).unwrap().replace("m=19456", "m=9999999");
        assert!(check_hash(&dear).unwrap_err().contains("KiB"));
        assert!(!verify("x", "plain"));
    }
}
