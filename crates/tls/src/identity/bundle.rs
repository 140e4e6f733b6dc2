//! A certificate with its chain and key in one file, the format of certificates obtained from a CA. A single rename
//! replaces all of it, so the parts always match.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Identity;
use super::file::identity;
use crate::certificate::issuer_key_and_serial;
use crate::pem;

/// The CA's identifier of a certificate (RFC 9773 section 4.1), both parts as base64url.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalId {
    pub issuer_key: String,
    pub serial: String,
}

impl Identity {
    /// Combines the chain from a CA (PEM) with its key (PKCS #8), and returns the file's text.
    ///
    /// # Errors
    /// They do not match, or one of them cannot be used.
    pub fn bundle(chain: &[u8], key: &[u8]) -> Result<(Identity, String), String> {
        let chain = pem::certificates(chain)?;
        // Other text between the certificates is removed.
        let mut text: String = chain.iter().map(|one| pem::write("CERTIFICATE", one)).collect();
        text += &pem::write("PRIVATE KEY", key);
        let key = PrivateKeyDer::try_from(key.to_vec()).map_err(ToOwned::to_owned)?;
        let identity = identity(chain, key).map_err(|failure| failure.why)?;
        Ok((identity, text))
    }

    /// Parses the file's text.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub fn from_bundle(text: &[u8]) -> Result<Identity, String> {
        identity(pem::certificates(text)?, pem::key(text)?).map_err(|failure| failure.why)
    }

    /// The CA's identifier of the certificate (RFC 9773 section 4.1). `None` if it does not name the CA's key.
    pub fn renewal_id(&self) -> Option<RenewalId> {
        let leaf: &CertificateDer<'_> = self.key.cert.first()?;
        let (issuer, serial) = issuer_key_and_serial(leaf)?;
        let (issuer_key, serial) = (Base64UrlUnpadded::encode_string(issuer), Base64UrlUnpadded::encode_string(serial));
        Some(RenewalId { issuer_key, serial })
    }
}

/// The key in such a file (PKCS #8).
///
/// # Errors
/// It has none, or one of another form.
pub fn bundle_key(text: &[u8]) -> Result<Vec<u8>, String> {
    match pem::key(text)? {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der().to_vec()),
        _ => Err("the key is not PKCS #8".to_owned()),
    }
}
