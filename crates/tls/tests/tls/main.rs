//! TLS end to end: sessions in memory, over sockets, with OpenSSL's programs, and with servers that are broken.

// The kit is the vocabulary of these tests.
#![allow(clippy::wildcard_imports)]

mod broken;
mod identities;
mod kit;
mod memory;
mod openssl;
mod proof;
mod sockets;
