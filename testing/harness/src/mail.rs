//! Messages in wire format.

/// A small message with this Message-ID and subject; CRLF lines.
pub fn message(id: &str, subject: &str) -> Vec<u8> {
    message_with(id, &format!("Subject: {subject}\r\n"), "Hello,\r\n\r\n.a line with a dot\r\n..\r\nbye\r\n")
}

/// A message with more header fields (each ended by CRLF) and this body.
pub fn message_with(id: &str, fields: &str, body: &str) -> Vec<u8> {
    format!(
        "From: Me <me@home.example>\r\nTo: all@lists.test\r\nMessage-ID: <{id}>\r\nDate: Sat, 21 Nov 2026 12:00:00 \
         +0000\r\n{fields}\r\n{body}"
    )
    .into_bytes()
}

/// The octets that follow 354 for a message with CRLF lines, with the end of data.
pub fn dot_stuff(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        if line.first() == Some(&b'.') {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    if !out.is_empty() && !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b".\r\n");
    out
}
