//! Text from the network into a log line: no control character, no line break, no forged field gets through.
//!
//! Postcondition of every function here: what was appended is UTF-8 without C0 and C1 control characters, DEL, line
//! and paragraph separators and bidirectional overrides, and longer than the cap by at most one escape and `...`.

use std::borrow::Cow;

/// Where the text stands, which decides what else could be taken for the line's own punctuation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// An address between `<` and `>`, a name, an id: the separators of fields are escaped as well.
    Field,
    /// Words with other fields behind them: commas are escaped as well.
    Words,
    /// The rest of the line (the reply): commas and spaces stand as they are.
    Rest,
    /// Between double quotes in JSON.
    Json,
}

/// Appends `text`, escaped for `place`, at most about `bytes_max` bytes of it; `...` marks what was cut.
pub fn push(out: &mut Vec<u8>, text: &str, place: Place, bytes_max: usize) {
    let bytes = text.as_bytes();
    if bytes.len() <= bytes_max && bytes.iter().all(|b| plain(*b, place)) {
        out.extend_from_slice(bytes);
        return;
    }
    let limit = out.len() + bytes_max;
    for c in text.chars() {
        if out.len() >= limit {
            out.extend_from_slice(b"...");
            return;
        }
        push_char(out, c, place);
    }
}

/// `text` for a terminal or a log line: what [`Place::Rest`] allows.
pub fn printable(text: &str, bytes_max: usize) -> String {
    let mut out = Vec::with_capacity(text.len());
    push(&mut out, text, Place::Rest, bytes_max);
    // The postcondition above: always UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// `text` as it stands between `<` and `>` of a log line ([`Place::Field`]); [`unescaped`] gives it back.
pub fn field(text: &str, bytes_max: usize) -> String {
    let mut out = Vec::with_capacity(text.len());
    push(&mut out, text, Place::Field, bytes_max);
    // The postcondition above: always UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// A name out of a log line: what [`Place::Field`] escaped of ASCII is as it was.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let code = rest.strip_prefix('x').and_then(|code| u8::from_str_radix(code.get(..2)?, 16).ok());
        if let Some(byte) = code.filter(u8::is_ascii) {
            out.push(char::from(byte));
            rest = &rest[3..];
        } else {
            out.push('\\');
            rest = rest.strip_prefix('\\').unwrap_or(rest);
        }
    }
    (out + rest).into()
}

/// Printable ASCII that means nothing in `place`.
fn plain(byte: u8, place: Place) -> bool {
    let printable = matches!(byte, 0x20..=0x7e) && byte != b'\\';
    printable
        && match place {
            Place::Field => !matches!(byte, b' ' | b',' | b'<' | b'>'),
            Place::Words => byte != b',',
            Place::Rest => true,
            Place::Json => byte != b'"',
        }
}

fn push_char(out: &mut Vec<u8>, c: char, place: Place) {
    if c.is_ascii() {
        let byte = c as u8;
        match byte {
            _ if plain(byte, place) => out.push(byte),
            b'\\' | b'"' if place == Place::Json => out.extend_from_slice(&[b'\\', byte]),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ if place == Place::Json => unicode(out, c),
            _ => out.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte & 15)]),
        }
    } else if is_trap(c) {
        unicode(out, c);
    } else {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Beyond ASCII: what moves the cursor, breaks the line or turns the reading direction. All of them in the basic plane.
fn is_trap(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn unicode(out: &mut Vec<u8>, c: char) {
    let code = c as u32;
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(hex((code >> shift & 15) as u8));
    }
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str, place: Place, max: usize) -> String {
        let mut out = Vec::new();
        push(&mut out, text, place, max);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_name_out_of_a_line_is_as_it_was() {
        for name in ["mx.example", "route:10.0.0.5:25,10.0.0.6:25", "a b<>", r"a\b", r"a\x2c"] {
            assert_eq!(unescaped(&escaped(name, Place::Field, 1000)), name);
        }
        for odd in [r"\", r"\x", r"\x2", r"\xé", r"\xff"] {
            assert_eq!(unescaped(odd), odd);
        }
    }

    #[test]
    fn each_place_escapes_its_own() {
        let table = [
            ("a@b.example", Place::Field, "a@b.example"),
            ("\"a>, stat=Sent\"@b", Place::Field, "\"a\\x3e\\x2c\\x20stat=Sent\"@b"),
            ("rule 1 (a.toml:3), reject=250", Place::Words, "rule 1 (a.toml:3)\\x2c reject=250"),
            ("250 ok, <x> \"y\"", Place::Rest, "250 ok, <x> \"y\""),
            ("a\r\nb\0\x7f\x1b[2J", Place::Rest, "a\\x0d\\x0ab\\x00\\x7f\\x1b[2J"),
            ("back\\slash", Place::Rest, "back\\\\slash"),
            ("say \"hi\\\"\n", Place::Json, "say \\\"hi\\\\\\\"\\u000a"),
            ("größe", Place::Field, "größe"),
            ("a\u{85}b\u{2028}c\u{202e}d", Place::Rest, "a\\u0085b\\u2028c\\u202ed"),
        ];
        for (text, place, expected) in table {
            assert_eq!(escaped(text, place, 1000), expected);
        }
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        assert_eq!(escaped(&"x".repeat(10), Place::Rest, 10), "x".repeat(10));
        assert_eq!(escaped(&"x".repeat(11), Place::Rest, 10), format!("{}...", "x".repeat(10)));
        assert_eq!(escaped("ééé", Place::Rest, 3), "éé...");
    }

    #[test]
    fn nothing_gets_through_and_json_reads_back() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let len = rng.usize(..20);
            let wide = rng.bool();
            let text: String = (0..len).map(|_| if wide { rng.char(..) } else { rng.char('\0'..='\u{a0}') }).collect();
            for place in [Place::Field, Place::Rest, Place::Json] {
                let out = escaped(&text, place, 4000);
                assert!(!out.chars().any(|c| c.is_control() || is_trap(c)), "{out:?}");
                if place == Place::Field {
                    assert!(!out.contains([' ', ',', '<', '>']), "{out:?}");
                }
                if place == Place::Json {
                    assert_eq!(serde_json::from_str::<String>(&format!("\"{out}\"")).unwrap(), text);
                }
            }
        }
    }
}
