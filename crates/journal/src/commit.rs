//! Commit: one write, one sync, then the state in memory. The proof depends on the order of the steps
//! (docs/design/journal-format.md, Commit): do not reorder anything here without checking it.

use std::io;
use std::sync::Arc;

use crate::Ms;
use crate::batch::Batch;
use crate::error::CommitError;
use crate::format::{BLOCK_BYTES, BatchHeader, Position, SegmentHeader, padded};
use crate::journal::{Head, Journal, Receipt, Segment, release};
use crate::pool::{Fill, FreeSegment, segment_name};
use crate::table::Extent;

/// With more segments than this, the pool's limits are updated only every `LIMIT_EVERY` batches: they are a sum over
/// all segments.
const LIMIT_AT_ONCE: usize = 256;
const LIMIT_EVERY: u64 = 16;

impl Journal {
    /// Makes a batch durable. `now` goes into its header.
    ///
    /// On `Ok` the batch is empty and everything in it survives a power cut. On `Err` it is unchanged and nothing of it
    /// counts; the same batch may be committed again. A running checkpoint is abandoned on `Err`. An empty batch writes
    /// nothing.
    pub fn commit(&mut self, batch: &mut Batch, now: Ms) -> Result<Receipt, CommitError> {
        if batch.is_empty() {
            self.drop_contents(&batch.drops);
            batch.clear();
            return Ok(Receipt { seq: self.last_seq, bytes: 0 });
        }
        let result = self.try_commit(batch, now);
        if result.is_err() {
            self.abort_checkpoint();
        }
        result
    }

    fn try_commit(&mut self, batch: &mut Batch, now: Ms) -> Result<Receipt, CommitError> {
        let bytes = batch.bytes();
        let bytes_max = self.options.batch_limit();
        if batch.is_oversized() || bytes > bytes_max {
            return Err(CommitError::TooLarge { bytes, bytes_max });
        }
        self.set_piece_starts(batch)?;
        let head = self.head_with_room(padded(bytes) as u64, now)?;
        self.settle_end_mark(batch);
        let header = BatchHeader {
            generation: head.generation,
            seq: self.last_seq + 1,
            time: now,
            bytes: bytes as u32,
            records: batch.records(),
        };
        let written = header.padded_bytes() as u64;
        let file = self.file_of(head.generation);
        let raw = batch.pad();
        header.write(raw, self.store_id);
        let outcome = file.write_at(head.offset, raw);
        batch.unpad(bytes);
        self.statistics.bytes_written += written;
        match outcome {
            // The next batch overwrites it. It is whole at most if only padding found no room (docs: ENOSPC).
            Err(error) if self.pool.heed(&error) => return Err(CommitError::Full(error)),
            Err(error) => return Err(self.abandon(head, error, now)),
            Ok(()) => {}
        }
        self.statistics.syncs += 1;
        if let Err(error) = file.sync_data() {
            return Err(self.abandon(head, error, now));
        }
        drop(file);
        self.last_seq = header.seq;
        self.head = Some(Head { offset: head.offset + written, ..head });
        self.statistics.batches += 1;
        self.statistics.records += u64::from(header.records);
        self.charge(written);
        if batch.owner_bytes() > 0 {
            self.earn(written.saturating_sub(batch.upkeep_bytes as u64));
        }
        self.apply(batch, head);
        self.settle_checkpoint(batch, Position { generation: head.generation, offset: head.offset, seq: header.seq });
        batch.clear();
        if self.segments.len() < LIMIT_AT_ONCE || self.last_seq.is_multiple_of(LIMIT_EVERY) {
            self.limit_pool();
        }
        Ok(Receipt { seq: header.seq, bytes: written })
    }

    /// Fills in the starts of the batch's pieces within contents that began in earlier batches.
    fn set_piece_starts(&mut self, batch: &mut Batch) -> Result<(), CommitError> {
        if batch.pieces.is_empty() {
            return Ok(());
        }
        let contents = self.shared.read();
        for index in 0..batch.pieces.len() {
            let piece = batch.pieces[index];
            self.next_content = self.next_content.max(piece.id.saturating_add(1));
            if piece.moved.is_some() {
                continue;
            }
            let before = match contents.table.progress(piece.id) {
                Some(progress) if progress.complete => return Err(CommitError::ContentComplete(piece.id)),
                Some(progress) => progress.len,
                None => 0,
            };
            if before + piece.start > 0 {
                batch.set_piece_start(piece.at, before + piece.start);
            }
        }
        Ok(())
    }

    /// Applies a durable batch: its content exists, copies replace originals, drops take effect.
    fn apply(&mut self, batch: &Batch, head: Head) {
        if !batch.pieces.is_empty() {
            let mut contents = self.shared.write();
            let (mut added, mut pieces, mut emptied) = (0, 0, false);
            for piece in &batch.pieces {
                let offset = head.offset as u32 + piece.at;
                let extent = Extent { generation: head.generation, offset, len: piece.len };
                if let Some(from) = piece.moved {
                    // The content may have been dropped since it was copied.
                    if contents.table.relocate(piece.id, piece.start, from, extent) {
                        emptied |= release(&mut self.segments, from);
                        added += u64::from(piece.len);
                        pieces += u64::from(piece.len > 0);
                        self.statistics.bytes_moved += u64::from(piece.len);
                    }
                } else {
                    let start = contents.table.progress(piece.id).map_or(0, |progress| progress.len);
                    contents.table.append(piece.id, start, extent, piece.last);
                    added += u64::from(piece.len);
                    pieces += u64::from(piece.len > 0);
                }
            }
            if let Some(segment) = self.segments.get_mut(&head.generation) {
                segment.live += added;
                segment.pieces += pieces;
            }
            drop(contents);
            if emptied {
                self.recycle();
            }
        }
        self.drop_contents(&batch.drops);
        self.drop_stale_slices(batch);
    }

    /// Counts log bytes towards the next checkpoint.
    fn charge(&mut self, bytes: u64) {
        self.replay_bytes += bytes;
        if let Some(building) = &mut self.building {
            building.bytes += bytes;
        }
    }

    fn file_of(&self, generation: u32) -> Arc<dyn crate::DiskFile> {
        Arc::clone(&self.segments.get(&generation).expect("the head is a segment in use").file)
    }

    fn head_with_room(&mut self, bytes: u64, now: Ms) -> Result<Head, CommitError> {
        if let Some(head) = self.head
            && let Some(segment) = self.segments.get(&head.generation)
        {
            if head.offset + bytes <= segment.bytes {
                return Ok(head);
            }
            let rest = segment.bytes - head.offset;
            let next = self.activate(now)?;
            self.charge(rest);
            return Ok(next);
        }
        self.activate(now)
    }

    /// Makes a free segment the head. On `Err` the head is unchanged, or abandoned if a header write was tried. That
    /// header may be durable, and a start that finds it believes its statement about the head's last batch, so no batch
    /// may follow there.
    fn activate(&mut self, now: Ms) -> Result<Head, CommitError> {
        let ready = self.free_segment()?;
        let generation = self.next_generation;
        self.next_generation = generation.checked_add(1).ok_or_else(|| {
            let source = io::Error::other("the store has used up its generations");
            CommitError::Io { file: segment_name(ready.slot), offset: 0, source }
        })?;
        let header = SegmentHeader {
            store_id: self.store_id,
            generation,
            segment_bytes: self.options.segment_bytes,
            predecessor: self.tail,
            predecessor_last_seq: self.last_seq,
            predecessor_abandoned: self.segments.get(&self.tail).is_some_and(|segment| segment.abandoned),
            time: now,
            checkpoint: self.checkpoint,
            next_content: self.next_content,
        };
        self.statistics.syncs += 1;
        self.statistics.bytes_written += BLOCK_BYTES as u64;
        if let Err(source) = ready.file.write_at(0, &header.encode()).and_then(|()| ready.file.sync_data()) {
            // Whatever happened to that header, it says the same as the next one, as long as nothing is written in
            // between (docs: activation that fails).
            self.head = None;
            self.pool.discard(ready.slot);
            self.statistics.abandoned += 1;
            return Err(self.failure(segment_name(ready.slot), 0, source));
        }
        let bytes = self.options.segment_bytes;
        self.shared.write().files.insert(generation, Arc::clone(&ready.file));
        let segment =
            Segment { slot: ready.slot, file: ready.file, bytes, live: 0, pieces: 0, abandoned: false, cleaned: false };
        self.segments.insert(generation, segment);
        self.tail = generation;
        let head = Head { generation, offset: BLOCK_BYTES as u64 };
        self.head = Some(head);
        self.charge(BLOCK_BYTES as u64);
        Ok(head)
    }

    fn free_segment(&mut self) -> Result<FreeSegment, CommitError> {
        if let Some(ready) = self.pool.take() {
            self.ahead.nudge();
            return Ok(ready);
        }
        self.recycle();
        if let Some(ready) = self.pool.take() {
            return Ok(ready);
        }
        self.statistics.unprepared += 1;
        self.pool.create(Fill::Nothing).map_err(|source| self.failure("(new segment)".to_owned(), 0, source))
    }

    fn failure(&self, file: String, offset: u64, source: io::Error) -> CommitError {
        if self.pool.heed(&source) { CommitError::Full(source) } else { CommitError::Io { file, offset, source } }
    }

    /// Abandons the head after a failed write or sync: it is never written or synced again. The successor is made at
    /// once, so that the refused batch cannot be replayed.
    fn abandon(&mut self, head: Head, source: io::Error, now: Ms) -> CommitError {
        self.head = None;
        self.statistics.abandoned += 1;
        let mut file = String::new();
        if let Some(segment) = self.segments.get_mut(&head.generation) {
            segment.abandoned = true;
            file = segment.name();
        }
        let failure = self.failure(file, head.offset, source);
        // If this fails too, the next commit tries again.
        let _ = self.activate(now);
        failure
    }
}
