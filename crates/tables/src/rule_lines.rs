//! What regexp, pcre and cidr tables share: rules one behind the other, with blocks of `if` and `endif`.

use crate::text::lines::trim_start;

/// A logical line of such a table; what follows the word.
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

/// Blocks that are open while a table is read.
#[derive(Default)]
pub(crate) struct Blocks {
    /// Which step each begins with, and in which line.
    open: Vec<(usize, u32)>,
}

impl Blocks {
    pub fn begin(&mut self, step: usize, line: u32) {
        self.open.push((step, line));
    }

    /// The step that began the innermost block.
    pub fn end(&mut self) -> Option<usize> {
        self.open.pop().map(|(step, _)| step)
    }

    /// The lines of those that never ended.
    pub fn left_open(&self) -> impl Iterator<Item = u32> {
        self.open.iter().rev().map(|&(_, line)| line)
    }
}
