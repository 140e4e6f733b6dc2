//! Writes quoted-printable (RFC 2045 6.7): lines of at most 76 octets, white space at line ends escaped.

/// Maximum octets of a line before the `=` of a soft line break.
const COLUMN_MAX: usize = 75;

/// Encodes lines given in pieces.
#[derive(Debug, Default)]
pub struct QuotedPrintable {
    column: usize,
    /// White space that is escaped if the line ends after it.
    pending: Option<u8>,
}

impl QuotedPrintable {
    /// Adds a piece of a line, without line end.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        out.reserve(text.len() + text.len() / 8);
        for &b in text {
            if let Some(space) = self.pending.take() {
                self.put(&[space], out);
            }
            match b {
                b' ' | b'\t' => self.pending = Some(b),
                b'!'..=b'~' if b != b'=' => self.put(&[b], out),
                _ => self.put(&escaped(b), out),
            }
        }
    }

    /// Adds an octet as an escape in any case.
    pub fn push_escaped(&mut self, octet: u8, out: &mut Vec<u8>) {
        if let Some(space) = self.pending.take() {
            self.put(&[space], out);
        }
        self.put(&escaped(octet), out);
    }

    /// Ends the line with CRLF.
    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        self.finish(out);
        out.extend_from_slice(b"\r\n");
        self.column = 0;
    }

    /// Ends the content in this line.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(space) = self.pending.take() {
            self.put(&escaped(space), out);
        }
    }

    fn put(&mut self, token: &[u8], out: &mut Vec<u8>) {
        if self.column + token.len() > COLUMN_MAX {
            out.extend_from_slice(b"=\r\n");
            self.column = 0;
            // The rest of the line could be a delimiter of a multipart (RFC 2046 section 5.1.1).
            if token == b"-" {
                return self.put(&escaped(b'-'), out);
            }
        }
        out.extend_from_slice(token);
        self.column += token.len();
    }
}

/// An escape: `=` and two capital hexadecimal digits.
pub fn escaped(b: u8) -> [u8; 3] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    [b'=', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]
}

/// Appends quoted-printable text, escaping octets over 127 and NULs, which are not valid in it.
pub fn escape_high(text: &[u8], out: &mut Vec<u8>) {
    let mut line_start = out.len();
    for &b in text {
        if b.is_ascii() && b != 0 {
            out.push(b);
            continue;
        }
        if out.len() - line_start > HIGH_COLUMN_MAX {
            out.extend_from_slice(b"=\r\n");
            line_start = out.len();
        }
        out.extend_from_slice(&escaped(b));
    }
}

/// Column at which a line that grows by escapes is broken.
const HIGH_COLUMN_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(lines: &[&[u8]]) -> String {
        let (mut encoder, mut out) = (QuotedPrintable::default(), Vec::new());
        for line in lines {
            encoder.push(line, &mut out);
            encoder.end_line(&mut out);
        }
        String::from_utf8(out).unwrap()
    }

    /// Decodes strictly by RFC 2045 6.7.
    fn decode(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for line in text.split_inclusive("\r\n") {
            let line = line.strip_suffix("\r\n").unwrap();
            assert!(line.len() <= 76 && !line.ends_with([' ', '\t']), "{line:?}");
            let (line, soft) = line.strip_suffix('=').map_or((line, false), |line| (line, true));
            let mut bytes = line.bytes();
            while let Some(b) = bytes.next() {
                if b == b'=' {
                    let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                    out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                } else {
                    assert!(matches!(b, b' '..=b'~' | b'\t'));
                    out.push(b);
                }
            }
            if !soft {
                out.extend_from_slice(b"\r\n");
            }
        }
        out
    }

    #[test]
    fn known_lines() {
        assert_eq!(encode(&["é=a ".as_bytes(), b"\t", b"", b".\0\r"]), "=C3=A9=3Da=20\r\n=09\r\n\r\n.=00=0D\r\n");
        assert_eq!(encode(&[&[b'a'; 76]]), format!("{}=\r\na\r\n", "a".repeat(75)));
    }

    proptest! {
        #[test]
        fn decodes_to_what_it_was(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..6)) {
            let parts: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
            let mut expected = Vec::new();
            for line in &parts {
                expected.extend_from_slice(line);
                expected.extend_from_slice(b"\r\n");
            }
            prop_assert_eq!(decode(&encode(&parts)), expected);
        }
    }
}
