//! Content in other transfer encodings: 8-bit content made 7-bit for hosts without 8BITMIME while it is sent (RFC 6152 section
//! 3, RFC 2045 section 6), and either way for rules that ask for it ([`Survey`]).
//!
//! The converter walks the MIME structure line by line.
//!
//! **To 7 bits**: leaf parts that hold octets over 127 or NULs, which DATA cannot
//! carry either (RFC 3030 section 3), become quoted-printable; `multipart/*` and `message/rfc822` are never encoded
//! themselves (RFC 2045 6.4), what is in them is; `message/global` and its kin are leaves that may be (RFC 6532 3.7, RFC
//! 6533 section 6). Parts without such octets stay as they are, so that a signature over one of them stays good, and of
//! what is in `multipart/signed` and `multipart/encrypted` nothing is touched (RFC 1847 2.1 forbids it to all on the way).
//! Raw 8-bit text in header fields becomes encoded words (RFC 2047) or parameters (RFC 2231); such octets in a field's
//! name, which no RFC knows, are written as `=C3=A9`; in preambles and epilogues, which nobody sees, as `?`.
//!
//! Promises: output holds no octet over 127, no NUL and no new line over 998 octets (76 in bodies; a header line near
//! 998 may grow by one encoded word); each body decodes to its original octets; time is linear; memory is bounded by
//! [`HEADER_BYTES_MAX`], [`HOLD_BYTES_MAX`] and [`LEVELS_MAX`].
//!
//! ```text
//! Header --multipart--> Filler (preamble) --delimiter--> Header ... --close--> Filler (epilogue)
//!    |---message------> Header
//!    |---encoded leaf-> Pass
//!    |---other leaf---> Hold --its end, no 8-bit--> as it was
//!    |                    |----its end, or HOLD_BYTES_MAX--> Qp
//!    '---cannot be encoded--> Refuse (an error at the first octet over 127)
//! ```
//!
//! The header, which goes out first, says whether a leaf is encoded: so a leaf is held back up to [`HOLD_BYTES_MAX`]. A
//! larger one is encoded whether it needs it or not.
//!
//! Failure answers: a [`ConvertError`], after which the output is to be discarded and the message bounced. Our own
//! DSNs, which must arrive in some form, use [`Converter::lossy`], which writes `?` instead.
//!
//! **To 8 bits** (`eight_bit.rs`): encoded text is written as it is where that is safe; anything else passes as it came.

mod eight_bit;
mod field;
mod header;
mod levels;
mod survey;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_eight_bit;

use eight_bit::Decoding;
use header::{Facts, Kind};
use levels::{Level, Levels};
use memchr::memchr;
use stentor_mime::quoted::{self, QuotedPrintable};
use stentor_mime::transfer::Encoding;
pub use survey::{Recoding, Survey};

/// Most octets of one header section, the outermost or a part's.
pub const HEADER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most octets of a leaf that are held back until it is known whether it needs encoding.
pub const HOLD_BYTES_MAX: usize = 256 * 1024;
/// Most levels of `multipart/*` and `message/rfc822` within each other.
pub const LEVELS_MAX: usize = 100;
/// Longest line that is looked at as a whole; longer ones cannot be delimiters (RFC 2046 5.1.1) and pass in pieces.
const LINE_BYTES_MAX: usize = 1024;

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

/// Where in the structure the next line belongs.
#[derive(Debug)]
enum State {
    Header,
    /// Preamble or epilogue.
    Filler,
    /// A leaf that may yet turn out to be 7-bit, or that may be decoded; its header has not gone out.
    Hold {
        facts: Facts,
        body: Vec<u8>,
        eight_bit: bool,
    },
    Qp(QuotedPrintable),
    /// A leaf that is encoded already: octets over 127 in it are noise.
    Pass(Encoding),
    /// Must hold no octet over 127.
    Refuse,
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

/// Makes one message 7-bit, or 8-bit. `push` its octets, then `finish`.
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
    /// Replaces what cannot be encoded by `?`.
    is_lossy: bool,
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
        Self {
            line: Vec::new(),
            in_long_line: false,
            state: State::Header,
            levels: Levels::default(),
            header: Vec::new(),
            is_lossy: false,
            decoding: None,
            has_eight_bit_header: false,
        }
    }

    /// A converter that fails only at [`HEADER_BYTES_MAX`].
    pub fn lossy() -> Self {
        Self { is_lossy: true, ..Self::new() }
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
        if !line.is_empty() {
            self.piece(&line, End::Eof, out)?;
        }
        self.end_entity(Stop::Eof, out)
    }

    /// Keeps the beginning of a line; if it is long, passes it on, all but a CR that may be half a line end.
    fn keep(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        self.line.extend_from_slice(bytes);
        if self.line.len() <= LINE_BYTES_MAX {
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
        if start && end != End::Open {
            if text.starts_with(b"--")
                && let Some((level, closes)) = self.levels.delimiter(text)
            {
                self.end_entity(Stop::Delimiter, out)?;
                self.begin_at(level, closes);
                out.extend_from_slice(text);
                end_line(end, out);
                return Ok(());
            }
            if text.is_empty() && matches!(self.state, State::Header) {
                return self.header_done(true, out);
            }
        }
        match &mut self.state {
            State::Header => {
                self.header.extend_from_slice(text);
                end_line(end, &mut self.header);
                if self.header.len() > HEADER_BYTES_MAX {
                    return Err(ConvertError::HeaderTooLarge);
                }
            }
            State::Copy => {
                out.extend_from_slice(text);
                end_line(end, out);
            }
            State::Filler => {
                push_masked(text, out);
                end_line(end, out);
            }
            State::Pass(Encoding::QuotedPrintable) => {
                quoted::escape_high(text, out);
                end_line(end, out);
            }
            State::Pass(_) => {
                out.extend(text.iter().filter(|b| b.is_ascii() && **b != 0));
                end_line(end, out);
            }
            State::Refuse => {
                if !is_plain(text) && !self.is_lossy {
                    return Err(ConvertError::NotEncodable);
                }
                push_masked(text, out);
                end_line(end, out);
            }
            State::Qp(encoder) => {
                encoder.push(text, out);
                match end {
                    End::Open => {}
                    End::Crlf => encoder.end_line(out),
                    End::Eof => encoder.finish(out),
                }
            }
            State::Hold { body, eight_bit, .. } => {
                *eight_bit |= !is_plain(text);
                body.extend_from_slice(text);
                end_line(end, body);
                if body.len() > HOLD_BYTES_MAX {
                    return self.release(Stop::Full { is_line_open: end == End::Open }, out);
                }
            }
        }
        Ok(())
    }

    /// Behind a delimiter of `level`.
    fn begin_at(&mut self, level: usize, closes: bool) {
        self.levels.truncate(if closes { level } else { level + 1 });
        self.state = if closes { self.filler() } else { State::Header };
    }

    fn filler(&self) -> State {
        if self.decoding.is_some() { State::Copy } else { State::Filler }
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
        let next = match std::mem::replace(&mut facts.kind, Kind::Leaf) {
            // Whatever encoding it claims: readers look for its delimiters all the same (RFC 2045 6.4 forbids it).
            Kind::Multipart { boundary, digest } => {
                self.levels.push(Level::Multipart { boundary, digest });
                State::Filler
            }
            Kind::Message if identity => {
                self.levels.push(Level::Message);
                State::Header
            }
            Kind::Leaf if identity => {
                self.state = State::Hold { facts, body: Vec::new(), eight_bit: false };
                return Ok(());
            }
            Kind::Leaf if facts.encoding != Encoding::Unknown => State::Pass(facts.encoding),
            _ => State::Refuse,
        };
        let is_too_deep = self.levels.len() > LEVELS_MAX;
        if is_too_deep && !self.is_lossy {
            return Err(ConvertError::TooDeep);
        }
        header::write_seven_bit(&self.header, &facts, self.is_lossy, out)?;
        self.header.clear();
        self.state = next;
        if is_too_deep {
            self.levels.truncate(LEVELS_MAX);
            self.state = State::Refuse;
        }
        Ok(())
    }

    /// Lets the leaf that is held go, encoded if it must be, or decoded if it may be.
    fn release(&mut self, stop: Stop, out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let State::Hold { facts, body, eight_bit } = std::mem::replace(&mut self.state, State::Filler) else {
            return Ok(());
        };
        let header = std::mem::take(&mut self.header);
        if self.decoding.is_some() {
            self.release_decoded((&header, &facts), &body, stop, out);
            return Ok(());
        }
        self.has_eight_bit_header |= eight_bit && facts.is_global;
        if !eight_bit && body.len() <= HOLD_BYTES_MAX {
            header::write_seven_bit(&header, &facts, self.is_lossy, out)?;
            out.extend_from_slice(&body);
            return Ok(());
        }
        // A cut at the limit may fall within a character; that alone makes no text anything but UTF-8.
        let cut = body.len() > HOLD_BYTES_MAX;
        let utf8 = std::str::from_utf8(&body).map_or_else(|error| cut && error.error_len().is_none(), |_| true);
        header::write_quoted(&header, &facts, utf8, self.is_lossy, out)?;
        let mut encoder = QuotedPrintable::default();
        let mut rest = body.as_slice();
        while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
            encoder.push(&rest[..at], out);
            encoder.end_line(out);
            rest = &rest[at + 2..];
        }
        encoder.push(rest, out);
        if stop != (Stop::Full { is_line_open: true }) {
            encoder.finish(out);
        }
        self.state = State::Qp(encoder);
        Ok(())
    }
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

/// Appends `text` with `?` for octets over 127 and NULs.
fn push_masked(text: &[u8], out: &mut Vec<u8>) {
    out.extend(text.iter().map(|&b| if b.is_ascii() && b != 0 { b } else { b'?' }));
}
