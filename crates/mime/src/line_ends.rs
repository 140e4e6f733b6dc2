//! Line ends as SMTP has them (RFC 5321 section 2.3.8).

use memchr::memmem;

/// The message with CRLF at the end of each line; what follows the last one stays.
pub fn with_crlf(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + message.len() / 32);
    let mut kept = 0;
    for at in memmem::find_iter(message, b"\n") {
        let line = &message[kept..at];
        out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        out.extend_from_slice(b"\r\n");
        kept = at + 1;
    }
    out.extend_from_slice(&message[kept..]);
    out
}
