//! Text patterns: a substring, a name with asterisks, or `/a regular expression/`. All are compiled to regular
//! expressions, ignore case and are matched in linear time.

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

/// Maximum length of a pattern.
const PATTERN_BYTES_MAX: usize = 4_096;
/// Maximum compiled size of a single pattern.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;

/// A pattern that can be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Pattern as written.
    pub shown: Box<str>,
    pub(crate) expression: Box<str>,
}

/// Why a text is not a valid condition on content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentConditionError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern is longer than {PATTERN_BYTES_MAX} octets")]
    TooLong,
    #[error("{0}")]
    Expression(String),
    #[error(
        "\\b takes more than linear time in text that is not ASCII; write (^|\\W) and (\\W|$), or (?-u:\\b) for ASCII"
    )]
    WordBoundary,
    #[error("{0:?} is not a header field and text: write Field-Name: pattern, or *: pattern for all fields")]
    Field(String),
    #[error("{0:?} is not a Unicode script: write Han, Cyrillic, Latin ..., or with a share of the letters, Han 20%")]
    Script(String),
    #[error(
        "{0:?} is not a valid defect: write header, ambiguous, boundary, nested, encoding, charset, word or name, or \
         * for any"
    )]
    Defect(String),
    #[error(
        "{0:?} is not a valid authentication result: write spf=fail, dkim=pass header.d=example.org, or dmarc=* for any"
    )]
    Auth(String),
    #[error("{method} has no result {result:?}: use one of {known} (RFC 8601), or * for any")]
    AuthResult { method: String, result: String, known: String },
    #[error("the patterns of all content rules together are too large: {0}")]
    TooLarge(String),
}

impl Pattern {
    /// Parses a substring, or `/an expression/` that matches anywhere.
    pub fn contained(text: &str) -> Result<Pattern, ContentConditionError> {
        match expression(text) {
            Some(expression) => Pattern::checked(text, expression.to_owned()),
            None => Pattern::checked(text, regex::escape(text)),
        }
    }

    /// Parses a whole name, in which asterisks match anything, or `/an expression/`.
    pub fn name(text: &str) -> Result<Pattern, ContentConditionError> {
        if let Some(expression) = expression(text) {
            return Pattern::checked(text, expression.to_owned());
        }
        let parts: Vec<String> = text.split('*').map(regex::escape).collect();
        Pattern::checked(text, format!("\\A(?s:{})\\z", parts.join(".*")))
    }

    /// Compiles the pattern alone.
    ///
    /// # Errors
    /// It is too large.
    pub(crate) fn regex(&self) -> Result<Regex, ContentConditionError> {
        let mut builder = RegexBuilder::new(&self.expression);
        builder.case_insensitive(true).multi_line(true).crlf(true).size_limit(COMPILED_BYTES_MAX);
        builder.build().map_err(|error| ContentConditionError::TooLarge(error.to_string()))
    }

    fn checked(shown: &str, expression: String) -> Result<Pattern, ContentConditionError> {
        if shown.is_empty() || shown == "//" {
            return Err(ContentConditionError::Empty);
        }
        if expression.len() > PATTERN_BYTES_MAX {
            return Err(ContentConditionError::TooLong);
        }
        let parsed = ParserBuilder::new().case_insensitive(true).multi_line(true).crlf(true).build().parse(&expression);
        let parsed = parsed.map_err(|error| ContentConditionError::Expression(in_one_line(&error.to_string())))?;
        if parsed.properties().look_set().contains_word_unicode() {
            return Err(ContentConditionError::WordBoundary);
        }
        Ok(Pattern { shown: shown.into(), expression: expression.into() })
    }
}

fn expression(text: &str) -> Option<&str> {
    text.strip_prefix('/')?.strip_suffix('/')
}

/// The last line of the parser's multi-line message.
fn in_one_line(error: &str) -> String {
    error.lines().last().unwrap_or(error).trim_start_matches("error: ").to_owned()
}
