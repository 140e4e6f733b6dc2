//! Guesses the encoding of an extract of a message.

use crate::charset::Charset;
use crate::params::percent;
use crate::transfer::{Encoding, hex, is_base64};
use crate::words;

/// Encodings that are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Encoded word, `=?utf-8?B?...?=` (RFC 2047).
    Word,
    Base64,
    QuotedPrintable,
    /// Parameter, `utf-8''%E8%AF%B7` (RFC 2231).
    Parameter,
    /// Not encoded.
    Plain,
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Form::Word => "encoded word",
            Form::Base64 => "base64",
            Form::QuotedPrintable => "quoted-printable",
            Form::Parameter => "parameter",
            Form::Plain => "none",
        }
    }
}

/// The decoded text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub form: Form,
    /// Charsets as named in the text, or the guessed one.
    pub charsets: Vec<String>,
    pub is_charset_guessed: bool,
    pub text: String,
}

impl Reading {
    /// Decodes `octets`; `None` means unknown.
    pub fn of(octets: &[u8], form: Option<Form>, charset: Option<Charset>) -> Reading {
        let form = form.unwrap_or_else(|| guess(octets, charset));
        let fallback = charset.unwrap_or(Charset::UNDECLARED);
        match form {
            Form::Word => {
                let words::Decoded { text, charsets, .. } = words::decode(octets, fallback);
                Reading { form, charsets, is_charset_guessed: false, text }
            }
            Form::Parameter => {
                let octets = without_name(octets);
                let mut parts = octets.splitn(3, |b| *b == b'\'');
                let (label, _, value) = (parts.next(), parts.next(), parts.next());
                let mut decoded = Vec::new();
                percent(value.unwrap_or(octets), &mut decoded);
                let named = value.and(label).and_then(Charset::named);
                Reading::in_charset(form, &decoded, charset.or(named))
            }
            Form::Base64 => Reading::in_charset(form, &Encoding::Base64.decode(octets), charset),
            Form::QuotedPrintable => Reading::in_charset(form, &Encoding::QuotedPrintable.decode(octets), charset),
            Form::Plain => Reading::in_charset(form, octets, charset),
        }
    }

    fn in_charset(form: Form, octets: &[u8], charset: Option<Charset>) -> Reading {
        let used = charset.unwrap_or_else(|| Charset::guess(octets));
        let charsets = vec![used.name().to_ascii_lowercase()];
        Reading { form, charsets, is_charset_guessed: charset.is_none(), text: used.decode(octets) }
    }
}

fn guess(octets: &[u8], charset: Option<Charset>) -> Form {
    if !words::decode(octets, Charset::UNDECLARED).charsets.is_empty() {
        Form::Word
    } else if is_parameter(octets) {
        Form::Parameter
    } else if is_base64_text(octets, charset) {
        Form::Base64
    } else if is_quoted(octets) {
        Form::QuotedPrintable
    } else {
        Form::Plain
    }
}

/// The value of a parameter, also of `filename*=utf-8''%41` and `filename*0*=utf-8''%41`.
fn without_name(octets: &[u8]) -> &[u8] {
    let octets = octets.trim_ascii();
    let Some(at) = memchr::memmem::find(octets, b"*=") else { return octets };
    let is_name = octets[..at].iter().all(|b| b.is_ascii_alphanumeric() || b"-_*".contains(b));
    if is_name { &octets[at + 2..] } else { octets }
}

fn is_parameter(octets: &[u8]) -> bool {
    let mut parts = without_name(octets).splitn(3, |b| *b == b'\'');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(label), Some(_), Some(value)) => Charset::named(label).is_some() && has_escape(value, b'%'),
        _ => false,
    }
}

/// Whether there is an escape or a soft line break.
fn is_quoted(octets: &[u8]) -> bool {
    has_escape(octets, b'=')
        || octets.windows(2).any(|pair| pair == b"=\n")
        || octets.windows(3).any(|three| three == b"=\r\n")
}

fn has_escape(octets: &[u8], sign: u8) -> bool {
    memchr::memchr_iter(sign, octets).any(|at| hex(&octets[at + 1..]).is_some())
}

/// Minimum length; fewer characters may be a word of any language.
const BASE64_CHARS_MIN: usize = 4;

/// Whether the octets are pure base64 in whole groups that decodes to text. `Test` is base64, too, but its octets are
/// not text.
fn is_base64_text(octets: &[u8], charset: Option<Charset>) -> bool {
    let is_space = |b: &u8| b.is_ascii_whitespace();
    let all: Vec<u8> = octets.iter().copied().filter(|b| !is_space(b)).collect();
    let data = all.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
    let is_whole = all.len().is_multiple_of(4) || data == all.len() && all.len() % 4 != 1;
    if all.len() < BASE64_CHARS_MIN || data < 2 || all.len() - data > 2 || !is_whole {
        return false;
    }
    if !all[..data].iter().all(|b| is_base64(*b)) {
        return false;
    }
    // Several words of plain text: base64 has lines, all of the same length except the last.
    if octets.trim_ascii().iter().any(|b| matches!(b, b' ' | b'\t')) {
        return false;
    }
    let decoded = Encoding::Base64.decode(&all);
    let is_sound = |text: &str| !text.chars().any(|c| c == '\u{fffd}' || c.is_control() && !c.is_whitespace());
    match (std::str::from_utf8(&decoded), charset) {
        (Ok(text), _) => is_sound(text),
        (_, Some(charset)) => is_sound(&charset.decode(&decoded)),
        // If the charset must be guessed, it must not look like a word.
        (Err(_), None) => {
            let is_word = all.iter().all(u8::is_ascii_alphabetic);
            !is_word && is_sound(&Charset::guess(&decoded).decode(&decoded))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_told_apart() {
        for (octets, form, text) in [
            ("6K+35p+l5pS277yB", Form::Base64, "请查收！"),
            ("6K+35p+l5pS2\n77yB\n", Form::Base64, "请查收！"),
            ("YQ==", Form::Base64, "a"),
            ("x+uy6crVx+uy6crV", Form::Base64, "请查收请查收"),
            ("=?gb2312?B?x+uy6crV?=", Form::Word, "请查收"),
            ("Re: =?koi8-r?q?=C0?= ok", Form::Word, "Re: ю ok"),
            ("=E8=AF=B7", Form::QuotedPrintable, "请"),
            ("a=\nb", Form::QuotedPrintable, "ab"),
            ("utf-8'zh'%E8%AF%B7.pdf", Form::Parameter, "请.pdf"),
            ("filename*=gb2312''%C7%EB.exe", Form::Parameter, "请.exe"),
            ("filename*0*=utf-8''%E8%AF%B7", Form::Parameter, "请"),
            ("Test", Form::Plain, "Test"),
            ("Invoice", Form::Plain, "Invoice"),
            ("plain text", Form::Plain, "plain text"),
            ("a = b", Form::Plain, "a = b"),
            ("", Form::Plain, ""),
        ] {
            let reading = Reading::of(octets.as_bytes(), None, None);
            assert_eq!((reading.form, reading.text.as_str()), (form, text), "{octets}");
        }
    }

    #[test]
    fn what_is_said_is_not_guessed() {
        let gbk = Charset::named(b"gbk");
        let reading = Reading::of(b"x+s=", None, gbk);
        assert_eq!((reading.form, reading.text.as_str(), reading.is_charset_guessed), (Form::Base64, "请", false));
        assert_eq!(Reading::of(b"6K+3", Some(Form::Plain), None).text, "6K+3");
    }
}
