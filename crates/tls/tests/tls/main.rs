//! End-to-end tests of TLS: sessions in memory, over sockets, with OpenSSL's programs, and with broken servers.

// The kit is the vocabulary of these tests.
#![allow(clippy::wildcard_imports)]

mod broken;
mod identities;
mod kit;
mod memory;
mod openssl;
mod proof;
mod sockets;
