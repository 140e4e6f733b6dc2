//! Conversion to 8 bits: decodes text in quoted-printable or base64, and labels it `8bit` or, if it is ASCII, `7bit`.
//!
//! Promise: each part still decodes to the same octets for every reader. So a text stays encoded if it is not valid
//! unencoded (RFC 6152, RFC 2045 section 2.8: NULs, bare CR or LF, lines over 998 octets); if one of its lines could
//! be taken for a delimiter of an enclosing multipart; if its last line has no end and no delimiter follows; if it is
//! larger than [`HOLD_BYTES_MAX`](super::HOLD_BYTES_MAX); or if readers may interpret its encoding or header
//! differently. Parts that are not text, and signed or encrypted ones, are copied unchanged. A text with bare LF line
//! ends (Python's email writes such base64) stays encoded, too: it is not canonical (RFC 2045 section 6.8), but an
//! attached script or patch is also `text/*`, and would be another file with CRLF.
//!
//! Headers of enclosing parts are written before a part is read, and must name the highest encoding inside (RFC 2045
//! section 6.4); so a message is read twice. The first pass counts multiparts and messages, and records which of them
//! will contain 8-bit text.

use crate::transfer::Encoding;

use super::header::{self, Facts, Kind};
use super::levels::Level;
use super::{Converter, LEVELS_MAX, LINE_BYTES_MAX, Octets, State, Stop, is_plain};

/// Maximum multiparts and messages that are examined; the content of any further one is copied unchanged.
const CONTAINERS_MAX: usize = 256 * 1024;

/// State of the conversion to 8 bits.
#[derive(Debug, Default)]
pub(super) struct Decoding {
    pub(super) has_changed: bool,
    /// Number of texts that stay encoded.
    pub(super) stayed: usize,
    /// Number of multiparts and messages so far.
    containers: usize,
    /// Numbers of the multiparts and messages around the current octet, in parallel to `levels`.
    around: Vec<usize>,
    /// Bit set of those that will contain 8-bit text.
    eight_bit: Vec<u64>,
}

impl Decoding {
    /// The state for the second pass.
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

    /// Handles a complete header section: decides which kind of part follows.
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

    /// Releases the text that was held.
    pub(super) fn release_decoded(&mut self, header: &[u8], facts: &Facts, body: &[u8], stop: Stop, out: &mut Vec<u8>) {
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

    /// The decoded text, if it may be written unencoded.
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
        // Without a delimiter the text itself must end its last line, since a message ends with a complete line.
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

/// Whether all readers decode it alike: lines of whole groups, padding only at the end.
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

/// Whether all readers decode it alike: escapes have both digits; soft line breaks have no white space after the
/// equals sign; other lines do not end with white space, which some readers drop (RFC 2045 section 6.7 rule 3) and
/// some keep.
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
