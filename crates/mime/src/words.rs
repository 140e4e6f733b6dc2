//! Decodes encoded words in header fields (RFC 2047) as mail programs do.
//!
//! Promise: linear time, memory of the order of the field. Words are found anywhere in a field, even in quotes and
//! without surrounding white space, as mail programs do contrary to the standard. White space between two words is
//! not text (section 6.2). Adjacent words of one charset are decoded together, because some programs split a
//! character between them (contrary to section 5). A word of an unknown charset or encoding, or one that cannot be
//! decoded, remains as written. Octets over 127 outside words are UTF-8 (RFC 6532), or else in the charset given by
//! the caller.

use std::borrow::Cow;

use crate::charset::{Charset, Decoder};
use crate::transfer::{self, hex, is_base64};

/// Maximum charset names kept of a field.
pub const CHARSETS_MAX: usize = 16;

/// A field's value as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    pub text: String,
    /// Charsets named by its words, in lower case, without duplicates.
    pub charsets: Vec<String>,
    /// Whether a word cannot be decoded, or more charsets are named than are kept.
    pub is_broken: bool,
}

/// Encoding of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    B,
    Q,
}

/// A word whose octets can be decoded.
struct Word<'a> {
    label: &'a [u8],
    charset: Charset,
}

/// Result of parsing at an equals sign with a question mark.
enum Found<'a> {
    /// A word and its length.
    Word(Word<'a>, usize),
    /// A word that cannot be decoded: the charset that it names, and its length.
    Broken(&'a [u8], usize),
    No,
    /// No further word is closed.
    NoEnd,
}

/// A field's value without its folds, for searches: each fold becomes one blank, whatever its white space.
pub fn unfolded(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    if !value.contains(&b'\n') {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    for line in value.split(|octet| *octet == b'\n') {
        let line = line.trim_ascii();
        if !out.is_empty() && !line.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(line);
    }
    Cow::Owned(out)
}

/// Decodes a field's value; line ends are folds (RFC 5322 section 2.2.3).
pub fn decode(value: &[u8], fallback: Charset) -> Decoded {
    let unfolded;
    let value = if memchr::memchr2(b'\r', b'\n', value).is_some() {
        unfolded = value.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect::<Vec<u8>>();
        &unfolded
    } else {
        value
    };
    let mut out = Decoded::default();
    if !is_encoded(value) {
        plain(value, fallback, &mut out.text);
        return out;
    }
    // Charset named by the previous word.
    let mut named: Option<(&[u8], Option<Charset>)> = None;
    // The previous words, while only white space follows them.
    let mut open: Option<(Charset, Decoder)> = None;
    let (mut plain_from, mut at) = (0, 0);
    // Octets of the current word.
    let mut octets = Vec::new();
    while let Some(next) = next_begin(&value[at..]) {
        at += next;
        octets.clear();
        match word(&value[at..], &mut named, &mut octets) {
            Found::Word(word, bytes) => {
                let between = &value[plain_from..at];
                let is_neighbour = open.is_some() && between.iter().all(|b| matches!(b, b' ' | b'\t'));
                if !is_neighbour {
                    close(&mut open, &mut out.text);
                    plain(between, fallback, &mut out.text);
                } else if open.as_ref().is_some_and(|(charset, _)| *charset != word.charset) {
                    close(&mut open, &mut out.text);
                }
                let (_, decoder) = open.get_or_insert_with(|| (word.charset, word.charset.decoder()));
                decoder.push(&octets, &mut out.text);
                out.note(word.label);
                at += bytes;
                plain_from = at;
            }
            Found::Broken(label, bytes) => {
                out.note(label);
                out.is_broken = true;
                at += bytes;
            }
            Found::No => at += 1,
            Found::NoEnd => break,
        }
    }
    close(&mut open, &mut out.text);
    plain(&value[plain_from..], fallback, &mut out.text);
    out
}

impl Decoded {
    fn note(&mut self, label: &[u8]) {
        let label = label.split(|b| *b == b'*').next().unwrap_or_default();
        if self.charsets.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(label)) {
            return;
        }
        if self.charsets.len() < CHARSETS_MAX {
            self.charsets.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        } else {
            self.is_broken = true;
        }
    }
}

fn close(open: &mut Option<(Charset, Decoder)>, text: &mut String) {
    if let Some((_, mut decoder)) = open.take() {
        decoder.finish(text);
    }
}

/// Decodes text outside words.
pub(crate) fn plain(octets: &[u8], fallback: Charset, text: &mut String) {
    match std::str::from_utf8(octets) {
        Ok(valid) => text.push_str(valid),
        Err(_) => text.push_str(&fallback.decode(octets)),
    }
}

/// Maximum length of a charset name, including its language.
const LABEL_BYTES_MAX: usize = 80;

/// Whether a field may have encoded words.
pub fn is_encoded(value: &[u8]) -> bool {
    next_begin(value).is_some()
}

/// Number of octets before the next two that start a word.
fn next_begin(value: &[u8]) -> Option<usize> {
    let mut signs = memchr::memchr_iter(b'?', value);
    signs.find(|at| *at > 0 && value[at - 1] == b'=').map(|at| at - 1)
}

/// Parses the word at the start of `rest` and appends its octets; `named`: the charset named by the previous word.
fn word<'a>(rest: &'a [u8], named: &mut Option<(&'a [u8], Option<Charset>)>, octets: &mut Vec<u8>) -> Found<'a> {
    let Some(behind) = rest.strip_prefix(b"=?") else { return Found::No };
    let is_of_label = |b: &u8| IS_OF_LABEL[usize::from(*b)];
    let label_bytes = behind.iter().take(LABEL_BYTES_MAX + 1).take_while(|b| is_of_label(b)).count();
    let (label, behind) = behind.split_at(label_bytes);
    let [b'?', form, b'?', text @ ..] = behind else { return Found::No };
    if label.is_empty() || label.len() > LABEL_BYTES_MAX || !form.is_ascii_alphabetic() {
        return Found::No;
    }
    let Some(end) = word_end(text) else { return Found::NoEnd };
    let bytes = 2 + label.len() + 3 + end + 2;
    let is_sound = match form {
        b'B' | b'b' => from_b(&text[..end], octets),
        b'Q' | b'q' => from_q(&text[..end], octets),
        _ => false,
    };
    let charset = match named {
        Some((before, charset)) if *before == label => *charset,
        _ => named.insert((label, Charset::named(label))).1,
    };
    match charset.filter(|_| is_sound) {
        Some(charset) => Found::Word(Word { label, charset }, bytes),
        None => Found::Broken(label, bytes),
    }
}

/// Number of octets before the two that end a word.
fn word_end(text: &[u8]) -> Option<usize> {
    let mut signs = memchr::memchr_iter(b'?', text);
    signs.find(|at| text.get(at + 1) == Some(&b'='))
}

/// Octets of charset names: a token of section 2, and two more signs that occur.
const IS_OF_LABEL: [bool; 256] = {
    let (mut of_label, mut octet) = ([false; 256], 0);
    while octet < 256 {
        let b = octet as u8;
        of_label[octet] = b.is_ascii_graphic()
            && !matches!(b, b'?' | b'=' | b'(' | b')' | b'<' | b'>' | b'@' | b',' | b';' | b'"' | b'/' | b'[' | b']');
        octet += 1;
    }
    of_label
};

/// Decodes the B encoding; returns whether it is valid.
fn from_b(text: &[u8], out: &mut Vec<u8>) -> bool {
    let is_sound = text.iter().all(|b| is_base64(*b) || matches!(b, b'=' | b' ' | b'\t'));
    if is_sound {
        let mut decoder = transfer::Encoding::Base64.decoder();
        decoder.push(text, out);
        decoder.finish(out);
    }
    is_sound
}

/// Decodes the Q encoding (section 4.2), in which underscores are spaces; returns whether it is valid.
fn from_q(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = text;
    while let Some((&b, behind)) = rest.split_first() {
        rest = behind;
        out.push(match b {
            b'_' => b' ',
            b'=' => {
                let Some(octet) = hex(rest) else { return false };
                rest = &rest[2..];
                octet
            }
            b => b,
        });
    }
    true
}

/// Maximum length of an encoded word (section 2).
const WORD_BYTES_MAX: usize = 75;

/// Encodes a text as words of whole characters, separated by spaces; `None` if the charset lacks a character.
/// `label`: name of the charset in the words.
pub fn encode(text: &str, (charset, label): (Charset, &str), form: Form) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let mut fits: Option<(usize, String)> = None;
        for (at, c) in rest.char_indices() {
            let end = at + c.len_utf8();
            let word = one_word(&charset.encode(&rest[..end])?, label, form);
            if word.len() > WORD_BYTES_MAX && fits.is_some() {
                break;
            }
            fits = Some((end, word));
        }
        let (end, word) = fits?;
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&word);
        rest = &rest[end..];
    }
    Some(out)
}

fn one_word(octets: &[u8], name: &str, form: Form) -> String {
    use std::fmt::Write as _;

    match form {
        Form::B => format!("=?{name}?B?{}?=", transfer::base64(octets)),
        Form::Q => {
            let mut word = format!("=?{name}?Q?");
            for &b in octets {
                match b {
                    b' ' => word.push('_'),
                    // Characters that are literal in any position (section 5 (3)).
                    b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'!' | b'*' | b'+' | b'-' | b'/' => {
                        word.push(char::from(b));
                    }
                    _ => {
                        let _ = write!(word, "={b:02X}");
                    }
                }
            }
            word + "?="
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UTF_8: (Charset, &str) = (Charset::UTF_8, "UTF-8");

    fn text(value: &str) -> String {
        decode(value.as_bytes(), Charset::UNDECLARED).text
    }

    #[test]
    fn words_become_text() {
        for (value, wanted) in [
            ("=?utf-8?Q?Gr=C3=BC=C3=9Fe_an?= =?UTF-8?b?YWxsZQ==?= hier", "Grüße analle hier"),
            ("=?iso-8859-1*de?q?Stra=DFe?=", "Straße"),
            ("=?koi8-r?q?=C0?=", "ю"),
            ("=?GBK?B?x+uy6crV?= (=?gb2312?q?=C7=EB?=)", "请查收 (请)"),
            // A character in two words.
            ("=?utf-8?b?6K8=?=\r\n =?utf-8?b?tw==?=", "请"),
            ("=?gb2312?q?=C7?= =?GB2312?b?6w==?=", "请"),
            ("=?utf-8?q?=C3?= =?iso-8859-1?q?=E9?=", "\u{fffd}é"),
            ("=?utf-8?b?/+8=?=", "\u{fffd}"),
            // In quotes, without white space, with spaces inside.
            ("\"=?utf-8?q?=C3=A9 x?=\" <a@b>", "\"é x\" <a@b>"),
            ("a=?utf-8?q?b?=c=?utf-8?q?d?=e", "abcde"),
            ("=?utf-8?q?what??=", "what?"),
            ("=?utf-8?q??=x", "x"),
            ("", ""),
        ] {
            assert_eq!(text(value), wanted, "{value}");
        }
    }

    #[test]
    fn broken_ones_are_shown_as_they_are() {
        for value in [
            "=?utf-8?q?=ZZ?= =?utf-8?x?a?= =?a?=",
            "=?no-such?q?a?=",
            "=?utf-8?b?a*b?=",
            "=?utf-8?q?no end",
            "=?utf-8?q",
            "=?=?=?=?",
            "a = b =? c ?=",
        ] {
            assert_eq!(text(value), value);
        }
        // The following words are decoded.
        assert_eq!(text("=?x?= =?utf-8?x?a?= =?utf-8?q?b?="), "=?x?= =?utf-8?x?a?= b");
    }

    #[test]
    fn charsets_are_named_as_the_sender_does() {
        let decoded = decode(b"=?GB2312?q?a?= x =?gb2312?q?a?= =?UTF-8*en?q?b?=", Charset::UNDECLARED);
        assert_eq!(decoded.charsets, ["gb2312", "utf-8"]);
        let raw = decode(b"\xc7\xeb", Charset::named(b"gb2312").unwrap());
        assert_eq!((raw.text.as_str(), raw.charsets.len()), ("请", 0));
        assert!(!decoded.is_broken && !raw.is_broken);
        for (value, name) in [("=?No-Such?q?a?=", "no-such"), ("=?gbk?b?a*b?=", "gbk")] {
            let broken = decode(value.as_bytes(), Charset::UNDECLARED);
            assert!(broken.is_broken && broken.charsets == [name], "{value}");
        }
        let many: Vec<String> = (0..=CHARSETS_MAX).map(|n| format!("=?x{n}?q?a?=")).collect();
        let many = decode(many.concat().as_bytes(), Charset::UNDECLARED);
        assert!(many.is_broken && many.charsets.len() == CHARSETS_MAX);
    }

    #[test]
    fn words_are_written() {
        assert_eq!(encode("Grüße", UTF_8, Form::Q).as_deref(), Some("=?UTF-8?Q?Gr=C3=BC=C3=9Fe?="));
        assert_eq!(encode("请查收！", UTF_8, Form::B).as_deref(), Some("=?UTF-8?B?6K+35p+l5pS277yB?="));
        assert_eq!(encode("请", (Charset::named(b"koi8-r").unwrap(), "koi8-r"), Form::B), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in "\\PC{1,80}", is_q in any::<bool>()) {
            let form = if is_q { Form::Q } else { Form::B };
            let written = encode(&text, UTF_8, form).unwrap();
            prop_assert!(written.split(' ').all(|word| word.len() <= WORD_BYTES_MAX));
            let mut wanted = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
            // Adjacent invalid octets are merged.
            while wanted.contains("\u{fffd}\u{fffd}") {
                wanted = wanted.replace("\u{fffd}\u{fffd}", "\u{fffd}");
            }
            prop_assert_eq!(decode(written.as_bytes(), Charset::UNDECLARED).text, wanted);
        }

        #[test]
        fn anything_is_taken(value in "(=\\?|\\?=|\\?|utf-8|[bqBQ]|=[0-9A-F]{2}|[a-z]|\r\n |é){0,40}") {
            let text = decode(value.as_bytes(), Charset::UNDECLARED).text;
            prop_assert!(text.len() <= value.len() * 3);
        }
    }
}
