//! Toward 8 bits: text in quoted-printable or base64 is written as it is, with `8bit` or, where it is ASCII, `7bit`.
//!
//! Promise: each part decodes to the octets that it had, for every reader. So a text stays encoded where it could not stand by itself
//! (RFC 6152, RFC 2045 section 2.8: NULs, a CR or LF of its own, lines over 998 octets), where a line of it would be taken for the
//! delimiter of a multipart around it, where it has no last line end and nothing behind it to carry one, where it is larger than
//! [`HOLD_BYTES_MAX`](super::HOLD_BYTES_MAX), or where readers differ in what they make of its encoding or header. Whatever
//! is no text, is signed or encrypted passes octet by octet. A text of lines that end with LF alone (Python's email writes such base64)
//! stays too: it is not canonical (RFC 2045 section 6.8), but an attached script or patch is a `text/*` as well, and with CRLF another file.
//!
//! Headers of what is around a part go out before it is known, and must name the highest encoding within (RFC 2045 section 6.4): so
//! a message is read twice. The first reading counts multiparts and messages, and notes which of them come to hold 8-bit text.

use stentor_mime::transfer::Encoding;

use super::header::{self, Facts, Kind};
use super::levels::Level;
use super::{Converter, LEVELS_MAX, LINE_BYTES_MAX, Octets, State, Stop, is_plain};

/// Multiparts and messages that are looked into; what is in any further one passes as it is.
const CONTAINERS_MAX: usize = 256 * 1024;

/// What is known of the message beside its structure.
#[derive(Debug, Default)]
pub(super) struct Decoding {
    pub(super) has_changed: bool,
    /// Encoded texts that stay encoded.
    pub(super) stayed: usize,
    /// Multiparts and messages so far.
    containers: usize,
    /// Those around the octet being read: their numbers, beside `levels`.
    around: Vec<usize>,
    /// Which of all come to hold 8-bit text, a bit each.
    eight_bit: Vec<u64>,
}

impl Decoding {
    /// For the second reading.
    pub(super) fn again(self) -> Decoding {
        Decoding { eight_bit: self.eight_bit, ..Decoding::default() }
    }

    fn mark(&mut self, depth: usize) {
        for number in &self.around[..depth] {
            let at = number / 64;
            if self.eight_bit.len() <= at {
                self.eight_bit.resize(at + 1, 0);
            }
            self.eight_bit[at] |= 1 << (number % 64);
        }
    }

    fn is_marked(&self, number: usize) -> bool {
        self.eight_bit.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }
}

impl Converter {
    /// A converter to 8 bits.
    pub(super) fn decoding(decoding: Decoding) -> Converter {
        Converter { decoding: Some(Box::new(decoding)), ..Converter::with(Octets::Keep) }
    }

    /// The header section is complete: what kind of part is it?
    pub(super) fn begin_decoding(&mut self, mut facts: Facts, out: &mut Vec<u8>) {
        let identity = facts.encoding == Encoding::Identity;
        let level = match std::mem::replace(&mut facts.kind, Kind::Leaf) {
            _ if facts.is_ambiguous => None,
            Kind::Multipart { boundary, digest } if identity => Some(Level::Multipart { boundary, digest }),
            Kind::Message if identity => Some(Level::Message),
            Kind::Leaf if facts.is_text && matches!(facts.encoding, Encoding::QuotedPrintable | Encoding::Base64) => {
                self.state = State::Hold { facts, body: Vec::new(), eight_bit: false, has_long_line: false };
                return;
            }
            _ => None,
        };
        let header = std::mem::take(&mut self.header);
        match (level, &mut self.decoding) {
            (Some(level), Some(decoding)) if self.levels.len() < LEVELS_MAX && decoding.containers < CONTAINERS_MAX => {
                let number = decoding.containers;
                decoding.containers += 1;
                decoding.around.truncate(self.levels.len());
                decoding.around.push(number);
                if decoding.is_marked(number) && !facts.is_binary {
                    header::write_encoding(&header, &facts, "8bit", out);
                } else {
                    push_section(&header, &facts, out);
                }
                self.state = if matches!(level, Level::Message) { State::Header } else { State::Copy };
                self.levels.push(level);
            }
            (_, decoding) => {
                let is_encoded = matches!(facts.encoding, Encoding::QuotedPrintable | Encoding::Base64);
                if let Some(decoding) = decoding.as_mut().filter(|_| facts.is_text && is_encoded) {
                    decoding.stayed += 1;
                }
                push_section(&header, &facts, out);
                self.state = State::Copy;
            }
        }
    }

    /// Lets the text that was held go.
    pub(super) fn release_decoded(
        &mut self,
        (header, facts): (&[u8], &Facts),
        body: &[u8],
        stop: Stop,
        out: &mut Vec<u8>,
    ) {
        self.state = State::Copy;
        let text = self.decoded(facts.encoding, body, stop);
        let (Some(text), Some(decoding)) = (text, &mut self.decoding) else {
            if let Some(decoding) = &mut self.decoding {
                decoding.stayed += 1;
            }
            push_section(header, facts, out);
            out.extend_from_slice(body);
            return;
        };
        decoding.has_changed = true;
        if !text.is_ascii() {
            decoding.mark(self.levels.len());
        }
        header::write_encoding(header, facts, if text.is_ascii() { "7bit" } else { "8bit" }, out);
        out.extend_from_slice(&text);
        if stop == Stop::Delimiter {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The text, if it may stand as it is.
    fn decoded(&self, encoding: Encoding, body: &[u8], stop: Stop) -> Option<Vec<u8>> {
        let body = match stop {
            Stop::Full { .. } => return None,
            Stop::Delimiter => body.strip_suffix(b"\r\n")?,
            Stop::Eof => body,
        };
        let is_clear = match encoding {
            Encoding::QuotedPrintable => is_clear_quoted(body),
            _ => is_clear_base64(body),
        };
        if !is_clear {
            return None;
        }
        let text = encoding.decode(body);
        // Without a delimiter only the text itself can end its last line, and a message ends with a whole line.
        let is_whole = stop == Stop::Delimiter || text.ends_with(b"\r\n");
        (is_whole && !text.is_empty() && self.may_stand(&text)).then_some(text)
    }

    fn may_stand(&self, text: &[u8]) -> bool {
        let mut lines = text.strip_suffix(b"\r\n").unwrap_or(text).split(|&b| b == b'\n').peekable();
        while let Some(line) = lines.next() {
            let line = match lines.peek() {
                Some(_) => match line.strip_suffix(b"\r") {
                    Some(line) => line,
                    None => return false,
                },
                None => line,
            };
            if line.len() > LINE_BYTES_MAX || memchr::memchr2(0, b'\r', line).is_some() || self.levels.may_delimit(line)
            {
                return false;
            }
        }
        true
    }
}

fn push_section(header: &[u8], facts: &Facts, out: &mut Vec<u8>) {
    out.extend_from_slice(header);
    if facts.empty_line {
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether all readers decode it alike: whole groups in lines, padding at the end alone.
fn is_clear_base64(body: &[u8]) -> bool {
    let (mut count, mut padding) = (0_usize, 0_usize);
    for &b in body {
        match b {
            b'\r' | b'\n' => {}
            b'=' => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => count += 1,
            _ => return false,
        }
    }
    padding <= 2 && (count + padding).is_multiple_of(4)
}

/// The same: escapes with both digits, soft line ends without white space behind the equals sign, and none at the end of other lines,
/// which some readers drop (RFC 2045 section 6.7 rule 3) and some keep.
fn is_clear_quoted(body: &[u8]) -> bool {
    let mut rest = body;
    while let Some(at) = memchr::memchr2(b'=', b'\n', rest) {
        let (before, from) = rest.split_at(at);
        if !is_printable(before.strip_suffix(b"\r").filter(|_| from[0] == b'\n').unwrap_or(before)) {
            return false;
        }
        rest = match from {
            [b'\n', rest @ ..] => match before.strip_suffix(b"\r") {
                Some(line) if !line.ends_with(b" ") && !line.ends_with(b"\t") => rest,
                _ => return false,
            },
            [b'=', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            [b'=', b'\r', b'\n', rest @ ..] => rest,
            b"=" => b"",
            _ => return false,
        };
    }
    is_printable(rest) && !rest.ends_with(b" ") && !rest.ends_with(b"\t")
}

fn is_printable(text: &[u8]) -> bool {
    is_plain(text) && !text.contains(&b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_decode_alike() {
        for (body, wanted) in [
            ("YWI=\r\n", true),
            ("YW\r\nJj\r\n\r\n", true),
            ("YQ==", true),
            ("YWI", false),
            ("YWI=YWI=", false),
            ("YW I=", false),
            ("YW*I", false),
            ("Y===", false),
        ] {
            assert_eq!(is_clear_base64(body.as_bytes()), wanted, "{body}");
        }
        for (body, wanted) in [
            ("a=C3=a9=\r\n b=20\r\n", true),
            ("", true),
            ("a=", true),
            ("a=\r\n", true),
            ("a \r\n", false),
            ("a ", false),
            ("a=20=\t\r\n", false),
            ("=4", false),
            ("=XY", false),
            ("a\nb", false),
            ("a\rb", false),
            ("é", false),
            ("a\0", false),
        ] {
            assert_eq!(is_clear_quoted(body.as_bytes()), wanted, "{body:?}");
        }
    }
}
