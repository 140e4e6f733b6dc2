//! The log as its owner sees it: batches become durable, content is dropped, checkpoints and cleaning bound what a
//! start reads and what the disk holds.
//!
//! [`Journal`] is the durable one. [`VolatileLog`](crate::VolatileLog) keeps the same in memory, for tests of owners
//! that need no disk. How a log is opened and replayed is its own affair (`Journal::open`, `VolatileLog::replay`);
//! owners are generic over the rest, so the seam costs no call.

use crate::Ms;
use crate::batch::Batch;
use crate::checkpoint::CheckpointStep;
use crate::error::{CommitError, JournalError};
use crate::format::Slice;
use crate::journal::{Journal, Receipt, Space, Statistics};
use crate::reader::ContentReader;

/// A log; see the methods of [`Journal`] with the same names.
pub trait Log: Send {
    /// Makes a batch durable.
    ///
    /// # Errors
    /// Nothing of the batch counts; it is unchanged, and a running checkpoint is abandoned.
    fn commit(&mut self, batch: &mut Batch, now: Ms) -> Result<Receipt, CommitError>;
    /// Size of the largest batch.
    fn batch_bytes_max(&self) -> usize;

    fn next_content_id(&mut self) -> u64;
    fn drop_content(&mut self, id: u64);
    /// Drops all contents that `keep` does not select, after a replay.
    ///
    /// # Errors
    /// A content that is kept is missing.
    fn retain_contents(&mut self, keep: &mut dyn FnMut(u64) -> bool) -> Result<(), JournalError>;
    /// A reader of content for any thread.
    fn reader(&self) -> ContentReader;

    fn checkpoint_due(&self) -> bool;
    fn checkpoint_running(&self) -> bool;
    fn begin_checkpoint(&mut self, batch: &mut Batch);
    fn slice_bytes_max(&self) -> usize;
    fn checkpoint_slice(&mut self, batch: &mut Batch) -> CheckpointStep;
    fn record_slice(&mut self, batch: &mut Batch, record: &[u8]);
    fn write_slice(&mut self, batch: &mut Batch, id: u64, bytes: &[u8]) -> Option<Slice>;
    fn keep_slice(&mut self, batch: &mut Batch, slice: Slice) -> bool;
    fn end_checkpoint(&mut self, batch: &mut Batch) -> CheckpointStep;
    fn abort_checkpoint(&mut self);

    fn clean_due(&self) -> bool;
    fn clean(&mut self, batch: &mut Batch, bytes_max: usize) -> usize;

    /// Whether there is too little room for new mail.
    fn is_low(&self) -> bool;
    fn statistics(&self) -> Statistics;
    fn space(&self) -> Space;
}

impl Log for Journal {
    fn commit(&mut self, batch: &mut Batch, now: Ms) -> Result<Receipt, CommitError> {
        Journal::commit(self, batch, now)
    }

    fn batch_bytes_max(&self) -> usize {
        Journal::batch_bytes_max(self)
    }

    fn next_content_id(&mut self) -> u64 {
        Journal::next_content_id(self)
    }

    fn drop_content(&mut self, id: u64) {
        Journal::drop_content(self, id);
    }

    fn retain_contents(&mut self, keep: &mut dyn FnMut(u64) -> bool) -> Result<(), JournalError> {
        Journal::retain_contents(self, keep)
    }

    fn reader(&self) -> ContentReader {
        Journal::reader(self)
    }

    fn checkpoint_due(&self) -> bool {
        Journal::checkpoint_due(self)
    }

    fn checkpoint_running(&self) -> bool {
        Journal::checkpoint_running(self)
    }

    fn begin_checkpoint(&mut self, batch: &mut Batch) {
        Journal::begin_checkpoint(self, batch);
    }

    fn slice_bytes_max(&self) -> usize {
        Journal::slice_bytes_max(self)
    }

    fn checkpoint_slice(&mut self, batch: &mut Batch) -> CheckpointStep {
        Journal::checkpoint_slice(self, batch)
    }

    fn record_slice(&mut self, batch: &mut Batch, record: &[u8]) {
        Journal::record_slice(self, batch, record);
    }

    fn write_slice(&mut self, batch: &mut Batch, id: u64, bytes: &[u8]) -> Option<Slice> {
        Journal::write_slice(self, batch, id, bytes)
    }

    fn keep_slice(&mut self, batch: &mut Batch, slice: Slice) -> bool {
        Journal::keep_slice(self, batch, slice)
    }

    fn end_checkpoint(&mut self, batch: &mut Batch) -> CheckpointStep {
        Journal::end_checkpoint(self, batch)
    }

    fn abort_checkpoint(&mut self) {
        Journal::abort_checkpoint(self);
    }

    fn clean_due(&self) -> bool {
        Journal::clean_due(self)
    }

    fn clean(&mut self, batch: &mut Batch, bytes_max: usize) -> usize {
        Journal::clean(self, batch, bytes_max)
    }

    fn is_low(&self) -> bool {
        Journal::is_low(self)
    }

    fn statistics(&self) -> Statistics {
        Journal::statistics(self)
    }

    fn space(&self) -> Space {
        Journal::space(self)
    }
}
