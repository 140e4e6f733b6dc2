//! Server side of TLS.
//!
//! Sessions are resumed by tickets, encrypted with keys that change every six hours, so the server stores nothing.
//! New settings use new keys, so sessions that they would not allow cannot be resumed.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConnection};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};

use crate::cause::TlsError;
use crate::identity::{ACME_TLS_ALPN, Identities, Identity, IdentityStore};
use crate::secured::SecuredSession;
use crate::verify::{PeerProof, Proof, Roots, is_client_of, refusal, verify_signature_12, verify_signature_13};
use crate::{MinVersion, provider, provider_arc};

/// Tickets sent after a TLS 1.3 handshake: a client may open as many more connections.
const TICKETS: usize = 2;
/// Maximum CA names sent to clients of whom a certificate is requested; more would make handshakes large.
const HINTS_MAX: usize = 10;

/// Use of client certificates.
#[derive(Clone, Debug, Default)]
pub enum ClientCertificates {
    /// None are requested.
    #[default]
    Never,
    /// Requested. One that these CAs have not signed proves nothing, but its fingerprints are available.
    Ask(Roots),
    /// Requested. One that these CAs have not signed ends the handshake; a missing one does not.
    Verify(Roots),
}

#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    pub min_version: MinVersion,
    pub client_certificates: ClientCertificates,
    /// Protocols supported here (ALPN). If empty, the client's request is ignored.
    pub alpn: Vec<Vec<u8>>,
    /// Whether `tls-alpn-01` challenges are answered.
    pub acme: bool,
}

/// Creates sessions with clients.
#[derive(Debug)]
pub struct Acceptor {
    config: ServerConfig,
    store: Arc<IdentityStore>,
    /// CAs of clients.
    roots: Option<Roots>,
}

impl Acceptor {
    pub fn new(settings: ServerSettings, store: Arc<IdentityStore>) -> Result<Arc<Acceptor>, TlsError> {
        let (roots, is_strict) = match settings.client_certificates {
            ClientCertificates::Never => (None, false),
            ClientCertificates::Ask(roots) => (Some(roots), false),
            ClientCertificates::Verify(roots) => (Some(roots), true),
        };
        let builder = ServerConfig::builder_with_provider(provider_arc())
            .with_protocol_versions(settings.min_version.versions())
            .map_err(|error| TlsError::from(&error))?;
        let builder = match &roots {
            Some(roots) => builder.with_client_cert_verifier(Arc::new(ClientVerifier::new(roots.clone(), is_strict))),
            None => builder.with_no_client_auth(),
        };
        let unused =
            Arc::new(CertificateChoice { store: store.clone(), identities: store.current(), chosen: OnceLock::new() });
        let mut config = builder.with_cert_resolver(unused);
        config.alpn_protocols = settings.alpn;
        if settings.acme {
            config.alpn_protocols.push(ACME_TLS_ALPN.to_vec());
        }
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new().map_err(|error| TlsError::from(&error))?;
        config.send_tls13_tickets = TICKETS;
        // OpenSSL's default order, which most clients send, prefers the more expensive AES-256.
        config.ignore_client_order = true;
        Ok(Arc::new(Acceptor { config, store, roots }))
    }

    /// Begins a session with the certificates in force.
    pub fn begin(&self) -> Result<SecuredSession, TlsError> {
        let choice = Arc::new(CertificateChoice {
            store: self.store.clone(),
            identities: self.store.current(),
            chosen: OnceLock::new(),
        });
        let mut config = self.config.clone();
        config.cert_resolver = choice.clone();
        let connection = ServerConnection::new(Arc::new(config)).map_err(|error| TlsError::from(&error))?;
        Ok(SecuredSession::new(connection.into(), Arc::new(ServerProof { choice, roots: self.roots.clone() })))
    }

    pub fn store(&self) -> &Arc<IdentityStore> {
        &self.store
    }
}

/// The certificate of one session.
#[derive(Debug)]
struct CertificateChoice {
    store: Arc<IdentityStore>,
    identities: Arc<Identities>,
    chosen: OnceLock<Arc<Identity>>,
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge =
            hello.alpn().is_some_and(|mut names| names.next() == Some(ACME_TLS_ALPN) && names.next().is_none());
        if is_challenge {
            return self.store.challenge(hello.server_name()?);
        }
        let chosen = self.identities.choose(hello.server_name(), hello.signature_schemes());
        Some(self.chosen.get_or_init(|| chosen.clone()).key.clone())
    }
}

/// Answers questions about a session when its handshake is complete.
#[derive(Debug)]
struct ServerProof {
    choice: Arc<CertificateChoice>,
    roots: Option<Roots>,
}

impl Proof for ServerProof {
    fn proven(&self, chain: &[CertificateDer<'_>]) -> PeerProof {
        let Some(roots) = &self.roots else { return PeerProof::not_asked() };
        match is_client_of(chain, roots, UnixTime::now()) {
            Ok(name) => PeerProof::Ca(name),
            Err(why) => PeerProof::Nothing(why),
        }
    }

    fn server_end_point(&self, _chain: &[CertificateDer<'_>]) -> Option<Box<[u8]>> {
        self.choice.chosen.get()?.end_point.clone()
    }
}

#[derive(Debug)]
struct ClientVerifier {
    roots: Roots,
    hints: Vec<DistinguishedName>,
    is_strict: bool,
}

impl ClientVerifier {
    fn new(roots: Roots, is_strict: bool) -> ClientVerifier {
        let mut hints = roots.store.subjects();
        if hints.len() > HINTS_MAX {
            hints.clear();
        }
        ClientVerifier { roots, hints, is_strict }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.is_strict {
            let chain: Vec<_> = [leaf].into_iter().chain(others).cloned().collect();
            if let Err(why) = is_client_of(&chain, &self.roots, now) {
                return Err(refusal(why));
            }
        }
        Ok(ClientCertVerified::assertion())
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
