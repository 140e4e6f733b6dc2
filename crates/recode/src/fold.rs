//! Folds header fields with lines over [`LINE_BYTES_MAX`] octets (RFC 5322 section 2.2.3).
//!
//! Places for a fold, in order of preference: existing white space, or places where white space does not change the
//! meaning (after the colon and, in structured fields, after a comma or semicolon); white space within quotes and
//! comments; otherwise after 998 octets, as Postfix's `smtp_line_length_limit` does. Long words of `Subject` and
//! similar fields were encoded before ([`super::field`]), so the last case only affects text that no reader decodes:
//! identifiers, signatures, keys, URLs.
//!
//! Promises: no line is longer, and none consists of white space only. Unfolding gives the original field, except for
//! spaces added as above, and white space at the end of overlong lines.

use super::{LINE_BYTES_MAX, longest_line, without_end};

/// Syntax of a field's value, which limits what may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Any white space is equivalent.
    Text,
    /// It has quoted strings, comments and separators.
    Structured,
}

/// Maximum run of white space in a folded line: a longer one would form a line of white space only. It is equivalent
/// to one space.
pub(super) const SPACES_MAX: usize = 512;

/// Appends a field with its folds and its line end.
pub(super) fn write(raw: &[u8], syntax: Syntax, out: &mut Vec<u8>) {
    if longest_line(raw) <= LINE_BYTES_MAX {
        return out.extend_from_slice(raw);
    }
    let mut folder =
        Folder { syntax, place: Place::Name, line: Vec::new(), spot: None, within: None, content: None, out };
    for line in raw.split_inclusive(|&b| b == b'\n') {
        let text = without_end(line);
        let end = &line[text.len()..];
        if text.len() <= LINE_BYTES_MAX {
            folder.see(text, false);
        } else {
            let behind = text.iter().rposition(|b| !matches!(b, b' ' | b'\t')).map_or(0, |last| last + 1);
            folder.see(&text[..behind], true);
        }
        folder.end(end);
    }
}

/// Appends groups of fields with empty lines between them, as in delivery status notifications (RFC 3464 section
/// 2.1).
pub(super) fn write_groups(body: &[u8], out: &mut Vec<u8>) {
    let mut field = Vec::new();
    for line in body.split_inclusive(|&b| b == b'\n') {
        if !line.starts_with(b" ") && !line.starts_with(b"\t") {
            write(&field, Syntax::Structured, out);
            field.clear();
        }
        field.extend_from_slice(line);
    }
    write(&field, Syntax::Structured, out);
}

/// Context of an octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Value,
    Quotes { is_escaped: bool },
    Comment { depth: u32, is_escaped: bool },
}

/// A place for a fold: before this octet of the line.
#[derive(Debug, Clone, Copy)]
struct Spot {
    at: usize,
    /// Whether a space must be added for the next line to begin with.
    adds_space: bool,
}

struct Folder<'a> {
    syntax: Syntax,
    place: Place,
    /// The line being written.
    line: Vec<u8>,
    /// The last place for a fold, and the last one within quotes or comments.
    spot: Option<Spot>,
    within: Option<Spot>,
    /// Position of the last octet that is not white space.
    content: Option<usize>,
    out: &'a mut Vec<u8>,
}

impl Folder<'_> {
    /// Processes a line of the field without its end.
    fn see(&mut self, text: &[u8], is_long: bool) {
        let mut spaces = 0;
        for (at, &b) in text.iter().enumerate() {
            let is_space = matches!(b, b' ' | b'\t');
            spaces = if is_space { spaces + 1 } else { 0 };
            // Leading white space of a line counts as one: the text after it may fill a line.
            let spaces_max = if self.content.is_none() { 1 } else { SPACES_MAX };
            if is_long && spaces > spaces_max {
                continue;
            }
            if is_space && self.content.is_some() {
                self.offer(Spot { at: self.line.len(), adds_space: false });
            }
            self.line.push(b);
            while self.line.len() > LINE_BYTES_MAX {
                self.fold();
            }
            if !is_space {
                self.content = Some(self.line.len() - 1);
            }
            self.pass(b, text.get(at + 1));
        }
    }

    fn offer(&mut self, spot: Spot) {
        match self.place {
            Place::Quotes { .. } | Place::Comment { .. } if self.syntax == Syntax::Structured => {
                self.within = Some(spot);
            }
            Place::Name => {}
            _ => self.spot = Some(spot),
        }
    }

    /// Updates the context after an octet.
    fn pass(&mut self, b: u8, next: Option<&u8>) {
        let structured = self.syntax == Syntax::Structured;
        let ends_name = self.place == Place::Name && b == b':';
        self.place = match (self.place, b) {
            (Place::Value, b'"') if structured => Place::Quotes { is_escaped: false },
            (Place::Value, b'(') if structured => Place::Comment { depth: 1, is_escaped: false },
            (Place::Name, b':')
            | (Place::Quotes { is_escaped: false }, b'"')
            | (Place::Comment { depth: 1, is_escaped: false }, b')') => Place::Value,
            (Place::Quotes { is_escaped }, b) => Place::Quotes { is_escaped: b == b'\\' && !is_escaped },
            (Place::Comment { depth, is_escaped: false }, b')') => {
                Place::Comment { depth: depth - 1, is_escaped: false }
            }
            (Place::Comment { depth, is_escaped: false }, b'(') => {
                Place::Comment { depth: depth + 1, is_escaped: false }
            }
            (Place::Comment { depth, is_escaped }, b) => {
                Place::Comment { depth, is_escaped: b == b'\\' && !is_escaped }
            }
            (place, _) => place,
        };
        let may_add = ends_name || structured && self.place == Place::Value && matches!(b, b',' | b';');
        if may_add && next.is_some_and(|next| !matches!(next, b' ' | b'\t')) {
            self.spot = Some(Spot { at: self.line.len(), adds_space: true });
        }
    }

    /// Writes the part before the fold, and continues after it.
    fn fold(&mut self) {
        let spot = self.spot.or(self.within).unwrap_or_else(|| Spot { at: self.character(), adds_space: true });
        self.out.extend_from_slice(&self.line[..spot.at]);
        self.out.extend_from_slice(b"\r\n");
        let kept = usize::from(spot.adds_space);
        let behind = self.line.split_off(spot.at);
        self.line.clear();
        self.line.extend_from_slice(&b" "[..kept]);
        self.line.extend_from_slice(&behind);
        let moved = |spot: Spot, from: usize| Spot { at: spot.at - from + kept, ..spot };
        let is_behind = |other: &Spot| other.at > spot.at;
        self.spot = None;
        self.within = self.within.filter(is_behind).map(|within| moved(within, spot.at));
        self.content = self.content.filter(|content| *content >= spot.at).map(|content| content - spot.at + kept);
    }

    /// The last position that is not within a character.
    fn character(&self) -> usize {
        let inner = self.line[..=LINE_BYTES_MAX].iter().rev().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
        LINE_BYTES_MAX - inner
    }

    fn end(&mut self, end: &[u8]) {
        self.out.append(&mut self.line);
        self.out.extend_from_slice(end);
        (self.spot, self.within, self.content) = (None, None, None);
    }
}
