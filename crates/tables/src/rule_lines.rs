//! Shared syntax of regexp, pcre and cidr tables: lists of rules, with blocks of `if` and `endif`.

use crate::text::lines::trim_start;

/// A logical line of such a table; each variant has the text after its keyword.
pub(crate) enum Statement<'a> {
    If(&'a [u8]),
    EndIf(&'a [u8]),
    Other(&'a [u8]),
}

impl<'a> Statement<'a> {
    pub fn parse(line: &'a [u8]) -> Self {
        if let Some(rest) = after_word(line, b"if") {
            Self::If(trim_start(rest))
        } else if let Some(rest) = after_word(line, b"endif") {
            Self::EndIf(trim_start(rest))
        } else {
            Self::Other(line)
        }
    }
}

fn after_word<'a>(line: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = line.split_at_checked(word.len())?;
    let is_it = first.eq_ignore_ascii_case(word) && !rest.first().is_some_and(u8::is_ascii_alphanumeric);
    is_it.then_some(rest)
}

/// Open blocks while a table is read.
#[derive(Default)]
pub(crate) struct Blocks {
    /// First step and line of each.
    open: Vec<(usize, u32)>,
}

impl Blocks {
    pub fn begin(&mut self, step: usize, line: u32) {
        self.open.push((step, line));
    }

    /// Ends the innermost block; returns its first step.
    pub fn end(&mut self) -> Option<usize> {
        self.open.pop().map(|(step, _)| step)
    }

    /// Lines of blocks that were never closed.
    pub fn left_open(&self) -> impl Iterator<Item = u32> {
        self.open.iter().rev().map(|&(_, line)| line)
    }
}
