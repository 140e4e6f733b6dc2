//! SASL (RFC 4422) mechanisms, as servers and as clients speak them: octets in, octets out.
//!
//! Promise: no I/O, no clock, no randomness of its own. Whatever the other side sends, nothing panics, what is kept is
//! bounded ([`limits`]), and every failure is a [`SaslError`] that holds nothing of what was sent. Secrets are compared in constant
//! time ([`is_same`]), wiped when they are dropped, and never shown by `Debug` ([`Secret`]).
//!
//! | mechanism | server | client |
//! |---|---|---|
//! | PLAIN (RFC 4616), LOGIN | yields [`Credentials`], which the caller checks | yes |
//! | SCRAM-SHA-256, SCRAM-SHA-256-PLUS (RFC 5802, 7677; channel bindings tls-exporter, RFC 9266, and tls-server-end-point, RFC 5929) | asks the caller for the user's [`ScramKeys`] | yes; a server that does not prove that it knows the keys is an error |
//! | OAUTHBEARER (RFC 7628), XOAUTH2 | yields a [`Token`], which somebody else checks | yes |
//! | CRAM-MD5 (RFC 2195) | no: it takes passwords that are stored in clear | yes, as the last choice |
//!
//! The server's side is [`Server`], the client's [`Client`]; which mechanism a client takes of those offered is
//! [`choose`]. Who is not known gets [`ScramKeys::made_up`], which nobody can tell from those of a user.
//!
//! What the caller does: base64, the lines of its protocol, time-outs, and checking passwords away from threads that must not
//! wait. A client's [`Client::respond`] may take some 100 ms for SCRAM ([`limits::ITERATIONS_MAX`]).

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
pub use choice::{Choice, Have, NoMechanism, choose};
pub use client::{Account, Client};
pub use error::SaslError;
pub use mechanism::{Mechanism, Mechanisms};
pub use oauth::Token;
pub use plain::Credentials;
pub use prep::{PrepError, prepare};
pub use scram::{KeysError, ScramKeys};
pub use secret::{Secret, is_same};
pub use server::{Server, ServerStep, peek_user};
