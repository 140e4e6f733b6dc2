//! Parses replies of a server that may be hostile, at linear cost and in bounded memory, whatever it sends (RFC 5321
//! 4.2).
//!
//! Promise: a reply is returned only when its last line is complete; the same bytes give the same replies however they
//! were split. Text is data: it is copied, without control characters, only on request.
//!
//! Failure: a line over [`LINE_BYTES_MAX`], more than [`LINES_MAX`] lines or [`REPLY_BYTES_MAX`] octets, a malformed
//! reply line, or codes that differ within one reply end the session with a [`ReplyError`]; nothing after it is read.

use std::fmt;
use std::sync::Arc;

use memchr::memchr;
use stentor_mail::reply::Enhanced;

/// Longest reply line, including its line end. RFC 5321 4.5.3.1.5 says 512; some servers send longer ones.
pub const LINE_BYTES_MAX: usize = 2048;
/// Maximum number of lines of one reply.
pub const LINES_MAX: usize = 100;
/// Maximum octets of one reply, all lines together.
pub const REPLY_BYTES_MAX: usize = 16 * 1024;
/// Octets of a reply's text that are kept (for the log, the queue and RFC 3464 reports).
pub const TEXT_BYTES_MAX: usize = 1000;

/// Why a server's octets are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line is over [`LINE_BYTES_MAX`].
    #[error("reply line too long")]
    LineTooLong,
    /// The reply has more than [`LINES_MAX`] lines.
    #[error("reply with too many lines")]
    TooManyLines,
    /// The reply is over [`REPLY_BYTES_MAX`].
    #[error("reply too large")]
    TooLarge,
    /// A line does not begin with a code of three digits from 200 to 599.
    #[error("not an SMTP reply")]
    Malformed,
    /// The lines of one reply have different codes.
    #[error("reply lines with different codes")]
    CodesDiffer,
}

/// An owned reply, with the parts needed by the log, the retry clocks and DSNs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedReply {
    /// 200 to 599.
    pub code: u16,
    /// The enhanced code, if the server gave one whose class agrees with `code`.
    pub enhanced: Option<Enhanced>,
    /// The text of all lines, joined by spaces, without enhanced codes and without control characters. At most
    /// [`TEXT_BYTES_MAX`] octets. Shared: recipients of one transaction point at one text.
    pub text: Arc<str>,
}

impl ParsedReply {
    /// Creates a reply that no server sent, for a lost connection, or for a host that lacks a required feature.
    pub fn made_here(code: u16, enhanced: Enhanced, text: &str) -> Self {
        Self { code, enhanced: Some(enhanced), text: Arc::from(text) }
    }

    /// 2xx.
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// 4xx.
    pub fn is_temporary(&self) -> bool {
        self.code / 100 == 4
    }

    /// 5xx.
    pub fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// Whether this may refuse a parameter (RFC 5321 4.2.2 and 4.1.1.11) rather than the address or the message: an
    /// enhanced code, if present, is about the protocol (RFC 3463 3.6).
    pub(super) fn refuses_parameter(&self) -> bool {
        matches!(self.code, 501 | 504 | 555) && self.is_about_protocol()
    }

    /// Whether this may refuse the command itself, as unknown or out of sequence.
    pub(super) fn refuses_command(&self) -> bool {
        matches!(self.code, 500..=504 | 555) && self.is_about_protocol()
    }

    /// Whether this refuses a command for coming too early.
    pub(super) fn refuses_sequence(&self) -> bool {
        self.code == 503 && self.is_about_protocol()
    }

    fn is_about_protocol(&self) -> bool {
        self.enhanced.is_none_or(|status| status.subject == 5)
    }
}

/// `550 5.1.1 No such user`
impl fmt::Display for ParsedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(status) = self.enhanced {
            write!(f, " {status}")?;
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, " {}", self.text) }
    }
}

/// A complete reply, still in the parser's buffer.
#[derive(Debug, Clone, Copy)]
pub struct ReplyView<'a> {
    /// 200 to 599.
    pub code: u16,
    raw: &'a [u8],
}

impl<'a> ReplyView<'a> {
    /// Returns the text of each line, without code, separator and line end.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let raw = self.raw.strip_suffix(b"\n").unwrap_or(self.raw);
        raw.split(|&b| b == b'\n').map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            line.get(4..).unwrap_or_default()
        })
    }

    /// Returns the enhanced code of the first line.
    pub fn enhanced(&self) -> Option<Enhanced> {
        let line = self.lines().next()?;
        split_status(line, self.code).map(|(status, _)| status)
    }

    /// Appends the text of all lines to `out`: joined by spaces, control characters replaced, at most
    /// [`TEXT_BYTES_MAX`] octets. Invalid UTF-8 is shown as U+FFFD.
    pub fn text_into(&self, out: &mut String) {
        let limit = out.len() + TEXT_BYTES_MAX;
        for (index, line) in self.lines().enumerate() {
            let text = split_status(line, self.code).map_or(line, |(_, rest)| rest);
            if index > 0 && !text.is_empty() && !out.is_empty() {
                out.push(' ');
            }
            for chunk in text.utf8_chunks() {
                out.extend(chunk.valid().chars().map(|c| if c.is_control() { ' ' } else { c }));
                if !chunk.invalid().is_empty() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
            }
            if out.len() >= limit {
                break;
            }
        }
        if out.len() > limit {
            out.truncate(out.floor_char_boundary(limit));
        }
    }

    /// Copies the reply.
    pub fn to_reply(&self) -> ParsedReply {
        let mut text = String::new();
        self.text_into(&mut text);
        ParsedReply { code: self.code, enhanced: self.enhanced(), text: Arc::from(text) }
    }
}

/// Splits a server's bytes into replies. Keeps its buffer for the whole session.
#[derive(Debug, Default)]
pub struct ReplyParser {
    buffer: Vec<u8>,
    /// Start of the reply being read.
    start: usize,
    /// Start of the line being read.
    line_start: usize,
    /// No line end was found before this offset.
    scanned: usize,
    /// Complete lines of the reply being read.
    lines: usize,
    /// Code of these lines.
    code: u16,
}

impl ReplyParser {
    /// Creates an empty parser.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the server. Call [`Self::next_reply`] until it returns `None` before pushing more: the buffer
    /// then never holds more than one unfinished reply.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.line_start -= self.start;
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether the buffer is without an unfinished or unread reply.
    pub fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }

    /// Returns the next complete reply. After an error the connection is unusable.
    pub fn next_reply(&mut self) -> Result<Option<ReplyView<'_>>, ReplyError> {
        loop {
            let Some(at) = memchr(b'\n', &self.buffer[self.scanned..]) else {
                self.scanned = self.buffer.len();
                return self.check_sizes(self.buffer.len()).map(|()| None);
            };
            let end = self.scanned + at + 1;
            self.check_sizes(end)?;
            let (code, last) = parse_line(&self.buffer[self.line_start..end])?;
            if self.lines > 0 && code != self.code {
                return Err(ReplyError::CodesDiffer);
            }
            self.code = code;
            self.lines += 1;
            self.line_start = end;
            self.scanned = end;
            if last {
                let raw = self.start..end;
                self.start = end;
                self.lines = 0;
                return Ok(Some(ReplyView { code, raw: &self.buffer[raw] }));
            }
            if self.lines >= LINES_MAX {
                return Err(ReplyError::TooManyLines);
            }
        }
    }

    /// Checks the reply, and its line that ends (so far) at `end`, against the limits.
    fn check_sizes(&self, end: usize) -> Result<(), ReplyError> {
        if end - self.line_start > LINE_BYTES_MAX {
            return Err(ReplyError::LineTooLong);
        }
        if end - self.start > REPLY_BYTES_MAX { Err(ReplyError::TooLarge) } else { Ok(()) }
    }
}

/// Returns the code of a reply line, and whether it is the last. A lone LF counts as a line end, since some servers
/// send it and it is harmless; a lone CR is text.
fn parse_line(line: &[u8]) -> Result<(u16, bool), ReplyError> {
    let [a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', separator, ..] = *line else {
        return Err(ReplyError::Malformed);
    };
    let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    match separator {
        b'-' => Ok((code, false)),
        b' ' | b'\r' | b'\n' => Ok((code, true)),
        _ => Err(ReplyError::Malformed),
    }
}

/// Splits off the enhanced code at the start of `line`, if its class matches `code` (RFC 2034 section 4).
fn split_status(line: &[u8], code: u16) -> Option<(Enhanced, &[u8])> {
    let end = memchr(b' ', line).unwrap_or(line.len());
    let mut numbers = line[..end].split(|&b| b == b'.');
    let mut number = || {
        let digits = numbers.next()?;
        if digits.is_empty() || digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some(digits.iter().fold(0, |n: u16, d| n * 10 + u16::from(d - b'0')))
    };
    let (class, subject, detail) = (number()?, number()?, number()?);
    if numbers.next().is_some() || class != code / 100 {
        return None;
    }
    let rest = line.get(end + 1..).unwrap_or_default();
    Some((Enhanced::new(class as u8, subject, detail), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Result<Vec<ParsedReply>, ReplyError> {
        let (mut parser, mut replies) = (ReplyParser::new(), Vec::new());
        for piece in pieces {
            parser.push(piece);
            while let Some(reply) = parser.next_reply()? {
                replies.push(reply.to_reply());
            }
        }
        Ok(replies)
    }

    fn one(bytes: &[u8]) -> String {
        let replies = all(&[bytes]).unwrap();
        assert_eq!(replies.len(), 1);
        replies[0].to_string()
    }

    #[test]
    fn lines_are_joined_and_enhanced_codes_taken_off() {
        assert_eq!(one(b"250 ok\r\n"), "250 ok");
        assert_eq!(one(b"250\r\n"), "250");
        assert_eq!(one(b"550-5.1.1 No such\r\n550 5.1.1 user\r\n"), "550 5.1.1 No such user");
        assert_eq!(one(b"550 5.1.1\r\n"), "550 5.1.1");
        // The class must agree, and there must be exactly three numbers.
        for text in ["450 5.1.1 a", "450 4.1 a", "450 4.1.1.1 a", "450 4.1.1000 a", "450 4..1 a"] {
            let reply = &all(&[format!("{text}\r\n").as_bytes()]).unwrap()[0];
            assert_eq!((reply.enhanced, reply.to_string().as_str()), (None, text));
        }
    }

    #[test]
    fn text_is_harmless_and_short() {
        assert_eq!(one(b"250 a\x00b\x1b[1m\tc\rd\r\n"), "250 a b [1m c d");
        assert_eq!(one(b"250 \xff\xc3\xa9\r\n"), "250 \u{fffd}\u{e9}");
        let long = [b"250-".as_slice(), "é".repeat(900).as_bytes(), b"\r\n250 x\r\n"].concat();
        assert_eq!(all(&[&long]).unwrap()[0].text.len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn hostile_replies_are_cut_off() {
        let line = |length: usize| [b"250-".as_slice(), &vec![b'x'; length - 6], b"\r\n"].concat();
        assert_eq!(all(&[&line(LINE_BYTES_MAX)]), Ok(vec![]));
        assert_eq!(all(&[&line(LINE_BYTES_MAX + 1)]), Err(ReplyError::LineTooLong));
        assert_eq!(all(&[&vec![b'2'; LINE_BYTES_MAX + 1]]), Err(ReplyError::LineTooLong));
        assert_eq!(all(&[&b"250-\r\n".repeat(LINES_MAX)]), Err(ReplyError::TooManyLines));
        assert!(all(&[&b"250-\r\n".repeat(LINES_MAX - 1), b"250 \r\n"]).is_ok());
        assert_eq!(all(&[&line(2000).repeat(9)]), Err(ReplyError::TooLarge));
        for bad in ["", "x", "25", "2500", "150 x", "600 x", "250_x", " 250 x", "2 0 x"] {
            assert_eq!(all(&[format!("{bad}\r\n").as_bytes()]), Err(ReplyError::Malformed), "{bad:?}");
        }
        assert_eq!(all(&[b"250-a\r\n251 b\r\n"]), Err(ReplyError::CodesDiffer));
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(text in "([245][0-9]{2}[ -][a-z0-9. ]{0,8}\r?\n){0,6}[ -~]{0,5}", cuts in proptest::collection::vec(0usize..80, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(all(&[bytes]), all(&pieces));
        }

        #[test]
        fn kept_text_holds_no_controls(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let line = [b"250 ".as_slice(), &bytes, b"\r\n250 \r\n"].concat();
            for reply in all(&[&line]).unwrap_or_default() {
                prop_assert!(!reply.text.chars().any(char::is_control) && reply.text.len() <= TEXT_BYTES_MAX);
            }
        }
    }
}
