//! The parts of a message, decoded while its octets stream by.
//!
//! A [`Walker`] is given a message in pieces of any size and tells a [`Visitor`] of every header section, every text, decoded, and
//! every part's end, in their order. Promise: linear time; memory bounded by [`HEADER_BYTES_MAX`], [`LEVELS_MAX`] and
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
//! [`Walker::limit`] names the limit; a header section that is too large is told as far as it is kept.

use crate::charset::{self, Charset};
use crate::field;
use crate::params::MimeField;
use crate::transfer::{self, Encoding};

/// Octets of a header section that are kept; the server takes no larger one of a message.
pub const HEADER_BYTES_MAX: usize = 1024 * 1024;
/// Most levels of `multipart/*` and `message/rfc822` within each other.
pub const LEVELS_MAX: usize = 100;
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
    /// The header of a message, not of a part of a multipart.
    pub of_message: bool,
}

impl Part {
    /// What its text is decoded as.
    pub fn charset(&self) -> Charset {
        let named = self.charset.as_ref().and_then(|label| Charset::named(label.as_bytes()));
        named.unwrap_or(Charset::UNDECLARED)
    }

    /// Names that it has as a file, each once: programs differ in which they show.
    pub fn file_names(&self) -> Vec<String> {
        let of = |field: Option<&MimeField>, name: &str| -> Vec<String> {
            let all = field.into_iter().flat_map(|field| &field.params);
            all.filter(|param| param.name == name).map(|param| param.text(Charset::UNDECLARED)).collect()
        };
        let mut names = of(self.disposition.as_ref(), "filename");
        names.extend(of(Some(&self.content_type), "name"));
        let mut seen = Vec::new();
        names.retain(|name| {
            !name.is_empty() && !seen.contains(name) && {
                seen.push(name.clone());
                true
            }
        });
        names
    }

    /// Shown as a file: it says so or has a name, and holds no other parts.
    pub fn is_attachment(&self) -> bool {
        let is_said = self.disposition.as_ref().is_some_and(|field| field.value == "attachment");
        self.kind != Kind::Multipart && (is_said || !self.file_names().is_empty() || self.kind == Kind::Other)
    }
}

/// Who is told.
pub trait Visitor {
    /// A header field of a part: its name, its value with its folds, and the charset of octets over 127 that are not UTF-8.
    fn field(&mut self, _part: &Part, _name: &[u8], _value: &[u8], _fallback: Charset) {}

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
    Header(Vec<u8>),
    /// Preamble or epilogue.
    Filler,
    Leaf(Box<Leaf>),
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
    /// Where it is in the message that it is within.
    base: Vec<u32>,
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
        let state = State::Header(Vec::new());
        Walker { line: Vec::new(), in_long_line: false, state, levels: Vec::new(), base, nested, limit: None }
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
            State::Header(section) => {
                if is_start && text.is_empty() && end != End::Open {
                    return self.header_done(visitor);
                }
                if is_start && !field::may_follow(section, text) {
                    // The body begins without an empty line.
                    self.header_done(visitor);
                    self.in_long_line = !is_start;
                    return self.piece(text, end, visitor);
                }
                if section.len() + text.len() <= HEADER_BYTES_MAX {
                    section.extend_from_slice(text);
                    section.extend_from_slice(end.octets());
                } else {
                    self.limit = self.limit.or(Some("header section too large"));
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
            self.state = State::Header(Vec::new());
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

    /// The path of the part that begins, and whether it is a message's header.
    fn next_place(&mut self) -> (Vec<u32>, bool, bool) {
        let Some(level) = self.levels.last_mut() else { return (self.base.clone(), true, false) };
        let mut path = level.part.path.clone();
        path.push(level.count);
        level.count += 1;
        (path, level.boundary.is_none(), level.part.content_type.value == "multipart/digest")
    }

    fn header_done(&mut self, visitor: &mut dyn Visitor) {
        let State::Header(section) = std::mem::replace(&mut self.state, State::Filler) else { return };
        let (path, of_message, is_of_digest) = self.next_place();
        let mut part = read(&section, path, of_message, is_of_digest);
        let boundary = part.content_type.param("boundary").map(|param| param.octets.trim_ascii_end().to_vec());
        let is_multipart = part.content_type.main() == "multipart";
        let boundary = boundary.filter(|boundary| is_multipart && (1..LINE_BYTES_MAX).contains(&boundary.len()));
        let is_encoded = matches!(part.encoding, Encoding::Base64 | Encoding::QuotedPrintable);
        if self.levels.len() >= LEVELS_MAX && (boundary.is_some() || part.kind == Kind::Message) {
            self.limit = self.limit.or(Some("parts nested too deep"));
            part.kind = Kind::Text;
        }
        let fallback = match part.charset() {
            Charset::UNDECLARED => Charset::WINDOWS_1252,
            charset => charset,
        };
        for (name, value) in field::all(&section) {
            visitor.field(&part, name, value, fallback);
        }
        visitor.part(&part);
        match part.kind {
            Kind::Multipart => self.levels.push(Level { part, boundary, count: 0 }),
            Kind::Message if !is_encoded => {
                self.levels.push(Level { part, boundary: None, count: 0 });
                self.state = State::Header(Vec::new());
            }
            _ => self.state = State::Leaf(Box::new(Leaf::new(part, self.nested))),
        }
    }
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

/// A part as its header section has it; the first field of each kind counts.
fn read(section: &[u8], path: Vec<u32>, of_message: bool, is_of_digest: bool) -> Part {
    let (mut content_type, mut disposition, mut encoding) = (None, None, None);
    for (name, value) in field::all(section) {
        if name.eq_ignore_ascii_case(b"Content-Type") {
            content_type.get_or_insert_with(|| MimeField::parse(value));
        } else if name.eq_ignore_ascii_case(b"Content-Disposition") {
            disposition.get_or_insert_with(|| MimeField::parse(value));
        } else if name.eq_ignore_ascii_case(b"Content-Transfer-Encoding") {
            encoding.get_or_insert_with(|| Encoding::named(MimeField::parse(value).value.as_bytes()));
        }
    }
    // RFC 2046 5.1.5: the parts of a digest are messages unless they say otherwise.
    let default = if is_of_digest { "message/rfc822" } else { "text/plain" };
    let content_type = content_type.unwrap_or_else(|| MimeField { value: default.to_owned(), params: Vec::new() });
    let kind = match (content_type.main(), content_type.sub()) {
        // One without a boundary is shown as it is.
        ("multipart", _) if content_type.param("boundary").is_none_or(|param| param.octets.trim_ascii().is_empty()) => {
            Kind::Text
        }
        ("multipart", _) => Kind::Multipart,
        ("message", "rfc822" | "global" | "news") => Kind::Message,
        ("text" | "message" | "", _) => Kind::Text,
        _ => Kind::Other,
    };
    let charset =
        content_type.param("charset").map(|param| String::from_utf8_lossy(&param.octets).to_ascii_lowercase());
    let encoding = encoding.unwrap_or_default();
    Part { path, kind, content_type, disposition, encoding, charset, of_message }
}
