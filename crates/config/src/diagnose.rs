//! Errors in a configuration, with their places.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Similarity required to suggest a key for an unknown one (Jaro-Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.82;

/// Whether a [`Diagnostic`] stops the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// One finding; displays as `file:line:column: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: PathBuf,
    /// Counted from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// In characters, counted from 1.
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
        if self.line > 0 {
            write!(out, "{}:{}:", self.line, self.column)?;
        }
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(out, " {kind}{}", self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// Line and column of a byte offset.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The known word that was most likely meant.
pub(super) fn likely<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    let rated = known.into_iter().map(|word| (strsim::jaro_winkler(&unknown, word), word));
    let (likeness, word) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= LIKENESS_MIN).then_some(word)
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Spot<T> {
    pub value: T,
    pub span: Range<usize>,
}
