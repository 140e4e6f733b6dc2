//! The journal's state in memory, its options and its statistics.
//!
//! Segments by generation are in the chain (from the durable checkpoint's begin to the head: needed for replay), or
//! before it (kept while they hold live content); see docs/design/journal-format.md, Segment states. `commit.rs`
//! writes, `checkpoint.rs` and `clean.rs` reclaim space, `recovery.rs` opens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::building::Building;
use crate::disk::{Disk, DiskFile};
use crate::error::JournalError;
use crate::format::{BLOCK_BYTES, Checkpoint, RECORD_BYTES_MAX};
use crate::pool::{FreeSegment, Pool, Preparer, segment_name};
use crate::read_ahead::{Chunk, ReadAhead};
use crate::reader::{ContentReader, Shared};
use crate::table::Extent;

const SEGMENT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;
/// Once this part of the head is used, the journal makes sure that another segment can follow.
const PRESSED_PART: u64 = 16;

/// Layout of a journal. The sizes may change between starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a segment file, a multiple of 4096 (at least 4 blocks, at most 1 GiB).
    pub segment_bytes: u64,
    /// Size of the largest batch, which also has to fit into a segment.
    pub batch_bytes_max: usize,
    /// Number of segments that the preparer keeps ready, if `spare_segments` leaves room.
    pub pool_ready_min: usize,
    /// Largest number of free segments; more are removed.
    pub pool_ready_max: usize,
    /// All files together take one and a half times the live content plus this many segments; at least 2.
    pub spare_segments: u64,
    /// [`Journal::is_low`] is true when fewer segments than this are ready or could be created.
    pub reserve_segments: u64,
    /// A checkpoint is due after this many bytes of log (or more, see [`Journal::checkpoint_due`]); 0: half a segment.
    pub checkpoint_bytes_min: u64,
    /// Content is moved out of any segment whose live share is below this.
    pub clean_live_percent_max: u64,
    /// If the live share of all segments before the checkpoint together is below this, content is moved out of the one
    /// with the least. Both shares apply from one segment of dead octets on.
    pub clean_total_percent_max: u64,
    /// Random; becomes the id of a new store. It prevents foreign bytes from being read as batches, so do not make it
    /// constant.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 16 * MIB,
            batch_bytes_max: 4 * MIB as usize,
            pool_ready_min: 2,
            // A checkpoint frees up to half as many at once.
            pool_ready_max: 8,
            spare_segments: 2,
            reserve_segments: 2,
            checkpoint_bytes_min: 0,
            clean_live_percent_max: 30,
            clean_total_percent_max: 80,
            seed: 0,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let block = BLOCK_BYTES as u64;
        if !self.segment_bytes.is_multiple_of(block) {
            return Err(JournalError::Options("segment_bytes must be a multiple of 4096"));
        }
        if self.segment_bytes < 4 * block || self.segment_bytes > SEGMENT_BYTES_MAX {
            return Err(JournalError::Options("segment_bytes must be between 16 KiB and 1 GiB"));
        }
        Ok(())
    }

    /// Log between two checkpoints while there is little live content.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        if self.checkpoint_bytes_min == 0 { self.segment_bytes / 2 } else { self.checkpoint_bytes_min }
    }

    /// Largest batch without padding.
    pub(crate) fn batch_limit(&self) -> usize {
        self.batch_bytes_max.min(self.segment_bytes as usize - BLOCK_BYTES).min(RECORD_BYTES_MAX)
    }
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Sequence number of the batch.
    pub seq: u64,
    /// Bytes written, padding included.
    pub bytes: u64,
}

/// Statistics since the journal was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Batches committed.
    pub batches: u64,
    /// Records in those batches, pieces of content included.
    pub records: u64,
    /// Calls of fdatasync by commits and activations (not by the preparer).
    pub syncs: u64,
    /// Bytes written by commits and activations.
    pub bytes_written: u64,
    /// Bytes of zeros written to create segments.
    pub bytes_prepared: u64,
    /// Bytes of content copied by cleaning (part of `bytes_written`).
    pub bytes_moved: u64,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// The owner's slices that checkpoints wrote, and those that they only named.
    pub slices_written: u64,
    pub slices_kept: u64,
    /// Segments that were reused.
    pub recycled: u64,
    /// Segments that a commit had to make, because none was ready.
    pub unprepared: u64,
    /// Segments abandoned after an I/O error.
    pub abandoned: u64,
}

/// The space that the journal uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Segments in use.
    pub segments: usize,
    /// Free segments that are ready.
    pub ready_segments: usize,
    /// Bytes of all segment files.
    pub disk_bytes: u64,
    /// Bytes of content that has not been dropped.
    pub live_content_bytes: u64,
    /// Number of contents.
    pub contents: usize,
    /// Bytes of log since the durable checkpoint's begin: what a start reads.
    pub replay_bytes: u64,
    /// Bytes that the disk still has free.
    pub free_disk_bytes: u64,
}

/// A segment in use.
pub(crate) struct Segment {
    pub slot: u32,
    pub file: Arc<dyn DiskFile>,
    /// Size of the file.
    pub bytes: u64,
    /// Bytes of live content.
    pub live: u64,
    /// Number of extents of live content in it.
    pub pieces: u64,
    pub abandoned: bool,
    /// Whether cleaning has finished it since the last checkpoint.
    pub cleaned: bool,
}

impl Segment {
    pub fn name(&self) -> String {
        segment_name(self.slot)
    }
}

/// Where the next batch goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub generation: u32,
    pub offset: u64,
}

/// The durable log. One thread owns it; [`ContentReader`]s and the [`Preparer`] are for others.
pub struct Journal {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) store_id: u64,
    pub(crate) shared: Shared,
    pub(crate) pool: Arc<Pool>,
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// Segments removed from the map, waiting for readers to finish.
    pub(crate) draining: Vec<Segment>,
    pub(crate) head: Option<Head>,
    /// The chain's last segment, head or abandoned; 0: none yet.
    pub(crate) tail: u32,
    pub(crate) last_seq: u64,
    pub(crate) next_generation: u32,
    pub(crate) next_content: u64,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) checkpoint_number: u64,
    pub(crate) building: Option<Building>,
    /// Bytes that the last checkpoint itself wrote.
    pub(crate) checkpoint_bytes: u64,
    /// Bytes of log from the last checkpoint's begin to its end.
    pub(crate) checkpoint_log_bytes: u64,
    /// Contents that are slices of the durable checkpoint.
    pub(crate) slices: BTreeSet<u64>,
    /// Bytes of the last checkpoint's slices, written by it or earlier.
    pub(crate) state_bytes: u64,
    /// Bytes of log since the durable checkpoint's begin.
    pub(crate) replay_bytes: u64,
    pub(crate) ahead: Arc<ReadAhead>,
    /// A batch read by `ahead`, but not completely copied.
    pub(crate) copying: Option<Chunk>,
    /// Octets that cleaning may move (`clean.rs`).
    pub(crate) clean_budget: u64,
    pub(crate) statistics: Statistics,
}

impl Journal {
    /// A new number for a content, never used before (nor by any content that recovery found).
    pub fn next_content_id(&mut self) -> u64 {
        let id = self.next_content;
        self.next_content = id.saturating_add(1);
        id
    }

    /// Drops a content at once. Only correct if the record that ended its last reference is already durable, or if no
    /// record ever referred to it; otherwise use [`crate::Batch::drop_content`]. Unknown ids are ignored.
    pub fn drop_content(&mut self, id: u64) {
        self.drop_contents(&[id]);
    }

    /// Drops all contents that `keep` does not select, except the checkpoint's slices. Call it after open, when the
    /// owner knows its references.
    ///
    /// Errors: [`JournalError::Damaged`] if a kept content lies in a missing segment.
    pub fn retain_contents(&mut self, keep: &mut dyn FnMut(u64) -> bool) -> Result<(), JournalError> {
        let mut contents = self.shared.write();
        let slices = &self.slices;
        contents.table.retain(
            |id| slices.contains(&id) || keep(id),
            |extent| {
                release(&mut self.segments, extent);
            },
        );
        let mut missing = None;
        contents.table.for_each(|id, extent| {
            let end = u64::from(extent.offset) + u64::from(extent.len);
            let there = self.segments.get(&extent.generation).is_some_and(|segment| end <= segment.bytes);
            if !there && extent.len > 0 {
                missing.get_or_insert((id, extent));
            }
        });
        drop(contents);
        if let Some((id, extent)) = missing {
            let what = format!("content {id} of generation {} is still needed but missing", extent.generation);
            let file =
                self.segments.get(&extent.generation).map_or_else(|| "(missing segment)".to_owned(), Segment::name);
            return Err(JournalError::damaged(&file, extent.offset.into(), what));
        }
        self.recycle();
        Ok(())
    }

    /// Drops contents of the owner, which allows cleaning to move octets in return.
    pub(crate) fn drop_contents(&mut self, ids: &[u64]) {
        let bytes = self.remove_contents(ids);
        self.earn(bytes);
    }

    /// Removes contents. Returns the number of octets that are no longer live.
    pub(crate) fn remove_contents(&mut self, ids: &[u64]) -> u64 {
        if ids.is_empty() {
            return 0;
        }
        let start = self.chain_start();
        let (mut emptied, mut bytes) = (false, 0);
        {
            let mut contents = self.shared.write();
            for id in ids {
                contents.table.remove(*id, |extent| {
                    bytes += u64::from(extent.len);
                    emptied |= release(&mut self.segments, extent) && extent.generation < start;
                });
            }
        }
        if emptied {
            self.recycle();
        }
        bytes
    }

    /// Contents that the durable checkpoint names as slices.
    pub fn slices(&self) -> impl Iterator<Item = u64> {
        self.slices.iter().copied()
    }

    /// The first generation that replay needs.
    pub(crate) fn chain_start(&self) -> u32 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.begin.generation)
    }

    /// Frees segments that are before the checkpoint and hold no live content.
    pub(crate) fn recycle(&mut self) {
        let start = self.chain_start();
        let free: Vec<u32> = self
            .segments
            .range(..start)
            .filter(|(generation, segment)| segment.live == 0 && **generation != self.tail)
            .map(|(generation, _)| *generation)
            .collect();
        // Before the files are removed from the map, so that nobody reads ahead for nothing.
        for generation in &free {
            self.ahead.cancel(*generation);
        }
        if !free.is_empty() {
            let mut contents = self.shared.write();
            for generation in free {
                contents.files.remove(&generation);
                self.draining.extend(self.segments.remove(&generation));
            }
        }
        let mut ready = Vec::new();
        for segment in std::mem::take(&mut self.draining) {
            if Arc::strong_count(&segment.file) > 1 {
                self.draining.push(segment);
            } else if segment.abandoned || segment.bytes != self.options.segment_bytes {
                self.pool.discard(segment.slot);
            } else {
                self.statistics.recycled += 1;
                ready.push(FreeSegment { slot: segment.slot, file: segment.file });
            }
        }
        // First account for the room that they leave, then add them: in the other order they would be removed as
        // excess, and others would be made in their place.
        self.limit_pool();
        for segment in ready {
            self.pool.give(segment);
        }
    }

    /// Number of bytes that all files may take.
    fn bytes_allowed(&self) -> u64 {
        self.live() * 3 / 2 + self.options.spare_segments * self.options.segment_bytes
    }

    /// Number of bytes of live content, slices included.
    pub(crate) fn live(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    fn bytes_used(&self) -> u64 {
        self.segments.values().chain(&self.draining).map(|segment| segment.bytes).sum()
    }

    /// Tells the pool for how many segments there is space. One is made only if a quarter of the live content remains
    /// to spare, so that fluctuating content does not create and remove segments.
    pub(crate) fn limit_pool(&self) {
        let (used, live) = (self.bytes_used(), self.live());
        let room = |allowed: u64| {
            let segments = allowed.saturating_sub(used) / self.options.segment_bytes;
            self.options.pool_ready_max.min(usize::try_from(segments).unwrap_or(usize::MAX))
        };
        let allowed = self.bytes_allowed();
        self.pool.limit(room(allowed), room(allowed - live / 4));
    }

    /// True when the head fills up, no segment is ready to follow it, and another would exceed the limit: space must be
    /// reclaimed by a checkpoint or by cleaning. An eighth of the live content is left for content that ends meanwhile.
    pub(crate) fn is_pressed(&self) -> bool {
        let segment_bytes = self.options.segment_bytes;
        self.head.is_some_and(|head| head.offset > segment_bytes / PRESSED_PART)
            && self.pool.ready() == 0
            && self.bytes_used() + segment_bytes + self.live() / 8 > self.bytes_allowed()
    }

    /// A reader of content for any thread.
    pub fn reader(&self) -> ContentReader {
        ContentReader::of(self.shared.clone())
    }

    /// A preparer of segments for another thread.
    pub fn preparer(&self) -> Preparer {
        Preparer { pool: Arc::clone(&self.pool) }
    }

    /// Sequence number of the last durable batch; 0 if there is none.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Size of the largest batch, as counted by [`crate::Batch::bytes`].
    pub fn batch_bytes_max(&self) -> usize {
        self.options.batch_limit()
    }

    /// Statistics since open.
    pub fn statistics(&self) -> Statistics {
        Statistics { bytes_prepared: self.pool.bytes_prepared(), ..self.statistics }
    }

    /// True when the room left is less than `reserve_segments` and one and a half checkpoints, or when the disk has
    /// refused something for lack of space and no segment was made or freed since. The owner should then take no new
    /// mail (452), but complete the mail in the queue: a checkpoint, which must fit, reclaims what completing writes.
    /// Asks the file system (a system call). If a quota or the inodes are used up, its free octets mean nothing; only
    /// obtaining a segment shows that there is room.
    pub fn is_low(&self) -> bool {
        if self.pool.is_out_of_room() {
            return true;
        }
        let reserve = self.options.reserve_segments + self.state_bytes * 3 / 2 / self.options.segment_bytes;
        let ready = self.pool.ready() as u64;
        ready < reserve && ready + self.disk.free_bytes().unwrap_or(0) / self.options.segment_bytes < reserve
    }

    /// True if a segment is ready: the next commit need not make one.
    pub fn has_ready(&self) -> bool {
        self.pool.ready() > 0
    }

    /// The space that the journal uses. Asks the file system.
    pub fn space(&self) -> Space {
        let ready = self.pool.ready();
        Space {
            segments: self.segments.len(),
            ready_segments: ready,
            disk_bytes: self.bytes_used() + ready as u64 * self.options.segment_bytes,
            live_content_bytes: self.live(),
            contents: self.shared.read().table.len(),
            replay_bytes: self.replay_bytes,
            free_disk_bytes: self.disk.free_bytes().unwrap_or(0),
        }
    }
}

/// Subtracts an extent from its segment's live bytes; `true` if nothing live is left there.
pub(crate) fn release(segments: &mut BTreeMap<u32, Segment>, extent: Extent) -> bool {
    segments.get_mut(&extent.generation).is_some_and(|segment| {
        debug_assert!(segment.live >= extent.len.into(), "live bytes of a segment are the sum of its extents");
        segment.live = segment.live.saturating_sub(extent.len.into());
        segment.pieces = segment.pieces.saturating_sub(u64::from(extent.len > 0));
        segment.live == 0
    })
}
