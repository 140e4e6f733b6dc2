//! Verifies signatures of others (RFC 6376 section 6, RFC 8617 section 5).
//!
//! Promise: the result depends only on the header, the hashed body, the key record and the time given. A signature
//! costs one pass over the header and one operation with its key, so the caller bounds how many there are. A body of
//! which `l=` leaves a part unsigned is never accepted: anybody can append to it.
//!
//! Failure: a [`VerifyError`], which says whether the signature is wrong or only unacceptable.

mod public_key;
mod signature;
mod tags;

use std::collections::HashMap;

use aws_lc_rs::digest::{Context, SHA256};
pub use public_key::{KeyRecord, KeyRecordError, PublicKey};
pub use signature::{Signature, SignatureError, SignatureKind};
use stentor_mime::field;
pub use tags::{TagError, TagList};

use self::public_key::RSA_SIGNATURE_BYTES_MIN;
use crate::body::HashedBody;
use crate::form::{CanonicalForm, without_signature};
use crate::key::Algorithm;

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("signature expired")]
    Expired,
    #[error("body was changed")]
    Body,
    #[error("signature does not match")]
    Signature,
    #[error("l= leaves a part of the body unsigned")]
    PartialBody,
    #[error("RSA key shorter than 1024 bits")]
    ShortKey,
    #[error("key has another algorithm")]
    KeyAlgorithm,
    #[error("key does not permit subdomains in i=")]
    StrictKey,
}

/// The fields of a header section by name.
pub struct FieldIndex<'a> {
    /// From top to bottom; names in lower case.
    by_name: HashMap<Vec<u8>, Vec<&'a [u8]>>,
}

impl<'a> FieldIndex<'a> {
    pub fn of(header: &'a [u8]) -> FieldIndex<'a> {
        let mut by_name: HashMap<Vec<u8>, Vec<&'a [u8]>> = HashMap::new();
        for whole in field::lines(header) {
            if let Some((name, _)) = field::split(whole) {
                by_name.entry(name.to_ascii_lowercase()).or_default().push(whole);
            }
        }
        FieldIndex { by_name }
    }

    /// Returns all fields with a name, which is in lower case, from top to bottom.
    pub fn all(&self, name: &str) -> &[&'a [u8]] {
        self.by_name.get(name.as_bytes()).map_or(&[], Vec::as_slice)
    }

    /// Hashes the signed fields: each name takes the lowest field that no earlier one took (RFC 6376 section 5.4.2),
    /// but never the signature itself.
    fn hash_signed(&self, signature: &Signature, hash: &mut Context) {
        let mut rests: HashMap<&str, &[&[u8]]> = HashMap::new();
        let mut canonical = Vec::new();
        for name in &signature.names {
            let rest = rests.entry(name).or_insert_with(|| self.all(name));
            while let Some((whole, above)) = rest.split_last() {
                *rest = above;
                if *whole != signature.whole {
                    canonical.clear();
                    signature.header_form.append(whole, &mut canonical);
                    canonical.extend_from_slice(b"\r\n");
                    hash.update(&canonical);
                    break;
                }
            }
        }
    }
}

/// Verifies a signature of a message (DKIM, or ARC's of the message).
///
/// # Errors
/// It does not count.
pub fn verify(
    fields: &FieldIndex<'_>,
    signature: &Signature,
    body: &HashedBody,
    key: &PublicKey,
    now_s: u64,
) -> Result<(), VerifyError> {
    if signature.expires_s.is_some_and(|expires| expires <= now_s) {
        return Err(VerifyError::Expired);
    }
    let is_of_subdomain = signature.identity_domain.as_ref().is_some_and(|domain| *domain != signature.domain);
    if key.is_strict && is_of_subdomain {
        return Err(VerifyError::StrictKey);
    }
    match signature.body_bytes {
        Some(bytes) if bytes < body.bytes => return Err(VerifyError::PartialBody),
        Some(bytes) if bytes > body.bytes => return Err(VerifyError::Body),
        _ if signature.body_hash != body.digest.0 => return Err(VerifyError::Body),
        _ => {}
    }
    let mut hash = Context::new(&SHA256);
    fields.hash_signed(signature, &mut hash);
    verify_hash(signature, key, hash)
}

/// Verifies an ARC-Seal. `sealed`: the ARC fields that it covers, in order, without itself.
///
/// # Errors
/// It does not count.
pub fn verify_seal(sealed: &[&[u8]], seal: &Signature, key: &PublicKey) -> Result<(), VerifyError> {
    let mut hash = Context::new(&SHA256);
    let mut canonical = Vec::new();
    for whole in sealed {
        canonical.clear();
        CanonicalForm::Relaxed.append(whole, &mut canonical);
        canonical.extend_from_slice(b"\r\n");
        hash.update(&canonical);
    }
    verify_hash(seal, key, hash)
}

/// Adds the signature's own field to the hash, and applies the key.
fn verify_hash(signature: &Signature, key: &PublicKey, mut hash: Context) -> Result<(), VerifyError> {
    if key.algorithm != signature.algorithm {
        return Err(VerifyError::KeyAlgorithm);
    }
    if key.algorithm == Algorithm::RsaSha256 && signature.octets.len() < RSA_SIGNATURE_BYTES_MIN {
        return Err(VerifyError::ShortKey);
    }
    let mut canonical = Vec::new();
    signature.header_form.append(&without_signature(&signature.whole), &mut canonical);
    hash.update(&canonical);
    if key.has_signed(&hash.finish(), &signature.octets) { Ok(()) } else { Err(VerifyError::Signature) }
}

#[cfg(test)]
mod tests;
