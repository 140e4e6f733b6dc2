//! Converts outgoing content: to 7 bits for hosts without 8BITMIME (RFC 6152 section 3, RFC 2045 section 6), to lines
//! of the length that SMTP allows (RFC 5321 section 4.5.3.1.6), and to other transfer encodings requested by rules
//! ([`Survey`]).
//!
//! One converter does all that. It walks the MIME structure line by line.
//!
//! **Lines**: no output line is over [`LINE_BYTES_MAX`] octets, whatever the input. Header fields are folded
//! (`fold.rs`). Leaf parts with such a line become quoted-printable, or keep their encoding with other line breaks
//! (`wrap.rs`); fields within a `message/delivery-status` are folded. Content that cannot be encoded
//! (`multipart/signed`, unknown encodings, preambles, leaves whose first long line comes after [`HOLD_BYTES_MAX`])
//! gets CRLF and a space after 998 octets, as with Postfix's `smtp_line_length_limit`: this damages signed content,
//! which would otherwise be refused.
//!
//! **To 7 bits**, in addition: leaf parts with octets over 127 or NULs, which DATA cannot carry either (RFC 3030
//! section 3), become quoted-printable; `multipart/*` and `message/rfc822` are never encoded themselves (RFC 2045
//! 6.4), only their parts are; `message/global` and similar types are leaves that may be encoded (RFC 6532 3.7, RFC
//! 6533 section 6). Parts without such octets are not changed, so that signatures over them stay valid, nor are the
//! contents of `multipart/signed` and `multipart/encrypted` (RFC 1847 2.1 forbids it in transit). Raw 8-bit text in
//! header fields becomes encoded words (RFC 2047) or parameters (RFC 2231); such octets in a field's name, which no
//! RFC allows, are written as `=C3=A9`; in preambles and epilogues, which are not displayed, as `?`.
//!
//! Promises: 7-bit output has no octet over 127 and no NUL; each body that may be encoded decodes to its original
//! octets, except for such late long lines; a leaf without a long line is not changed if only lines are converted;
//! the output does not depend on how the input is split, and converting it again changes nothing; time is linear;
//! memory is bounded by [`HEADER_BYTES_MAX`], [`HOLD_BYTES_MAX`] and [`LEVELS_MAX`].
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
//! The header, which is written first, says whether a leaf is encoded; so a leaf is held back up to
//! [`HOLD_BYTES_MAX`]. To 7 bits, a larger one is always encoded. If only lines are converted, it is not changed
//! unless a long line was found by then; later long lines are broken as in Postfix.
//!
//! Failure: a [`ConvertError`], after which the output must be discarded and the message bounced; conversion of lines
//! alone never fails. Our own DSNs, which must arrive in some form, use [`Converter::lossy`], which writes `?`
//! instead.
//!
//! **Merge fields** (`merge.rs`): values are put into placeholders; everything else is copied unchanged.
//!
//! **To 8 bits** (`eight_bit.rs`): encoded text is decoded where that is safe; everything else is copied unchanged.

mod addresses;
mod eight_bit;
mod field;
mod fold;
mod header;
mod levels;
mod merge;
mod params;
mod survey;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_eight_bit;
#[cfg(test)]
mod tests_fields;
#[cfg(test)]
mod tests_lines;
mod text;
mod wrap;

use memchr::memchr;

use crate::quoted::QuotedPrintable;
use crate::transfer::Encoding;
use eight_bit::Decoding;
pub use field::is_structured;
use header::{Facts, Kind};
use levels::{Level, Levels};
use merge::Merging;
pub use merge::{MergeSurvey, MergeValues, NAME_BYTES_MAX as MERGE_NAME_BYTES_MAX};
pub use survey::{Recoding, Survey};
pub use wrap::LineScan;
use wrap::Wrap;

/// Maximum size of a header section, the message's or a part's.
pub const HEADER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum octets of a leaf that are held until it is known whether it needs encoding.
pub const HOLD_BYTES_MAX: usize = 256 * 1024;
/// Maximum nesting of `multipart/*` and `message/rfc822`.
pub const LEVELS_MAX: usize = 100;
/// Maximum length of a line, without its end (RFC 5321 section 4.5.3.1.6, RFC 5322 section 2.1.1).
pub const LINE_BYTES_MAX: usize = 998;
/// Maximum length of lines that are examined as a whole; longer ones cannot be delimiters (RFC 2046 5.1.1) and are
/// processed in pieces.
const WHOLE_LINE_BYTES_MAX: usize = 1024;

/// Target of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecodeTarget {
    SevenBit,
    EightBit,
}

impl RecodeTarget {
    /// The name in `Content-Transfer-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            RecodeTarget::SevenBit => "7bit",
            RecodeTarget::EightBit => "8bit",
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
    #[error("MIME parts nested too deeply to convert")]
    TooDeep,
    /// An address in a header field has octets over 127, which need SMTPUTF8.
    #[error("8-bit characters in an address of the header")]
    EightBitAddress,
    /// Octets over 127 or NULs where encoding is impossible or forbidden: an unknown transfer encoding, or a
    /// multipart that is signed, encrypted or without boundary.
    #[error("8-bit data in a part that cannot be encoded")]
    NotEncodable,
    /// The values of a merge are larger than [`merge::ADDED_BYTES_MAX`].
    #[error("the merge values add more than 1 MiB to a copy")]
    MergeTooLarge,
}

/// Treatment of octets over 127 and NULs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Octets {
    Keep,
    /// They are encoded as standards allow; otherwise it is an error.
    SevenBit,
    /// As `SevenBit`, with `?` in place of an error.
    Lossy,
}

impl Octets {
    /// Whether an octet is allowed.
    fn allows(self, octet: u8) -> bool {
        self == Octets::Keep || matches!(octet, 1..0x80)
    }

    /// Whether a text is allowed.
    fn allow(self, text: &[u8]) -> bool {
        self == Octets::Keep || is_plain(text)
    }

    /// Appends `text` with `?` for octets that are not allowed.
    fn push(self, text: &[u8], out: &mut Vec<u8>) {
        out.extend(text.iter().map(|&b| if self.allows(b) { b } else { b'?' }));
    }
}

/// Position in the structure for the next line.
#[derive(Debug)]
enum State {
    Header,
    /// Preamble or epilogue.
    Filler(Wrap),
    /// A leaf that may be 7-bit, or that may be decoded; its header is not written yet.
    Hold {
        facts: Facts,
        body: Vec<u8>,
        eight_bit: bool,
        has_long_line: bool,
    },
    Qp(QuotedPrintable),
    /// A leaf that is already encoded: octets over 127 in it are noise.
    Pass(Wrap),
    /// A part that cannot be encoded: it must have no octet that is not allowed.
    Refuse(Wrap),
    /// A part that is copied unchanged.
    Copy,
}

/// Reason why a held leaf ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// A delimiter, to which the preceding line end belongs (RFC 2046 5.1.1).
    Delimiter,
    Eof,
    /// [`HOLD_BYTES_MAX`] was reached, perhaps in the middle of a line.
    Full {
        is_line_open: bool,
    },
}

/// End of a piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// More of the line follows.
    Open,
    /// The line ends with CRLF.
    Crlf,
    /// The message ends.
    Eof,
}

/// Converts one message to 7 bits, to short lines, or to 8 bits: call `push` with its octets, then `finish`.
#[derive(Debug)]
pub struct Converter {
    /// Start of an incomplete line.
    line: Vec<u8>,
    /// Whether the line's start has been processed already.
    in_long_line: bool,
    state: State,
    levels: Levels,
    /// The header section being read, or that of the leaf being held.
    header: Vec<u8>,
    octets: Octets,
    /// State of a conversion to 8 bits.
    decoding: Option<Box<Decoding>>,
    /// State of a merge.
    merging: Option<Box<Merging>>,
    has_eight_bit_header: bool,
}

impl Default for Converter {
    fn default() -> Self {
        Self::new()
    }
}

impl Converter {
    /// A converter to 7 bits.
    pub fn new() -> Self {
        Self::with(Octets::SevenBit)
    }

    /// A converter to short lines only, which does not fail.
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
            merging: None,
            has_eight_bit_header: false,
        }
    }

    /// A converter to 7 bits that fails only at [`HEADER_BYTES_MAX`].
    pub fn lossy() -> Self {
        Self::with(Octets::Lossy)
    }

    /// Whether the input so far has octets over 127 in a header section, of the message or of a part. Such a message
    /// is internationalized, and may be sent unconverted only if SMTPUTF8 is offered (RFC 6531 3.2).
    pub fn has_eight_bit_header(&self) -> bool {
        self.has_eight_bit_header
    }

    /// Converts the next octets of the message (lines end with CRLF) and appends finished output to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let mut rest = bytes;
        if !self.line.is_empty() {
            // The line started earlier: it is completed, or processed once it is long.
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

    /// Ends the message.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let line = std::mem::take(&mut self.line);
        // White space at the end of a long line that was fully processed may still be held.
        if !line.is_empty() || self.in_long_line {
            self.piece(&line, End::Eof, out)?;
        }
        self.end_entity(Stop::Eof, out)
    }

    /// Keeps the start of a line; a long one is processed, except a CR that may be half a line end.
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

    /// Processes a line, or a piece of a long one, without its CRLF.
    fn piece(&mut self, text: &[u8], end: End, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let start = !self.in_long_line;
        self.in_long_line = end == End::Open;
        // With one more octet it would be processed in pieces if it arrived in pieces.
        if start && end != End::Open && text.len() < WHOLE_LINE_BYTES_MAX {
            if text.starts_with(b"--")
                && let Some((level, closes)) = self.levels.delimiter(text)
            {
                self.end_entity(Stop::Delimiter, out)?;
                self.begin_at(level, closes);
                let is_long = text.len() > LINE_BYTES_MAX && !self.copies();
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

    /// Handles a header section that is too large: unless that is an error, neither it nor the rest is examined.
    fn give_up_header(&mut self, end: End, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        if self.octets != Octets::Keep || self.copies() {
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

    /// Continues after a delimiter of `level`.
    fn begin_at(&mut self, level: usize, closes: bool) {
        self.levels.truncate(if closes { level } else { level + 1 });
        self.state = if closes { self.filler() } else { State::Header };
    }

    fn filler(&self) -> State {
        if self.copies() { State::Copy } else { State::Filler(Wrap::hard()) }
    }

    /// Whether everything that is not to be changed is copied octet by octet.
    fn copies(&self) -> bool {
        self.decoding.is_some() || self.merging.is_some()
    }

    /// Ends the current entity.
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

    /// Handles a complete header section: decides which kind of part follows.
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
        if self.merging.is_some() {
            return self.begin_merging(facts, out);
        }
        let identity = facts.encoding == Encoding::Identity;
        let octets = self.octets;
        let next = match std::mem::replace(&mut facts.kind, Kind::Leaf) {
            // A declared encoding is ignored: readers look for delimiters anyway (RFC 2045 6.4 forbids encoding).
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
            // Encoded contrary to RFC 2045 section 6.4: only readers that decode it can use it.
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

    /// Releases the held leaf, encoded if necessary or decoded if possible.
    fn release(&mut self, stop: Stop, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let state = std::mem::replace(&mut self.state, State::Copy);
        let State::Hold { facts, body, eight_bit, has_long_line } = state else {
            self.state = state;
            return Ok(());
        };
        let header = std::mem::take(&mut self.header);
        if self.decoding.is_some() {
            self.release_decoded(&header, &facts, &body, stop, out);
            return Ok(());
        }
        if self.merging.is_some() {
            return self.release_merged(&header, &facts, &body, stop, out);
        }
        self.has_eight_bit_header |= eight_bit && facts.is_global;
        let octets = self.octets;
        let is_cut = body.len() > HOLD_BYTES_MAX;
        // If only lines are converted, a large leaf needs no encoding until a long line, which is then broken hard.
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
        // The limit may split a character, which does not exclude UTF-8.
        let looked_at = &body[..body.len().min(HOLD_BYTES_MAX)];
        let is_utf8 =
            std::str::from_utf8(looked_at).map_or_else(|error| is_cut && error.error_len().is_none(), |_| true);
        let charset = match eight_bit || is_cut {
            false => "us-ascii",
            true if is_utf8 => "utf-8",
            // The name for undeclared charsets in RFC 1428 section 3.
            true => "unknown-8bit",
        };
        header::write_quoted(&header, &facts, charset, octets, out)?;
        let mut encoder = QuotedPrintable::default();
        let (mut rest, line_end) = (body.as_slice(), memchr::memmem::Finder::new(b"\r\n"));
        while let Some(at) = line_end.find(rest) {
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

/// Encodes a piece of a line. If it is long, its first dash is escaped, because a soft line break could leave a
/// delimiter.
fn push_quoted(encoder: &mut QuotedPrintable, text: &[u8], is_start: bool, out: &mut Vec<u8>) {
    /// Length that fits into one line even if all octets are escaped.
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

/// Length of the longest line, without its end.
fn longest_line(text: &[u8]) -> usize {
    let lines = text.split_inclusive(|&b| b == b'\n');
    lines.map(|line| without_end(line).len()).max().unwrap_or(0)
}

fn without_end(line: &[u8]) -> &[u8] {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    text.strip_suffix(b"\r").filter(|_| text.len() < line.len()).unwrap_or(text)
}
