//! The connection that an exchange runs over.

use std::net::SocketAddr;

use stentor_sasl::Bindings;

/// The session's connection.
#[derive(Debug, Clone)]
pub struct Channel {
    pub client: SocketAddr,
    pub local: SocketAddr,
    /// Whether it uses TLS, or a network that the configuration exempts.
    pub is_secured: bool,
    /// Channel bindings of the session's TLS; empty without TLS.
    pub bindings: Bindings,
}
