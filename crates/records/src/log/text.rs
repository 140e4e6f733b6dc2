//! Parses parts of lines: addresses, hosts, durations.

use std::net::IpAddr;

use memchr::{memchr, memmem};

use crate::record::To;

/// Splits the text within `<` and `>` at the beginning from the rest; quotes hide a `>`.
pub fn angle(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('<')?;
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'>' if !quoted => return Some((&inner[..at], &inner[at + 1..])),
            _ => {}
        }
    }
    // An unterminated quote hides nothing.
    let at = memchr(b'>', inner.as_bytes())?;
    Some((&inner[..at], &inner[at + 1..]))
}

/// The address without angle brackets.
pub fn bare(address: &str) -> &str {
    address.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')).unwrap_or(address)
}

/// Reads the addresses of `<a@x>,<b@x>, rest` or `a,b, rest`, and returns the text after the `, `. Sendmail's `[more]`
/// is skipped.
pub fn addresses<'a>(mut text: &'a str, to: &mut To<'a>) -> &'a str {
    loop {
        let rest = if let Some((address, rest)) = angle(text) {
            to.push(address);
            rest
        } else {
            let end = memchr(b',', text.as_bytes()).unwrap_or(text.len());
            if end > 0 {
                to.push(&text[..end]);
            }
            &text[end..]
        };
        let Some(rest) = rest.strip_prefix(',') else { return "" };
        if let Some(rest) = rest.strip_prefix(' ') {
            let rest = rest.strip_prefix("[more]").unwrap_or(rest);
            return rest.strip_prefix(", ").unwrap_or(rest);
        }
        text = rest;
    }
}

/// Fields `key=value, key=value`: a value ends where `, ` and another `key=` follow. The keys in `last` take the rest
/// of the line.
pub struct Fields<'a> {
    rest: &'a str,
    last: &'static [&'static str],
}

impl<'a> Fields<'a> {
    pub fn new(rest: &'a str, last: &'static [&'static str]) -> Fields<'a> {
        Fields { rest, last }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let equals = memchr(b'=', self.rest.as_bytes())?;
        let key = &self.rest[..equals];
        let value = &self.rest[equals + 1..];
        if self.last.contains(&key) {
            self.rest = "";
            return Some((key, value));
        }
        let mut from = 0;
        // An address in brackets is taken as a whole, whatever it contains.
        if value.starts_with('<')
            && let Some((_, rest)) = angle(value)
        {
            from = value.len() - rest.len();
        }
        while let Some(comma) = memchr(b',', &value.as_bytes()[from..]) {
            let at = from + comma;
            if is_key(&value.as_bytes()[at + 1..]) {
                self.rest = &value[at + 2..];
                return Some((key, &value[..at]));
            }
            from = at + 1;
        }
        self.rest = "";
        Some((key, value))
    }
}

/// Whether `text` begins with ` key=`: a space, letters, digits or `_`, and an equals sign.
fn is_key(text: &[u8]) -> bool {
    if text.first() != Some(&b' ') {
        return false;
    }
    let word = text[1..].iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
    matches!(word, Some(end) if end > 0 && text[1 + end] == b'=')
}

/// Reads a relay: `host.example. [192.0.2.1]`, `host[192.0.2.1]:25`, `[192.0.2.1]`, `[IPv6:2001:db8::1]`. Returns name
/// without its trailing dot, address and port.
pub fn relay(text: &str) -> (&str, Option<IpAddr>, u16) {
    let Some(open) = memchr(b'[', text.as_bytes()) else { return (name(text), None, 0) };
    let host = name(text[..open].trim_end());
    let inner = &text[open + 1..];
    let close = memchr(b']', inner.as_bytes()).unwrap_or(inner.len());
    let address = ip(&inner[..close]);
    let rest = inner.get(close + 1..).unwrap_or("");
    // `[192.0.2.1] [192.0.2.1]`: a host without a name.
    let again = rest.strip_prefix(' ').filter(|rest| rest.starts_with('['));
    let rest = match again {
        Some(again) => again.find(']').map_or("", |close| &again[close + 1..]),
        None => rest,
    };
    let digits = rest.strip_prefix(':').unwrap_or("");
    let end = digits.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    (host, address, digits[..end].parse().unwrap_or(0))
}

fn name(text: &str) -> &str {
    let text = text.strip_suffix('.').unwrap_or(text);
    if matches!(text, "none" | "NONE") { "" } else { text }
}

pub fn ip(text: &str) -> Option<IpAddr> {
    let text = if text.len() > 5 && text.as_bytes()[..5].eq_ignore_ascii_case(b"ipv6:") { &text[5..] } else { text };
    text.parse().ok()
}

/// Reads seconds with a fraction, `0.05`, as milliseconds.
pub fn seconds_ms(text: &str) -> Option<u64> {
    let mut ms = 0_u64;
    let mut unit = 0;
    for byte in text.bytes() {
        match (byte, unit) {
            (b'0'..=b'9', 0) => ms = ms.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            (b'.', 0) => {
                ms = ms.checked_mul(1000)?;
                unit = 100;
            }
            (b'0'..=b'9', 1..) => {
                ms = ms.checked_add(u64::from(byte - b'0') * unit)?;
                unit = (unit / 10).max(1);
                if unit == 1 {
                    // Digits beyond milliseconds are ignored.
                    return Some(finish_ms(ms, text));
                }
            }
            _ => return None,
        }
    }
    if unit == 0 { ms.checked_mul(1000) } else { Some(ms) }
}

/// Adds the third digit of a fraction.
fn finish_ms(ms: u64, text: &str) -> u64 {
    let third = text.find('.').and_then(|dot| text.as_bytes().get(dot + 3)).filter(|byte| byte.is_ascii_digit());
    ms + third.map_or(0, |byte| u64::from(byte - b'0'))
}

/// Reads sendmail's `d+hh:mm:ss` as milliseconds.
pub fn clock_ms(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('+') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let mut seconds = 0_u64;
    let mut parts = 0;
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
        parts += 1;
    }
    (parts == 3).then_some(())?;
    days.checked_mul(86_400)?.checked_add(seconds)?.checked_mul(1000)
}

/// Reads Exim's `1d2h3m4s` or `1.234s` as milliseconds.
pub fn spans_ms(text: &str) -> Option<u64> {
    let mut ms = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.bytes().position(|byte| !(byte.is_ascii_digit() || byte == b'.'))?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        ms = ms.checked_add(seconds_ms(&rest[..end])?.checked_mul(unit)?)?;
        rest = &rest[end + 1..];
    }
    (!text.is_empty()).then_some(ms)
}

/// The text between `open` and the next `close` after it.
pub fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let start = memmem::find(text.as_bytes(), open.as_bytes())? + open.len();
    let end = memmem::find(&text.as_bytes()[start..], close.as_bytes())?;
    Some(&text[start..start + end])
}

/// The enhanced status code (RFC 3463) at the beginning of a reply or after its three digits.
pub fn dsn(reply: &str) -> &str {
    for word in reply.split([' ', '-']).take(2) {
        let bytes = word.as_bytes();
        let numbers = bytes.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
        if bytes.len() >= 5 && matches!(bytes[0], b'2' | b'4' | b'5') && bytes[1] == b'.' && numbers {
            return word;
        }
    }
    ""
}
