//! Line ends of a message as SMTP sends it (RFC 5321 section 2.3.8).

/// The text with every LF, CRLF and bare CR as CRLF, and one at its end; empty stays empty.
pub fn crlf(text: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(text.len() + text.len() / 40 + 2);
    let mut lines = text.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_none() && line.is_empty() {
            break;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A CR inside a line cannot be sent; a mail program would have ended the line there.
        for (i, part) in line.split(|byte| *byte == b'\r').enumerate() {
            if i > 0 {
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(part);
        }
        wire.extend_from_slice(b"\r\n");
    }
    wire
}
