//! Breaks lines over [`LINE_BYTES_MAX`] octets in content that is not re-encoded, so that it decodes to the same
//! octets. If its encoding is unknown or must not change (RFC 1847 section 2.1), CRLF and a space are inserted, as
//! Postfix's `smtp_line_length_limit` does.
//!
//! Promises: no output line is longer; the output does not depend on how the input is split; short lines are not
//! changed; after a break no line begins with two dashes, so that none is taken for a delimiter of a multipart.

use crate::quoted::escaped;
use crate::transfer::Encoding;

use super::{End, LINE_BYTES_MAX, Octets, end_line};

/// Maximum octets of a line that is broken in an encoded part (RFC 2045 sections 6.7 and 6.8 say 76).
const COLUMN_MAX: usize = 75;
/// Maximum length of a delimiter for any reader, without white space after it.
const DELIMITER_BYTES_MAX: usize = 512;
/// Maximum white space of a quoted-printable line held until it is known whether the line ends after it.
const SPACES_MAX: usize = 8 * 1024;

/// How lines are broken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LineBreaks {
    /// Anywhere: readers ignore line ends (RFC 2045 section 6.8).
    Base64,
    /// By soft line breaks, outside escapes.
    Quoted {
        /// Remaining octets of the current escape.
        escape: usize,
        /// Held white space, which is padding at the end of a line (RFC 2045 section 6.7 rule 3).
        spaces: Vec<u8>,
    },
    /// By CRLF and a space, between characters.
    Hard,
}

/// Writes lines that arrive in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrap {
    breaks: LineBreaks,
    /// Number of octets written of the line.
    column: usize,
    /// Whether the current line is too long.
    is_long: bool,
}

impl Wrap {
    /// For a part in this encoding.
    pub(super) fn of(encoding: Encoding) -> Wrap {
        let breaks = match encoding {
            Encoding::Base64 => LineBreaks::Base64,
            Encoding::QuotedPrintable => LineBreaks::Quoted { escape: 0, spaces: Vec::new() },
            _ => LineBreaks::Hard,
        };
        Wrap { breaks, column: 0, is_long: false }
    }

    pub(super) fn hard() -> Wrap {
        Wrap { breaks: LineBreaks::Hard, column: 0, is_long: false }
    }

    /// Writes the next piece of a line; `is_start`: it is the first. Octets not allowed by `octets` become an escape
    /// or `?`, or are removed, depending on the encoding.
    pub(super) fn piece(&mut self, text: &[u8], is_start: bool, end: End, octets: Octets, out: &mut Vec<u8>) {
        if is_start {
            self.column = 0;
            // A line that arrives in pieces is longer than allowed.
            self.is_long = text.len() > LINE_BYTES_MAX;
        }
        match &mut self.breaks {
            LineBreaks::Base64 => {
                let text = text.iter().copied().filter(|&b| octets.allows(b));
                if self.is_long { self.base64(text, out) } else { out.extend(text) }
            }
            LineBreaks::Quoted { .. } if self.is_long => self.quoted(text, end, octets, out),
            LineBreaks::Quoted { .. } if octets == Octets::Keep => out.extend_from_slice(text),
            LineBreaks::Quoted { .. } => crate::quoted::escape_high(text, out),
            LineBreaks::Hard => {
                // Its first 998 octets could be a delimiter, followed by white space (RFC 2046 section 5.1.1).
                let is_short = |line: &[u8]| line.trim_ascii_end().len() <= DELIMITER_BYTES_MAX;
                if is_start && self.is_long && text.starts_with(b"--") && is_short(&text[..LINE_BYTES_MAX]) {
                    out.push(b' ');
                    self.column = 1;
                }
                self.hard_breaks(text, octets, out);
            }
        }
        end_line(end, out);
    }

    fn base64(&mut self, text: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
        for b in text {
            if self.column > COLUMN_MAX {
                out.extend_from_slice(b"\r\n");
                self.column = 0;
            }
            // A dash is not in the alphabet, so readers ignore it.
            if self.column > 0 || b != b'-' {
                out.push(b);
                self.column += 1;
            }
        }
    }

    fn quoted(&mut self, text: &[u8], end: End, octets: Octets, out: &mut Vec<u8>) {
        let LineBreaks::Quoted { escape, spaces } = &mut self.breaks else { return };
        let mut writer = Soft { column: &mut self.column, escape, out };
        for &b in text {
            if matches!(b, b' ' | b'\t') && spaces.len() < SPACES_MAX {
                spaces.push(b);
                continue;
            }
            for space in spaces.drain(..) {
                writer.put(space);
            }
            if octets.allows(b) { writer.put(b) } else { writer.put_escaped(b) }
        }
        if end != End::Open {
            let left = LINE_BYTES_MAX - (*writer.column).min(LINE_BYTES_MAX);
            spaces.truncate(left);
            writer.out.append(spaces);
            *writer.escape = 0;
        }
    }

    fn hard_breaks(&mut self, text: &[u8], octets: Octets, out: &mut Vec<u8>) {
        if self.column + text.len() <= LINE_BYTES_MAX && octets == Octets::Keep {
            self.column += text.len();
            return out.extend_from_slice(text);
        }
        for &b in text {
            let b = if octets.allows(b) { b } else { b'?' };
            // Number of octets of the character that it starts.
            let wanted = match b {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            if self.column + wanted > LINE_BYTES_MAX {
                out.extend_from_slice(b"\r\n ");
                self.column = 1;
            }
            out.push(b);
            self.column += 1;
        }
    }
}

/// Writes quoted-printable with soft line breaks.
struct Soft<'a> {
    column: &'a mut usize,
    escape: &'a mut usize,
    out: &'a mut Vec<u8>,
}

impl Soft<'_> {
    fn put(&mut self, b: u8) {
        let wanted = if b == b'=' { 3 } else { 1 };
        // Within an escape only if the text is not really one: "====".
        let is_free = *self.escape == 0 || *self.column + wanted > LINE_BYTES_MAX - COLUMN_MAX;
        if is_free && *self.column + wanted > COLUMN_MAX {
            self.soft_break();
        }
        *self.escape = if b == b'=' { 2 } else { self.escape.saturating_sub(1) };
        if *self.column == 0 && b == b'-' {
            return self.push(&escaped(b));
        }
        self.push(&[b]);
    }

    fn put_escaped(&mut self, b: u8) {
        if *self.column + 3 > COLUMN_MAX {
            self.soft_break();
        }
        *self.escape = 0;
        self.push(&escaped(b));
    }

    fn soft_break(&mut self) {
        self.out.extend_from_slice(b"=\r\n");
        *self.column = 0;
    }

    fn push(&mut self, octets: &[u8]) {
        self.out.extend_from_slice(octets);
        *self.column += octets.len();
    }
}

/// Detects lines over [`LINE_BYTES_MAX`] octets.
///
/// For content with ordinary lines only a few line ends per 1,000 octets are searched.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineScan {
    /// Number of octets of the incomplete line.
    begun: usize,
    has_long: bool,
}

impl LineScan {
    /// Examines the next octets.
    pub fn push(&mut self, octets: &[u8]) {
        /// Length of a line including its end.
        const WHOLE_BYTES_MAX: usize = LINE_BYTES_MAX + 2;
        let mut rest = octets;
        while !self.has_long {
            let window = &rest[..rest.len().min(WHOLE_BYTES_MAX.saturating_sub(self.begun))];
            if self.begun > 0 {
                // The line began in an earlier piece: it ends at the first line end, or is long.
                match memchr::memchr(b'\n', window) {
                    Some(at) => (rest, self.begun) = (&rest[at + 1..], 0),
                    None => return self.go_on(rest.len()),
                }
                continue;
            }
            // If the line begins at the start of the window, any line end in the window shows that it is not too
            // long.
            match memchr::memrchr(b'\n', window) {
                Some(at) => rest = &rest[at + 1..],
                None => return self.go_on(rest.len()),
            }
        }
    }

    fn go_on(&mut self, octets: usize) {
        self.begun += octets;
        // A CR may be half of its end.
        self.has_long = self.begun > LINE_BYTES_MAX + 1;
    }

    /// Whether there was a long line; an incomplete last line counts as complete.
    pub fn has_long_line(&self) -> bool {
        self.has_long || self.begun > LINE_BYTES_MAX
    }
}
