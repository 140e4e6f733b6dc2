//! Names of people in address fields: read from subscribers files, and written so that they are nothing else.
//!
//! Promise: whatever a name contains, the written mailbox is one address with a display name of printable ASCII
//! (RFC 5322 section 3.4): other characters are in encoded words (RFC 2047), special ones in quotes.

use stentor_mime::charset::Charset;
use stentor_mime::words::{self, CharsetLabel, Form};

/// Longest name in octets; a longer one is not used.
pub const NAME_BYTES_MAX: usize = 128;

/// Reads the name before an address: text in any character set, quoted or encoded. `None`: there is nothing to show, or
/// too much.
pub fn display_name(octets: &[u8]) -> Option<String> {
    let octets = octets.trim_ascii();
    // Encoded names are longer.
    if octets.is_empty() || octets.len() > 4 * NAME_BYTES_MAX {
        return None;
    }
    let text = words::decode(octets, Charset::WINDOWS_1252).text;
    let inner = text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'));
    let text = inner.map_or_else(|| text.clone(), unquoted);
    let shown: String = text.chars().map(|c| if is_shown(c) { c } else { ' ' }).collect();
    let name = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX).then_some(name)
}

fn unquoted(text: &str) -> String {
    let mut is_escaped = false;
    let keep = |c: &char| {
        is_escaped = *c == '\\' && !is_escaped;
        !is_escaped
    };
    text.chars().filter(keep).collect()
}

/// Whether a character may be in a name: no control characters, no place of octets that could not be decoded, and none
/// that changes the direction of the text, with which a name could pretend to be another.
fn is_shown(c: char) -> bool {
    let is_directed = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    !c.is_control() && !is_directed && !is_separator && c != char::REPLACEMENT_CHARACTER
}

/// Returns `Name <address>`, or the address alone without a name.
pub(crate) fn mailbox(name: &str, address: &str) -> String {
    if name.is_empty() { address.to_owned() } else { format!("{} <{address}>", phrase(name)) }
}

fn phrase(name: &str) -> String {
    let is_atom = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~ ".contains(c);
    // Many readers decode encoded words in quotes, so a name that looks like one is encoded.
    let is_plain = name.bytes().all(|octet| octet.is_ascii_graphic() || octet == b' ') && !name.contains("=?");
    if !is_plain {
        let others = name.chars().filter(|c| !c.is_ascii()).count();
        let form = if 3 * others < name.chars().count() { Form::Q } else { Form::B };
        let label = CharsetLabel { charset: Charset::UTF_8, label: "utf-8" };
        // UTF-8 has every character.
        return words::encode(name, label, form).unwrap_or_default();
    }
    if name.chars().all(is_atom) {
        return name.to_owned();
    }
    let escaped: String =
        name.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(c != '"' && c != '\\'))).collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_in_all_spellings() {
        let name = |octets: &[u8]| display_name(octets);
        assert_eq!(name(b"  Ann  Lee "), Some("Ann Lee".into()));
        assert_eq!(name(b"\"Lee, \\\"Ann\\\"\""), Some("Lee, \"Ann\"".into()));
        assert_eq!(name("J\u{fc}rgen".as_bytes()), Some("J\u{fc}rgen".into()));
        assert_eq!(name(b"J\xfcrgen"), Some("J\u{fc}rgen".into()));
        assert_eq!(name(b"=?iso-8859-1?Q?J=FCrgen?="), Some("J\u{fc}rgen".into()));
        assert_eq!(name(b"=?utf-8?Q?a=0D=0ABcc:_x=40y?="), Some("a Bcc: x@y".into()));
        assert_eq!(name("\u{202e}nnA".as_bytes()), Some("nnA".into()));
        for none in [&b""[..], b"\"\"", b" ", &[b'x'; NAME_BYTES_MAX + 1], b"\x00\x01"] {
            assert_eq!(name(none), None, "{none:?}");
        }
    }

    #[test]
    fn mailboxes_are_quoted_and_encoded() {
        let written = |name| mailbox(name, "a@x.example");
        assert_eq!(written(""), "a@x.example");
        assert_eq!(written("Ann Lee"), "Ann Lee <a@x.example>");
        assert_eq!(written("Lee, \"Ann\""), "\"Lee, \\\"Ann\\\"\" <a@x.example>");
        assert_eq!(written("A. <b@c>, d"), "\"A. <b@c>, d\" <a@x.example>");
        assert_eq!(written("J\u{fc}rgen M"), "=?utf-8?Q?J=C3=BCrgen_M?= <a@x.example>");
        assert_eq!(written("=?utf-8?Q?x?="), "=?utf-8?Q?=3D=3Futf-8=3FQ=3Fx=3F=3D?= <a@x.example>");
        assert_eq!(written("\u{5f20}\u{4f1f}"), "=?utf-8?B?5byg5Lyf?= <a@x.example>");
    }

    proptest! {
        #[test]
        fn a_mailbox_is_one_address_whatever_its_name(octets in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..150), "\\PC{0,60}".prop_map(String::into_bytes),
            "[ -~]{0,100}".prop_map(String::into_bytes),
        ]) {
            let Some(name) = display_name(&octets) else { return Ok(()) };
            let text = mailbox(&name, "a@x.example");
            prop_assert!(text.bytes().all(|octet| octet.is_ascii_graphic() || octet == b' '));
            prop_assert!(text.len() < 900);
            let phrase = text.strip_suffix(" <a@x.example>").unwrap();
            if let Some(inner) = phrase.strip_prefix('"') {
                prop_assert_eq!(unquoted(inner.strip_suffix('"').unwrap()), name);
                prop_assert_eq!(stentor_mime::field::quoted_end(phrase.as_bytes(), b'"'), Some(phrase.len()));
            } else {
                prop_assert!(!phrase.contains(['<', '>', '"', ',', ';', ':', '@', '(', ')', '\\']), "{}", phrase);
                prop_assert_eq!(words::decode(phrase.as_bytes(), Charset::UTF_8).text, name);
            }
        }
    }
}
