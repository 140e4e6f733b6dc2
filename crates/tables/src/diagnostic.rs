//! Problems in a table: place, reason and remedy.
//!
//! A warning is for a line that Postfix or makemap would skip; it is skipped here, too. An error is for content that
//! they would accept and this crate cannot, or for a file that is not a table; the table is not loaded.

use std::fmt;

/// Maximum findings kept; more are only counted.
pub const DIAGNOSTICS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Warning,
    Error,
}

/// A kind of problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableProblem {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("socketmap:{0} cannot be part of unionmap: or pipemap:; name it as a table of its own")]
    Remote(String),
    #[error("larger than {max} bytes; use cdb: or socketmap: for a table of this size")]
    FileTooLarge { max: usize },
    #[error("more than {max} entries; use cdb: or socketmap: for a table of this size")]
    TooManyEntries { max: usize },
    #[error("line longer than {max} bytes; check that this is a text file")]
    LineTooLong { max: usize },
    #[error("not a valid {kind} file: {why}; create it again with postmap")]
    Damaged { kind: &'static str, why: &'static str },
    #[error("begins with whitespace but there is no line to continue; skipped: remove the whitespace")]
    NothingToContinue,
    #[error("unbalanced '\"'; skipped: quote the whole key or escape the quote")]
    UnbalancedQuote,
    #[error("key without a value; skipped: write \"key whitespace value\"")]
    NoValue,
    #[error("not UTF-8; skipped: convert the file to UTF-8")]
    NotUtf8,
    #[error("the key ends in ':'; if this is an alias file, name the table as aliases:")]
    LooksLikeAliases,
    #[error("no ':' after the name; skipped: write \"name: value, ...\"")]
    NoColon,
    #[error("repeats the key {key:?} of line {first}, which is used; remove one of them")]
    Duplicate { key: String, first: u32 },
    #[error("{0}; mail for it is deferred")]
    BadAlias(String),
    #[error("{path} cannot be read: {why}; mail for it is deferred")]
    Include { path: String, why: String },
    #[error("{0}; skipped")]
    BadRule(String),
    #[error("{0}")]
    Untidy(&'static str),
    #[error("pattern: {0}; skipped")]
    BadPattern(String),
    #[error("pattern: {0} cannot be matched in linear time; rewrite the pattern without it")]
    UnsupportedPattern(&'static str),
    #[error("pattern: too large when compiled; shorten its repetitions")]
    PatternTooLarge,
    #[error("more than {max} patterns; split the table")]
    TooManyPatterns { max: usize },
    #[error("all patterns together are too large when compiled; split the table")]
    PatternsTooLarge,
}

impl TableProblem {
    pub fn severity(&self) -> Severity {
        match self {
            Self::Unreadable(_)
            | Self::Remote(_)
            | Self::FileTooLarge { .. }
            | Self::TooManyEntries { .. }
            | Self::LineTooLong { .. }
            | Self::Damaged { .. }
            | Self::UnsupportedPattern(_)
            | Self::PatternTooLarge
            | Self::TooManyPatterns { .. }
            | Self::PatternsTooLarge => Severity::Error,
            _ => Severity::Warning,
        }
    }
}

/// One finding. Line and column count from 1; 0 means that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub problem: TableProblem,
}

impl Diagnostic {
    pub fn severity(&self) -> Severity {
        self.problem.severity()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if self.line > 0 {
            write!(out, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(out, ":{}", self.column)?;
        }
        let severity = match self.severity() {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(out, ": {severity}: {}", self.problem)
    }
}

/// The findings of one load, in the order of files and lines.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LoadReport {
    pub diagnostics: Vec<Diagnostic>,
    /// Number of warnings beyond [`DIAGNOSTICS_MAX`].
    pub left_out: u64,
    has_errors: bool,
}

impl LoadReport {
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity() == Severity::Error)
    }

    /// Adds a finding. Errors are kept even after too many warnings.
    pub(crate) fn add(&mut self, diagnostic: Diagnostic) {
        let is_error = diagnostic.severity() == Severity::Error;
        let max = if is_error { 2 * DIAGNOSTICS_MAX } else { DIAGNOSTICS_MAX };
        self.has_errors |= is_error;
        if self.diagnostics.len() < max {
            self.diagnostics.push(diagnostic);
        } else {
            self.left_out += 1;
        }
    }
}

/// Collects the findings in one file.
pub(crate) struct FileReport<'a> {
    pub file: &'a str,
    pub report: &'a mut LoadReport,
}

impl FileReport<'_> {
    pub fn add(&mut self, line: u32, problem: TableProblem) {
        self.add_at(line, 0, problem);
    }

    pub fn add_at(&mut self, line: u32, column: u32, problem: TableProblem) {
        self.report.add(Diagnostic { file: self.file.to_owned(), line, column, problem });
    }
}
