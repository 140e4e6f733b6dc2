//! Our own journal, used as the server uses it: each insert is a content and a record that refers to it, one commit per
//! transaction; a delete is a record and the content's drop.
//!
//! It also does the server's other work, since that costs: the state (which keys live) is written as slices of a
//! checkpoint when one is due, content is moved out of segments that are mostly dead, and a separate thread prepares
//! segments. A look-up reads the content from its file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stentor_journal::{BLOCK_BYTES, Batch, CheckpointStep, ContentReader, Journal, Options, Preparer, RealDisk};

use super::{Broken, Contents, Engine, Expected};

const MIB: usize = 1 << 20;
/// Heads of a piece and of the record that refers to it, with room to spare.
const RECORD_OVERHEAD_BYTES: usize = 256;
/// Keys in a slice of a checkpoint: 16 octets each, one slice a batch.
const SLICE_KEYS: usize = 4096;
/// Content that cleaning copies with a batch.
const CLEAN_BYTES_MAX: usize = 256 * 1024;
const PREPARE_EVERY: Duration = Duration::from_millis(2);
/// The store's first record, an insert, a delete, a slice.
const OPENED: u8 = 0;
const INSERTED: u8 = 1;
const DELETED: u8 = 2;
const SLICE: u8 = 3;

struct Store {
    journal: Journal,
    reader: ContentReader,
    batch: Batch,
    /// Content ids by key.
    live: BTreeMap<u64, u64>,
    /// Of a running checkpoint: the next key that a slice must show; none when all are written.
    cursor: Option<u64>,
    preparing: Arc<AtomicBool>,
    preparer: Option<JoinHandle<()>>,
}

pub fn open(folder: &Path, expected: &Expected) -> Result<Box<dyn Engine>, Broken> {
    let disk = RealDisk::open(folder).map_err(Broken::of)?;
    let transaction = expected.per_transaction * (expected.record_bytes + RECORD_OVERHEAD_BYTES) + MIB;
    let defaults = Options::default();
    let batch_bytes_max = defaults.batch_bytes_max.max(transaction);
    let segment_bytes = defaults.segment_bytes.max((2 * batch_bytes_max).next_multiple_of(BLOCK_BYTES) as u64);
    let options = Options { batch_bytes_max, segment_bytes, seed: u64::from(std::process::id()), ..defaults };
    let (mut journal, _) = Journal::open(Arc::new(disk), options, &mut |_| Ok(())).map_err(Broken::of)?;
    let preparer = journal.preparer();
    while preparer.prepare().map_err(Broken::of)? {}
    // The first segment is in use and others are ready before the first mail comes: as other engines have made their
    // tables.
    let mut batch = Batch::new();
    batch.record(&[OPENED]);
    journal.commit(&mut batch, 0).map_err(Broken::of)?;
    while preparer.prepare().map_err(Broken::of)? {}
    let preparing = Arc::new(AtomicBool::new(true));
    let thread = std::thread::spawn({
        let preparing = Arc::clone(&preparing);
        move || prepare(&preparer, &preparing)
    });
    Ok(Box::new(Store {
        reader: journal.reader(),
        journal,
        batch,
        live: BTreeMap::new(),
        cursor: None,
        preparing,
        preparer: Some(thread),
    }))
}

fn prepare(preparer: &Preparer, preparing: &AtomicBool) {
    while preparing.load(Ordering::Relaxed) {
        // Who cannot make one leaves it to the commit, which says why.
        if !preparer.prepare().unwrap_or(false) {
            std::thread::sleep(PREPARE_EVERY);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.preparing.store(false, Ordering::Relaxed);
        if let Some(thread) = self.preparer.take() {
            let _ = thread.join();
        }
    }
}

impl Store {
    fn commit(&mut self) -> Result<(), Broken> {
        self.checkpoint();
        if self.journal.clean_due() {
            self.journal.clean(&mut self.batch, CLEAN_BYTES_MAX);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.journal.commit(&mut self.batch, now as u64).map(|_| ()).map_err(Broken::of)
    }

    /// The part of a checkpoint that rides with this batch, if one is due or running.
    fn checkpoint(&mut self) {
        if self.journal.checkpoint_due() {
            self.journal.begin_checkpoint(&mut self.batch);
            self.cursor = Some(0);
        } else if !self.journal.checkpoint_running() {
            return;
        }
        let Some(cursor) = self.cursor else {
            if self.journal.end_checkpoint(&mut self.batch) == CheckpointStep::Aborted {
                self.journal.abort_checkpoint();
            }
            return;
        };
        let mut slice = vec![SLICE];
        let mut keys = self.live.range(cursor..);
        for (key, content) in keys.by_ref().take(SLICE_KEYS) {
            slice.extend_from_slice(&key.to_le_bytes());
            slice.extend_from_slice(&content.to_le_bytes());
        }
        self.cursor = keys.next().map(|(key, _)| *key);
        self.journal.record_slice(&mut self.batch, &slice);
        let _ = self.journal.checkpoint_slice(&mut self.batch);
    }
}

impl Engine for Store {
    fn insert(&mut self, keys: Range<u64>, contents: &mut Contents) -> Result<(), Broken> {
        for key in keys {
            let content = self.journal.next_content_id();
            self.batch.content(content, true, contents.of(key));
            self.batch.record_with(|record| {
                record.push(INSERTED);
                record.extend_from_slice(&key.to_le_bytes());
                record.extend_from_slice(&content.to_le_bytes());
            });
            self.live.insert(key, content);
        }
        self.commit()
    }

    fn look_up(&mut self, key: u64, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let Some(content) = self.live.get(&key) else { return Ok(false) };
        let Some(bytes) = self.reader.len(*content) else { return Ok(false) };
        into.resize(bytes as usize, 0);
        let read = self.reader.read_at(*content, 0, into).map_err(Broken::of)?;
        into.truncate(read);
        Ok(true)
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Broken> {
        for key in keys {
            let Some(content) = self.live.remove(key) else { continue };
            self.batch.record_with(|record| {
                record.push(DELETED);
                record.extend_from_slice(&key.to_le_bytes());
            });
            self.batch.drop_content(content);
        }
        self.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for checkpoints, recycled segments and cleaning: what stays must be found all the same.
    #[test]
    fn a_full_life_with_checkpoints_keeps_what_lives() {
        let home = tempfile::tempdir().unwrap();
        let expected = Expected {
            record_bytes: 64 * 1024,
            per_transaction: 16,
            #[cfg(feature = "lmdb")]
            records_max: 4000,
        };
        let mut store = open(home.path(), &expected).unwrap();
        let mut contents = Contents::new(expected.record_bytes);
        for round in 0..80_u64 {
            let first = 1 + round * 16;
            store.insert(first..first + 16, &mut contents).unwrap();
            // All but one of each transaction goes.
            let gone: Vec<u64> = (first..first + 15).collect();
            store.delete(&gone).unwrap();
        }
        let mut found = Vec::new();
        for round in 0..80_u64 {
            let last = 16 + round * 16;
            assert!(store.look_up(last, &mut found).unwrap() && found == contents.of(last), "{last}");
            assert!(!store.look_up(last - 1, &mut found).unwrap());
        }
        drop(store);
        // 80 MiB went through it; 5 MiB live.
        let bytes: u64 = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes < 70 << 20, "{bytes}");
    }
}
