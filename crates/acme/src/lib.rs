//! Certificates from a CA by ACME (RFC 8555), for names of this server.
//!
//! - `schedule`: decides when a certificate is ordered; pure.
//! - `record`: the stored state, in small files that are replaced whole ([`Shelf`]).
//! - [`ChallengeResponses`]: answers to challenges; [`http01`] and [`tls_alpn01`] serve them.
//! - [`CertificateKeeper`]: orders due certificates, and returns the time of the next turn.
//!
//! States of a certificate: none yet (the server's own serves) → ordered (`NAME.order`) → in force (`NAME.pem`) →
//! ordered again when a third of its lifetime is left. Promise: a certificate in force is only replaced by one that
//! matches its key and has all names; keys are on the disk before a CA sees them, and never in a log; a restart at any
//! moment continues from the stored state.
//!
//! Failure: a failure changes nothing. It is retried minutes later, then after longer pauses up to a day, or when the
//! CA says; each new reason is logged as a warning, repeated ones once a day, and the record contains it. Memory,
//! connections, times and sizes have limits.

mod answers;
mod client;
mod error;
mod keeper;
mod listen;
mod order;
mod record;
mod schedule;
mod view;

pub use self::answers::ChallengeResponses;
pub use self::error::AcmeError;
pub use self::keeper::{CertificateKeeper, Turn, World};
pub use self::listen::{http01, tls_alpn01};
pub use self::record::{NextKey, Record, Shelf, certificate_file};
pub use self::view::{CertificateStatus, views};

/// The CA and the certificates to order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URL of the CA's directory; `https`.
    pub directory: String,
    /// PEM file of the CAs trusted for the directory's host; `None` for those of the system.
    pub ca_file: Option<std::path::PathBuf>,
    /// Mail addresses for the CA.
    pub contact: Vec<String>,
    pub challenge: Challenge,
    /// The names of each certificate, as lower-case A-labels. The first determines its file names.
    pub certificates: Vec<Vec<String>>,
    /// External account binding: the identifier, and the file of the key.
    pub external: Option<(String, std::path::PathBuf)>,
    /// A renewed certificate keeps the previous key, so that TLSA records still match.
    pub keep_key: bool,
}

/// The way to prove control of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// By HTTP on port 80 (RFC 8555 section 8.3).
    Http01,
    /// By TLS on port 443 (RFC 8737).
    TlsAlpn01,
}
