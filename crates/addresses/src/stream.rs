//! Splits the header of a message that arrives in pieces into fields.
//!
//! Promise: each octet comes out once, in order; a field comes out whole, wherever pieces are cut. At most
//! [`FIELD_BYTES_MAX`] of a field are held.
//!
//! Failure: a longer field passes through unchanged, and its name is reported.

use crate::header::whole_fields;

/// Maximum octets of a field that are held until it ends.
const FIELD_BYTES_MAX: usize = 256 * 1024;
/// Octets reported of the name of a longer one.
const NAME_BYTES_SHOWN: usize = 64;

/// The header of a message that arrives in pieces.
///
/// States: within the header, holding the incomplete field -> after it. A field that becomes too long passes through up
/// to the line that begins another.
#[derive(Debug, Default)]
pub struct HeaderStream {
    /// The beginning of a field.
    held: Vec<u8>,
    /// A too long field is passing; whether its last octet so far ends a line.
    passing: Option<bool>,
    is_over: bool,
}

impl HeaderStream {
    /// Takes the next octets.
    pub fn split(&mut self, octets: Vec<u8>, is_last: bool) -> Split {
        if self.is_over {
            return Split { behind: octets, ..Split::default() };
        }
        let mut split = Split { fields: std::mem::take(&mut self.held), ..Split::default() };
        if split.fields.is_empty() {
            split.fields = octets;
        } else {
            split.fields.extend(octets);
        }
        if let Some(is_line_start) = self.passing.take() {
            let Some(at) = next_line(&split.fields, is_line_start) else {
                self.passing = Some(split.fields.last().map_or(is_line_start, |octet| *octet == b'\n'));
                return Split { before: split.fields, ..Split::default() };
            };
            split.before = split.fields.drain(..at).collect();
        }
        let (end, is_over) = whole_fields(&split.fields);
        self.is_over = is_over || is_last;
        if self.is_over {
            return split;
        }
        let held = split.fields.split_off(end);
        if held.len() <= FIELD_BYTES_MAX {
            self.held = held;
            return split;
        }
        let name = held.split(|octet| *octet == b':').next().unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_SHOWN)]).into_owned();
        self.passing = Some(held.last() == Some(&b'\n'));
        Split { behind: held, too_long: Some(name), ..split }
    }
}

/// Octets of a message in their order: `fields` may be rewritten, and includes everything after the end of the header;
/// the others pass unchanged.
#[derive(Debug, Default)]
pub struct Split {
    pub before: Vec<u8>,
    pub fields: Vec<u8>,
    pub behind: Vec<u8>,
    /// The name of a field that passed unchanged because of its length.
    pub too_long: Option<String>,
}

/// Returns the start of the next line that does not continue a field.
fn next_line(octets: &[u8], is_line_start: bool) -> Option<usize> {
    let mut is_start = is_line_start;
    octets.iter().position(|octet| {
        let is_next = is_start && !matches!(octet, b' ' | b'\t');
        is_start = *octet == b'\n';
        is_next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all octets, and those that may be rewritten, of a message in pieces of this size.
    fn streamed(message: &[u8], size: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut stream, mut all, mut fields) = (HeaderStream::default(), Vec::new(), Vec::new());
        let count = message.chunks(size).count();
        for (n, piece) in message.chunks(size).enumerate() {
            let is_body = stream.is_over;
            let split = stream.split(piece.to_vec(), n + 1 == count);
            assert!(stream.held.len() <= FIELD_BYTES_MAX);
            for (part, is_field) in [(split.before, false), (split.fields, true), (split.behind, is_body)] {
                all.extend_from_slice(&part);
                fields.extend_from_slice(if is_field { &part } else { b"" });
            }
        }
        (all, fields)
    }

    #[test]
    fn fields_come_whole_wherever_pieces_are_cut() {
        let message = b"Received: a\r\nTo: a@x.test,\r\n b@x.test\r\nX-Y: z\r\n\r\nTo: body\r\n\r\nx";
        for size in 1..=message.len() {
            assert_eq!(streamed(message, size), (message.to_vec(), message.to_vec()), "{size}");
        }
        let no_body = b"To: a@x.test\r\n";
        assert_eq!(streamed(no_body, 5).1, no_body);
    }

    #[test]
    fn a_field_that_is_too_long_passes_and_those_behind_it_do_not() {
        let long = format!("To: {}\r\n", "a@x.test,\r\n ".repeat(FIELD_BYTES_MAX / 4));
        let message = format!("Cc: b@x.test\r\n{long}From: c@x.test\r\n\r\nbody\r\n");
        for size in [1_000, 4_096, 65_536, 256 * 1024] {
            let (all, fields) = streamed(message.as_bytes(), size);
            assert!(all == message.as_bytes(), "{size}");
            assert!(fields == b"Cc: b@x.test\r\nFrom: c@x.test\r\n\r\nbody\r\n", "{size}: {} octets", fields.len());
        }
    }
}
