//! A batch under construction: one buffer, written without further copying.
//!
//! Space for the header is left at the front, records are appended, and commit fills in the header and pads to a block:
//! no byte is copied twice. Other data that commit must apply (pieces for the table, drops, checkpoint marks) is kept
//! beside the bytes. A refused batch is unchanged; a committed one is empty and keeps its buffer.

use crate::format::{
    BATCH_HEADER_BYTES, PIECE_HEADER_BYTES, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, RawRecord, Records, kind, padded,
    put_u64, record_word,
};
use crate::table::Extent;

/// A larger buffer is released after its batch, so that one large batch does not hold memory forever.
const BUFFER_BYTES_KEPT_MAX: usize = 8 * 1024 * 1024;

/// Records and content that become durable together, in this order.
#[derive(Debug)]
pub struct Batch {
    buffer: Vec<u8>,
    records: u32,
    oversized: bool,
    pub(crate) pieces: Vec<Piece>,
    /// Contents whose piece in this batch is not their last: id, and bytes so far in this batch.
    unfinished: Vec<(u64, u64)>,
    pub(crate) drops: Vec<u64>,
    /// Slices written in this batch: their checkpoint's number and their content id.
    pub(crate) slices: Vec<(u64, u64)>,
    pub(crate) marks: Marks,
    /// Octets of the batch that cleaning and checkpoints added, not mail.
    pub(crate) upkeep_bytes: usize,
}

/// A piece in the batch, for the content table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub id: u64,
    /// Offset of the piece's bytes in the batch; the start field is 8 bytes before.
    pub at: u32,
    pub len: u32,
    pub last: bool,
    /// Start within the content; for a new piece, counted from the length committed before this batch.
    pub start: u64,
    /// The original place of a copy.
    pub moved: Option<Extent>,
}

/// The checkpoint marks in the batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// Number of the checkpoint that all marks belong to.
    pub number: u64,
    pub begin: bool,
    pub slices: u64,
    /// Offset of the end record's word.
    pub end: Option<usize>,
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch {
            buffer: vec![0; BATCH_HEADER_BYTES],
            records: 0,
            oversized: false,
            pieces: Vec::new(),
            unfinished: Vec::new(),
            drops: Vec::new(),
            slices: Vec::new(),
            marks: Marks::default(),
            upkeep_bytes: 0,
        }
    }

    /// Appends an owner's record.
    pub fn record(&mut self, payload: &[u8]) {
        self.record_with(|buffer| buffer.extend_from_slice(payload));
    }

    /// Appends an owner's record that `encode` writes straight into the batch's buffer. `encode` must only append.
    pub fn record_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.append(kind::OWNER, encode);
    }

    /// Appends a piece of content `id`; the pieces of one content come in order, over one or several batches. `last`
    /// completes it. Put the record that refers to the content into the batch of the last piece or a later one, never
    /// an earlier.
    pub fn content(&mut self, id: u64, last: bool, bytes: &[u8]) {
        let word = if last { kind::LAST_PIECE } else { kind::PIECE };
        let at = self.append_piece(word, id, 0, bytes);
        let start = self.advance(id, bytes.len() as u64, last);
        self.pieces.push(Piece { id, at, len: bytes.len() as u32, last, start, moved: None });
    }

    /// Start of the next piece of `id`, counted from the content's first piece in this batch.
    fn advance(&mut self, id: u64, len: u64, last: bool) -> u64 {
        if let Some((_, so_far)) = self.unfinished.iter_mut().rev().find(|(unfinished, _)| *unfinished == id) {
            let start = *so_far;
            *so_far += len;
            return start;
        }
        if !last {
            self.unfinished.push((id, len));
        }
        0
    }

    /// Drops content once this batch is durable: call it on the batch with the record that ends the last reference.
    /// Nothing is written. Unknown ids are ignored.
    pub fn drop_content(&mut self, id: u64) {
        self.drops.push(id);
    }

    /// Appends a copy of the piece at `from`.
    pub(crate) fn moved_piece(&mut self, id: u64, start: u64, from: Extent, bytes: &[u8]) {
        let at = self.append_piece(kind::MOVED_PIECE, id, start, bytes);
        self.pieces.push(Piece { id, at, len: bytes.len() as u32, last: false, start, moved: Some(from) });
    }

    fn append_piece(&mut self, kind: u8, id: u64, start: u64, bytes: &[u8]) -> u32 {
        self.append(kind, |buffer| {
            buffer.extend_from_slice(&id.to_le_bytes());
            buffer.extend_from_slice(&start.to_le_bytes());
            buffer.extend_from_slice(bytes);
        });
        (self.buffer.len() - bytes.len()) as u32
    }

    /// Appends a record and returns the offset of its word.
    pub(crate) fn append(&mut self, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        let word = self.buffer.len();
        self.buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        let start = self.buffer.len();
        encode(&mut self.buffer);
        let payload_bytes = self.buffer.len().saturating_sub(start);
        self.oversized |= payload_bytes > RECORD_BYTES_MAX || self.buffer.len() > RECORD_BYTES_MAX;
        self.buffer[word..start].copy_from_slice(&record_word(kind, payload_bytes));
        self.records += 1;
        if is_upkeep(kind) {
            self.upkeep_bytes += self.buffer.len() - word;
        }
        word
    }

    /// Bytes so far, including the header but not the padding.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// True if there is nothing to write. (Drops alone need a commit, but no write.)
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The records so far, pieces included.
    pub(crate) fn raw_records(&self) -> impl Iterator<Item = RawRecord<'_>> {
        Records::unfinished(&self.buffer, self.records).flatten()
    }

    /// Number of records, pieces included.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Clears the batch; keeps the buffer.
    pub fn clear(&mut self) {
        if self.buffer.capacity() > BUFFER_BYTES_KEPT_MAX {
            self.buffer = vec![0; BATCH_HEADER_BYTES];
        }
        self.buffer.truncate(BATCH_HEADER_BYTES);
        self.records = 0;
        self.oversized = false;
        self.pieces.clear();
        self.unfinished.clear();
        self.drops.clear();
        self.slices.clear();
        self.marks = Marks::default();
        self.upkeep_bytes = 0;
    }

    /// Octets that the owner added, without the header and the slices of the state.
    pub(crate) fn owner_bytes(&self) -> usize {
        self.buffer.len() - BATCH_HEADER_BYTES - self.upkeep_bytes
    }

    pub(crate) fn is_oversized(&self) -> bool {
        self.oversized
    }

    /// Fills in the start of a piece within its content.
    pub(crate) fn set_piece_start(&mut self, at: u32, start: u64) {
        put_u64(&mut self.buffer, at as usize - PIECE_HEADER_BYTES / 2, start);
    }

    /// Turns the record whose word is at `word` into a void record, which replay ignores.
    pub(crate) fn make_void(&mut self, word: usize) {
        let top = word + RECORD_HEADER_BYTES - 1;
        self.buffer[top] = self.buffer[top] & 0x0f | kind::VOID << 4;
    }

    /// The marks for checkpoint `number`. Marks of another checkpoint are left over from a refused commit, which
    /// abandoned it.
    pub(crate) fn belong_to(&mut self, number: u64) -> &mut Marks {
        if self.marks.number != number {
            if let Some(word) = self.marks.end {
                self.make_void(word);
            }
            self.marks = Marks { number, ..Marks::default() };
        }
        &mut self.marks
    }

    /// The bytes to write, padded; remove the padding with [`Batch::unpad`].
    pub(crate) fn pad(&mut self) -> &mut [u8] {
        self.buffer.resize(padded(self.buffer.len()), 0);
        &mut self.buffer
    }

    pub(crate) fn unpad(&mut self, bytes: usize) {
        self.buffer.truncate(bytes);
    }

    #[cfg(test)]
    pub(crate) fn raw(&self) -> &[u8] {
        &self.buffer
    }
}

/// Whether cleaning or a checkpoint writes this kind. The owner's slices are counted where they are written.
fn is_upkeep(kind: u8) -> bool {
    matches!(
        kind,
        kind::MOVED_PIECE | kind::CHECKPOINT_BEGIN | kind::CONTENT_SLICE | kind::SLICE | kind::CHECKPOINT_END
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{BatchHeader, Records, decode_piece};

    proptest! {
        #[test]
        fn what_is_appended_is_read_back(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
                                         store_id: u64, seq: u64, at: prop::sample::Index, bit in 0u8..8) {
            let mut batch = Batch::new();
            for (index, payload) in payloads.iter().enumerate() {
                if index % 3 == 0 { batch.content(index as u64, true, payload) } else { batch.record(payload) }
            }
            let bytes = batch.bytes();
            let header = BatchHeader { generation: 9, seq, time: 5, bytes: bytes as u32, records: batch.records() };
            let raw = batch.pad();
            header.write(raw, store_id);
            prop_assert_eq!(raw.len() % crate::format::BLOCK_BYTES, 0);
            let read = BatchHeader::check(raw, store_id);
            prop_assert_eq!(read, Ok(header));
            prop_assert!(BatchHeader::check(raw, store_id ^ 1).is_err());
            for (index, record) in Records::of(raw, &header).enumerate() {
                let record = record.map_err(TestCaseError::fail)?;
                if index % 3 == 0 {
                    prop_assert_eq!(decode_piece(record.payload), Some((index as u64, 0, payloads[index].len())));
                    prop_assert_eq!(&record.payload[PIECE_HEADER_BYTES..], &payloads[index][..]);
                } else {
                    prop_assert_eq!(record.payload, &payloads[index][..]);
                }
            }
            raw[at.index(bytes)] ^= 1u8 << bit;
            prop_assert!(BatchHeader::check(raw, store_id).is_err());
            batch.unpad(bytes);
            prop_assert_eq!(batch.bytes(), bytes);
        }
    }

    #[test]
    fn a_void_record_keeps_its_length() {
        let mut batch = Batch::new();
        let word = batch.append(kind::CHECKPOINT_END, |buffer| buffer.extend_from_slice(&[1; 40]));
        batch.record(b"x");
        batch.make_void(word);
        let header = BatchHeader { generation: 1, seq: 1, time: 0, bytes: batch.bytes() as u32, records: 2 };
        let kinds: Vec<u8> = Records::of(batch.raw(), &header).map(|record| record.unwrap().kind).collect();
        assert_eq!(kinds, [kind::VOID, kind::OWNER]);
    }
}
