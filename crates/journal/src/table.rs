//! The content table: where the bytes of each content are.
//!
//! It is ordered by id (assigned in order), so that a checkpoint can walk through it in steps while it changes. The
//! usual content, one piece, takes 17 bytes. An extent is identified by content id and start; of two for the same, the
//! newer place wins (docs/design/journal-recovery.md, Content). That makes replay independent of the order in which
//! slices and moves were encoded.

use crate::format::{put_varint, take_varint};
use crate::pages::Pages;

/// A run of bytes in a segment. Ordered by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub generation: u32,
    pub offset: u32,
    pub len: u32,
}

#[derive(Debug)]
enum Entry {
    /// A complete content of one piece.
    One(Extent),
    Many(Box<ManyExtents>),
}

const _: () = assert!(size_of::<Entry>() == 16, "a million contents must fit into 64 MB");

#[derive(Debug, Default)]
struct ManyExtents {
    /// Extents by start; without gaps, except during replay.
    extents: Vec<(u64, Extent)>,
    complete: bool,
}

impl ManyExtents {
    fn end(&self) -> u64 {
        self.extents.last().map_or(0, |(start, extent)| start + u64::from(extent.len))
    }

    fn is_whole(&self) -> bool {
        let mut end = 0;
        self.complete
            && self.extents.iter().all(|(start, extent)| {
                let fits = *start == end;
                end = start.saturating_add(u64::from(extent.len));
                fits
            })
    }

    /// Puts an extent at its start; of two, the newer place wins.
    fn merge(&mut self, start: u64, extent: Extent) {
        if extent.len == 0 {
            return;
        }
        match self.extents.binary_search_by_key(&start, |(start, _)| *start) {
            Ok(index) => self.extents[index].1 = self.extents[index].1.max(extent),
            Err(index) => self.extents.insert(index, (start, extent)),
        }
    }
}

/// The state of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub len: u64,
    pub complete: bool,
}

/// All contents.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Pages<Entry>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn progress(&self, id: u64) -> Option<Progress> {
        Some(match self.entries.get(id)? {
            Entry::One(extent) => Progress { len: extent.len.into(), complete: true },
            Entry::Many(many) => Progress { len: many.end(), complete: many.complete },
        })
    }

    /// Adds a piece at `start`, which is the content's length so far.
    pub fn append(&mut self, id: u64, start: u64, extent: Extent, last: bool) {
        if last && start == 0 {
            self.entries.insert(id, Entry::One(extent));
            return;
        }
        self.merge(id, &[(start, extent)], last);
    }

    /// Replaces the extent at `start` if it is still at `from`. `false`: it is not, so the copy is useless.
    pub fn relocate(&mut self, id: u64, start: u64, from: Extent, to: Extent) -> bool {
        let place = match self.entries.get_mut(id) {
            Some(Entry::One(extent)) if start == 0 => extent,
            Some(Entry::Many(many)) => match many.extents.binary_search_by_key(&start, |(start, _)| *start) {
                Ok(index) => &mut many.extents[index].1,
                Err(_) => return false,
            },
            _ => return false,
        };
        let matches = *place == from;
        if matches {
            *place = to;
        }
        matches
    }

    /// Merges a record's or slice's statement about a content into the table (replay).
    pub fn merge(&mut self, id: u64, extents: &[(u64, Extent)], complete: bool) {
        if let (true, &[(0, extent)], None) = (complete, extents, self.entries.get(id)) {
            self.entries.insert(id, Entry::One(extent));
            return;
        }
        let entry = self.entries.get_or_insert_with(id, || Entry::Many(Box::default()));
        if let Entry::One(extent) = entry {
            *entry = Entry::Many(Box::new(ManyExtents { extents: vec![(0, *extent)], complete: true }));
        }
        if let Entry::Many(many) = entry {
            for (start, extent) in extents {
                many.merge(*start, *extent);
            }
            many.complete |= complete;
            if let (true, &[(0, extent)]) = (many.complete, &many.extents[..]) {
                *entry = Entry::One(extent);
            }
        }
    }

    /// Removes a content; calls `freed` for each of its extents.
    pub fn remove(&mut self, id: u64, mut freed: impl FnMut(Extent)) -> bool {
        let Some(entry) = self.entries.remove(id) else { return false };
        each(&entry, |_, extent| freed(extent));
        true
    }

    /// Keeps the contents that `keep` selects; calls `freed` for the extents of all others.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool, mut freed: impl FnMut(Extent)) {
        self.entries.retain(|id, entry| {
            let kept = keep(id);
            if !kept {
                each(entry, |_, extent| freed(extent));
            }
            kept
        });
    }

    /// Drops contents that are incomplete or have gaps, at the end of a replay. Returns how many.
    pub fn remove_incomplete(&mut self) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| match entry {
            Entry::One(_) => true,
            Entry::Many(many) => many.is_whole(),
        });
        before - self.entries.len()
    }

    /// Calls `tell` for each extent, with its content's id.
    pub fn for_each(&self, mut tell: impl FnMut(u64, Extent)) {
        for (id, entry) in self.entries.iter() {
            each(entry, |_, extent| tell(id, extent));
        }
    }

    /// Calls `tell` for each extent, with its content's id and its start within the content.
    pub fn for_each_start(&self, mut tell: impl FnMut(u64, u64, Extent)) {
        for (id, entry) in self.entries.iter() {
            each(entry, |start, extent| tell(id, start, extent));
        }
    }

    /// Calls `tell` for each id.
    pub fn for_each_id(&self, tell: impl FnMut(u64)) {
        self.entries.iter().map(|(id, _)| id).for_each(tell);
    }

    /// The place of the piece of `id` at `start`.
    pub fn place(&self, id: u64, at: u64) -> Option<Extent> {
        match self.entries.get(id)? {
            Entry::One(extent) => (at == 0).then_some(*extent),
            Entry::Many(many) => {
                let index = many.extents.binary_search_by_key(&at, |(start, _)| *start).ok()?;
                Some(many.extents[index].1)
            }
        }
    }

    /// The largest id, if any.
    pub fn last_id(&self) -> Option<u64> {
        self.entries.last_id()
    }

    /// True if the piece of `id` at `start` is at this place.
    pub fn is_at(&self, id: u64, start: u64, extent: Extent) -> bool {
        self.place(id, start) == Some(extent)
    }

    /// The extents that hold `len` octets of a content from `offset` on, each cut to that range. `None`: there is no
    /// such content, or it is incomplete and `is_begun` is false.
    pub fn locate(&self, id: u64, is_begun: bool, offset: u64, len: u64, mut found: impl FnMut(Extent)) -> Option<()> {
        let end = offset.saturating_add(len);
        let mut cut = |start: u64, extent: Extent| {
            let from = offset.max(start);
            let to = end.min(start + u64::from(extent.len));
            if from < to {
                let skip = (from - start) as u32;
                found(Extent { offset: extent.offset + skip, len: (to - from) as u32, ..extent });
            }
        };
        match self.entries.get(id)? {
            Entry::One(extent) => cut(0, *extent),
            Entry::Many(many) if many.complete || is_begun => {
                let first = many.extents.partition_point(|(start, extent)| start + u64::from(extent.len) <= offset);
                many.extents[first..]
                    .iter()
                    .take_while(|(start, _)| *start < end)
                    .for_each(|(start, extent)| cut(*start, *extent));
            }
            Entry::Many(_) => return None,
        }
        Some(())
    }

    /// Encodes contents from `cursor` on and below `end` until `bytes_max` is reached. Returns the next cursor, or
    /// `None` when there are no more.
    pub fn encode_slice(&self, cursor: u64, end: u64, bytes_max: usize, buffer: &mut Vec<u8>) -> Option<u64> {
        let mut body = Vec::new();
        let mut count = 0;
        let mut before = 0;
        let mut next = None;
        for (id, entry) in self.entries.range(cursor..end.max(cursor)) {
            // The largest entry is a content of many pieces, which may exceed the limit once.
            if body.len() >= bytes_max {
                next = Some(id);
                break;
            }
            put_varint(&mut body, id - before);
            before = id;
            encode_entry(entry, &mut body);
            count += 1;
        }
        put_varint(buffer, count);
        buffer.extend_from_slice(&body);
        next
    }

    /// Merges a slice. `None`: it is malformed.
    pub fn merge_slice(&mut self, mut bytes: &[u8]) -> Option<()> {
        let count = take_varint(&mut bytes)?;
        let mut id = 0u64;
        let mut extents = Vec::new();
        for _ in 0..count {
            id = id.checked_add(take_varint(&mut bytes)?)?;
            let word = take_varint(&mut bytes)?;
            extents.clear();
            for _ in 0..word >> 1 {
                let start = take_varint(&mut bytes)?;
                let mut part = || u32::try_from(take_varint(&mut bytes)?).ok();
                let extent = Extent { generation: part()?, offset: part()?, len: part()? };
                start.checked_add(extent.len.into())?;
                extent.offset.checked_add(extent.len)?;
                extents.push((start, extent));
            }
            self.merge(id, &extents, word & 1 == 1);
        }
        bytes.is_empty().then_some(())
    }
}

fn each(entry: &Entry, mut tell: impl FnMut(u64, Extent)) {
    match entry {
        Entry::One(extent) => tell(0, *extent),
        Entry::Many(many) => many.extents.iter().for_each(|(start, extent)| tell(*start, *extent)),
    }
}

fn encode_entry(entry: &Entry, body: &mut Vec<u8>) {
    let (count, complete) = match entry {
        Entry::One(_) => (1, true),
        Entry::Many(many) => (many.extents.len(), many.complete),
    };
    put_varint(body, (count as u64) << 1 | u64::from(complete));
    each(entry, |start, extent| {
        put_varint(body, start);
        put_varint(body, extent.generation.into());
        put_varint(body, extent.offset.into());
        put_varint(body, extent.len.into());
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(generation: u32, offset: u32, len: u32) -> Extent {
        Extent { generation, offset, len }
    }

    fn located(table: &Table, id: u64, offset: u64, len: u64) -> Option<Vec<Extent>> {
        let mut found = Vec::new();
        table.locate(id, false, offset, len, |extent| found.push(extent)).map(|()| found)
    }

    #[test]
    fn a_slice_of_nothing_is_a_slice() {
        for (cursor, end) in [(0, 0), (0, 9), (9, 9), (9, 0)] {
            let mut slice = Vec::new();
            assert_eq!(Table::default().encode_slice(cursor, end, 100, &mut slice), None);
            assert_eq!(Table::default().merge_slice(&slice), Some(()));
        }
    }

    #[test]
    fn pieces_make_a_content() {
        let mut table = Table::default();
        table.append(5, 0, extent(1, 100, 10), false);
        assert_eq!(located(&table, 5, 0, 1), None, "incomplete content is not readable");
        table.append(5, 10, extent(1, 200, 20), false);
        table.append(5, 30, extent(2, 300, 0), true);
        assert_eq!(table.progress(5), Some(Progress { len: 30, complete: true }));
        assert_eq!(located(&table, 5, 5, 100), Some(vec![extent(1, 105, 5), extent(1, 200, 20)]));
        assert_eq!(located(&table, 5, 12, 3), Some(vec![extent(1, 202, 3)]));
        assert_eq!(located(&table, 5, 30, 3), Some(vec![]));
        assert_eq!(table.remove_incomplete(), 0);
    }

    #[test]
    fn a_stale_slice_does_not_undo_a_move() {
        let mut table = Table::default();
        table.append(1, 0, extent(3, 50, 9), true);
        let mut stale = Vec::new();
        assert_eq!(table.encode_slice(0, 10, 1000, &mut stale), None);
        assert!(table.relocate(1, 0, extent(3, 50, 9), extent(7, 10, 9)));
        assert!(!table.relocate(1, 0, extent(3, 50, 9), extent(8, 10, 9)), "it is no longer there");
        assert_eq!(table.merge_slice(&stale), Some(()));
        assert_eq!(located(&table, 1, 0, 9), Some(vec![extent(7, 10, 9)]));
    }

    #[test]
    fn a_move_seen_before_the_slice_waits_for_it() {
        let mut whole = Table::default();
        whole.append(1, 0, extent(3, 50, 9), false);
        whole.append(1, 9, extent(3, 80, 9), true);
        let mut slice = Vec::new();
        whole.encode_slice(0, 10, 1000, &mut slice);
        let mut table = Table::default();
        table.merge(1, &[(9, extent(6, 20, 9))], false);
        table.merge_slice(&slice).unwrap();
        assert_eq!(located(&table, 1, 0, 18), Some(vec![extent(3, 50, 9), extent(6, 20, 9)]));
        let mut lonely = Table::default();
        lonely.merge(1, &[(9, extent(6, 20, 9))], false);
        assert_eq!(lonely.remove_incomplete(), 1, "a move of a content that was dropped");
    }

    proptest! {
        #[test]
        fn slices_in_steps_give_the_table(contents in prop::collection::btree_map(any::<u64>(), prop::collection::vec(1u32..1000, 0..4), 0..60),
                                          step in 1usize..200) {
            let mut table = Table::default();
            for (id, lens) in &contents {
                let mut start = 0;
                for (index, len) in lens.iter().enumerate() {
                    table.append(*id, start, extent(index as u32 + 1, *len, *len), index + 1 == lens.len());
                    start += u64::from(*len);
                }
            }
            let mut copy = Table::default();
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let mut slice = Vec::new();
                cursor = table.encode_slice(from, u64::MAX, step, &mut slice);
                prop_assert!(copy.merge_slice(&slice).is_some());
            }
            for (id, lens) in contents {
                if id == u64::MAX { continue }
                let len = lens.iter().map(|len| u64::from(*len)).sum();
                prop_assert_eq!(copy.progress(id), table.progress(id));
                prop_assert_eq!(located(&copy, id, 0, len), located(&table, id, 0, len));
            }
        }

        #[test]
        fn any_slice_is_taken_without_panic(bytes: Vec<u8>) {
            let mut table = Table::default();
            let _ = table.merge_slice(&bytes);
            table.remove_incomplete();
            let _ = located(&table, 0, 0, u64::MAX);
        }
    }
}
