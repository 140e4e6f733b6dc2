//! Checkpoints: begin, slices, end, spread over ordinary batches while events continue.
//!
//! States: none; begun (marker in a batch that is not durable yet); building (marker durable: only now are slices
//! encoded); ended (the end's batch is durable: replay starts at the begin, older segments are freed). A failed commit
//! abandons the checkpoint; an end counts only if every slice handed out is durable (docs/design/journal-recovery.md,
//! Checkpoint).
//!
//! The owner's larger slices are contents: a checkpoint names those unchanged since they were written and writes the
//! others. Slices that the durable checkpoint names are kept until the next one is durable; slices that only an
//! abandoned checkpoint names are dropped with it.

use std::collections::BTreeSet;

use crate::batch::Batch;
use crate::building::Building;
use crate::format::{
    Checkpoint, Position, RECORD_HEADER_BYTES, SLICE_BYTES_MAX, SLICE_NAME_BYTES, Slice, encode_checkpoint_begin,
    encode_checkpoint_end, encode_slice, kind,
};
use crate::journal::Journal;

/// A checkpoint is not due until the log exceeds this part of the live content.
const LIVE_PART: u64 = 8;
/// Upper limit for that part: a longer log would take too long to replay.
const LIVE_PART_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The log after the last checkpoint's end must exceed one part in 8 of the log from its beginning to its end;
/// otherwise a checkpoint's own writes would trigger the next one.
const GAP_PART: u64 = 8;

/// A batch has room for at least this many slices.
const SLICE_PART: usize = 4;
/// How far a slice may exceed its size: by the extents of the content that filled it.
const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the record of a begin or an end, and of the word of a slice.
const MARKS_BYTES: usize = 64;

/// Progress of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointStep {
    /// Call again with the next batch.
    More,
    /// All slices (and, from [`Journal::end_checkpoint`], the end) are in batches; it is durable once this batch is
    /// committed.
    Done,
    /// No checkpoint is running: a commit failed since it began. Begin again when one is due.
    Aborted,
}

impl Journal {
    /// True when a checkpoint should begin. That is when the log since the last one's begin exceeds
    /// `checkpoint_bytes_min`, twice the bytes that the last one wrote, and an eighth of the live content (at most
    /// [`LIVE_PART_BYTES_MAX`]). This bounds the cost of a checkpoint by the bytes written, and the log by the bytes
    /// kept. It is also due if space is low and there is a segment to gain. It is never due before the log after the
    /// last one's end exceeds an eighth of the log from its begin to its end, nor while one is running.
    pub fn checkpoint_due(&self) -> bool {
        // A checkpoint's own writes must not trigger the next one, or they would never end.
        let since = self.replay_bytes.saturating_sub(self.checkpoint_log_bytes);
        if self.building.is_some() || since * GAP_PART <= self.checkpoint_log_bytes {
            return false;
        }
        // A checkpoint that begins in the head frees the segment before it.
        if self.chain_start() < self.tail && self.is_pressed() {
            return true;
        }
        let last = self.checkpoint_bytes;
        let over = |bytes_min: u64| self.replay_bytes > bytes_min.max(2 * last);
        if !over(self.options.checkpoint_bytes().min(2 * self.options.segment_bytes)) {
            return false;
        }
        let part = (self.live() / LIVE_PART).min(LIVE_PART_BYTES_MAX);
        over(self.options.checkpoint_bytes().max(part)) || (over(2 * self.options.segment_bytes) && self.is_low())
    }

    /// True from [`Journal::begin_checkpoint`] until the end is durable or the checkpoint is abandoned.
    pub fn checkpoint_running(&self) -> bool {
        self.building.is_some()
    }

    /// Puts the begin marker into `batch`; does nothing if a checkpoint is running. After a crash everything in the
    /// batch with the marker is replayed, including what precedes the marker. The owner's slices may go into the same
    /// batch or later ones, and must show the owner's state when they are encoded; every event that they do not show
    /// must be in this batch or a later one.
    pub fn begin_checkpoint(&mut self, batch: &mut Batch) {
        if self.building.is_some() {
            return;
        }
        self.checkpoint_number += 1;
        let number = self.checkpoint_number;
        let end = self.next_content;
        batch.append(kind::CHECKPOINT_BEGIN, |buffer| {
            buffer.extend_from_slice(&encode_checkpoint_begin(number, end));
        });
        batch.belong_to(number).begin = true;
        self.building = Some(Building {
            number,
            begin: None,
            cursor: Some(0),
            end,
            slices_issued: 0,
            slices_durable: 0,
            slices_bytes: 0,
            written_bytes: 0,
            named: BTreeSet::new(),
            bytes: 0,
        });
    }

    /// Largest number of bytes that [`Journal::checkpoint_slice`] and [`Journal::end_checkpoint`] add to a batch.
    pub fn slice_bytes_max(&self) -> usize {
        self.slice_bytes() + ENTRY_BYTES_MAX.min(self.slice_bytes()) + MARKS_BYTES
    }

    /// Size at which a slice of the content table takes no further content.
    fn slice_bytes(&self) -> usize {
        SLICE_BYTES_MAX.min(self.options.batch_limit() / SLICE_PART)
    }

    /// Puts the next slice of the content table into `batch`: at most 256 KiB, and none before the begin marker is
    /// durable. Call it once per batch, along with the owner's slices.
    pub fn checkpoint_slice(&mut self, batch: &mut Batch) -> CheckpointStep {
        let bytes_max = self.slice_bytes();
        let Some(building) = &mut self.building else { return CheckpointStep::Aborted };
        let (Some(_), Some(cursor)) = (building.begin, building.cursor) else {
            return if building.begin.is_some() { CheckpointStep::Done } else { CheckpointStep::More };
        };
        let contents = self.shared.read();
        let before = batch.bytes();
        batch.append(kind::CONTENT_SLICE, |buffer| {
            building.cursor = contents.table.encode_slice(cursor, building.end, bytes_max, buffer);
        });
        building.slices_bytes += (batch.bytes() - before) as u64;
        building.written_bytes += (batch.bytes() - before) as u64;
        batch.belong_to(building.number).slices += 1;
        building.slices_issued += 1;
        if building.cursor.is_some() { CheckpointStep::More } else { CheckpointStep::Done }
    }

    /// Puts the journal's remaining slices, one per call, and then the end into `batch`. `More`: commit and call again
    /// with the next batch. All slices of the owner must be in this batch or in committed ones.
    pub fn end_checkpoint(&mut self, batch: &mut Batch) -> CheckpointStep {
        match self.checkpoint_slice(batch) {
            CheckpointStep::Done => {}
            other => return other,
        }
        let Some(&Building { number, begin: Some(begin), .. }) = self.building.as_ref() else {
            return CheckpointStep::Aborted;
        };
        let payload = encode_checkpoint_end(&Checkpoint { number, begin }, self.next_content);
        let word = batch.append(kind::CHECKPOINT_END, |buffer| buffer.extend_from_slice(&payload));
        batch.belong_to(number).end = Some(word);
        CheckpointStep::Done
    }

    /// Writes a slice of the owner as an ordinary record, and counts it, so that the journal knows how much space the
    /// next checkpoint will need.
    pub fn record_slice(&mut self, batch: &mut Batch, record: &[u8]) {
        if let Some(building) = &mut self.building {
            building.slices_bytes += record.len() as u64;
            building.written_bytes += record.len() as u64;
        }
        let before = batch.bytes();
        batch.record(record);
        batch.upkeep_bytes += batch.bytes() - before;
    }

    /// Writes a slice of the owner as content `id`, which no other content has, and names it. Replay passes its bytes
    /// to the owner where it is named, as if they were a record. `None`, with nothing written, if no checkpoint is
    /// running.
    pub fn write_slice(&mut self, batch: &mut Batch, id: u64, bytes: &[u8]) -> Option<Slice> {
        let building = self.building.as_mut()?;
        building.written_bytes += bytes.len() as u64;
        let number = building.number;
        let (mut rest, before) = (bytes, batch.bytes());
        while rest.len() > SLICE_BYTES_MAX {
            let (piece, behind) = rest.split_at(SLICE_BYTES_MAX);
            batch.content(id, false, piece);
            rest = behind;
        }
        batch.content(id, true, rest);
        batch.upkeep_bytes += batch.bytes() - before;
        batch.slices.push((number, id));
        self.statistics.slices_written += 1;
        let slice = Slice::of(id, bytes);
        self.name_slice(batch, slice, bytes.len() as u64);
        Some(slice)
    }

    /// Names a slice that an earlier checkpoint wrote. Returns `false` if it no longer exists and must be written
    /// again.
    pub fn keep_slice(&mut self, batch: &mut Batch, slice: Slice) -> bool {
        if self.building.is_none() {
            return false;
        }
        let progress = self.shared.read().table.progress(slice.content);
        let Some(progress) = progress.filter(|progress| progress.complete) else { return false };
        self.statistics.slices_kept += 1;
        self.name_slice(batch, slice, progress.len);
        true
    }

    fn name_slice(&mut self, batch: &mut Batch, slice: Slice, bytes: u64) {
        let Some(building) = &mut self.building else { return };
        let number = building.number;
        batch.append(kind::SLICE, |buffer| buffer.extend_from_slice(&encode_slice(number, slice)));
        batch.belong_to(number).slices += 1;
        building.slices_issued += 1;
        building.slices_bytes += bytes;
        building.written_bytes += RECORD_HEADER_BYTES as u64 + SLICE_NAME_BYTES as u64;
        building.named.insert(slice.content);
    }

    /// Abandons a running checkpoint; the part already written is harmless. Call it if a batch with slices of the owner
    /// is cleared instead of committed.
    pub fn abort_checkpoint(&mut self) {
        if let Some(building) = self.building.take() {
            let unneeded: Vec<u64> = building.named.difference(&self.slices).copied().collect();
            self.remove_contents(&unneeded);
        }
    }

    /// Drops a durable batch's slices of an abandoned checkpoint.
    pub(crate) fn drop_stale_slices(&mut self, batch: &Batch) {
        let current = self.building.as_ref().map(|building| building.number);
        let stale: Vec<u64> =
            batch.slices.iter().filter(|(number, _)| Some(*number) != current).map(|(_, id)| *id).collect();
        self.remove_contents(&stale);
    }

    /// Turns an end that does not count into a void record, before a batch is written.
    pub(crate) fn settle_end_mark(&mut self, batch: &mut Batch) {
        let Some(word) = batch.marks.end else { return };
        let marks = batch.marks;
        let complete = self.building.as_ref().is_some_and(|building| {
            building.number == marks.number && building.slices_durable + marks.slices == building.slices_issued
        });
        if !complete {
            batch.make_void(word);
            batch.marks.end = None;
            self.abort_checkpoint();
        }
    }

    /// Applies the marks of a batch that became durable at `position`.
    pub(crate) fn settle_checkpoint(&mut self, batch: &Batch, position: Position) {
        let Some(building) = self.building.as_mut().filter(|building| building.number == batch.marks.number) else {
            return;
        };
        if batch.marks.begin {
            building.begin = Some(position);
        }
        building.slices_durable += batch.marks.slices;
        if batch.marks.end.is_none() {
            return;
        }
        let Some(begin) = building.begin else { return };
        let Some(building) = self.building.take() else { return };
        self.checkpoint = Some(Checkpoint { number: building.number, begin });
        self.checkpoint_bytes = building.written_bytes;
        self.state_bytes = building.slices_bytes;
        self.replay_bytes = building.bytes;
        self.checkpoint_log_bytes = building.bytes;
        self.statistics.checkpoints += 1;
        for segment in self.segments.values_mut() {
            segment.cleaned = false;
        }
        // Only now are they not needed by a start any more.
        let before = std::mem::replace(&mut self.slices, building.named);
        let unneeded: Vec<u64> = before.difference(&self.slices).copied().collect();
        self.remove_contents(&unneeded);
        self.recycle();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::error::JournalError;
    use crate::journal::Options;
    use crate::pool::segment_name;

    fn open(disk: &SimDisk, seen: &mut Vec<Vec<u8>>) -> Result<Journal, JournalError> {
        let options = Options { segment_bytes: 16 * 4096, seed: 7, ..Options::default() };
        let replay = Journal::open(Arc::new(disk.clone()), options, &mut |record| {
            assert!(record.slice.is_none_or(|slice| slice.is_of(record.payload)));
            seen.push(record.payload.to_vec());
            Ok(())
        });
        replay.map(|(journal, _)| journal)
    }

    /// Writes a whole checkpoint with the slices that `name` puts into it.
    fn checkpoint(journal: &mut Journal, batch: &mut Batch, name: impl FnOnce(&mut Journal, &mut Batch)) {
        journal.begin_checkpoint(batch);
        name(journal, batch);
        journal.commit(batch, 1).unwrap();
        while journal.end_checkpoint(batch) == CheckpointStep::More {
            journal.commit(batch, 1).unwrap();
        }
        journal.commit(batch, 1).unwrap();
    }

    fn refusal(disk: &SimDisk) -> String {
        open(disk, &mut Vec::new()).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_kept_slice_is_replayed_where_it_is_named() {
        let (disk, mut seen, mut batch) = (SimDisk::new(1), Vec::new(), Batch::new());
        let mut journal = open(&disk, &mut seen).unwrap();
        let mut slice = None;
        checkpoint(&mut journal, &mut batch, |journal, batch| slice = journal.write_slice(batch, 50, b"state"));
        let slice = slice.unwrap();
        checkpoint(&mut journal, &mut batch, |journal, batch| {
            batch.record(b"before");
            assert!(journal.keep_slice(batch, slice));
            batch.record(b"behind");
        });
        drop(journal);
        let mut journal = open(&disk.crash(), &mut seen).unwrap();
        assert_eq!(seen, [&b"before"[..], b"state", b"behind"]);
        journal.retain_contents(&mut |_| false).unwrap();
        assert_eq!(journal.reader().len(50), Some(5), "the owner need not know of it");
        checkpoint(&mut journal, &mut batch, |_, _| ());
        assert_eq!(journal.reader().len(50), None, "nobody names it any more");
        assert!(!journal.keep_slice(&mut batch, slice), "no checkpoint is running");
        journal.begin_checkpoint(&mut batch);
        assert!(!journal.keep_slice(&mut batch, slice), "it is gone");
    }

    /// The reason for the order: a name that is durable before its slice prevents a start.
    #[test]
    fn a_slice_that_is_named_before_it_is_there_is_found() {
        let (disk, mut batch) = (SimDisk::new(2), Batch::new());
        let mut journal = open(&disk, &mut Vec::new()).unwrap();
        checkpoint(&mut journal, &mut batch, |journal, batch| journal.name_slice(batch, Slice::of(50, b"state"), 5));
        drop(journal);
        assert!(refusal(&disk.crash()).contains("content 50 as a slice, which is missing"), "{}", refusal(&disk));
    }

    #[test]
    fn a_slice_that_rots_refuses_the_start() {
        let (disk, mut batch) = (SimDisk::new(3), Batch::new());
        let mut journal = open(&disk, &mut Vec::new()).unwrap();
        let mut slice = None;
        checkpoint(&mut journal, &mut batch, |journal, batch| slice = journal.write_slice(batch, 50, b"the state"));
        for _ in 0..2 {
            // The log that a start reads is checked batch by batch; the slice lies before it.
            for _ in 0..20 {
                batch.record(&[0; 4000]);
                journal.commit(&mut batch, 1).unwrap();
            }
            checkpoint(&mut journal, &mut batch, |journal, batch| assert!(journal.keep_slice(batch, slice.unwrap())));
        }
        drop(journal);
        let disk = disk.crash();
        let name = segment_name(0);
        let mut bytes = disk.contents(&name).unwrap();
        let at = bytes.windows(9).position(|window| window == b"the state").unwrap();
        bytes[at] ^= 1;
        disk.put(&name, &bytes);
        assert!(refusal(&disk).contains("which does not match its checksum"), "{}", refusal(&disk));
    }

    #[test]
    fn what_only_a_checkpoint_that_was_given_up_names_is_dropped() {
        let (disk, mut batch) = (SimDisk::new(4), Batch::new());
        let mut journal = open(&disk, &mut Vec::new()).unwrap();
        let mut slice = None;
        checkpoint(&mut journal, &mut batch, |journal, batch| slice = journal.write_slice(batch, 50, b"state"));
        journal.begin_checkpoint(&mut batch);
        assert!(journal.keep_slice(&mut batch, slice.unwrap()));
        journal.write_slice(&mut batch, 51, b"more").unwrap();
        journal.commit(&mut batch, 1).unwrap();
        journal.write_slice(&mut batch, 52, b"in a batch that comes later").unwrap();
        journal.abort_checkpoint();
        journal.commit(&mut batch, 1).unwrap();
        assert_eq!([50, 51, 52].map(|id| journal.reader().len(id)), [Some(5), None, None]);
    }
}
