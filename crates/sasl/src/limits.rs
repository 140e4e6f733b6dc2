//! The limits of everything that the other side sends.

/// A message of a mechanism. RFC 4954 section 4 has 12,288 octets for a line of base64, which is 9,216 of these.
pub const MESSAGE_BYTES_MAX: usize = 9_216;
/// The name of a user, as sent and as prepared.
pub const USER_BYTES_MAX: usize = 255;
/// A password.
pub const PASSWORD_BYTES_MAX: usize = 1_024;
/// A bearer token.
pub const TOKEN_BYTES_MAX: usize = 8_192;
/// A message of SCRAM; the longest has two nonces, a binding and a proof.
pub const SCRAM_BYTES_MAX: usize = 4_096;
/// The other side's part of SCRAM's nonce.
pub const NONCE_BYTES_MAX: usize = 512;
/// A salt of SCRAM, decoded.
pub const SALT_BYTES_MAX: usize = 256;
/// RFC 7677 section 4: fewer are not to be used, since they make a stolen exchange easy to guess from.
pub const ITERATIONS_MIN: u32 = 4_096;
/// More would keep a client busy at a server's wish: half a second of a processor.
pub const ITERATIONS_MAX: u32 = 2_000_000;
/// New keys of our own. A hundred times as slow to guess as what RFC 7677 asks for at least would be felt by small clients.
pub const ITERATIONS_DEFAULT: u32 = 100_000;
/// A challenge of CRAM-MD5 (RFC 2195 has a message id there).
pub const CRAM_BYTES_MAX: usize = 1_024;
