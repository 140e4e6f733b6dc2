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
//! Failure answers: none; any octets are some message. What is nested too deep is a leaf whose text is told as it is; a header field
//! that is too long is told as far as it is kept; [`Visitor::defect`] is told of both.

use crate::charset::{self, Charset};
use crate::field::{self, Line, Place};
pub use crate::header::FIELD_BYTES_MAX;
use crate::header::Header;
use crate::meta;
pub use crate::part::{Defect, Kind, Part, Visitor};
use crate::transfer::{self, Encoding};
use crate::uu::Uu;

/// Most levels of `multipart/*` and `message/rfc822` within each other.
pub const LEVELS_MAX: usize = 30;
/// Messages within each other that are encoded themselves, which no standard allows.
pub const NESTED_MAX: usize = 3;
/// Longest line that is looked at as a whole; longer ones pass in pieces. A delimiter stands in its beginning, whatever white space
/// follows it.
const LINE_BYTES_MAX: usize = 1024;
/// Decoded octets that are gathered before they become text.
pub const CHUNK_BYTES: usize = 16 * 1024;

#[derive(Debug)]
struct Level {
    part: Part,
    /// All that some program takes for its boundary; none: a message.
    boundaries: Vec<Vec<u8>>,
    /// Parts so far.
    count: u32,
}

enum State {
    Header(Box<Header>),
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
    /// Files within a text.
    uu: Option<Uu>,
    sink: Sink,
}

enum Sink {
    /// HTML whose charset no field names: it may do so itself.
    Html,
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
    /// It begins with a delimiter: the rest of it is nothing.
    skips_line: bool,
    state: State,
    levels: Vec<Level>,
    /// Messages around it that were encoded.
    nested: usize,
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
        let state = State::Header(Box::new(Header::new(base, true, false)));
        Walker { line: Vec::new(), in_long_line: false, skips_line: false, state, levels: Vec::new(), nested }
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
        if is_start
            && text.starts_with(b"--")
            && let Some((level, closes)) = self.delimiter(&text[..text.len().min(LINE_BYTES_MAX)])
        {
            self.skips_line = end == End::Open;
            self.end_entity(visitor);
            return self.begin_at(level, closes, visitor);
        }
        if self.skips_line {
            self.skips_line = end == End::Open;
            return;
        }
        match &mut self.state {
            State::Header(header) => {
                // A piece of a line is long enough.
                let line = is_start.then(|| field::line(header.place, text, end != End::Open)).flatten();
                header.place = line.map_or(header.place, Place::behind);
                match line {
                    Some(Line::Empty) => return self.header_done(visitor),
                    Some(Line::Body) => {
                        // It begins without an empty line.
                        header.is_broken = true;
                        self.header_done(visitor);
                        self.in_long_line = false;
                        return self.piece(text, end, visitor);
                    }
                    Some(Line::Field { .. } | Line::Mbox) => header.field_done(visitor),
                    Some(Line::Fold) | None => {}
                }
                header.push(text, end.octets());
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
            level.boundaries.iter().find_map(|boundary| match rest.strip_prefix(boundary.as_slice())? {
                b"" => Some((index, false)),
                b"--" => Some((index, true)),
                _ => None,
            })
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
        let of_message = level.boundaries.is_empty();
        State::Header(Box::new(Header::new(path, of_message, is_of_digest)))
    }

    fn header_done(&mut self, visitor: &mut dyn Visitor) {
        let State::Header(mut header) = std::mem::replace(&mut self.state, State::Filler) else { return };
        header.field_done(visitor);
        header.tell_held(visitor);
        let (mut part, boundaries) = header.part(visitor);
        let is_encoded = matches!(part.encoding, Encoding::Base64 | Encoding::QuotedPrintable);
        let is_too_deep = match part.kind {
            Kind::Message if is_encoded => self.nested >= NESTED_MAX,
            Kind::Multipart | Kind::Message => self.levels.len() >= LEVELS_MAX,
            Kind::Text | Kind::Other => false,
        };
        if is_too_deep {
            part.kind = Kind::Text;
            visitor.defect(&part.path, Defect::Nested);
        }
        visitor.part(&part);
        match part.kind {
            Kind::Multipart => self.levels.push(Level { part: slim(part), boundaries, count: 0 }),
            Kind::Message if !is_encoded => {
                self.levels.push(Level { part: slim(part), boundaries: Vec::new(), count: 0 });
                self.state = self.next_header();
            }
            _ => self.state = State::Leaf(Box::new(Leaf::new(part, self.nested))),
        }
    }
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
            Kind::Message => {
                let mut base = part.path.clone();
                base.push(0);
                Sink::Nested(Box::new(Walker::within(base, nested + 1)))
            }
            Kind::Text if part.is_html() && part.charset() == Charset::UNDECLARED => Sink::Html,
            Kind::Text => Sink::Text(part.charset().decoder(), String::new()),
            Kind::Multipart | Kind::Other => Sink::Counted,
        };
        let uu = (part.kind == Kind::Text).then(Uu::default);
        Leaf { transfer: part.encoding.decoder(), octets: Vec::new(), size: 0, line_end: b"", uu, sink, part }
    }

    fn take(&mut self, octets: &[u8], visitor: &mut dyn Visitor) {
        self.transfer.push(octets, &mut self.octets);
        if self.octets.len() >= CHUNK_BYTES {
            self.flush(visitor);
        }
    }

    /// What has been decoded becomes text: the first time all of the body, or more than its beginning.
    fn flush(&mut self, visitor: &mut dyn Visitor) {
        self.size += self.octets.len() as u64;
        if matches!(self.sink, Sink::Html) {
            self.sink = Sink::Text(self.named_in_html(visitor).decoder(), String::new());
        }
        if let Some(uu) = &mut self.uu {
            uu.push(&self.octets, |name, size| visitor.file(&self.part, name, size));
        }
        match &mut self.sink {
            Sink::Text(decoder, text) => {
                decoder.push(&self.octets, text);
                told(&self.part, text, visitor);
            }
            Sink::Nested(walker) => walker.push(&self.octets, visitor),
            Sink::Html | Sink::Counted => {}
        }
        self.octets.clear();
    }

    /// The charset that the body names, of which the beginning is there.
    fn named_in_html(&mut self, visitor: &mut dyn Visitor) -> Charset {
        let Some(label) = meta::charset(&self.octets) else { return Charset::UNDECLARED };
        visitor.charset(&self.part, &label);
        // Its name could be read, so it is no charset in which it could not.
        let named = Charset::named(label.as_bytes()).filter(|charset| charset.holds_ascii());
        self.part.charset.get_or_insert(label);
        named.unwrap_or(Charset::UNDECLARED)
    }

    fn finish(&mut self, visitor: &mut dyn Visitor) {
        self.transfer.finish(&mut self.octets);
        self.flush(visitor);
        if let Some(uu) = &mut self.uu {
            uu.finish(|name, size| visitor.file(&self.part, name, size));
        }
        match &mut self.sink {
            Sink::Text(decoder, text) => {
                decoder.finish(text);
                told(&self.part, text, visitor);
            }
            Sink::Nested(walker) => walker.finish(visitor),
            Sink::Html | Sink::Counted => {}
        }
    }
}

fn told(part: &Part, text: &mut String, visitor: &mut dyn Visitor) {
    if !text.is_empty() {
        visitor.text(part, text);
        text.clear();
    }
}
