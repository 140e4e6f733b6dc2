//! Header fields that a list adds to its posts (RFC 2369, RFC 2919), built so that nothing can be injected.
//!
//! Every value consists of tokens without space, CR or LF; lines are folded between tokens at [`LINE_CHARS`]. Addresses
//! are percent-encoded in `mailto:` URLs (RFC 6068), descriptions quoted or, beyond ASCII, in encoded words (RFC 2047).

use stentor_mail::address::Address;

/// Column at which lines are folded if possible (RFC 5322 section 2.1.1).
const LINE_CHARS: usize = 78;
/// Octets of UTF-8 per encoded word: as base64 with its frame it stays under 75 characters (RFC 2047 section 2).
const WORD_BYTES_MAX: usize = 45;
/// Longest list identifier (RFC 2919 section 3).
const LIST_ID_BYTES_MAX: usize = 255;
/// Longest URL of an archive or post; with its field name it stays under the 998 octets of a line.
pub(crate) const URL_BYTES_MAX: usize = 900;

/// Whether this is a valid list identifier: a label, a dot and a name space, in the characters of RFC 2919 section 2.
pub fn is_list_id(text: &str) -> bool {
    let atom = |label: &str| !label.is_empty() && label.bytes().all(is_atext);
    text.len() <= LIST_ID_BYTES_MAX && text.contains('.') && text.split('.').all(atom)
}

fn is_atext(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

/// Whether this is valid in `List-Archive`: an http, https or ftp URL in its encoded (ASCII) form.
pub fn is_archive_url(text: &str) -> bool {
    let known =
        ["https://", "http://", "ftp://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    known
        && text.len() <= URL_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\".contains(&byte))
}

/// Returns `Delivered-To: address`, with its CRLF: added by an alias, so that its own loops are detected.
pub fn delivered_to_field(address: &Address) -> Vec<u8> {
    format!("Delivered-To: {address}\r\n").into_bytes()
}

/// Returns `<mailto:...>`, encoding everything that RFC 6068 section 2 or a structured header field could read
/// otherwise.
pub(crate) fn mailto(address: &Address) -> String {
    mailto_with(address, "")
}

/// Returns a mailto URL with a query, which must be encoded already.
pub(crate) fn mailto_with(address: &Address, query: &str) -> String {
    let mut url = String::from("<mailto:");
    percent_encoded(address.as_str(), b"-._~@+!$*'", &mut url);
    url.push_str(query);
    url.push('>');
    url
}

/// Appends text to a URL, with all octets encoded but letters, digits and `plain`.
pub(crate) fn percent_encoded(text: &str, plain: &[u8], url: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push('%');
            url.extend([byte >> 4, byte & 15].map(|nibble| char::from(b"0123456789ABCDEF"[usize::from(nibble)])));
        }
    }
}

/// Returns a description as the tokens of a phrase: one quoted string, or encoded words if it is not ASCII.
pub(crate) fn phrase(text: &str) -> Vec<String> {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.is_ascii() {
        let escaped = text.trim().replace('\\', "\\\\").replace('"', "\\\"");
        return format!("\"{escaped}\"").split(' ').filter(|token| !token.is_empty()).map(str::to_owned).collect();
    }
    let mut tokens = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.floor_char_boundary(WORD_BYTES_MAX);
        tokens.push(format!("=?utf-8?B?{}?=", base64(&rest.as_bytes()[..end])));
        rest = &rest[end..];
    }
    tokens
}

fn base64(input: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(input.len().div_ceil(3) * 4);
    for chunk in input.chunks(3) {
        let group = chunk.iter().fold(0_usize, |all, byte| all << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sextet = group >> (18 - 6 * place) & 63;
            out.push(if place <= chunk.len() { char::from(ALPHABET[sextet]) } else { '=' });
        }
    }
    out
}

/// Appends `name: tokens`, folded, with its CRLF. Tokens must contain neither spaces nor control characters.
pub(crate) fn append(out: &mut Vec<u8>, name: &str, tokens: &[String]) {
    debug_assert!(tokens.iter().all(|token| !token.contains(|c: char| c == ' ' || c.is_control())), "{tokens:?}");
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    let mut column = name.len() + 1;
    for token in tokens {
        if column + 1 + token.len() > LINE_CHARS {
            out.extend_from_slice(b"\r\n");
            column = 0;
        }
        out.push(b' ');
        out.extend_from_slice(token.as_bytes());
        column += 1 + token.len();
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(name: &str, tokens: &[String]) -> String {
        let mut out = Vec::new();
        append(&mut out, name, tokens);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn mailto_urls_are_encoded() {
        let url = |address: &str| mailto(&address.parse().unwrap());
        assert_eq!(url("news@example.org"), "<mailto:news@example.org>");
        assert_eq!(url("a+b=c@example.org"), "<mailto:a+b%3Dc@example.org>");
        assert_eq!(url("\"a b>\"@example.org"), "<mailto:%22a%20b%3E%22@example.org>");
        assert_eq!(url("ü@[127.0.0.1]"), "<mailto:%C3%BC@%5B127.0.0.1%5D>");
    }

    #[test]
    fn phrases_are_quoted_or_encoded() {
        assert_eq!(phrase("All \"the\" news").join(" "), r#""All \"the\" news""#);
        assert_eq!(phrase("Grüße").join(" "), "=?utf-8?B?R3LDvMOfZQ==?=");
        assert_eq!(phrase("a\r\nBcc: x@y").join(" "), "\"a Bcc: x@y\"");
    }

    #[test]
    fn base64_of_every_length() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }

    #[test]
    fn long_values_are_folded_between_tokens() {
        let tokens: Vec<String> = ["\"".to_owned() + &"x".repeat(60), "y".repeat(20) + "\"", "<a.b>".into()].into();
        assert_eq!(
            text("List-Id", &tokens),
            format!("List-Id: \"{}\r\n {}\" <a.b>\r\n", "x".repeat(60), "y".repeat(20))
        );
    }

    #[test]
    fn list_ids_and_archive_urls() {
        assert!(is_list_id("news.lists.example.org") && is_list_id("a+b.example"));
        for wrong in ["news", "", ".a", "a.", "a..b", "a b.c", "a>.b", "ü.example", "a.b\r\nX: y"] {
            assert!(!is_list_id(wrong), "{wrong}");
        }
        assert!(is_archive_url("https://lists.example.org/news/?a=1&b=2"));
        for wrong in ["https://", "javascript:x", "https://a b", "https://a>", "https://ü", "https://a\r\nX: y"] {
            assert!(!is_archive_url(wrong), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_description_leaves_its_field(description in any::<String>()) {
            let out = text("List-Id", &phrase(&description));
            prop_assert!(out.is_ascii() && out.ends_with("\r\n"));
            let inner = &out[..out.len() - 2];
            for line in inner.split("\r\n").skip(1) {
                prop_assert!(line.starts_with(' ') && line.trim() != "", "{:?}", out);
            }
            prop_assert!(!inner.replace("\r\n ", "").contains(['\r', '\n', '\0']));
        }
    }
}
