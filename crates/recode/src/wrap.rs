//! Lines over [`LINE_BYTES_MAX`] octets in what is not encoded anew: broken so that it decodes to the same, or, where nothing says how
//! it is encoded or nobody may encode it (RFC 1847 section 2.1), as Postfix's `smtp_line_length_limit` does, by CRLF and a space.
//!
//! Promises: no line written is longer, whatever comes; the output does not depend on where pieces are cut; a line that was short
//! stays as it is; no line that is broken begins with two dashes behind a break, so that none is taken for a delimiter of a multipart.

use stentor_mime::quoted::escaped;
use stentor_mime::transfer::Encoding;

use super::{End, LINE_BYTES_MAX, Octets, end_line};

/// Octets of a line within a part that is encoded anew or broken (RFC 2045 sections 6.7 and 6.8 say 76).
const COLUMN_MAX: usize = 75;
/// Longest delimiter that some reader may take for one, without white space behind it.
const DELIMITER_BYTES_MAX: usize = 512;
/// White space in a quoted-printable line that is held until it is known whether the line ends behind it.
const SPACES_MAX: usize = 8 * 1024;

/// How lines are broken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Anywhere: readers drop line ends (RFC 2045 section 6.8).
    Base64,
    /// By soft line breaks, outside of escapes.
    Quoted {
        /// Octets that belong to the escape before them.
        escape: usize,
        /// Not yet written: at the end of a line it is padding (RFC 2045 section 6.7 rule 3).
        spaces: Vec<u8>,
    },
    /// By CRLF and a space, between characters.
    Hard,
}

/// Writes lines that come in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrap {
    way: Way,
    /// Octets written of the line.
    column: usize,
    /// The line that is being read is too long.
    is_long: bool,
}

impl Wrap {
    /// For a part in this encoding.
    pub(super) fn of(encoding: Encoding) -> Wrap {
        let way = match encoding {
            Encoding::Base64 => Way::Base64,
            Encoding::QuotedPrintable => Way::Quoted { escape: 0, spaces: Vec::new() },
            _ => Way::Hard,
        };
        Wrap { way, column: 0, is_long: false }
    }

    pub(super) fn hard() -> Wrap {
        Wrap { way: Way::Hard, column: 0, is_long: false }
    }

    /// The next piece of a line; `is_start`: its first. What `octets` does not allow becomes an escape, `?`, or is left out, as the encoding has it.
    pub(super) fn piece(&mut self, text: &[u8], is_start: bool, end: End, octets: Octets, out: &mut Vec<u8>) {
        if is_start {
            self.column = 0;
            // What is passed on in pieces is longer than any line may be.
            self.is_long = text.len() > LINE_BYTES_MAX;
        }
        match &mut self.way {
            Way::Base64 => {
                let text = text.iter().copied().filter(|&b| octets.allows(b));
                if self.is_long { self.base64(text, out) } else { out.extend(text) }
            }
            Way::Quoted { .. } if self.is_long => self.quoted(text, end, octets, out),
            Way::Quoted { .. } if octets == Octets::Keep => out.extend_from_slice(text),
            Way::Quoted { .. } => stentor_mime::quoted::escape_high(text, out),
            Way::Hard => {
                // Its first 998 octets could be a delimiter, with white space behind it (RFC 2046 section 5.1.1).
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
            // Not of the alphabet, which readers skip.
            if self.column > 0 || b != b'-' {
                out.push(b);
                self.column += 1;
            }
        }
    }

    fn quoted(&mut self, text: &[u8], end: End, octets: Octets, out: &mut Vec<u8>) {
        let Way::Quoted { escape, spaces } = &mut self.way else { return };
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
            // The octets of the character that it begins.
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
        // Within an escape only where what comes is none: "====".
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

/// Looks for lines over [`LINE_BYTES_MAX`] octets.
///
/// Content of ordinary lines costs a look at its line ends alone, a few for each 1,000 octets.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineScan {
    /// Octets of the line that has begun.
    begun: usize,
    has_long: bool,
}

impl LineScan {
    /// Takes the next octets.
    pub fn push(&mut self, octets: &[u8]) {
        /// A line and its end.
        const WHOLE_BYTES_MAX: usize = LINE_BYTES_MAX + 2;
        let mut rest = octets;
        while !self.has_long {
            let window = &rest[..rest.len().min(WHOLE_BYTES_MAX.saturating_sub(self.begun))];
            if self.begun > 0 {
                // The line was begun in an earlier piece: it ends at the first line end, or is long.
                match memchr::memchr(b'\n', window) {
                    Some(at) => (rest, self.begun) = (&rest[at + 1..], 0),
                    None => return self.go_on(rest.len()),
                }
                continue;
            }
            // Any line end in the window is that of a line which is not too long, if the line begins where the window does.
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

    /// Whether there is one; a last line without an end counts as if it had one.
    pub fn has_long_line(&self) -> bool {
        self.has_long || self.begun > LINE_BYTES_MAX
    }
}
