//! A block: some thousand records compressed together, with a filter that shows whether they are worth reading.
//!
//! The layout is in `docs/design/history-format.md`. The header's checksum covers header and filter, the other one the
//! stored records. So a search needs only headers and filters.

use stentor_records::record::{Ms, Record};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::codec::{Encoder, Texts};
use crate::{filter, varint};

pub const HEADER_BYTES: usize = 64;
pub const MAGIC: [u8; 4] = *b"SHB1";
/// Octets of records that are gathered before compression.
pub const BLOCK_BYTES: usize = 256 * 1024;
/// Largest allocation that a damaged header can cause in a reader.
pub const BLOCK_BYTES_MAX: usize = 16 * 1024 * 1024;
pub const FILTER_BYTES_MAX: usize = 4 * 1024 * 1024;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// The header of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Number of the block's first record, counted over all files.
    pub first: u64,
    pub records: u32,
    pub raw_bytes: u32,
    pub stored_bytes: u32,
    pub filter_bytes: u32,
    pub min_ms: Ms,
    pub max_ms: Ms,
    compression: u8,
    stored_hash: u64,
    hash: u64,
}

impl BlockHeader {
    /// Parses a header by its form only; [`BlockHeader::check`] verifies it.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<BlockHeader> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let header = BlockHeader {
            compression: bytes[4],
            first: u64_at(8),
            records: u32_at(16),
            raw_bytes: u32_at(20),
            stored_bytes: u32_at(24),
            filter_bytes: u32_at(28),
            min_ms: u64_at(32),
            max_ms: u64_at(40),
            stored_hash: u64_at(48),
            hash: u64_at(56),
        };
        let is_sound = bytes[..4] == MAGIC
            && header.raw_bytes as usize <= BLOCK_BYTES_MAX
            && header.stored_bytes as usize <= BLOCK_BYTES_MAX
            && header.filter_bytes as usize <= FILTER_BYTES_MAX
            && header.first.checked_add(header.records.into()).is_some();
        is_sound.then_some(header)
    }

    /// Whether header and filter are intact.
    pub fn check(&self, bytes: &[u8; HEADER_BYTES], filter: &[u8]) -> bool {
        header_hash(&bytes[..HEADER_BYTES - 8], filter) == self.hash
    }

    /// Size of the whole block in octets.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.filter_bytes) + u64::from(self.stored_bytes)
    }

    /// One past the number of the last record.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.records)
    }

    /// Decompresses the encoded records into `raw`. Returns false if they are damaged.
    pub fn unpack(&self, stored: &[u8], raw: &mut Vec<u8>) -> bool {
        if xxh3_64(stored) != self.stored_hash {
            return false;
        }
        raw.clear();
        match self.compression {
            PLAIN => {
                raw.extend_from_slice(stored);
                true
            }
            LZ4 => {
                raw.resize(self.raw_bytes as usize, 0);
                lz4_flex::block::decompress_into(stored, raw).is_ok_and(|len| len == raw.len())
            }
            _ => false,
        }
    }
}

fn header_hash(header: &[u8], filter: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(header);
    hasher.update(filter);
    hasher.digest()
}

/// Collects records for a block.
#[derive(Default)]
pub struct Builder {
    raw: Vec<u8>,
    scratch: Vec<u8>,
    packed: Vec<u8>,
    texts: Texts,
    hashes: Vec<u64>,
    records: u32,
    min_ms: Ms,
    max_ms: Ms,
    last_ms: Ms,
}

impl Builder {
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub fn is_full(&self) -> bool {
        self.raw.len() >= BLOCK_BYTES
    }

    pub fn records(&self) -> u32 {
        self.records
    }

    pub fn push(&mut self, record: &Record<'_>) {
        let at = record.at();
        if self.records == 0 {
            // The first time is absolute, so that a block can be read alone.
            (self.last_ms, self.min_ms, self.max_ms) = (0, at, at);
        }
        self.scratch.clear();
        Encoder::shared(&mut self.scratch, &mut self.texts, self.last_ms).record(record);
        varint::push(&mut self.raw, self.scratch.len() as u64);
        self.raw.extend_from_slice(&self.scratch);
        filter::keys(record, &mut |key| self.hashes.push(filter::hash(key)));
        self.records += 1;
        self.last_ms = at;
        self.min_ms = self.min_ms.min(at);
        self.max_ms = self.max_ms.max(at);
    }

    /// Appends the block, whose first record has number `first`, to `out` and starts a new one.
    pub fn finish(&mut self, first: u64, out: &mut Vec<u8>) {
        self.packed.resize(lz4_flex::block::get_maximum_output_size(self.raw.len()), 0);
        let packed = lz4_flex::block::compress_into(&self.raw, &mut self.packed).ok().filter(|n| *n < self.raw.len());
        let (compression, stored) = match packed {
            Some(len) => (LZ4, &self.packed[..len]),
            None => (PLAIN, self.raw.as_slice()),
        };
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        filter::build(&mut self.hashes, out);
        let filter_bytes = out.len() - start - HEADER_BYTES;
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4] = compression;
        header[8..16].copy_from_slice(&first.to_le_bytes());
        let lengths = [self.records, self.raw.len() as u32, stored.len() as u32, filter_bytes as u32];
        for (at, length) in lengths.into_iter().enumerate() {
            header[16 + 4 * at..20 + 4 * at].copy_from_slice(&length.to_le_bytes());
        }
        for (at, number) in [self.min_ms, self.max_ms, xxh3_64(stored)].into_iter().enumerate() {
            header[32 + 8 * at..40 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let hash = header_hash(&header[..HEADER_BYTES - 8], &out[start + HEADER_BYTES..]);
        header[HEADER_BYTES - 8..].copy_from_slice(&hash.to_le_bytes());
        out[start..start + HEADER_BYTES].copy_from_slice(&header);
        out.extend_from_slice(stored);
        self.clear();
    }

    fn clear(&mut self) {
        self.raw.clear();
        self.hashes.clear();
        self.texts.clear();
        self.records = 0;
    }
}
