//! Finds uuencoded files within a text, as mail programs do: the name and size of each.
//!
//! Promise: linear time, memory of one line; the result does not depend on how the input is split.
//!
//! ```text
//! Text --"begin 644 name"--> File --a line of data--> File
//!   ^                          |--"end"------> reported, Text
//!   '--------------------------'--any other--> reported if there was data, Text
//! ```

use std::sync::LazyLock;

use crate::charset::Charset;
use crate::header::bounded;
use crate::lines::LineFinder;
use crate::words;

/// Maximum length of lines that are examined; data lines have 61 octets.
const LINE_BYTES_MAX: usize = 1024;
/// Start of a file.
const BEGIN: &[u8] = b"begin ";
static FIRST: LazyLock<LineFinder> = LazyLock::new(|| LineFinder::new(b"\nbegin "));
/// Maximum octets of data in a line.
const DATA_BYTES_MAX: usize = 45;

/// Finder of uuencoded files; see the module documentation.
#[derive(Default)]
pub(crate) struct Uu {
    line: Vec<u8>,
    /// Whether the current line is too long.
    is_long: bool,
    /// Name of the file as written, and number of octets so far.
    file: Option<(Vec<u8>, u64)>,
}

impl Uu {
    pub fn push(&mut self, octets: &[u8], mut found: impl FnMut(&str, u64)) {
        let mut rest = octets;
        loop {
            if self.file.is_none() && self.line.is_empty() && !self.is_long {
                rest = &rest[FIRST.before(rest)..];
            }
            let Some(at) = memchr::memchr(b'\n', rest) else { break };
            let (line, behind) = (&rest[..at], &rest[at + 1..]);
            rest = behind;
            if self.line.is_empty() && !self.is_long {
                self.line(line, &mut found);
                continue;
            }
            self.keep(line);
            let whole = std::mem::take(&mut self.line);
            if !std::mem::take(&mut self.is_long) {
                self.line(&whole, &mut found);
            }
        }
        self.keep(rest);
    }

    /// Ends the text.
    pub fn finish(&mut self, mut found: impl FnMut(&str, u64)) {
        let last = std::mem::take(&mut self.line);
        if !self.is_long {
            self.line(&last, &mut found);
        }
        self.file_over(&mut found);
    }

    fn keep(&mut self, octets: &[u8]) {
        self.is_long |= self.line.len() + octets.len() > LINE_BYTES_MAX;
        if self.is_long {
            self.line.clear();
        } else {
            self.line.extend_from_slice(octets);
        }
    }

    fn line(&mut self, line: &[u8], found: &mut impl FnMut(&str, u64)) {
        if line.len() > LINE_BYTES_MAX {
            return;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some((_, size)) = &mut self.file {
            match data(line) {
                Some(octets) => {
                    *size += octets;
                    return;
                }
                None => self.file_over(found),
            }
        }
        self.file = name(line).map(|name| (name, 0));
    }

    fn file_over(&mut self, found: &mut impl FnMut(&str, u64)) {
        if let Some((name, size)) = self.file.take().filter(|(_, size)| *size > 0) {
            found(&bounded(&words::decode(&name, Charset::UNDECLARED).text), size);
        }
    }
}

/// The name in `begin 644 name`.
fn name(line: &[u8]) -> Option<Vec<u8>> {
    let rest = line.strip_prefix(BEGIN)?;
    let digits = rest.iter().take_while(|b| matches!(b, b'0'..=b'7')).count();
    let name = rest[digits..].strip_prefix(b" ")?.trim_ascii();
    let is_begin = (3..=4).contains(&digits) && !name.is_empty();
    is_begin.then(|| name.to_vec())
}

/// The number of octets in a data line; `None`: it is not one.
fn data(line: &[u8]) -> Option<u64> {
    let (&first, rest) = line.split_first()?;
    let octets = usize::from(first.checked_sub(b' ')? & 63);
    let is_data = line.iter().all(|b| (b' '..=b'`').contains(b)) && octets <= DATA_BYTES_MAX;
    // White space at the end may have been lost, and some programs add a character there.
    (is_data && rest.len() <= octets.div_ceil(3) * 4 + 1 && rest.trim_ascii_end().len() >= octets.min(1))
        .then_some(octets as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(octets: &[u8], cut: usize) -> Vec<(String, u64)> {
        let (mut uu, mut all) = (Uu::default(), Vec::new());
        let mut note = |name: &str, size| all.push((name.to_owned(), size));
        octets.chunks(cut).for_each(|piece| uu.push(piece, &mut note));
        uu.finish(&mut note);
        all
    }

    #[test]
    fn files_are_found() {
        for (text, wanted) in [
            ("Hi\r\nbegin 644 cat.exe\r\n#0V%T\r\n`\r\nend\r\nbye", Some(("cat.exe", 3))),
            ("begin 0755 a b.txt\n#0V%T\n\nend\n", Some(("a b.txt", 3))),
            ("begin 644 open.exe\n#0V%T\n#0V%T", Some(("open.exe", 6))),
            ("begin 644 words in a sentence\nand more of them.\n", None),
            ("begin 644 \n#0V%T\n", None),
            ("we begin 644 x\n#0V%T\n", None),
            ("begin 9 x\n#0V%T\n", None),
        ] {
            let wanted: Vec<_> = wanted.map(|(name, size)| (name.to_owned(), size)).into_iter().collect();
            assert_eq!(found(text.as_bytes(), 1_000), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in "((begin 644 a|#0V%T|`|end|words|)(\r?\n)?){0,20}", cut in 1usize..9) {
            prop_assert_eq!(found(text.as_bytes(), cut), found(text.as_bytes(), 10_000));
        }

        #[test]
        fn long_lines_do_not_matter_either(filler in 1_000usize..1_060, cut in 1usize..1_100) {
            let text = format!("{}\nbegin 644 a\n#0V%T\n{}", "x".repeat(filler), "y".repeat(filler));
            prop_assert_eq!(found(text.as_bytes(), cut), [("a".to_owned(), 3)]);
        }
    }
}
