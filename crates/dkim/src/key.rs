//! Signing keys: read from PEM, generated, and used.
//!
//! RSA keys have [`RSA_BITS_MIN`] bits or more (RFC 8301 section 3.2; verifiers may ignore shorter ones); both PKCS#8
//! and PKCS#1 are read. Ed25519 keys (RFC 8463) are PKCS#8. The file must not be encrypted.

use std::fmt;

use aws_lc_rs::digest::Digest;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::{KeyRejected, Unspecified};
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ED25519, Ed25519KeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey,
};
use base64ct::{Base64, Encoding};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::{self, PemObject};
use zeroize::Zeroizing;

pub const RSA_BITS_MIN: usize = 2048;
/// Longest RSA keys that every verifier must take (RFC 8301 section 3.2).
pub const RSA_BITS_USUAL_MAX: usize = 4096;
/// Characters of a PEM line (RFC 7468 section 2).
const PEM_LINE_CHARS: usize = 64;

/// Algorithm of a signature, as in `a=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    RsaSha256,
    Ed25519Sha256,
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::RsaSha256 => "rsa-sha256",
            Algorithm::Ed25519Sha256 => "ed25519-sha256",
        }
    }

    /// The key type of DNS records, as in `k=`.
    pub fn key_type(self) -> &'static str {
        match self {
            Algorithm::RsaSha256 => "rsa",
            Algorithm::Ed25519Sha256 => "ed25519",
        }
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("contains no private key in PEM form (`-----BEGIN PRIVATE KEY-----`)")]
    NoKey,
    #[error("the private key is encrypted; remove its passphrase: openssl pkey -in FILE -out NEW")]
    Encrypted,
    #[error("is not valid PEM: {0}")]
    Pem(String),
    #[error("the RSA key is shorter than {RSA_BITS_MIN} bits")]
    TooShort,
    #[error("the key is neither RSA nor Ed25519, or is damaged: {0}")]
    Rejected(String),
    #[error("the system could not generate a key")]
    Generation,
}

enum Pair {
    Rsa(Box<rsa::KeyPair>),
    Ed25519(Ed25519KeyPair),
}

/// A private key with its public half.
pub struct SigningKey {
    pair: Pair,
    /// Public key as in `p=`: `SubjectPublicKeyInfo` of RSA (RFC 6376 section 3.6.1, erratum 3017), the 32 octets of
    /// Ed25519.
    public: Vec<u8>,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

/// Keys are equal if their public halves are.
impl PartialEq for SigningKey {
    fn eq(&self, other: &SigningKey) -> bool {
        self.public == other.public
    }
}

impl Eq for SigningKey {}

/// A new key, and its file.
pub struct GeneratedKey {
    pub key: SigningKey,
    /// PKCS#8 in PEM form.
    pub pem: Zeroizing<String>,
}

impl SigningKey {
    /// Reads the first private key of a PEM file.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn from_pem(file: &[u8]) -> Result<SigningKey, KeyError> {
        match PrivateKeyDer::from_pem_slice(file) {
            Ok(PrivateKeyDer::Pkcs8(der)) => SigningKey::from_pkcs8(der.secret_pkcs8_der()),
            Ok(PrivateKeyDer::Pkcs1(der)) => {
                SigningKey::of_rsa(rsa::KeyPair::from_der(der.secret_pkcs1_der()).map_err(rsa_error)?)
            }
            Ok(_) => Err(KeyError::Rejected("elliptic curve".to_owned())),
            Err(pem::Error::NoItemsFound) => {
                let text = String::from_utf8_lossy(file);
                Err(if text.contains("ENCRYPTED PRIVATE KEY") { KeyError::Encrypted } else { KeyError::NoKey })
            }
            // PEM of OpenSSL's own encryption has header lines, which are not Base64.
            Err(_) if file.windows(10).any(|window| window == b"Proc-Type:") => Err(KeyError::Encrypted),
            Err(error) => Err(KeyError::Pem(error.to_string())),
        }
    }

    fn from_pkcs8(der: &[u8]) -> Result<SigningKey, KeyError> {
        match Ed25519KeyPair::from_pkcs8(der) {
            Ok(pair) => Ok(SigningKey::of_ed25519(pair)),
            Err(_) => SigningKey::of_rsa(rsa::KeyPair::from_pkcs8(der).map_err(rsa_error)?),
        }
    }

    /// Generates a key: RSA with 2048 bits, or Ed25519.
    ///
    /// # Errors
    /// The library fails.
    pub fn generate(algorithm: Algorithm) -> Result<GeneratedKey, KeyError> {
        let failed = |Unspecified| KeyError::Generation;
        let (key, der): (SigningKey, Pkcs8V1Der<'static>) = match algorithm {
            Algorithm::RsaSha256 => {
                let pair = rsa::KeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
                let der = pair.as_der().map_err(failed)?;
                (SigningKey::of_rsa(pair)?, der)
            }
            Algorithm::Ed25519Sha256 => {
                let pair = Ed25519KeyPair::generate().map_err(failed)?;
                let der = pair.as_der().map_err(failed)?;
                (SigningKey::of_ed25519(pair), der)
            }
        };
        Ok(GeneratedKey { key, pem: pem_of(der.as_ref()) })
    }

    fn of_rsa(pair: rsa::KeyPair) -> Result<SigningKey, KeyError> {
        if pair.public_modulus_len() * 8 < RSA_BITS_MIN {
            return Err(KeyError::TooShort);
        }
        let public: PublicKeyX509Der<'static> =
            pair.public_key().as_der().map_err(|Unspecified| KeyError::Rejected("public key".to_owned()))?;
        Ok(SigningKey { public: public.as_ref().to_vec(), pair: Pair::Rsa(Box::new(pair)) })
    }

    fn of_ed25519(pair: Ed25519KeyPair) -> SigningKey {
        SigningKey { public: pair.public_key().as_ref().to_vec(), pair: Pair::Ed25519(pair) }
    }

    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            Pair::Rsa(_) => Algorithm::RsaSha256,
            Pair::Ed25519(_) => Algorithm::Ed25519Sha256,
        }
    }

    /// Returns the length of an RSA key.
    pub fn rsa_bits(&self) -> Option<usize> {
        match &self.pair {
            Pair::Rsa(pair) => Some(pair.public_modulus_len() * 8),
            Pair::Ed25519(_) => None,
        }
    }

    /// Returns the text of the key's DNS record (RFC 6376 section 3.6.1, RFC 8463 section 4).
    pub fn record(&self) -> String {
        format!("v=DKIM1; k={}; p={}", self.algorithm().key_type(), Base64::encode_string(&self.public))
    }

    /// Signs the hash of a header. Ed25519 signs the hash as if it were the message (RFC 8463 section 3).
    pub(crate) fn sign(&self, hash: &Digest) -> Result<Vec<u8>, Unspecified> {
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign_digest(&RSA_PKCS1_SHA256, hash, &mut signature)?;
                Ok(signature)
            }
            Pair::Ed25519(pair) => Ok(pair.try_sign(hash.as_ref())?.as_ref().to_vec()),
        }
    }

    /// Whether this key made the signature of the hash.
    pub(crate) fn has_signed(&self, hash: &Digest, signature: &[u8]) -> bool {
        let proof = match self.algorithm() {
            Algorithm::RsaSha256 => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public).verify_digest(hash, signature)
            }
            Algorithm::Ed25519Sha256 => UnparsedPublicKey::new(&ED25519, &self.public).verify(hash.as_ref(), signature),
        };
        proof.is_ok()
    }
}

fn rsa_error(rejected: KeyRejected) -> KeyError {
    match rejected.to_string() {
        text if text == "TooSmall" => KeyError::TooShort,
        text => KeyError::Rejected(text),
    }
}

fn pem_of(der: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(Base64::encode_string(der));
    let mut file = Zeroizing::new(String::with_capacity(text.len() * 66 / PEM_LINE_CHARS + 80));
    file.push_str("-----BEGIN PRIVATE KEY-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(PEM_LINE_CHARS));
        file.push_str(line);
        file.push('\n');
        rest = more;
    }
    file.push_str("-----END PRIVATE KEY-----\n");
    file
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn generated_keys_are_read_again() {
        for algorithm in [Algorithm::RsaSha256, Algorithm::Ed25519Sha256] {
            let GeneratedKey { key, pem } = SigningKey::generate(algorithm).unwrap();
            assert!(pem.lines().all(|line| line.len() <= PEM_LINE_CHARS), "{}", *pem);
            let read = SigningKey::from_pem(pem.as_bytes()).unwrap();
            assert_eq!((read.algorithm(), read.record()), (algorithm, key.record()));
        }
    }

    #[test]
    fn files_without_a_usable_key_are_explained() {
        let error = |file: &str| SigningKey::from_pem(file.as_bytes()).unwrap_err();
        assert_eq!(error(""), KeyError::NoKey);
        assert_eq!(error("hello\n"), KeyError::NoKey);
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert_eq!(error(encrypted), KeyError::Encrypted);
        assert!(matches!(error("-----BEGIN PRIVATE KEY-----\nAAAA\n"), KeyError::Pem(_)));
        let cut = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(error(cut), KeyError::Rejected(_)));
    }

    proptest! {
        #[test]
        fn any_file_is_taken(file in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = SigningKey::from_pem(&file);
        }
    }
}
