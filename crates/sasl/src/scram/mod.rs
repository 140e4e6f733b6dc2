//! SCRAM-SHA-256, also with channel binding (RFC 5802, RFC 7677).
//!
//! Client: `first` -> server: nonce, salt, iterations -> client: proof -> server: signature. The server stores
//! [`ScramKeys`], from which nobody can create a proof without guessing the password.

mod client;
mod keys;
mod server;
mod text;

pub(crate) use client::ScramClient;
pub use keys::{KeysError, ScramKeys};
pub(crate) use server::ScramServer;
pub(crate) use text::user_of_first;
