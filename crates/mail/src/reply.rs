//! SMTP replies: those that we give (RFC 5321 section 4.2, RFC 2034) and the parser for those that servers give us.
//!
//! A refusal is one value, [`Reply`]; whether it is temporary is derived from its code, never stated beside it. What is
//! written is one line, cannot hold a line end, and fits the reply line of RFC 5321 section 4.5.3.1.5.
//!
//! [`ReplyParser`] takes bytes from a server that may be hostile: a line, the number of lines and the whole reply are
//! capped, memory is bounded by the caps, and text is made printable before anyone sees it. It tolerates a bare LF as
//! a line end, as every client in the field does. Failure answer: [`ReplyError`], after which the connection is of no
//! use, since nobody can tell where the next reply starts.

use std::borrow::Cow;
use std::fmt;

/// Longest reply line that we write, in octets with its CRLF (RFC 5321 section 4.5.3.1.5).
pub const REPLY_LINE_BYTES_MAX: usize = 512;
/// Longest line taken from a server, in octets without its line end. The RFC's 512 is often overstepped by one URL.
pub const PARSED_LINE_BYTES_MAX: usize = 2048;
/// Most lines taken in one reply.
pub const PARSED_LINES_MAX: usize = 100;
/// Most octets of text taken in one reply.
pub const PARSED_REPLY_BYTES_MAX: usize = 16 * 1024;

/// An enhanced status code (RFC 3463): `class.subject.detail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Enhanced {
    pub class: u8,
    pub subject: u16,
    pub detail: u16,
}

impl Enhanced {
    /// The code `class.subject.detail`.
    pub const fn new(class: u8, subject: u16, detail: u16) -> Self {
        Self { class, subject, detail }
    }

    /// Reads a code off the start of `text`: it ends at a space or at the end. `None` if there is none.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split(' ').next()?;
        let mut parts = word.split('.');
        let mut number = |digits_max: usize| -> Option<u16> {
            let part = parts.next()?;
            let valid = (1..=digits_max).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            if valid { part.parse().ok() } else { None }
        };
        let (class, subject, detail) = (number(1)?, number(3)?, number(3)?);
        (parts.next().is_none() && matches!(class, 2 | 4 | 5)).then_some(Self { class: class as u8, subject, detail })
    }
}

impl fmt::Display for Enhanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.class, self.subject, self.detail)
    }
}

/// A reply that we give: code, enhanced code, public text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    pub enhanced: Option<Enhanced>,
    pub text: Cow<'static, str>,
}

impl Reply {
    /// A reply with a constant text; usable in constants.
    pub const fn fixed(code: u16, (class, subject, detail): (u8, u16, u16), text: &'static str) -> Self {
        Self { code, enhanced: Some(Enhanced::new(class, subject, detail)), text: Cow::Borrowed(text) }
    }

    /// A reply without an enhanced code (greeting, 354, answers to HELO: RFC 2034 section 4).
    pub const fn plain(code: u16, text: &'static str) -> Self {
        Self { code, enhanced: None, text: Cow::Borrowed(text) }
    }

    /// A reply with any text; what cannot go on one line of ASCII is replaced when it is written.
    pub fn new(code: u16, (class, subject, detail): (u8, u16, u16), text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, enhanced: Some(Enhanced::new(class, subject, detail)), text: text.into() }
    }

    /// 2xx or 3xx: the command was taken.
    pub const fn is_success(&self) -> bool {
        is_success(self.code)
    }

    /// 4xx: trying again may help.
    pub const fn is_temporary(&self) -> bool {
        is_temporary(self.code)
    }

    /// 5xx: trying again as it is will not help.
    pub const fn is_permanent(&self) -> bool {
        is_permanent(self.code)
    }

    /// Appends the reply as one line with its CRLF.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        debug_assert!((200..600).contains(&self.code), "reply code {}", self.code);
        let start = out.len();
        push_number(out, self.code);
        out.push(b' ');
        if let Some(enhanced) = self.enhanced {
            push_number(out, u16::from(enhanced.class));
            out.push(b'.');
            push_number(out, enhanced.subject);
            out.push(b'.');
            push_number(out, enhanced.detail);
            out.push(b' ');
        }
        let room = REPLY_LINE_BYTES_MAX - 2 - (out.len() - start);
        let text = &self.text.as_bytes()[..self.text.len().min(room)];
        if text.iter().all(|&byte| is_printable(byte)) {
            out.extend_from_slice(text);
        } else {
            out.extend(text.iter().map(|&byte| if is_printable(byte) { byte } else { b'?' }));
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The reply as one line without its CRLF, for logs.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Vec::with_capacity(self.text.len() + 16);
        self.write_to(&mut line);
        line.truncate(line.len() - 2);
        f.write_str(&String::from_utf8_lossy(&line))
    }
}

const fn is_success(code: u16) -> bool {
    code >= 200 && code < 400
}

const fn is_temporary(code: u16) -> bool {
    code >= 400 && code < 500
}

const fn is_permanent(code: u16) -> bool {
    code >= 500 && code < 600
}

fn is_printable(byte: u8) -> bool {
    (b' '..0x7f).contains(&byte)
}

fn push_number(out: &mut Vec<u8>, number: u16) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// A whole reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedReply {
    /// 200 to 599.
    pub code: u16,
    /// The enhanced code at the start of the first line, if there is one.
    pub enhanced: Option<Enhanced>,
    /// All that follows the code and its separator, an enhanced code included; lines joined by LF. Holds no other
    /// control characters; what was not UTF-8 is `?`.
    pub text: String,
}

impl ParsedReply {
    /// 2xx or 3xx.
    pub const fn is_success(&self) -> bool {
        is_success(self.code)
    }

    /// 4xx.
    pub const fn is_temporary(&self) -> bool {
        is_temporary(self.code)
    }

    /// 5xx.
    pub const fn is_permanent(&self) -> bool {
        is_permanent(self.code)
    }

    /// The lines of the text; always at least one.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.split('\n')
    }
}

/// `550 5.1.1 No such user`: the reply on one line, as logs and Diagnostic-Code show it.
impl fmt::Display for ParsedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        for line in self.lines().filter(|line| !line.is_empty()) {
            write!(f, " {line}")?;
        }
        Ok(())
    }
}

/// Why a server's bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    #[error("reply line is not a reply code and text")]
    Syntax,
    #[error("lines of one reply have different codes")]
    MixedCodes,
    #[error("reply line is too long")]
    LineTooLong,
    #[error("reply has too many lines")]
    TooManyLines,
    #[error("reply is too long")]
    TooLong,
}

/// Incremental parser of server replies; holds at most [`PARSED_REPLY_BYTES_MAX`] and a line.
#[derive(Debug, Default)]
pub struct ReplyParser {
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
    text: String,
    code: Option<u16>,
    lines: usize,
}

impl ReplyParser {
    /// A parser at the start of a reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input` up to the end of one reply and returns it; `None` once `input` is used up.
    pub fn push(&mut self, input: &mut &[u8]) -> Result<Option<ParsedReply>, ReplyError> {
        while let Some(end) = memchr::memchr(b'\n', input) {
            let (head, rest) = input.split_at(end);
            *input = &rest[1..];
            let last = if self.line.is_empty() {
                self.take_line(head)?
            } else {
                self.keep(head)?;
                let line = std::mem::take(&mut self.line);
                let last = self.take_line(&line)?;
                self.line = line;
                self.line.clear();
                last
            };
            if last {
                return Ok(Some(self.finish()));
            }
        }
        let rest = std::mem::take(input);
        self.keep(rest)?;
        Ok(None)
    }

    /// Whether part of a reply has come: a server that closes now has cut it off.
    pub fn is_mid_reply(&self) -> bool {
        self.code.is_some() || !self.line.is_empty()
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), ReplyError> {
        // One octet more than the cap, for the CR.
        if self.line.len() + part.len() > PARSED_LINE_BYTES_MAX + 1 {
            return Err(ReplyError::LineTooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Takes one line without its LF; true if it ends the reply.
    fn take_line(&mut self, line: &[u8]) -> Result<bool, ReplyError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > PARSED_LINE_BYTES_MAX {
            return Err(ReplyError::LineTooLong);
        }
        let (code, more, text) = split_line(line)?;
        if self.code.is_some_and(|first| first != code) {
            return Err(ReplyError::MixedCodes);
        }
        if self.lines == PARSED_LINES_MAX {
            return Err(ReplyError::TooManyLines);
        }
        if self.text.len() + text.len() + 1 > PARSED_REPLY_BYTES_MAX {
            return Err(ReplyError::TooLong);
        }
        if self.lines > 0 {
            self.text.push('\n');
        }
        push_printable(&mut self.text, text);
        self.code = Some(code);
        self.lines += 1;
        Ok(!more)
    }

    fn finish(&mut self) -> ParsedReply {
        let text = std::mem::take(&mut self.text);
        let code = self.code.take().unwrap_or_default();
        self.lines = 0;
        let first = text.split('\n').next().unwrap_or_default();
        // RFC 2034 section 4: the class must agree with the code, or it is not an enhanced code.
        let enhanced = Enhanced::parse(first).filter(|enhanced| u16::from(enhanced.class) == code / 100);
        ParsedReply { code, enhanced, text }
    }
}

/// Code, whether more lines follow, text.
fn split_line(line: &[u8]) -> Result<(u16, bool, &[u8]), ReplyError> {
    let [a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = line else {
        return Err(ReplyError::Syntax);
    };
    let code = [a, b, c].iter().fold(0, |code, &&digit| code * 10 + u16::from(digit - b'0'));
    match rest {
        [] => Ok((code, false, rest)),
        [b' ', text @ ..] => Ok((code, false, text)),
        [b'-', text @ ..] => Ok((code, true, text)),
        _ => Err(ReplyError::Syntax),
    }
}

fn push_printable(out: &mut String, text: &[u8]) {
    match std::str::from_utf8(text) {
        Ok(text) if text.bytes().all(is_printable) => out.push_str(text),
        Ok(text) => out.extend(text.chars().map(|c| if c.is_control() { '?' } else { c })),
        Err(_) => out.extend(text.iter().map(|&byte| if is_printable(byte) { byte as char } else { '?' })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn parse_all(mut input: &[u8]) -> Result<Vec<ParsedReply>, ReplyError> {
        let mut parser = ReplyParser::new();
        let mut replies = Vec::new();
        while let Some(reply) = parser.push(&mut input)? {
            replies.push(reply);
        }
        Ok(replies)
    }

    #[test]
    fn writes_one_line() {
        assert_eq!(line(&Reply::fixed(250, (2, 1, 5), "Ok")), "250 2.1.5 Ok\r\n");
        assert_eq!(line(&Reply::plain(354, "Go")), "354 Go\r\n");
        assert_eq!(line(&Reply::new(550, (5, 7, 1), "a\r\n250 é")), "550 5.7.1 a??250 ??\r\n");
        assert_eq!(line(&Reply::new(550, (5, 7, 999), "x".repeat(9999))).len(), REPLY_LINE_BYTES_MAX);
        assert_eq!(Reply::fixed(452, (4, 3, 1), "Full").to_string(), "452 4.3.1 Full");
    }

    #[test]
    fn kind_follows_the_code() {
        let reply = Reply::fixed(451, (4, 3, 0), "Later");
        assert!(reply.is_temporary() && !reply.is_permanent() && !reply.is_success());
        assert!(Reply::plain(354, "Go").is_success());
        assert!(Reply::plain(550, "No").is_permanent());
    }

    #[test]
    fn parses_single_and_multi_line_replies() {
        let replies = parse_all(b"250-a.org Hi\r\n250-SIZE 10\r\n250 DSN\r\n550 5.1.1 No such\nx").unwrap();
        assert_eq!(replies[0].lines().collect::<Vec<_>>(), ["a.org Hi", "SIZE 10", "DSN"]);
        assert_eq!(replies[1].enhanced, Some(Enhanced::new(5, 1, 1)));
        assert_eq!(replies[1].to_string(), "550 5.1.1 No such");
        assert_eq!(parse_all(b"220\r\n").unwrap()[0].to_string(), "220");
    }

    #[test]
    fn an_enhanced_code_of_another_class_is_text() {
        assert_eq!(parse_all(b"450 5.1.1 odd\r\n").unwrap()[0].enhanced, None);
        assert_eq!(Enhanced::parse("2.0.0"), Some(Enhanced::new(2, 0, 0)));
        for bad in ["3.0.0 x", "2.0 x", "2.0.0.0", "2.1000.0", "2..0", "+2.0.0", ""] {
            assert_eq!(Enhanced::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn hostile_replies_are_capped() {
        assert_eq!(parse_all(&[b"250 ".as_slice(), &vec![b'a'; 3000], b"\r\n"].concat()), Err(ReplyError::LineTooLong));
        assert_eq!(parse_all(&vec![b'2'; 5000]), Err(ReplyError::LineTooLong));
        assert_eq!(parse_all(&b"250-x\r\n".repeat(101)), Err(ReplyError::TooManyLines));
        let long = [b"250-".as_slice(), &vec![b'a'; 2000], b"\r\n"].concat();
        assert_eq!(parse_all(&long.repeat(9)), Err(ReplyError::TooLong));
        assert_eq!(parse_all(b"250-a\r\n550 b\r\n"), Err(ReplyError::MixedCodes));
        for bad in [&b"hello\r\n"[..], b"\r\n", b"150 x\r\n", b"999 x\r\n", b"25\r\n", b"250x\r\n"] {
            assert_eq!(parse_all(bad), Err(ReplyError::Syntax), "{bad:?}");
        }
    }

    #[test]
    fn text_is_made_printable() {
        assert_eq!(parse_all(b"250 a\x1b[0m\rb\0\r\n").unwrap()[0].text, "a?[0m?b?");
        assert_eq!(parse_all(b"250 \xff\xe9\r\n").unwrap()[0].text, "??");
        assert_eq!(parse_all("250 é\r\n".as_bytes()).unwrap()[0].text, "é");
    }

    proptest! {
        #[test]
        fn segmentation_does_not_matter(lines in proptest::collection::vec("(250|550)[ -][a-z0-9 .]{0,20}\r?\n", 0..6), cut in 0usize..50) {
            let input = lines.concat().into_bytes();
            let whole = parse_all(&input);
            let mut parser = ReplyParser::new();
            let mut pieces = Vec::new();
            let mut failed = None;
            'outer: for mut chunk in input.chunks(cut % 7 + 1) {
                loop {
                    match parser.push(&mut chunk) {
                        Ok(Some(reply)) => pieces.push(reply),
                        Ok(None) => break,
                        Err(error) => {
                            failed = Some(error);
                            break 'outer;
                        }
                    }
                }
            }
            prop_assert_eq!(whole, failed.map_or(Ok(pieces), Err));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(replies) = parse_all(&bytes) {
                for reply in replies {
                    prop_assert!(!reply.to_string().chars().any(char::is_control));
                }
            }
        }
    }
}
