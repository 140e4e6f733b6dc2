//! Edits a client's header before it is stored.
//!
//! | field | action |
//! |---|---|
//! | [`LEFT_OUT`] | removed, whoever sends it: blind copies must stay private (RFC 5322 section 3.6.3), and only the last host may state the return path (RFC 5321 section 4.4). As Postfix's `message_drop_headers`. A request for copies of its own ([`COPY_REQUEST_FIELD`]) is returned by [`HeaderEdit::take_copy_request`] |
//! | Date, Message-ID | added at the header's end if they are missing and wanted (RFC 6409 section 8) |
//! | in posts: fields that lists set themselves, and repeats of [`LIST_FIELDS`] | removed and returned by [`HeaderEdit::take_list_fields`], for the copies of others |
//!
//! Promise: nothing else changes, however large header and body are. Added fields follow the client's own, so that
//! trace fields stay before all others and milters see and sign the additions. Content arrives in pieces of any size,
//! in its stored form, and leaves in the same order. Time is linear.
//!
//! States: the fields before the client's header; its header, of which at most a line is held; after it, where octets
//! pass through.
//!
//! Failure: at most [`TAKEN_BYTES_MAX`] of removed fields are kept. Beyond that [`HeaderEdit::overflow`] reports it,
//! and the message must be refused.

use std::ops::Range;

use stentor_mime::field::{Section, Token, lines, split};

use crate::copy_request::COPY_REQUEST_FIELD;
use crate::headers::{HeaderFacts, HeaderScan, LEFT_OUT};

/// Fields that occur once each in a list's copies (RFC 2369 section 3, RFC 2919 section 6, RFC 8058 section 3.1).
pub const LIST_FIELDS: [&str; 9] = [
    "List-Id",
    "List-Post",
    "List-Owner",
    "List-Archive",
    "List-Help",
    "List-Subscribe",
    "List-Unsubscribe",
    "List-Unsubscribe-Post",
    "Precedence",
];
/// Maximum octets of removed fields.
pub const TAKEN_BYTES_MAX: usize = 64 * 1024;
/// Maximum octets kept of removed request fields; longer than any valid request.
const REQUESTS_BYTES_MAX: usize = 12 * 1024;

const FROM: &str = "From";
const ORIGINAL_FROM: &str = "X-Original-From";

/// Whether a field of the content is left out of copies that have another From.
pub fn is_author_field(name: &[u8]) -> bool {
    [FROM, ORIGINAL_FROM].iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
}

/// Whether the fields before the content have another From than the content, whose author they name apart.
pub fn has_other_author(prefix: &[u8]) -> bool {
    let is_original = |(name, _): (&[u8], &[u8])| name.eq_ignore_ascii_case(ORIGINAL_FROM.as_bytes());
    lines(prefix).filter_map(split).any(is_original)
}

/// Fields that a message gets if they are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFields {
    /// Value of Date.
    pub date: String,
    /// Value of Message-ID.
    pub message_id: String,
}

/// The changes to make to one message's header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// `None`: nothing is added.
    pub missing: Option<MissingFields>,
    /// For a post: the names of the fields that lists set themselves.
    pub post: Option<Vec<String>>,
}

/// The action on a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    #[default]
    Stays,
    LeftOut,
    CopyRequest,
    Replaced,
    Repeated,
}

/// Fields removed from a post, in their original form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFields {
    /// Fields that lists set themselves.
    pub replaced: Vec<u8>,
    /// Repeats of other fields, of which the first one stays.
    pub repeated: Vec<u8>,
}

impl ListFields {
    fn len(&self) -> usize {
        self.replaced.len() + self.repeated.len()
    }

    /// Returns all of them, for a copy that does not belong to a list.
    pub fn all(&self) -> Vec<u8> {
        [&*self.replaced, &*self.repeated].concat()
    }
}

/// Editor of one message.
#[derive(Debug)]
pub struct HeaderEdit {
    /// Octets of our own before the client's that are still to come.
    ours: usize,
    section: Section,
    scan: Option<HeaderScan>,
    wanted: HeaderChanges,
    /// Action on the current field.
    fate: Fate,
    /// Fields of [`LIST_FIELDS`] seen so far.
    seen: u16,
    taken: ListFields,
    /// Whole fields, at most [`REQUESTS_BYTES_MAX`] octets.
    requests: Vec<u8>,
    is_overfull: bool,
    was_given: bool,
    /// Whether the output so far ends with a line end.
    is_behind_line: bool,
}

impl HeaderEdit {
    /// Creates an editor. `ours`: octets of our own before the client's.
    pub fn new(ours: usize, wanted: HeaderChanges) -> HeaderEdit {
        HeaderEdit {
            ours,
            section: Section::bare(),
            scan: wanted.missing.is_some().then(HeaderScan::new),
            wanted,
            fate: Fate::Stays,
            seen: 0,
            taken: ListFields::default(),
            requests: Vec::new(),
            is_overfull: false,
            was_given: false,
            is_behind_line: true,
        }
    }

    /// An editor of content that leaves out the author's fields; `None`: the fields before it name no author.
    pub fn without_author(prefix: &[u8]) -> Option<HeaderEdit> {
        let post = Some([FROM, ORIGINAL_FROM].map(str::to_owned).to_vec());
        has_other_author(prefix).then(|| HeaderEdit::new(0, HeaderChanges { missing: None, post }))
    }

    /// Returns the Message-ID added here; `None`: it already had one, or its header has not ended.
    pub fn given_id(&self) -> Option<&str> {
        self.wanted.missing.as_ref().filter(|_| self.was_given).map(|missing| &*missing.message_id)
    }

    /// Takes the fields removed so far.
    pub fn take_list_fields(&mut self) -> ListFields {
        std::mem::take(&mut self.taken)
    }

    /// Takes the whole fields that ask for copies of its own, removed so far. Beyond a limit they are cut.
    pub fn take_copy_request(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.requests)
    }

    /// Returns the exceeded limit, if any.
    pub fn overflow(&self) -> Option<&'static str> {
        self.is_overfull.then_some("too many list fields")
    }

    /// Takes the next octets, and returns the edited ones; the end of a piece may be returned with the next.
    pub fn push(&mut self, octets: Vec<u8>, is_last: bool) -> Vec<u8> {
        if self.section.is_over() {
            return octets;
        }
        let ours = self.ours.min(octets.len());
        self.ours -= ours;
        if let Some(scan) = &mut self.scan {
            scan.push(&octets[ours..]);
        }
        let mut section = std::mem::take(&mut self.section);
        let held = section.held().to_vec();
        let mut cut = Cut { at: ours, ranges: Vec::new(), is_empty_line: false };
        section.push(&octets[ours..], &mut |token| self.see(token, &mut cut));
        if is_last {
            section.finish(&mut |token| self.see(token, &mut cut));
        }
        let mut octets = if held.is_empty() { octets } else { [held, octets].concat() };
        octets.truncate(octets.len() - section.held().len());
        self.section = section;
        if self.section.is_over() {
            let mut fields = self.missing();
            if !cut.is_empty_line && !fields.is_empty() && !self.is_behind_line {
                fields.splice(0..0, *b"\r\n");
            }
            octets.splice(cut.at..cut.at, fields);
        }
        cut.applied(octets)
    }

    fn see(&mut self, token: Token<'_>, cut: &mut Cut) {
        let octets = match token {
            Token::Name { octets, name } => {
                self.fate = self.fate_of(&octets[..name]);
                octets
            }
            Token::Value(octets) => octets,
            Token::Mbox(octets) => {
                self.fate = Fate::Stays;
                octets
            }
            Token::Empty(_) | Token::Body(_) => {
                cut.is_empty_line = true;
                return;
            }
        };
        if self.fate == Fate::Stays {
            self.is_behind_line = octets.ends_with(b"\n");
        } else {
            cut.add(octets.len());
        }
        if matches!(self.fate, Fate::Replaced | Fate::Repeated) {
            self.is_overfull |= self.taken.len() + octets.len() > TAKEN_BYTES_MAX;
            let taken = &mut self.taken;
            if !self.is_overfull {
                let kept = if self.fate == Fate::Replaced { &mut taken.replaced } else { &mut taken.repeated };
                kept.extend_from_slice(octets);
            }
        }
        if self.fate == Fate::CopyRequest {
            let free = REQUESTS_BYTES_MAX - self.requests.len();
            self.requests.extend_from_slice(&octets[..octets.len().min(free)]);
        }
        cut.at += octets.len();
    }

    fn fate_of(&mut self, name: &[u8]) -> Fate {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is(COPY_REQUEST_FIELD) {
            return Fate::CopyRequest;
        }
        if LEFT_OUT.iter().any(|field| is(field)) {
            return Fate::LeftOut;
        }
        let Some(own) = &self.wanted.post else { return Fate::Stays };
        if own.iter().any(|field| is(field)) {
            return Fate::Replaced;
        }
        let Some(at) = LIST_FIELDS.iter().position(|field| is(field)) else { return Fate::Stays };
        let is_repeat = self.seen & (1 << at) != 0;
        self.seen |= 1 << at;
        if is_repeat { Fate::Repeated } else { Fate::Stays }
    }

    /// Returns the fields that the complete header lacks.
    fn missing(&mut self) -> Vec<u8> {
        let (Some(missing), Some(scan)) = (&self.wanted.missing, self.scan.take()) else { return Vec::new() };
        let facts: HeaderFacts = scan.finish();
        let mut fields = String::new();
        if !facts.has_date {
            fields.extend(["Date: ", &missing.date, "\r\n"]);
        }
        self.was_given = facts.message_id.is_none();
        if self.was_given {
            fields.extend(["Message-ID: ", &missing.message_id, "\r\n"]);
        }
        fields.into_bytes()
    }
}

/// Octets to remove from a piece.
struct Cut {
    at: usize,
    ranges: Vec<Range<usize>>,
    is_empty_line: bool,
}

impl Cut {
    fn add(&mut self, len: usize) {
        match self.ranges.last_mut() {
            Some(last) if last.end == self.at => last.end += len,
            _ => self.ranges.push(self.at..self.at + len),
        }
    }

    fn applied(&self, octets: Vec<u8>) -> Vec<u8> {
        if self.ranges.is_empty() {
            return octets;
        }
        let (mut out, mut from) = (Vec::with_capacity(octets.len()), 0);
        for range in &self.ranges {
            out.extend_from_slice(&octets[from..range.start]);
            from = range.end;
        }
        out.extend_from_slice(&octets[from..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: &str = "Received: by us\r\n\tfor you\r\n";
    const DATE: &str = "Date: today\r\n";
    const ID: &str = "Message-ID: <1@us>\r\n";

    fn missing() -> MissingFields {
        MissingFields { date: "today".to_owned(), message_id: "<1@us>".to_owned() }
    }

    struct Edited {
        text: String,
        replaced: String,
        repeated: String,
        is_given: bool,
    }

    fn edited(wanted: HeaderChanges, message: &[u8], size: usize) -> Edited {
        let content = [OURS.as_bytes(), message].concat();
        let mut edit = HeaderEdit::new(OURS.len(), wanted);
        let (mut out, count) = (Vec::new(), content.chunks(size).count());
        for (n, piece) in content.chunks(size).enumerate() {
            out.extend(edit.push(piece.to_vec(), n + 1 == count));
        }
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let taken = edit.take_list_fields();
        let (replaced, repeated) = (text(&taken.replaced), text(&taken.repeated));
        Edited { text: text(&out), is_given: edit.given_id().is_some(), replaced, repeated }
    }

    const SIZES: [usize; 6] = [1, 2, 3, 5, 17, 9_999];

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
            ("A: b\r\nBcc: x@y", format!("A: b\r\n{DATE}{ID}")),
            ("Bcc: x@y\r\n\r\nx", format!("{DATE}{ID}\r\nx")),
        ] {
            for size in SIZES {
                let got = edited(HeaderChanges { missing: Some(missing()), post: None }, message.as_bytes(), size);
                assert_eq!(got.text, format!("{OURS}{wanted}"), "{message:?} by {size}");
                assert_eq!(got.is_given, wanted.contains(ID), "{message:?}");
            }
        }
    }

    #[test]
    fn blind_copies_and_return_paths_go_however_they_are_written() {
        let long = format!("Bcc: {}\r\nTo: c\r\n\r\n", "x@y,\r\n ".repeat(500));
        for (message, wanted) in [
            ("Bcc: a@b\r\nTo: c\r\n\r\nBcc: d\r\n", "To: c\r\n\r\nBcc: d\r\n"),
            ("To: c\r\nbCC \t: a@b,\r\n\td@e\r\n f@g\r\nSubject: x\r\n\r\n", "To: c\r\nSubject: x\r\n\r\n"),
            ("RESENT-BCC:a\r\nResent-To: b\r\n\r\n", "Resent-To: b\r\n\r\n"),
            ("Return-Path: <a@b>\r\nReturn-path:\r\n <c@d>\r\nA: b\r\n\r\nx", "A: b\r\n\r\nx"),
            ("Bcc:\r\n\r\n", "\r\n"),
            ("Bcc: a\r\n", ""),
            ("A: b\r\nBcc: a", "A: b\r\n"),
            ("A: b\r\nBcc: a\r\ntext\r\n", "A: b\r\ntext\r\n"),
            ("Bcc: =?utf-8?q?J=C3=B6rg?= <a@b>\r\nA: b\r\n\r\n", "A: b\r\n\r\n"),
            ("Bcc: J\u{f6}rg <a@b>\r\nA: b\r\n\r\n", "A: b\r\n\r\n"),
            ("X-Bcc: a\r\nBcc-X: b\r\nReturn-Path-X: c\r\n\r\n", "X-Bcc: a\r\nBcc-X: b\r\nReturn-Path-X: c\r\n\r\n"),
            (&long, "To: c\r\n\r\n"),
        ] {
            for size in SIZES {
                let got = edited(HeaderChanges::default(), message.as_bytes(), size);
                assert_eq!(got.text, format!("{OURS}{wanted}"), "{message:?} by {size}");
                assert!(got.replaced.is_empty() && got.repeated.is_empty() && !got.is_given);
            }
        }
    }

    #[test]
    fn requests_are_removed_and_returned_with_their_folds() {
        let message = "A: b\r\nx-stentor-COPIES\t: verp=plain;\r\n one_click\r\nB: c\r\nX-Stentor-Copies: x\r\n\r\n\
                       X-Stentor-Copies: body\r\n";
        for size in SIZES {
            let mut edit = HeaderEdit::new(0, HeaderChanges::default());
            let count = message.len().div_ceil(size);
            let pieces = message.as_bytes().chunks(size).enumerate();
            let out: Vec<u8> = pieces.flat_map(|(n, piece)| edit.push(piece.to_vec(), n + 1 == count)).collect();
            assert_eq!(out, b"A: b\r\nB: c\r\n\r\nX-Stentor-Copies: body\r\n");
            let wanted = b"x-stentor-COPIES\t: verp=plain;\r\n one_click\r\nX-Stentor-Copies: x\r\n";
            assert_eq!(edit.take_copy_request(), wanted, "by {size}");
        }
        let mut edit = HeaderEdit::new(0, HeaderChanges::default());
        let long = format!("X-Stentor-Copies: {}\r\n\r\n", "x;\r\n ".repeat(60_000));
        assert_eq!(edit.push(long.into_bytes(), true), b"\r\n");
        assert_eq!(edit.take_copy_request().len(), REQUESTS_BYTES_MAX);
    }

    #[test]
    fn fields_of_lists_are_taken_out_of_posts() {
        let own = || vec!["list-id".to_owned(), "precedence".to_owned()];
        for (message, stays, replaced, repeated) in [
            (
                "LIST-ID: P\r\n <p.x>\r\nA: b\r\nprecedence : bulk\r\n\r\nx",
                "A: b\r\n\r\nx",
                "LIST-ID: P\r\n <p.x>\r\nprecedence : bulk\r\n",
                "",
            ),
            ("List-Id: <a.x>\r\nList-Id: <b.x>\r\n\r\n", "\r\n", "List-Id: <a.x>\r\nList-Id: <b.x>\r\n", ""),
            ("List-Post: 1\r\nA: b\r\nlist-post : 2\r\n\r\n", "List-Post: 1\r\nA: b\r\n\r\n", "", "list-post : 2\r\n"),
            ("List-Unsubscribe: 1\r\n\r\nList-Id: x\r\n", "List-Unsubscribe: 1\r\n\r\nList-Id: x\r\n", "", ""),
            ("List-Foo: 1\r\nList-Foo: 2\r\n\r\n", "List-Foo: 1\r\nList-Foo: 2\r\n\r\n", "", ""),
        ] {
            for size in SIZES {
                let got = edited(HeaderChanges { missing: None, post: Some(own()) }, message.as_bytes(), size);
                assert_eq!(got.text, format!("{OURS}{stays}"), "{message:?} by {size}");
                assert_eq!((&*got.replaced, &*got.repeated), (replaced, repeated), "{message:?} by {size}");
                let other = edited(HeaderChanges::default(), message.as_bytes(), size);
                assert_eq!(other.text, format!("{OURS}{message}"), "it is no post");
            }
        }
    }

    #[test]
    fn what_is_taken_out_has_a_limit() {
        let wanted = || HeaderChanges { missing: None, post: Some(vec!["list-id".to_owned()]) };
        for (octets, is_over) in [(TAKEN_BYTES_MAX - 11, false), (TAKEN_BYTES_MAX - 10, true)] {
            let mut edit = HeaderEdit::new(0, wanted());
            let rest = edit.push(format!("List-Id: {}\r\n\r\nx", "y".repeat(octets)).into_bytes(), true);
            assert_eq!((&*rest, edit.overflow().is_some()), (&b"\r\nx"[..], is_over), "{octets}");
        }
        let mut edit = HeaderEdit::new(0, HeaderChanges::default());
        let many = "Bcc: x\r\nA: b\r\n".repeat(100_000) + "\r\n";
        assert_eq!(edit.push(many.into_bytes(), true), ("A: b\r\n".repeat(100_000) + "\r\n").into_bytes());
    }

    proptest! {
        /// Whatever arrives, the client's other octets are all there, in order, and the header has both fields.
        #[test]
        fn nothing_is_lost(
            fields in proptest::collection::vec("(Date|Message-ID|A): ?<?[ab@]{1,3}>?\r\n( [ab]{0,3}\r\n)?", 0..5),
            blind in proptest::collection::vec("(B[Cc]{2}|resent-bcc|Return-Path) ?: ?[ab@]{0,3}\r\n( [ab]{0,3}\r\n)?", 5),
            body in "[ab\r\n:]{0,20}",
            size in 1usize..50,
        ) {
            let message = fields.concat() + "\r\n" + &body;
            let sent: String = fields.iter().zip(&blind).flat_map(|(field, blind)| [&**blind, &**field]).collect();
            let sent = sent + "\r\n" + &body;
            let got = edited(HeaderChanges { missing: Some(missing()), post: None }, sent.as_bytes(), size).text;
            prop_assert_eq!(got.replacen(DATE, "", 1).replacen(ID, "", 1), format!("{OURS}{message}"));
            let mut scan = HeaderScan::new();
            scan.push(got.as_bytes());
            let facts = scan.finish();
            prop_assert!(facts.has_date && facts.message_id.is_some() && !facts.has_left_out);
        }

        /// Removed and kept octets together are the input, wherever it is cut.
        #[test]
        fn taking_out_is_a_division(
            lines in proptest::collection::vec("(List-Id|List-Post|list-help|Precedence|A): ?[ab]{0,3}\r\n( [ab]{1,3}\r\n)?", 0..8),
            size in 1usize..50,
        ) {
            let message = lines.concat() + "\r\nbody";
            let wanted = || HeaderChanges { missing: None, post: Some(vec!["list-id".to_owned()]) };
            let got = edited(wanted(), message.as_bytes(), size);
            let whole = edited(wanted(), message.as_bytes(), 9_999);
            prop_assert_eq!((&got.text, &got.replaced, &got.repeated), (&whole.text, &whole.replaced, &whole.repeated));
            let parts = [&got.text[OURS.len()..], &*got.replaced, &*got.repeated];
            let mut parts: Vec<&str> = parts.iter().flat_map(|part| part.split_inclusive('\n')).collect();
            let mut all: Vec<&str> = message.split_inclusive('\n').collect();
            parts.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(parts, all);
            prop_assert!(!got.text.to_ascii_lowercase().contains("list-id"));
        }
    }
}
