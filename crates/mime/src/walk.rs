//! Walks through the parts of a message, decoding it while it streams by.
//!
//! A [`Walker`] receives a message in pieces of any size and reports every header section, every decoded text and
//! every part's end to a [`Visitor`], in order. Promise: linear time; memory bounded by [`FIELD_BYTES_MAX`],
//! [`LEVELS_MAX`] and [`CHUNK_BYTES`] for any message; apart from splits within a text, the reports do not depend on
//! how the input is split. Lines may end with LF alone.
//!
//! ```text
//! Header --multipart--> Filler (preamble) --delimiter--> Header ... --close--> Filler (epilogue)
//!    |---message------> Header
//!    |---message, base64 or quoted-printable--> Leaf: a walker of its own, at most NESTED_MAX of them
//!    '---else---------> Leaf
//! ```
//!
//! Failure: none, since any octets form a message. A part nested too deep is a leaf whose text is reported undecoded;
//! a header field that is too long is truncated; [`Visitor::defect`] is called for both.

use std::sync::LazyLock;

use crate::charset::{self, Charset};
use crate::field::{self, Line, LineContext};
pub use crate::header::FIELD_BYTES_MAX;
use crate::header::Header;
use crate::lines::{self, LineFinder};
use crate::meta;
pub use crate::part::{Defect, Kind, Part, Visitor};
use crate::transfer::{self, Encoding};
use crate::uu::Uu;

/// Maximum nesting of `multipart/*` and `message/rfc822`.
pub const LEVELS_MAX: usize = 30;
/// Maximum nesting of messages that are themselves encoded, which no standard allows.
pub const NESTED_MAX: usize = 3;
/// Maximum length of lines that are examined as a whole; longer ones are processed in pieces. A delimiter is at the
/// start of its line, whatever white space follows it.
const LINE_BYTES_MAX: usize = 1024;
/// Maximum parts and messages in one message that are examined, plus one for each of the following number of octets.
/// A digest of hundreds of short posts stays below it, and each part costs as much as hundreds of octets of text.
const PARTS_MAX: u64 = 200;
const PART_BYTES: u64 = 192;
/// Maximum header fields, plus one for each [`FIELD_BYTES`] octets and [`SECTION_FIELDS`] for each section. An encoded
/// word counts as 1½ fields, a parameter as 2, a fold as ½, a field that is not UTF-8 as 2. Real headers stay below: a
/// `To` with one address a line may have any number of lines of 16 octets, or of 64 with encoded names.
const FIELDS_MAX: u64 = 1_200;
const FIELD_BYTES: u64 = 32;
/// What each header section of a part or message adds: digests of short posts and multiparts of tiny images have a
/// field for each 20 octets, and 6 would be too few for images with names in encoded words and all dates. Sections are
/// limited, too, so this is 1⅓ fields more for each 32 octets at most, for those alone who have all parts: in 64 KiB of
/// parts and fields up to both limits, a walk costs two fifths more than it would with nothing added.
const SECTION_FIELDS: u64 = 8;
/// What a field and a fold are counted as.
const FIELD_HALVES: u64 = 2;
const FOLD_HALVES: u64 = 1;
/// A line that may be a delimiter.
static DELIMITER: LazyLock<LineFinder> = LazyLock::new(|| LineFinder::new(b"\n--"));
/// Decoded octets that are collected before conversion to text.
pub const CHUNK_BYTES: usize = 16 * 1024;

#[derive(Debug)]
struct Level {
    part: Part,
    /// Whether it is a message, which has one part and no boundary.
    is_message: bool,
    /// Number of parts so far.
    count: u32,
}

enum State {
    Header(Box<Header>),
    /// Preamble or epilogue.
    Filler,
    Leaf(Box<Leaf>),
}

/// A part without parts, while its body is read.
struct Leaf {
    part: Part,
    transfer: transfer::Decoder,
    /// Decoded octets that are not converted yet.
    octets: Vec<u8>,
    size: u64,
    /// The preceding line end, which belongs to a delimiter if one follows.
    line_end: &'static [u8],
    /// Finder of files in a text.
    uu: Option<Uu>,
    sink: Sink,
}

enum Sink {
    /// HTML without a charset in the header: it may declare it itself.
    Html,
    Text(charset::Decoder, String),
    /// A message that was encoded.
    Nested(Box<Walker>),
    Counted,
}

/// End of a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// More of the line follows.
    Open,
    Lf,
    Crlf,
    /// The message ends.
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

/// Walks through one message: call `push` with its octets, then `finish`.
pub struct Walker {
    /// Start of an incomplete line.
    line: Vec<u8>,
    /// Whether the line's start has been processed already.
    in_long_line: bool,
    /// Whether the line begins with a delimiter, so that its rest is ignored.
    skips_line: bool,
    state: State,
    levels: Vec<Level>,
    delimiters: Delimiters,
    counts: WalkCounts,
    /// Number of encoded messages around it.
    nested: usize,
}

impl Default for Walker {
    fn default() -> Self {
        Self::new()
    }
}

impl Walker {
    pub fn new() -> Walker {
        Walker::within(Vec::new(), 0, WalkCounts::default())
    }

    fn within(base: Vec<u32>, nested: usize, counts: WalkCounts) -> Walker {
        let state = State::Header(Box::new(Header::new(base, true, false)));
        Walker {
            line: Vec::new(),
            in_long_line: false,
            skips_line: false,
            state,
            levels: Vec::new(),
            delimiters: Delimiters::default(),
            counts,
            nested,
        }
    }

    /// Whether the limits of parts, or of header fields and what these have, were exceeded: the excess is reported as
    /// text of the last part, or not at all.
    pub fn has_too_many_parts(&self) -> bool {
        let leaf = match &self.state {
            State::Leaf(leaf) => leaf.looked(),
            _ => None,
        };
        self.counts.has_too_many || leaf.is_some_and(|nested| nested.has_too_many)
    }

    /// Processes the next octets.
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
        loop {
            rest = &rest[self.lines_of_body(rest, visitor)..];
            let Some(at) = memchr::memchr(b'\n', rest) else { break };
            self.whole(&rest[..=at], visitor);
            rest = &rest[at + 1..];
        }
        self.keep(rest, visitor);
    }

    /// Processes whole lines that certainly belong to a body, since none can be a delimiter. Returns the number of
    /// octets.
    fn lines_of_body(&mut self, rest: &[u8], visitor: &mut dyn Visitor) -> usize {
        if self.in_long_line || self.skips_line || matches!(self.state, State::Header(_)) {
            return 0;
        }
        let end = if self.delimiters.is_empty() { lines::whole(rest) } else { self.before_delimiter(rest) };
        let lines = &rest[..end];
        self.counts.octets += lines.len() as u64;
        if let State::Leaf(leaf) = &mut self.state
            && let Some(text) = lines.strip_suffix(b"\n")
        {
            let (text, line_end) = match text.strip_suffix(b"\r") {
                Some(text) => (text, End::Crlf),
                None => (text, End::Lf),
            };
            let before = std::mem::replace(&mut leaf.line_end, line_end.octets());
            leaf.take(before, visitor);
            leaf.take(text, visitor);
        }
        end
    }

    /// The length of the whole lines before the first that may be a delimiter.
    fn before_delimiter(&self, rest: &[u8]) -> usize {
        let mut end = 0;
        loop {
            end += DELIMITER.before(&rest[end..]);
            let line = &rest[end..rest.len().min(end + LINE_BYTES_MAX)];
            match memchr::memchr(b'\n', line).filter(|_| line.starts_with(b"--")) {
                Some(at) if self.delimiter(&line[..at]).is_none() => end += at + 1,
                _ => return end,
            }
        }
    }

    /// Ends the message.
    pub fn finish(&mut self, visitor: &mut dyn Visitor) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.piece(&line, End::Eof, visitor);
        }
        if let State::Leaf(leaf) = &mut self.state {
            // No delimiter follows: the last line end belongs to the body.
            let line_end = std::mem::take(&mut leaf.line_end);
            leaf.take(line_end, visitor);
        }
        self.end_entity(visitor);
        self.close_to(0, visitor);
    }

    /// Processes a line with its end.
    fn whole(&mut self, line: &[u8], visitor: &mut dyn Visitor) {
        self.counts.octets += line.len() as u64;
        match line.strip_suffix(b"\r\n") {
            Some(text) => self.piece(text, End::Crlf, visitor),
            None => self.piece(&line[..line.len() - 1], End::Lf, visitor),
        }
    }

    /// Keeps the start of a line; a long one is processed, except a CR that may be half a line end.
    fn keep(&mut self, bytes: &[u8], visitor: &mut dyn Visitor) {
        self.line.extend_from_slice(bytes);
        if self.line.len() <= LINE_BYTES_MAX {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        let ends_with_cr = line.pop_if(|last| *last == b'\r').is_some();
        self.counts.octets += line.len() as u64;
        self.piece(&line, End::Open, visitor);
        line.clear();
        if ends_with_cr {
            line.push(b'\r');
        }
        self.line = line;
    }

    /// Processes a line, or a piece of a long one, without its end.
    fn piece(&mut self, text: &[u8], end: End, visitor: &mut dyn Visitor) {
        let is_start = !self.in_long_line;
        self.in_long_line = end == End::Open;
        if is_start
            && text.starts_with(b"--")
            && !self.counts.is_full()
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
                // A piece of a long line suffices.
                let line = is_start.then(|| field::line(header.context, text, end != End::Open)).flatten();
                header.context = line.map_or(header.context, LineContext::behind);
                match line {
                    Some(Line::Empty) => return self.header_done(visitor),
                    Some(Line::Body) => {
                        // The body begins without an empty line.
                        header.is_broken = true;
                        self.header_done(visitor);
                        self.in_long_line = false;
                        return self.piece(text, end, visitor);
                    }
                    Some(Line::Field { .. } | Line::Mbox) => {
                        if self.counts.has_too_many {
                            header.drop_field();
                        } else {
                            // Reported even if it is too much: it may be the last, behind which nobody asks.
                            let halves = FIELD_HALVES + header.field_done(visitor);
                            if self.counts.add_to_headers(halves) {
                                visitor.defect(header.path(), Defect::Nested);
                            }
                        }
                    }
                    Some(Line::Fold) if self.counts.add_to_headers(FOLD_HALVES) => {
                        visitor.defect(header.path(), Defect::Nested);
                    }
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
        let closed = rest.strip_suffix(b"--").and_then(|rest| self.delimiters.find(rest));
        match (self.delimiters.find(rest), closed) {
            // On the same level, the boundary that most programs use.
            (Some(begun), Some(closed)) if (closed.level, begun.rank) > (begun.level, closed.rank) => {
                Some((closed.level, true))
            }
            (Some(begun), _) => Some((begun.level, false)),
            (None, closed) => closed.map(|closed| (closed.level, true)),
        }
    }

    /// Continues after a delimiter of `level`.
    fn begin_at(&mut self, level: usize, closes: bool, visitor: &mut dyn Visitor) {
        if closes {
            self.close_to(level, visitor);
            self.state = State::Filler;
        } else {
            self.close_to(level + 1, visitor);
            self.state = self.next_header();
        }
    }

    /// Ends all but the outermost `left` levels.
    fn close_to(&mut self, left: usize, visitor: &mut dyn Visitor) {
        while self.levels.len() > left {
            if let Some(level) = self.levels.pop() {
                visitor.end(&level.part, 0);
            }
        }
        self.delimiters.keep(left);
    }

    /// Ends the current entity.
    fn end_entity(&mut self, visitor: &mut dyn Visitor) {
        if matches!(self.state, State::Header(_)) {
            self.header_done(visitor);
        }
        if let State::Leaf(mut leaf) = std::mem::replace(&mut self.state, State::Filler) {
            leaf.finish(visitor);
            visitor.end(&leaf.part, leaf.size);
            if let Some(counts) = leaf.looked() {
                (self.counts.sections, self.counts.halves) = (counts.sections, counts.halves);
                self.counts.has_too_many |= counts.has_too_many;
            }
        }
    }

    /// The header of the next part of the innermost level.
    fn next_header(&mut self) -> State {
        let Some(level) = self.levels.last_mut() else { return State::Filler };
        let mut path = level.part.path.clone();
        path.push(level.count);
        level.count += 1;
        let is_of_digest = level.part.content_type.value == "multipart/digest";
        let of_message = level.is_message;
        State::Header(Box::new(Header::new(path, of_message, is_of_digest)))
    }

    fn header_done(&mut self, visitor: &mut dyn Visitor) {
        let State::Header(mut header) = std::mem::replace(&mut self.state, State::Filler) else { return };
        if self.counts.add_section() {
            visitor.defect(header.path(), Defect::Nested);
        }
        let halves = header.field_done(visitor);
        if self.counts.add_to_headers(halves) {
            visitor.defect(header.path(), Defect::Nested);
        }
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
            Kind::Multipart => {
                self.delimiters.add(boundaries, self.levels.len());
                self.levels.push(Level { part: slim(part), is_message: false, count: 0 });
            }
            Kind::Message if !is_encoded => {
                self.levels.push(Level { part: slim(part), is_message: true, count: 0 });
                self.state = self.next_header();
            }
            _ => self.state = State::Leaf(Box::new(Leaf::new(part, self.nested, self.counts))),
        }
    }
}

/// Counts of what was examined, including the messages around this one.
#[derive(Debug, Clone, Copy, Default)]
struct WalkCounts {
    sections: u64,
    /// Halves of header fields: see [`FIELDS_MAX`].
    halves: u64,
    octets: u64,
    /// Whether the limits were exceeded.
    has_too_many: bool,
}

impl WalkCounts {
    /// Whether nothing more is examined.
    fn is_full(self) -> bool {
        // With the section that is being read, which is counted at its end.
        let of_sections = (self.sections + 1) * SECTION_FIELDS;
        let halves_max = FIELD_HALVES * (FIELDS_MAX + of_sections) + self.octets * FIELD_HALVES / FIELD_BYTES;
        self.sections > PARTS_MAX + self.octets / PART_BYTES || self.halves > halves_max
    }

    /// Counts a section. Returns whether it is the first excess.
    fn add_section(&mut self) -> bool {
        self.sections += 1;
        self.is_first_beyond()
    }

    /// Counts what a header has, in halves of a field. Returns whether it is the first excess.
    fn add_to_headers(&mut self, halves: u64) -> bool {
        self.halves += halves;
        self.is_first_beyond()
    }

    fn is_first_beyond(&mut self) -> bool {
        self.is_full() && !std::mem::replace(&mut self.has_too_many, true)
    }
}

/// Boundaries of all levels, in all readings, sorted by their hashes, so that a line is compared with few of them;
/// those of inner levels come later.
#[derive(Debug, Default)]
struct Delimiters(Vec<Delimiter>);

#[derive(Debug)]
struct Delimiter {
    hash: u64,
    octets: Vec<u8>,
    level: usize,
    /// Its rank among those of its level.
    rank: usize,
}

impl Delimiters {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the boundaries of the innermost level.
    fn add(&mut self, boundaries: Vec<Vec<u8>>, level: usize) {
        for (rank, octets) in boundaries.into_iter().enumerate() {
            let hash = hash(&octets);
            self.0.insert(self.behind(hash), Delimiter { hash, octets, level, rank });
        }
    }

    /// End of the entries with hashes up to this.
    fn behind(&self, hash: u64) -> usize {
        self.0.partition_point(|known| known.hash <= hash)
    }

    /// The matching entry of the innermost level.
    fn find(&self, octets: &[u8]) -> Option<&Delimiter> {
        if octets.is_empty() {
            return None;
        }
        let hash = hash(octets);
        let mut same = self.0[..self.behind(hash)].iter().rev().take_while(|known| known.hash == hash);
        same.find(|known| known.octets == octets)
    }

    /// Removes all but the entries of the outermost `levels`.
    fn keep(&mut self, levels: usize) {
        if self.0.iter().any(|known| known.level >= levels) {
            self.0.retain(|known| known.level < levels);
        }
    }
}

/// A quick hash: there are few boundaries, so whoever finds two of one hash gains nothing.
fn hash(octets: &[u8]) -> u64 {
    octets.chunks(8).fold(octets.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    })
}

/// Reduces a part to what is needed while its inner parts are read.
fn slim(mut part: Part) -> Part {
    for field in [Some(&mut part.content_type), part.disposition.as_mut()].into_iter().flatten() {
        (field.params, field.other_charsets) = (Vec::new(), Vec::new());
    }
    part.charset = None;
    part
}

impl Leaf {
    fn new(part: Part, nested: usize, counts: WalkCounts) -> Leaf {
        let sink = match part.kind {
            Kind::Message => {
                let mut base = part.path.clone();
                base.push(0);
                Sink::Nested(Box::new(Walker::within(base, nested + 1, counts)))
            }
            Kind::Text if part.is_html() && part.charset() == Charset::UNDECLARED => Sink::Html,
            Kind::Text => Sink::Text(part.charset().decoder(), String::new()),
            Kind::Multipart | Kind::Other => Sink::Counted,
        };
        let uu = (part.kind == Kind::Text).then(Uu::default);
        Leaf { transfer: part.encoding.decoder(), octets: Vec::new(), size: 0, line_end: b"", uu, sink, part }
    }

    /// Counts of the message that it is.
    fn looked(&self) -> Option<WalkCounts> {
        match &self.sink {
            Sink::Nested(walker) => Some(walker.counts),
            _ => None,
        }
    }

    fn take(&mut self, octets: &[u8], visitor: &mut dyn Visitor) {
        self.transfer.push(octets, &mut self.octets);
        if self.octets.len() >= CHUNK_BYTES {
            self.flush(visitor);
        }
    }

    /// Converts decoded octets to text: the first time the whole body, or more than its beginning.
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
            Sink::Counted if !self.octets.is_empty() => visitor.octets(&self.part, &self.octets),
            Sink::Html | Sink::Counted => {}
        }
        self.octets.clear();
    }

    /// The charset declared in the body, whose beginning is available.
    fn named_in_html(&mut self, visitor: &mut dyn Visitor) -> Charset {
        let Some(label) = meta::charset(&self.octets) else { return Charset::UNDECLARED };
        visitor.charset(&self.part, &label);
        // The declaration was readable as ASCII, so a charset in which it would not be is wrong.
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
