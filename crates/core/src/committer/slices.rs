//! The owner's part of checkpoints: one slice with each batch that has space for it.

use stentor_journal::{Batch, CheckpointStep, Log, Slice};
use stentor_queue::ids::{ContentId, Ms};
use stentor_queue::slices::{SliceRef, Slices};
use stentor_queue::store::SLICE_BYTES_MAX;

use super::{Committer, PART, SLICE_OVERHEAD_BYTES};
use crate::Core;
use crate::hub::Hub;

/// Maximum number of slices that a batch names, to bound how long the hub's lock is held.
const SLICES_NAMED_MAX: usize = 1024;

impl<L: Log> Committer<L> {
    /// Writes the next slice of a checkpoint, or the first of one that is due.
    ///
    /// A batch that is already full gets none: slices wait for quieter turns.
    pub(super) fn checkpoint_slice(&mut self, hub: &mut Hub, jobs_bytes: usize, now: Ms) {
        let batch_max = self.log.batch_bytes_max();
        let room = batch_max.saturating_sub(self.batch.bytes() + jobs_bytes + SLICE_OVERHEAD_BYTES);
        let slice_max = SLICE_BYTES_MAX.min(batch_max / PART);
        let next = self.checkpoint.as_ref().map_or(slice_max, |cursor| cursor.next_bytes_max(&hub.store));
        if next > room || (self.checkpoint.is_none() && self.log.slice_bytes_max() > room) {
            return;
        }
        if self.checkpoint.is_none() && !self.log.checkpoint_running() {
            let is_due = self.log.checkpoint_due() || self.forgetting.wants_checkpoint(now);
            if !is_due || self.forgetting.is_sweeping() {
                return;
            }
            self.log.begin_checkpoint(&mut self.batch);
            // The beginning's slice is small.
            self.checkpoint = Some(self.forgetting.checkpoint_begins(hub, now).limited(slice_max));
        }
        if let Some(cursor) = &mut self.checkpoint {
            let mut part = Part {
                core: &self.core,
                log: &mut self.log,
                batch: &mut self.batch,
                named: 0,
                bytes: 0,
                bytes_max: slice_max,
                until: batch_max - jobs_bytes - SLICE_OVERHEAD_BYTES,
            };
            let more = cursor.step(&mut hub.store, &mut part);
            // The journal's own slices are written along with ours, and continue after ours are done.
            if self.batch.bytes() + jobs_bytes + self.log.slice_bytes_max() <= batch_max {
                let _ = self.log.checkpoint_slice(&mut self.batch);
            }
            if !more && let Some(cursor) = self.checkpoint.take() {
                self.forgetting.marked(cursor, now);
            }
        } else if self.log.end_checkpoint(&mut self.batch) == CheckpointStep::Done {
            tracing::debug!("checkpoint complete");
        }
    }

    /// Returns the size of the checkpoint's next slice if it exceeds the normal limit, else 0.
    pub(super) fn large_slice_bytes(&self, hub: &Hub) -> usize {
        let slice_max = SLICE_BYTES_MAX.min(self.log.batch_bytes_max() / PART);
        let next = self.checkpoint.as_ref().map_or(0, |cursor| cursor.next_bytes_max(&hub.store));
        let is_large = next > slice_max + SLICE_OVERHEAD_BYTES;
        // A slice that can never be promised room must not delay mail.
        if is_large && next <= self.jobs_bytes_max() { next } else { 0 }
    }
}

/// The part of a checkpoint that goes into the batch being built.
struct Part<'a, L: Log> {
    core: &'a Core,
    log: &'a mut L,
    batch: &'a mut Batch,
    named: usize,
    /// Octets of slices written so far, and their limit.
    bytes: usize,
    bytes_max: usize,
    /// Octets up to which the batch may grow.
    until: usize,
}

impl<L: Log> Slices for Part<'_, L> {
    fn record(&mut self, record: &[u8]) {
        self.bytes += record.len();
        self.log.record_slice(self.batch, record);
    }

    fn write(&mut self, record: &[u8]) -> Option<SliceRef> {
        self.bytes += record.len();
        self.named += 1;
        let slice = self.log.write_slice(self.batch, self.core.next_content_id().0, record)?;
        Some(SliceRef { content: ContentId(slice.content), checksum: slice.checksum })
    }

    fn keep(&mut self, slice: SliceRef) -> bool {
        self.named += 1;
        self.log.keep_slice(self.batch, Slice { content: slice.content.0, checksum: slice.checksum })
    }

    fn is_full(&self, next_bytes_max: usize) -> bool {
        self.bytes >= self.bytes_max
            || self.named >= SLICES_NAMED_MAX
            || self.batch.bytes() + next_bytes_max + SLICE_OVERHEAD_BYTES > self.until
    }
}
