//! Read-ahead for cleaning: another thread reads and checks what the committer will copy.
//!
//! States of a victim: none -> being read, batch by batch (set by the committer) -> complete (its end is queued). The
//! queue is bounded in bytes; the committer takes from it and checks in the table again whether each piece is still in
//! place. A segment freed in between is cancelled. Without a [`Cleaner`] the journal itself reads, within `clean`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::disk::DiskFile;
use crate::format::{BLOCK_BYTES, BatchHeader, PIECE_HEADER_BYTES, Records, decode_piece, kind};
use crate::reader::Shared;
use crate::table::Extent;

/// Approximate number of bytes read and not yet copied; one batch may exceed it.
const READY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A victim, and how far it has been read.
#[derive(Clone)]
pub(crate) struct Reading {
    pub generation: u32,
    pub file: Arc<dyn DiskFile>,
    /// Size of the segment.
    pub bytes: u64,
    /// Offset of the next batch.
    pub offset: u64,
}

/// A batch with live content.
pub(crate) struct Chunk {
    pub generation: u32,
    bytes: Vec<u8>,
    pieces: Vec<LivePiece>,
    /// Number of pieces that are done.
    pub done: usize,
}

/// A piece that was live when it was read.
#[derive(Clone, Copy)]
pub(crate) struct LivePiece {
    pub id: u64,
    pub start: u64,
    pub from: Extent,
    /// Offset in the batch.
    at: usize,
}

impl Chunk {
    /// The next piece and its bytes.
    pub fn next(&self) -> Option<(LivePiece, &[u8])> {
        let live = *self.pieces.get(self.done)?;
        Some((live, &self.bytes[live.at..live.at + live.from.len as usize]))
    }
}

pub(crate) enum Item {
    Chunk(Chunk),
    /// The victim of this generation has been read completely.
    End(u32),
}

#[derive(Default)]
struct State {
    /// Whether a [`Cleaner`] exists and reads.
    is_attached: bool,
    reading: Option<Reading>,
    ready: VecDeque<Item>,
    ready_bytes: usize,
}

pub(crate) struct ReadAhead {
    state: Mutex<State>,
    wake: Condvar,
    shared: Shared,
    store_id: u64,
}

impl ReadAhead {
    pub fn new(shared: Shared, store_id: u64) -> ReadAhead {
        ReadAhead { state: Mutex::default(), wake: Condvar::new(), shared, store_id }
    }

    pub fn is_attached(&self) -> bool {
        self.state.lock().is_attached
    }

    /// True if a victim is being read or is queued.
    pub fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.reading.is_some() || !state.ready.is_empty()
    }

    /// Starts reading the next victim.
    pub fn begin(&self, reading: Reading) {
        self.state.lock().reading = Some(reading);
        self.wake.notify_one();
    }

    pub fn pop(&self) -> Option<Item> {
        let mut state = self.state.lock();
        let item = state.ready.pop_front()?;
        if let Item::Chunk(chunk) = &item {
            let was_full = state.ready_bytes >= READY_BYTES_MAX;
            state.ready_bytes -= chunk.bytes.len();
            if was_full {
                self.wake.notify_one();
            }
        }
        Some(item)
    }

    /// Cancels the reading of a segment that was freed.
    pub fn cancel(&self, generation: u32) {
        let mut state = self.state.lock();
        state.reading.take_if(|reading| reading.generation == generation);
        state.ready.retain(|item| match item {
            Item::Chunk(chunk) => chunk.generation != generation,
            Item::End(of) => *of != generation,
        });
        state.ready_bytes = state.ready.iter().map(Item::bytes).sum();
    }

    /// Wakes the thread that reads ahead and prepares segments.
    pub fn nudge(&self) {
        self.wake.notify_one();
    }

    /// Reads one batch of the victim into the queue. Returns the bytes read; `None`: nothing to do.
    pub fn read(&self) -> Option<usize> {
        let reading = {
            let state = self.state.lock();
            if state.ready_bytes >= READY_BYTES_MAX {
                return None;
            }
            state.reading.clone()?
        };
        let loaded = self.load(&reading).map(|(header, bytes)| (header, self.live(&reading, &header, &bytes), bytes));
        let mut state = self.state.lock();
        // The segment may have been freed while it was read.
        let current = state.reading.as_mut().filter(|current| current.generation == reading.generation)?;
        let Some((header, pieces, bytes)) = loaded else {
            state.reading = None;
            state.ready.push_back(Item::End(reading.generation));
            return Some(BLOCK_BYTES);
        };
        current.offset += header.padded_bytes() as u64;
        let read = bytes.len();
        if !pieces.is_empty() {
            state.ready_bytes += read;
            state.ready.push_back(Item::Chunk(Chunk { generation: reading.generation, bytes, pieces, done: 0 }));
        }
        Some(read)
    }

    /// Loads and checks the batch to read next. `None`: there is none (any more), or it cannot be read.
    fn load(&self, reading: &Reading) -> Option<(BatchHeader, Vec<u8>)> {
        if reading.offset + BLOCK_BYTES as u64 > reading.bytes {
            return None;
        }
        let mut buffer = vec![0; BLOCK_BYTES];
        let count = reading.file.read_at(reading.offset, &mut buffer).ok()?;
        let header = BatchHeader::peek(&buffer[..count])?;
        if reading.offset + u64::from(header.bytes) > reading.bytes {
            return None;
        }
        let bytes = header.bytes as usize;
        buffer.resize(bytes, 0);
        if bytes > BLOCK_BYTES {
            let rest = &mut buffer[BLOCK_BYTES..];
            let count = reading.file.read_at(reading.offset + BLOCK_BYTES as u64, rest).ok()?;
            if count < bytes - BLOCK_BYTES {
                return None;
            }
        }
        let header = BatchHeader::check(&buffer, self.store_id).ok()?;
        (header.generation == reading.generation).then_some((header, buffer))
    }

    /// The pieces of a batch that are there according to the table.
    fn live(&self, reading: &Reading, header: &BatchHeader, bytes: &[u8]) -> Vec<LivePiece> {
        let contents = self.shared.read();
        let mut pieces = Vec::new();
        for record in Records::of(bytes, header) {
            let Ok(record) = record else { break };
            if !matches!(record.kind, kind::PIECE | kind::LAST_PIECE | kind::MOVED_PIECE) {
                continue;
            }
            let Some((id, start, len)) = decode_piece(record.payload) else { continue };
            let at = record.at + PIECE_HEADER_BYTES;
            let offset = reading.offset as u32 + at as u32;
            let from = Extent { generation: reading.generation, offset, len: len as u32 };
            if len > 0 && contents.table.is_at(id, start, from) {
                pieces.push(LivePiece { id, start, from, at });
            }
        }
        pieces
    }
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Item::Chunk(chunk) => chunk.bytes.len(),
            Item::End(_) => 0,
        }
    }
}

/// Reads from another thread the content that cleaning will copy, so that no commit waits for a read. The journal
/// relies on it as long as one exists.
pub struct Cleaner {
    ahead: Arc<ReadAhead>,
}

impl Cleaner {
    pub(crate) fn new(ahead: Arc<ReadAhead>) -> Cleaner {
        ahead.state.lock().is_attached = true;
        Cleaner { ahead }
    }

    /// Reads one batch, if there is one to read. Returns `true` if it should be called again.
    pub fn read(&self) -> bool {
        self.ahead.read().is_some()
    }

    /// Sleeps until there may be work, at most this long: something to read, or (a segment was taken) to prepare.
    pub fn wait(&self, most: Duration) {
        let mut state = self.ahead.state.lock();
        if state.reading.is_none() || state.ready_bytes >= READY_BYTES_MAX {
            self.ahead.wake.wait_for(&mut state, most);
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.ahead.state.lock().is_attached = false;
    }
}
