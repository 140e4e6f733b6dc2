//! TLS end to end: sessions in memory, over sockets, with OpenSSL's programs, and with servers that are broken.

mod broken;
mod identities;
mod kit;
mod memory;
mod openssl;
mod proof;
mod sockets;
