//! Cleaning: stragglers' content is copied to the head, so that it never pins a whole segment.
//!
//! A victim is a segment before the durable checkpoint with little live content; how little is too little depends on all of
//! them together, so that the dead part is bounded and nothing is moved while it is small. Its batches are read in order, checked, and
//! the pieces that the table still places there are copied as moved pieces. The old place comes free when the batch with the
//! copies is durable. Each call is bounded in what it copies and reads; a victim that cannot be read is left as it is until
//! after the next checkpoint.

use crate::batch::Batch;
use crate::format::{BLOCK_BYTES, BatchHeader, PIECE_HEADER_BYTES, RECORD_HEADER_BYTES, Records, decode_piece, kind};
use crate::journal::Journal;
use crate::table::Extent;

/// A call reads at most this many times what it may copy, and one batch.
const READ_FACTOR: usize = 4;
const READ_BYTES_MIN: usize = 1024 * 1024;

/// Where cleaning goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    pub generation: u32,
    /// Offset of the batch.
    offset: u64,
    /// Records of it that are done.
    records: usize,
}

impl Journal {
    /// True if there is a segment worth cleaning.
    pub fn clean_due(&self) -> bool {
        self.cleaning.is_some() || self.victim().is_some()
    }

    /// Adds copies of live pieces to `batch`, about `bytes_max` (at least one piece if there is one); returns how many bytes. 0 does
    /// not mean that nothing is left: ask [`Journal::clean_due`]. Once per batch: a second call adds nothing.
    pub fn clean(&mut self, batch: &mut Batch, bytes_max: usize) -> usize {
        if batch.pieces.iter().any(|piece| piece.moved.is_some()) {
            return 0;
        }
        let mut buffer = std::mem::take(&mut self.clean_buffer);
        let mut copied = 0;
        let mut reads_left = READ_BYTES_MIN.max(READ_FACTOR * bytes_max);
        while copied < bytes_max && reads_left > 0 {
            let first = Cursor { generation: 0, offset: BLOCK_BYTES as u64, records: 0 };
            let Some(cursor) = self.cleaning.or_else(|| self.victim().map(|generation| Cursor { generation, ..first }))
            else {
                break;
            };
            let Some(header) = self.load(cursor, &mut buffer) else {
                self.finish_victim(cursor.generation);
                continue;
            };
            reads_left = reads_left.saturating_sub(buffer.len());
            let (done, bytes) = self.copy_live(cursor, &header, &buffer, batch, bytes_max - copied);
            copied += bytes;
            if done < header.records as usize {
                self.cleaning = Some(Cursor { records: done, ..cursor });
                break;
            }
            let offset = cursor.offset + header.padded_bytes() as u64;
            self.cleaning = Some(Cursor { offset, records: 0, ..cursor });
        }
        // A large batch shall not hold its memory for good.
        buffer.clear();
        buffer.shrink_to(READ_BYTES_MIN);
        self.clean_buffer = buffer;
        copied
    }

    /// The segment with the least live content among those worth it: any that is nearly dead, and any that is not full while
    /// all before the checkpoint together hold too much that is dead.
    fn victim(&self) -> Option<u32> {
        let (mut live, mut bytes) = (0, 0);
        let mut least: Option<(u64, u32)> = None;
        for (generation, segment) in self.segments.range(..self.chain_start()) {
            live += segment.live;
            bytes += segment.bytes;
            if !segment.cleaned && segment.live > 0 && least.is_none_or(|(least, _)| segment.live < least) {
                least = Some((segment.live, *generation));
            }
        }
        let (least, generation) = least?;
        let percent_max = if live * 100 < self.options.clean_total_percent_max * bytes {
            // One that is fuller than all together gives nothing back.
            self.options.clean_total_percent_max
        } else {
            self.options.clean_live_percent_max
        };
        let segment = self.segments.get(&generation)?;
        (least * 100 < percent_max * segment.bytes).then_some(generation)
    }

    fn finish_victim(&mut self, generation: u32) {
        self.cleaning = None;
        if let Some(segment) = self.segments.get_mut(&generation) {
            segment.cleaned = true;
        }
    }

    /// Reads the batch at the cursor. `None` = there is none (any more).
    fn load(&self, cursor: Cursor, buffer: &mut Vec<u8>) -> Option<BatchHeader> {
        let segment = self.segments.get(&cursor.generation)?;
        buffer.resize(BLOCK_BYTES, 0);
        let count = segment.file.read_at(cursor.offset, buffer).ok()?;
        let header = BatchHeader::peek(&buffer[..count])?;
        if cursor.offset + u64::from(header.bytes) > segment.bytes {
            return None;
        }
        let bytes = header.bytes as usize;
        buffer.resize(bytes, 0);
        if bytes > BLOCK_BYTES {
            let rest = &mut buffer[BLOCK_BYTES..];
            let count = segment.file.read_at(cursor.offset + BLOCK_BYTES as u64, rest).ok()?;
            if count < bytes - BLOCK_BYTES {
                return None;
            }
        }
        BatchHeader::check(buffer, self.store_id).ok().filter(|header| header.generation == cursor.generation)
    }

    /// Copies what is live of a batch; returns the number of records that are done and the bytes copied.
    fn copy_live(
        &self,
        cursor: Cursor,
        header: &BatchHeader,
        bytes: &[u8],
        batch: &mut Batch,
        bytes_max: usize,
    ) -> (usize, usize) {
        let contents = self.shared.read();
        let batch_max = self.options.batch_limit();
        let mut copied = 0;
        for (index, record) in Records::of(bytes, header).enumerate().skip(cursor.records) {
            let Ok(record) = record else { break };
            if !matches!(record.kind, kind::PIECE | kind::LAST_PIECE | kind::MOVED_PIECE) {
                continue;
            }
            let Some((id, start, len)) = decode_piece(record.payload) else { continue };
            let offset = cursor.offset as u32 + (record.at + PIECE_HEADER_BYTES) as u32;
            let from = Extent { generation: cursor.generation, offset, len: len as u32 };
            if len == 0 || !contents.table.is_at(id, start, from) {
                continue;
            }
            let need = RECORD_HEADER_BYTES + PIECE_HEADER_BYTES + len;
            // The first copy may be over `bytes_max`, but not over what a batch holds.
            if (copied > 0 && copied + len > bytes_max) || batch.bytes() + need > batch_max {
                return (index, copied);
            }
            batch.moved_piece(id, start, from, &record.payload[PIECE_HEADER_BYTES..]);
            copied += len;
        }
        (header.records as usize, copied)
    }
}
