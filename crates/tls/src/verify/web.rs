//! Verifies HTTPS servers as browsers do. A certificate listed in the CA file itself is trusted directly, as for mail.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::chain::in_time;
use super::{Roots, refusal, verify_signature_12, verify_signature_13};
use crate::cause::TlsError;
use crate::{provider, provider_arc};

#[derive(Debug)]
struct WebVerifier(Roots);

impl Roots {
    /// Settings of an HTTPS client that trusts these CAs and verifies servers as browsers do. A certificate listed in
    /// the CA file itself is trusted directly, as for mail.
    pub fn web_client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider_arc()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError::from(&error))?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(WebVerifier(self.clone())));
        Ok(Arc::new(builder.with_no_client_auth()))
    }
}

impl ServerCertVerifier for WebVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        if self.0.has_pinned(leaf) {
            in_time(leaf, now).map_err(refusal)?;
        } else {
            let algorithms = provider().signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.0.store, others, now, algorithms)?;
        }
        verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature_12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature_13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_certificate_of_the_file_proves_its_names_alone() {
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["ca.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        let leaf = own.der().clone();
        let verify = |roots: &Roots, name: &str| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            WebVerifier(roots.clone()).verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).is_ok()
        };
        let pinned = Roots::from_certificates(vec![leaf.clone()]).unwrap();
        assert!(verify(&pinned, "ca.example"));
        assert!(!verify(&pinned, "other.example"));
        assert!(!verify(&Roots::none(), "ca.example"));
    }
}
