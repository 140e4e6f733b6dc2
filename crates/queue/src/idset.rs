//! Sets of 32-bit ids: few in place, some in one small allocation, many in a compressed bitmap.
//!
//! Promise: each set takes 16 bytes. Up to [`INLINE_MAX`] ids need no allocation, up to [`SORTED_MAX`] a sorted array
//! of exact size, more a shared `RoaringBitmap` (a clone is a reference count; the first change of a shared one copies
//! it, at most 1/8 byte per id of the id space). The form is not part of the value: equal sets are equal. Only `decode`
//! can fail.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::codec::{EventError, Reader, VARINT_BYTES_MAX, put_varint};

/// Largest number of ids held in place.
pub const INLINE_MAX: usize = 3;
/// Largest number of ids held in a sorted array; larger sets use a bitmap. Scattered ids cost a bitmap about 60 bytes
/// each.
pub const SORTED_MAX: usize = 64;

/// A set of `u32` ids, iterated in ascending order.
#[derive(Clone)]
pub struct IdSet(Form);

#[derive(Clone)]
enum Form {
    Inline {
        len: u8,
        ids: [u32; INLINE_MAX],
    },
    /// Boxed twice: the length of a slice would make every set larger.
    Sorted(Box<Box<[u32]>>),
    /// `runs`: may contain run containers, which must be undone before a change (they do not stay compact by
    /// themselves).
    Many {
        runs: bool,
        bits: Arc<RoaringBitmap>,
    },
}

const _: () = assert!(size_of::<IdSet>() == 16);
const _: () = assert!(INLINE_MAX < SORTED_MAX);

impl Default for IdSet {
    fn default() -> Self {
        IdSet::new()
    }
}

impl IdSet {
    pub const fn new() -> Self {
        IdSet(Form::Inline { len: 0, ids: [0; INLINE_MAX] })
    }

    pub fn one(id: u32) -> Self {
        let mut ids = [0; INLINE_MAX];
        ids[0] = id;
        IdSet(Form::Inline { len: 1, ids })
    }

    /// The ids as a sorted slice, unless they are a bitmap.
    fn slice(&self) -> Result<&[u32], &RoaringBitmap> {
        match &self.0 {
            Form::Inline { len, ids } => Ok(&ids[..usize::from(*len)]),
            Form::Sorted(ids) => Ok(ids),
            Form::Many { bits, .. } => Err(bits),
        }
    }

    /// Builds the right form from ascending ids without duplicates.
    fn from_ascending(ids: &[u32]) -> Self {
        debug_assert!(ids.is_sorted_by(|a, b| a < b));
        if ids.len() <= INLINE_MAX {
            let mut few = [0; INLINE_MAX];
            few[..ids.len()].copy_from_slice(ids);
            IdSet(Form::Inline { len: ids.len() as u8, ids: few })
        } else if ids.len() <= SORTED_MAX {
            IdSet(Form::Sorted(Box::new(ids.into())))
        } else {
            let mut bits = RoaringBitmap::new();
            // Appending ascending ids works; if it were refused, ids would be missing, so this falls back to plain
            // inserts.
            if bits.append(ids.iter().copied()).is_err() {
                bits.extend(ids.iter().copied());
            }
            IdSet(Form::Many { runs: false, bits: Arc::new(bits) })
        }
    }

    fn from_bitmap(bits: RoaringBitmap, runs: bool) -> Self {
        if bits.len() <= SORTED_MAX as u64 {
            let ids: Vec<u32> = bits.iter().collect();
            IdSet::from_ascending(&ids)
        } else {
            IdSet(Form::Many { runs, bits: Arc::new(bits) })
        }
    }

    pub fn len(&self) -> usize {
        match self.slice() {
            Ok(ids) => ids.len(),
            Err(bits) => bits.len() as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Form::Inline { len: 0, .. })
    }

    pub fn contains(&self, id: u32) -> bool {
        match self.slice() {
            Ok(ids) => ids.binary_search(&id).is_ok(),
            Err(bits) => bits.contains(id),
        }
    }

    pub fn min(&self) -> Option<u32> {
        match self.slice() {
            Ok(ids) => ids.first().copied(),
            Err(bits) => bits.min(),
        }
    }

    pub fn max(&self) -> Option<u32> {
        match self.slice() {
            Ok(ids) => ids.last().copied(),
            Err(bits) => bits.max(),
        }
    }

    /// Adds an id. Returns whether it was new.
    pub fn insert(&mut self, id: u32) -> bool {
        if let Form::Inline { len, ids } = &mut self.0 {
            let used = usize::from(*len);
            let Err(at) = ids[..used].binary_search(&id) else { return false };
            if used < INLINE_MAX {
                ids.copy_within(at..used, at + 1);
                ids[at] = id;
                *len += 1;
                return true;
            }
        }
        if let Form::Many { .. } = &self.0 {
            return self.bits_mut().insert(id);
        }
        let ids = self.slice().unwrap_or_default();
        let Err(at) = ids.binary_search(&id) else { return false };
        let mut longer = Vec::with_capacity(ids.len() + 1);
        longer.extend_from_slice(&ids[..at]);
        longer.push(id);
        longer.extend_from_slice(&ids[at..]);
        *self = IdSet::from_ascending(&longer);
        true
    }

    /// Removes an id. Returns whether it was there.
    pub fn remove(&mut self, id: u32) -> bool {
        if let Form::Inline { len, ids } = &mut self.0 {
            let used = usize::from(*len);
            let Ok(at) = ids[..used].binary_search(&id) else { return false };
            ids.copy_within(at + 1..used, at);
            *len -= 1;
            return true;
        }
        if !self.contains(id) {
            return false;
        }
        if let Form::Many { .. } = &self.0 {
            self.bits_mut().remove(id);
            self.shrink_form();
            return true;
        }
        let shorter: Vec<u32> = self.iter().filter(|i| *i != id).collect();
        *self = IdSet::from_ascending(&shorter);
        true
    }

    /// The bitmap, unshared and without runs; the set is turned into one if needed.
    fn bits_mut(&mut self) -> &mut RoaringBitmap {
        if let Ok(ids) = self.slice() {
            let bits: RoaringBitmap = ids.iter().copied().collect();
            self.0 = Form::Many { runs: false, bits: Arc::new(bits) };
        }
        let Form::Many { runs, bits } = &mut self.0 else { unreachable!("made a bitmap just above") };
        let bits = Arc::make_mut(bits);
        if std::mem::take(runs) {
            bits.remove_run_compression();
        }
        bits
    }

    /// Returns to a small form if few ids are left.
    fn shrink_form(&mut self) {
        if let Form::Many { bits, .. } = &self.0
            && bits.len() <= SORTED_MAX as u64 / 2
        {
            let ids: Vec<u32> = bits.iter().collect();
            *self = IdSet::from_ascending(&ids);
        }
    }

    /// Iterates in ascending order.
    pub fn iter(&self) -> Iter<'_> {
        match self.slice() {
            Ok(ids) => Iter(IterForm::Slice(ids.iter())),
            Err(bits) => Iter(IterForm::Bits(bits.iter())),
        }
    }

    /// Iterates in ascending order over ids greater than `after`.
    pub fn iter_from(&self, after: u32) -> Iter<'_> {
        match self.slice() {
            Ok(ids) => Iter(IterForm::Slice(ids[ids.partition_point(|id| *id <= after)..].iter())),
            // The start of the range may lie past the end of the id space.
            Err(_) if after == u32::MAX => Iter(IterForm::Slice([].iter())),
            Err(bits) => Iter(IterForm::Bits(bits.range((Bound::Excluded(after), Bound::Unbounded)))),
        }
    }

    /// Iterates over all ids in ascending order, beginning after `after` and going around at the greatest.
    pub fn iter_around(&self, after: u32) -> impl Iterator<Item = u32> {
        self.iter_from(after).chain(self.iter().take_while(move |id| *id <= after))
    }

    /// Adds ascending ids without duplicates, all above the existing ones.
    pub fn extend_ascending(&mut self, ids: &[u32]) {
        if self.is_empty() {
            *self = IdSet::from_ascending(ids);
        } else {
            self.union_with(&IdSet::from_ascending(ids));
        }
    }

    /// Adds all ids of `other`.
    pub fn union_with(&mut self, other: &IdSet) {
        match (self.slice(), other.slice()) {
            (Ok(_), Ok(more)) if more.len() <= 1 => {
                if let [id] = more {
                    self.insert(*id);
                }
            }
            (Ok(mine), Ok(more)) => {
                let mut all = Vec::with_capacity(mine.len() + more.len());
                all.extend_from_slice(mine);
                all.extend_from_slice(more);
                all.sort_unstable();
                all.dedup();
                *self = IdSet::from_ascending(&all);
            }
            (_, Err(_)) if self.is_empty() => *self = other.clone(),
            (_, Err(more)) => {
                let bits = self.bits_mut();
                *bits |= more;
                bits.remove_run_compression();
            }
            (Err(_), Ok(more)) => self.bits_mut().extend(more.iter().copied()),
        }
    }

    /// Removes all ids of `other`. Returns how many were removed.
    pub fn subtract(&mut self, other: &IdSet) -> usize {
        let before = self.len();
        match (self.slice(), other.slice()) {
            (_, Ok([])) => {}
            (_, Ok([id])) => {
                self.remove(*id);
            }
            (Ok(mine), _) => {
                let kept: Vec<u32> = mine.iter().copied().filter(|id| !other.contains(*id)).collect();
                if kept.len() < before {
                    *self = IdSet::from_ascending(&kept);
                }
            }
            (Err(_), _) if self.intersection_len(other) == 0 => {}
            (Err(_), Ok(less)) => {
                let bits = self.bits_mut();
                for id in less {
                    bits.remove(*id);
                }
                self.shrink_form();
            }
            (Err(_), Err(less)) => {
                let bits = self.bits_mut();
                *bits -= less;
                bits.remove_run_compression();
                self.shrink_form();
            }
        }
        before - self.len()
    }

    #[must_use]
    pub fn union(&self, other: &IdSet) -> IdSet {
        let mut all = self.clone();
        all.union_with(other);
        all
    }

    /// The ids that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &IdSet) -> IdSet {
        if let (Err(mine), Err(less)) = (self.slice(), other.slice()) {
            let mut left = mine - less;
            // The result of a difference may still have runs.
            left.remove_run_compression();
            return IdSet::from_bitmap(left, false);
        }
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// The ids in both sets.
    #[must_use]
    pub fn intersection(&self, other: &IdSet) -> IdSet {
        match (self.slice(), other.slice()) {
            (Err(mine), Err(theirs)) => {
                let mut both = mine & theirs;
                both.remove_run_compression();
                IdSet::from_bitmap(both, false)
            }
            (Ok(mine), _) => mine.iter().copied().filter(|id| other.contains(*id)).collect(),
            (_, Ok(theirs)) => theirs.iter().copied().filter(|id| self.contains(*id)).collect(),
        }
    }

    pub fn intersection_len(&self, other: &IdSet) -> usize {
        match (self.slice(), other.slice()) {
            (Err(mine), Err(theirs)) => mine.intersection_len(theirs) as usize,
            (Ok(mine), _) => mine.iter().filter(|id| other.contains(**id)).count(),
            (_, Ok(theirs)) => theirs.iter().filter(|id| self.contains(**id)).count(),
        }
    }

    /// Converts to the smallest form, for a set that will be kept or cloned rather than changed: runs, no slack.
    pub fn optimize(&mut self) {
        if let Form::Many { runs, bits } = &mut self.0
            && !*runs
        {
            Arc::make_mut(bits).optimize();
            *runs = true;
        }
    }

    /// Approximate number of bytes on the heap; those shared with other sets are counted in full.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Inline { .. } => 0,
            Form::Sorted(ids) => size_of::<Box<[u32]>>() + size_of_val::<[u32]>(ids),
            Form::Many { bits, .. } => bits.serialized_size(),
        }
    }

    /// Largest number of ranges of 65,536 ids that the set may lie in.
    fn ranges_max(&self) -> usize {
        self.min().zip(self.max()).map_or(0, |(min, max)| ((max >> 16) - (min >> 16)) as usize + 1)
    }

    /// Largest number of bytes that [`IdSet::encode`] appends.
    pub fn encoded_bytes_max(&self) -> usize {
        match self.slice() {
            Ok(ids) => VARINT_BYTES_MAX + ids.len() * 5,
            // With runs, each range has one more bit in the head.
            Err(bits) => VARINT_BYTES_MAX + bits.serialized_size() + self.ranges_max().div_ceil(8) + 8,
        }
    }

    /// Largest encoded size of any subset: packed runs that come apart take more space than before.
    pub fn part_bytes_max(&self) -> usize {
        part_bytes_max(self.len(), self.ranges_max())
    }

    /// Appends `len * 2` and the differences of ascending ids as varints, or, for a bitmap, `bytes * 2 + 1` and the
    /// portable Roaring form.
    pub fn encode(&self, buf: &mut Vec<u8>) {
        match self.slice() {
            Ok(ids) => {
                put_varint(buf, (ids.len() as u64) << 1);
                let mut next = 0;
                for id in ids {
                    put_varint(buf, u64::from(*id) - next);
                    next = u64::from(*id) + 1;
                }
            }
            Err(bits) => {
                let packed;
                let bits = if matches!(&self.0, Form::Many { runs: true, .. }) {
                    bits
                } else {
                    let mut copy = bits.clone();
                    copy.optimize();
                    packed = copy;
                    &packed
                };
                put_varint(buf, (bits.serialized_size() as u64) << 1 | 1);
                // Writing to a Vec cannot fail.
                let _ = bits.serialize_into(&mut *buf);
            }
        }
    }

    /// Reads the output of [`IdSet::encode`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, EventError> {
        let header = reader.varint()?;
        if header & 1 == 1 {
            let bytes = reader.take(header >> 1)?;
            let bits =
                RoaringBitmap::deserialize_from(bytes).map_err(|_| EventError::Malformed("id set is not a bitmap"))?;
            return Ok(IdSet::from_bitmap(bits, true));
        }
        let len = header >> 1;
        if len > SORTED_MAX as u64 {
            return Err(EventError::Malformed("id set too long for its form"));
        }
        let mut ids = [0u32; SORTED_MAX];
        let mut next = 0u64;
        for id in &mut ids[..len as usize] {
            let value = reader.varint()?.checked_add(next).and_then(|v| u32::try_from(v).ok());
            *id = value.ok_or(EventError::Malformed("id over 32 bits"))?;
            next = u64::from(*id) + 1;
        }
        Ok(IdSet::from_ascending(&ids[..len as usize]))
    }
}

/// Upper bound for a set of at most `len` ids in `ranges` ranges of 65,536: a range takes two bytes per id or 8 KiB,
/// whichever is less, besides its place in the bitmap's head. Few ids are varints.
pub fn part_bytes_max(len: usize, ranges: usize) -> usize {
    const RANGE_HEAD_BYTES: usize = 8;
    const RANGE_BYTES_MAX: usize = 8 * 1024;
    const HEAD_BYTES: usize = 16;
    let ranges = ranges.min(len);
    let bitmap = HEAD_BYTES + ranges.div_ceil(8) + ranges * RANGE_HEAD_BYTES + (2 * len).min(ranges * RANGE_BYTES_MAX);
    let varints = len.min(SORTED_MAX) * 5;
    VARINT_BYTES_MAX + bitmap.max(varints)
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut iter = ids.into_iter();
        let mut few: Vec<u32> = iter.by_ref().take(SORTED_MAX + 1).collect();
        if few.len() <= SORTED_MAX {
            few.sort_unstable();
            few.dedup();
            return IdSet::from_ascending(&few);
        }
        let mut bits: RoaringBitmap = few.into_iter().collect();
        bits.extend(iter);
        IdSet::from_bitmap(bits, false)
    }
}

impl Extend<u32> for IdSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (self.slice(), other.slice()) {
            (Ok(a), Ok(b)) => a == b,
            (Err(a), Err(b)) => std::ptr::eq(a, b) || (a.len() == b.len() && a.intersection_len(b) == a.len()),
            _ => self.len().cmp(&other.len()) == Ordering::Equal && self.iter().eq(other.iter()),
        }
    }
}

impl Eq for IdSet {}

impl fmt::Debug for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a IdSet {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Ascending ids of an [`IdSet`].
#[derive(Clone)]
pub struct Iter<'a>(IterForm<'a>);

#[derive(Clone)]
enum IterForm<'a> {
    Slice(std::slice::Iter<'a, u32>),
    Bits(roaring::bitmap::Iter<'a>),
}

impl Iterator for Iter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match &mut self.0 {
            IterForm::Slice(ids) => ids.next().copied(),
            IterForm::Bits(bits) => bits.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            IterForm::Slice(ids) => ids.size_hint(),
            IterForm::Bits(bits) => bits.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests;
