//! Decodes encoded words in header fields (RFC 2047) as mail programs do.
//!
//! Promise: linear time, memory of the order of the field. Words are found anywhere in a field, also within quotes and
//! without white space around them, as mail programs do, contrary to the standard. White space between two of them is
//! none of the text (section 6.2), and neighbours of one charset are decoded together, for those who cut a character in
//! two (against section 5); in ISO-2022-JP not where a word begins with an escape. A word of an unknown charset or
//! encoding, or one that cannot be decoded, is shown as it is. Octets over 127 outside of words are UTF-8 (RFC 6532),
//! or else in the charset that the caller names.

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
enum WordMatch<'a> {
    /// A word and its length.
    Word(Word<'a>, usize),
    /// As it is, with the charset that it names and the octets that it takes. `is_sound`: only its charset is unknown
    /// here.
    Broken {
        label: &'a [u8],
        bytes: usize,
        is_sound: bool,
    },
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

/// The text of a value in which there is nothing to decode and no fold, as most are; what [`decode`] would make of it.
pub fn as_text(value: &[u8]) -> Option<&str> {
    let is_plain = memchr::memchr2(b'\r', b'\n', value).is_none() && !is_encoded(value);
    is_plain.then(|| std::str::from_utf8(value).ok())?
}

/// Decodes a field's value; line ends are folds (RFC 5322 section 2.2.3).
pub fn decode(value: &[u8], fallback: Charset) -> Decoded {
    let value = &*without_line_ends(value);
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
            WordMatch::Word(word, bytes) => {
                let between = &value[plain_from..at];
                let is_neighbour = open.is_some() && between.iter().all(|b| matches!(b, b' ' | b'\t'));
                if !is_neighbour {
                    close(&mut open, &mut out.text);
                    plain(between, fallback, &mut out.text);
                } else if open
                    .as_ref()
                    .is_some_and(|(charset, _)| *charset != word.charset || begins_anew(*charset, &octets))
                {
                    close(&mut open, &mut out.text);
                }
                let (_, decoder) = open.get_or_insert_with(|| (word.charset, word.charset.decoder()));
                decoder.push(&octets, &mut out.text);
                out.note(word.label);
                at += bytes;
                plain_from = at;
            }
            WordMatch::Broken { label, bytes, .. } => {
                out.note(label);
                out.is_broken = true;
                at += bytes;
            }
            WordMatch::No => at += 1,
            WordMatch::NoEnd => break,
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

/// Whether a word owes nothing to the one before. ISO-2022-JP ends each word in ASCII (RFC 1468), so that two escapes
/// meet between words: within one text that is an error of the Encoding Standard.
fn begins_anew(charset: Charset, octets: &[u8]) -> bool {
    charset == Charset::ISO_2022_JP && octets.first() == Some(&0x1b)
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

/// How often [`decode`] finds the begin of an encoded word, whether or not it has an end. The end of a padded one,
/// `==?=`, begins none.
pub(crate) fn count(value: &[u8]) -> usize {
    if memchr::memchr(b'?', value).is_none() {
        return 0;
    }
    let value = &*without_line_ends(value);
    begins(value).filter(|at| begin(&value[*at..]).is_some()).count()
}

/// What words are searched in, so that a word goes on behind a fold.
fn without_line_ends(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'\r', b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect())
}

/// Number of octets before the next two that start a word.
fn next_begin(value: &[u8]) -> Option<usize> {
    begins(value).next()
}

fn begins(value: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memchr_iter(b'?', value).filter_map(|at| at.checked_sub(1)).filter(|at| value[*at] == b'=')
}

/// The label, the encoding and the octets behind them of the word that begins at the start of `rest`.
fn begin(rest: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let behind = rest.strip_prefix(b"=?")?;
    let is_of_label = |b: &u8| IS_OF_LABEL[usize::from(*b)];
    let label_bytes = behind.iter().take(LABEL_BYTES_MAX + 1).take_while(|b| is_of_label(b)).count();
    let (label, behind) = behind.split_at(label_bytes);
    let [b'?', form, b'?', text @ ..] = behind else { return None };
    let is_word = (1..=LABEL_BYTES_MAX).contains(&label.len()) && form.is_ascii_alphabetic();
    is_word.then_some((label, *form, text))
}

/// Parses the word at the start of `rest` and appends its octets; `named`: the charset named by the previous word.
fn word<'a>(rest: &'a [u8], named: &mut Option<(&'a [u8], Option<Charset>)>, octets: &mut Vec<u8>) -> WordMatch<'a> {
    let Some((label, form, text)) = begin(rest) else { return WordMatch::No };
    let Some(end) = word_end(text) else { return WordMatch::NoEnd };
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
        Some(charset) => WordMatch::Word(Word { label, charset }, bytes),
        None => WordMatch::Broken { label, bytes, is_sound },
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

/// Whether it is sound; folds in it are none of it.
fn from_b(text: &[u8], out: &mut Vec<u8>) -> bool {
    let is_sound = text.iter().all(|b| is_base64(*b) || matches!(b, b'=' | b' ' | b'\t' | b'\r' | b'\n'));
    if is_sound {
        let mut decoder = transfer::Encoding::Base64.decoder();
        decoder.push(text, out);
        decoder.finish(out);
    }
    is_sound
}

/// The Q encoding (section 4.2): underscores are spaces; folds in it are none of it. Whether it is sound.
fn from_q(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = text;
    while let Some((&b, behind)) = rest.split_first() {
        rest = behind;
        out.push(match b {
            b'\r' | b'\n' => continue,
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

/// A part of a field's value: an encoded word, or what is between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    pub octets: &'a [u8],
    pub word: Option<Label<'a>>,
}

/// What a word says of its charset.
#[derive(Debug, Clone, Copy)]
pub struct Label<'a> {
    name: &'a [u8],
    /// `None`: unknown here. Others may know it, so that a word which names it is a word.
    charset: Option<Charset>,
}

/// Whether words with these labels are decoded together.
impl PartialEq for Label<'_> {
    fn eq(&self, other: &Self) -> bool {
        let is_known = self.charset.is_some() && self.charset == other.charset;
        is_known || self.charset == other.charset && self.name.eq_ignore_ascii_case(other.name)
    }
}

impl Eq for Label<'_> {}

/// The parts of a value, its folds included, none of them empty. Words whose encoding is not sound are in what is
/// between words.
pub fn pieces(value: &[u8]) -> Vec<Piece<'_>> {
    let (mut all, mut named, mut octets) = (Vec::new(), None, Vec::new());
    let (mut plain_from, mut at) = (0, 0);
    while let Some(next) = next_begin(&value[at..]) {
        at += next;
        octets.clear();
        let (label, bytes) = match word(&value[at..], &mut named, &mut octets) {
            WordMatch::Word(Word { label, charset }, bytes) => (Label { name: label, charset: Some(charset) }, bytes),
            WordMatch::Broken { label, bytes, is_sound: true } => (Label { name: label, charset: None }, bytes),
            WordMatch::Broken { bytes, .. } => {
                at += bytes;
                continue;
            }
            WordMatch::No => {
                at += 1;
                continue;
            }
            WordMatch::NoEnd => break,
        };
        if plain_from < at {
            all.push(Piece { octets: &value[plain_from..at], word: None });
        }
        all.push(Piece { octets: &value[at..at + bytes], word: Some(label) });
        at += bytes;
        plain_from = at;
    }
    if plain_from < value.len() {
        all.push(Piece { octets: &value[plain_from..], word: None });
    }
    all
}

/// Longest label that is repeated in words of a charset that has a shorter name.
const LABEL_KEPT_BYTES_MAX: usize = 20;

/// Neighbours with one label as words of the usual length, ASCII alone, with spaces between them: in the same charset
/// if this can be written, each of whole characters, and else in UTF-8. Words that decode to no text here keep their
/// octets and their label.
pub fn divided<'a>(words: impl Iterator<Item = &'a [u8]>) -> String {
    let (mut octets, mut named, mut first) = (Vec::new(), None, None);
    let mut together = Vec::new();
    for raw in words {
        together.extend_from_slice(raw);
        let found = match word(raw, &mut named, &mut octets) {
            WordMatch::Word(Word { label, charset }, _) => (label, Some(charset)),
            WordMatch::Broken { label, .. } => (label, None),
            WordMatch::No | WordMatch::NoEnd => continue,
        };
        let is_b = raw.get(found.0.len() + 3).is_some_and(|form| form.eq_ignore_ascii_case(&b'b'));
        first.get_or_insert((found, if is_b { Form::B } else { Form::Q }));
    }
    let Some(((label, charset), form)) = first else { return String::new() };
    let label = String::from_utf8_lossy(label);
    let charset = charset.filter(|charset| *charset != Charset::UNDECLARED);
    let text =
        charset.map(|charset| charset.decode(&octets)).filter(|text| !text.contains(char::REPLACEMENT_CHARACTER));
    if let Some((charset, text)) = charset.zip(text) {
        let name = if label.len() > LABEL_KEPT_BYTES_MAX { charset.name() } else { &label };
        let is_same = |words: &String| decode(words.as_bytes(), Charset::UNDECLARED).text == text;
        let in_utf_8 = || encode(&text, CharsetLabel { charset: Charset::UTF_8, label: "utf-8" }, form);
        let written = encode(&text, CharsetLabel { charset, label: name }, form).filter(is_same);
        if let Some(words) = written.or_else(|| in_utf_8().filter(is_same)) {
            return words;
        }
    }
    in_octets(&octets, &label, form)
}

/// Words of these octets, cut between any two: readers put the octets of neighbours together.
fn in_octets(octets: &[u8], label: &str, form: Form) -> String {
    /// Beside a label that leaves less than this, words get longer than they should be.
    const TEXT_BYTES_MIN: usize = 40;
    let beside = WORD_BYTES_MAX.saturating_sub(label.len() + "=??Q??=".len());
    let text_bytes = if beside < TEXT_BYTES_MIN { 5 * TEXT_BYTES_MIN } else { beside };
    let octets_max = match form {
        Form::B => text_bytes / 4 * 3,
        // Each may take three.
        Form::Q => text_bytes / 3,
    };
    let words: Vec<String> = octets.chunks(octets_max).map(|octets| one_word(octets, label, form)).collect();
    words.join(" ")
}

/// Longest encoded word (section 2).
const WORD_BYTES_MAX: usize = 75;

/// A charset, and the name that words give it.
#[derive(Clone, Copy)]
pub struct CharsetLabel<'a> {
    pub charset: Charset,
    pub label: &'a str,
}

/// A text as encoded words, each of whole characters, with spaces between them; `None` if the charset lacks a
/// character. `label`: what the words call the charset.
pub fn encode(text: &str, charset: CharsetLabel<'_>, form: Form) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let (end, word) = longest_word(rest, charset, form)?;
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&word);
        rest = &rest[end..];
    }
    Some(out)
}

/// The longest word that a text begins with, of one character at least, and the octets of the text in it.
fn longest_word(text: &str, naming: CharsetLabel<'_>, form: Form) -> Option<(usize, String)> {
    let CharsetLabel { charset, label } = naming;
    let word = |end: usize| Some(one_word(&charset.encode(&text[..end])?, label, form));
    // A character takes an octet of the word at least.
    let ends: Vec<usize> = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(WORD_BYTES_MAX).collect();
    let (mut fits, mut over) = (0, ends.len());
    let mut longest = word(*ends.first()?)?;
    while over - fits > 1 {
        let middle = usize::midpoint(fits, over);
        let longer = word(ends[middle])?;
        if longer.len() > WORD_BYTES_MAX {
            over = middle;
        } else {
            (fits, longest) = (middle, longer);
        }
    }
    Some((ends[fits], longest))
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

    const UTF_8: CharsetLabel<'_> = CharsetLabel { charset: Charset::UTF_8, label: "UTF-8" };

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
            // Each word of a charset with states begins and ends in that of ASCII.
            ("=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=\r\n =?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "日本日本"),
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
        assert_eq!(
            encode("请", CharsetLabel { charset: Charset::named(b"koi8-r").unwrap(), label: "koi8-r" }, Form::B),
            None
        );
    }

    #[test]
    fn pieces_are_words_and_what_is_between() {
        let value = b"a=?utf-8?q?b?==?x-no?b?YQ==?=\r\n =?utf-8?q?=ZZ?= =?utf-8?b?YQ\r\n ==?=c";
        let found: Vec<_> = pieces(value).iter().map(|piece| (piece.octets, piece.word.is_some())).collect();
        let wanted: [(&[u8], bool); 6] = [
            (b"a", false),
            (b"=?utf-8?q?b?=", true),
            (b"=?x-no?b?YQ==?=", true),
            (b"\r\n =?utf-8?q?=ZZ?= ", false),
            (b"=?utf-8?b?YQ\r\n ==?=", true),
            (b"c", false),
        ];
        assert_eq!(found, wanted);
        let label = |word: &'static str| pieces(word.as_bytes())[0].word.unwrap();
        assert_eq!(label("=?UTF8?q?a?="), label("=?utf-8*en?b?YQ==?="));
        assert_ne!(label("=?koi8-r?q?a?="), label("=?utf-8?q?a?="));
        assert_ne!(label("=?x-a?q?a?="), label("=?x-b?q?a?="));
    }

    #[test]
    fn only_what_begins_a_word_is_counted() {
        for (value, wanted) in [
            (&b"=?gb2312?B?1cXI/Q==?= <a@x.example>"[..], 1),
            (b"=?gb2312?B?1cXI/Q==?==?utf-8*de?q?a?=,\r\n =?x?q?a?=", 3),
            (b"=?x?q?without an end", 1),
            // As they are decoded: line ends are none of a word.
            (b"=\r?x?q\r?a?=", 1),
            (b"=?=?=?=?a?=?a?=", 0),
            (b"=?? =?a b?q?c?= =?a?qq?c?= =?a?1?c?= =?a?q what? why?", 0),
            (b"a", 0),
        ] {
            assert_eq!(count(value), wanted, "{}", value.escape_ascii());
        }
        assert_eq!(count(&[&b"=?"[..], &[b'a'; LABEL_BYTES_MAX], b"?q?"].concat()), 1);
        assert_eq!(count(&[&b"=?"[..], &[b'a'; LABEL_BYTES_MAX + 1], b"?q?"].concat()), 0);
    }

    #[test]
    fn long_words_are_divided() {
        for (begin, text, times, wanted) in [
            ("=?utf-8?B?", "6K+3", 400, "=?utf-8?B?"),
            ("=?UTF-8*de?q?", "=C3=BC_", 400, "=?UTF-8*de?Q?"),
            ("=?iso-2022-jp?b?", "GyRCRnxLXBsoQmEg", 100, "=?iso-2022-jp?B?"),
            ("=?iso-2022-jp?q?", "=1B$BF|K\\F|K\\F|K\\F|K\\=1B(Ba", 100, "=?iso-2022-jp?Q?"),
            // Halfwidth katakana, which would come back full.
            ("=?iso-2022-jp?q?", "=1B(I1=1B(Ba", 100, "=?utf-8?Q?"),
            ("=?utf-7?q?", "+AOk-", 300, "=?utf-8?Q?"),
            ("=?koi8-r?q?", "\u{e9}", 600, "=?koi8-r?Q?"),
            ("=?unknown-8bit?q?", "=E9", 400, "=?unknown-8bit?Q?"),
            ("=?utf-8?q?", "=C3", 400, "=?utf-8?Q?"),
        ] {
            let long = format!("{begin}{}?=", text.repeat(times));
            let short = divided(std::iter::once(long.as_bytes()));
            assert!(short.is_ascii() && short.starts_with(wanted), "{short}");
            assert!(short.split(' ').all(|word| word.len() <= WORD_BYTES_MAX), "{short}");
            assert_eq!(self::text(&short), self::text(&long));
        }
        let unknown = format!("=?x-{}?B?{}?=", "a".repeat(60), "YWJj".repeat(300));
        let short = divided(std::iter::once(unknown.as_bytes()));
        let octets: Vec<&str> = short.split(' ').map(|word| word.split('?').nth(3).unwrap()).collect();
        assert_eq!(octets.concat(), "YWJj".repeat(300));
        // A character in two words, and one that goes on in the state of the word before.
        for words in
            [["=?utf-8?b?6K8=?=", "=?utf-8?q?=B7?="], ["=?iso-2022-jp?b?GyRCRnw=?=", "=?iso-2022-jp?b?S1wbKEI=?="]]
        {
            assert_eq!(text(&divided(words.iter().map(|word| word.as_bytes()))), text(&words.join(" ")));
        }
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
