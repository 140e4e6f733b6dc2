//! Subject and author of a message, in readable form.
//!
//! Promise: works on any octets, in linear time and bounded memory. The results are one line each, without control
//! characters, of at most [`SHOWN_CHARS_MAX`] characters. Encoded words (RFC 2047) are decoded if their charset is
//! known, and otherwise stay unchanged.

use stentor_mime::charset::Charset;
use stentor_mime::words;

use crate::fields::{Piece, Splitter};

/// Octets of a message that are searched.
pub const LOOKED_BYTES_MAX: usize = 16 * 1024;
/// Octets of a subject or an author that are examined.
const VALUE_BYTES_MAX: usize = 2_000;
/// Maximum characters shown of either.
pub const SHOWN_CHARS_MAX: usize = 200;

/// Subject and author; both are empty if the message has no such field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heading {
    pub subject: String,
    /// The name of the first `From`, or its address if it has none.
    pub author: String,
}

impl Heading {
    /// Extracts them from the beginning of a message.
    pub fn of(bytes: &[u8]) -> Heading {
        let (mut splitter, mut gathered) = (Splitter::default(), HeadingFields::default());
        splitter.push(&bytes[..bytes.len().min(LOOKED_BYTES_MAX)], &mut |piece| gathered.take(piece));
        gathered.heading()
    }
}

/// Collects the fields while a message streams by.
#[derive(Debug, Default)]
pub(crate) struct HeadingFields {
    subject: Vec<u8>,
    from: Vec<u8>,
    /// Which of them the current field is.
    field: Field,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Field {
    Subject,
    From,
    #[default]
    Other,
}

impl HeadingFields {
    pub(crate) fn take(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Name(name) => {
                self.field = if name.eq_ignore_ascii_case(b"subject:") && self.subject.is_empty() {
                    Field::Subject
                } else if name.eq_ignore_ascii_case(b"from:") && self.from.is_empty() {
                    Field::From
                } else {
                    Field::Other
                };
            }
            Piece::Value(value) => {
                let kept = match self.field {
                    Field::Subject => &mut self.subject,
                    Field::From => &mut self.from,
                    Field::Other => return,
                };
                let left = VALUE_BYTES_MAX - kept.len().min(VALUE_BYTES_MAX);
                kept.extend_from_slice(&value[..value.len().min(left)]);
            }
            Piece::BodyBegins | Piece::Body(_) => {}
        }
    }

    pub(crate) fn heading(&self) -> Heading {
        let from = readable(&self.from);
        Heading { subject: readable(&self.subject), author: name_of(&from) }
    }
}

/// Returns the name of the first mailbox if it has one, also as a comment behind its address; else its address, else
/// the whole text.
fn name_of(from: &str) -> String {
    let (mut name, mut comment, mut depth, mut is_quoted) = (String::new(), String::new(), 0_usize, false);
    let mut chars = from.chars();
    let mut has_brackets = false;
    while let Some(c) = chars.next() {
        let text = if depth > 0 { &mut comment } else { &mut name };
        match c {
            '\\' if is_quoted || depth > 0 => text.extend(chars.next()),
            '"' if depth == 0 => is_quoted = !is_quoted,
            _ if is_quoted => text.push(c),
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 => text.push(c),
            '<' => {
                has_brackets = true;
                break;
            }
            ',' | ';' => break,
            // The name of a group.
            ':' => text.clear(),
            _ => text.push(c),
        }
    }
    let inside = if has_brackets { chars.as_str().split('>').next().unwrap_or_default().trim() } else { "" };
    let candidates = if has_brackets { [name.trim(), inside] } else { [comment.trim(), name.trim()] };
    candidates.into_iter().find(|text| !text.is_empty()).unwrap_or(from).to_owned()
}

/// Returns a field's value on one line, with its encoded words decoded.
fn readable(value: &[u8]) -> String {
    let is_space = |b: &u8| b.is_ascii_whitespace() || b.is_ascii_control();
    let tokens: Vec<&[u8]> = value.split(is_space).filter(|token| !token.is_empty()).collect();
    let text = words::decode(&tokens.join(&b' '), Charset::UNDECLARED).text;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_become_text() {
        for (value, wanted) in [
            ("Re: a\r\n  b", "Re: a b"),
            ("=?utf-8?Q?Gr=C3=BC=C3=9Fe_an?= =?UTF-8?b?YWxsZQ==?= hier", "Grüße analle hier"),
            ("=?iso-8859-1*de?q?Stra=DFe?=", "Straße"),
            ("=?koi8-r?q?=C0?=", "ю"),
            ("=?no-such?q?=C0?=", "=?no-such?q?=C0?="),
            ("=?utf-8?q?=ZZ?= =?utf-8?x?a?= =?a?=", "=?utf-8?q?=ZZ?= =?utf-8?x?a?= =?a?="),
            ("=?utf-8?b?/+8=?=", "\u{fffd}"),
            ("=?utf-8?q?a=0D=0AX:_y?=", "a  X: y"),
        ] {
            assert_eq!(readable(value.as_bytes()), wanted, "{value}");
        }
    }

    #[test]
    fn authors_have_names_or_addresses() {
        for (from, wanted) in [
            ("\"Ann B.\" <ann@x>", "Ann B."),
            ("<ann@x>", "ann@x"),
            ("ann@x", "ann@x"),
            ("<", "<"),
            ("\"\" <a@b>, c@d", "a@b"),
            ("\"Ex, \\\"Ann\\\"\" <a@b>", "Ex, \"Ann\""),
            ("\"<ceo@bank>\" <a@b>", "<ceo@bank>"),
            ("a@b (Ann (B))", "Ann B"),
            ("All: Ann <a@b>, c@d;", "Ann"),
            ("a@b, c@d", "a@b"),
        ] {
            assert_eq!(name_of(from), wanted, "{from}");
        }
    }

    #[test]
    fn the_first_of_each_field_is_taken_and_no_line_of_the_body() {
        let wire = b"Received: x\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n und mehr\r\nFROM: Ann <ann@x>\r\nsubject: b\r\n\r\nSubject: c\r\n";
        let heading = Heading::of(wire);
        assert_eq!((heading.subject.as_str(), heading.author.as_str()), ("Grüße und mehr", "Ann"));
        assert_eq!(Heading::of(b"From: a@b\r\n\r\nSubject: c"), Heading { author: "a@b".into(), ..Heading::default() });
        // Cut in the middle, or not a message at all.
        assert_eq!(Heading::of(b"Subject: half a l").subject, "half a l");
        assert_eq!(Heading::of(b"\0\xff"), Heading::default());
        let long = [&b"Subject: "[..], &[b'x'; 5_000]].concat();
        assert_eq!(Heading::of(&long).subject.len(), SHOWN_CHARS_MAX);
    }
}
