//! Public keys in the DNS (RFC 6376 section 3.6.1, RFC 8463 section 3).

use aws_lc_rs::digest::Digest;
use aws_lc_rs::signature::{ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use base64ct::{Base64, Encoding};

use super::tags::TagList;
use crate::key::Algorithm;

/// Octets of a signature by the shortest RSA key that counts (RFC 8301 section 3.2: 1024 bits).
pub(super) const RSA_SIGNATURE_BYTES_MIN: usize = 128;

/// Why a key record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRecordError {
    #[error("malformed key record")]
    Malformed,
    #[error("key revoked")]
    Revoked,
    #[error("unknown key type")]
    KeyType,
    #[error("key is not for SHA-256")]
    Hash,
    #[error("key is not for mail")]
    Service,
}

/// A published key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    pub(super) algorithm: Algorithm,
    octets: Vec<u8>,
    /// `t=s`: subdomains must not use it in `i=`.
    pub(super) is_strict: bool,
}

impl PublicKey {
    /// Parses the text of a record.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn parse(record: &[u8]) -> Result<PublicKey, KeyRecordError> {
        let tags = TagList::parse(record).ok_or(KeyRecordError::Malformed)?;
        if let Some(version) = tags.value("v")
            && (version != "DKIM1" || tags.first() != Some("v"))
        {
            return Err(KeyRecordError::Malformed);
        }
        let algorithm = match tags.value("k") {
            None | Some("rsa") => Algorithm::RsaSha256,
            Some("ed25519") => Algorithm::Ed25519Sha256,
            Some(_) => return Err(KeyRecordError::KeyType),
        };
        let lists = |tag: &str, wanted: &[&str]| {
            tags.value(tag).is_none_or(|list| list.split(':').any(|one| wanted.contains(&one.trim())))
        };
        if !lists("h", &["sha256"]) {
            return Err(KeyRecordError::Hash);
        }
        if !lists("s", &["*", "email"]) {
            return Err(KeyRecordError::Service);
        }
        let text = tags.compact("p").ok_or(KeyRecordError::Malformed)?;
        if text.is_empty() {
            return Err(KeyRecordError::Revoked);
        }
        let octets = Base64::decode_vec(&text).map_err(|_| KeyRecordError::Malformed)?;
        let is_strict = tags.value("t").is_some_and(|list| list.split(':').any(|flag| flag.trim() == "s"));
        Ok(PublicKey { algorithm, octets, is_strict })
    }

    /// Whether the key made a signature of the hash.
    pub(super) fn has_signed(&self, hash: &Digest, signature: &[u8]) -> bool {
        let proof = match self.algorithm {
            Algorithm::RsaSha256 => {
                let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, &self.octets);
                key.verify_digest(hash, signature)
            }
            Algorithm::Ed25519Sha256 => UnparsedPublicKey::new(&ED25519, &self.octets).verify(hash.as_ref(), signature),
        };
        proof.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_unusable_ones_named() {
        let key = PublicKey::parse(b"v=DKIM1; k=ed25519; t=y:s; h=sha1:sha256; s=email; p=AA AA").unwrap();
        assert_eq!((key.algorithm, key.is_strict, key.octets), (Algorithm::Ed25519Sha256, true, vec![0; 3]));
        assert_eq!(PublicKey::parse(b"p=AAAA").unwrap().algorithm, Algorithm::RsaSha256);
        for (record, why) in [
            ("v=DKIM1; p=", KeyRecordError::Revoked),
            ("v=DKIM2; p=AAAA", KeyRecordError::Malformed),
            ("p=AAAA; v=DKIM1", KeyRecordError::Malformed),
            ("v=DKIM1", KeyRecordError::Malformed),
            ("p=*", KeyRecordError::Malformed),
            ("k=dsa; p=AAAA", KeyRecordError::KeyType),
            ("h=sha1; p=AAAA", KeyRecordError::Hash),
            ("s=tlsrpt; p=AAAA", KeyRecordError::Service),
        ] {
            assert_eq!(PublicKey::parse(record.as_bytes()), Err(why), "{record}");
        }
    }
}
