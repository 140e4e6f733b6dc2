//! Content in other forms on its way out: made 7-bit for hosts without 8BITMIME (RFC 6152 section 3, RFC 2045 section 6), its lines made
//! as short as SMTP has them (RFC 5321 section 4.5.3.1.6); and in other transfer encodings for rules that ask for it ([`Survey`]).
//!
//! One converter does all that. It walks the MIME structure line by line.
//!
//! **Lines**: no line that it writes is over [`LINE_BYTES_MAX`] octets, whatever comes. Header fields are folded (`fold.rs`). Leaf parts with
//! such a line become quoted-printable, or stay in the encoding that they have with other line breaks (`wrap.rs`); fields within a
//! `message/delivery-status` are folded. What cannot be encoded (`multipart/signed`, unknown encodings, preambles, leaves whose
//! first long line comes after [`HOLD_BYTES_MAX`]) gets CRLF and a space after 998 octets, as by Postfix's `smtp_line_length_limit`: what is
//! signed is then damaged, and would otherwise be refused.
//!
//! **To 7 bits**, in addition: leaf parts that hold octets over 127 or NULs, which DATA cannot
//! carry either (RFC 3030 section 3), become quoted-printable; `multipart/*` and `message/rfc822` are never encoded
//! themselves (RFC 2045 6.4), what is in them is; `message/global` and its kin are leaves that may be (RFC 6532 3.7, RFC
//! 6533 section 6). Parts without such octets stay as they are, so that a signature over one of them stays good, and of
//! what is in `multipart/signed` and `multipart/encrypted` nothing is touched (RFC 1847 2.1 forbids it to all on the way).
//! Raw 8-bit text in header fields becomes encoded words (RFC 2047) or parameters (RFC 2231); such octets in a field's
//! name, which no RFC knows, are written as `=C3=A9`; in preambles and epilogues, which nobody sees, as `?`.
//!
//! Promises: output for 7 bits holds no octet over 127 and no NUL; each body that may be encoded decodes to its original octets, but for
//! such late long lines; a leaf without a long line stays as it is when lines alone are converted; the output does not depend on how the
//! input was cut, and converting it again changes nothing; time is linear; memory is bounded by [`HEADER_BYTES_MAX`],
//! [`HOLD_BYTES_MAX`] and [`LEVELS_MAX`].
//!
//! ```text
//! Header --multipart--> Filler (preamble) --delimiter--> Header ... --close--> Filler (epilogue)
//!    |---message------> Header
//!    |---encoded leaf-> Pass
//!    |---other leaf---> Hold --its end, nothing to encode--> as it was
//!    |                    |----HOLD_BYTES_MAX, lines alone, none long--> Filler
//!    |                    |----its end, or HOLD_BYTES_MAX--> Qp
//!    '---cannot be encoded--> Refuse (to 7 bits an error at the first octet over 127)
//! ```
//!
//! The header, which goes out first, says whether a leaf is encoded: so a leaf is held back up to [`HOLD_BYTES_MAX`]. To 7 bits, a
//! larger one is encoded whether it needs it or not. For lines alone it stays as it is unless a long
//! line came by then; later long lines are broken as by Postfix.
//!
//! Failure answers: a [`ConvertError`], after which the output is to be discarded and the message bounced; for lines alone there is none.
//! Our own DSNs, which must arrive in some form, use [`Converter::lossy`], which writes `?` instead.
//!
//! **To 8 bits** (`eight_bit.rs`): encoded text is written as it is where that is safe; anything else passes as it came.

mod eight_bit;
mod field;
mod fold;
mod header;
mod levels;
mod survey;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_eight_bit;
#[cfg(test)]
mod tests_lines;
mod wrap;

use eight_bit::Decoding;
pub use field::is_structured;
use header::{Facts, Kind};
use levels::{Level, Levels};
use memchr::memchr;
use stentor_mime::quoted::QuotedPrintable;
use stentor_mime::transfer::Encoding;
pub use survey::{Recoding, Survey};
pub use wrap::LineScan;
use wrap::Wrap;

/// Most octets of one header section, the outermost or a part's.
pub const HEADER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most octets of a leaf that are held back until it is known whether it needs encoding.
pub const HOLD_BYTES_MAX: usize = 256 * 1024;
/// Most levels of `multipart/*` and `message/rfc822` within each other.
pub const LEVELS_MAX: usize = 100;
/// Longest line, without its end (RFC 5321 section 4.5.3.1.6, RFC 5322 section 2.1.1).
pub const LINE_BYTES_MAX: usize = 998;
/// Longest line that is looked at as a whole; longer ones cannot be delimiters (RFC 2046 5.1.1) and pass in pieces.
const WHOLE_LINE_BYTES_MAX: usize = 1024;

/// What content is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    SevenBit,
    EightBit,
}

impl Target {
    /// As `Content-Transfer-Encoding` has it.
    pub fn name(self) -> &'static str {
        match self {
            Target::SevenBit => "7bit",
            Target::EightBit => "8bit",
        }
    }
}

/// Why a message cannot be made 7-bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A header section is over [`HEADER_BYTES_MAX`].
    #[error("header section too large to convert")]
    HeaderTooLarge,
    /// Parts are nested deeper than [`LEVELS_MAX`].
    #[error("MIME parts nested too deep to convert")]
    TooDeep,
    /// An address in a header field has octets over 127 (that takes SMTPUTF8).
    #[error("8-bit characters in an address of the header")]
    EightBitAddress,
    /// Octets over 127 or NULs where no encoding is possible or allowed: an unknown transfer encoding, a multipart that is
    /// signed, encrypted or without boundary.
    #[error("8-bit data in a part that cannot be encoded")]
    NotEncodable,
}

/// What becomes of octets over 127 and NULs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Octets {
    Keep,
    /// They are encoded as standards allow it; where none does, there is an error.
    SevenBit,
    /// There `?` stands for them.
    Lossy,
}

impl Octets {
    /// Whether an octet may stay.
    fn allows(self, octet: u8) -> bool {
        self == Octets::Keep || matches!(octet, 1..0x80)
    }

    /// Whether a text may stay.
    fn allow(self, text: &[u8]) -> bool {
        self == Octets::Keep || is_plain(text)
    }

    /// Appends `text` with `?` for what may not stay.
    fn push(self, text: &[u8], out: &mut Vec<u8>) {
        out.extend(text.iter().map(|&b| if self.allows(b) { b } else { b'?' }));
    }
}

/// Where in the structure the next line belongs.
#[derive(Debug)]
enum State {
    Header,
    /// Preamble or epilogue.
    Filler(Wrap),
    /// A leaf that may yet turn out to be 7-bit, or that may be decoded; its header has not gone out.
    Hold {
        facts: Facts,
        body: Vec<u8>,
        eight_bit: bool,
        has_long_line: bool,
    },
    Qp(QuotedPrintable),
    /// A leaf that is encoded already: octets over 127 in it are noise.
    Pass(Wrap),
    /// Cannot be encoded: must hold no octet that is not allowed.
    Refuse(Wrap),
    /// Passes as it is.
    Copy,
}

/// What ends a leaf that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The line end before it is the delimiter's (RFC 2046 5.1.1).
    Delimiter,
    Eof,
    /// [`HOLD_BYTES_MAX`], perhaps in the middle of a line.
    Full {
        is_line_open: bool,
    },
}

/// How a piece of a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// More of the line follows.
    Open,
    /// With CRLF.
    Crlf,
    /// With the message.
    Eof,
}

/// Makes one message 7-bit, or its lines short, or makes it 8-bit. `push` its octets, then `finish`.
#[derive(Debug)]
pub struct Converter {
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
    /// The line's beginning has been passed on already.
    in_long_line: bool,
    state: State,
    levels: Levels,
    /// The header section being read, or that of the leaf being held.
    header: Vec<u8>,
    octets: Octets,
    /// Toward 8 bits.
    decoding: Option<Box<Decoding>>,
    has_eight_bit_header: bool,
}

impl Default for Converter {
    fn default() -> Self {
        Self::new()
    }
}

impl Converter {
    /// A converter to 7 bits at the beginning of a message.
    pub fn new() -> Self {
        Self::with(Octets::SevenBit)
    }

    /// A converter to short lines alone, which does not fail.
    pub fn of_lines() -> Self {
        Self::with(Octets::Keep)
    }

    fn with(octets: Octets) -> Self {
        Self {
            line: Vec::new(),
            in_long_line: false,
            state: State::Header,
            levels: Levels::default(),
            header: Vec::new(),
            octets,
            decoding: None,
            has_eight_bit_header: false,
        }
    }

    /// A converter to 7 bits that fails only at [`HEADER_BYTES_MAX`].
    pub fn lossy() -> Self {
        Self::with(Octets::Lossy)
    }

    /// Whether what has been pushed has octets over 127 in a header section, of the message or of a part: such a message
    /// is internationalized, and goes unconverted only where SMTPUTF8 is offered (RFC 6531 3.2).
    pub fn has_eight_bit_header(&self) -> bool {
        self.has_eight_bit_header
    }

    /// Takes the next octets of the message (lines end with CRLF); what is ready is appended to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let mut rest = bytes;
        if !self.line.is_empty() {
            // The line begun earlier: completed, or passed on once it is long.
            let mut from = 0;
            loop {
                let Some(at) = memchr(b'\n', &rest[from..]) else {
                    return self.keep(rest, out);
                };
                let before = if from + at == 0 { self.line.last() } else { rest.get(from + at - 1) };
                from += at + 1;
                if before == Some(&b'\r') {
                    break;
                }
            }
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&rest[..from]);
            line.truncate(line.len() - 2);
            let result = self.piece(&line, End::Crlf, out);
            line.clear();
            self.line = line;
            result?;
            rest = &rest[from..];
        }
        let mut from = 0;
        while let Some(at) = memchr(b'\n', &rest[from..]) {
            from += at + 1;
            if let Some(line) = rest[..from].strip_suffix(b"\r\n") {
                self.piece(line, End::Crlf, out)?;
                rest = &rest[from..];
                from = 0;
            }
        }
        self.keep(rest, out)
    }

    /// The message is complete.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let line = std::mem::take(&mut self.line);
        // White space at the end of a long line may still be held, all of which has been passed on.
        if !line.is_empty() || self.in_long_line {
            self.piece(&line, End::Eof, out)?;
        }
        self.end_entity(Stop::Eof, out)
    }

    /// Keeps the beginning of a line; if it is long, passes it on, all but a CR that may be half a line end.
    fn keep(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        self.line.extend_from_slice(bytes);
        if self.line.len() <= WHOLE_LINE_BYTES_MAX {
            return Ok(());
        }
        let mut line = std::mem::take(&mut self.line);
        let ends_with_cr = line.pop_if(|last| *last == b'\r').is_some();
        let result = self.piece(&line, End::Open, out);
        line.clear();
        if ends_with_cr {
            line.push(b'\r');
        }
        self.line = line;
        result
    }

    /// A line or a piece of a long one, without its CRLF.
    fn piece(&mut self, text: &[u8], end: End, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let start = !self.in_long_line;
        self.in_long_line = end == End::Open;
        // One more octet, and it would be passed on in pieces where it comes in pieces.
        if start && end != End::Open && text.len() < WHOLE_LINE_BYTES_MAX {
            if text.starts_with(b"--")
                && let Some((level, closes)) = self.levels.delimiter(text)
            {
                self.end_entity(Stop::Delimiter, out)?;
                self.begin_at(level, closes);
                let is_long = text.len() > LINE_BYTES_MAX && self.decoding.is_none();
                out.extend_from_slice(if is_long { text.trim_ascii_end() } else { text });
                end_line(end, out);
                return Ok(());
            }
            if text.is_empty() && matches!(self.state, State::Header) {
                return self.header_done(true, out);
            }
        }
        let octets = self.octets;
        match &mut self.state {
            State::Header => {
                self.header.extend_from_slice(text);
                end_line(end, &mut self.header);
                if self.header.len() > HEADER_BYTES_MAX {
                    return self.give_up_header(end, out);
                }
            }
            State::Copy => {
                out.extend_from_slice(text);
                end_line(end, out);
            }
            State::Filler(wrap) | State::Pass(wrap) => wrap.piece(text, start, end, octets, out),
            State::Refuse(wrap) => {
                if octets == Octets::SevenBit && !is_plain(text) {
                    return Err(ConvertError::NotEncodable);
                }
                wrap.piece(text, start, end, octets, out);
            }
            State::Qp(encoder) => {
                push_quoted(encoder, text, start, out);
                match end {
                    End::Open => {}
                    End::Crlf => encoder.end_line(out),
                    End::Eof => encoder.finish(out),
                }
            }
            State::Hold { body, eight_bit, has_long_line, .. } => {
                *eight_bit |= !is_plain(text);
                *has_long_line |= text.len() > LINE_BYTES_MAX;
                body.extend_from_slice(text);
                end_line(end, body);
                if body.len() > HOLD_BYTES_MAX {
                    return self.release(Stop::Full { is_line_open: end == End::Open }, out);
                }
            }
        }
        Ok(())
    }

    /// The header section is too large to be kept: where that is no error, nothing in it or behind it is looked at.
    fn give_up_header(&mut self, end: End, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        if self.octets != Octets::Keep || self.decoding.is_some() {
            return Err(ConvertError::HeaderTooLarge);
        }
        let header = std::mem::take(&mut self.header);
        let mut wrap = Wrap::hard();
        let mut lines = header.split_inclusive(|&b| b == b'\n').peekable();
        while let Some(line) = lines.next() {
            let ended = line.strip_suffix(b"\r\n").filter(|_| lines.peek().is_some() || end == End::Crlf);
            let (text, end) = ended.map_or((line, End::Open), |text| (text, End::Crlf));
            wrap.piece(text, true, end, Octets::Keep, out);
        }
        self.state = State::Refuse(wrap);
        Ok(())
    }

    /// Behind a delimiter of `level`.
    fn begin_at(&mut self, level: usize, closes: bool) {
        self.levels.truncate(if closes { level } else { level + 1 });
        self.state = if closes { self.filler() } else { State::Header };
    }

    fn filler(&self) -> State {
        if self.decoding.is_some() { State::Copy } else { State::Filler(Wrap::hard()) }
    }

    /// What was being read ends here.
    fn end_entity(&mut self, stop: Stop, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        match self.state {
            State::Header => {
                self.header_done(false, out)?;
                // A leaf without a body.
                if matches!(self.state, State::Hold { .. }) { self.release(stop, out) } else { Ok(()) }
            }
            State::Hold { .. } => self.release(stop, out),
            _ => Ok(()),
        }
    }

    /// The header section is complete: what kind of part is it?
    fn header_done(&mut self, empty_line: bool, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        self.has_eight_bit_header |= !self.header.is_ascii();
        let parent = self.levels.last();
        let mut facts = Facts::read(&self.header);
        facts.of_message = !matches!(parent, Some(Level::Multipart { .. }));
        facts.empty_line = empty_line;
        if !facts.has_type && matches!(parent, Some(Level::Multipart { digest: true, .. })) {
            facts.kind = Kind::Message;
        }
        if self.decoding.is_some() {
            self.begin_decoding(facts, out);
            return Ok(());
        }
        let identity = facts.encoding == Encoding::Identity;
        let octets = self.octets;
        let next = match std::mem::replace(&mut facts.kind, Kind::Leaf) {
            // Whatever encoding it claims: readers look for its delimiters all the same (RFC 2045 6.4 forbids it).
            Kind::Multipart { boundary, digest } => {
                self.levels.push(Level::Multipart { boundary, digest });
                State::Filler(Wrap::hard())
            }
            Kind::Message if identity => {
                self.levels.push(Level::Message);
                State::Header
            }
            Kind::Leaf if identity => {
                self.state = State::Hold { facts, body: Vec::new(), eight_bit: false, has_long_line: false };
                return Ok(());
            }
            Kind::Leaf if facts.encoding != Encoding::Unknown => State::Pass(Wrap::of(facts.encoding)),
            // Encoded in spite of RFC 2045 section 6.4: only readers that decode it have any use for it.
            Kind::Message => State::Refuse(Wrap::of(facts.encoding)),
            _ => State::Refuse(Wrap::hard()),
        };
        let is_too_deep = self.levels.len() > LEVELS_MAX;
        if is_too_deep && octets == Octets::SevenBit {
            return Err(ConvertError::TooDeep);
        }
        header::write_kept(&self.header, &facts, octets, out)?;
        self.header.clear();
        self.state = next;
        if is_too_deep {
            self.levels.truncate(LEVELS_MAX);
            self.state = State::Refuse(Wrap::hard());
        }
        Ok(())
    }

    /// Lets the leaf that is held go, encoded if it must be, or decoded if it may be.
    fn release(&mut self, stop: Stop, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let state = std::mem::replace(&mut self.state, State::Copy);
        let State::Hold { facts, body, eight_bit, has_long_line } = state else {
            self.state = state;
            return Ok(());
        };
        let header = std::mem::take(&mut self.header);
        if self.decoding.is_some() {
            self.release_decoded((&header, &facts), &body, stop, out);
            return Ok(());
        }
        self.has_eight_bit_header |= eight_bit && facts.is_global;
        let octets = self.octets;
        let is_cut = body.len() > HOLD_BYTES_MAX;
        // To short lines alone, a large leaf needs nothing until a long line comes, and that is broken hard.
        let may_stay = if octets == Octets::Keep { !is_cut || !has_long_line } else { !eight_bit && !is_cut };
        if may_stay && (!has_long_line || facts.is_status) {
            header::write_kept(&header, &facts, octets, out)?;
            if has_long_line {
                fold::write_groups(&body, out);
            } else {
                out.extend_from_slice(&body);
            }
            self.state = State::Filler(Wrap::hard());
            return Ok(());
        }
        // A cut at the limit may fall within a character; that alone makes no text anything but UTF-8.
        let looked_at = &body[..body.len().min(HOLD_BYTES_MAX)];
        let is_utf8 =
            std::str::from_utf8(looked_at).map_or_else(|error| is_cut && error.error_len().is_none(), |_| true);
        let charset = match eight_bit || is_cut {
            false => "us-ascii",
            true if is_utf8 => "utf-8",
            // RFC 1428 section 3 has the name for what nobody declared.
            true => "unknown-8bit",
        };
        header::write_quoted(&header, &facts, charset, octets, out)?;
        let mut encoder = QuotedPrintable::default();
        let mut rest = body.as_slice();
        while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
            push_quoted(&mut encoder, &rest[..at], true, out);
            encoder.end_line(out);
            rest = &rest[at + 2..];
        }
        push_quoted(&mut encoder, rest, true, out);
        if stop != (Stop::Full { is_line_open: true }) {
            encoder.finish(out);
        }
        self.state = State::Qp(encoder);
        Ok(())
    }
}

/// Encodes a piece of a line. A long one, of which a soft line break cuts off what could be a delimiter, begins with no dash.
fn push_quoted(encoder: &mut QuotedPrintable, text: &[u8], is_start: bool, out: &mut Vec<u8>) {
    /// What fits into one line, its octets escaped.
    const SHORT_BYTES: usize = 25;
    if is_start && text.len() > SHORT_BYTES && text.starts_with(b"--") {
        encoder.push_escaped(b'-', out);
        return encoder.push(&text[1..], out);
    }
    encoder.push(text, out);
}

fn end_line(end: End, out: &mut Vec<u8>) {
    if end == End::Crlf {
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether `text` is 7-bit without NULs.
fn is_plain(text: &[u8]) -> bool {
    text.is_ascii() && memchr(0, text).is_none()
}

/// The longest line, without its end.
fn longest_line(text: &[u8]) -> usize {
    let lines = text.split_inclusive(|&b| b == b'\n');
    lines.map(|line| without_end(line).len()).max().unwrap_or(0)
}

fn without_end(line: &[u8]) -> &[u8] {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    text.strip_suffix(b"\r").filter(|_| text.len() < line.len()).unwrap_or(text)
}
