//! Configuration errors and their positions.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Similarity required to suggest a key for an unknown one (Jaro-Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.82;

/// Minimum length of words for suggestions; shorter ones are one typo away from too many others.
const SLIP_BYTES_MIN: usize = 3;

/// Whether a [`Diagnostic`] prevents the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// A position in the configuration file. Both are 0 if the finding is about the whole file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilePosition {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
}

impl FilePosition {
    /// The first character of a text.
    const START: FilePosition = FilePosition { line: 1, column: 1 };

    /// The position after a character at this one.
    fn after(self, c: char) -> FilePosition {
        if c == '\n' {
            FilePosition { line: self.line + 1, column: 1 }
        } else {
            FilePosition { column: self.column + 1, ..self }
        }
    }
}

/// One finding; displays as `file:line:column: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: PathBuf,
    /// Line, counted from 1; 0 if the finding is about the whole file.
    pub line: usize,
    /// Column in characters, counted from 1; 0 if it is unknown.
    pub column: usize,
    pub severity: Severity,
    pub message: String,
}

impl Diagnostic {
    pub(super) fn of_file(file: &Path, message: String) -> Self {
        Self { file: file.to_owned(), line: 0, column: 0, severity: Severity::Error, message }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.file.display())?;
        for number in [self.line, self.column].into_iter().take_while(|number| *number > 0) {
            write!(out, "{number}:")?;
        }
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(out, " {kind}{}", self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// Finds the position of a byte offset in constant time. Holds offset and position of the beginning and then of about
/// one character per [`MARK_BYTES`] octets.
#[derive(Debug)]
pub(super) struct Positions(Vec<(usize, FilePosition)>);

/// Octets between two marks.
const MARK_BYTES: usize = 256;

impl Positions {
    pub fn new(text: &str) -> Self {
        let mut position = FilePosition::START;
        let mut marks = vec![(0, position)];
        for (at, c) in text.char_indices() {
            if at >= marks.len() * MARK_BYTES {
                marks.push((at, position));
            }
            position = position.after(c);
        }
        Self(marks)
    }

    /// The position of an offset in that text.
    pub fn of(&self, text: &str, offset: usize) -> FilePosition {
        let offset = text.floor_char_boundary(offset);
        // The first mark is at offset 0.
        let (at, position) = self.0[self.0.partition_point(|mark| mark.0 <= offset) - 1];
        text[at..offset].chars().fold(position, FilePosition::after)
    }
}

/// The known word that was probably meant, if any.
pub(super) fn likely<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    // In a short word, one typo such as two swapped letters lowers the similarity too much.
    let is_slip = |word: &str| unknown.len() >= SLIP_BYTES_MIN && strsim::osa_distance(&unknown, word) == 1;
    let likeness = |word: &str| if is_slip(word) { 1.0 } else { strsim::jaro_winkler(&unknown, word) };
    let rated = known.into_iter().map(|word| (likeness(word), word));
    let (likeness, word) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= LIKENESS_MIN).then_some(word)
}

/// A value and its position in the file.
#[derive(Debug, Clone)]
pub(super) struct Spot<T> {
    pub value: T,
    pub span: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_lines_and_columns_are_left_out() {
        for (line, column, place) in [(3, 7, "f:3:7:"), (3, 0, "f:3:"), (0, 0, "f:"), (0, 7, "f:")] {
            let (file, severity) = (PathBuf::from("f"), Severity::Warning);
            let found = Diagnostic { file, line, column, severity, message: "odd".to_owned() };
            assert_eq!(found.to_string(), format!("{place} warning: odd"));
        }
    }

    #[test]
    fn positions_are_those_of_a_count_from_the_beginning() {
        for text in ["", "\n", "é", &"añ\n".repeat(300), &"é".repeat(700), &format!("{}\nx", "y".repeat(255))] {
            let positions = Positions::new(text);
            for offset in 0..=text.len() + 1 {
                let before = &text[..text.floor_char_boundary(offset)];
                let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
                let (line, column) = (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1);
                let counted = FilePosition { line, column };
                assert_eq!(positions.of(text, offset), counted, "{offset} in {text:?}");
            }
        }
    }
}
