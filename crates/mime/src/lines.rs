//! Finds the first line with a given beginning without visiting every line, so that very short lines cost no more than
//! others.

use memchr::memmem::Finder;

/// The beginning of the lines to find.
#[derive(Debug)]
pub(crate) struct LineFinder(Finder<'static>);

impl LineFinder {
    /// Creates a finder; `octets` is a line feed and the beginning of the line.
    pub fn new(octets: &'static [u8]) -> LineFinder {
        LineFinder(Finder::new(octets))
    }

    /// Returns the length of the whole lines before the first match, or before an incomplete last line. `octets` start
    /// at the beginning of a line.
    pub fn before(&self, octets: &[u8]) -> usize {
        if octets.starts_with(&self.0.needle()[1..]) {
            return 0;
        }
        self.0.find(octets).map_or_else(|| whole(octets), |at| at + 1)
    }
}

/// The length of all whole lines.
pub(crate) fn whole(octets: &[u8]) -> usize {
    memchr::memrchr(b'\n', octets).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_before_one() {
        let dashes = LineFinder::new(b"\n--");
        for (text, wanted) in [
            ("", 0),
            ("a", 0),
            ("a\nb", 2),
            ("a\n-\n--b\nc\n", 4),
            ("--\na\n", 0),
            ("a--\n-", 4),
            ("\n\n--", 2),
            ("a\n", 2),
        ] {
            assert_eq!(dashes.before(text.as_bytes()), wanted, "{text:?}");
        }
    }
}
