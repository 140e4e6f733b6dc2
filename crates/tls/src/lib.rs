//! TLS for both sides of mail, and for the console: rustls with one provider of cryptography, aws-lc-rs.
//!
//! - [`Identities`]: certificates with their keys, from files or self-signed; an [`IdentityStore`] replaces them as a
//!   whole.
//! - [`Acceptor`] and [`Connector`]: settings, created once; both create [`SecuredSession`] sessions, which convert
//!   octets without I/O.
//! - [`PeerRequirement`]: requirements for a host's certificate; [`PeerProof`]: how it was proven, or why not, even if
//!   nothing was required.
//! - [`TlsSocket`]: a session over a socket, with the methods of tokio's sockets.
//!
//! Promise: the signature of a handshake is always verified; a session is only resumed under the requirement under
//! which it was proven; each failure has a [`TlsErrorCause`]; buffers are limited, and an idle session uses minimal
//! memory. The crate reads the clock in handshakes (for dates of certificates), and files only in functions whose names
//! say so.

mod cause;
mod certificate;
mod client;
mod der;
mod identity;
mod pem;
mod secured;
mod server;
mod socket;
mod verify;

use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedProtocolVersion, version};

pub use self::cause::{TlsError, TlsErrorCause};
pub use self::certificate::{Certificate, day};
pub use self::client::{ClientSettings, Connector};
pub use self::identity::{
    ACME_TLS_ALPN, ENDS_SOON_DAYS, Files, Identities, Identity, IdentityError, IdentityStore, IdentityWatch, Part,
    RenewalId, SELF_SIGNED_FILE, Source, SourceError, Warning, WatchOutcome, bundle_key,
};
pub use self::secured::{HandshakeFacts, PlainRead, SecuredSession, WRITE_BYTES_MAX};
pub use self::server::{Acceptor, ClientCertificates, ServerSettings};
pub use self::socket::{RawSocket, TlsSocket};
pub use self::verify::{PeerProof, PeerRequirement, PinnedHash, Roots, RootsError, SystemRoots, TlsaRecord, TlsaUse};

/// aws-lc-rs, preferring AES-128 to AES-256: a handshake computes some fifty hashes, and most processors have
/// instructions for SHA-256, few for SHA-384. By measurement, a session with one message takes a tenth less time.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = aws_lc_rs::default_provider();
    let is_aes_128 = |suite: CipherSuite| {
        use CipherSuite as Suite;
        matches!(
            suite,
            Suite::TLS13_AES_128_GCM_SHA256
                | Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    };
    provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
    Arc::new(provider)
});

fn provider() -> &'static CryptoProvider {
    &PROVIDER
}

fn provider_arc() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}

/// Oldest version that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MinVersion {
    #[default]
    Tls12,
    Tls13,
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self {
            MinVersion::Tls12 => &BOTH,
            MinVersion::Tls13 => &BOTH[..1],
        }
    }
}
