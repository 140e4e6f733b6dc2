//! Charsets of mail that `encoding_rs` does not support: escapes and shifts around others that it does.
//!
//! [`Hz`] and [`Iso2022Kr`] produce octets of GBK and EUC-KR; [`Utf7`] produces text. Any octets are accepted, in
//! constant memory.

/// HZ, RFC 1843: `~{` starts pairs of GB 2312, `~}` or a line end ends them.
#[derive(Debug, Default)]
pub(crate) struct Hz {
    is_shifted: bool,
    /// Whether the next octet is the second of a pair.
    in_pair: bool,
    after_tilde: bool,
}

impl Hz {
    pub(crate) fn push(&mut self, octets: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(octets.len());
        for &b in octets {
            if std::mem::take(&mut self.after_tilde) {
                match b {
                    b'{' if !self.is_shifted => self.is_shifted = true,
                    b'}' if self.is_shifted => self.is_shifted = false,
                    b'~' if !self.is_shifted => out.push(b'~'),
                    // A continued line.
                    b'\n' if !self.is_shifted => {}
                    _ => {
                        out.push(b'~');
                        self.plain(b, &mut out);
                    }
                }
            } else if b == b'~' && !self.in_pair {
                self.after_tilde = true;
            } else {
                self.plain(b, &mut out);
            }
        }
        out
    }

    fn plain(&mut self, b: u8, out: &mut Vec<u8>) {
        if self.is_shifted && (0x21..0x7f).contains(&b) {
            self.in_pair = !self.in_pair;
            out.push(b | 0x80);
        } else {
            self.in_pair = false;
            self.is_shifted &= b != b'\n';
            out.push(b);
        }
    }
}

/// ISO-2022-KR, RFC 1557: SO starts pairs of KS X 1001, SI or a line end ends them; the designator at the beginning
/// is not text.
#[derive(Debug, Default)]
pub(crate) struct Iso2022Kr {
    is_shifted: bool,
    /// Number of matching octets of the designator.
    escape: usize,
}

const DESIGNATOR: &[u8] = b"\x1b$)C";

impl Iso2022Kr {
    pub(crate) fn push(&mut self, octets: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(octets.len());
        for &b in octets {
            if b == DESIGNATOR[self.escape] {
                self.escape = (self.escape + 1) % DESIGNATOR.len();
                continue;
            }
            // Not the designator: the octets were text, or another escape, which is not visible.
            out.extend_from_slice(DESIGNATOR.get(1..std::mem::take(&mut self.escape)).unwrap_or_default());
            match b {
                0x0e => self.is_shifted = true,
                0x0f => self.is_shifted = false,
                0x1b => self.escape = 1,
                0x21..0x7f if self.is_shifted => out.push(b | 0x80),
                _ => {
                    self.is_shifted &= b != b'\n';
                    out.push(b);
                }
            }
        }
        out
    }
}

/// UTF-7, RFC 2152: `+` starts base64 of UTF-16, which ends at an octet outside its alphabet; a `-` there is not
/// text; `+-` is a plus.
#[derive(Debug, Default)]
pub(crate) struct Utf7 {
    shift: Option<Shift>,
}

#[derive(Debug, Default)]
struct Shift {
    bits: u32,
    count: u32,
    is_empty: bool,
    /// The first half of a surrogate pair.
    high: Option<u16>,
}

impl Utf7 {
    pub(crate) fn push(&mut self, octets: &[u8], text: &mut String) {
        let mut rest = octets;
        while let Some((&b, behind)) = rest.split_first() {
            if self.shift.is_none() {
                let plain = rest.iter().take_while(|b| b.is_ascii() && **b != b'+').count();
                text.extend(rest[..plain].iter().map(|b| char::from(*b)));
                if plain > 0 {
                    rest = &rest[plain..];
                    continue;
                }
            }
            rest = behind;
            match (&mut self.shift, sextet(b)) {
                (Some(shift), Some(value)) => shift.take(value, text),
                (Some(_), None) => {
                    let is_plus = self.end(text) && b == b'-';
                    match b {
                        b'-' if is_plus => text.push('+'),
                        b'-' => {}
                        b => direct(b, text),
                    }
                }
                (None, _) if b == b'+' => self.shift = Some(Shift { is_empty: true, ..Shift::default() }),
                (None, _) => direct(b, text),
            }
        }
    }

    pub(crate) fn finish(&mut self, text: &mut String) {
        self.end(text);
    }

    /// Ends a run of base64; returns whether it was empty.
    fn end(&mut self, text: &mut String) -> bool {
        let Some(shift) = self.shift.take() else { return false };
        if shift.high.is_some() {
            text.push('\u{fffd}');
        }
        shift.is_empty
    }
}

impl Shift {
    fn take(&mut self, value: u8, text: &mut String) {
        self.is_empty = false;
        self.bits = self.bits << 6 | u32::from(value);
        self.count += 6;
        if self.count < 16 {
            return;
        }
        self.count -= 16;
        let unit = (self.bits >> self.count & 0xffff) as u16;
        match (self.high.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => text.extend(char::decode_utf16([high, unit]).flatten()),
            (high, unit) => {
                if high.is_some() {
                    text.push('\u{fffd}');
                }
                match unit {
                    0xd800..=0xdbff => self.high = Some(unit),
                    unit => text.push(char::from_u32(u32::from(unit)).unwrap_or('\u{fffd}')),
                }
            }
        }
    }
}

fn direct(b: u8, text: &mut String) {
    text.push(if b.is_ascii() { char::from(b) } else { '\u{fffd}' });
}

fn sextet(b: u8) -> Option<u8> {
    match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
