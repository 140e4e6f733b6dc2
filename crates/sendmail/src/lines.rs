//! Reads the lines of a message on standard input as sendmail does.
//!
//! Promise: a line ends with LF, or with CR LF; a line of a single dot ends the message unless `-i` was given; mbox
//! lines (`From `, `>From `) before the header are removed. Memory: one part of [`PART_BYTES_MAX`], however long a
//! line is. The stored message only has LF line ends, and no body line over [`BODY_LINE_BYTES_MAX`]: a bare CR (as in
//! the progress display of a cron job) becomes a line end, since SMTP forbids it.

use std::io::{self, BufRead, Read};

/// Maximum octets of a line that are read at a time.
const PART_BYTES_MAX: u64 = 64 * 1024;
/// Maximum length of a body line (RFC 5322 section 2.1.1); a longer one is continued on a line that begins with a
/// space, as in Postfix.
pub const BODY_LINE_BYTES_MAX: usize = 998;

/// Result of [`Lines::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A line, or the last part of one.
    Line,
    /// A part of a line that continues.
    Begun,
    /// The end of the message.
    End,
}

pub struct Lines<R> {
    reader: R,
    ends_at_dot: bool,
    /// Whether there have only been mbox lines so far.
    is_before: bool,
    /// Whether a line has begun.
    inside: bool,
    /// Whether a part ended with a CR, which may belong to a line end.
    cr: bool,
    over: bool,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, ends_at_dot: bool) -> Lines<R> {
        Lines { reader, ends_at_dot, is_before: true, inside: false, cr: false, over: false }
    }

    /// Reads the next line, or a part of it, into `line`, without its end.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Part> {
        loop {
            let part = self.read(line)?;
            if part == Part::Line && !self.inside && self.ends_at_dot && line == b"." {
                self.over = true;
                return Ok(Part::End);
            }
            let is_mbox = part == Part::Line && self.is_before && is_mbox_line(line);
            self.is_before &= is_mbox;
            self.inside = part == Part::Begun;
            if !is_mbox {
                return Ok(part);
            }
        }
    }

    fn read(&mut self, line: &mut Vec<u8>) -> io::Result<Part> {
        line.clear();
        if self.over {
            return Ok(Part::End);
        }
        if std::mem::take(&mut self.cr) {
            line.push(b'\r');
        }
        let n = self.reader.by_ref().take(PART_BYTES_MAX).read_until(b'\n', line)?;
        if line.is_empty() && n == 0 {
            self.over = true;
            return Ok(Part::End);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if n as u64 == PART_BYTES_MAX {
            self.cr = line.last() == Some(&b'\r');
            if self.cr {
                line.pop();
            }
            return Ok(Part::Begun);
        }
        while line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Part::Line)
    }
}

fn is_mbox_line(line: &[u8]) -> bool {
    let quotes = line.iter().take_while(|byte| **byte == b'>').count();
    line[quotes..].starts_with(b"From ")
}

/// Writes lines of the body in stored form.
#[derive(Default)]
pub struct BodyLines {
    column: usize,
}

impl BodyLines {
    /// Appends a line or a part of one.
    pub fn push(&mut self, line: &[u8], part: Part, out: &mut Vec<u8>) {
        for (i, piece) in line.split(|byte| *byte == b'\r').enumerate() {
            if i > 0 {
                self.end_line(out);
            }
            self.piece(piece, out);
        }
        if part == Part::Line {
            self.end_line(out);
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
        self.column = 0;
    }

    fn piece(&mut self, mut piece: &[u8], out: &mut Vec<u8>) {
        while self.column + piece.len() > BODY_LINE_BYTES_MAX {
            let most = BODY_LINE_BYTES_MAX - self.column;
            // No character is split, unless the text is not UTF-8.
            let starts = |at: &usize| piece[*at] & 0xc0 != 0x80;
            let at = (most.saturating_sub(3)..=most).rev().find(starts).unwrap_or(most);
            let (now, rest) = piece.split_at(at);
            out.extend_from_slice(now);
            out.extend_from_slice(b"\n ");
            (self.column, piece) = (1, rest);
        }
        out.extend_from_slice(piece);
        self.column += piece.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], ends_at_dot: bool) -> Vec<String> {
        let mut lines = Lines::new(io::BufReader::with_capacity(7, input), ends_at_dot);
        let (mut line, mut all) = (Vec::new(), Vec::new());
        while lines.next(&mut line).unwrap() != Part::End {
            all.push(String::from_utf8(line.clone()).unwrap());
        }
        all
    }

    #[test]
    fn lines_end_as_sendmail_ends_them() {
        assert_eq!(read(b"a\n.\nb\n", true), ["a"]);
        assert_eq!(read(b"a\r\n.\r\nb", true), ["a"]);
        assert_eq!(read(b"a\n.\n..\nb", false), ["a", ".", "..", "b"]);
        assert_eq!(read(b"a\r\nb\r\r\n\nc\rd", true), ["a", "b", "", "c\rd"]);
        assert_eq!(read(b"", true), [""; 0]);
        assert_eq!(read(b"a\n.", true), ["a"]);
    }

    #[test]
    fn mbox_lines_before_the_header_are_left_out() {
        assert_eq!(read(b"From root Mon\n>From x\nFrom: y\n\nFrom here\n", false), ["From: y", "", "From here"]);
        assert_eq!(read(b"Subject: y\nFrom x\n", false), ["Subject: y", "From x"]);
    }

    #[test]
    fn a_line_of_any_length_is_read_in_parts() {
        let long = "x".repeat(PART_BYTES_MAX as usize);
        let mut lines = Lines::new(io::Cursor::new(format!("{long}\n{long}.\r\n{long}.\n.")), true);
        let (mut line, mut parts) = (Vec::new(), Vec::new());
        loop {
            let part = lines.next(&mut line).unwrap();
            parts.push((part, line.len()));
            if part == Part::End {
                break;
            }
        }
        let whole = PART_BYTES_MAX as usize;
        let begun = (Part::Begun, whole);
        assert_eq!(parts, [begun, (Part::Line, 0), begun, (Part::Line, 1), begun, (Part::Line, 1), (Part::End, 1)]);
        // A CR at the end of a part is held until the next octet is known.
        let cut = "x".repeat(whole - 1);
        assert_eq!(read(format!("{cut}\r\ny").as_bytes(), true), [cut.clone(), String::new(), "y".to_owned()]);
        assert_eq!(read(format!("{cut}\ry").as_bytes(), true), [cut, "\ry".to_owned()]);
    }

    fn stored(lines: &[&str]) -> String {
        let (mut body, mut out) = (BodyLines::default(), Vec::new());
        for line in lines {
            body.push(line.as_bytes(), Part::Line, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bare_carriage_returns_end_lines_and_long_lines_are_continued() {
        assert_eq!(stored(&["10%\r20%\r", "", "."]), "10%\n20%\n\n\n.\n");
        let x = |n: usize| "x".repeat(n);
        assert_eq!(stored(&[&x(998)]), x(998) + "\n");
        assert_eq!(stored(&[&x(999)]), format!("{}\n x\n", x(998)));
        assert_eq!(stored(&[&x(1996)]), format!("{}\n {}\n x\n", x(998), x(997)));
        assert_eq!(stored(&[&format!("{}ää", x(997))]), format!("{}\n ää\n", x(997)));
        assert_eq!(stored(&[&format!("{}\u{1f4e7}", x(995))]), format!("{}\n \u{1f4e7}\n", x(995)));
        let (mut body, mut out) = (BodyLines::default(), Vec::new());
        body.push(&[0xbf; 1000], Part::Begun, &mut out);
        body.push(&[0xbf; 1000], Part::Line, &mut out);
        assert!(out.split(|byte| *byte == b'\n').all(|line| line.len() <= BODY_LINE_BYTES_MAX));
        assert_eq!(memchr::memchr_iter(0xbf, &out).count(), 2000);
    }
}
