//! Public keys in the DNS (RFC 6376 section 3.6.1, RFC 8463 section 3).

use aws_lc_rs::digest::Digest;
use aws_lc_rs::signature::{ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use base64ct::{Base64, Encoding};

use super::tags::{TagError, TagList};
use crate::key::Algorithm;

/// Octets of a signature by the shortest RSA key that counts (RFC 8301 section 3.2: 1024 bits).
pub(super) const RSA_SIGNATURE_BYTES_MIN: usize = 128;

/// Why a key record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRecordError {
    #[error("malformed key record")]
    Tags(#[source] TagError),
    #[error("key record does not begin with v=DKIM1")]
    Version,
    #[error("key record has no p=")]
    NoKey,
    #[error("malformed key")]
    Encoding,
    #[error("key revoked")]
    Revoked,
    #[error("unknown key type")]
    KeyType,
    #[error("key is not for SHA-256")]
    Hash,
    #[error("key is not for mail")]
    Service,
}

/// A parsed key record. Version and syntax are valid; key type, hashes and services are not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    tags: TagList,
    /// `p=` without white space; empty: revoked.
    pub key: String,
}

impl KeyRecord {
    /// Parses the text of a record.
    ///
    /// # Errors
    /// It is not a key record.
    pub fn parse(text: &[u8]) -> Result<KeyRecord, KeyRecordError> {
        let tags = TagList::parse(text).map_err(KeyRecordError::Tags)?;
        if let Some(version) = tags.value("v")
            && (version != "DKIM1" || tags.names().next() != Some("v"))
        {
            return Err(KeyRecordError::Version);
        }
        let key = tags.compact("p").ok_or(KeyRecordError::NoKey)?;
        Ok(KeyRecord { tags, key })
    }

    /// Type of the key, `k=`.
    pub fn key_type(&self) -> &str {
        self.tags.value("k").unwrap_or("rsa")
    }

    /// The list of hashes, if it excludes SHA-256.
    pub fn hashes_without_sha256(&self) -> Option<&str> {
        self.list_without("h", &["sha256"])
    }

    /// The list of services, if it excludes mail.
    pub fn services_without_email(&self) -> Option<&str> {
        self.list_without("s", &["*", "email"])
    }

    /// Whether `t=` has a flag: `y` for tests, `s` for no subdomains in `i=`.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.tags.value("t").is_some_and(|flags| flags.split(':').any(|one| one.trim() == flag))
    }

    /// Names of all tags, in order.
    pub fn tag_names(&self) -> impl Iterator<Item = &str> {
        self.tags.names()
    }

    fn list_without(&self, tag: &str, wanted: &[&str]) -> Option<&str> {
        self.tags.value(tag).filter(|list| !list.split(':').any(|one| wanted.contains(&one.trim())))
    }
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
    pub fn parse(text: &[u8]) -> Result<PublicKey, KeyRecordError> {
        let record = KeyRecord::parse(text)?;
        let all = [Algorithm::RsaSha256, Algorithm::Ed25519Sha256];
        let algorithm = all.into_iter().find(|one| one.key_type() == record.key_type());
        let algorithm = algorithm.ok_or(KeyRecordError::KeyType)?;
        if record.hashes_without_sha256().is_some() {
            return Err(KeyRecordError::Hash);
        }
        if record.services_without_email().is_some() {
            return Err(KeyRecordError::Service);
        }
        if record.key.is_empty() {
            return Err(KeyRecordError::Revoked);
        }
        let octets = Base64::decode_vec(&record.key).map_err(|_| KeyRecordError::Encoding)?;
        Ok(PublicKey { algorithm, octets, is_strict: record.has_flag("s") })
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
            ("v=DKIM2; p=AAAA", KeyRecordError::Version),
            ("p=AAAA; v=DKIM1", KeyRecordError::Version),
            ("v=DKIM1", KeyRecordError::NoKey),
            ("v=DKIM1; p", KeyRecordError::Tags(TagError::Pair("p".to_owned()))),
            ("p=*", KeyRecordError::Encoding),
            ("k=dsa; p=AAAA", KeyRecordError::KeyType),
            ("h=sha1; p=AAAA", KeyRecordError::Hash),
            ("s=tlsrpt; p=AAAA", KeyRecordError::Service),
        ] {
            assert_eq!(PublicKey::parse(record.as_bytes()), Err(why), "{record}");
        }
    }
}
