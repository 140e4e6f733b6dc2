//! Client side of TLS.
//!
//! One [`Context`] is kept for each host, requirement and name: rustls resumes a session only with the verifier that
//! it was created with, so the proof for one requirement is never used for another. Their number is bounded, the
//! least recently used are dropped first, and none is used longer than [`CONTEXT_AGE_MAX`], so that expired
//! certificates are noticed.

mod contexts;
mod sessions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::{ClientConnection, Resumption};
use rustls::pki_types::ServerName;

use self::contexts::{Context, Contexts, Key};
use self::sessions::Sessions;
use crate::cause::TlsError;
use crate::identity::Identity;
use crate::secured::SecuredSession;
use crate::verify::{PeerRequirement, Roots, Verifier};
use crate::{MinVersion, provider_arc};

/// Age after which a session is not resumed.
const CONTEXT_AGE_MAX: Duration = Duration::from_hours(2);

#[derive(Clone, Debug)]
pub struct ClientSettings {
    pub min_version: MinVersion,
    pub roots: Roots,
    /// Certificate sent to servers that request one.
    pub identity: Option<Arc<Identity>>,
    /// Maximum hosts whose sessions are kept for resumption.
    pub hosts_max: usize,
    pub alpn: Vec<Vec<u8>>,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            min_version: MinVersion::default(),
            roots: Roots::none(),
            identity: None,
            hosts_max: 2_000,
            alpn: Vec::new(),
        }
    }
}

/// Creates sessions with servers.
#[derive(Debug)]
pub struct Connector {
    settings: ClientSettings,
    contexts: Mutex<Contexts>,
}

impl Connector {
    pub fn new(settings: ClientSettings) -> Arc<Connector> {
        let contexts = Mutex::new(Contexts::new(settings.hosts_max));
        Arc::new(Connector { settings, contexts })
    }

    /// Begins a session. `name` is sent as the server's name (SNI) if it is a valid DNS name; `host` identifies the
    /// host, as `192.0.2.1:25`: only sessions with the same one are resumed.
    pub fn begin(&self, requirement: &PeerRequirement, name: &str, host: &str) -> Result<SecuredSession, TlsError> {
        let context = self.context(requirement, name, host)?;
        // Addresses are not sent, so an unused address replaces a name that cannot be sent.
        let name = ServerName::try_from(name.trim_end_matches('.').to_owned())
            .unwrap_or(ServerName::IpAddress(std::net::IpAddr::from([0, 0, 0, 0]).into()));
        let connection = ClientConnection::new(context.config.clone(), name).map_err(|error| TlsError::from(&error))?;
        Ok(SecuredSession::new(connection.into(), context.verifier.clone()))
    }

    /// Number of hosts whose sessions may be resumed.
    pub fn hosts(&self) -> usize {
        self.contexts.lock().len()
    }

    fn context(&self, requirement: &PeerRequirement, name: &str, host: &str) -> Result<Arc<Context>, TlsError> {
        let key = Key { requirement: requirement.clone(), name: name.into(), host: host.into() };
        let now = Instant::now();
        if let Some(context) = self.contexts.lock().get(&key, now, CONTEXT_AGE_MAX) {
            return Ok(context);
        }
        let context = Arc::new(self.make(requirement, now)?);
        self.contexts.lock().put(key, context.clone());
        Ok(context)
    }

    fn make(&self, requirement: &PeerRequirement, now: Instant) -> Result<Context, TlsError> {
        let verifier = Verifier::new(requirement.clone(), self.settings.roots.clone());
        let builder = ClientConfig::builder_with_provider(provider_arc())
            .with_protocol_versions(self.settings.min_version.versions())
            .map_err(|error| TlsError::from(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let mut config = match &self.settings.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::new(FixedCertificate(identity.clone()))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.settings.alpn);
        config.resumption = Resumption::store(Arc::new(Sessions::default()));
        Ok(Context { config: Arc::new(config), verifier, made: now })
    }
}

/// Sends the same certificate to all servers that request one.
#[derive(Debug)]
struct FixedCertificate(Arc<Identity>);

impl rustls::client::ResolvesClientCert for FixedCertificate {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let key = &self.0.key;
        key.key.choose_scheme(schemes).is_some().then(|| key.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
