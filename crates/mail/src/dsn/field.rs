//! Field values from untrusted text: one line, no control characters, folded.

/// Column beyond which a field is folded (RFC 5322 2.1.1 recommends 78).
const FOLD_COLUMN: usize = 76;
/// Maximum octets written of one value; far below what an RFC 3464 parser might refuse.
pub(super) const VALUE_BYTES_MAX: usize = 2000;
/// Longer words are cut, so that no line reaches 998 octets (RFC 5322 2.1.1).
const WORD_BYTES_MAX: usize = 900;

/// Appends `name: value`. Control characters and runs of white space become one space; without `utf8`, non-ASCII
/// characters are written as RFC 6533 3 `\x{HEX}`.
pub(super) fn write_field(name: &str, value: &[&str], utf8: bool, out: &mut Vec<u8>) {
    write_bounded(name, value, utf8, VALUE_BYTES_MAX, out);
}

/// Appends `name: value` with at most `bytes_max` octets of value, in whole words.
pub(super) fn write_bounded(name: &str, value: &[&str], utf8: bool, bytes_max: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    let mut column = name.len() + 1;
    let mut room = bytes_max;
    let mut word = String::new();
    let mut joined = String::new();
    for part in value {
        joined.push_str(part);
    }
    for raw in joined.split(|c: char| c.is_whitespace() || c.is_control()).filter(|raw| !raw.is_empty()) {
        word.clear();
        push_clean(raw, utf8, &mut word);
        if word.len() > room {
            break;
        }
        room -= word.len();
        if column + 1 + word.len() > FOLD_COLUMN && column > name.len() + 1 {
            out.extend_from_slice(b"\r\n");
            column = 0;
        }
        out.push(b' ');
        out.extend_from_slice(word.as_bytes());
        column += 1 + word.len();
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `text` without control characters, at most [`WORD_BYTES_MAX`] octets of it.
pub(super) fn push_clean(text: &str, utf8: bool, out: &mut String) {
    use std::fmt::Write as _;
    let start = out.len();
    for c in text.chars() {
        if out.len() - start >= WORD_BYTES_MAX {
            return;
        }
        match c {
            c if c.is_control() => out.push(' '),
            c if c.is_ascii() || utf8 => out.push(c),
            c => {
                let _ = write!(out, "\\x{{{:X}}}", c as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(value: &[&str], utf8: bool) -> String {
        let mut out = Vec::new();
        write_field("X", value, utf8, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_stay_on_their_field() {
        assert_eq!(field(&["smtp; ", "550 no\r\nBcc: x\0y"], false), "X: smtp; 550 no Bcc: x y\r\n");
        assert_eq!(field(&["é\u{85}\u{2028}b"], false), "X: \\x{E9} b\r\n");
        assert_eq!(field(&["é"], true), "X: é\r\n");
        assert_eq!(field(&[""], true), "X:\r\n");
    }

    proptest! {
        #[test]
        fn every_line_is_short_and_continues(value in "\\PC{0,3000}|[a-z \r\n]{0,3000}", utf8: bool) {
            let text = field(&[&value], utf8);
            let lines: Vec<&str> = text.strip_suffix("\r\n").unwrap().split("\r\n").collect();
            prop_assert!(lines.iter().skip(1).all(|line| line.starts_with(' ') && line.trim() != ""));
            prop_assert!(lines.iter().all(|line| line.len() < 998 && !line.chars().any(char::is_control)));
            prop_assert!(utf8 || text.is_ascii());
        }
    }
}
