//! 8-bit content made 7-bit (RFC 6152, RFC 2045).
