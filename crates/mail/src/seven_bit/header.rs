//! A header section: what it says about the part, and how it is rewritten.

use stentor_mime::field::lines as fields;
use stentor_mime::params::MimeField;
use stentor_mime::transfer::Encoding;

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

fn encoding(value: &[u8]) -> Encoding {
    Encoding::named(MimeField::parse(value).value.as_bytes())
}

fn kind(value: &[u8]) -> Kind {
    let field = MimeField::parse(value);
    match (field.main(), field.sub()) {
        // No type at all.
        (_, "") => Kind::Leaf,
        ("multipart", "signed" | "encrypted") | ("message", "partial") => Kind::Sealed,
        ("multipart", sub) => {
            let boundary = field.param("boundary").map(|param| param.octets.trim_ascii_end());
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

fn is_global(value: &[u8]) -> bool {
    let field = MimeField::parse(value);
    field.main() == "message" && field.sub().starts_with("global")
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
