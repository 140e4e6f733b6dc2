//! Certificates from a CA by ACME (RFC 8555), for names of this server.
//!
//! - `schedule`: when a certificate is asked for: pure.
//! - `record`: what is kept, in small files that are replaced whole ([`Shelf`]).
//! - [`Answers`]: what challenges are answered with; [`http01`] and [`tls_alpn01`] serve them.
//! - [`Keeper`]: asks where it is due, and says when it is next.
//!
//! States of a certificate: none yet (the server's own serves) → ordered (`NAME.order`) → in force (`NAME.pem`) → ordered once
//! more when a third of its lifetime is left. Promise: a certificate in force is only ever replaced by one that fits its key and has
//! all names; keys are on the disk before a CA learns of them, and in no log; a restart at any moment goes on with what is there.
//!
//! Failure: whatever fails changes nothing. It is tried again minutes later, then after longer pauses up to a day, or when the CA says;
//! the log has a warning for each new reason and one a day, and the record says what it was. Memory, connections, times and sizes have limits.

mod answers;
mod client;
mod error;
mod keeper;
mod listen;
mod order;
mod record;
mod schedule;
mod view;

pub use self::answers::Answers;
pub use self::error::AcmeError;
pub use self::keeper::{Keeper, Turn, World};
pub use self::listen::{http01, tls_alpn01};
pub use self::record::{NextKey, Record, Shelf, certificate_file};
pub use self::view::{View, views};

/// Whom to ask for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URL of the CA's directory; `https`.
    pub directory: String,
    /// PEM file of the CAs that prove the directory's host; nothing: those of the system.
    pub ca_file: Option<std::path::PathBuf>,
    /// Mail addresses for the CA.
    pub contact: Vec<String>,
    pub challenge: Challenge,
    /// The names of each certificate, lower-case A-labels. The first names its files.
    pub certificates: Vec<Vec<String>>,
    /// External account binding: the identifier, and the file of the key.
    pub external: Option<(String, std::path::PathBuf)>,
    /// A renewed certificate has the key of the one before, so that TLSA records go on matching.
    pub keep_key: bool,
}

/// How names are proven to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// By HTTP on port 80 (RFC 8555 section 8.3).
    Http01,
    /// By TLS on port 443 (RFC 8737).
    TlsAlpn01,
}
