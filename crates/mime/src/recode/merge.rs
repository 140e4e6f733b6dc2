//! Puts values into the placeholders of a message, `{{name}}`: merge fields.
//!
//! Promise: what readers decode is the text with the values, whatever the transfer encoding: encoded texts are decoded
//! and become quoted-printable, and header fields get encoded words (RFC 2047). In HTML, values are escaped; in
//! address fields they are quoted, so that a name cannot add an address; nothing in a value can end a part. Parts
//! without a placeholder are not changed. Values add at most [`ADDED_BYTES_MAX`] octets, whatever the placeholders.
//! Values go into the texts (`text/*`) of the message itself and into the header fields that people read; not into
//! attached messages, signed or encrypted parts, and texts over [`HOLD_BYTES_MAX`](super::HOLD_BYTES_MAX).
//!
//! A placeholder is two braces, a name of 1 to [`NAME_BYTES_MAX`] ASCII letters, digits and `_`, and two braces; spaces
//! may surround the name. One without a value stays as it is; [`MergeSurvey`] names all of a message beforehand.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use crate::params::{MimeField, ParamName};
use crate::quoted::QuotedPrintable;
use crate::transfer::Encoding;

use super::field::{self, split};
use super::header::{self, Facts, Kind};
use super::levels::Level;
use super::{ConvertError, Converter, LEVELS_MAX, LINE_BYTES_MAX, Octets, State, Stop, push_quoted};

/// Longest name of a value.
pub const NAME_BYTES_MAX: usize = 64;
/// Most spaces before and after a name.
const SPACES_MAX: usize = 8;

/// Address fields in which names may be merged, and others. Beside them `X-` fields.
const ADDRESS_FIELDS: [&str; 4] = ["From", "Reply-To", "To", "Cc"];
const TEXT_FIELDS: [&str; 3] = ["Subject", "Comments", "Keywords"];

/// Most octets of values in a message, as they are written.
pub const ADDED_BYTES_MAX: usize = 1024 * 1024;

/// Values by name.
pub type MergeValues = HashMap<String, String>;

/// What a message needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeSurvey {
    /// Names of its placeholders.
    pub names: BTreeSet<String>,
    /// A place with a placeholder in which no values are put.
    pub unmerged: Option<String>,
    /// A charset other than UTF-8 of a text with placeholders: values beyond ASCII would be misread there.
    pub foreign_charset: Option<String>,
}

impl MergeSurvey {
    /// Examines a message (lines end with CRLF).
    ///
    /// # Errors
    /// Its header is too large.
    pub fn of(message: &[u8]) -> Result<MergeSurvey, ConvertError> {
        let mut converter = Converter::merging(MergeValues::new());
        let mut out = Vec::new();
        converter.push(message, &mut out)?;
        converter.finish(&mut out)?;
        Ok(converter.merging.map(|merging| merging.survey).unwrap_or_default())
    }
}

/// State of a merge.
#[derive(Debug)]
pub(super) struct Merging {
    values: MergeValues,
    /// Octets that values have added.
    added: usize,
    survey: MergeSurvey,
    /// Whether the message's own header is done.
    has_header: bool,
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Place {
    Text,
    Html,
    Addresses,
}

impl Converter {
    /// A converter that puts these values into a message.
    pub fn merging(values: MergeValues) -> Converter {
        let merging = Merging { values, added: 0, survey: MergeSurvey::default(), has_header: false };
        Converter { merging: Some(Box::new(merging)), ..Converter::with(Octets::Keep) }
    }

    /// Names of the placeholders that had no value.
    pub fn unmerged_names(&self) -> impl Iterator<Item = &str> {
        self.merging.iter().flat_map(|merging| &merging.survey.names).map(String::as_str)
    }

    /// Handles a complete header section: decides which kind of part follows.
    pub(super) fn begin_merging(&mut self, mut facts: Facts, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let mut header = std::mem::take(&mut self.header);
        let Some(merging) = &mut self.merging else { return Ok(()) };
        if !std::mem::replace(&mut merging.has_header, true) {
            header = merging.header(&header)?;
        }
        let identity = facts.encoding == Encoding::Identity;
        self.state = match std::mem::replace(&mut facts.kind, Kind::Leaf) {
            Kind::Multipart { boundary, digest } if identity && self.levels.len() < LEVELS_MAX => {
                self.levels.push(Level::Multipart { boundary, digest });
                State::Copy
            }
            Kind::Leaf if facts.is_text && !facts.is_ambiguous && facts.encoding != Encoding::Unknown => {
                self.header = header;
                self.state = State::Hold { facts, body: Vec::new(), eight_bit: false, has_long_line: false };
                return Ok(());
            }
            _ => State::Copy,
        };
        out.extend_from_slice(&header);
        if facts.empty_line {
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Releases the text that was held.
    pub(super) fn release_merged(
        &mut self,
        header: &[u8],
        facts: &Facts,
        body: &[u8],
        stop: Stop,
        out: &mut Vec<u8>,
    ) -> Result<(), ConvertError> {
        self.state = State::Copy;
        let merged = self.merged_text(header, facts, body, stop);
        self.merging.as_ref().map_or(Ok(()), |merging| merging.check())?;
        let Some(text) = merged else {
            header::write_kept(header, facts, Octets::Keep, out)?;
            out.extend_from_slice(body);
            return Ok(());
        };
        // As it was declared: 7-bit text stays so, and 8-bit text is converted for hosts that need it.
        let is_fit = |line: &[u8]| line.len() <= LINE_BYTES_MAX && !self.levels.may_delimit(line);
        let mut lines = text.split(|octet| *octet == b'\n');
        let stays = facts.encoding == Encoding::Identity && (text.is_ascii() || !body.is_ascii()) && lines.all(is_fit);
        let end: &[u8] = if stop == Stop::Delimiter { b"\r\n" } else { b"" };
        if stays {
            header::write_kept(header, facts, Octets::Keep, out)?;
            out.extend_from_slice(&text);
        } else {
            header::write_quoted(header, facts, "utf-8", Octets::Keep, out)?;
            quoted(&text, out);
        }
        out.extend_from_slice(end);
        Ok(())
    }

    /// The decoded text with its values, without the line end that belongs to a delimiter; `None` if nothing changes.
    fn merged_text(&mut self, header: &[u8], facts: &Facts, body: &[u8], stop: Stop) -> Option<Vec<u8>> {
        let body = match stop {
            Stop::Full { .. } => {
                self.merging.as_mut()?.note_unmerged("a text part over 256 KiB");
                return None;
            }
            Stop::Delimiter => body.strip_suffix(b"\r\n")?,
            Stop::Eof => body,
        };
        let text: Cow<'_, [u8]> = match facts.encoding {
            Encoding::Identity => Cow::Borrowed(body),
            encoding => Cow::Owned(encoding.decode(body)),
        };
        let merging = self.merging.as_mut()?;
        let declared = content_type(header);
        let is_markup = ["html", "xml"].iter().any(|markup| declared.value.contains(markup));
        let place = if is_markup { Place::Html } else { Place::Text };
        let charset =
            declared.param(ParamName::Charset).map(|param| String::from_utf8_lossy(&param.octets).into_owned());
        let is_foreign = |name: &String| !["utf-8", "us-ascii"].iter().any(|known| name.eq_ignore_ascii_case(known));
        let before = merging.survey.names.len();
        let merged = merging.substitute(&text, place);
        if (merged.is_some() || merging.survey.names.len() > before) && merging.survey.foreign_charset.is_none() {
            merging.survey.foreign_charset = charset.filter(is_foreign);
        }
        merged
    }
}

impl Merging {
    /// Returns the message's header with values.
    fn header(&mut self, header: &[u8]) -> Result<Vec<u8>, ConvertError> {
        let mut out = Vec::with_capacity(header.len());
        for raw in crate::field::lines(header) {
            let name = split(raw).map_or(&b""[..], |(name, _)| name);
            let is_in = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            let place = if is_in(&ADDRESS_FIELDS) {
                Place::Addresses
            } else if is_in(&TEXT_FIELDS) || name.len() > 2 && name[..2].eq_ignore_ascii_case(b"X-") {
                Place::Text
            } else {
                if has_placeholder(raw) {
                    self.note_unmerged(&String::from_utf8_lossy(name));
                }
                out.extend_from_slice(raw);
                continue;
            };
            if has_word_placeholder(raw) {
                self.note_unmerged("an encoded word");
            }
            match self.substitute(raw, place) {
                Some(merged) => field::write(&merged, Octets::SevenBit, &mut out)?,
                None => out.extend_from_slice(raw),
            }
        }
        self.check()?;
        Ok(out)
    }

    fn check(&self) -> Result<(), ConvertError> {
        if self.added > ADDED_BYTES_MAX { Err(ConvertError::MergeTooLarge) } else { Ok(()) }
    }

    fn note_unmerged(&mut self, place: &str) {
        self.survey.unmerged.get_or_insert_with(|| place.to_owned());
    }

    /// Returns a text with values; `None` if it has no placeholder with a value.
    fn substitute(&mut self, text: &[u8], place: Place) -> Option<Vec<u8>> {
        let (mut out, mut kept, mut at) = (Vec::new(), 0, 0);
        while let Some(found) = memchr::memmem::find(&text[at..], b"{{") {
            let begin = at + found;
            if self.added > ADDED_BYTES_MAX {
                break;
            }
            let Some(Placeholder { name, bytes }) = placeholder(&text[begin..]) else {
                at = begin + 1;
                continue;
            };
            let end = begin + bytes;
            match self.values.get(name) {
                Some(value) => {
                    out.extend_from_slice(&text[kept..begin]);
                    let len = out.len();
                    write_value(value, place, &text[..begin], &mut out);
                    self.added += out.len() - len;
                    kept = end;
                }
                None => drop(self.survey.names.insert(name.to_owned())),
            }
            at = end;
        }
        (kept > 0).then(|| {
            out.extend_from_slice(&text[kept..]);
            out
        })
    }
}

fn has_placeholder(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, b"{{").any(|at| placeholder(&text[at..]).is_some())
}

/// Whether a placeholder is within an encoded word (RFC 2047).
fn has_word_placeholder(field: &[u8]) -> bool {
    field
        .split(u8::is_ascii_whitespace)
        .any(|token| memchr::memmem::find(token, b"=?").is_some() && has_placeholder(token))
}

/// A placeholder at the beginning of a text.
struct Placeholder<'a> {
    name: &'a str,
    /// Octets with its braces.
    bytes: usize,
}

fn placeholder(text: &[u8]) -> Option<Placeholder<'_>> {
    let spaces = |text: &[u8]| text.iter().take(SPACES_MAX).take_while(|octet| **octet == b' ').count();
    let inner = text.strip_prefix(b"{{")?;
    let inner = &inner[spaces(inner)..];
    let is_name = |octet: &u8| octet.is_ascii_alphanumeric() || *octet == b'_';
    let len = inner.iter().take(NAME_BYTES_MAX + 1).take_while(|octet| is_name(octet)).count();
    let (name, rest) = inner.split_at(len);
    let rest = rest[spaces(rest)..].strip_prefix(b"}}").filter(|_| (1..=NAME_BYTES_MAX).contains(&len))?;
    Some(Placeholder { name: std::str::from_utf8(name).ok()?, bytes: text.len() - rest.len() })
}

/// Appends a value, such that it means itself. `before`: the field up to it.
fn write_value(value: &str, place: Place, before: &[u8], out: &mut Vec<u8>) {
    match place {
        Place::Text => out.extend_from_slice(value.as_bytes()),
        Place::Html => {
            for c in value.chars() {
                match c {
                    '&' => out.extend_from_slice(b"&amp;"),
                    '<' => out.extend_from_slice(b"&lt;"),
                    '>' => out.extend_from_slice(b"&gt;"),
                    '"' => out.extend_from_slice(b"&quot;"),
                    '\'' => out.extend_from_slice(b"&#39;"),
                    c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        }
        Place::Addresses => write_in_addresses(value, before, out),
    }
}

/// Appends a value within an address field: part of a quoted string, of a comment, of an address in angle brackets, or
/// a phrase.
fn write_in_addresses(value: &str, before: &[u8], out: &mut Vec<u8>) {
    let (mut is_quoted, mut is_bracketed, mut comments, mut octets) = (false, false, 0_usize, before.iter());
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' if is_quoted || comments > 0 => drop(octets.next()),
            b'"' if comments == 0 => is_quoted = !is_quoted,
            b'(' if !is_quoted => comments += 1,
            b')' if !is_quoted => comments = comments.saturating_sub(1),
            b'<' if !is_quoted && comments == 0 => is_bracketed = true,
            b'>' if !is_quoted && comments == 0 => is_bracketed = false,
            _ => {}
        }
    }
    let escape = |special: &str| -> String {
        value.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(!special.contains(c)))).collect()
    };
    if comments > 0 {
        return out.extend_from_slice(escape("()\\").as_bytes());
    }
    if is_bracketed && !is_quoted {
        // An address has no other octets outside of quotes; what has cannot be one.
        let allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.@".contains(c);
        out.extend(value.chars().filter(|c| allowed(*c)).collect::<String>().into_bytes());
        return;
    }
    let is_phrase =
        !value.is_empty() && value.bytes().all(|octet| octet.is_ascii_alphanumeric() || b" -_".contains(&octet));
    if is_phrase && !is_quoted {
        return out.extend_from_slice(value.as_bytes());
    }
    let escaped = escape("\"\\");
    let quote: &[u8] = if is_quoted { b"" } else { b"\"" };
    out.extend_from_slice(quote);
    out.extend_from_slice(escaped.as_bytes());
    out.extend_from_slice(quote);
}

fn content_type(header: &[u8]) -> MimeField {
    let mut fields = crate::field::lines(header).filter_map(split);
    let value =
        fields.find(|(name, _)| name.eq_ignore_ascii_case(b"Content-Type")).map_or(&b""[..], |(_, value)| value);
    MimeField::parse(value)
}

/// Appends a text in quoted-printable. No line of it can be taken for a delimiter.
fn quoted(text: &[u8], out: &mut Vec<u8>) {
    let mut encoder = QuotedPrintable::default();
    let mut lines = text.split(|octet| *octet == b'\n').peekable();
    while let Some(line) = lines.next() {
        let is_last = lines.peek().is_none();
        let line = if is_last { line } else { line.strip_suffix(b"\r").unwrap_or(line) };
        if line.starts_with(b"--") {
            encoder.push_escaped(b'-', out);
            encoder.push(&line[1..], out);
        } else {
            push_quoted(&mut encoder, line, true, out);
        }
        if !is_last {
            encoder.end_line(out);
        }
    }
    encoder.finish(out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::words;

    fn values(pairs: &[(&str, &str)]) -> MergeValues {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn merged(message: &str, pairs: &[(&str, &str)]) -> String {
        let mut converter = Converter::merging(values(pairs));
        let mut out = Vec::new();
        converter.push(message.as_bytes(), &mut out).unwrap();
        converter.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_text_and_subject() {
        let message =
            "From: a@b.example\r\nSubject: Hello {{name}}, news\r\n\r\nDear {{ name }},\r\n{{other}} {{ x y }}\r\n";
        assert_eq!(
            merged(message, &[("name", "Ann Lee")]),
            "From: a@b.example\r\nSubject: Hello Ann Lee, news\r\n\r\nDear Ann Lee,\r\n{{other}} {{ x y }}\r\n"
        );
        let merged = merged(message, &[("name", "J\u{f6}rg")]);
        let (header, body) = merged.split_once("\r\n\r\n").unwrap();
        let subject = header.split("Subject:").nth(1).unwrap().split("\r\nMIME").next().unwrap();
        assert_eq!(
            words::decode(subject.as_bytes(), crate::charset::Charset::UTF_8).text.trim(),
            "Hello J\u{f6}rg, news"
        );
        assert!(header.is_ascii() && header.contains("Content-Transfer-Encoding: quoted-printable"), "{header}");
        assert!(header.contains("Content-Type: text/plain; charset=utf-8"), "{header}");
        assert!(body.starts_with("Dear J=C3=B6rg,\r\n"), "{body}");
    }

    #[test]
    fn encoded_parts_and_html() {
        let message = "MIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n{{name}}\r\n--b\r\n\
            Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\nRGVhciB7e25hbWV9fQ==\r\n--b\r\n\
            Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<b>{{na=\r\nme}}</b>\r\n--b\r\n\
            Content-Type: application/x\r\n\r\n{{name}}\r\n--b--\r\n{{name}}\r\n";
        let text = merged(message, &[("name", "<--b & \u{fc}>")]);
        assert!(
            text.contains("\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nDear <--b & =C3=BC>\r\n--b\r\n"),
            "{text}"
        );
        assert!(text.contains("<b>&lt;--b &amp; =C3=BC&gt;</b>\r\n--b\r\n"), "{text}");
        assert_eq!(text.matches("{{name}}").count(), 3, "preamble, epilogue and other types: {text}");
    }

    #[test]
    fn names_in_addresses_add_none() {
        for (field, value, expected) in [
            ("To: {{name}} <{{to}}>", "Ann", "To: Ann <ann@x.example>"),
            ("To: {{name}} <{{to}}>", "Lee, Ann <evil@y.example>", "To: \"Lee, Ann <evil@y.example>\" <ann@x.example>"),
            (
                "To: \"{{name}}\" <{{to}}>",
                "a\" <evil@y.example>, \"",
                "To: \"a\\\" <evil@y.example>, \\\"\" <ann@x.example>",
            ),
        ] {
            let text = merged(&format!("{field}\r\n\r\n"), &[("name", value), ("to", "ann@x.example")]);
            assert_eq!(text, format!("{expected}\r\n\r\n"));
        }
        let hostile = merged("To: <{{to}}>\r\n\r\n", &[("to", "a@x.example>, <evil@y.example")]);
        assert_eq!(hostile, "To: <a@x.exampleevil@y.example>\r\n\r\n", "one address, which no host takes");
        let utf8 = merged("To: {{name}} <a@x.example>\r\n\r\n", &[("name", "J\u{f6}rg, B")]);
        assert!(utf8.is_ascii() && utf8.contains("=?") && utf8.contains("<a@x.example>"), "{utf8}");
    }

    #[test]
    fn a_comment_holds_no_address() {
        let text = merged("From: ({{n}}) s@e.example\r\n\r\n", &[("n", ") <ceo@victim.example>, (")]);
        assert_eq!(text, "From: (\\) <ceo@victim.example>, \\() s@e.example\r\n\r\n");
    }

    #[test]
    fn values_are_bounded_however_often_they_are_used() {
        let message = format!("Content-Type: text/html\r\n\r\n{}\r\n", "{{a}}".repeat(25_000));
        let mut converter = Converter::merging(values(&[("a", &"\"".repeat(4096))]));
        let mut out = Vec::new();
        let result = converter.push(message.as_bytes(), &mut out).and_then(|()| converter.finish(&mut out));
        assert_eq!(result, Err(ConvertError::MergeTooLarge));
        assert!(out.capacity() < 8 * ADDED_BYTES_MAX);
    }

    #[test]
    fn places_without_values_are_named() {
        let unmerged = |message: &str| MergeSurvey::of(message.as_bytes()).unwrap().unmerged;
        assert_eq!(unmerged("List-Unsubscribe: <https://x/{{t}}>\r\n\r\n").as_deref(), Some("List-Unsubscribe"));
        assert_eq!(unmerged("Subject: =?utf-8?Q?{{n}}?=\r\n\r\n").as_deref(), Some("an encoded word"));
        let large = format!("Subject: x\r\n\r\n{}", "x\r\n".repeat(100_000));
        assert_eq!(unmerged(&large).as_deref(), Some("a text part over 256 KiB"));
        assert_eq!(unmerged("Subject: {{n}}\r\n\r\n{{n}}\r\n"), None);
        let amp = "Content-Type: text/x-amp-html\r\n\r\n{{v}}\r\n";
        assert!(merged(amp, &[("v", "<img>")]).ends_with("&lt;img&gt;\r\n"));
    }

    #[test]
    fn no_value_ends_a_part() {
        let message = "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n{{x}}\r\n--b--\r\n";
        let text = merged(message, &[("x", "--b--")]);
        assert!(text.contains("\r\n=2D-b--\r\n--b--\r\n"), "{text}");
    }

    #[test]
    fn a_survey_names_what_is_needed() {
        let message = "Subject: {{a}}\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\n{{b}} {{{{c}} {{-}}\r\n";
        let survey = MergeSurvey::of(message.as_bytes()).unwrap();
        assert_eq!(survey.names.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(survey.foreign_charset.as_deref(), Some("iso-8859-1"));
        assert_eq!(MergeSurvey::of(b"Subject: x\r\n\r\n{{\r\n").unwrap(), MergeSurvey::default());
    }

    proptest! {
        #[test]
        fn without_placeholders_nothing_changes(text in "(a|b|--b|\\{\\{|\\}\\}|\r\n|Content-Type: text/html\r\n|\r\n\r\n|é){0,30}") {
            let whole = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{text}\r\n");
            prop_assert_eq!(merged(&whole, &[]), whole);
        }

        #[test]
        fn readers_see_the_values(value in "[^\\p{Cc}]{0,40}", is_html in any::<bool>()) {
            let kind = if is_html { "html" } else { "plain" };
            let message = format!(
                "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/{kind}; charset=utf-8\r\n\r\n\
                 {{{{v}}}}\r\n--b--\r\n"
            );
            let text = merged(&message, &[("v", &value)]);
            prop_assert_eq!(text.matches("\r\n--b").count(), 2);
            let (header, rest) = text.split_once("\r\n--b\r\n").unwrap().1.split_once("\r\n\r\n").unwrap();
            let body = rest.split("\r\n--b--").next().unwrap();
            let decoded = if header.contains("quoted-printable") { Encoding::QuotedPrintable.decode(body.as_bytes()) } else { body.into() };
            let decoded = String::from_utf8(decoded).unwrap();
            let plain = if is_html {
                decoded.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&")
            } else { decoded };
            prop_assert_eq!(plain, value);
        }
    }
}
