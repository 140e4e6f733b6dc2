//! Charsets by name, and streaming decoders for them.
//!
//! Supports all charsets of `encoding_rs`, that is, of the WHATWG Encoding Standard, with its labels, as mail
//! programs do: `iso-8859-1` and `us-ascii` are windows-1252, `gb2312` is GBK, `shift_jis` is Microsoft's. The
//! standard omits charsets that browsers must not decode, because markup could hide in them: UTF-7 (RFC 2152), HZ
//! (RFC 1843) and ISO-2022-KR (RFC 1557). They are supported here, since mail uses them, nothing is executed, and a
//! filter that cannot read them could be bypassed.
//!
//! Promise: linear time, constant memory, any octets. Each run of invalid octets becomes one U+FFFD; if no charset is
//! declared, they are read as windows-1252 instead. The text does not depend on how the input is split.

use encoding_rs::{EUC_KR, Encoding, GBK, REPLACEMENT, UTF_8, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

use crate::shifted::{Hz, Iso2022Kr, Utf7};

/// Maximum length of labels.
const LABEL_BYTES_MAX: usize = 64;

/// A charset that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Web(&'static Encoding),
    /// UTF-16 whose byte order mark gives the order; little-endian without one.
    Utf16,
    Utf7,
    Hz,
    Iso2022Kr,
    /// No charset is declared: read as UTF-8, and octets that are not valid UTF-8 as windows-1252.
    Undeclared,
}

/// Names that occur in mail but not in the Encoding Standard.
const MORE_LABELS: [(&str, &Encoding); 22] = [
    ("ansi_x3.4-1986", WINDOWS_1252),
    ("cp936", encoding_rs::GBK),
    ("ms936", encoding_rs::GBK),
    ("euc-cn", encoding_rs::GBK),
    ("euccn", encoding_rs::GBK),
    ("gb18030-2000", encoding_rs::GB18030),
    ("gb18030-2005", encoding_rs::GB18030),
    ("gb-18030", encoding_rs::GB18030),
    ("cp932", encoding_rs::SHIFT_JIS),
    ("eucjp", encoding_rs::EUC_JP),
    ("cp51932", encoding_rs::EUC_JP),
    ("iso-2022-jp-1", encoding_rs::ISO_2022_JP),
    ("iso-2022-jp-ms", encoding_rs::ISO_2022_JP),
    ("cp50220", encoding_rs::ISO_2022_JP),
    ("cp50221", encoding_rs::ISO_2022_JP),
    ("cp949", EUC_KR),
    ("ms949", EUC_KR),
    ("euckr", EUC_KR),
    ("cp950", encoding_rs::BIG5),
    ("cp874", encoding_rs::WINDOWS_874),
    ("utf-8-sig", UTF_8),
    ("cp65001", UTF_8),
];

impl Charset {
    pub const UTF_8: Charset = Charset(Kind::Web(UTF_8));
    pub const WINDOWS_1252: Charset = Charset(Kind::Web(WINDOWS_1252));
    pub const ISO_2022_JP: Charset = Charset(Kind::Web(encoding_rs::ISO_2022_JP));
    pub const UNDECLARED: Charset = Charset(Kind::Undeclared);

    /// Finds a charset by one of its names, ignoring case, surrounding white space and quotes, and a language after
    /// an asterisk (RFC 2231 section 5).
    pub fn named(label: &[u8]) -> Option<Charset> {
        let label = label.split(|b| *b == b'*').next()?;
        let is_padding = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'');
        let from = label.iter().position(|b| !is_padding(b))?;
        let to = label.iter().rposition(|b| !is_padding(b))? + 1;
        let label = &label[from..to];
        if label.len() > LABEL_BYTES_MAX {
            return None;
        }
        let mut dashed = [0; LABEL_BYTES_MAX];
        let dashed = &mut dashed[..label.len()];
        for (to, octet) in dashed.iter_mut().zip(label) {
            *to = if *octet == b'_' { b'-' } else { octet.to_ascii_lowercase() };
        }
        let kind = match &*dashed {
            b"utf-7" | b"unicode-1-1-utf-7" | b"csutf7" | b"utf7" => Kind::Utf7,
            b"hz" | b"hz-gb-2312" => Kind::Hz,
            b"iso-2022-kr" | b"csiso2022kr" => Kind::Iso2022Kr,
            b"utf-16" | b"utf16" | b"unicode" | b"ucs-2" | b"iso-10646-ucs-2" | b"csunicode" => Kind::Utf16,
            // RFC 1428: the charset is unknown.
            b"unknown-8bit" | b"x-unknown" | b"unknown" | b"binary" | b"8bit" => Kind::Undeclared,
            _ => {
                let more = || MORE_LABELS.iter().find(|(name, _)| name.as_bytes() == &*dashed);
                let is_dashed = label.contains(&b'_');
                let found = Encoding::for_label(label)
                    .or_else(|| is_dashed.then(|| Encoding::for_label(dashed)).flatten())
                    .or_else(|| more().map(|(_, encoding)| *encoding))?;
                if found == REPLACEMENT || found == X_USER_DEFINED {
                    return None;
                }
                Kind::Web(found)
            }
        };
        Some(Charset(kind))
    }

    /// The charset's canonical name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Web(encoding) => encoding.name(),
            Kind::Utf16 => "UTF-16",
            Kind::Utf7 => "UTF-7",
            Kind::Hz => "HZ-GB-2312",
            Kind::Iso2022Kr => "ISO-2022-KR",
            Kind::Undeclared => "unknown-8bit",
        }
    }

    /// Whether ASCII is encoded as itself.
    pub(crate) fn holds_ascii(self) -> bool {
        match self.0 {
            Kind::Web(encoding) => encoding.is_ascii_compatible() || encoding == encoding_rs::ISO_2022_JP,
            Kind::Utf16 => false,
            Kind::Utf7 | Kind::Hz | Kind::Iso2022Kr | Kind::Undeclared => true,
        }
    }

    pub fn decoder(self) -> Decoder {
        let stage = match self.0 {
            Kind::Web(encoding) if encoding == UTF_8 => Stage::Utf8(Utf8 { is_begun: false, ..Utf8::default() }),
            Kind::Web(encoding) => Stage::Web(encoding.new_decoder_with_bom_removal()),
            Kind::Utf16 => Stage::Web(UTF_16LE.new_decoder()),
            Kind::Utf7 => Stage::Utf7(Utf7::default()),
            Kind::Hz => Stage::Hz(Hz::default(), GBK.new_decoder_without_bom_handling()),
            Kind::Iso2022Kr => Stage::Iso2022Kr(Iso2022Kr::default(), EUC_KR.new_decoder_without_bom_handling()),
            Kind::Undeclared => Stage::Utf8(Utf8 { is_begun: true, is_undeclared: true, ..Utf8::default() }),
        };
        Decoder { stage, is_broken: false }
    }

    /// Decodes complete octets.
    pub fn decode(self, octets: &[u8]) -> String {
        if self == Charset::WINDOWS_1252 {
            // Of many short texts the making of a decoder would cost more than their decoding.
            return octets.iter().map(|octet| char_of_windows_1252(*octet)).collect();
        }
        let (mut decoder, mut text) = (self.decoder(), String::new());
        decoder.push(octets, &mut text);
        decoder.finish(&mut text);
        text
    }

    /// Encodes a text; `None` if the charset lacks some character, or is no longer used for writing.
    pub fn encode(self, text: &str) -> Option<Vec<u8>> {
        match self.0 {
            Kind::Web(encoding) if encoding.output_encoding() == encoding => {
                let (octets, _, is_lossy) = encoding.encode(text);
                (!is_lossy).then(|| octets.into_owned())
            }
            _ => None,
        }
    }

    /// The label for a text in this charset: the requested one, unless the text needs more characters than the
    /// charset of that name has. Browsers read `gb2312` as GBK and `iso-8859-1` as windows-1252, which have more
    /// characters.
    pub fn label(self, asked: &str, octets: &[u8]) -> String {
        let asked = asked.trim();
        let mut rest = octets.iter();
        let is_enough = match self.name() {
            _ if asked.to_ascii_lowercase().contains("ascii") => octets.is_ascii(),
            // GB 2312 in EUC-CN.
            "GBK" => loop {
                match rest.next() {
                    None => break true,
                    Some(lead) if lead.is_ascii() => {}
                    Some(lead) => match rest.next() {
                        Some(0xa1..=0xfe) if (0xa1..=0xf7).contains(lead) => {}
                        _ => break false,
                    },
                }
            },
            name if name.starts_with("windows-") => !octets.iter().any(|octet| (0x80..=0x9f).contains(octet)),
            _ => true,
        };
        let is_plain =
            asked.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'+'));
        let is_own = asked.eq_ignore_ascii_case(self.name());
        if is_enough && is_plain && !is_own { asked.to_owned() } else { self.name().to_owned() }
    }

    /// Guesses the charset of undeclared octets.
    pub fn guess(octets: &[u8]) -> Charset {
        if std::str::from_utf8(octets).is_ok() {
            return Charset::UTF_8;
        }
        let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Allow);
        detector.feed(octets, true);
        Charset(Kind::Web(detector.guess(None, chardetng::Utf8Detection::Allow)))
    }
}

/// State of decoding.
pub struct Decoder {
    stage: Stage,
    /// Whether the last character is U+FFFD.
    is_broken: bool,
}

enum Stage {
    Web(encoding_rs::Decoder),
    Utf7(Utf7),
    Hz(Hz, encoding_rs::Decoder),
    Iso2022Kr(Iso2022Kr, encoding_rs::Decoder),
    Utf8(Utf8),
}

impl Decoder {
    /// Decodes the next octets and appends their text.
    pub fn push(&mut self, octets: &[u8], text: &mut String) {
        let from = text.len();
        match &mut self.stage {
            Stage::Web(decoder) => decode(decoder, octets, false, text),
            Stage::Utf7(utf7) => utf7.push(octets, text),
            Stage::Hz(hz, decoder) => decode(decoder, &hz.push(octets), false, text),
            Stage::Iso2022Kr(shifts, decoder) => decode(decoder, &shifts.push(octets), false, text),
            Stage::Utf8(utf8) => utf8.push(octets, text),
        }
        self.join_broken(text, from);
    }

    /// Ends the decoding.
    pub fn finish(&mut self, text: &mut String) {
        let from = text.len();
        match &mut self.stage {
            Stage::Web(decoder) | Stage::Hz(_, decoder) | Stage::Iso2022Kr(_, decoder) => {
                decode(decoder, b"", true, text);
            }
            Stage::Utf7(utf7) => utf7.finish(text),
            Stage::Utf8(utf8) => utf8.finish(text),
        }
        self.join_broken(text, from);
    }

    /// Merges adjacent U+FFFD: their number depends on the decoder (Unicode Standard, section 3.9), and unreadable
    /// octets must not triple the size of the text.
    fn join_broken(&mut self, text: &mut String, from: usize) {
        let added = &text[from..];
        if added.is_empty() || added.is_ascii() {
            self.is_broken &= added.is_empty();
            return;
        }
        let was_broken = std::mem::replace(&mut self.is_broken, added.ends_with(char::REPLACEMENT_CHARACTER));
        let has_neighbours = memchr::memmem::find(added.as_bytes(), "\u{fffd}\u{fffd}".as_bytes()).is_some();
        let goes_on = was_broken && added.starts_with(char::REPLACEMENT_CHARACTER);
        if !has_neighbours && !goes_on {
            return;
        }
        let mut joined = String::with_capacity(added.len());
        let (mut rest, mut is_broken) = (added, was_broken);
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix(char::REPLACEMENT_CHARACTER) {
                if !std::mem::replace(&mut is_broken, true) {
                    joined.push(char::REPLACEMENT_CHARACTER);
                }
                rest = behind;
                continue;
            }
            let sound = rest.find(char::REPLACEMENT_CHARACTER).unwrap_or(rest.len());
            joined.push_str(&rest[..sound]);
            (rest, is_broken) = (&rest[sound..], false);
        }
        text.truncate(from);
        text.push_str(&joined);
    }
}

fn decode(decoder: &mut encoding_rs::Decoder, octets: &[u8], is_last: bool, text: &mut String) {
    let mut rest = octets;
    loop {
        // With too little room for one character the decoder would loop forever; text beyond `usize` does not occur.
        text.reserve(decoder.max_utf8_buffer_length(rest.len()).unwrap_or(16).max(16));
        let (result, read, _) = decoder.decode_to_string(rest, text, is_last);
        rest = &rest[read..];
        if result == encoding_rs::CoderResult::InputEmpty {
            return;
        }
    }
}

/// UTF-8 decoder in which runs of invalid octets cost no more than others.
#[derive(Debug, Default)]
struct Utf8 {
    /// A character split between two pieces.
    part: Vec<u8>,
    /// Whether UTF-8 is only assumed: see [`Kind::Undeclared`].
    is_undeclared: bool,
    /// Whether the position of a byte order mark, which is not text, has passed.
    is_begun: bool,
}

impl Utf8 {
    fn push(&mut self, octets: &[u8], text: &mut String) {
        let from = text.len();
        self.decode(octets, text);
        if !self.is_begun && text.len() > from {
            self.is_begun = true;
            if text[from..].starts_with('\u{feff}') {
                text.remove(from);
            }
        }
    }

    fn decode(&mut self, octets: &[u8], text: &mut String) {
        let joined;
        let mut rest = octets;
        if !self.part.is_empty() {
            joined = [&std::mem::take(&mut self.part), octets].concat();
            rest = &joined;
        }
        if let Ok(valid) = std::str::from_utf8(rest) {
            return text.push_str(valid);
        }
        // Collected, so that text with an invalid octet in each word costs little more than other text.
        let mut out = Vec::with_capacity(2 * rest.len());
        let mut is_broken = false;
        while let Some((&octet, behind)) = rest.split_first() {
            let length = if octet.is_ascii() { Some(1) } else { char_bytes(rest) };
            match length {
                Some(length) if length > rest.len() => {
                    self.part = rest.to_vec();
                    break;
                }
                // Of known length: a call for each character would cost more than all else.
                Some(1) => out.push(octet),
                Some(2) => out.extend_from_slice(&rest[..2]),
                Some(3) => out.extend_from_slice(&rest[..3]),
                Some(length) => out.extend_from_slice(&rest[..length]),
                None if self.is_undeclared => in_windows_1252(octet, &mut out),
                None if is_broken => {}
                None => out.extend_from_slice("\u{fffd}".as_bytes()),
            }
            is_broken = length.is_none();
            rest = length.map_or(behind, |length| &rest[length..]);
        }
        // Always UTF-8, which costs less to check than to repair.
        match std::str::from_utf8(&out) {
            Ok(valid) => text.push_str(valid),
            Err(_) => text.push_str(&String::from_utf8_lossy(&out)),
        }
    }

    fn finish(&mut self, text: &mut String) {
        let part = std::mem::take(&mut self.part);
        if self.is_undeclared {
            let mut out = Vec::new();
            for octet in part {
                in_windows_1252(octet, &mut out);
            }
            text.push_str(&String::from_utf8_lossy(&out));
        } else if !part.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Length of the character at the beginning (Unicode Standard table 3-7), more than there is if it is cut; `None`: the
/// first octet belongs to no character.
fn char_bytes(octets: &[u8]) -> Option<usize> {
    let (length, second) = match octets[0] {
        0xc2..=0xdf => (2, 0x80..=0xbf),
        0xe0 => (3, 0xa0..=0xbf),
        0xed => (3, 0x80..=0x9f),
        0xe1..=0xef => (3, 0x80..=0xbf),
        0xf0 => (4, 0x90..=0xbf),
        0xf1..=0xf3 => (4, 0x80..=0xbf),
        0xf4 => (4, 0x80..=0x8f),
        _ => return None,
    };
    let is_second = octets.get(1).is_none_or(|octet| second.contains(octet));
    let are_others = octets[1..].iter().take(length - 1).skip(1).all(|octet| matches!(octet, 0x80..=0xbf));
    (is_second && are_others).then_some(length)
}

fn char_of_windows_1252(octet: u8) -> char {
    match octet {
        0x80..=0x9f => HIGH_CONTROLS[usize::from(octet - 0x80)],
        octet => char::from(octet),
    }
}

/// Appends an octet over 127 as UTF-8.
fn in_windows_1252(octet: u8, out: &mut Vec<u8>) {
    let code = u32::from(char_of_windows_1252(octet));
    let last = 0x80 | (code & 0x3f) as u8;
    if code < 0x800 {
        out.extend_from_slice(&[0xc0 | (code >> 6) as u8, last]);
    } else {
        out.extend_from_slice(&[0xe0 | (code >> 12) as u8, 0x80 | (code >> 6 & 0x3f) as u8, last]);
    }
}

/// Characters of windows-1252 at positions where ISO 8859-1 has controls: octets from 0x80 on. Numeric references in
/// HTML mean the same (HTML Standard, section 13.2.5.80).
pub(crate) const HIGH_CONTROLS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(label: &str, octets: &[u8]) -> String {
        Charset::named(label.as_bytes()).unwrap().decode(octets)
    }

    #[test]
    fn names_of_charsets() {
        for (label, name) in [
            ("UTF-8", "UTF-8"),
            (" \"utf8\" ", "UTF-8"),
            ("us-ascii", "windows-1252"),
            ("ISO-8859-1*en", "windows-1252"),
            ("iso8859_15", "ISO-8859-15"),
            ("gb2312", "GBK"),
            ("CP936", "GBK"),
            ("koi8-r", "KOI8-R"),
            ("ks_c_5601-1987", "EUC-KR"),
            ("cp949", "EUC-KR"),
            ("utf-16", "UTF-16"),
            ("utf-16be", "UTF-16BE"),
            ("unicode-1-1-utf-7", "UTF-7"),
            ("hz-gb-2312", "HZ-GB-2312"),
            ("x-unknown", "unknown-8bit"),
        ] {
            assert_eq!(Charset::named(label.as_bytes()).map(Charset::name), Some(name), "{label}");
        }
        for none in ["", "''", "x", "iso-2022-cn", "x-user-defined", &"x".repeat(100)] {
            assert_eq!(Charset::named(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn known_texts() {
        assert_eq!(decoded("gb2312", b"\xc7\xeb\xb2\xe9\xca\xd5"), "请查收");
        assert_eq!(decoded("koi8-r", b"\xf0\xd2\xc9\xd7\xc5\xd4"), "Привет");
        assert_eq!(decoded("iso-2022-jp", b"\x1b$B%O%m!<\x1b(B"), "ハロー");
        assert_eq!(decoded("iso-2022-kr", b"\x1b$)C\x0eGQ1[\x0f ok"), "한글 ok");
        assert_eq!(decoded("hz-gb-2312", b"a ~{<:Ky2;S{~} ~~ b~\nc"), "a 己所不欲 ~ bc");
        assert_eq!(decoded("utf-7", b"Hi Mom -+Jjo--! 1 +- 2 +2D3cEQ-"), "Hi Mom -\u{263a}-! 1 + 2 \u{1f411}");
        assert_eq!(decoded("utf-16", b"\xfe\xff\x00a"), "a");
        assert_eq!(decoded("utf-8", b"\xef\xbb\xbfa\xff"), "a\u{fffd}");
        assert_eq!(Charset::UNDECLARED.decode(b"\xc3\xa9 \xe9\xc3"), "é éÃ");
    }

    #[test]
    fn strays_are_windows_1252() {
        for octet in 0x80..=0xff {
            assert_eq!(
                Charset::UNDECLARED.decode(&[octet, b'.']),
                Charset::WINDOWS_1252.decode(&[octet, b'.']),
                "{octet:x}"
            );
        }
        for (octets, wanted) in [
            (&b"\xf0\x90\x80"[..], "ð\u{90}€"),
            (b"\xf0\x90\x80a", "ð\u{90}€a"),
            (b"\xe2\x82\xac\xe2\x82", "€â‚"),
            (b"\xed\xa0\x80", "í\u{a0}€"),
            (b"\xc0\xaf\xff", "À¯ÿ"),
            (b"\xf4\x90\x80\x80", "ô\u{90}€€"),
        ] {
            assert_eq!(Charset::UNDECLARED.decode(octets), wanted, "{octets:x?}");
        }
    }

    #[test]
    fn guesses() {
        assert_eq!(Charset::guess("请查收".as_bytes()), Charset::UTF_8);
        let russian = Charset::named(b"koi8-r").unwrap().encode("Здравствуйте, это обычное письмо").unwrap();
        assert_eq!(Charset::guess(&russian).name(), "KOI8-U");
    }

    const LABELS: [&str; 14] = [
        "utf-8",
        "utf-7",
        "utf-16",
        "utf-16be",
        "hz",
        "iso-2022-kr",
        "iso-2022-jp",
        "gb18030",
        "big5",
        "euc-kr",
        "shift_jis",
        "euc-jp",
        "koi8-r",
        "x-unknown",
    ];

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            label in proptest::sample::select(LABELS.to_vec()),
            octets in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(b'+'), Just(b'-'), Just(b'~'), Just(b'{'), Just(14), Just(15), Just(27)], 0..60),
            cut in 1usize..7,
        ) {
            let charset = Charset::named(label.as_bytes()).unwrap();
            let (mut decoder, mut text) = (charset.decoder(), String::new());
            for piece in octets.chunks(cut) {
                decoder.push(piece, &mut text);
            }
            decoder.finish(&mut text);
            prop_assert_eq!(text, charset.decode(&octets));
        }
    }

    #[test]
    fn all_characters_are_decoded_as_they_were_encoded() {
        // Private-use code points that were replaced by characters in the edition of 2022, and one that the standard
        // omits.
        let moved = "\u{e5e5}\u{e78d}\u{e78e}\u{e78f}\u{e790}\u{e791}\u{e792}\u{e793}\u{e794}\u{e795}\u{e796}\
                     \u{e81e}\u{e826}\u{e82b}\u{e82c}\u{e832}\u{e843}\u{e854}\u{e864}";
        for (label, wanted) in [("utf-8", ""), ("gb18030", moved)] {
            let charset = Charset::named(label.as_bytes()).unwrap();
            let is_other = |c: &char| {
                let text = format!("a{c}b");
                charset.encode(&text).is_none_or(|octets| charset.decode(&octets) != text)
            };
            let others: String = ('\0'..=char::MAX).filter(is_other).collect();
            assert_eq!(others, wanted, "{label}");
        }
    }
}
