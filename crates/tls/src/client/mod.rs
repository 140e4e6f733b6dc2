//! The side that connects.
//!
//! One [`Context`] is kept for each host, requirement and name: rustls resumes a session only with the verifier that it was made
//! with, so that what one requirement proved is never taken for another's. Their number is bounded, the one that was used
//! longest ago goes first, and none is used longer than [`CONTEXT_AGE_MAX`]: a certificate that ends meanwhile is noticed.

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
use crate::secured::Secured;
use crate::verify::{Requirement, Roots, Verifier};
use crate::{MinVersion, provider_arc};

/// A session is not resumed after that.
const CONTEXT_AGE_MAX: Duration = Duration::from_hours(2);

#[derive(Clone, Debug)]
pub struct ClientSettings {
    pub min_version: MinVersion,
    pub roots: Roots,
    /// Shown to servers that ask for one.
    pub identity: Option<Arc<Identity>>,
    /// Hosts whose sessions are kept for resumption.
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

/// Makes sessions with servers.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    contexts: Mutex<Contexts>,
}

impl Client {
    pub fn new(settings: ClientSettings) -> Arc<Client> {
        let contexts = Mutex::new(Contexts::new(settings.hosts_max));
        Arc::new(Client { settings, contexts })
    }

    /// Begins a session. `name` is sent as the server's (SNI) if DNS can have it; `host` says which host it is, as
    /// `192.0.2.1:25`: sessions are resumed with the same one only.
    pub fn begin(&self, requirement: &Requirement, name: &str, host: &str) -> Result<Secured, TlsError> {
        let context = self.context(requirement, name, host)?;
        // Addresses are not sent; one that nobody has stands for a name that cannot be sent.
        let name = ServerName::try_from(name.trim_end_matches('.').to_owned())
            .unwrap_or(ServerName::IpAddress(std::net::IpAddr::from([0, 0, 0, 0]).into()));
        let connection = ClientConnection::new(context.config.clone(), name).map_err(|error| TlsError::from(&error))?;
        Ok(Secured::new(connection.into(), context.verifier.clone()))
    }

    /// Hosts whose sessions may be resumed.
    pub fn hosts(&self) -> usize {
        self.contexts.lock().len()
    }

    fn context(&self, requirement: &Requirement, name: &str, host: &str) -> Result<Arc<Context>, TlsError> {
        let key = Key { requirement: requirement.clone(), name: name.into(), host: host.into() };
        let now = Instant::now();
        if let Some(context) = self.contexts.lock().get(&key, now, CONTEXT_AGE_MAX) {
            return Ok(context);
        }
        let context = Arc::new(self.make(requirement, now)?);
        self.contexts.lock().put(key, context.clone());
        Ok(context)
    }

    fn make(&self, requirement: &Requirement, now: Instant) -> Result<Context, TlsError> {
        let verifier = Verifier::new(requirement.clone(), self.settings.roots.clone());
        let builder = ClientConfig::builder_with_provider(provider_arc())
            .with_protocol_versions(self.settings.min_version.versions())
            .map_err(|error| TlsError::from(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let mut config = match &self.settings.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::new(Always(identity.clone()))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.settings.alpn);
        config.resumption = Resumption::store(Arc::new(Sessions::default()));
        Ok(Context { config: Arc::new(config), verifier, made: now })
    }
}

/// The same certificate for whoever asks.
#[derive(Debug)]
struct Always(Arc<Identity>);

impl rustls::client::ResolvesClientCert for Always {
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
