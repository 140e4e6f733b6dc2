//! SASL (RFC 4422) mechanisms for servers and clients: octets in, octets out.
//!
//! Promise: no I/O, no clock, no randomness of its own. No input causes a panic, stored data is bounded ([`limits`]),
//! and every failure is a [`SaslError`] without any of the data sent. Secrets are compared in constant time
//! ([`is_same`]), wiped when dropped, and never shown by `Debug` ([`Secret`]).
//!
//! | mechanism | server | client |
//! |---|---|---|
//! | PLAIN (RFC 4616), LOGIN | yields [`Credentials`], which the caller checks | yes |
//! | SCRAM-SHA-256, SCRAM-SHA-256-PLUS (RFC 5802, 7677; channel bindings tls-exporter, RFC 9266, and tls-server-end-point, RFC 5929) | asks the caller for the user's [`ScramKeys`] | yes; a server that does not prove that it knows the keys is an error |
//! | OAUTHBEARER (RFC 7628), XOAUTH2 | yields a [`BearerToken`] for the caller to verify | yes |
//! | CRAM-MD5 (RFC 2195) | no: it needs passwords stored in clear | yes, as the last choice |
//!
//! [`ServerExchange`] is the server's side, [`ClientExchange`] the client's; [`choose`] selects a client's mechanism
//! from those offered. Unknown users get [`ScramKeys::made_up`], which look like those of a user.
//!
//! The caller does base64, the lines of its protocol, timeouts, and password checks on threads that may block. A
//! client's [`ClientExchange::respond`] may take half a second for SCRAM ([`limits::ITERATIONS_MAX`]).

mod binding;
mod choice;
mod client;
mod cram;
mod error;
pub mod limits;
mod mechanism;
mod oauth;
mod plain;
mod prep;
mod scram;
mod secret;
mod server;

pub use binding::{Binding, BindingKind, Bindings};
pub use choice::{ClientCapabilities, MechanismChoice, NoMechanism, choose};
pub use client::{ClientCredentials, ClientExchange};
pub use error::SaslError;
pub use mechanism::{Mechanism, Mechanisms};
pub use oauth::BearerToken;
pub use plain::Credentials;
pub use prep::{PrepError, prepare};
pub use scram::{KeysError, ScramKeys};
pub use secret::{Secret, is_same};
pub use server::{ServerExchange, ServerStep, peek_user};
