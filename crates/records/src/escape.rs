//! Escapes text from the network for log lines: no control character, line break or forged field gets through.
//!
//! Postcondition of every escaping function here: the appended text is UTF-8 without C0 and C1 control characters, DEL,
//! line and paragraph separators, bidirectional controls and invisible characters ([`is_trap`]). It exceeds the limit
//! by at most one escape and `...`. [`without_traps`] keeps the layout of a program's own output: lines, tabs, colours.

use std::borrow::Cow;

/// Context of the text in the output, which decides which other characters could pass for the line's own punctuation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EscapeContext {
    /// An address between `<` and `>`, a name, an id: the separators of fields are escaped as well.
    Field,
    /// Words followed by other fields: commas are escaped as well.
    Words,
    /// The rest of the line (the reply): commas and spaces are kept.
    Rest,
    /// Text between double quotes in JSON.
    Json,
}

/// Appends about `bytes_max` bytes of `text` at most, escaped for `context`; `...` marks a cut.
pub fn push(out: &mut Vec<u8>, text: &str, context: EscapeContext, bytes_max: usize) {
    let bytes = text.as_bytes();
    if bytes.len() <= bytes_max && bytes.iter().all(|b| plain(*b, context)) {
        out.extend_from_slice(bytes);
        return;
    }
    let limit = out.len() + bytes_max;
    for c in text.chars() {
        if out.len() >= limit {
            out.extend_from_slice(b"...");
            return;
        }
        push_char(out, c, context);
    }
}

/// Escapes `text` for a terminal or a log line, as [`EscapeContext::Rest`].
pub fn printable(text: &str, bytes_max: usize) -> String {
    let mut out = Vec::with_capacity(text.len());
    push(&mut out, text, EscapeContext::Rest, bytes_max);
    // Always UTF-8, by the postcondition above.
    String::from_utf8(out).unwrap_or_default()
}

/// Escapes `text` as it is written between `<` and `>` of a log line ([`EscapeContext::Field`]); [`unescaped`] reverses
/// it.
pub fn field(text: &str, bytes_max: usize) -> String {
    let mut out = Vec::with_capacity(text.len());
    push(&mut out, text, EscapeContext::Field, bytes_max);
    // Always UTF-8, by the postcondition above.
    String::from_utf8(out).unwrap_or_default()
}

/// Restores a name from a log line: reverses the ASCII escapes of [`EscapeContext::Field`].
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

/// Whether a byte is printable ASCII without a special meaning in `context`.
fn plain(byte: u8, context: EscapeContext) -> bool {
    let printable = matches!(byte, 0x20..=0x7e) && byte != b'\\';
    printable
        && match context {
            EscapeContext::Field => !matches!(byte, b' ' | b',' | b'<' | b'>'),
            EscapeContext::Words => byte != b',',
            EscapeContext::Rest => true,
            EscapeContext::Json => byte != b'"',
        }
}

fn push_char(out: &mut Vec<u8>, c: char, context: EscapeContext) {
    if c.is_ascii() {
        let byte = c as u8;
        match byte {
            _ if plain(byte, context) => out.push(byte),
            b'\\' | b'"' if context == EscapeContext::Json => out.extend_from_slice(&[b'\\', byte]),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ if context == EscapeContext::Json => unicode(out, c),
            _ => out.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte & 15)]),
        }
    } else if is_trap(c) {
        unicode(out, c);
    } else {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Whether a character moves the cursor, breaks the line, changes the reading direction, or is invisible: no foreign
/// text may bring it to a terminal or into a log.
///
/// Control characters (C0, DEL, C1); invisible ones of the general categories Zl, Zp and Cf: soft hyphen, Arabic letter
/// mark, Mongolian vowel separator, zero-width characters, bidirectional controls, invisible operators, byte order
/// mark, interlinear annotations, musical formatting, tags; also the Hangul and Khmer fillers, which are blank.
pub fn is_trap(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Escapes each trap beyond ASCII in a command's output, readable for JSON and people. This is the last barrier, after
/// the functions that know whose text it is.
pub fn without_traps(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c == '\x7f' || !c.is_ascii() && is_trap(c);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            unicode(&mut out, c);
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    // Only characters and ASCII escapes.
    String::from_utf8(out).unwrap_or_default().into()
}

/// Escapes all traps in a message of several lines for a terminal; line ends and tabs are kept.
pub fn lines(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_trap(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Appends a JSON escape, in UTF-16 (RFC 8259 section 7).
fn unicode(out: &mut Vec<u8>, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.extend_from_slice(b"\\u");
        for shift in [12, 8, 4, 0] {
            out.push(hex((*unit >> shift & 15) as u8));
        }
    }
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str, context: EscapeContext, max: usize) -> String {
        let mut out = Vec::new();
        push(&mut out, text, context, max);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_name_out_of_a_line_is_as_it_was() {
        for name in ["mx.example", "route:10.0.0.5:25,10.0.0.6:25", "a b<>", r"a\b", r"a\x2c"] {
            assert_eq!(unescaped(&escaped(name, EscapeContext::Field, 1000)), name);
        }
        for odd in [r"\", r"\x", r"\x2", r"\xé", r"\xff"] {
            assert_eq!(unescaped(odd), odd);
        }
    }

    #[test]
    fn each_place_escapes_its_own() {
        let table = [
            ("a@b.example", EscapeContext::Field, "a@b.example"),
            ("\"a>, stat=Sent\"@b", EscapeContext::Field, "\"a\\x3e\\x2c\\x20stat=Sent\"@b"),
            ("rule 1 (a.toml:3), reject=250", EscapeContext::Words, "rule 1 (a.toml:3)\\x2c reject=250"),
            ("250 ok, <x> \"y\"", EscapeContext::Rest, "250 ok, <x> \"y\""),
            ("a\r\nb\0\x7f\x1b[2J", EscapeContext::Rest, "a\\x0d\\x0ab\\x00\\x7f\\x1b[2J"),
            ("back\\slash", EscapeContext::Rest, "back\\\\slash"),
            ("say \"hi\\\"\n", EscapeContext::Json, "say \\\"hi\\\\\\\"\\u000a"),
            ("größe", EscapeContext::Field, "größe"),
            ("a\u{85}b\u{2028}c\u{202e}d", EscapeContext::Rest, "a\\u0085b\\u2028c\\u202ed"),
            ("\u{200b}\u{200f}\u{2066}\u{feff}\u{ad}", EscapeContext::Field, "\\u200b\\u200f\\u2066\\ufeff\\u00ad"),
            ("\u{61c}\u{2029}\u{206a}\u{fff9}\u{3164}", EscapeContext::Words, "\\u061c\\u2029\\u206a\\ufff9\\u3164"),
            ("a\u{e0041}b", EscapeContext::Json, "a\\udb40\\udc41b"),
            ("日本語 ä \u{1f600} é", EscapeContext::Rest, "日本語 ä \u{1f600} é"),
        ];
        for (text, context, expected) in table {
            assert_eq!(escaped(text, context, 1000), expected);
        }
    }

    #[test]
    fn the_last_barrier_keeps_lines_and_colours() {
        let laid_out = "\x1b[31mred\x1b[0m\ta\r\n日本 \\ \"";
        assert_eq!(without_traps(laid_out), laid_out);
        assert_eq!(without_traps("a\u{9b}2J\u{7f}\u{202e}\n"), "a\\u009b2J\\u007f\\u202e\n");
        assert_eq!(lines("a\n\tb\x1b[2J\u{202e}\r"), "a\n\tb\\u{1b}[2J\\u{202e}\\r");
        let json = without_traps("{\"a\":\"\u{9b}\u{200b}\u{e0041}\"}").into_owned();
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["a"], "\u{9b}\u{200b}\u{e0041}");
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        assert_eq!(escaped(&"x".repeat(10), EscapeContext::Rest, 10), "x".repeat(10));
        assert_eq!(escaped(&"x".repeat(11), EscapeContext::Rest, 10), format!("{}...", "x".repeat(10)));
        assert_eq!(escaped("ééé", EscapeContext::Rest, 3), "éé...");
    }

    #[test]
    fn nothing_gets_through_and_json_reads_back() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let len = rng.usize(..20);
            let wide = rng.bool();
            let text: String = (0..len).map(|_| if wide { rng.char(..) } else { rng.char('\0'..='\u{a0}') }).collect();
            for context in [EscapeContext::Field, EscapeContext::Rest, EscapeContext::Json] {
                let out = escaped(&text, context, 4000);
                assert!(!out.chars().any(|c| c.is_control() || is_trap(c)), "{out:?}");
                if context == EscapeContext::Field {
                    assert!(!out.contains([' ', ',', '<', '>']), "{out:?}");
                }
                if context == EscapeContext::Json {
                    assert_eq!(serde_json::from_str::<String>(&format!("\"{out}\"")).unwrap(), text);
                }
            }
        }
    }
}
