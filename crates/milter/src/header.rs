//! A message's header with the changes of milters, octet by octet.
//!
//! Promise: fields that no milter changes keep their octets. What milters count is what they are shown: the fields that we put
//! before the message are hidden from them, so "the first Received" is that of the client. Only the position of an insertion
//! counts them, as one: 0 is before them, 1 behind them, 2 behind the first field of the message (sendmail and Postfix
//! do so with their own Received).
//!
//! What a milter writes becomes whole lines: each line end is CR LF, a further line begins with white space or gets a tab, empty lines
//! are left out; so it can neither end the header nor begin another field.
//!
//! Failure: [`TooLarge`], beyond [`HEADER_BYTES_MAX`] or [`FIELDS_MAX`].

use stentor_mime::field;

use crate::answer::Change;

/// Octets of a header with its changes: twice what a client may send.
pub const HEADER_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The same of its fields.
const FIELDS_MAX: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header becomes too large")]
pub struct TooLarge;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    /// With its line ends.
    octets: Vec<u8>,
    /// Length of its name; 0: an mbox line, which is not shown.
    name: usize,
    /// We put it before the message.
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
        // The first is there, be it empty.
        octets.extend_from_slice(lines.next().map_or(&[], |(_, line)| line));
        octets.extend_from_slice(b"\r\n");
        for (_, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
            if !matches!(line[0], b' ' | b'\t') {
                octets.push(b'\t');
            }
            octets.extend_from_slice(line);
            octets.extend_from_slice(b"\r\n");
        }
        Field { octets, name: name.len(), is_ours: false }
    }

    fn name(&self) -> &[u8] {
        &self.octets[..self.name]
    }

    fn is(&self, name: &[u8]) -> bool {
        self.name > 0 && self.name().trim_ascii_end().eq_ignore_ascii_case(name)
    }
}

/// A header section without the empty line that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    fields: Vec<Field>,
    bytes: usize,
}

impl Header {
    /// Takes the header off a message whose first `ours` fields are ours. Returns it with the number of octets before the body;
    /// `None`: it goes on behind these octets, which `is_all` rules out. A line that is no field begins the body.
    pub fn take(message: &[u8], ours: usize, is_all: bool) -> Option<(Header, usize)> {
        let mut header = Header { fields: Vec::new(), bytes: 0 };
        let mut at = 0;
        loop {
            let rest = &message[at..];
            let end = match memchr::memchr(b'\n', rest) {
                Some(end) => end + 1,
                None if !is_all => return None,
                None if rest.is_empty() => return Some((header, at)),
                None => rest.len(),
            };
            let line = &rest[..end];
            if line.trim_ascii_end().is_empty() && !matches!(line[0], b' ' | b'\t') {
                return Some((header, at + end));
            }
            let is_more = matches!(line[0], b' ' | b'\t');
            let count = header.fields.len();
            match (header.fields.last_mut(), name_bytes(line)) {
                (Some(field), _) if is_more => field.octets.extend_from_slice(line),
                (_, Some(name)) => header.fields.push(Field { octets: line.to_vec(), name, is_ours: count < ours }),
                _ if count == ours && field::may_follow(false, line) => {
                    header.fields.push(Field { octets: line.to_vec(), name: 0, is_ours: false });
                }
                _ => return Some((header, at)),
            }
            header.bytes += end;
            at += end;
        }
    }

    /// Names and values as a milter is shown them: lines of a value are divided by LF. Of the space behind the colon one is
    /// left out unless the milter wants it.
    pub fn shown(&self, keeps_space: bool) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
        Self::values(self.fields.iter().filter(|field| !field.is_ours), keeps_space)
    }

    /// The same of all fields, ours too.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
        Self::values(self.fields.iter(), true)
    }

    fn values<'h>(
        fields: impl Iterator<Item = &'h Field>,
        keeps_space: bool,
    ) -> impl Iterator<Item = (&'h [u8], Vec<u8>)> {
        fields.filter(|field| field.name > 0).map(move |field| {
            let value = field.octets.get(field.name + 1..).unwrap_or_default();
            let value = if keeps_space { value } else { value.strip_prefix(b" ").unwrap_or(value) };
            let value = value.strip_suffix(b"\n").unwrap_or(value);
            let value = value.iter().copied().filter(|octet| *octet != b'\r').collect();
            (field.name().trim_ascii_end(), value)
        })
    }

    /// How many fields are before the line of an mbox that the message begins with, if it does.
    pub fn mbox_line_at(&self) -> Option<usize> {
        self.fields.iter().position(|field| field.name == 0)
    }

    /// Takes out the fields of the message for which `goes` says so, given name and value. How many went.
    pub fn remove(&mut self, mut goes: impl FnMut(&[u8], &[u8]) -> bool) -> usize {
        let before = self.fields.len();
        let bytes = &mut self.bytes;
        self.fields.retain(|field| {
            let value = field.octets.get(field.name + 1..).unwrap_or_default();
            let goes = field.name > 0 && !field.is_ours && goes(field.name().trim_ascii_end(), value);
            *bytes -= if goes { field.octets.len() } else { 0 };
            !goes
        });
        before - self.fields.len()
    }

    /// Applies a change; others than those to a header change nothing here. `keeps_space`: the milter writes the space behind the
    /// colon itself.
    pub fn apply(&mut self, change: &Change, keeps_space: bool) -> Result<(), TooLarge> {
        match change {
            Change::AddHeader { name, value } => self.insert(self.fields.len(), Field::of(name, value, keeps_space)),
            Change::InsertHeader { index, name, value } => {
                let at = self.position(*index);
                self.insert(at, Field::of(name, value, keeps_space))
            }
            Change::ChangeHeader { index, name, value } => {
                let nth = usize::try_from(*index).unwrap_or(usize::MAX).max(1) - 1;
                let mut all = self.fields.iter().enumerate().filter(|(_, field)| !field.is_ours && field.is(name));
                match (all.nth(nth).map(|(at, _)| at), value.is_empty()) {
                    (None, true) => Ok(()),
                    (None, false) => self.insert(self.fields.len(), Field::of(name, value, keeps_space)),
                    (Some(at), is_deleted) => {
                        self.bytes -= self.fields.remove(at).octets.len();
                        if is_deleted { Ok(()) } else { self.insert(at, Field::of(name, value, keeps_space)) }
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// Where a field goes that is inserted behind `count` others, ours counted as one.
    fn position(&self, count: u32) -> usize {
        let mut at = 0;
        for _ in 0..count {
            let Some(field) = self.fields.get(at) else { break };
            let ours = self.fields[at..].iter().take_while(|field| field.is_ours).count();
            at += if field.is_ours { ours } else { 1 };
        }
        at
    }

    fn insert(&mut self, at: usize, field: Field) -> Result<(), TooLarge> {
        self.bytes += field.octets.len();
        self.fields.insert(at, field);
        if self.bytes > HEADER_BYTES_MAX || self.fields.len() > FIELDS_MAX { Err(TooLarge) } else { Ok(()) }
    }

    /// The octets, without the empty line.
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(self.bytes + 2);
        for field in &self.fields {
            octets.extend_from_slice(&field.octets);
        }
        octets
    }

    /// The octets up to the message's first field: ours, and what milters put before or among them.
    pub fn lead(&self) -> usize {
        let last = self.fields.iter().rposition(|field| field.is_ours).map_or(0, |at| at + 1);
        self.fields[..last].iter().map(|field| field.octets.len()).sum()
    }
}

/// Octets before the colon of the field that a line begins. What a field is, rules on content and milters must not see differently.
fn name_bytes(line: &[u8]) -> Option<usize> {
    field::split(line).and_then(|_| memchr::memchr(b':', line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MESSAGE: &[u8] = b"Received: ours\r\n\tby us\r\nReceived: first\r\nSubject:  two\r\n\t spaces\r\nreceived : second\r\nX:\r\n\r\nbody\r\n";

    fn header() -> Header {
        Header::take(MESSAGE, 1, true).unwrap().0
    }

    fn with(change: &Change) -> String {
        let mut header = header();
        header.apply(change, false).unwrap();
        String::from_utf8(header.octets()).unwrap()
    }

    fn insert(index: u32) -> Change {
        Change::InsertHeader { index, name: b"N".to_vec(), value: b"v".to_vec() }
    }

    fn change(index: u32, name: &str, value: &str) -> Change {
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
        assert_eq!(Header::take(MESSAGE, 1, true).unwrap().1, MESSAGE.len() - 6);
        assert_eq!(Header::take(&MESSAGE[..20], 1, false), None);
        for (message, bytes, body) in [
            (&b"A: b\r\nno field\r\n"[..], 6, 6),
            (b"\r\nbody", 0, 2),
            (b"A: b\r\n", 6, 6),
            (b"A: b", 4, 4),
            (b"From a@b Mon\r\nA: b\r\n\r\n", 20, 22),
            (b" x\r\n", 0, 0),
            (b"", 0, 0),
        ] {
            let (header, at) = Header::take(message, 0, true).unwrap();
            assert_eq!((header.octets().len(), at), (bytes, body), "{}", message.escape_ascii());
        }
    }

    #[test]
    fn a_line_whose_colon_comes_too_late_begins_the_body() {
        for (name, is_field) in [(997, true), (998, false)] {
            let message = [b"A: b\r\n".to_vec(), vec![b'x'; name], b": c\r\n\r\n".to_vec()].concat();
            let (header, at) = Header::take(&message, 0, true).unwrap();
            assert_eq!((header.shown(true).count() == 2, at == 6), (is_field, !is_field), "{name}");
            assert_eq!(field::may_follow(true, &message[6..]), is_field, "{name}");
        }
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
        let mut twice = header();
        for index in [0, 1, 2, 3] {
            let name = format!("N{index}").into_bytes();
            twice.apply(&Change::InsertHeader { index, name, value: b"v".to_vec() }, false).unwrap();
        }
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
            let mut header = Header { fields: Vec::new(), bytes: 0 };
            header.apply(&Change::AddHeader { name: b"X".to_vec(), value: value.into() }, keeps).unwrap();
            String::from_utf8(header.octets()).unwrap()
        };
        assert_eq!(add("a\n b\r\n\tc", false), "X: a\r\n b\r\n\tc\r\n");
        assert_eq!(add("a\r\n\r\nBcc: x\r\n", false), "X: a\r\n\tBcc: x\r\n");
        assert_eq!(add(" a\rb", true), "X: a\r\n\tb\r\n");
        assert_eq!(add("", true), "X:\r\n");
    }

    #[test]
    fn there_is_a_limit() {
        let mut header = header();
        let large = Change::AddHeader { name: b"X".to_vec(), value: vec![b'x'; HEADER_BYTES_MAX / 2] };
        assert_eq!(header.apply(&large, false), Ok(()));
        assert_eq!(header.apply(&large, false), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_not_changed_keeps_its_octets(message in "((A|b c|From |X-Long):? ?[a-z:]{0,6}(\r\n|\n|\r\n |\r\n\t|\r\n\r\n)){0,8}", ours in 0usize..3) {
            let (header, body) = Header::take(message.as_bytes(), ours, true).unwrap();
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
            let mut header = header();
            for (kind, index, name, value) in changes {
                let name = name.into_bytes();
                let change = match kind {
                    0 => Change::AddHeader { name, value },
                    1 => Change::InsertHeader { index, name, value },
                    _ => Change::ChangeHeader { index, name, value },
                };
                header.apply(&change, keeps).unwrap();
            }
            let octets = [header.octets(), b"\r\nbody".to_vec()].concat();
            let (again, body) = Header::take(&octets, 0, true).unwrap();
            prop_assert_eq!(&octets[body..], b"body");
            prop_assert_eq!(again.fields.len(), header.fields.len());
            let ours: Vec<&Field> = header.fields.iter().filter(|field| field.is_ours).collect();
            prop_assert_eq!(ours.len(), 1);
            prop_assert!(octets[..header.lead()].ends_with(b"Received: ours\r\n\tby us\r\n"));
        }
    }
}
