//! A header section: what it says about the part, and how it is rewritten.

use crate::field::{Line, LineContext, line, lines as fields};
use crate::params::{MimeField, ParamName};
use crate::transfer::Encoding;

use super::field::{self, split};
use super::{ConvertError, LINE_BYTES_MAX, Octets, longest_line};

/// Kind of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Multipart {
        boundary: Vec<u8>,
        /// `multipart/digest`: the default type of its parts is a message (RFC 2046 5.1.5).
        digest: bool,
    },
    /// `message/rfc822`.
    Message,
    Leaf,
    /// Opaque: a signed or encrypted multipart (RFC 1847), one without a usable boundary, or a fragment (RFC 2046
    /// 5.2.2).
    Sealed,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
    /// Whether it declares `binary`, which exceeds 8bit.
    pub(super) is_binary: bool,
    pub(super) has_type: bool,
    /// Whether it is `text/*` whose octets may be treated as ASCII, or has no type (RFC 2045 section 5.2).
    pub(super) is_text: bool,
    /// Whether programs may read this header differently: repeated MIME fields or parameters, or a line that is not a
    /// field.
    pub(super) is_ambiguous: bool,
    /// Whether it is one of the types of RFC 6532 and RFC 6533, which contain header fields with UTF-8.
    pub(super) is_global: bool,
    /// Whether it contains groups of fields, which must not be encoded (RFC 3464 section 2.1, RFC 8098 section 3.1).
    pub(super) is_status: bool,
    pub(super) has_version: bool,
    /// Whether it is the header of a message, not of a part of a multipart.
    pub(super) of_message: bool,
    /// Whether it ended with an empty line, not with a delimiter or the end.
    pub(super) empty_line: bool,
}

/// Maximum length of a boundary; RFC 2046 5.1.1 says 70.
const BOUNDARY_BYTES_MAX: usize = 250;

impl Facts {
    /// Parses the MIME fields; the first of each kind counts.
    pub(super) fn read(header: &[u8]) -> Self {
        let mut facts = Self {
            kind: Kind::Leaf,
            encoding: Encoding::Identity,
            is_binary: false,
            has_type: false,
            is_text: true,
            is_ambiguous: false,
            is_global: false,
            is_status: false,
            has_version: false,
            of_message: true,
            empty_line: false,
        };
        let mut has_encoding = false;
        for field in fields(header) {
            facts.is_ambiguous |= !matches!(line(LineContext::Bare, field, true), Some(Line::Field { .. }));
            let Some((name, value)) = split(field) else { continue };
            let (is_type, is_encoding) =
                (name.eq_ignore_ascii_case(b"Content-Type"), name.eq_ignore_ascii_case(b"Content-Transfer-Encoding"));
            facts.is_ambiguous |= is_type && facts.has_type || is_encoding && has_encoding;
            if is_type && !facts.has_type {
                facts.has_type = true;
                let field = MimeField::parse(value);
                facts.is_ambiguous |= field.is_ambiguous;
                facts.kind = kind(&field);
                facts.is_global = is_global(&field);
                facts.is_status = is_status(&field);
                facts.is_text = is_text(&field);
            } else if is_encoding && !has_encoding {
                has_encoding = true;
                let field = MimeField::parse(value);
                facts.is_ambiguous |= field.is_ambiguous;
                facts.encoding = Encoding::named(field.value.as_bytes());
                facts.is_binary = field.value.eq_ignore_ascii_case("binary");
            } else if name.eq_ignore_ascii_case(b"MIME-Version") {
                facts.has_version = true;
            }
        }
        facts
    }
}

/// Writes the section of a part whose encoding does not change; if the output is 7-bit, the declared encoding becomes
/// 7bit.
pub(super) fn write_kept(header: &[u8], facts: &Facts, octets: Octets, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    let is_brought_down = facts.encoding == Encoding::Identity && octets != Octets::Keep;
    write(header, is_brought_down.then_some("7bit"), octets, out)?;
    if facts.empty_line {
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// Writes the section of a leaf that becomes quoted-printable, with the fields that it needs. `charset` of its text,
/// if none is declared.
pub(super) fn write_quoted(
    header: &[u8],
    facts: &Facts,
    charset: &str,
    octets: Octets,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    let has_encoding = write(header, Some("quoted-printable"), octets, out)?;
    if facts.of_message && !facts.has_version {
        out.extend_from_slice(b"MIME-Version: 1.0\r\n");
    }
    if !facts.has_type {
        out.extend_from_slice(b"Content-Type: text/plain; charset=");
        out.extend_from_slice(charset.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !has_encoding {
        push_encoding("quoted-printable", out);
    }
    if facts.empty_line {
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// Writes the section with another transfer encoding and otherwise unchanged.
pub(super) fn write_encoding(header: &[u8], facts: &Facts, encoding: &str, out: &mut Vec<u8>) {
    if !write_all(header, encoding, out) {
        push_encoding(encoding, out);
    }
    if facts.empty_line {
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes the fields unchanged except for the transfer encoding; returns whether there was one.
fn write_all(header: &[u8], encoding: &str, out: &mut Vec<u8>) -> bool {
    let mut has_encoding = false;
    for raw in fields(header) {
        if !is_encoding(raw) {
            out.extend_from_slice(raw);
        } else if !std::mem::replace(&mut has_encoding, true) {
            push_encoding(encoding, out);
        }
    }
    has_encoding
}

fn is_encoding(raw: &[u8]) -> bool {
    split(raw).is_some_and(|(name, _)| name.eq_ignore_ascii_case(b"Content-Transfer-Encoding"))
}

fn push_encoding(encoding: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Content-Transfer-Encoding: ");
    out.extend_from_slice(encoding.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields with another transfer encoding; returns whether there was one.
fn write(header: &[u8], encoding: Option<&str>, octets: Octets, out: &mut Vec<u8>) -> Result<bool, ConvertError> {
    let mut has_encoding = false;
    for raw in fields(header) {
        match encoding {
            Some(word) if is_encoding(raw) => {
                if !has_encoding {
                    push_encoding(word, out);
                }
                has_encoding = true;
            }
            _ if octets.allow(raw) && longest_line(raw) <= LINE_BYTES_MAX => out.extend_from_slice(raw),
            _ => field::write(raw, octets, out)?,
        }
    }
    Ok(has_encoding)
}

fn kind(field: &MimeField) -> Kind {
    match (field.main(), field.sub()) {
        // No type at all.
        (_, "") => Kind::Leaf,
        ("multipart", "signed" | "encrypted") | ("message", "partial") => Kind::Sealed,
        ("multipart", sub) => {
            let boundary = field.param(ParamName::Boundary).map(|param| param.octets.trim_ascii_end());
            match boundary {
                Some(boundary) if (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) && boundary.is_ascii() => {
                    Kind::Multipart { boundary: boundary.to_vec(), digest: sub == "digest" }
                }
                _ => Kind::Sealed,
            }
        }
        ("message", "rfc822" | "news") => Kind::Message,
        _ => Kind::Leaf,
    }
}

fn is_global(field: &MimeField) -> bool {
    field.main() == "message" && field.sub().starts_with("global")
}

fn is_status(field: &MimeField) -> bool {
    field.main() == "message" && matches!(field.sub(), "delivery-status" | "disposition-notification")
}

/// Charsets with characters of several octets, among them NUL, CR and LF: RFC 2046 4.1.2 forbids them in text, and
/// mail programs that break lines would split characters.
const WIDE_CHARSETS: [&[u8]; 9] =
    [b"utf-16", b"utf16", b"utf-32", b"utf32", b"ucs", b"csucs", b"iso-10646-ucs", b"unicode", b"csunicode"];

fn is_text(field: &MimeField) -> bool {
    let is_wide = |charset: &[u8]| WIDE_CHARSETS.iter().any(|wide| charset.starts_with(wide));
    let mut charsets = field.all(ParamName::Charset).map(|param| param.octets.trim_ascii().to_ascii_lowercase());
    field.main() == "text" && !field.sub().is_empty() && !charsets.any(|charset| is_wide(&charset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(value: &[u8]) -> Kind {
        super::kind(&MimeField::parse(value))
    }

    fn is_global(value: &[u8]) -> bool {
        super::is_global(&MimeField::parse(value))
    }

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
    fn texts() {
        for (value, wanted) in [
            ("text/plain", true),
            ("Text/HTML; charset=\"GB18030\"", true),
            ("text/plain; charset=utf-16le", false),
            ("text/plain; charset=UTF-32", false),
            ("text/plain; charset=ISO-10646-UCS-2", false),
            ("application/xml", false),
            ("text", false),
        ] {
            assert_eq!(is_text(&MimeField::parse(value.as_bytes())), wanted, "{value}");
        }
    }

    #[test]
    fn what_programs_read_differently_is_ambiguous() {
        let is_ambiguous = |header: &str| Facts::read(header.as_bytes()).is_ambiguous;
        assert!(!is_ambiguous("Subject: x\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n"));
        assert!(is_ambiguous("Content-Type: text/plain\r\nContent-Type: text/html\r\n"));
        assert!(is_ambiguous("Content-Transfer-Encoding: base64\r\nContent-Transfer-Encoding: 7bit\r\n"));
        assert!(is_ambiguous("Content-Type: multipart/mixed; boundary=a; boundary=b\r\n"));
        assert!(is_ambiguous("Subject: x\r\nno field\r\nContent-Transfer-Encoding: base64\r\n"));
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
