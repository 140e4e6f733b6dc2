//! Settings of `[smart_hosts]`: hosts that require a login, and where its secret comes from.

use std::path::PathBuf;
use std::sync::Arc;

use stentor_http_client::Url;
use stentor_sasl::Mechanisms;

/// Settings of `[smart_hosts."HOST:PORT"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmartHost {
    /// Host name as in routes.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub credential: Credential,
    /// The secret is a token, for OAUTHBEARER and XOAUTH2.
    pub is_token: bool,
    /// Mechanisms that may be used.
    pub mechanisms: Mechanisms,
    /// The secret may be sent to a host that has not proven its identity.
    pub unproven_allowed: bool,
}

/// Credential of a login at a smart host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A password, or a token that another program keeps fresh.
    Secret(SecretSource),
    /// An access token, requested when the previous one expires.
    Oauth(Arc<OauthGrant>),
}

/// Source of a secret, read each time that it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The first line of a file.
    File(PathBuf),
    /// The first line printed by a command; program and arguments, without a shell.
    Command(Vec<String>),
}

impl SmartHost {
    /// Login settings for a host, if there are any.
    pub fn find<'a>(all: &'a [SmartHost], host: &str, port: u16) -> Option<&'a SmartHost> {
        all.iter().find(|known| known.port == port && known.host == host)
    }
}

/// The `oauth` table of a section `[smart_hosts."HOST:PORT"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthGrant {
    /// Token endpoint, HTTPS only; it may have a query (RFC 6749 section 3.2).
    pub token_url: Url,
    pub client_id: String,
    /// File whose first line is the client secret.
    pub client_secret_file: Option<PathBuf>,
    /// File whose first line is the refresh token; a rotated token replaces it. `None`: the grant is the client's own
    /// credentials.
    pub refresh_token_file: Option<PathBuf>,
    pub scope: Option<String>,
}
