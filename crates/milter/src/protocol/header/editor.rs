//! Applies the changes of one milter to a header.
//!
//! Promise: a change by name and a field added at the end cost the same however many fields there are, of which a
//! client may send thousands: fields are found by name, and removed ones keep their place until the end. Two changes
//! cost more. An insertion before the end passes over all fields; [`STEPS_MAX`] bounds all of them together. Removing
//! one of many fields of the same name moves the positions on its shorter side, 4 octets each.
//!
//! Failure: more than [`STEPS_MAX`], the work of some twelve insertions into ten thousand fields. If the client sent
//! that many fields, it is not the milter's fault.

use std::collections::{HashMap, VecDeque};

use super::{Field, Header, HeaderError, Octets, place};
use crate::protocol::answer::Change;

/// Maximum fields that are passed, moved or counted again in all insertions: about a quarter of a millisecond.
const STEPS_MAX: usize = 256 * 1024;
/// Steps for each field after an insertion.
const INSERTION_STEPS: usize = 2;

/// Number of fields of a header from which any milter's insertions are expensive.
const MANY_FIELDS: usize = 1_000;

/// Editor of a header; see the module documentation.
#[derive(Debug)]
pub struct Editor {
    header: Header,
    /// Whether the message arrived with many fields.
    has_many: bool,
    /// Whether the milter supplies the space after the colon.
    keeps_space: bool,
    /// Positions of the message's own fields, in order, by name in lower case. `None`: not needed yet.
    places: Option<HashMap<Vec<u8>, VecDeque<u32>>>,
    /// Fields that we put before the message.
    ours: usize,
    gaps: usize,
    steps: usize,
}

impl Editor {
    pub fn new(header: Header, keeps_space: bool) -> Editor {
        let has_many = header.fields.len() >= MANY_FIELDS;
        let ours = header.fields.iter().filter(|field| field.is_ours).count();
        Editor { header, has_many, keeps_space, places: None, ours, gaps: 0, steps: 0 }
    }

    /// Applies a change; changes to other parts are ignored.
    ///
    /// # Errors
    /// The header becomes too large, or the work too much.
    pub fn apply(&mut self, change: &Change) -> Result<(), HeaderError> {
        match change {
            Change::AddHeader { name, value } => self.append(name, value),
            Change::InsertHeader { index, name, value } => self.insert(*index, name, value),
            Change::ChangeHeader { index, name, value } => self.change(*index, name, value),
            _ => Ok(()),
        }
    }

    /// The header with all changes.
    pub fn finish(mut self) -> Header {
        self.close_gaps();
        self.header
    }

    fn insert(&mut self, index: u32, name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
        // Ours are together and count as one.
        let counted = self.header.fields.len() - self.gaps - self.ours.saturating_sub(1);
        if usize::try_from(index).is_ok_and(|index| index >= counted) {
            return self.append(name, value);
        }
        self.steps += INSERTION_STEPS * self.header.fields.len();
        if self.steps > STEPS_MAX {
            return Err(if self.has_many { HeaderError::TooManySteps } else { HeaderError::TooLarge });
        }
        self.make_room();
        let at = self.header.position(index);
        if let Some(places) = &mut self.places {
            for behind in places.values_mut().flatten().filter(|other| **other as usize >= at) {
                *behind += 1;
            }
            let own = places.entry(key(name)).or_default();
            own.insert(own.partition_point(|other| (*other as usize) < at), place(at));
        }
        self.header.insert(at, Field::of(name, value, self.keeps_space))
    }

    /// Replaces the field of this name and number, removes it if the value is empty, or appends it if it does not
    /// exist.
    fn change(&mut self, index: u32, name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
        self.find_places();
        let nth = usize::try_from(index).unwrap_or(usize::MAX).max(1) - 1;
        let places = self.places.as_mut().and_then(|places| places.get_mut(&key(name)));
        match (places.filter(|places| nth < places.len()), value.is_empty()) {
            (None, true) => Ok(()),
            (None, false) => self.append(name, value),
            (Some(places), true) => {
                let Some(at) = places.remove(nth) else { return Ok(()) };
                self.gaps += 1;
                self.header.replace(at as usize, Field::gap())
            }
            (Some(places), false) => {
                let at = places[nth] as usize;
                self.header.replace(at, Field::of(name, value, self.keeps_space))
            }
        }
    }

    fn append(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
        self.make_room();
        let at = self.header.fields.len();
        if let Some(places) = &mut self.places {
            places.entry(key(name)).or_default().push_back(place(at));
        }
        self.header.insert(at, Field::of(name, value, self.keeps_space))
    }

    fn find_places(&mut self) {
        if self.places.is_some() {
            return;
        }
        let mut places: HashMap<_, VecDeque<u32>> = HashMap::new();
        let fields = self.header.seen().enumerate();
        for (at, field) in fields.filter(|(_, field)| !field.is_ours && !field.octets.is_empty()) {
            places.entry(key(field.name())).or_default().push_back(place(at));
        }
        self.places = Some(places);
    }

    /// Closes gaps in a full header, if that justifies locating the fields again.
    fn make_room(&mut self) {
        if self.header.is_full() && 4 * self.gaps >= self.header.fields.len() {
            self.close_gaps();
        }
    }

    fn close_gaps(&mut self) {
        self.header.fields.retain(|field| !field.is_gap());
        (self.places, self.gaps) = (None, 0);
    }
}

fn key(name: &[u8]) -> Vec<u8> {
    name.trim_ascii_end().to_ascii_lowercase()
}

impl Field {
    /// Placeholder of a removed field.
    fn gap() -> Field {
        Field { octets: Octets::Made(Box::default()), name: 0, is_ours: false }
    }

    /// Whether this is a gap: any field has a colon.
    pub(super) fn is_gap(&self) -> bool {
        matches!(&self.octets, Octets::Made(octets) if octets.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{change, header, insert, take};
    use super::*;

    /// The work of changes to a header with as many fields as a client may send.
    fn steps(changes: impl IntoIterator<Item = Change>) -> Result<usize, HeaderError> {
        let text: Vec<String> = (0..10_000).map(|n| format!("X-{n}: v\r\n")).collect();
        let mut editor = Editor::new(take(format!("{}\r\n", text.concat()).as_bytes(), 0).0, false);
        for change in changes {
            editor.apply(&change)?;
        }
        Ok(editor.steps)
    }

    #[test]
    fn changes_by_name_cost_nothing_for_other_fields() {
        assert_eq!(steps((0..20_000).rev().map(|n| change(1, &format!("X-{n}"), ""))), Ok(0));
        assert_eq!(steps((0..20_000).map(|_| change(1, "None", ""))), Ok(0));
        assert_eq!(steps((0..20_000).map(|n| change(1, "X-9", &n.to_string()))), Ok(0));
        // If fields are removed and added by turns, gaps are closed before the header is full.
        let by_turns = (0..10_000).flat_map(|n| [change(1, &format!("X-{n}"), ""), change(1, &format!("Y-{n}"), "v")]);
        assert_eq!(steps(by_turns), Ok(0));
    }

    #[test]
    fn insertions_at_the_end_cost_nothing_for_other_fields() {
        let text = "X: v\r\n".repeat(10_000);
        // Three of the fields are ours and count as one.
        let mut editor = Editor::new(take(format!("{text}\r\n").as_bytes(), 3).0, false);
        for n in 0..1_000 {
            editor.apply(&change(1, "X", "")).unwrap();
            editor.apply(&insert(9_997)).unwrap();
            assert_eq!(editor.steps, 0, "{n}");
        }
        editor.apply(&insert(9_997)).unwrap();
        assert!(editor.steps > 0, "before the last field");
    }

    #[test]
    fn insertions_have_a_limit() {
        assert!(steps((0..12).map(|_| insert(1))).is_ok());
        assert_eq!(steps((0..15).map(|_| insert(1))), Err(HeaderError::TooManySteps));
        assert!(steps((0..9_000).map(|_| Change::AddHeader { name: b"N".to_vec(), value: b"v".to_vec() })).is_ok());
        let mut editor = Editor::new(header(), false);
        assert!((0..500).all(|_| editor.apply(&insert(1)).is_ok() && editor.apply(&change(1, "N", "v")).is_ok()));
        let mut all = (0..2_000).map(|_| editor.apply(&insert(1)));
        assert_eq!(all.find(Result::is_err), Some(Err(HeaderError::TooLarge)), "by nobody but the milter");
    }

    #[test]
    fn what_is_gone_is_counted_no_more() {
        let mut editor = Editor::new(header(), false);
        for one in [change(1, "received", ""), change(1, "Received", "new"), insert(2), change(2, "Received", "more")] {
            editor.apply(&one).unwrap();
        }
        let text = String::from_utf8(editor.finish().octets()).unwrap();
        let shown = "Received: ours\r\n\tby us\r\nSubject:  two\r\n\t spaces\r\nN: v\r\nReceived: new\r\nX:\r\nReceived: more\r\n";
        assert_eq!(text, shown);
    }

    proptest! {
        /// Checks that remembered positions, with gaps, equal those located again for each change.
        #[test]
        fn changes_together_are_changes_one_by_one(
            message in "((A|b|Received|X-C): [a-z]{0,3}\r\n){0,8}\r\n",
            ours in 0usize..3,
            changes in proptest::collection::vec((0u8..3, 0u32..6, "[AbC]|X-C|received", "[a-z]{0,2}"), 0..16),
        ) {
            let (header, _) = take(message.as_bytes(), ours);
            let (mut together, mut apart) = (Editor::new(header.clone(), false), header);
            for (kind, index, name, value) in changes {
                let (name, value) = (name.into_bytes(), value.into_bytes());
                let change = match kind {
                    0 => Change::AddHeader { name, value },
                    1 => Change::InsertHeader { index, name, value },
                    _ => Change::ChangeHeader { index, name, value },
                };
                together.apply(&change).unwrap();
                let mut one = Editor::new(apart, false);
                one.apply(&change).unwrap();
                apart = one.finish();
            }
            let together = together.finish();
            let text = |header: &Header| String::from_utf8(header.octets()).unwrap();
            prop_assert_eq!(text(&together), text(&apart));
            prop_assert_eq!(together.bytes, text(&apart).len());
        }
    }
}
