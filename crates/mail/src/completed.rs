//! What the header of a user's message lacks: Date and Message-ID (RFC 6409 section 8), put at the end of its header.
//!
//! Promise: the fields stand behind the client's own, however large header and body are, so that trace fields stay before all others
//! and milters see and sign what was added. Nothing else changes. Content comes in pieces of any size, in its stored form, and leaves in
//! the same order.
//!
//! States: the fields before the client's header; its header, of which at most a line is held; behind it, where octets pass through.

use stentor_mime::field::{Section, Token};

use crate::headers::{HeaderFacts, HeaderScan};

/// Completes one message.
#[derive(Debug)]
pub struct Completion {
    /// Octets before the client's that are still to come.
    ours: usize,
    section: Section,
    scan: HeaderScan,
    date: String,
    message_id: String,
    was_given: bool,
    /// What has come ends with a line's end.
    is_behind_line: bool,
}

impl Completion {
    /// `ours`: so many octets before the client's are ours; what is put in, if it is missing.
    pub fn new(ours: usize, date: String, message_id: String) -> Completion {
        let (section, scan) = (Section::bare(), HeaderScan::new());
        Completion { ours, section, scan, date, message_id, was_given: false, is_behind_line: true }
    }

    /// The Message-ID that the message got here; `None`: it had one, or its header has not ended.
    pub fn given_id(&self) -> Option<&str> {
        self.was_given.then_some(&self.message_id)
    }

    /// Takes the next octets, and returns those that go on: the end of a piece may come with the next.
    pub fn push(&mut self, octets: Vec<u8>, is_last: bool) -> Vec<u8> {
        if self.section.is_over() {
            return octets;
        }
        let ours = self.ours.min(octets.len());
        self.ours -= ours;
        self.scan.push(&octets[ours..]);
        self.is_behind_line = octets.last().map_or(self.is_behind_line, |last| *last == b'\n');
        let held = self.section.held().to_vec();
        let (mut at, mut is_empty_line) = (ours, false);
        let mut see = |token: Token<'_>| match token {
            Token::Name { octets, .. } | Token::Value(octets) | Token::Mbox(octets) => at += octets.len(),
            Token::Empty(_) | Token::Body(_) => is_empty_line = true,
        };
        self.section.push(&octets[ours..], &mut see);
        if is_last {
            self.section.finish(&mut see);
        }
        let mut octets = if held.is_empty() { octets } else { [held, octets].concat() };
        octets.truncate(octets.len() - self.section.held().len());
        if self.section.is_over() {
            let facts = std::mem::take(&mut self.scan).finish();
            let mut fields = self.missing(&facts);
            if !is_empty_line && !fields.is_empty() && !self.is_behind_line {
                fields.splice(0..0, *b"\r\n");
            }
            octets.splice(at..at, fields);
        }
        octets
    }

    fn missing(&mut self, facts: &HeaderFacts) -> Vec<u8> {
        let mut fields = String::new();
        if !facts.has_date {
            fields.extend(["Date: ", &self.date, "\r\n"]);
        }
        self.was_given = facts.message_id.is_none();
        if self.was_given {
            fields.extend(["Message-ID: ", &self.message_id, "\r\n"]);
        }
        fields.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: &str = "Received: by us\r\n\tfor you\r\n";
    const DATE: &str = "Date: today\r\n";
    const ID: &str = "Message-ID: <1@us>\r\n";

    fn completed(message: &[u8], size: usize) -> (String, bool) {
        let content = [OURS.as_bytes(), message].concat();
        let mut completion = Completion::new(OURS.len(), "today".to_owned(), "<1@us>".to_owned());
        let (mut out, count) = (Vec::new(), content.chunks(size).count());
        for (n, piece) in content.chunks(size).enumerate() {
            out.extend(completion.push(piece.to_vec(), n + 1 == count));
        }
        (String::from_utf8_lossy(&out).into_owned(), completion.given_id().is_some())
    }

    #[test]
    fn what_is_missing_stands_at_the_end_of_the_header() {
        for (message, wanted) in [
            ("A: b\r\n\r\nx\r\n", format!("A: b\r\n{DATE}{ID}\r\nx\r\n")),
            ("A: b\r\n c\r\n\r\n\r\nDate: x\r\n", format!("A: b\r\n c\r\n{DATE}{ID}\r\n\r\nDate: x\r\n")),
            ("date : x\r\nA: b\r\n\r\n", format!("date : x\r\nA: b\r\n{ID}\r\n")),
            ("MESSAGE-ID: <2@x>\r\n\r\nx", format!("MESSAGE-ID: <2@x>\r\n{DATE}\r\nx")),
            ("Date: x\r\nMessage-ID: <2@x>\r\n\r\nx", "Date: x\r\nMessage-ID: <2@x>\r\n\r\nx".to_owned()),
            ("\r\nx", format!("{DATE}{ID}\r\nx")),
            ("A: b\r\n", format!("A: b\r\n{DATE}{ID}")),
            ("A: b", format!("A: b\r\n{DATE}{ID}")),
            ("", format!("{DATE}{ID}")),
        ] {
            for size in [1, 2, 3, 5, 17, 9_999] {
                let (got, is_given) = completed(message.as_bytes(), size);
                assert_eq!(got, format!("{OURS}{wanted}"), "{message:?} by {size}");
                assert_eq!(is_given, wanted.contains(ID), "{message:?}");
            }
        }
    }

    proptest! {
        /// Whatever comes, the client's octets are all there, in order, and the header has both fields.
        #[test]
        fn nothing_is_lost(
            fields in proptest::collection::vec("(Date|Message-ID|A): ?<?[ab@]{1,3}>?\r\n( [ab]{0,3}\r\n)?", 0..5),
            body in "[ab\r\n:]{0,20}",
            size in 1usize..50,
        ) {
            let message = fields.concat() + "\r\n" + &body;
            let (got, _) = completed(message.as_bytes(), size);
            prop_assert_eq!(got.replacen(DATE, "", 1).replacen(ID, "", 1), format!("{OURS}{message}"));
            let mut scan = HeaderScan::new();
            scan.push(got.as_bytes());
            let facts = scan.finish();
            prop_assert!(facts.has_date && facts.message_id.is_some());
        }
    }
}
