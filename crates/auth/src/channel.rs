//! What an exchange runs over.

use std::net::SocketAddr;

use stentor_sasl::Bindings;

/// The session's connection.
#[derive(Debug, Clone)]
pub struct Channel {
    pub client: SocketAddr,
    pub local: SocketAddr,
    /// TLS, or a network that needs none by the configuration.
    pub is_secured: bool,
    /// Of the session's TLS; empty without.
    pub bindings: Bindings,
}
