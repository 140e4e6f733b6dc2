//! The parts of a message, decoded while its octets stream by.
//!
//! A [`Walker`] is given a message in pieces of any size and tells a [`Visitor`] of every header section, every text, decoded, and
//! every part's end, in their order. Promise: linear time; memory bounded by [`FIELD_BYTES_MAX`], [`LEVELS_MAX`] and
//! [`CHUNK_BYTES`], whatever the message; what is told does not depend on where the pieces are cut, except the cuts between pieces
//! of one text. Lines may end with LF alone.
//!
//! ```text
//! Header --multipart--> Filler (preamble) --delimiter--> Header ... --close--> Filler (epilogue)
//!    |---message------> Header
//!    |---message, base64 or quoted-printable--> Leaf: a walker of its own, at most NESTED_MAX of them
//!    '---else---------> Leaf
//! ```
//!
//! Failure answers: none; any octets are some message. What is nested too deep is a leaf whose text is told as it is, and
//! [`Walker::limit`] names the limit; a header field that is too long is told as far as it is kept.

use crate::charset::{self, Charset};
use crate::field;
use crate::params::MimeField;
use crate::transfer::{self, Encoding};

/// Octets of a header field that are looked at.
pub const FIELD_BYTES_MAX: usize = 32 * 1024;
/// Octets of fields that wait until the charset of those among them that are not UTF-8 is known.
const HELD_BYTES_MAX: usize = 16 * 1024;
/// Octets of a MIME field that are looked at.
const MIME_BYTES_MAX: usize = 8 * 1024;
/// Longest boundary; RFC 2046 5.1.1 says 70.
const BOUNDARY_BYTES_MAX: usize = 250;
/// Most levels of `multipart/*` and `message/rfc822` within each other.
pub const LEVELS_MAX: usize = 30;
/// Names of a part as a file, and characters of each.
const NAMES_MAX: usize = 4;
const NAME_CHARS_MAX: usize = 255;
/// Messages within each other that are encoded themselves, which no standard allows.
pub const NESTED_MAX: usize = 3;
/// Longest line that is looked at as a whole; longer ones cannot be delimiters (RFC 2046 5.1.1) and pass in pieces.
const LINE_BYTES_MAX: usize = 1024;
/// Decoded octets that are gathered before they become text.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Multipart,
    /// `message/rfc822` and its kin.
    Message,
    /// `text/*`, what has no type, and structures that cannot be read.
    Text,
    Other,
}

/// A part as its header section describes it.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its place: `[]` is the message, `[1, 0]` the first part of its second part.
    pub path: Vec<u32>,
    pub kind: Kind,
    /// Without a type: `text/plain`.
    pub content_type: MimeField,
    pub disposition: Option<MimeField>,
    pub encoding: Encoding,
    /// As it is named, in lower case.
    pub charset: Option<String>,
    /// Names that it has as a file, each once: programs differ in which they show.
    pub names: Vec<String>,
    /// The header of a message, not of a part of a multipart.
    pub of_message: bool,
}

impl Part {
    /// What its text is decoded as.
    pub fn charset(&self) -> Charset {
        let named = self.charset.as_ref().and_then(|label| Charset::named(label.as_bytes()));
        named.unwrap_or(Charset::UNDECLARED)
    }

    /// Shown as a file: it says so or has a name, and holds no other parts.
    pub fn is_attachment(&self) -> bool {
        let is_said = self.disposition.as_ref().is_some_and(|field| field.value == "attachment");
        self.kind != Kind::Multipart && (is_said || !self.names.is_empty() || self.kind == Kind::Other)
    }
}

/// Who is told.
pub trait Visitor {
    /// A header field of the part at this path, which comes after its fields: its name, its value with its folds, and the charset of
    /// octets over 127 that are not UTF-8.
    fn field(&mut self, _path: &[u32], _name: &[u8], _value: &[u8], _fallback: Charset) {}

    /// A header section has been told.
    fn part(&mut self, _part: &Part) {}

    /// More text of a part, decoded.
    fn text(&mut self, _part: &Part, _text: &str) {}

    /// A part is over. Its body's octets, decoded, or of a multipart or a message 0.
    fn end(&mut self, _part: &Part, _size: u64) {}
}

#[derive(Debug)]
struct Level {
    part: Part,
    /// `None`: a message.
    boundary: Option<Vec<u8>>,
    /// Parts so far.
    count: u32,
}

enum State {
    Header(Box<Header>),
    /// Preamble or epilogue.
    Filler,
    Leaf(Box<Leaf>),
}

/// A header section while it comes; the first MIME field of each kind counts.
#[derive(Default)]
struct Header {
    path: Vec<u32>,
    of_message: bool,
    /// Of a part of `multipart/digest`.
    is_of_digest: bool,
    is_begun: bool,
    /// The field so far, with its folds.
    field: Vec<u8>,
    /// Fields that wait for a charset.
    held: Vec<u8>,
    content_type: Option<MimeField>,
    disposition: Option<MimeField>,
    encoding: Option<Encoding>,
}

/// A part without parts, while its body comes.
struct Leaf {
    part: Part,
    transfer: transfer::Decoder,
    /// Decoded octets that have not become text yet.
    octets: Vec<u8>,
    size: u64,
    /// The line end before, which is a delimiter's if one follows.
    line_end: &'static [u8],
    sink: Sink,
}

enum Sink {
    Text(charset::Decoder, String),
    /// A message that was encoded.
    Nested(Box<Walker>),
    Counted,
}

/// How a piece of a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// More of the line follows.
    Open,
    Lf,
    Crlf,
    /// With the message.
    Eof,
}

impl End {
    fn octets(self) -> &'static [u8] {
        match self {
            End::Open | End::Eof => b"",
            End::Lf => b"\n",
            End::Crlf => b"\r\n",
        }
    }
}

/// One message. `push` its octets, then `finish`.
pub struct Walker {
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
    /// The line's beginning has been passed on already.
    in_long_line: bool,
    state: State,
    levels: Vec<Level>,
    /// Messages around it that were encoded.
    nested: usize,
    limit: Option<&'static str>,
}

impl Default for Walker {
    fn default() -> Self {
        Self::new()
    }
}

impl Walker {
    pub fn new() -> Walker {
        Walker::within(Vec::new(), 0)
    }

    fn within(base: Vec<u32>, nested: usize) -> Walker {
        let state = State::Header(Box::new(Header { path: base, of_message: true, ..Header::default() }));
        Walker { line: Vec::new(), in_long_line: false, state, levels: Vec::new(), nested, limit: None }
    }

    /// The limit that was hit, if one was.
    pub fn limit(&self) -> Option<&'static str> {
        match &self.state {
            State::Leaf(leaf) => match &leaf.sink {
                Sink::Nested(walker) => self.limit.or(walker.limit()),
                _ => self.limit,
            },
            _ => self.limit,
        }
    }

    /// Takes the next octets.
    pub fn push(&mut self, bytes: &[u8], visitor: &mut dyn Visitor) {
        let mut rest = bytes;
        if !self.line.is_empty() {
            let Some(at) = memchr::memchr(b'\n', rest) else { return self.keep(rest, visitor) };
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&rest[..=at]);
            self.whole(&line, visitor);
            line.clear();
            self.line = line;
            rest = &rest[at + 1..];
        }
        while let Some(at) = memchr::memchr(b'\n', rest) {
            self.whole(&rest[..=at], visitor);
            rest = &rest[at + 1..];
        }
        self.keep(rest, visitor);
    }

    /// The message is complete.
    pub fn finish(&mut self, visitor: &mut dyn Visitor) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.piece(&line, End::Eof, visitor);
        }
        if let State::Leaf(leaf) = &mut self.state {
            // No delimiter follows: the last line end is the body's.
            let line_end = std::mem::take(&mut leaf.line_end);
            leaf.take(line_end, visitor);
        }
        self.end_entity(visitor);
        self.close_to(0, visitor);
    }

    /// A line with its end.
    fn whole(&mut self, line: &[u8], visitor: &mut dyn Visitor) {
        match line.strip_suffix(b"\r\n") {
            Some(text) => self.piece(text, End::Crlf, visitor),
            None => self.piece(&line[..line.len() - 1], End::Lf, visitor),
        }
    }

    /// Keeps the beginning of a line; if it is long, passes it on, all but a CR that may be half a line end.
    fn keep(&mut self, bytes: &[u8], visitor: &mut dyn Visitor) {
        self.line.extend_from_slice(bytes);
        if self.line.len() <= LINE_BYTES_MAX {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        let ends_with_cr = line.pop_if(|last| *last == b'\r').is_some();
        self.piece(&line, End::Open, visitor);
        line.clear();
        if ends_with_cr {
            line.push(b'\r');
        }
        self.line = line;
    }

    /// A line or a piece of a long one, without its end.
    fn piece(&mut self, text: &[u8], end: End, visitor: &mut dyn Visitor) {
        let is_start = !self.in_long_line;
        self.in_long_line = end == End::Open;
        let is_line = is_start && end != End::Open && text.len() <= LINE_BYTES_MAX;
        if is_line
            && text.starts_with(b"--")
            && let Some((level, closes)) = self.delimiter(text)
        {
            self.end_entity(visitor);
            return self.begin_at(level, closes, visitor);
        }
        match &mut self.state {
            State::Header(header) => {
                if is_start && text.is_empty() && end != End::Open {
                    return self.header_done(visitor);
                }
                if is_start && !field::may_follow(header.is_begun, text) {
                    // The body begins without an empty line.
                    self.header_done(visitor);
                    self.in_long_line = false;
                    return self.piece(text, end, visitor);
                }
                if is_start && !matches!(text.first(), Some(b' ' | b'\t')) {
                    header.field_done(visitor);
                }
                header.is_begun = true;
                if header.field.len() + text.len() <= FIELD_BYTES_MAX {
                    header.field.extend_from_slice(text);
                    header.field.extend_from_slice(end.octets());
                } else {
                    self.limit = self.limit.or(Some("header field too long"));
                }
            }
            State::Filler => {}
            State::Leaf(leaf) => {
                let line_end = std::mem::replace(&mut leaf.line_end, end.octets());
                leaf.take(line_end, visitor);
                leaf.take(text, visitor);
            }
        }
    }

    /// The level whose delimiter `text` is, innermost first, and whether it closes that level (RFC 2046 5.1.1).
    fn delimiter(&self, text: &[u8]) -> Option<(usize, bool)> {
        let rest = text.strip_prefix(b"--")?.trim_ascii_end();
        self.levels.iter().enumerate().rev().find_map(|(index, level)| {
            match rest.strip_prefix(level.boundary.as_ref()?.as_slice())? {
                b"" => Some((index, false)),
                b"--" => Some((index, true)),
                _ => None,
            }
        })
    }

    /// Behind a delimiter of `level`.
    fn begin_at(&mut self, level: usize, closes: bool, visitor: &mut dyn Visitor) {
        if closes {
            self.close_to(level, visitor);
            self.state = State::Filler;
        } else {
            self.close_to(level + 1, visitor);
            self.state = self.next_header();
        }
    }

    /// Ends all levels but so many.
    fn close_to(&mut self, left: usize, visitor: &mut dyn Visitor) {
        while self.levels.len() > left {
            if let Some(level) = self.levels.pop() {
                visitor.end(&level.part, 0);
            }
        }
    }

    /// What was being read ends here.
    fn end_entity(&mut self, visitor: &mut dyn Visitor) {
        if matches!(self.state, State::Header(_)) {
            self.header_done(visitor);
        }
        if let State::Leaf(mut leaf) = std::mem::replace(&mut self.state, State::Filler) {
            leaf.finish(visitor);
            if let Sink::Nested(walker) = &leaf.sink {
                self.limit = self.limit.or(walker.limit);
            }
            visitor.end(&leaf.part, leaf.size);
        }
    }

    /// The header of the next part of the innermost level.
    fn next_header(&mut self) -> State {
        let Some(level) = self.levels.last_mut() else { return State::Filler };
        let mut path = level.part.path.clone();
        path.push(level.count);
        level.count += 1;
        let is_of_digest = level.part.content_type.value == "multipart/digest";
        let of_message = level.boundary.is_none();
        State::Header(Box::new(Header { path, of_message, is_of_digest, ..Header::default() }))
    }

    fn header_done(&mut self, visitor: &mut dyn Visitor) {
        let State::Header(mut header) = std::mem::replace(&mut self.state, State::Filler) else { return };
        header.field_done(visitor);
        header.tell_held(visitor);
        let mut part = header.part();
        let boundary = part.content_type.param("boundary").map(|param| param.octets.trim_ascii_end().to_vec());
        if self.levels.len() >= LEVELS_MAX && matches!(part.kind, Kind::Multipart | Kind::Message) {
            self.limit = self.limit.or(Some("parts nested too deep"));
            part.kind = Kind::Text;
        }
        visitor.part(&part);
        let is_encoded = matches!(part.encoding, Encoding::Base64 | Encoding::QuotedPrintable);
        match part.kind {
            Kind::Multipart => self.levels.push(Level { part: slim(part), boundary, count: 0 }),
            Kind::Message if !is_encoded => {
                self.levels.push(Level { part: slim(part), boundary: None, count: 0 });
                self.state = self.next_header();
            }
            _ => self.state = State::Leaf(Box::new(Leaf::new(part, self.nested))),
        }
    }
}

impl Header {
    /// A field is complete.
    fn field_done(&mut self, visitor: &mut dyn Visitor) {
        let field = std::mem::take(&mut self.field);
        let Some((name, value)) = field::split(&field) else { return };
        let mime = &value[..value.len().min(MIME_BYTES_MAX)];
        if name.eq_ignore_ascii_case(b"Content-Type") {
            self.content_type.get_or_insert_with(|| MimeField::parse(mime));
        } else if name.eq_ignore_ascii_case(b"Content-Disposition") {
            self.disposition.get_or_insert_with(|| MimeField::parse(mime));
        } else if name.eq_ignore_ascii_case(b"Content-Transfer-Encoding") {
            self.encoding.get_or_insert_with(|| Encoding::named(MimeField::parse(mime).value.as_bytes()));
        }
        let waits = self.content_type.is_none() && std::str::from_utf8(value).is_err();
        if self.held.is_empty() && !waits {
            return visitor.field(&self.path, name, value, self.fallback());
        }
        self.held.extend_from_slice(&field);
        if !field.ends_with(b"\n") {
            self.held.push(b'\n');
        }
        if self.content_type.is_some() || self.held.len() > HELD_BYTES_MAX {
            self.tell_held(visitor);
        }
    }

    fn tell_held(&mut self, visitor: &mut dyn Visitor) {
        let (held, fallback) = (std::mem::take(&mut self.held), self.fallback());
        for (name, value) in field::all(&held) {
            visitor.field(&self.path, name, value, fallback);
        }
    }

    /// The charset of octets that are not UTF-8.
    fn fallback(&self) -> Charset {
        let param = self.content_type.as_ref().and_then(|field| field.param("charset"));
        match param.and_then(|param| Charset::named(&param.octets)) {
            None | Some(Charset::UNDECLARED) => Charset::WINDOWS_1252,
            Some(charset) => charset,
        }
    }

    /// What it says of its part.
    fn part(self) -> Part {
        // RFC 2046 5.1.5: the parts of a digest are messages unless they say otherwise.
        let default = if self.is_of_digest { "message/rfc822" } else { "text/plain" };
        let content_type =
            self.content_type.unwrap_or_else(|| MimeField { value: default.to_owned(), params: Vec::new() });
        let is_boundary = |octets: &[u8]| (1..=BOUNDARY_BYTES_MAX).contains(&octets.trim_ascii().len());
        let has_boundary = content_type.param("boundary").is_some_and(|param| is_boundary(&param.octets));
        let kind = match (content_type.main(), content_type.sub()) {
            ("multipart", _) if has_boundary => Kind::Multipart,
            ("message", "rfc822" | "global" | "news") => Kind::Message,
            // A multipart without a boundary is shown as it is.
            ("text" | "message" | "multipart" | "", _) => Kind::Text,
            _ => Kind::Other,
        };
        let label = |octets: &[u8]| String::from_utf8_lossy(octets).to_ascii_lowercase();
        let charset = content_type.param("charset").map(|param| label(&param.octets));
        let names = names(&content_type, self.disposition.as_ref());
        let (encoding, of_message) = (self.encoding.unwrap_or_default(), self.of_message);
        Part {
            path: self.path,
            kind,
            content_type,
            disposition: self.disposition,
            encoding,
            charset,
            names,
            of_message,
        }
    }
}

fn names(content_type: &MimeField, disposition: Option<&MimeField>) -> Vec<String> {
    let params = |field: Option<&'_ MimeField>, name: &str| -> Vec<String> {
        let all = field.into_iter().flat_map(|field| &field.params).filter(|param| param.name == name);
        all.take(NAMES_MAX)
            .map(|param| param.text(Charset::UNDECLARED).chars().take(NAME_CHARS_MAX).collect())
            .collect()
    };
    let mut names = Vec::new();
    for name in params(disposition, "filename").into_iter().chain(params(Some(content_type), "name")) {
        if !name.is_empty() && names.len() < NAMES_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What is kept of a part while those within it come.
fn slim(mut part: Part) -> Part {
    part.content_type.params = Vec::new();
    if let Some(disposition) = &mut part.disposition {
        disposition.params = Vec::new();
    }
    part.charset = None;
    part
}

impl Leaf {
    fn new(part: Part, nested: usize) -> Leaf {
        let sink = match part.kind {
            Kind::Message if nested < NESTED_MAX => {
                let mut base = part.path.clone();
                base.push(0);
                Sink::Nested(Box::new(Walker::within(base, nested + 1)))
            }
            Kind::Text | Kind::Message => Sink::Text(part.charset().decoder(), String::new()),
            Kind::Multipart | Kind::Other => Sink::Counted,
        };
        Leaf { transfer: part.encoding.decoder(), octets: Vec::new(), size: 0, line_end: b"", sink, part }
    }

    fn take(&mut self, octets: &[u8], visitor: &mut dyn Visitor) {
        self.transfer.push(octets, &mut self.octets);
        if self.octets.len() >= CHUNK_BYTES {
            self.flush(visitor);
        }
    }

    /// What has been decoded becomes text.
    fn flush(&mut self, visitor: &mut dyn Visitor) {
        self.size += self.octets.len() as u64;
        match &mut self.sink {
            Sink::Text(decoder, text) => {
                decoder.push(&self.octets, text);
                told(&self.part, text, visitor);
            }
            Sink::Nested(walker) => walker.push(&self.octets, visitor),
            Sink::Counted => {}
        }
        self.octets.clear();
    }

    fn finish(&mut self, visitor: &mut dyn Visitor) {
        self.transfer.finish(&mut self.octets);
        self.flush(visitor);
        match &mut self.sink {
            Sink::Text(decoder, text) => {
                decoder.finish(text);
                told(&self.part, text, visitor);
            }
            Sink::Nested(walker) => walker.finish(visitor),
            Sink::Counted => {}
        }
    }
}

fn told(part: &Part, text: &mut String, visitor: &mut dyn Visitor) {
    if !text.is_empty() {
        visitor.text(part, text);
        text.clear();
    }
}
