//! A header section: what it says about the part, and how it is rewritten.

use super::ConvertError;
use super::field::{self, split};

/// What a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Multipart {
        boundary: Vec<u8>,
        /// `multipart/digest`: its parts are messages unless they say otherwise (RFC 2046 5.1.5).
        digest: bool,
    },
    /// `message/rfc822`.
    Message,
    Leaf,
    /// Opaque: a signed or encrypted multipart (RFC 1847), one without a usable boundary, or a fragment (RFC 2046
    /// 5.2.2).
    Sealed,
}

/// Content-Transfer-Encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// 7bit, 8bit, binary or none.
    Identity,
    QuotedPrintable,
    Base64,
    Unknown,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
    pub(super) has_type: bool,
    /// One of the types of RFC 6532 and RFC 6533, which hold header fields with UTF-8.
    pub(super) is_global: bool,
    pub(super) has_version: bool,
    /// Header of a message, not of a part of a multipart.
    pub(super) of_message: bool,
    /// It ended with an empty line, not with a delimiter or the end.
    pub(super) empty_line: bool,
}

/// Longest boundary; RFC 2046 5.1.1 says 70.
const BOUNDARY_BYTES_MAX: usize = 250;

impl Facts {
    /// Reads the MIME fields; the first of each kind counts.
    pub(super) fn read(header: &[u8]) -> Self {
        let mut facts = Self {
            kind: Kind::Leaf,
            encoding: Encoding::Identity,
            has_type: false,
            is_global: false,
            has_version: false,
            of_message: true,
            empty_line: false,
        };
        let mut has_encoding = false;
        for field in fields(header) {
            let Some((name, value)) = split(field) else { continue };
            if name.eq_ignore_ascii_case(b"Content-Type") && !facts.has_type {
                facts.has_type = true;
                facts.kind = kind(value);
                facts.is_global = is_global(value);
            } else if name.eq_ignore_ascii_case(b"Content-Transfer-Encoding") && !has_encoding {
                has_encoding = true;
                facts.encoding = encoding(value);
            } else if name.eq_ignore_ascii_case(b"MIME-Version") {
                facts.has_version = true;
            }
        }
        facts
    }
}

/// Writes the section with what it declares brought down to 7bit; its encoding stays.
pub(super) fn write_seven_bit(
    header: &[u8],
    facts: &Facts,
    lossy: bool,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    let encoding = (facts.encoding == Encoding::Identity).then_some("7bit");
    write(header, encoding, lossy, out)?;
    if facts.empty_line {
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// Writes the section of a leaf that becomes quoted-printable, with the fields that this takes.
pub(super) fn write_quoted(
    header: &[u8],
    facts: &Facts,
    utf8: bool,
    lossy: bool,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    let has_encoding = write(header, Some("quoted-printable"), lossy, out)?;
    if facts.of_message && !facts.has_version {
        out.extend_from_slice(b"MIME-Version: 1.0\r\n");
    }
    if !facts.has_type {
        // RFC 1428 section 3 has the name for what nobody declared.
        let charset = if utf8 { "utf-8" } else { "unknown-8bit" };
        out.extend_from_slice(b"Content-Type: text/plain; charset=");
        out.extend_from_slice(charset.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !has_encoding {
        out.extend_from_slice(b"Content-Transfer-Encoding: quoted-printable\r\n");
    }
    if facts.empty_line {
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// Writes the fields, the transfer encoding replaced; says whether there was one.
fn write(header: &[u8], encoding: Option<&str>, lossy: bool, out: &mut Vec<u8>) -> Result<bool, ConvertError> {
    let mut has_encoding = false;
    for raw in fields(header) {
        let named = split(raw).is_some_and(|(name, _)| name.eq_ignore_ascii_case(b"Content-Transfer-Encoding"));
        match encoding {
            Some(word) if named => {
                if !has_encoding {
                    out.extend_from_slice(b"Content-Transfer-Encoding: ");
                    out.extend_from_slice(word.as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
                has_encoding = true;
            }
            _ if super::is_plain(raw) => out.extend_from_slice(raw),
            _ => field::write_seven_bit(raw, lossy, out)?,
        }
    }
    Ok(has_encoding)
}

/// The fields of a section, each with its folded lines and line ends.
fn fields(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = header;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = 0;
        while let Some(at) = memchr::memchr(b'\n', &rest[end..]) {
            end += at + 1;
            if !matches!(rest.get(end), Some(b' ' | b'\t')) {
                let (field, after) = rest.split_at(end);
                rest = after;
                return Some(field);
            }
        }
        Some(std::mem::take(&mut rest))
    })
}

fn encoding(value: &[u8]) -> Encoding {
    let word = Tokens(value).word().to_ascii_lowercase();
    match word.as_slice() {
        // "7bit", "8bit", and those who write "7-bit" or "8 bit".
        b"" | b"binary" | [b'7' | b'8', ..] => Encoding::Identity,
        b"quoted-printable" => Encoding::QuotedPrintable,
        b"base64" => Encoding::Base64,
        _ => Encoding::Unknown,
    }
}

fn kind(value: &[u8]) -> Kind {
    let mut tokens = Tokens(value);
    let main = tokens.word().to_ascii_lowercase();
    if tokens.next_is(b'/') {
        let sub = tokens.word().to_ascii_lowercase();
        match (main.as_slice(), sub.as_slice()) {
            (b"multipart", b"signed" | b"encrypted") | (b"message", b"partial") => return Kind::Sealed,
            (b"multipart", sub) => {
                let boundary = tokens.parameter(b"boundary").map(|b| b.trim_ascii_end().to_vec());
                return match boundary {
                    Some(boundary) if (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) && boundary.is_ascii() => {
                        Kind::Multipart { boundary, digest: sub == b"digest" }
                    }
                    _ => Kind::Sealed,
                };
            }
            (b"message", b"rfc822" | b"news") => return Kind::Message,
            _ => {}
        }
    }
    Kind::Leaf
}

fn is_global(value: &[u8]) -> bool {
    let mut tokens = Tokens(value);
    tokens.word().eq_ignore_ascii_case(b"message")
        && tokens.next_is(b'/')
        && tokens.word().get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"global"))
}

/// The tokens of a MIME field (RFC 2045 5.1); white space and comments between them are skipped.
struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    fn skip(&mut self) {
        loop {
            self.0 = self.0.trim_ascii_start();
            if self.0.first() != Some(&b'(') {
                return;
            }
            let (mut depth, mut at) = (0_usize, 0);
            while let Some(&b) = self.0.get(at) {
                at += 1;
                match b {
                    b'\\' => at += 1,
                    b'(' => depth += 1,
                    b')' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            self.0 = self.0.get(at..).unwrap_or_default();
        }
    }

    fn next_is(&mut self, wanted: u8) -> bool {
        self.skip();
        let found = self.0.first() == Some(&wanted);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn word(&mut self) -> &'a [u8] {
        self.skip();
        let special = |b: &u8| b.is_ascii_whitespace() || b"()<>@,;:\\\"/[]?=".contains(b);
        let end = self.0.iter().position(special).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    /// The value of a parameter: a quoted string or what goes up to the next separator.
    fn value(&mut self) -> Vec<u8> {
        if !self.next_is(b'"') {
            let end = self.0.iter().position(|b| b.is_ascii_whitespace() || *b == b';').unwrap_or(self.0.len());
            let (value, rest) = self.0.split_at(end);
            self.0 = rest;
            return value.to_vec();
        }
        let mut value = Vec::new();
        let mut at = 0;
        while let Some(&b) = self.0.get(at) {
            at += 1;
            match b {
                b'"' => break,
                b'\\' => {
                    value.extend(self.0.get(at));
                    at += 1;
                }
                b'\r' | b'\n' => {}
                b => value.push(b),
            }
        }
        self.0 = self.0.get(at..).unwrap_or_default();
        value
    }

    fn parameter(mut self, wanted: &[u8]) -> Option<Vec<u8>> {
        loop {
            let at = memchr::memchr(b';', self.0)?;
            self.0 = &self.0[at + 1..];
            let name = self.word();
            if self.next_is(b'=') {
                let value = self.value();
                if name.eq_ignore_ascii_case(wanted) {
                    return Some(value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multipart(boundary: &str) -> Kind {
        Kind::Multipart { boundary: boundary.into(), digest: false }
    }

    #[test]
    fn content_types() {
        assert_eq!(kind(b" multipart/mixed; boundary=abc\r\n"), multipart("abc"));
        assert_eq!(
            kind(b" Multipart / Mixed (x(y\\)) ;z);\r\n\tcharset=\"a;boundary=no\";BOUNDARY = \"a b\\\"c\""),
            multipart("a b\"c")
        );
        assert_eq!(kind(b"multipart/digest;boundary=a"), Kind::Multipart { boundary: b"a".to_vec(), digest: true });
        assert_eq!(kind(b"multipart/mixed"), Kind::Sealed);
        assert_eq!(kind(b"multipart/mixed; boundary=\"\""), Kind::Sealed);
        assert_eq!(kind(b"message/RFC822"), Kind::Message);
        assert_eq!(kind(b"message/partial; id=x"), Kind::Sealed);
        for sealed in ["multipart/signed; boundary=a", "Multipart/Encrypted; boundary=\"a\""] {
            assert_eq!(kind(sealed.as_bytes()), Kind::Sealed);
        }
        assert!(is_global(b" message/Global-headers; x=y") && !is_global(b"message/rfc822"));
        for leaf in ["text/plain", "", "multipart", ";;;===\"\"(((", "message/delivery-status", "message/global"] {
            assert_eq!(kind(leaf.as_bytes()), Kind::Leaf, "{leaf}");
        }
    }

    #[test]
    fn fields_keep_their_folds() {
        let header = b"A: b\r\n c\r\n\td\r\nE: f\r\n";
        assert_eq!(fields(header).collect::<Vec<_>>(), [&b"A: b\r\n c\r\n\td\r\n"[..], b"E: f\r\n"]);
        let facts = Facts::read(b"content-transfer-encoding : (x) Base64\r\nMime-version: 1.0\r\n");
        assert_eq!((facts.encoding, facts.has_version, facts.has_type), (Encoding::Base64, true, false));
        assert_eq!(Facts::read(b"Content-Transfer-Encoding: x-uue\r\n").encoding, Encoding::Unknown);
    }
}
