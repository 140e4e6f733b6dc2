//! The byte formats of `docs/design/journal-format.md`: headers, record words, varints. Pure; every decoder accepts any
//! input.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::Ms;

/// Unit of alignment of batches, in bytes.
pub const BLOCK_BYTES: usize = 4096;
/// The version that is written. Version 1 had no records of kind [`kind::SLICE`].
pub(crate) const FORMAT_VERSION: u16 = 2;
/// The oldest version that is read.
const FORMAT_VERSION_MIN: u16 = 1;
/// Bytes of a batch before its first record.
pub const BATCH_HEADER_BYTES: usize = 48;
/// Bytes of a record besides its payload.
pub const RECORD_HEADER_BYTES: usize = 4;
/// Content id and start before a piece's bytes.
pub(crate) const PIECE_HEADER_BYTES: usize = 16;
/// Largest payload that a record word can express.
pub(crate) const RECORD_BYTES_MAX: usize = (1 << 28) - 1;
pub(crate) const SLICE_BYTES_MAX: usize = 256 * 1024;

const SEGMENT_MAGIC: [u8; 4] = *b"StnS";
const BATCH_MAGIC: [u8; 4] = *b"StnB";
const FLAG_PREDECESSOR_ABANDONED: u16 = 1;

/// Kinds of records.
pub(crate) mod kind {
    pub const OWNER: u8 = 1;
    pub const PIECE: u8 = 2;
    pub const LAST_PIECE: u8 = 3;
    pub const MOVED_PIECE: u8 = 4;
    pub const CHECKPOINT_BEGIN: u8 = 5;
    pub const CONTENT_SLICE: u8 = 6;
    pub const CHECKPOINT_END: u8 = 7;
    pub const VOID: u8 = 8;
    pub const SLICE: u8 = 9;
}

/// Position of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub generation: u32,
    pub offset: u64,
    pub seq: u64,
}

/// A durable checkpoint: replay starts at its begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub number: u64,
    pub begin: Position,
}

/// Block 0 of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub store_id: u64,
    pub generation: u32,
    pub segment_bytes: u64,
    pub predecessor: u32,
    pub predecessor_last_seq: u64,
    pub predecessor_abandoned: bool,
    pub time: Ms,
    pub checkpoint: Option<Checkpoint>,
    pub next_content: u64,
}

/// Why a header was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Invalid,
    Version(u16),
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        block[8..12].copy_from_slice(&SEGMENT_MAGIC);
        put_u16(&mut block, 12, FORMAT_VERSION);
        put_u16(&mut block, 14, if self.predecessor_abandoned { FLAG_PREDECESSOR_ABANDONED } else { 0 });
        let (number, begin) =
            self.checkpoint.map_or((0, Position { generation: 0, offset: 0, seq: 0 }), |checkpoint| {
                (checkpoint.number, checkpoint.begin)
            });
        let words = [
            self.store_id,
            self.generation.into(),
            self.segment_bytes,
            self.predecessor.into(),
            self.predecessor_last_seq,
            self.time,
            number,
            begin.generation.into(),
            begin.offset,
            begin.seq,
            self.next_content,
        ];
        for (index, word) in words.into_iter().enumerate() {
            put_u64(&mut block, 16 + 8 * index, word);
        }
        let checksum = xxh3_64(&block[8..]);
        put_u64(&mut block, 0, checksum);
        block
    }

    pub fn decode(block: &[u8]) -> Result<SegmentHeader, BadHeader> {
        let Some(block) = block.get(..BLOCK_BYTES) else { return Err(BadHeader::Invalid) };
        if block[8..12] != SEGMENT_MAGIC || get_u64(block, 0) != xxh3_64(&block[8..]) {
            return Err(BadHeader::Invalid);
        }
        let version = get_u16(block, 12);
        if !is_known(version) {
            return Err(BadHeader::Version(version));
        }
        let word = |index: usize| get_u64(block, 16 + 8 * index);
        let generation = |index: usize| u32::try_from(word(index)).map_err(|_| BadHeader::Invalid);
        let checkpoint = match word(6) {
            0 => None,
            number => Some(Checkpoint {
                number,
                begin: Position { generation: generation(7)?, offset: word(8), seq: word(9) },
            }),
        };
        let header = SegmentHeader {
            store_id: word(0),
            generation: generation(1)?,
            segment_bytes: word(2),
            predecessor: generation(3)?,
            predecessor_last_seq: word(4),
            predecessor_abandoned: get_u16(block, 14) & FLAG_PREDECESSOR_ABANDONED != 0,
            time: word(5),
            checkpoint,
            next_content: word(10),
        };
        // A predecessor is always older, so walking backwards ends.
        if header.generation == 0 || header.predecessor >= header.generation {
            return Err(BadHeader::Invalid);
        }
        Ok(header)
    }
}

/// The start of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub generation: u32,
    pub seq: u64,
    pub time: Ms,
    /// Size of header and records, without padding.
    pub bytes: u32,
    pub records: u32,
}

impl BatchHeader {
    /// Bytes that the batch takes in the segment.
    pub fn padded_bytes(&self) -> usize {
        padded(self.bytes as usize)
    }

    /// Fills in the header at the front of `batch` (whose length without padding is `self.bytes`).
    pub fn write(&self, batch: &mut [u8], store_id: u64) {
        batch[8..12].copy_from_slice(&BATCH_MAGIC);
        put_u16(batch, 12, FORMAT_VERSION);
        put_u16(batch, 14, 0);
        put_u64(batch, 16, self.generation.into());
        put_u64(batch, 24, self.seq);
        put_u64(batch, 32, self.time);
        batch[40..44].copy_from_slice(&self.bytes.to_le_bytes());
        batch[44..48].copy_from_slice(&self.records.to_le_bytes());
        let checksum = xxh3_64_with_seed(&batch[8..self.bytes as usize], batch_seed(store_id, self.generation));
        put_u64(batch, 0, checksum);
    }

    /// Reads a possible header; only its form is checked.
    pub fn peek(bytes: &[u8]) -> Option<BatchHeader> {
        let head = bytes.get(..BATCH_HEADER_BYTES)?;
        if head[8..12] != BATCH_MAGIC {
            return None;
        }
        let header = BatchHeader {
            generation: u32::try_from(get_u64(head, 16)).ok()?,
            seq: get_u64(head, 24),
            time: get_u64(head, 32),
            bytes: get_u32(head, 40),
            records: get_u32(head, 44),
        };
        (header.generation != 0 && header.bytes as usize >= BATCH_HEADER_BYTES).then_some(header)
    }

    /// Checks a whole batch at the front of `bytes`: form, version and checksum.
    pub fn check(bytes: &[u8], store_id: u64) -> Result<BatchHeader, BadHeader> {
        let header = BatchHeader::peek(bytes).ok_or(BadHeader::Invalid)?;
        let whole = bytes.get(..header.bytes as usize).ok_or(BadHeader::Invalid)?;
        if get_u64(whole, 0) != xxh3_64_with_seed(&whole[8..], batch_seed(store_id, header.generation)) {
            return Err(BadHeader::Invalid);
        }
        match get_u16(whole, 12) {
            version if is_known(version) => Ok(header),
            other => Err(BadHeader::Version(other)),
        }
    }
}

fn is_known(version: u16) -> bool {
    (FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version)
}

fn batch_seed(store_id: u64, generation: u32) -> u64 {
    store_id ^ u64::from(generation).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// `bytes` rounded up to whole blocks.
pub(crate) const fn padded(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

pub(crate) fn record_word(kind: u8, payload_bytes: usize) -> [u8; RECORD_HEADER_BYTES] {
    (u32::from(kind) << 28 | payload_bytes as u32 & RECORD_BYTES_MAX as u32).to_le_bytes()
}

/// One record of a batch: its kind, its payload, and the payload's position in the batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord<'a> {
    pub kind: u8,
    pub payload: &'a [u8],
    pub at: usize,
}

/// Iterates over the records of a whole batch (`header.bytes` long). `Err`: the records do not add up.
pub(crate) struct Records<'a> {
    batch: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Records<'a> {
    pub fn of(batch: &'a [u8], header: &BatchHeader) -> Records<'a> {
        let batch = batch.get(..header.bytes as usize).unwrap_or(batch);
        Records { batch, at: BATCH_HEADER_BYTES, left: header.records }
    }

    /// Of a batch whose header is not written yet.
    pub fn unfinished(batch: &'a [u8], records: u32) -> Records<'a> {
        Records { batch, at: BATCH_HEADER_BYTES, left: records }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let rest = self.batch.len() - self.at.min(self.batch.len());
            self.at = self.batch.len();
            return (rest > 0).then_some(Err("data after the last record"));
        }
        let at = self.at + RECORD_HEADER_BYTES;
        let Some(word) = self.batch.get(self.at..at) else {
            (self.left, self.at) = (0, self.batch.len());
            return Some(Err("fewer records than the header states"));
        };
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let Some(payload) = self.batch.get(at..at + (word as usize & RECORD_BYTES_MAX)) else {
            (self.left, self.at) = (0, self.batch.len());
            return Some(Err("a record is longer than its batch"));
        };
        self.left -= 1;
        self.at = at + payload.len();
        Some(Ok(RawRecord { kind: (word >> 28) as u8, payload, at }))
    }
}

/// Content id, start and length of a piece's payload.
pub(crate) fn decode_piece(payload: &[u8]) -> Option<(u64, u64, usize)> {
    let len = payload.len().checked_sub(PIECE_HEADER_BYTES)?;
    Some((get_u64(payload, 0), get_u64(payload, 8), len))
}

pub(crate) fn encode_checkpoint_begin(number: u64, next_content: u64) -> [u8; 16] {
    let mut payload = [0; 16];
    put_u64(&mut payload, 0, number);
    put_u64(&mut payload, 8, next_content);
    payload
}

/// Number and next content id from a begin marker.
pub(crate) fn decode_checkpoint_begin(payload: &[u8]) -> Option<(u64, u64)> {
    (payload.len() == 16).then(|| (get_u64(payload, 0), get_u64(payload, 8)))
}

/// A part of the owner's state stored as a content of its own, so that a checkpoint in which it has not changed only
/// needs to name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Content id.
    pub content: u64,
    /// xxh3-64 of its bytes.
    pub checksum: u64,
}

impl Slice {
    pub(crate) fn of(content: u64, bytes: &[u8]) -> Slice {
        Slice { content, checksum: xxh3_64(bytes) }
    }

    /// True if `bytes` are the slice's bytes.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        xxh3_64(bytes) == self.checksum
    }
}

/// Bytes of a slice record's payload.
pub(crate) const SLICE_NAME_BYTES: usize = 24;

pub(crate) fn encode_slice(number: u64, slice: Slice) -> [u8; SLICE_NAME_BYTES] {
    let mut payload = [0; SLICE_NAME_BYTES];
    for (index, word) in [number, slice.content, slice.checksum].into_iter().enumerate() {
        put_u64(&mut payload, 8 * index, word);
    }
    payload
}

/// Number of the checkpoint, and the slice.
pub(crate) fn decode_slice(payload: &[u8]) -> Option<(u64, Slice)> {
    let word = |index: usize| get_u64(payload, 8 * index);
    (payload.len() == SLICE_NAME_BYTES).then(|| (word(0), Slice { content: word(1), checksum: word(2) }))
}

pub(crate) fn encode_checkpoint_end(checkpoint: &Checkpoint, next_content: u64) -> [u8; 40] {
    let begin = checkpoint.begin;
    let mut payload = [0; 40];
    let words = [checkpoint.number, begin.generation.into(), begin.offset, begin.seq, next_content];
    for (index, word) in words.into_iter().enumerate() {
        put_u64(&mut payload, 8 * index, word);
    }
    payload
}

pub(crate) fn decode_checkpoint_end(payload: &[u8]) -> Option<(Checkpoint, u64)> {
    if payload.len() != 40 {
        return None;
    }
    let word = |index: usize| get_u64(payload, 8 * index);
    let begin = Position { generation: u32::try_from(word(1)).ok()?, offset: word(2), seq: word(3) };
    Some((Checkpoint { number: word(0), begin }, word(4)))
}

pub(crate) fn put_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Takes a varint off the front of `bytes`; `None` if it is truncated or over 64 bits.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(words: [u64; 6], generation: u32, checkpoint: bool) -> SegmentHeader {
        let begin = Position { generation: generation / 2, offset: words[0], seq: words[1] };
        SegmentHeader {
            store_id: words[2],
            generation,
            segment_bytes: words[3],
            predecessor: generation - 1,
            predecessor_last_seq: words[4],
            predecessor_abandoned: words[5] & 1 == 1,
            time: words[5],
            checkpoint: checkpoint.then_some(Checkpoint { number: words[4] | 1, begin }),
            next_content: words[0],
        }
    }

    proptest! {
        #[test]
        fn segment_header_survives(words: [u64; 6], generation in 1u32.., checkpoint: bool, at in 0..BLOCK_BYTES, bit in 0u8..8) {
            let header = header(words, generation, checkpoint);
            let mut block = header.encode();
            prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
            block[at] ^= 1u8 << bit;
            prop_assert_eq!(SegmentHeader::decode(&block), Err(BadHeader::Invalid));
        }

        #[test]
        fn varints_survive(value: u64, rest: Vec<u8>) {
            let mut buffer = Vec::new();
            put_varint(&mut buffer, value);
            buffer.extend_from_slice(&rest);
            let mut bytes = &buffer[..];
            prop_assert_eq!(take_varint(&mut bytes), Some(value));
            prop_assert_eq!(bytes, &rest[..]);
        }

        #[test]
        fn any_bytes_are_taken_without_panic(bytes: Vec<u8>) {
            let _ = SegmentHeader::decode(&bytes);
            let _ = BatchHeader::check(&bytes, 7);
            let _ = take_varint(&mut &bytes[..]);
            let _ = decode_piece(&bytes);
            let _ = decode_checkpoint_end(&bytes);
            let header = BatchHeader { generation: 1, seq: 1, time: 0, bytes: bytes.len() as u32, records: 3 };
            prop_assert!(Records::of(&bytes, &header).count() <= 4);
        }
    }

    #[test]
    fn varint_over_64_bits_is_refused() {
        assert_eq!(take_varint(&mut &[0xff; 10][..]), None);
        assert_eq!(take_varint(&mut &[0x80; 4][..]), None);
    }
}
