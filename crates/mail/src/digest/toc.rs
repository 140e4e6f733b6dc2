//! The table of contents: subject and author of each post, as people read them.

use super::fields::Piece;
use crate::seven_bit::quoted::QuotedPrintable;

/// Octets of a subject or an author that are looked at.
const VALUE_BYTES_MAX: usize = 2_000;
/// Characters of them that are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// One line of it, and whether the header section is UTF-8.
#[derive(Debug, Default)]
pub(super) struct Entry {
    subject: Vec<u8>,
    from: Vec<u8>,
    /// Which of them the field at hand is.
    field: Field,
    header: super::scan::Utf8Scan,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Field {
    Subject,
    From,
    #[default]
    Other,
}

impl Entry {
    /// Takes a piece; whether it is of the header section and beyond ASCII.
    pub(super) fn take(&mut self, piece: Piece<'_>) -> bool {
        match piece {
            Piece::Name(name) => {
                self.field = if name.eq_ignore_ascii_case(b"subject:") && self.subject.is_empty() {
                    Field::Subject
                } else if name.eq_ignore_ascii_case(b"from:") && self.from.is_empty() {
                    Field::From
                } else {
                    Field::Other
                };
                false
            }
            Piece::Value(value) => {
                self.header.push(value);
                let kept = match self.field {
                    Field::Subject => &mut self.subject,
                    Field::From => &mut self.from,
                    Field::Other => return !value.is_ascii(),
                };
                let room = VALUE_BYTES_MAX - kept.len().min(VALUE_BYTES_MAX);
                kept.extend_from_slice(&value[..value.len().min(room)]);
                !value.is_ascii()
            }
            Piece::BodyBegins | Piece::Body(_) => false,
        }
    }

    pub(super) fn is_utf8(&self) -> bool {
        self.header.is_valid()
    }

    /// Appends `subject (author)`.
    pub(super) fn write(&self, out: &mut String) {
        let subject = readable(&self.subject);
        out.push_str(if subject.is_empty() { "(no subject)" } else { &subject });
        let from = readable(&self.from);
        if !from.is_empty() {
            out.push_str(" (");
            out.push_str(name_of(&from));
            out.push(')');
        }
    }
}

/// The name of a mailbox if it has one, else all of it.
fn name_of(from: &str) -> &str {
    let name = from.split_once('<').map_or("", |(name, _)| name.trim().trim_matches('"').trim());
    if name.is_empty() { from } else { name }
}

/// A field's value on one line, its encoded words (RFC 2047) decoded.
fn readable(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut out = String::new();
    let mut after_word = false;
    for token in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|token| !token.is_empty()) {
        let decoded = decode_word(token);
        // Section 6.2: white space between encoded words is none of the text.
        if !(out.is_empty() || (after_word && decoded.is_some())) {
            out.push(' ');
        }
        after_word = decoded.is_some();
        out.push_str(decoded.as_deref().unwrap_or(token));
    }
    out.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS_MAX).collect()
}

/// `=?charset?Q?text?=` or with `B`, in UTF-8, US-ASCII or ISO 8859-1; others stay as they are.
fn decode_word(token: &str) -> Option<String> {
    let mut parts = token.strip_prefix("=?")?.strip_suffix("?=")?.split('?');
    let (charset, encoding, text) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let octets = match encoding {
        "Q" | "q" => decode_q(text)?,
        "B" | "b" => decode_b(text)?,
        _ => return None,
    };
    // RFC 2231 section 5: a language may follow.
    match charset.split('*').next()?.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => Some(String::from_utf8_lossy(&octets).into_owned()),
        "iso-8859-1" => Some(octets.iter().map(|b| char::from(*b)).collect()),
        _ => None,
    }
}

fn decode_q(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'_' => b' ',
            b'=' => (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8,
            b => b,
        });
    }
    Some(out)
}

fn decode_b(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for b in text.trim_end_matches('=').bytes() {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

/// Appends the table as a MIME part that is 7-bit whatever is in it.
pub(super) fn write_part(text: &str, out: &mut Vec<u8>) {
    let is_plain = text.is_ascii() && text.lines().all(|line| line.len() < 998);
    let (charset, encoding) = if is_plain { ("us-ascii", "7bit") } else { ("utf-8", "quoted-printable") };
    out.extend_from_slice(
        format!(
            "Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\
             Content-Description: Table of contents\r\n\r\n"
        )
        .as_bytes(),
    );
    if is_plain {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut encoder = QuotedPrintable::default();
    for line in text.lines() {
        encoder.push(line.as_bytes(), out);
        encoder.end_line(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_become_text() {
        for (value, wanted) in [
            ("Re: a\r\n  b", "Re: a b"),
            ("=?utf-8?Q?Gr=C3=BC=C3=9Fe_an?= =?UTF-8?b?YWxsZQ==?= hier", "Grüße analle hier"),
            ("=?iso-8859-1*de?q?Stra=DFe?=", "Straße"),
            ("=?koi8-r?q?=C0?=", "=?koi8-r?q?=C0?="),
            ("=?utf-8?q?=ZZ?= =?utf-8?x?a?= =?a?=", "=?utf-8?q?=ZZ?= =?utf-8?x?a?= =?a?="),
            ("=?utf-8?b?/+8=?=", "\u{fffd}\u{fffd}"),
            ("=?utf-8?q?a=0D=0AX:_y?=", "a  X: y"),
        ] {
            assert_eq!(readable(value.as_bytes()), wanted, "{value}");
        }
        assert_eq!(name_of("\"Ann B.\" <ann@x>"), "Ann B.");
        assert_eq!(name_of("<ann@x>"), "<ann@x>");
        assert_eq!(name_of("ann@x"), "ann@x");
    }
}
