//! A certificate with its chain and its key in one file: what the server keeps of those that it obtains. One rename replaces all of
//! it, so that there is never one without the other.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Identity;
use super::file::identity;
use crate::certificate::issuer_key_and_serial;
use crate::pem;

impl Identity {
    /// Puts the chain that a CA has sent (PEM) and the key that it was asked for (PKCS #8) together, and writes the file's text.
    ///
    /// # Errors
    /// They do not fit together, or one of them cannot be used.
    pub fn bundle(chain: &[u8], key: &[u8]) -> Result<(Identity, String), String> {
        let chain = pem::certificates(chain)?;
        // Whatever else stands between the certificates is left out.
        let mut text: String = chain.iter().map(|one| pem::write("CERTIFICATE", one)).collect();
        text += &pem::write("PRIVATE KEY", key);
        let key = PrivateKeyDer::try_from(key.to_vec()).map_err(ToOwned::to_owned)?;
        let identity = identity(chain, key).map_err(|failure| failure.why)?;
        Ok((identity, text))
    }

    /// # Errors
    /// What is wrong with the file's text.
    pub fn from_bundle(text: &[u8]) -> Result<Identity, String> {
        identity(pem::certificates(text)?, pem::key(text)?).map_err(|failure| failure.why)
    }

    /// By what its CA knows the certificate (RFC 9773 section 4.1). Nothing if it does not name the CA's key.
    pub fn renewal_id(&self) -> Option<(String, String)> {
        let leaf: &CertificateDer<'_> = self.key.cert.first()?;
        let (issuer, serial) = issuer_key_and_serial(leaf)?;
        Some((Base64UrlUnpadded::encode_string(issuer), Base64UrlUnpadded::encode_string(serial)))
    }
}

/// The key of such a file (PKCS #8).
///
/// # Errors
/// It has none, or one of another form.
pub fn bundle_key(text: &[u8]) -> Result<Vec<u8>, String> {
    match pem::key(text)? {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der().to_vec()),
        _ => Err("the key is not PKCS #8".to_owned()),
    }
}
