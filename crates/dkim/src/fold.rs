//! Writes the value of a header field in folded lines.

/// Octets of a line (RFC 5322 section 2.1.1).
const LINE_BYTES_MAX: usize = 78;
const FOLD: &[u8] = b"\r\n\t";
/// Columns that the tab of a fold takes.
const TAB_COLUMNS: usize = 8;

/// A field in the making. Folds are white space, so they may stand wherever a tag list allows it (RFC 6376 section
/// 3.2).
pub(crate) struct Folded {
    out: Vec<u8>,
    column: usize,
}

impl Folded {
    pub(crate) fn new(begin: &str) -> Folded {
        Folded { out: begin.as_bytes().to_vec(), column: begin.len() }
    }

    /// Adds a word after a space or a fold.
    pub(crate) fn word(&mut self, word: &str) {
        if self.column + 1 + word.len() > LINE_BYTES_MAX {
            self.fold();
        } else {
            self.out.push(b' ');
            self.column += 1;
        }
        self.add(word.as_bytes());
    }

    /// Adds a part that may be separated from the previous one by a fold only.
    pub(crate) fn part(&mut self, part: &str) {
        if self.column + part.len() > LINE_BYTES_MAX {
            self.fold();
        }
        self.add(part.as_bytes());
    }

    /// Adds text that may be folded anywhere.
    pub(crate) fn text(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            if self.column >= LINE_BYTES_MAX {
                self.fold();
            }
            let (line, more) = rest.split_at(rest.len().min(LINE_BYTES_MAX - self.column));
            self.add(line);
            rest = more;
        }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.out
    }

    /// Returns the field with its line end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(b"\r\n");
        self.out
    }

    fn fold(&mut self) {
        self.out.extend_from_slice(FOLD);
        self.column = TAB_COLUMNS;
    }

    fn add(&mut self, octets: &[u8]) {
        self.out.extend_from_slice(octets);
        self.column += octets.len();
    }
}
