//! Opening: finds the head, cuts its torn tail, finds the newest checkpoint, replays from there. Each segment is read
//! once.
//!
//! Promise: acknowledged batches are replayed, in order, each one whole; refused ones are not. Damage is never skipped:
//! it ends in [`JournalError::Damaged`] with file and offset, and nothing is changed. The rules are in
//! docs/design/journal-recovery.md, Recovery.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::Ms;
use crate::disk::Disk;
use crate::error::JournalError;
use crate::format::{
    BLOCK_BYTES, BatchHeader, Checkpoint, PIECE_HEADER_BYTES, Records, decode_checkpoint_begin, decode_checkpoint_end,
    decode_piece, decode_slice, kind,
};
use crate::journal::{Head, Journal, Options, Segment, Statistics};
use crate::pool::{FreeSegment, Pool, segment_name};
use crate::read_ahead::ReadAhead;
use crate::reader::Contents;
use crate::replay::{MemoryLog, Place, Replay, ReplayProgress};
use crate::scan::{Bytes, HeadedSegment, Image, Survey, Walk, WalkEnd, Window, survey, walk_batches};
use crate::table::{Extent, Table};

/// Results of opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments that were replayed.
    pub segments: usize,
    /// Batches that were replayed.
    pub batches: u64,
    /// Owner's records that were replayed.
    pub records: u64,
    /// Bytes of log that were replayed.
    pub bytes: u64,
    /// Complete contents, before [`Journal::retain_contents`].
    pub contents: usize,
    /// Contents whose last piece was missing, and which were dropped.
    pub contents_incomplete: usize,
    /// Bytes of a batch that was cut off at the end, as far as its header can be read; 0: the log ended cleanly.
    pub torn_bytes: u64,
    /// Sequence number of the last batch; 0: none.
    pub last_seq: u64,
    /// Time of the last batch.
    pub last_time: Ms,
}

impl Journal {
    /// Opens the journal on `disk`, which nothing else may use. `replay` gets the owner's records in commit order, from
    /// the newest durable checkpoint's begin on. Afterwards call [`Journal::retain_contents`].
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        replay: &mut Replay<'_>,
    ) -> Result<(Journal, RecoveryReport), JournalError> {
        options.check()?;
        // Names that a killed process created or removed must not change later at a power cut.
        disk.sync_dir().map_err(JournalError::io("syncing the journal's directory"))?;
        let survey = survey(&*disk)?;
        let pool = Pool::new(
            Arc::clone(&disk),
            options.segment_bytes,
            options.pool_ready_min,
            options.pool_ready_max,
            survey.next_slot,
        );
        let mut recovered = RecoveredState::default();
        if let Some((_, head)) = survey.headed.last_key_value() {
            // A killed process may have left a batch only in the page cache.
            head.file.sync_and_drop_cache().map_err(JournalError::io(&head.name()))?;
        }
        let chain = recovered.read_log(&survey, replay)?;
        for name in &survey.unfinished {
            disk.remove(name).map_err(JournalError::io(name))?;
        }
        let store_id = survey.headed.values().next().map_or(options.seed, |found| found.header.store_id);
        let table = std::mem::take(&mut recovered.table);
        let shared = Arc::new(RwLock::new(Contents { table, ..Contents::default() }));
        let mut journal = Journal {
            store_id,
            disk,
            options,
            ahead: Arc::new(ReadAhead::new(Arc::clone(&shared), store_id)),
            shared,
            pool: Arc::new(pool),
            segments: std::collections::BTreeMap::new(),
            draining: Vec::new(),
            head: recovered.head,
            tail: chain.last().copied().unwrap_or(0),
            last_seq: recovered.report.last_seq,
            next_generation: survey.headed.last_key_value().map_or(1, |(generation, _)| generation.saturating_add(1)),
            next_content: recovered.next_content,
            checkpoint: recovered.checkpoint,
            checkpoint_number: recovered.checkpoint_number,
            building: None,
            checkpoint_bytes: 0,
            checkpoint_log_bytes: 0,
            // Not known exactly before the next checkpoint; the replayed bytes include the last one.
            state_bytes: recovered.report.bytes + recovered.slices_bytes,
            slices: recovered.slices,
            replay_bytes: recovered.report.bytes,
            copying: None,
            // A start may clean up after the last run; `clean` limits this to the live content.
            clean_budget: u64::MAX,
            statistics: Statistics::default(),
        };
        journal.adopt(survey, &chain);
        Ok((journal, recovered.report))
    }

    /// Sorts the files into segments in use, free ones, and ones to remove.
    fn adopt(&mut self, survey: Survey, chain: &[u32]) {
        let mut contents = self.shared.write();
        let abandoned: Vec<u32> = chain
            .iter()
            .filter_map(|generation| survey.headed.get(generation))
            .filter(|found| found.header.predecessor_abandoned)
            .map(|found| found.header.predecessor)
            .collect();
        let first = chain.first().copied().unwrap_or(0);
        for (generation, found) in survey.headed {
            if generation > first && chain.binary_search(&generation).is_err() {
                // A failed activation: the chain bypasses it.
                self.pool.discard(found.slot);
                continue;
            }
            contents.files.insert(generation, Arc::clone(&found.file));
            let segment = Segment {
                slot: found.slot,
                file: found.file,
                bytes: found.bytes,
                live: 0,
                pieces: 0,
                abandoned: abandoned.contains(&generation),
                cleaned: false,
            };
            self.segments.insert(generation, segment);
        }
        contents.table.for_each(|_, extent| {
            if let Some(segment) = self.segments.get_mut(&extent.generation) {
                segment.live += u64::from(extent.len);
                segment.pieces += u64::from(extent.len > 0);
            }
        });
        drop(contents);
        for found in survey.unheaded {
            if found.bytes == self.options.segment_bytes {
                self.pool.give(FreeSegment { slot: found.slot, file: found.file });
            } else {
                self.pool.discard(found.slot);
            }
        }
    }
}

/// Reads the log as a start does, without changing anything. `Err`: the start would be refused.
pub(crate) fn examine(disk: &dyn Disk) -> Result<(), JournalError> {
    RecoveredState::default().read_log(&survey(disk)?, &mut |_| Ok(())).map(drop)
}

/// The state built by replay.
#[derive(Default)]
struct RecoveredState {
    table: Table,
    head: Option<Head>,
    checkpoint: Option<Checkpoint>,
    checkpoint_number: u64,
    next_content: u64,
    /// Contents that the checkpoint names as slices, and their bytes.
    slices: BTreeSet<u64>,
    slices_bytes: u64,
    report: RecoveryReport,
}

impl RecoveredState {
    /// Replays everything. Returns the generations of the chain, oldest first.
    fn read_log(&mut self, survey: &Survey, replay: &mut Replay<'_>) -> Result<Vec<u32>, JournalError> {
        let head = survey.headed.last_key_value().map(|(_, found)| found);
        let head_generation = head.map_or(0, |head| head.header.generation);
        for found in &survey.unheaded {
            if found.claims.is_some_and(|generation| generation > head_generation) {
                let what = "its header is not valid, but a batch newer than all others follows it";
                return Err(JournalError::damaged(&segment_name(found.slot), 0, what));
            }
        }
        let Some(head) = head else { return Ok(Vec::new()) };
        let image = Image::read(head)?;
        let end = self.read_head(head, &image)?;
        let chain = walk_chain(survey, head, self.checkpoint)?;
        let mut replaying = ReplayProgress::new(survey, replay);
        self.walk(&chain, end, &image, &mut replaying)?;
        self.report.contents_incomplete = self.table.remove_incomplete();
        replaying.finish(&self.table, &MemoryLog { batch: (&[], 0, 0), head: (&image, head_generation) })?;
        self.report.records = replaying.records;
        self.slices = replaying.slices.iter().copied().collect();
        self.slices_bytes = replaying.slices_bytes;
        self.report.contents = self.table.len();
        self.report.segments = chain.len();
        self.report.last_seq = end.last_seq;
        self.report.last_time = end.last_time;
        let last_id = self.table.last_id().map_or(0, |id| id.saturating_add(1));
        self.next_content = self.next_content.max(last_id);
        self.head = Some(Head { generation: head_generation, offset: end.offset });
        Ok(chain.iter().map(|found| found.header.generation).collect())
    }

    /// Walks through every batch from the checkpoint's begin to the end; the head is read from memory.
    fn walk(
        &mut self,
        chain: &[&HeadedSegment],
        end: Walk,
        head: &Image,
        replaying: &mut ReplayProgress<'_, '_>,
    ) -> Result<(), JournalError> {
        let head_generation = chain.last().map_or(0, |head| head.header.generation);
        for (index, found) in chain.iter().enumerate() {
            let is_head = index + 1 == chain.len();
            let until = chain.get(index + 1).map_or(end.last_seq, |next| next.header.predecessor_last_seq);
            let begin = self.checkpoint.filter(|_| index == 0).map(|checkpoint| checkpoint.begin);
            let from = begin.map_or(first_batch(found), |begin| Walk {
                offset: begin.offset,
                last_seq: begin.seq.saturating_sub(1),
                last_time: found.header.time,
            });
            if from.last_seq > until
                || from.offset < BLOCK_BYTES as u64
                || !from.offset.is_multiple_of(BLOCK_BYTES as u64)
            {
                let what = format!("its first batch would be {}, but its last is {until}", from.last_seq + 1);
                return Err(JournalError::damaged(&found.name(), 0, what));
            }
            self.next_content = self.next_content.max(found.header.next_content);
            let (mut window, mut kept) = (Window::new(found), head);
            let bytes: &mut dyn Bytes = if is_head { &mut kept } else { &mut window };
            let done = walk_batches(found, bytes, from, WalkEnd::Seq(until), |header, offset, batch| {
                let batch = &batch[..header.bytes as usize];
                self.note_contents(found, header, offset, batch)?;
                let memory = MemoryLog { batch: (batch, header.generation, offset), head: (head, head_generation) };
                replaying.advance(&self.table, &memory)?;
                self.replay(Place::of(found, offset, header), header, &memory, replaying)
            })?;
            let used = if is_head { done.offset } else { found.bytes };
            self.report.bytes += used.saturating_sub(from.offset);
        }
        Ok(())
    }

    /// Finds the end of the log and the newest checkpoint, whose end is in the head, or which the head's header names.
    fn read_head(&mut self, head: &HeadedSegment, image: &Image) -> Result<Walk, JournalError> {
        let mut newest = head.header.checkpoint;
        let end = walk_batches(head, &mut &*image, first_batch(head), WalkEnd::Tail, |header, _, batch| {
            newest = newest_checkpoint(batch, header).or(newest);
            Ok(())
        })?;
        self.checkpoint = newest;
        self.checkpoint_number = newest.map_or(0, |checkpoint| checkpoint.number);
        let torn = BatchHeader::peek(image.get(end.offset));
        self.report.torn_bytes = torn
            .filter(|torn| torn.generation == head.header.generation && torn.seq == end.last_seq + 1)
            .map_or(0, |torn| torn.bytes.into());
        Ok(end)
    }

    /// Notes contents and marks of a batch.
    fn note_contents(
        &mut self,
        found: &HeadedSegment,
        header: &BatchHeader,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let damaged = |what: &str| JournalError::damaged(&found.name(), offset, what);
        self.report.batches += 1;
        for record in Records::of(bytes, header) {
            let record = record.map_err(damaged)?;
            match record.kind {
                kind::PIECE | kind::LAST_PIECE | kind::MOVED_PIECE => {
                    let piece =
                        decode_piece(record.payload).filter(|(_, start, len)| start.checked_add(*len as u64).is_some());
                    let (id, start, len) = piece.ok_or_else(|| damaged("malformed piece of content"))?;
                    let place = offset as u32 + (record.at + PIECE_HEADER_BYTES) as u32;
                    let extent = Extent { generation: header.generation, offset: place, len: len as u32 };
                    self.table.merge(id, &[(start, extent)], record.kind == kind::LAST_PIECE);
                    self.next_content = self.next_content.max(id.saturating_add(1));
                }
                kind::CONTENT_SLICE => {
                    self.table.merge_slice(record.payload).ok_or_else(|| damaged("malformed slice of contents"))?;
                }
                kind::CHECKPOINT_BEGIN => {
                    let (number, next) =
                        decode_checkpoint_begin(record.payload).ok_or_else(|| damaged("malformed checkpoint begin"))?;
                    self.next_content = self.next_content.max(next);
                    self.checkpoint_number = self.checkpoint_number.saturating_add(1).max(number);
                }
                kind::CHECKPOINT_END => {
                    let (_, next) =
                        decode_checkpoint_end(record.payload).ok_or_else(|| damaged("malformed checkpoint end"))?;
                    self.next_content = self.next_content.max(next);
                }
                kind::OWNER | kind::SLICE | kind::VOID => {}
                _ => return Err(damaged("a record of unknown kind")),
            }
        }
        Ok(())
    }

    /// Replays the owner's records of a batch, and the slices that the checkpoint names.
    fn replay(
        &self,
        place: Place,
        header: &BatchHeader,
        memory: &MemoryLog<'_>,
        replaying: &mut ReplayProgress<'_, '_>,
    ) -> Result<(), JournalError> {
        let damaged = |what: &str| JournalError::damaged(&segment_name(place.slot), place.offset, what);
        let number = self.checkpoint.map(|checkpoint| checkpoint.number);
        for record in Records::of(memory.batch.0, header) {
            let record = record.map_err(damaged)?;
            match record.kind {
                kind::OWNER => replaying.record(place, record.payload)?,
                kind::SLICE => {
                    let (of, slice) = decode_slice(record.payload).ok_or_else(|| damaged("malformed slice name"))?;
                    // Slices of other checkpoints contain nothing new, and may be gone.
                    if Some(of) == number {
                        replaying.slice(place, slice, &self.table, memory)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The checkpoint whose end is in this batch; the last one if there are several.
pub(crate) fn newest_checkpoint(batch: &[u8], header: &BatchHeader) -> Option<Checkpoint> {
    let ends = Records::of(batch, header).flatten().filter(|record| record.kind == kind::CHECKPOINT_END);
    ends.filter_map(|record| decode_checkpoint_end(record.payload)).last().map(|(checkpoint, _)| checkpoint)
}

fn first_batch(found: &HeadedSegment) -> Walk {
    Walk { offset: BLOCK_BYTES as u64, last_seq: found.header.predecessor_last_seq, last_time: found.header.time }
}

/// Follows the predecessors from the head to the checkpoint's begin (or to the very first segment). Returns them oldest
/// first.
fn walk_chain<'a>(
    survey: &'a Survey,
    head: &'a HeadedSegment,
    checkpoint: Option<Checkpoint>,
) -> Result<Vec<&'a HeadedSegment>, JournalError> {
    let start = checkpoint.map_or(0, |checkpoint| checkpoint.begin.generation);
    let mut chain = vec![head];
    let mut current = head;
    while current.header.generation != start && (start, current.header.predecessor) != (0, 0) {
        let wanted = current.header.predecessor;
        let previous = survey.headed.get(&wanted).filter(|_| wanted >= start);
        let Some(previous) = previous else {
            let suspect = survey.unheaded.iter().find(|found| found.claims == Some(wanted));
            if let Some(found) = suspect {
                let what = "the header of a segment in use is not valid";
                return Err(JournalError::damaged(&segment_name(found.slot), 0, what));
            }
            let what = format!("the segment before it, of generation {wanted}, is missing (wanted back to {start})");
            return Err(JournalError::damaged(&current.name(), 0, what));
        };
        chain.push(previous);
        current = previous;
    }
    chain.reverse();
    Ok(chain)
}
