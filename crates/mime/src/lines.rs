//! Finds the first line that begins with given octets, without a look at each line before it: text of very short lines costs no more than
//! other text.

use memchr::memmem::Finder;

/// What a line begins with.
#[derive(Debug)]
pub(crate) struct LineBegin(Finder<'static>);

impl LineBegin {
    /// `octets`: a line feed, and what the line begins with.
    pub fn new(octets: &'static [u8]) -> LineBegin {
        LineBegin(Finder::new(octets))
    }

    /// The length of the whole lines before the first that begins so; the last, incomplete line counts as such. `octets` begin a line.
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
        let dashes = LineBegin::new(b"\n--");
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
