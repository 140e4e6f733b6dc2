//! The SMTP replies that we send (RFC 5321 section 4.2, RFC 2034).
//!
//! A refusal is one value, [`Reply`]; its code says whether it is temporary. A line end in its text begins another line
//! of the same reply (RFC 5321 section 4.2.1), which the operator's own texts may have. Each line fits that of section
//! 4.5.3.1.5: untrusted text is truncated and made printable, so writing cannot fail.
//!
//! The client parses servers' replies (`client::reply_parser`).

use std::borrow::Cow;
use std::fmt;

/// Longest reply line that we write, in octets, including its CRLF (RFC 5321 section 4.5.3.1.5).
pub const REPLY_LINE_BYTES_MAX: usize = 512;
/// Maximum lines of one reply; further ones are left out.
pub const REPLY_LINES_MAX: usize = 20;
/// An enhanced status code (RFC 3463): `class.subject.detail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Enhanced {
    pub class: u8,
    pub subject: u16,
    pub detail: u16,
}

impl Enhanced {
    /// Creates the code `class.subject.detail`.
    pub const fn new(class: u8, subject: u16, detail: u16) -> Self {
        Self { class, subject, detail }
    }

    /// Parses a code at the start of `text`, ended by a space or by the end of the text. `None` if there is none.
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

/// A reply that we send: code, enhanced code, public text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    pub enhanced: Option<Enhanced>,
    pub text: Cow<'static, str>,
    /// The limit of ours that it reports.
    pub limit: Option<OwnLimit>,
}

/// A limit of the session's own. Its hits are counted by this value, since rules, milters and others choose any codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnLimit {
    /// A client's errors, and its commands without a message.
    Errors,
    /// Recipients of a message.
    Recipients,
    MessageSize,
}

impl Reply {
    /// Creates a reply with a constant text; usable in constants.
    pub const fn fixed(code: u16, enhanced: Enhanced, text: &'static str) -> Self {
        Self { code, enhanced: Some(enhanced), text: Cow::Borrowed(text), limit: None }
    }

    /// Creates a reply about a limit of ours, with a constant text.
    pub const fn of_limit(limit: OwnLimit, code: u16, enhanced: Enhanced, text: &'static str) -> Self {
        Self { code, enhanced: Some(enhanced), text: Cow::Borrowed(text), limit: Some(limit) }
    }

    /// Creates a reply without an enhanced code (greeting, 354, answers to HELO: RFC 2034 section 4).
    pub const fn plain(code: u16, text: &'static str) -> Self {
        Self { code, enhanced: None, text: Cow::Borrowed(text), limit: None }
    }

    /// Creates a reply with any text; characters that do not fit on one line of ASCII are replaced when it is written.
    pub fn new(code: u16, enhanced: Enhanced, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, enhanced: Some(enhanced), text: text.into(), limit: None }
    }

    /// Whether the code is 2xx or 3xx: the command was accepted.
    pub const fn is_success(&self) -> bool {
        self.code >= 200 && self.code < 400
    }

    /// Whether the code is 4xx: a retry may succeed.
    pub const fn is_temporary(&self) -> bool {
        self.code >= 400 && self.code < 500
    }

    /// Whether the code is 5xx: an unchanged retry will not succeed.
    pub const fn is_permanent(&self) -> bool {
        self.code >= 500 && self.code < 600
    }

    /// Appends the reply, usually one line, each with its CRLF.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        debug_assert!((200..600).contains(&self.code), "reply code {}", self.code);
        let mut lines = self.text.split('\n').take(REPLY_LINES_MAX).peekable();
        while let Some(line) = lines.next() {
            let is_last = lines.peek().is_none();
            self.write_line(line.trim_end_matches('\r'), is_last, out);
        }
    }

    fn write_line(&self, line: &str, is_last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        push_number(out, self.code);
        out.push(if is_last { b' ' } else { b'-' });
        if let Some(enhanced) = self.enhanced {
            push_number(out, u16::from(enhanced.class));
            out.push(b'.');
            push_number(out, enhanced.subject);
            out.push(b'.');
            push_number(out, enhanced.detail);
            out.push(b' ');
        }
        let room = REPLY_LINE_BYTES_MAX - 2 - (out.len() - start);
        let text = &line.as_bytes()[..line.len().min(room)];
        if text.iter().all(|&byte| is_printable(byte)) {
            out.extend_from_slice(text);
        } else {
            out.extend(text.iter().map(|&byte| if is_printable(byte) { byte } else { b'?' }));
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Formats the reply as one line without its CRLF, for logs.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Vec::with_capacity(self.text.len() + 16);
        self.write_line(&self.text.replace("\r\n", " ").replace('\n', " "), true, &mut line);
        line.truncate(line.len() - 2);
        f.write_str(&String::from_utf8_lossy(&line))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn writes_its_lines() {
        assert_eq!(line(&Reply::fixed(250, Enhanced::new(2, 1, 5), "Ok")), "250 2.1.5 Ok\r\n");
        assert_eq!(line(&Reply::plain(354, "Go")), "354 Go\r\n");
        let two = Reply::new(550, Enhanced::new(5, 7, 1), "a\r\n250 é");
        assert_eq!(line(&two), "550-5.7.1 a\r\n550 5.7.1 250 ??\r\n");
        assert_eq!(two.to_string(), "550 5.7.1 a 250 ??");
        assert_eq!(line(&Reply::plain(500, "\n".repeat(99).leak())).lines().count(), REPLY_LINES_MAX);
        assert_eq!(line(&Reply::new(550, Enhanced::new(5, 7, 999), "x".repeat(9999))).len(), REPLY_LINE_BYTES_MAX);
        assert_eq!(Reply::fixed(452, Enhanced::new(4, 3, 1), "Full").to_string(), "452 4.3.1 Full");
    }

    #[test]
    fn kind_follows_the_code() {
        let reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "Later");
        assert!(reply.is_temporary() && !reply.is_permanent() && !reply.is_success());
        assert!(Reply::plain(354, "Go").is_success());
        assert!(Reply::plain(550, "No").is_permanent());
    }

    #[test]
    fn enhanced_codes_are_read_strictly() {
        assert_eq!(Enhanced::parse("2.0.0"), Some(Enhanced::new(2, 0, 0)));
        assert_eq!(Enhanced::parse("5.7.133 No"), Some(Enhanced::new(5, 7, 133)));
        for bad in ["3.0.0 x", "2.0 x", "2.0.0.0", "2.1000.0", "2..0", "+2.0.0", "2.0.0x", ""] {
            assert_eq!(Enhanced::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_one_reply_of_printable_lines(text in any::<String>(), code in 200u16..600) {
            let reply = line(&Reply::new(code, Enhanced::new((code / 100) as u8, 0, 0), text));
            let lines: Vec<&str> = reply.split_inclusive("\r\n").collect();
            for (n, line) in lines.iter().enumerate() {
                prop_assert!(line.len() <= REPLY_LINE_BYTES_MAX && line.ends_with("\r\n"));
                prop_assert!(line[..line.len() - 2].bytes().all(is_printable));
                let sign = if n + 1 == lines.len() { ' ' } else { '-' };
                let start = format!("{code}{sign}");
                prop_assert!(line.starts_with(&start));
            }
        }
    }
}
