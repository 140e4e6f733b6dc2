//! A log in memory, for tests of owners that need no disk: nothing survives the process, but what was committed can be
//! replayed, content can be read, and commits can be made to fail.
//!
//! Promise: the owner sees what it sees of a [`Journal`](crate::Journal): records in order, content by its number,
//! dropped content gone, a failed batch unchanged and without effect. It needs no checkpoints and no cleaning, so
//! neither is ever due, and it keeps all records.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::Ms;
use crate::batch::Batch;
use crate::checkpoint::CheckpointStep;
use crate::error::{CommitError, JournalError};
use crate::format::{PIECE_HEADER_BYTES, Slice, decode_piece, kind};
use crate::journal::{Receipt, Space, Statistics};
use crate::log::Log;
use crate::reader::{ContentReader, ContentSource};
use crate::replay::{Record, Replay};

/// A content and whether its last piece is there.
#[derive(Default)]
struct Content {
    octets: Vec<u8>,
    is_complete: bool,
}

type Contents = RwLock<HashMap<u64, Content>>;

/// A committed record of the owner.
struct StoredRecord {
    payload: Vec<u8>,
    seq: u64,
    time: Ms,
}

/// A log in memory; see the module documentation.
pub struct VolatileLog {
    batch_bytes_max: usize,
    records: Vec<StoredRecord>,
    contents: Arc<Contents>,
    next_content: u64,
    failures: VecDeque<CommitError>,
    statistics: Statistics,
}

impl VolatileLog {
    pub fn new(batch_bytes_max: usize) -> VolatileLog {
        VolatileLog {
            batch_bytes_max,
            records: Vec::new(),
            contents: Arc::default(),
            next_content: 1,
            failures: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// Makes a later commit fail: the next one, or the one after those that fail already.
    pub fn fail(&mut self, error: CommitError) {
        self.failures.push_back(error);
    }

    /// Passes on all records, as [`Journal::open`](crate::Journal::open) does.
    ///
    /// # Errors
    /// The owner refuses a record.
    pub fn replay(&self, owner: &mut Replay<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        for StoredRecord { payload, seq, time } in &self.records {
            owner(Record { payload, batch_seq: *seq, time: *time, slice: None })?;
        }
        Ok(())
    }

    /// Applies a batch that is not empty. Returns its size.
    fn apply(&mut self, batch: &Batch, contents: &mut HashMap<u64, Content>, now: Ms) -> Result<u64, CommitError> {
        self.check(batch, contents)?;
        let (seq, bytes) = (self.statistics.batches + 1, batch.bytes() as u64);
        for record in batch.raw_records() {
            match (record.kind, decode_piece(record.payload)) {
                (kind::OWNER, _) => {
                    self.records.push(StoredRecord { payload: record.payload.to_vec(), seq, time: now });
                }
                (kind::PIECE | kind::LAST_PIECE, Some((id, ..))) => {
                    let content = contents.entry(id).or_default();
                    content.octets.extend_from_slice(&record.payload[PIECE_HEADER_BYTES..]);
                    content.is_complete = record.kind == kind::LAST_PIECE;
                }
                _ => {}
            }
        }
        self.statistics.batches = seq;
        self.statistics.records += u64::from(batch.records());
        self.statistics.bytes_written += bytes;
        Ok(bytes)
    }

    fn check(&mut self, batch: &Batch, contents: &HashMap<u64, Content>) -> Result<(), CommitError> {
        if let Some(error) = self.failures.pop_front() {
            return Err(error);
        }
        let (bytes, bytes_max) = (batch.bytes(), self.batch_bytes_max);
        if batch.is_oversized() || bytes > bytes_max {
            return Err(CommitError::TooLarge { bytes, bytes_max });
        }
        let is_complete = |id: &u64| contents.get(id).is_some_and(|content| content.is_complete);
        let again = batch.pieces.iter().map(|piece| piece.id).find(is_complete);
        again.map_or(Ok(()), |id| Err(CommitError::ContentComplete(id)))
    }
}

impl Log for VolatileLog {
    fn commit(&mut self, batch: &mut Batch, now: Ms) -> Result<Receipt, CommitError> {
        let contents = Arc::clone(&self.contents);
        let mut contents = contents.write();
        let bytes = if batch.is_empty() { 0 } else { self.apply(batch, &mut contents, now)? };
        for id in &batch.drops {
            contents.remove(id);
        }
        batch.clear();
        Ok(Receipt { seq: self.statistics.batches, bytes })
    }

    fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    fn next_content_id(&mut self) -> u64 {
        let id = self.next_content;
        self.next_content += 1;
        id
    }

    fn drop_content(&mut self, id: u64) {
        self.contents.write().remove(&id);
    }

    fn retain_contents(&mut self, keep: &mut dyn FnMut(u64) -> bool) -> Result<(), JournalError> {
        self.contents.write().retain(|id, _| keep(*id));
        Ok(())
    }

    fn reader(&self) -> ContentReader {
        ContentReader::of(self.contents.clone())
    }

    fn checkpoint_due(&self) -> bool {
        false
    }

    fn checkpoint_running(&self) -> bool {
        false
    }

    fn begin_checkpoint(&mut self, _: &mut Batch) {}

    fn slice_bytes_max(&self) -> usize {
        0
    }

    fn checkpoint_slice(&mut self, _: &mut Batch) -> CheckpointStep {
        CheckpointStep::Aborted
    }

    fn record_slice(&mut self, _: &mut Batch, _: &[u8]) {}

    fn write_slice(&mut self, _: &mut Batch, _: u64, _: &[u8]) -> Option<Slice> {
        None
    }

    fn keep_slice(&mut self, _: &mut Batch, _: Slice) -> bool {
        false
    }

    fn end_checkpoint(&mut self, _: &mut Batch) -> CheckpointStep {
        CheckpointStep::Aborted
    }

    fn abort_checkpoint(&mut self) {}

    fn clean_due(&self) -> bool {
        false
    }

    fn clean(&mut self, _: &mut Batch, _: usize) -> usize {
        0
    }

    fn is_low(&self) -> bool {
        false
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn space(&self) -> Space {
        let contents = self.contents.read();
        let live_content_bytes = contents.values().map(|content| content.octets.len() as u64).sum();
        Space { live_content_bytes, contents: contents.len(), ..Space::default() }
    }
}

impl ContentSource for Contents {
    fn len(&self, id: u64) -> Option<u64> {
        self.read().get(&id).filter(|content| content.is_complete).map(|content| content.octets.len() as u64)
    }

    fn read(&self, id: u64, is_begun: bool, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let contents = RwLock::read(self);
        let content = contents.get(&id).filter(|content| is_begun || content.is_complete);
        let octets = &content.ok_or(io::ErrorKind::NotFound)?.octets;
        let rest = octets.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Journal, Options, SimDisk};

    fn read(reader: &ContentReader, id: u64) -> Option<Vec<u8>> {
        let mut octets = vec![0; reader.len(id)? as usize];
        (reader.read_at(id, 0, &mut octets).ok()? == octets.len()).then_some(octets)
    }

    /// The same use of both logs shows the owner the same.
    #[test]
    fn it_shows_its_owner_what_a_journal_shows() {
        fn used(log: &mut impl Log) -> Vec<Option<Vec<u8>>> {
            let (mut batch, ids) = (Batch::new(), [log.next_content_id(), log.next_content_id()]);
            batch.content(ids[0], false, b"first ");
            log.commit(&mut batch, 1).unwrap();
            assert_eq!(log.reader().len(ids[0]), None, "it is not complete");
            batch.content(ids[0], true, b"and last");
            batch.record(b"refers to it");
            batch.content(ids[1], true, b"other");
            log.commit(&mut batch, 2).unwrap();
            batch.content(ids[1], true, b"again");
            assert!(matches!(log.commit(&mut batch, 3), Err(CommitError::ContentComplete(_))));
            batch.clear();
            let before = ids.map(|id| read(&log.reader(), id));
            batch.record(b"ends it");
            batch.drop_content(ids[0]);
            log.commit(&mut batch, 4).unwrap();
            before.into_iter().chain(ids.map(|id| read(&log.reader(), id))).collect()
        }
        let mut volatile = VolatileLog::new(1 << 20);
        let (mut journal, _) = Journal::open(Arc::new(SimDisk::new(1)), Options::default(), &mut |_| Ok(())).unwrap();
        let shown = used(&mut volatile);
        assert_eq!(shown, used(&mut journal));
        assert_eq!(shown[0].as_deref(), Some(&b"first and last"[..]));
        let mut payloads = Vec::new();
        let hear = &mut |record: Record<'_>| {
            payloads.push(record.payload.to_vec());
            Ok(())
        };
        volatile.replay(hear).unwrap();
        assert_eq!(payloads, [&b"refers to it"[..], b"ends it"]);
    }

    #[test]
    fn a_failed_commit_has_no_effect() {
        let (mut log, mut batch) = (VolatileLog::new(1 << 20), Batch::new());
        log.fail(CommitError::Full(io::ErrorKind::StorageFull.into()));
        batch.record(b"a record");
        assert!(log.commit(&mut batch, 1).is_err_and(|error| error.is_full()));
        assert!(!batch.is_empty() && log.records.is_empty());
        log.commit(&mut batch, 2).unwrap();
        assert!(batch.is_empty() && log.records.len() == 1);
        batch.record(&vec![0; 2 << 20]);
        assert!(matches!(log.commit(&mut batch, 3), Err(CommitError::TooLarge { .. })));
    }
}
