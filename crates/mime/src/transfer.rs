//! Content-Transfer-Encoding (RFC 2045 section 6): base64 and quoted-printable, streaming decoders.
//!
//! Promise: any octets are accepted, in constant memory and linear time; the output does not depend on how the input
//! is split. Malformed text is decoded as in mail programs: octets outside base64's alphabet are skipped, padding
//! ends a group, and an equals sign that is not an escape is literal.

/// Transfer encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// 7bit, 8bit, binary or none.
    #[default]
    Identity,
    QuotedPrintable,
    Base64,
    /// Any other name.
    Unknown,
}

impl Encoding {
    /// The encoding named by a header field.
    pub fn named(word: &[u8]) -> Encoding {
        match word.to_ascii_lowercase().as_slice() {
            // "7bit", "8bit", and the variants "7-bit" and "8 bit".
            b"" | b"binary" | [b'7' | b'8', ..] => Encoding::Identity,
            b"quoted-printable" => Encoding::QuotedPrintable,
            b"base64" => Encoding::Base64,
            _ => Encoding::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "none",
            Encoding::QuotedPrintable => "quoted-printable",
            Encoding::Base64 => "base64",
            Encoding::Unknown => "unknown",
        }
    }

    pub fn decoder(self) -> Decoder {
        match self {
            Encoding::Identity | Encoding::Unknown => Decoder::Identity,
            Encoding::QuotedPrintable => Decoder::QuotedPrintable(QuotedPrintable::default()),
            Encoding::Base64 => Decoder::Base64(Base64::default()),
        }
    }

    /// Decodes complete octets.
    pub fn decode(self, octets: &[u8]) -> Vec<u8> {
        let (mut decoder, mut out) = (self.decoder(), Vec::with_capacity(octets.len()));
        decoder.push(octets, &mut out);
        decoder.finish(&mut out);
        out
    }
}

/// State of decoding.
#[derive(Debug)]
pub enum Decoder {
    Identity,
    QuotedPrintable(QuotedPrintable),
    Base64(Base64),
}

impl Decoder {
    pub fn push(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        match self {
            Decoder::Identity => out.extend_from_slice(octets),
            Decoder::QuotedPrintable(decoder) => decoder.push(octets, out),
            Decoder::Base64(decoder) => decoder.push(octets, out),
        }
    }

    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match self {
            Decoder::Identity => {}
            Decoder::QuotedPrintable(decoder) => decoder.finish(out),
            Decoder::Base64(decoder) => decoder.finish(out),
        }
    }
}

/// Decoder of base64, in groups of four.
#[derive(Debug, Default)]
pub struct Base64 {
    bits: u32,
    /// Number of characters of the group so far.
    count: u8,
}

const SKIPPED: u8 = 0xff;
/// The value of each octet.
const VALUES: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut values, mut at) = ([SKIPPED; 256], 0);
    while at < alphabet.len() {
        values[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// Whether an octet belongs to base64's alphabet, without padding.
pub(crate) fn is_base64(b: u8) -> bool {
    VALUES[usize::from(b)] != SKIPPED
}

impl Base64 {
    fn push(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        let mut rest = octets;
        while let Some((&b, behind)) = rest.split_first() {
            if self.count == 0 {
                rest = groups(rest, out);
                if rest.len() < behind.len() + 1 {
                    continue;
                }
            }
            rest = behind;
            match VALUES[usize::from(b)] {
                SKIPPED if b == b'=' => self.finish(out),
                SKIPPED => {}
                value => {
                    self.bits = self.bits << 6 | u32::from(value);
                    self.count += 1;
                    if self.count == 4 {
                        out.extend_from_slice(&self.bits.to_be_bytes()[1..]);
                        (self.bits, self.count) = (0, 0);
                    }
                }
            }
        }
    }

    /// Ends the input; an incomplete group yields the octets whose bits are complete.
    fn finish(&mut self, out: &mut Vec<u8>) {
        match std::mem::take(&mut self.count) {
            2 => out.push((self.bits >> 4) as u8),
            3 => out.extend_from_slice(&[(self.bits >> 10) as u8, (self.bits >> 2) as u8]),
            _ => {}
        }
        self.bits = 0;
    }
}

/// Decodes whole groups up to the first octet outside the alphabet.
fn groups<'a>(octets: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let mut rest = octets;
    while let [a, b, c, d, behind @ ..] = rest {
        let [a, b, c, d] = [a, b, c, d].map(|octet| u32::from(VALUES[usize::from(*octet)]));
        if (a | b | c | d) >= 64 {
            break;
        }
        out.extend_from_slice(&(a << 18 | b << 12 | c << 6 | d).to_be_bytes()[1..]);
        rest = behind;
    }
    rest
}

/// Maximum white space held until it is known whether it ends its line; a longer run is text.
const SPACES_MAX: usize = 1_000;

/// Decoder of quoted-printable.
#[derive(Debug, Default)]
pub struct QuotedPrintable {
    /// An equals sign and up to two octets after it.
    escape: Vec<u8>,
    /// White space, which is not text at the end of a line (section 6.7 rule 3), and a CR after it.
    spaces: Vec<u8>,
}

/// Whether an octet after an equals sign may belong to an escape or a soft line break.
fn is_of_escape(b: u8) -> bool {
    b.is_ascii_hexdigit() || matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// Decodes complete escapes, line ends, and white space followed by text; returns the remaining octets.
fn at_once<'a>(octets: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let mut rest = octets;
    loop {
        match rest {
            [b'=', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(nibble(*high) << 4 | nibble(*low));
                rest = behind;
            }
            [b'=', b'\r', b'\n', behind @ ..] | [b'=', b'\n', behind @ ..] => rest = behind,
            // Not an escape.
            [b'=', next, behind, ..]
                if !is_of_escape(*next) || next.is_ascii_hexdigit() && !behind.is_ascii_hexdigit() =>
            {
                out.push(b'=');
                rest = &rest[1..];
                if *next != b'=' {
                    return rest;
                }
            }
            [b'\r', b'\n', behind @ ..] => {
                out.extend_from_slice(b"\r\n");
                rest = behind;
            }
            [b' ' | b'\t', ..] => {
                let spaces = rest.iter().take(SPACES_MAX).take_while(|b| matches!(b, b' ' | b'\t')).count();
                if matches!(rest.get(spaces), None | Some(b' ' | b'\t' | b'\r' | b'\n')) {
                    return rest;
                }
                out.extend_from_slice(&rest[..spaces]);
                rest = &rest[spaces..];
            }
            _ => return rest,
        }
    }
}

impl QuotedPrintable {
    fn push(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        let mut rest = octets;
        while !rest.is_empty() {
            if self.escape.is_empty() && self.spaces.is_empty() {
                let end = rest.iter().position(|b| matches!(b, b'=' | b' ' | b'\t' | b'\r')).unwrap_or(rest.len());
                out.extend_from_slice(&rest[..end]);
                rest = at_once(&rest[end..], out);
            }
            let Some((&b, behind)) = rest.split_first() else { return };
            rest = behind;
            self.octet(b, out);
        }
    }

    fn octet(&mut self, b: u8, out: &mut Vec<u8>) {
        if !self.escape.is_empty() {
            return self.escaped(b, out);
        }
        match b {
            b'\n' => {
                let has_cr = self.spaces.last() == Some(&b'\r');
                self.spaces.clear();
                out.extend_from_slice(if has_cr { b"\r\n" } else { b"\n" });
            }
            b' ' | b'\t' | b'\r' if self.spaces.last() != Some(&b'\r') && self.spaces.len() < SPACES_MAX => {
                self.spaces.push(b);
            }
            _ => {
                out.append(&mut self.spaces);
                match b {
                    b'=' => self.escape.push(b),
                    b' ' | b'\t' | b'\r' => self.spaces.push(b),
                    _ => out.push(b),
                }
            }
        }
    }

    fn escaped(&mut self, b: u8, out: &mut Vec<u8>) {
        let high = self.escape.get(1).copied();
        match (high, b) {
            // A soft line break, perhaps after white space.
            (None | Some(b'\r' | b' ' | b'\t'), b'\n') => self.escape.clear(),
            (None, b' ' | b'\t' | b'\r') => self.escape.push(b),
            (Some(b' ' | b'\t'), b' ' | b'\t' | b'\r') => self.escape[1] = b,
            (None, _) if b.is_ascii_hexdigit() => self.escape.push(b),
            (Some(high), _) if high.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                self.escape.clear();
                out.push(nibble(high) << 4 | nibble(b));
            }
            _ => {
                // Not an escape.
                self.escape.clear();
                out.push(b'=');
                for octet in high.into_iter().chain([b]) {
                    self.octet(octet, out);
                }
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        // A soft line break without a following line.
        if self.escape.get(1).is_some_and(u8::is_ascii_hexdigit) {
            out.append(&mut self.escape);
        }
        self.escape.clear();
        self.spaces.clear();
    }
}

fn nibble(digit: u8) -> u8 {
    char::from(digit).to_digit(16).unwrap_or_default() as u8
}

/// The octet given by two hexadecimal digits.
pub(crate) fn hex(digits: &[u8]) -> Option<u8> {
    match digits {
        [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            Some(nibble(*high) << 4 | nibble(*low))
        }
        _ => None,
    }
}

/// Encodes as base64, without line ends.
pub fn base64(octets: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(octets.len().div_ceil(3) * 4);
    for group in octets.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        for n in 0..4 {
            let value = (bits >> (18 - 6 * n) & 63) as usize;
            out.push(if n <= group.len() { char::from(ALPHABET[value]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base64_of(text: &str) -> String {
        String::from_utf8_lossy(&Encoding::Base64.decode(text.as_bytes())).into_owned()
    }

    fn quoted_of(text: &str) -> String {
        String::from_utf8_lossy(&Encoding::QuotedPrintable.decode(text.as_bytes())).into_owned()
    }

    #[test]
    fn base64_as_mail_has_it() {
        for (text, wanted) in [
            ("6K+35p+l5pS277yB", "请查收！"),
            ("YQ==", "a"),
            ("YQ", "a"),
            ("YWI=YWI=", "abab"),
            ("Y W\r\nJ*j", "abc"),
            ("Y", ""),
            ("====", ""),
        ] {
            assert_eq!(base64_of(text), wanted, "{text}");
        }
    }

    #[test]
    fn quoted_printable_as_mail_has_it() {
        for (text, wanted) in [
            ("a=3D=C3=A9", "a=é"),
            ("soft=\r\n end=  \r\n.", "soft end."),
            ("trailing \t\r\nb \n", "trailing\r\nb\n"),
            ("=ZZ =4", "=ZZ =4"),
            ("==41 =\r=41", "=A =\rA"),
            ("end=", "end"),
            ("a\rb =0d", "a\rb \r"),
            ("= x", "= x"),
        ] {
            assert_eq!(quoted_of(text), wanted, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in "([ -~=]|=[0-9A-F]{2}|\r\n|[ \t]|=\r\n){0,40}", cut in 1usize..5) {
            for encoding in [Encoding::Base64, Encoding::QuotedPrintable] {
                let (mut decoder, mut out) = (encoding.decoder(), Vec::new());
                for piece in text.as_bytes().chunks(cut) {
                    decoder.push(piece, &mut out);
                }
                decoder.finish(&mut out);
                prop_assert_eq!(out, encoding.decode(text.as_bytes()));
            }
        }

        #[test]
        fn base64_comes_back(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Encoding::Base64.decode(base64(&octets).as_bytes()), octets);
        }
    }
}
