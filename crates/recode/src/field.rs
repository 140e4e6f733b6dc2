//! Rewrites header fields with octets over 127, NULs or overlong words. They are encoded where a standard allows it
//! (RFC 2047, RFC 2231; for length alone only where readers are known to decode it); otherwise the octets become `?`,
//! and long words are left for [`super::fold`] to break.
//!
//! Addresses are never changed: mail to a changed address would go to another recipient.

use stentor_mime::field::{comment_end, quoted_end};
use stentor_mime::quoted::escaped;

use super::fold::{self, SPACES_MAX, Syntax};
use super::{ConvertError, Octets, without_end};

/// Maximum length of a word on a line of its own, with room for surrounding characters.
const WORD_BYTES_MAX: usize = 960;

/// Maximum length of an encoded word (RFC 2047 section 2).
const ENCODED_WORD_BYTES_MAX: usize = 75;
/// Column after which no encoded text is started.
const FOLD_COLUMN: usize = 300;

/// Maximum length of a name that is escaped, so that the line stays below 998 octets.
const NAME_BYTES_MAX: usize = 150;

/// Fields of addresses and phrases: only the phrases and comments are encoded.
const ADDRESS_FIELDS: [&str; 18] = [
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "resent-from",
    "resent-sender",
    "resent-to",
    "resent-cc",
    "resent-bcc",
    "resent-reply-to",
    "mail-followup-to",
    "mail-reply-to",
    "disposition-notification-to",
    "errors-to",
    "return-receipt-to",
    "apparently-to",
];
/// Fields with a value and parameters.
const PARAMETER_FIELDS: [&str; 2] = ["content-type", "content-disposition"];
/// Fields read by programs, which would not decode an encoding.
const MACHINE_FIELDS: [&str; 14] = [
    "received",
    "return-path",
    "message-id",
    "in-reply-to",
    "references",
    "date",
    "mime-version",
    "content-id",
    "content-transfer-encoding",
    "dkim-signature",
    "authentication-results",
    "arc-seal",
    "arc-message-signature",
    "arc-authentication-results",
];

/// Name prefixes of other fields read by programs.
const MACHINE_BEGINS: [&str; 4] = ["resent-", "content-", "list-", "arc-"];

/// Whether a field is read by programs: its value is never decoded as a whole, since a word of a name could become an
/// address.
pub fn is_structured(name: &[u8]) -> bool {
    let is_in = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let begins = |with: &&str| name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()));
    let is_for_programs = is_in(&ADDRESS_FIELDS) || is_in(&MACHINE_FIELDS) || MACHINE_BEGINS.iter().any(begins);
    is_for_programs && !is_in(&TEXT_FIELDS)
}

/// Splits a field into name and value.
pub(super) fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b':', field)?;
    Some((field[..at].trim_ascii_end(), &field[at + 1..]))
}

/// Appends a field (including folds and line end) with only the allowed octets, in lines that are not too long.
///
/// # Errors
/// An address would need octets that are not allowed. With [`Octets::Lossy`] it gets `?`.
pub(super) fn write(raw: &[u8], octets: Octets, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    // The line end is not part of the value: unclosed quotes must not include it.
    let text = without_end(raw);
    let end = &raw[text.len()..];
    let mut field = Vec::with_capacity(raw.len() + raw.len() / 8);
    let Some((name, value)) = split(text) else {
        // Not a field at all.
        octets.push(raw, &mut field);
        fold::write(&field, Syntax::Text, out);
        return Ok(());
    };
    write_name(name, octets, &mut field);
    field.push(b':');
    let is_in = |names: &[&str]| names.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()));
    let mut syntax = Syntax::Structured;
    if is_in(&MACHINE_FIELDS) {
        octets.push(value, &mut field);
    } else if is_in(&PARAMETER_FIELDS) {
        write_parameters(value, octets, &mut field);
    } else if is_in(&ADDRESS_FIELDS) {
        let start = field.len();
        match write_addresses(value, octets, &mut field) {
            Err(_) if octets == Octets::Lossy => {
                field.truncate(start);
                octets.push(value, &mut field);
            }
            written => written?,
        }
    } else if name.get(..LIST.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(LIST)) {
        // RFC 2369 section 2 requires readers to ignore white space within the URLs of such fields.
        write_text(value, Needs::of_any_length(octets), &mut field);
    } else {
        syntax = Syntax::Text;
        let needs = if is_in(&TEXT_FIELDS) { Needs::of(octets) } else { Needs::of_any_length(octets) };
        write_text(value, needs, &mut field);
    }
    field.extend_from_slice(end);
    fold::write(&field, syntax, out);
    Ok(())
}

/// Fields of text for people, whose readers decode it (RFC 2047 section 5). In any other field a long word may be for
/// a program, such as a key in base64, which encoding would destroy.
const TEXT_FIELDS: [&str; 4] = ["subject", "comments", "keywords", "content-description"];

/// Prefix of the fields of RFC 2369 and RFC 2919.
const LIST: &[u8] = b"List-";

/// Criteria for encoding.
#[derive(Clone, Copy)]
struct Needs {
    octets: Octets,
    word_bytes_max: usize,
}

impl Needs {
    fn of(octets: Octets) -> Needs {
        Needs { octets, word_bytes_max: WORD_BYTES_MAX }
    }

    /// Words are not encoded because of their length.
    fn of_any_length(octets: Octets) -> Needs {
        Needs { octets, word_bytes_max: usize::MAX }
    }

    fn encoding(self, text: &[u8]) -> bool {
        !self.octets.allow(text) || text.len() > self.word_bytes_max
    }
}

/// RFC 5322 2.2 and RFC 6532 both require 7-bit names. Any other name is escaped reversibly, so that different names
/// stay different.
fn write_name(name: &[u8], octets: Octets, out: &mut Vec<u8>) {
    if octets == Octets::Keep || name.len() > NAME_BYTES_MAX {
        return octets.push(name, out);
    }
    for &b in name {
        match b {
            1..0x80 => out.push(b),
            _ => out.extend_from_slice(&escaped(b)),
        }
    }
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// Writes unstructured text: each run of words that must be encoded, including the white space between them, becomes
/// encoded words.
fn write_text(value: &[u8], needs: Needs, out: &mut Vec<u8>) {
    let mut run: Option<(usize, usize)> = None;
    let (mut at, mut done) = (0, 0);
    // Start of the previous word.
    let mut before = None;
    while at < value.len() {
        let start = value[at..].iter().position(|&b| !is_space(b)).map_or(value.len(), |n| at + n);
        let end = value[start..].iter().position(|&b| is_space(b)).map_or(value.len(), |n| start + n);
        // White space that fills lines is only preserved within encoded words.
        let is_wide = start - at > SPACES_MAX && needs.word_bytes_max < usize::MAX && start < end;
        if let Some(from) = before.filter(|_| is_wide) {
            run = Some((run.map_or(from, |run| run.0), end));
        } else if needs.encoding(&value[start..end]) {
            run = Some((run.map_or(start, |run| run.0), end));
        } else if let Some((from, to)) = run.take() {
            out.extend_from_slice(&value[done..from]);
            write_encoded(&value[from..to], out);
            done = to;
        }
        before = (start < end).then_some(start);
        at = end;
    }
    if let Some((from, to)) = run {
        out.extend_from_slice(&value[done..from]);
        write_encoded(&value[from..to], out);
        done = to;
    }
    out.extend_from_slice(&value[done..]);
}

/// Appends `text` as encoded words, folded between them; line ends in it are removed, as in unfolding.
fn write_encoded(text: &[u8], out: &mut Vec<u8>) {
    let text: Vec<u8> = text.iter().copied().filter(|&b| b != b'\r' && b != b'\n').collect();
    let (charset, chars): (&[u8], Vec<&[u8]>) = match std::str::from_utf8(&text) {
        Ok(valid) => (b"=?utf-8?Q?", valid.split_inclusive(|_| true).map(str::as_bytes).collect()),
        Err(_) => (b"=?unknown-8bit?Q?", text.chunks(1).collect()),
    };
    fold_if_long(out);
    let mut length = 0;
    for encoded in chars {
        let mut word = Vec::with_capacity(12);
        for &b in encoded {
            match b {
                b' ' => word.push(b'_'),
                b if b.is_ascii_alphanumeric() => word.push(b),
                b => word.extend_from_slice(&escaped(b)),
            }
        }
        if length > 0 && length + word.len() + 2 > ENCODED_WORD_BYTES_MAX {
            out.extend_from_slice(b"?=\r\n ");
            length = 0;
        }
        if length == 0 {
            out.extend_from_slice(charset);
            length = charset.len();
        }
        out.extend_from_slice(&word);
        length += word.len();
    }
    if length > 0 {
        out.extend_from_slice(b"?=");
    }
}

/// Starts a new line if the current one is long: encoding makes text longer, and lines are limited (RFC 5322 2.1.1).
fn fold_if_long(out: &mut Vec<u8>) {
    let start = memchr::memrchr(b'\n', out).map_or(0, |at| at + 1);
    if out.len() - start > FOLD_COLUMN && !out[start..].trim_ascii().is_empty() {
        let text = out.trim_ascii_end().len();
        out.truncate(text);
        out.extend_from_slice(b"\r\n ");
    }
}

/// Writes addresses with their phrases and comments encoded.
fn write_addresses(value: &[u8], octets: Octets, out: &mut Vec<u8>) -> Result<(), ConvertError> {
    let needs = Needs::of(octets);
    let mut rest = value;
    while let Some(&first) = rest.first() {
        let end = match first {
            b'"' => quoted_end(rest, b'"').unwrap_or(rest.len()),
            b'(' => comment_end(rest).unwrap_or(rest.len()),
            b'<' => memchr::memchr(b'>', rest).map_or(rest.len(), |at| at + 1),
            b if is_space(b) || b",;:".contains(&b) => 1,
            _ => rest.iter().position(|&b| is_space(b) || b",;:<(\"".contains(&b)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end.max(1));
        rest = after;
        let is_address = first == b'<'
            || token.contains(&b'@') && !matches!(first, b'"' | b'(')
            || first == b'"' && after.first() == Some(&b'@');
        if !needs.encoding(token) || is_address && octets.allow(token) {
            out.extend_from_slice(token);
            continue;
        }
        match first {
            _ if is_address => return Err(ConvertError::EightBitAddress),
            b'(' => {
                out.push(b'(');
                let inner = &token[1..];
                let (inner, closed) = inner.strip_suffix(b")").map_or((inner, false), |inner| (inner, true));
                write_text(inner, needs, out);
                if closed {
                    out.push(b')');
                }
            }
            b'"' => {
                let inner = &token[1..];
                write_encoded(&unquoted(inner.strip_suffix(b"\"").unwrap_or(inner)), out);
            }
            _ => write_encoded(token, out),
        }
    }
    Ok(())
}

fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&b) = bytes.next() {
        out.extend(if b == b'\\' { bytes.next() } else { Some(&b) });
    }
    out
}

/// Writes `type; name="value"`: a value with octets over 127 is encoded by RFC 2231 section 4.
fn write_parameters(value: &[u8], octets: Octets, out: &mut Vec<u8>) {
    let needs = Needs::of(octets);
    let mut rest = value;
    while !rest.is_empty() {
        let mut end = 0;
        while let Some(&b) = rest.get(end) {
            match b {
                b';' => break,
                b'"' => end = quoted_end(&rest[end..], b'"').map_or(rest.len(), |quoted| end + quoted),
                _ => end += 1,
            }
        }
        let (parameter, after) = rest.split_at(end);
        match memchr::memchr(b'=', parameter) {
            Some(at) if needs.encoding(parameter) && !needs.encoding(&parameter[..at]) && !is_boundary(parameter) => {
                write_extended(&parameter[..at], &parameter[at + 1..], out);
            }
            _ => octets.push(parameter, out),
        }
        rest = after;
        if let [b';', after @ ..] = rest {
            out.push(b';');
            rest = after;
        }
    }
}

/// Whether it is the boundary, which readers search for unchanged.
fn is_boundary(parameter: &[u8]) -> bool {
    let name = parameter.split(|&b| b == b'=').next().unwrap_or_default();
    name.trim_ascii().eq_ignore_ascii_case(b"boundary") && parameter.is_ascii()
}

fn write_extended(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let value = value.trim_ascii();
    let inner = value.strip_prefix(b"\"").map(|inner| unquoted(inner.strip_suffix(b"\"").unwrap_or(inner)));
    let inner = inner.unwrap_or_else(|| value.to_vec());
    let charset: &[u8] = if std::str::from_utf8(&inner).is_ok() { b"utf-8''" } else { b"unknown-8bit''" };
    let name = name.trim_ascii_end();
    let encode = |bytes: &[u8], out: &mut Vec<u8>| {
        for &b in bytes {
            if b.is_ascii_alphanumeric() || b"-._".contains(&b) {
                out.push(b);
            } else {
                let [_, high, low] = escaped(b);
                out.extend_from_slice(&[b'%', high, low]);
            }
        }
    };
    // Sections (RFC 2231 section 3) keep every line far below 998 octets.
    let sections: Vec<&[u8]> = inner.chunks(SECTION_BYTES_MAX).collect();
    for (index, section) in sections.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b";\r\n ");
            out.extend_from_slice(name.trim_ascii_start());
        } else {
            fold_if_long(out);
            let folded = out.ends_with(b"\r\n ");
            out.extend_from_slice(if folded { name.trim_ascii_start() } else { name });
        }
        if sections.len() > 1 {
            out.extend_from_slice(format!("*{index}").as_bytes());
        }
        out.extend_from_slice(b"*=");
        if index == 0 {
            out.extend_from_slice(charset);
        }
        encode(section, out);
    }
}

/// Maximum octets of a parameter's value in one section; each takes up to three on the line.
const SECTION_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(field: &str) -> String {
        let mut out = Vec::new();
        write(format!("{field}\r\n").as_bytes(), Octets::SevenBit, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn text_becomes_encoded_words() {
        assert_eq!(converted("Subject: a é ü b"), "Subject: a =?utf-8?Q?=C3=A9_=C3=BC?= b");
        assert_eq!(converted("X-A: é\r\n é  c\r\n d"), "X-A: =?utf-8?Q?=C3=A9_=C3=A9?=  c\r\n d");
        let long = converted(&format!("Subject: {}", "é".repeat(50)));
        assert!(long.split("\r\n").all(|line| line.len() < 90) && long.matches("=?utf-8?Q?").count() > 4);
        let mut out = Vec::new();
        write(b"Subject: \xff\r\n", Octets::SevenBit, &mut out).unwrap();
        assert_eq!(out, b"Subject: =?unknown-8bit?Q?=FF?=\r\n");
    }

    #[test]
    fn addresses_are_kept() {
        assert_eq!(
            converted("From: \"Ré, \\\"x\" <a@b.org>, Zoé Q <c@d.org> (né é), e@f.org"),
            "From: =?utf-8?Q?R=C3=A9=2C_=22x?= <a@b.org>, =?utf-8?Q?Zo=C3=A9?= Q <c@d.org> \
             (=?utf-8?Q?n=C3=A9_=C3=A9?=), e@f.org"
        );
        for bad in ["To: é@b.org", "To: x <é@b.org>", "To: \"é\"@b.org", "To: a@é.org"] {
            let result = write(bad.as_bytes(), Octets::SevenBit, &mut Vec::new());
            assert_eq!(result, Err(ConvertError::EightBitAddress), "{bad}");
            let mut out = Vec::new();
            write(bad.as_bytes(), Octets::Lossy, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), bad.replace('é', "??"));
        }
    }

    #[test]
    fn parameters_are_extended() {
        assert_eq!(
            converted("Content-Disposition: attachment; filename=\"é;.txt\"; size=1"),
            "Content-Disposition: attachment; filename*=utf-8''%C3%A9%3B.txt; size=1"
        );
        assert_eq!(
            converted("Content-Type: text/plain;\r\n name=ü"),
            "Content-Type: text/plain;\r\n name*=utf-8''%C3%BC"
        );
        let long = converted(&format!("Content-Type: x/y; name=\"{}\"", "é".repeat(900)));
        assert!(long.contains("name*0*=utf-8''%C3") && long.contains("\r\n name*8*=%C3"));
        assert!(long.split("\r\n").all(|line| line.len() < 998));
    }

    #[test]
    fn lines_that_grow_are_folded() {
        for field in [
            format!("X-A: {} é", "a ".repeat(450)),
            format!("From: {} <a@b>", "é\"é\"".repeat(150)),
            format!("Content-Type: a/b{}; c=é", "; d=e".repeat(170)),
        ] {
            let converted = converted(&field);
            assert!(converted.split("\r\n").all(|line| line.len() < 998), "{converted}");
            assert!(converted.split("\r\n").skip(1).all(|line| line.starts_with(' ') && line.len() > 2));
        }
    }

    /// Two names written with `?` could become equal, and the original would be lost.
    #[test]
    fn names_stay_apart() {
        assert_eq!(converted("X-é: a"), "X-=C3=A9: a");
        assert_eq!(converted("X-è : é"), "X-=C3=A8: =?utf-8?Q?=C3=A9?=");
        assert_eq!(converted("X-\0: a\0b c"), "X-=00: =?utf-8?Q?a=00b?= c");
        let long = converted(&format!("{}: a", "é".repeat(490)));
        assert!(long.is_ascii() && long.len() < 998 && long.ends_with("?: a"), "{}", long.len());
    }

    #[test]
    fn what_programs_read_is_masked() {
        assert_eq!(converted("Received: from é (x)"), "Received: from ?? (x)");
        assert_eq!(converted("no field é"), "no field ??");
    }
}
