//! A message's header with the changes of milters, octet by octet.
//!
//! Promise: fields that no milter changes keep their octets. Milters count the fields that they see: those that we
//! put before the message are hidden, so "the first Received" is the client's. Only the position of an insertion
//! counts ours, as one field: 0 is before them, 1 after them, 2 after the first field of the message (sendmail and
//! Postfix treat their own Received like that).
//!
//! A milter's text becomes complete lines: each line end is CR LF, a continuation line begins with white space or
//! gets a tab, empty lines are removed. So it can neither end the header nor start another field.
//!
//! Failure: a [`HeaderError`] beyond [`HEADER_BYTES_MAX`] or [`FIELDS_MAX`].

mod editor;

use std::ops::Range;
use std::sync::Arc;

pub use editor::Editor;
use stentor_mime::field::{Edit, Section, Token};

/// Maximum size of a header with its changes: twice what a client may send.
pub const HEADER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum fields of a header with its changes.
const FIELDS_MAX: usize = 20_000;

/// Why a header cannot be read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the header becomes too large")]
    TooLarge,
    #[error("too many changes for so many header fields")]
    TooManySteps,
}

/// A field's octets, including line ends.
#[derive(Debug, Clone)]
enum Octets {
    /// Range in the message's header, which is shorter than [`u32::MAX`].
    Read(Range<u32>),
    Made(Box<[u8]>),
}

#[derive(Debug, Clone)]
struct Field {
    octets: Octets,
    /// Length of the name, up to the colon.
    name: u32,
    /// Whether we put it before the message.
    is_ours: bool,
}

impl Field {
    fn of(name: &[u8], value: &[u8], keeps_space: bool) -> Field {
        let mut octets = Vec::with_capacity(name.len() + value.len() + 4);
        octets.extend_from_slice(name);
        octets.push(b':');
        if !keeps_space {
            octets.push(b' ');
        }
        let mut lines = value.split(|octet| matches!(octet, b'\r' | b'\n')).enumerate();
        // There is always a first line, which may be empty.
        octets.extend_from_slice(lines.next().map_or(&[], |(_, line)| line));
        octets.extend_from_slice(b"\r\n");
        for (_, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
            if !matches!(line[0], b' ' | b'\t') {
                octets.push(b'\t');
            }
            octets.extend_from_slice(line);
            octets.extend_from_slice(b"\r\n");
        }
        Field { octets: Octets::Made(octets.into()), name: place(name.len()), is_ours: false }
    }
}

/// A field as seen by milters.
#[derive(Clone, Copy, PartialEq, Eq)]
struct VisibleField<'h> {
    octets: &'h [u8],
    name: usize,
    is_ours: bool,
}

impl<'h> VisibleField<'h> {
    fn name(self) -> &'h [u8] {
        self.octets[..self.name].trim_ascii_end()
    }

    fn value(self) -> &'h [u8] {
        self.octets.get(self.name + 1..).unwrap_or_default()
    }
}

/// A header section without the empty line that ends it.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The text as read; changes do not affect it.
    text: Arc<Vec<u8>>,
    fields: Vec<Field>,
    bytes: usize,
}

impl PartialEq for Header {
    fn eq(&self, other: &Header) -> bool {
        self.seen().eq(other.seen())
    }
}

impl Eq for Header {}

/// Reads the header of a stored message in pieces; its end is defined by [`stentor_mime::field`].
#[derive(Debug)]
pub struct HeaderReader {
    section: Section,
    text: Vec<u8>,
    fields: Vec<Field>,
    ours: usize,
    /// Length of the empty line.
    end: usize,
}

impl HeaderReader {
    /// Starts reading a message whose first `ours` fields were added by us.
    pub fn new(ours: usize) -> HeaderReader {
        HeaderReader { section: Section::bare(), text: Vec::new(), fields: Vec::new(), ours, end: 0 }
    }

    /// Adds the next octets. Returns whether the header has ended.
    ///
    /// # Errors
    /// It is too large; no more can be added.
    pub fn push(&mut self, octets: &[u8]) -> Result<bool, HeaderError> {
        let HeaderReader { section, text, fields, ours, end } = self;
        section.push(octets, &mut |token| match token {
            _ if fields.len() > FIELDS_MAX || text.len() > HEADER_BYTES_MAX => {}
            Token::Name { octets, .. } => {
                let begin = place(text.len());
                text.extend_from_slice(octets);
                let name = place(octets.len() - 1);
                let octets = Octets::Read(begin..place(text.len()));
                fields.push(Field { octets, name, is_ours: fields.len() < *ours });
            }
            Token::Value(value) => {
                text.extend_from_slice(value);
                if let Some(Field { octets: Octets::Read(whole), .. }) = fields.last_mut() {
                    whole.end = place(text.len());
                }
            }
            Token::Empty(line) => *end = line.len(),
            Token::Mbox(_) | Token::Body(_) => {}
        });
        let is_too_large = self.fields.len() > FIELDS_MAX || self.text.len() > HEADER_BYTES_MAX;
        if is_too_large { Err(HeaderError::TooLarge) } else { Ok(self.section.is_over()) }
    }

    /// Memory that the header uses so far.
    pub fn held_bytes(&self) -> usize {
        self.text.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// The header, and the number of octets before the body. The message may have ended.
    pub fn finish(self) -> (Header, usize) {
        let (bytes, end) = (self.text.len(), self.end);
        (Header { text: Arc::new(self.text), fields: self.fields, bytes }, bytes + end)
    }
}

impl Header {
    fn see<'h>(&'h self, field: &'h Field) -> VisibleField<'h> {
        let octets = match &field.octets {
            Octets::Read(whole) => &self.text[whole.start as usize..whole.end as usize],
            Octets::Made(octets) => octets,
        };
        VisibleField { octets, name: field.name as usize, is_ours: field.is_ours }
    }

    fn seen(&self) -> impl DoubleEndedIterator<Item = VisibleField<'_>> + ExactSizeIterator {
        self.fields.iter().map(|field| self.see(field))
    }

    /// Names and values as sent to a milter: lines of a value are separated by LF. One space after the colon is
    /// removed unless the milter wants it.
    pub fn shown(&self, keeps_space: bool) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
        Self::values(self.seen().filter(|field| !field.is_ours), keeps_space)
    }

    /// Names and values of all fields, including ours.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
        Self::values(self.seen(), true)
    }

    fn values<'h>(
        fields: impl Iterator<Item = VisibleField<'h>>,
        keeps_space: bool,
    ) -> impl Iterator<Item = (&'h [u8], Vec<u8>)> {
        fields.map(move |field| {
            let value = field.value();
            let value = if keeps_space { value } else { value.strip_prefix(b" ").unwrap_or(value) };
            let value = value.strip_suffix(b"\n").unwrap_or(value);
            let value = value.iter().copied().filter(|octet| *octet != b'\r').collect();
            (field.name(), value)
        })
    }

    /// Edits the fields of the message: `edit` decides about each, given name and value. Returns the number of
    /// changed fields.
    ///
    /// # Errors
    /// The header becomes too large.
    pub fn edit(&mut self, mut edit: impl FnMut(&[u8], &[u8]) -> Edit) -> Result<usize, HeaderError> {
        let mut changed = 0;
        for field in std::mem::take(&mut self.fields) {
            let seen = self.see(&field);
            let edit = if field.is_ours { Edit::None } else { edit(seen.name(), seen.value()) };
            let new = match edit {
                Edit::None => {
                    self.fields.push(field);
                    continue;
                }
                Edit::Remove => None,
                Edit::Replace(value) => Some(Field::of(seen.name(), &value, false)),
            };
            changed += 1;
            self.bytes -= seen.octets.len();
            if let Some(new) = new {
                self.insert(self.fields.len(), new)?;
            }
        }
        Ok(changed)
    }

    /// Index for a field inserted after `count` others; ours count as one.
    fn position(&self, count: u32) -> usize {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (mut passed, mut at, mut is_in_ours) = (0, 0, false);
        for field in &self.fields {
            // Removed fields are skipped and not counted.
            if !field.is_gap() {
                let begins = !(is_in_ours && field.is_ours);
                if begins && passed == count {
                    break;
                }
                passed += usize::from(begins);
                is_in_ours = field.is_ours;
            }
            at += 1;
        }
        at
    }

    fn insert(&mut self, at: usize, field: Field) -> Result<(), HeaderError> {
        self.bytes += self.see(&field).octets.len();
        self.fields.insert(at, field);
        let is_too_large = self.bytes > HEADER_BYTES_MAX || self.fields.len() > FIELDS_MAX;
        if is_too_large { Err(HeaderError::TooLarge) } else { Ok(()) }
    }

    fn replace(&mut self, at: usize, field: Field) -> Result<(), HeaderError> {
        self.bytes = self.bytes - self.see(&self.fields[at]).octets.len() + self.see(&field).octets.len();
        self.fields[at] = field;
        if self.bytes > HEADER_BYTES_MAX { Err(HeaderError::TooLarge) } else { Ok(()) }
    }

    /// Whether no more fields can be inserted.
    fn is_full(&self) -> bool {
        self.fields.len() >= FIELDS_MAX
    }

    /// The octets, without the empty line.
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(self.bytes + 2);
        for field in self.seen() {
            octets.extend_from_slice(field.octets);
        }
        octets
    }

    /// Number of octets before the message's first field: ours, and those that milters put before or among them.
    pub fn lead(&self) -> usize {
        let last = self.fields.iter().rposition(|field| field.is_ours).map_or(0, |at| at + 1);
        self.seen().take(last).map(|field| field.octets.len()).sum()
    }
}

/// Limits keep it small.
fn place(octets: usize) -> u32 {
    u32::try_from(octets).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::answer::Change;

    const MESSAGE: &[u8] = b"Received: ours\r\n\tby us\r\nReceived: first\r\nSubject:  two\r\n\t spaces\r\nreceived : second\r\nX:\r\n\r\nbody\r\n";

    pub(super) fn take(message: &[u8], ours: usize) -> (Header, usize) {
        let mut reader = HeaderReader::new(ours);
        reader.push(message).unwrap();
        reader.finish()
    }

    pub(super) fn header() -> Header {
        take(MESSAGE, 1).0
    }

    fn with(change: &Change) -> String {
        String::from_utf8(edited(header(), [change.clone()], false).octets()).unwrap()
    }

    fn edited(header: Header, changes: impl IntoIterator<Item = Change>, keeps_space: bool) -> Header {
        let mut editor = Editor::new(header, keeps_space);
        for change in changes {
            editor.apply(&change).unwrap();
        }
        editor.finish()
    }

    pub(super) fn insert(index: u32) -> Change {
        Change::InsertHeader { index, name: b"N".to_vec(), value: b"v".to_vec() }
    }

    pub(super) fn change(index: u32, name: &str, value: &str) -> Change {
        Change::ChangeHeader { index, name: name.into(), value: value.into() }
    }

    #[test]
    fn a_milter_is_shown_what_the_client_sent() {
        let header = header();
        let shown = |keeps: bool| -> Vec<(String, String)> {
            let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
            header.shown(keeps).map(|(name, value)| (text(name), text(&value))).collect()
        };
        let pairs = |values: [&str; 4]| {
            ["Received", "Subject", "received", "X"]
                .into_iter()
                .zip(values)
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(false), pairs(["first", " two\n\t spaces", "second", ""]));
        assert_eq!(shown(true), pairs([" first", "  two\n\t spaces", " second", ""]));
    }

    #[test]
    fn the_header_ends_where_the_body_begins() {
        assert_eq!(take(MESSAGE, 1).1, MESSAGE.len() - 6);
        for (message, bytes, body) in [
            (&b"A: b\r\nno field\r\n"[..], 6, 6),
            (b"\r\nbody", 0, 2),
            (b"A: b\r\n", 6, 6),
            (b"A: b", 4, 4),
            (b"A: b\r\nFrom a@b Mon\r\nA: b\r\n\r\n", 6, 6),
            (b" x\r\n", 0, 0),
            (b"A: b\r\nX\x0c: y\r\n", 6, 6),
            (b"A: b\r\n\x0c\r\n", 6, 6),
            (b"", 0, 0),
        ] {
            let (header, at) = take(message, 0);
            assert_eq!((header.octets().len(), at), (bytes, body), "{}", message.escape_ascii());
        }
    }

    #[test]
    fn a_header_in_pieces_is_that_of_the_whole() {
        for size in 1..MESSAGE.len() {
            let mut reader = HeaderReader::new(1);
            let over = MESSAGE.chunks(size).position(|piece| reader.push(piece).unwrap());
            assert_eq!(over, Some((MESSAGE.len() - 7) / size), "{size}");
            let (header, at) = reader.finish();
            assert_eq!((at, header == self::header()), (MESSAGE.len() - 6, true), "{size}");
        }
    }

    /// Parsing uses memory in proportion to the octets, plus a bounded amount for fields without any.
    #[test]
    fn a_header_that_is_read_has_limits() {
        let mut reader = HeaderReader::new(0);
        let fields = b"A:\r\n".repeat(FIELDS_MAX);
        assert_eq!(reader.push(&fields), Ok(false));
        assert!(reader.held_bytes() < 2_000_000, "{}", reader.held_bytes());
        assert_eq!(reader.push(&fields), Err(HeaderError::TooLarge));
        assert!(reader.held_bytes() < 3_000_000, "{}", reader.held_bytes());
        let mut reader = HeaderReader::new(0);
        let long = [b"A: ".to_vec(), vec![b'x'; HEADER_BYTES_MAX]].concat();
        assert_eq!(reader.push(&long), Err(HeaderError::TooLarge));
    }

    #[test]
    fn positions_count_our_fields_as_one() {
        let starts = |index: u32| with(&insert(index)).split("N: v").next().unwrap().len();
        let after = |text: &str| String::from_utf8_lossy(MESSAGE).find(text).unwrap();
        assert_eq!(starts(0), 0);
        assert_eq!(starts(1), after("Received: first"));
        assert_eq!(starts(2), after("Subject"));
        assert_eq!(starts(4), after("X:"));
        assert_eq!((starts(5), starts(u32::MAX)), (MESSAGE.len() - 8, MESSAGE.len() - 8));
        let changes = [0, 1, 2, 3].map(|index| {
            let name = format!("N{index}").into_bytes();
            Change::InsertHeader { index, name, value: b"v".to_vec() }
        });
        let twice = edited(header(), changes, false);
        let text = String::from_utf8(twice.octets()).unwrap();
        let names: Vec<&str> =
            text.lines().filter(|line| !line.starts_with('\t')).map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(names, ["N0", "N1", "N2", "N3", "Received", "Received", "Subject", "received ", "X"]);
    }

    #[test]
    fn changes_count_by_name_without_our_own() {
        assert!(with(&change(1, "RECEIVED", "new")).contains("\tby us\r\nRECEIVED: new\r\nSubject"));
        assert!(with(&change(0, "Received", "new")).contains("\tby us\r\nReceived: new\r\n"), "0 is the first");
        assert!(with(&change(2, "Received", "new")).contains("spaces\r\nReceived: new\r\nX:"));
        assert!(with(&change(3, "Received", "new")).ends_with("X:\r\nReceived: new\r\n"), "appended if there is none");
        assert_eq!(with(&change(3, "Received", "")), String::from_utf8(header().octets()).unwrap());
        assert!(!with(&change(1, "subject", "")).contains("two"));
    }

    #[test]
    fn a_value_cannot_end_the_header_or_begin_a_field() {
        let add = |value: &str, keeps| {
            let change = Change::AddHeader { name: b"X".to_vec(), value: value.into() };
            String::from_utf8(edited(Header::default(), [change], keeps).octets()).unwrap()
        };
        assert_eq!(add("a\n b\r\n\tc", false), "X: a\r\n b\r\n\tc\r\n");
        assert_eq!(add("a\r\n\r\nBcc: x\r\n", false), "X: a\r\n\tBcc: x\r\n");
        assert_eq!(add(" a\rb", true), "X: a\r\n\tb\r\n");
        assert_eq!(add("", true), "X:\r\n");
    }

    #[test]
    fn there_is_a_limit() {
        let mut editor = Editor::new(header(), false);
        let large = Change::AddHeader { name: b"X".to_vec(), value: vec![b'x'; HEADER_BYTES_MAX / 2] };
        assert_eq!(editor.apply(&large), Ok(()));
        assert_eq!(editor.apply(&large), Err(HeaderError::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_not_changed_keeps_its_octets(message in "((A|b c|From |X-Long):? ?[a-z:]{0,6}(\r\n|\n|\r\n |\r\n\t|\r\n\r\n)){0,8}", ours in 0usize..3) {
            let (header, body) = take(message.as_bytes(), ours);
            let octets = header.octets();
            prop_assert!(message.as_bytes().starts_with(&octets));
            prop_assert!(body - octets.len() <= 2);
            prop_assert_eq!(header.bytes, octets.len());
        }

        #[test]
        fn any_changes_leave_whole_lines(
            changes in proptest::collection::vec((0u8..3, 0u32..5, "[A-Ca-c]", proptest::collection::vec(proptest::sample::select(&b"ab :\r\n\t\0"[..]), 0..9)), 0..12),
            keeps: bool,
        ) {
            let changes = changes.into_iter().map(|(kind, index, name, value)| {
                let name = name.into_bytes();
                match kind {
                    0 => Change::AddHeader { name, value },
                    1 => Change::InsertHeader { index, name, value },
                    _ => Change::ChangeHeader { index, name, value },
                }
            });
            let header = edited(header(), changes, keeps);
            let octets = [header.octets(), b"\r\nbody".to_vec()].concat();
            let (again, body) = take(&octets, 0);
            prop_assert_eq!(&octets[body..], b"body");
            prop_assert_eq!(again.fields.len(), header.fields.len());
            let ours: Vec<&Field> = header.fields.iter().filter(|field| field.is_ours).collect();
            prop_assert_eq!(ours.len(), 1);
            prop_assert!(octets[..header.lead()].ends_with(b"Received: ours\r\n\tby us\r\n"));
        }
    }
}
