//! Limits of all data from the other side.

/// Octets of a mechanism's message. RFC 4954 section 4 limits a base64 line to 12,288 octets, which decode to 9,216.
pub const MESSAGE_BYTES_MAX: usize = 9_216;
/// Octets of a user name, as sent and as prepared.
pub const USER_BYTES_MAX: usize = 255;
/// Octets of a password.
pub const PASSWORD_BYTES_MAX: usize = 1_024;
/// Octets of a bearer token.
pub const TOKEN_BYTES_MAX: usize = 8_192;
/// Octets of a SCRAM message; the longest has two nonces, a binding and a proof.
pub const SCRAM_BYTES_MAX: usize = 4_096;
/// Octets of the other side's part of SCRAM's nonce.
pub const NONCE_BYTES_MAX: usize = 512;
/// Octets of a SCRAM salt, decoded.
pub const SALT_BYTES_MAX: usize = 256;
/// RFC 7677 section 4: fewer make a stolen exchange easy to guess from.
pub const ITERATIONS_MIN: u32 = 4_096;
/// More would let a server keep a client busy: half a second of a processor.
pub const ITERATIONS_MAX: u32 = 2_000_000;
/// Iterations of our own new keys. A hundred times the work of RFC 7677's minimum would be noticeable on small clients.
pub const ITERATIONS_DEFAULT: u32 = 100_000;
/// Octets of a CRAM-MD5 challenge (a message id in RFC 2195).
pub const CRAM_BYTES_MAX: usize = 1_024;
