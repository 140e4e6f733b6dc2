//! The header of a content in its stored form: fields, an empty line, the body, so that every reader finds the same
//! header.
//!
//! Promise: nothing is lost. Programs differ in how they read two parts of a client's content, even more so after the
//! fields that we put before it. These are stored as Postfix does: an mbox line at the start of a message becomes the
//! field [`MBOX_FIELD`], and a body without a preceding empty line gets one. So a first line with white space does not
//! continue our own `Received`. All other octets stay.
//!
//! Memory: the part of a line that a [`Section`] holds.

use stentor_mime::field::{Section, Token};

/// Named as in Postfix.
pub const MBOX_FIELD: &str = "X-Mailbox-Line";

/// Converts a content that arrives in pieces.
#[derive(Debug, Default)]
pub struct StoredForm {
    /// Octets of our own before the client's that are still to come.
    ours: usize,
    section: Section,
    is_begun: bool,
}

impl StoredForm {
    /// Creates a converter. `ours`: octets of our own before the client's.
    pub fn new(ours: usize) -> StoredForm {
        StoredForm { ours, ..StoredForm::default() }
    }

    /// Whether any octets have been pushed.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Takes the next octets, and returns those to store; the end of a piece may be returned with the next.
    pub fn push(&mut self, octets: Vec<u8>, is_last: bool) -> Vec<u8> {
        self.is_begun = true;
        if self.section.is_over() {
            return octets;
        }
        let ours = self.ours.min(octets.len());
        self.ours -= ours;
        let held = self.section.held().to_vec();
        let (mut at, mut put) = (ours, Vec::new());
        let mut see = |token: Token<'_>| match token {
            Token::Name { octets, .. } | Token::Value(octets) => at += octets.len(),
            Token::Mbox(line) => {
                put.push((at, [MBOX_FIELD.as_bytes(), b": "].concat()));
                at += line.len();
            }
            Token::Body(_) => put.push((at, b"\r\n".to_vec())),
            Token::Empty(_) => {}
        };
        self.section.push(&octets[ours..], &mut see);
        if is_last {
            self.section.finish(&mut see);
        }
        let mut octets = if held.is_empty() { octets } else { [held, octets].concat() };
        octets.truncate(octets.len() - self.section.held().len());
        for (at, text) in put.into_iter().rev() {
            octets.splice(at..at, text);
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stentor_mime::field::MBOX_BYTES_MAX;

    use super::*;
    use crate::headers::{HeaderFacts, HeaderScan};

    const OURS: &str = "Received: by us\r\n\tfor you\r\n";

    fn stored(message: &[u8], size: usize) -> Vec<u8> {
        let content = [OURS.as_bytes(), message].concat();
        let (mut form, mut out) = (StoredForm::new(OURS.len()), Vec::new());
        let count = content.chunks(size).count();
        for (n, piece) in content.chunks(size).enumerate() {
            out.extend(form.push(piece.to_vec(), n + 1 == count));
        }
        out
    }

    fn facts(octets: &[u8]) -> HeaderFacts {
        let mut scan = HeaderScan::new();
        scan.push(octets);
        scan.finish()
    }

    #[test]
    fn what_programs_read_differently_is_stored_otherwise() {
        let long = format!("From {}\r\nA: b\r\n", "x".repeat(MBOX_BYTES_MAX));
        for (message, wanted) in [
            ("A: b\r\n\r\n x\r\n", "A: b\r\n\r\n x\r\n"),
            ("\r\n x\r\n", "\r\n x\r\n"),
            ("A: b\r\n c\r\n", "A: b\r\n c\r\n"),
            ("A: b", "A: b"),
            ("", ""),
            (" x\r\nA: b\r\n", "\r\n x\r\nA: b\r\n"),
            ("\tx\r\n", "\r\n\tx\r\n"),
            ("A: b\r\ntext\r\n", "A: b\r\n\r\ntext\r\n"),
            ("text", "\r\ntext"),
            ("A: b\r\nX\x0c: y\r\n", "A: b\r\n\r\nX\x0c: y\r\n"),
            ("From a\r\nA: b\r\n\r\n", "X-Mailbox-Line: From a\r\nA: b\r\n\r\n"),
            (">From a\r\n x\r\nA: b\r\n", "X-Mailbox-Line: >From a\r\n\r\n x\r\nA: b\r\n"),
            (&long, &format!("\r\n{long}")),
        ] {
            for size in [1, 2, 3, 7, 1_000, 9_999] {
                let got = stored(message.as_bytes(), size);
                assert_eq!(String::from_utf8_lossy(&got), format!("{OURS}{wanted}"), "{size}");
                assert_eq!(facts(message.as_bytes()).is_irregular, message != wanted, "{message}");
            }
        }
    }

    proptest! {
        /// After our fields the same header is found as in the client's octets, and stored content needs no further
        /// conversion.
        #[test]
        fn what_is_stored_says_the_same(
            lines in proptest::collection::vec("(List-Id|From |From|Received\x0c|Received|>From | |\t|A)?:?[ab<>]{0,3}(\r\n){1,2}", 0..6),
            size in 1usize..99,
        ) {
            let message = lines.concat().into_bytes();
            let stored = stored(&message, size);
            let (was, is) = (facts(&message), facts(&stored));
            prop_assert!(!is.is_irregular);
            let is_mbox = stored[OURS.len()..].starts_with(MBOX_FIELD.as_bytes());
            prop_assert_eq!(is.fields, was.fields + 1 + u32::from(is_mbox));
            prop_assert_eq!(is.received_count, was.received_count + 1);
            prop_assert_eq!((is.list_ids, is.from), (was.list_ids, was.from));
        }
    }
}
