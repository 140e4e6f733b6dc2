//! SCRAM-SHA-256 and its form that is bound to the channel (RFC 5802, RFC 7677).
//!
//! Client: `first` -> server: nonce, salt, iterations -> client: proof -> server: signature. The server stores [`ScramKeys`], out of
//! which nobody can make a proof without guessing the password.

mod client;
mod keys;
mod server;
mod text;

pub(crate) use client::ScramClient;
pub use keys::{KeysError, ScramKeys};
pub(crate) use server::ScramServer;
pub(crate) use text::user_of_first;
