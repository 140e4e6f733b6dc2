//! The two canonical forms of header and body (RFC 6376 section 3.4).

use crate::fields::relax;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CanonicalForm {
    Simple,
    Relaxed,
}

impl CanonicalForm {
    /// Parses one half of `c=`.
    pub(crate) fn parse(word: &str) -> Option<CanonicalForm> {
        match word {
            "simple" => Some(CanonicalForm::Simple),
            "relaxed" => Some(CanonicalForm::Relaxed),
            _ => None,
        }
    }

    /// Appends the canonical form of a field, without a line end.
    pub(crate) fn append(self, whole: &[u8], out: &mut Vec<u8>) {
        match self {
            CanonicalForm::Relaxed => relax(whole, out),
            CanonicalForm::Simple => {
                let field = whole.strip_suffix(b"\n").unwrap_or(whole);
                out.extend_from_slice(field.strip_suffix(b"\r").unwrap_or(field));
            }
        }
    }
}

/// Returns a signature field whose `b=` is empty, as it was signed (RFC 6376 section 3.7).
pub(crate) fn without_signature(whole: &[u8]) -> Vec<u8> {
    let begin = whole.iter().position(|octet| *octet == b':').map_or(whole.len(), |colon| colon + 1);
    let mut out = whole[..begin].to_vec();
    for (n, tag) in whole[begin..].split(|octet| *octet == b';').enumerate() {
        if n > 0 {
            out.push(b';');
        }
        match tag.iter().position(|octet| *octet == b'=') {
            Some(equals) if tag[..equals].trim_ascii() == b"b" => out.extend_from_slice(&tag[..=equals]),
            _ => out.extend_from_slice(tag),
        }
    }
    out
}
