//! The text format of learned state: one line per fact, with fields separated by tabs.
//!
//! A field contains no tab, line break or backslash: they are escaped. A reader ignores fields after those that it
//! knows, so later versions may append some.

use std::fmt::{Display, Write as _};
use std::str::{FromStr, Split};

/// A line under construction.
pub(crate) struct Line<'a>(&'a mut String);

impl<'a> Line<'a> {
    pub fn begin(out: &'a mut String, kind: &str) -> Line<'a> {
        out.push_str(kind);
        Line(out)
    }

    /// Appends a number or a word without separators.
    pub fn word(self, value: impl Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "\t{value}");
        self
    }

    pub fn text(self, text: &str) -> Self {
        self.0.push('\t');
        for c in text.chars() {
            match c {
                '\t' => self.0.push_str("\\t"),
                '\n' => self.0.push_str("\\n"),
                '\r' => self.0.push_str("\\r"),
                '\\' => self.0.push_str("\\\\"),
                c => self.0.push(c),
            }
        }
        self
    }

    pub fn end(self) {
        self.0.push('\n');
    }
}

/// The fields of a line, in order.
pub(crate) struct Fields<'a>(Split<'a, char>);

impl<'a> Fields<'a> {
    pub fn of(line: &'a str) -> Fields<'a> {
        Fields(line.split('\t'))
    }

    pub fn word<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    pub fn text(&mut self) -> Option<String> {
        let raw = self.0.next()?;
        let mut text = String::with_capacity(raw.len());
        let mut chars = raw.chars();
        while let Some(c) = chars.next() {
            text.push(match c {
                '\\' => match chars.next()? {
                    't' => '\t',
                    'n' => '\n',
                    'r' => '\r',
                    other => other,
                },
                c => c,
            });
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_comes_back_as_it_was() {
        let hard = "a\tb\\t\r\nc\\";
        let mut out = String::new();
        Line::begin(&mut out, "kind").text(hard).word(7).text("").end();
        assert_eq!(out.matches(['\n', '\r']).count(), 1);
        let mut fields = Fields::of(out.trim_end_matches('\n'));
        assert_eq!(fields.text().as_deref(), Some("kind"));
        assert_eq!(fields.text().as_deref(), Some(hard));
        assert_eq!((fields.word::<u8>(), fields.text().as_deref()), (Some(7), Some("")));
        assert_eq!(fields.word::<u8>(), None);
    }
}
