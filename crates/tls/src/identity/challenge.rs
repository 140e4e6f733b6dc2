//! Certificates that answer an ACME server's `tls-alpn-01` challenge (RFC 8737).

use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::CertifiedKey;

use crate::provider;

/// The protocol that only an ACME server requests.
pub const ACME_TLS_ALPN: &[u8] = b"acme-tls/1";

/// A certificate for the name that contains the hash of the key authorization.
pub(super) fn certificate(name: &str, digest: &[u8; 32]) -> Result<Arc<CertifiedKey>, String> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|error| error.to_string())?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    let der = PrivatePkcs8KeyDer::from(key.serialize_der());
    // The key is not compared with the certificate: webpki cannot parse one with an unknown critical extension.
    let key = provider().key_provider.load_private_key(der.into()).map_err(|error| error.to_string())?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key)))
}
