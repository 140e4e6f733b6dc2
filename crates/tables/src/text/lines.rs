//! Logical lines as Postfix reads them: a line that begins with whitespace continues the previous one; empty lines
//! and comments are ignored anywhere.

use crate::diagnostic::{FileReport, TableProblem};

/// The characters of C's isspace in the C locale.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

pub(crate) fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

pub(crate) fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    text
}

pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    /// Number of lines read so far.
    taken: u32,
    joined: Vec<u8>,
}

/// A line and its number.
type Line<'a> = (u32, &'a [u8]);

impl<'a> Lines<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self { rest: text, taken: 0, joined: Vec::new() }
    }

    /// The next physical line, without its end.
    pub fn physical(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = match memchr::memchr(b'\n', self.rest) {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        self.taken += 1;
        Some((self.taken, line))
    }

    /// The next line that is neither empty nor a comment.
    fn telling(&mut self) -> Option<Line<'a>> {
        while let Some((number, line)) = self.physical() {
            if !matches!(trim_start(line), [] | [b'#', ..]) {
                return Some((number, line));
            }
        }
        None
    }

    fn continues(&self) -> bool {
        self.rest.first().is_some_and(|&first| first == b'#' || is_space(first))
    }

    /// The next logical line and the number of its first physical line. `None` at the end, or after an error.
    pub fn next(&mut self, report: &mut FileReport<'_>) -> Option<Line<'_>> {
        loop {
            let (number, first) = self.telling()?;
            let mut is_joined = false;
            while self.continues() {
                let Some((_, line)) = self.physical() else { break };
                if matches!(trim_start(line), [] | [b'#', ..]) {
                    continue;
                }
                if !is_joined {
                    is_joined = true;
                    self.joined.clear();
                    self.joined.extend_from_slice(first);
                }
                self.joined.extend_from_slice(line);
                if self.joined.len() > crate::LINE_BYTES_MAX {
                    break;
                }
            }
            if first.len().max(if is_joined { self.joined.len() } else { 0 }) > crate::LINE_BYTES_MAX {
                report.add(number, TableProblem::LineTooLong { max: crate::LINE_BYTES_MAX });
                return None;
            }
            if is_space(first[0]) {
                report.add(number, TableProblem::NothingToContinue);
                continue;
            }
            return Some((number, if is_joined { &self.joined } else { first }));
        }
    }
}
