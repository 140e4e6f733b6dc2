//! SMTP and LMTP: the sessions of both sides, and a parser for octets of sessions that are watched.
//!
//! Nothing here opens a socket or a file, and nothing reads a clock: bytes and `now` go in, events and bytes come out.

pub mod client;
pub mod server;
pub mod wire;
