//! Reads suppressions from CSV that arrives in pieces of any size: a file, or the body of a request.
//!
//! Promise: every line after the first is reported once, with its number, as an entry, an empty line or an error; at
//! most one line is held, and of a longer one only as much as shows that it is too long. Without a line that names the
//! columns there is one error and nothing else.

use crate::csv::{CsvColumns, CsvDefaults, CsvError, LINE_BYTES_MAX, line_of};
use crate::suppression::Suppression;

/// A line of a file.
pub struct CsvLine {
    /// From 1.
    pub number: u64,
    /// `None`: the line is empty.
    pub entry: Result<Option<Suppression>, CsvError>,
}

enum Columns {
    /// The first line has not been read.
    Unread,
    Named(CsvColumns),
    /// The first line does not name them: the rest means nothing.
    Missing,
}

pub struct CsvReader {
    defaults: CsvDefaults,
    columns: Columns,
    /// The beginning of a line whose end has not arrived.
    unfinished: Vec<u8>,
    number: u64,
}

impl CsvReader {
    pub fn new(defaults: CsvDefaults) -> CsvReader {
        CsvReader { defaults, columns: Columns::Unread, unfinished: Vec::new(), number: 0 }
    }

    /// Takes the next piece.
    pub fn push(&mut self, mut bytes: &[u8], visit: &mut dyn FnMut(CsvLine)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..=end]);
            self.end_line(visit);
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// Reads the last line, if it has no end.
    pub fn finish(mut self, visit: &mut dyn FnMut(CsvLine)) {
        if !self.unfinished.is_empty() {
            self.end_line(visit);
        }
        if matches!(self.columns, Columns::Unread) {
            visit(CsvLine { number: 1, entry: Err(CsvError::NoSubject) });
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let left = (LINE_BYTES_MAX + 1).saturating_sub(self.unfinished.len());
        self.unfinished.extend_from_slice(&bytes[..bytes.len().min(left)]);
    }

    fn end_line(&mut self, visit: &mut dyn FnMut(CsvLine)) {
        self.number += 1;
        let (number, text) = (self.number, line_of(&self.unfinished));
        match &self.columns {
            Columns::Named(columns) => {
                visit(CsvLine { number, entry: text.and_then(|text| columns.entry(text, &self.defaults)) });
            }
            Columns::Unread => match text.and_then(CsvColumns::parse) {
                Ok(columns) => self.columns = Columns::Named(columns),
                Err(error) => {
                    self.columns = Columns::Missing;
                    visit(CsvLine { number, entry: Err(error) });
                }
            },
            Columns::Missing => {}
        }
        self.unfinished.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suppression::{Scope, SuppressionReason};

    fn lines<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(u64, String)> {
        let (scope, reason) = (Scope::Everything, SuppressionReason::Operator);
        let defaults = CsvDefaults { scope, reason, source: "import".to_owned(), since: 1, expires: None };
        let (mut reader, mut all) = (CsvReader::new(defaults), Vec::new());
        let mut visit = |line: CsvLine| {
            let words = match line.entry {
                Ok(entry) => entry.map_or_else(|| "empty".to_owned(), |entry| entry.key.subject.text()),
                Err(error) => error.to_string(),
            };
            all.push((line.number, words));
        };
        for piece in pieces {
            reader.push(piece, &mut visit);
        }
        reader.finish(&mut visit);
        all
    }

    #[test]
    fn lines_have_numbers_and_limits_wherever_they_are_cut() {
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        let text = format!("email\r\na@x.example\r\n\r\n{long}\nb@x.example\nnobody");
        let too_long = format!("the line is longer than {LINE_BYTES_MAX} octets");
        let expected = [
            (2, "a@x.example"),
            (3, "empty"),
            (4, too_long.as_str()),
            (5, "b@x.example"),
            (6, "\"nobody\": address has no domain"),
        ];
        let expected = expected.map(|(number, words)| (number, words.to_owned()));
        for octets in [1, 7, 4_000, text.len()] {
            assert_eq!(lines(text.as_bytes().chunks(octets)), expected, "pieces of {octets}");
        }
    }

    #[test]
    fn without_columns_nothing_else_is_read() {
        let missing = |number| [(number, CsvError::NoSubject.to_string())];
        assert_eq!(lines(std::iter::empty()), missing(1));
        assert_eq!(lines([&b"name\na@b\nc@d\n"[..]].into_iter()), missing(1));
    }
}
