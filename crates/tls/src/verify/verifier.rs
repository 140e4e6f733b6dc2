//! Adapts a requirement to rustls.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use sha2::{Digest as _, Sha256};
use webpki::RawPublicKeyEntity;

use super::roots::Roots;
use super::{PeerProof, PeerRequirement, Proof, judge};
use crate::cause::TlsError;
use crate::certificate::{end_point, public_key};
use crate::provider;

/// Shared by all sessions with one host under one requirement; resumed sessions inherit the proof of the first.
pub(crate) struct Verifier {
    requirement: PeerRequirement,
    roots: Roots,
    /// Result of the last full handshake, with the hash of its certificate.
    proven: Mutex<Option<([u8; 32], PeerProof)>>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("requirement", &self.requirement).finish_non_exhaustive()
    }
}

impl Verifier {
    pub(crate) fn new(requirement: PeerRequirement, roots: Roots) -> Arc<Verifier> {
        Arc::new(Verifier { requirement, roots, proven: Mutex::default() })
    }
}

impl Proof for Verifier {
    /// A resumed session shows the certificate of its first one.
    fn proven(&self, chain: &[CertificateDer<'_>]) -> PeerProof {
        let hash = chain.first().map(|leaf| Sha256::digest(leaf).into());
        if let Some((of, how)) = &*self.proven.lock()
            && hash == Some(*of)
        {
            return how.clone();
        }
        // Another session with this host has seen another certificate since.
        judge(&self.requirement, &self.roots, chain, UnixTime::now()).unwrap_or_else(PeerProof::Nothing)
    }

    fn server_end_point(&self, chain: &[CertificateDer<'_>]) -> Option<Box<[u8]>> {
        end_point(chain.first()?).map(Into::into)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = [leaf].into_iter().chain(others).map(|der| CertificateDer::from(der.as_ref())).collect();
        let how = match judge(&self.requirement, &self.roots, &chain, now) {
            Ok(how) => how,
            Err(why) if matches!(self.requirement, PeerRequirement::Encrypted { .. } | PeerRequirement::Wanted(_)) => {
                PeerProof::Nothing(why)
            }
            Err(why) => return Err(refusal(why)),
        };
        *self.proven.lock() = Some((Sha256::digest(leaf).into(), how));
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

/// rustls chooses the alert by the kind of error; the [`TlsError`] is wrapped in it.
pub(crate) fn refusal(why: TlsError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

/// Verifies the signature of a handshake, whatever the certificate proves.
pub(crate) fn verify_signature_12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = &provider().signature_verification_algorithms;
    match verify_tls12_signature(message, certificate, signed, algorithms) {
        Err(Error::InvalidCertificate(error)) if is_unread(&error) => by_key(message, certificate, signed, error),
        result => result,
    }
}

pub(crate) fn verify_signature_13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = &provider().signature_verification_algorithms;
    match verify_tls13_signature(message, certificate, signed, algorithms) {
        Err(Error::InvalidCertificate(error)) if is_unread(&error) => by_key(message, certificate, signed, error),
        result => result,
    }
}

/// webpki rejects certificates of version 1 and those with unknown critical extensions.
fn is_unread(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::BadEncoding | CertificateError::UnhandledCriticalExtension | CertificateError::Other(_)
    )
}

/// Such certificates still have a key, which suffices for encryption without proof.
fn by_key(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    error: CertificateError,
) -> Result<HandshakeSignatureValid, Error> {
    let error = Error::InvalidCertificate(error);
    let Some(key) = public_key(certificate).map(SubjectPublicKeyInfoDer::from) else { return Err(error) };
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return Err(error) };
    let mapping = provider().signature_verification_algorithms.mapping;
    let algorithms = mapping.iter().find(|(scheme, _)| *scheme == signed.scheme).map_or(&[][..], |(_, list)| *list);
    let is_valid =
        algorithms.iter().any(|algorithm| key.verify_signature(*algorithm, message, signed.signature()).is_ok());
    if is_valid { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
}
