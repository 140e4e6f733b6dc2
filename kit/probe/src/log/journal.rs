//! Stentor's own journal as a log: the cost of its batches, checksums, segments and checkpoints over bare writes.
//!
//! It is driven as by the server: one owner, one batch per commit, another thread that prepares segments, and
//! checkpoints when they are due (small, since there is nothing to keep), so that segments are recycled.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_journal::{Batch, CheckpointStep, CommitError, Disk, DiskFile, Journal, JournalError, Options, RealDisk};

use super::medium::{Log, Trouble, nanos_since};
use super::plan::Cell;
use super::record::{EpochRecords, Scan};

/// As the server's are by default; no larger unless a batch needs it.
const SEGMENT_BYTES: u64 = 16 << 20;
/// What one may take on the disk: in use, ready and being made.
const SEGMENTS: u64 = 6;
/// Beside the records: a batch's header, record words, a checkpoint's markers.
const BATCH_SPARE_BYTES: u64 = 64 << 10;
const RECORD_SPARE_BYTES: u64 = 16;
/// It is told when there is something to do; this is for what it was not told.
const PREPARE_EVERY: Duration = Duration::from_millis(50);

/// A disk that says how long its last sync took.
struct TimedDisk {
    inner: RealDisk,
    sync_ns: Arc<AtomicU64>,
}

struct TimedFile {
    inner: Arc<dyn DiskFile>,
    sync_ns: Arc<AtomicU64>,
}

impl TimedDisk {
    fn timed(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(TimedFile { inner, sync_ns: Arc::clone(&self.sync_ns) })
    }
}

impl Disk for TimedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.open(name).map(|file| self.timed(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.create(name).map(|file| self.timed(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }
}

impl DiskFile for TimedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let begin = Instant::now();
        let outcome = self.inner.sync_data();
        IS_OWNER.with(|is| if is.get() { self.sync_ns.fetch_add(nanos_since(begin), Ordering::Relaxed) } else { 0 });
        outcome
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.inner.preallocate(len)
    }

    fn sync_and_drop_cache(&self) -> io::Result<()> {
        self.inner.sync_and_drop_cache()
    }
}

thread_local! {
    /// The thread is within a commit: its syncs are counted, the preparer's are not.
    static IS_OWNER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes segments ready.
struct Preparing {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Preparing {
    fn of(journal: &Journal) -> io::Result<Preparing> {
        let (preparer, end) = (journal.preparer(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&end);
        let work = move || {
            while !ended.load(Ordering::Acquire) {
                // What fails here fails in the commit that wants the segment.
                if !matches!(preparer.prepare(), Ok(true)) {
                    std::thread::park_timeout(PREPARE_EVERY);
                }
            }
        };
        let thread = std::thread::Builder::new().name("segments".to_owned()).spawn(work)?;
        Ok(Preparing { end, thread: Some(thread) })
    }

    fn nudge(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        self.nudge();
        if let Some(thread) = self.thread.take() {
            // A panic there was said on standard error.
            let _ = thread.join();
        }
    }
}

pub struct JournalLog {
    /// Ends before the journal does.
    preparing: Option<Preparing>,
    journal: Journal,
    batch: Batch,
    record_bytes: usize,
    sync_ns: Arc<AtomicU64>,
    folder: PathBuf,
    options: Options,
}

/// How large a journal's batches and segments are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    batch_bytes_max: u64,
    segment_bytes: u64,
}

impl Size {
    /// Segments like the server's, or smaller ones, so that all journals of the cell together take no more than
    /// `file_bytes`, if their largest batches allow that.
    pub fn of(cell: &Cell, file_bytes: u64) -> Size {
        let lots = if cell.commit.is_shared() { cell.lots_max() } else { 1 };
        let batch = lots * (cell.lot_bytes() + cell.per_sync * RECORD_SPARE_BYTES) + BATCH_SPARE_BYTES;
        let segment = (file_bytes / cell.files() / SEGMENTS).min(SEGMENT_BYTES).max(2 * batch);
        Size { batch_bytes_max: batch, segment_bytes: segment.next_multiple_of(stentor_journal::BLOCK_BYTES as u64) }
    }

    /// On the disk, of one.
    pub fn bytes(self) -> u64 {
        SEGMENTS * self.segment_bytes
    }

    fn options(self) -> Options {
        Options {
            segment_bytes: self.segment_bytes,
            batch_bytes_max: self.batch_bytes_max as usize,
            seed: 0x6a6f_7572_6e61_6c21,
            ..Options::default()
        }
    }
}

fn opening(error: JournalError) -> Trouble {
    match error {
        JournalError::Io { source, .. } => Trouble::Io(source),
        JournalError::Options(why) => Trouble::NotHere(format!("the journal refused this: {why}")),
        other => Trouble::Io(io::Error::other(other.to_string())),
    }
}

fn committing(error: CommitError) -> io::Error {
    match error {
        CommitError::Full(source) | CommitError::Io { source, .. } => source,
        other => io::Error::other(other.to_string()),
    }
}

impl JournalLog {
    /// An existing journal of that size is used again, as recycled segments.
    pub fn open(folder: &Path, writer: u64, record_bytes: usize, size: &Size) -> Result<JournalLog, Trouble> {
        let options = size.options();
        let name = format!("journal-{}-", options.segment_bytes);
        remove_others(folder, &name)?;
        let folder = folder.join(format!("{name}{writer}"));
        let sync_ns = Arc::new(AtomicU64::new(0));
        let disk = TimedDisk { inner: RealDisk::open(&folder).map_err(opening)?, sync_ns: Arc::clone(&sync_ns) };
        let (journal, _) = Journal::open(Arc::new(disk), options.clone(), &mut |_| Ok(())).map_err(opening)?;
        // Room is there before the first commit, as in a server that has run for a while.
        while journal.preparer().prepare()? {}
        if !journal.has_ready() && journal.space().free_disk_bytes < options.segment_bytes {
            return Err(Trouble::Io(io::ErrorKind::StorageFull.into()));
        }
        let preparing = Some(Preparing::of(&journal)?);
        let mut log = JournalLog { preparing, journal, batch: Batch::new(), record_bytes, sync_ns, folder, options };
        log.warm_up()?;
        Ok(log)
    }

    /// The first commit makes its segment the head, so that no cell pays for that.
    fn warm_up(&mut self) -> Result<(), Trouble> {
        self.batch.record(&[0; 8]);
        self.commit()?;
        Ok(())
    }

    /// The next step of a checkpoint, or the first of one that is due.
    fn checkpoint(&mut self) {
        if self.journal.checkpoint_running() {
            // `More` and `Aborted` are seen to with the next batch.
            let _: CheckpointStep = self.journal.end_checkpoint(&mut self.batch);
        } else if self.journal.checkpoint_due() {
            self.journal.begin_checkpoint(&mut self.batch);
        }
    }
}

impl Log for JournalLog {
    fn has_room(&mut self, _bytes: u64) -> bool {
        true
    }

    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        for record in records.chunks(self.record_bytes) {
            self.batch.record(record);
        }
        Ok(())
    }

    fn commit(&mut self) -> io::Result<u64> {
        self.checkpoint();
        self.sync_ns.store(0, Ordering::Relaxed);
        IS_OWNER.with(|is| is.set(true));
        let outcome = self.journal.commit(&mut self.batch, 0);
        IS_OWNER.with(|is| is.set(false));
        outcome.map_err(committing)?;
        if !self.journal.has_ready() {
            self.preparing.iter().for_each(Preparing::nudge);
        }
        Ok(self.sync_ns.load(Ordering::Relaxed))
    }

    /// By a replay of the same directory: what is behind the last checkpoint.
    fn found(&mut self, record_bytes: usize, epoch: u32) -> io::Result<EpochRecords> {
        // It makes, names and removes files, which would not be there any more when they are to be copied.
        self.preparing = None;
        let mut scan = Scan::new(record_bytes, epoch);
        let copy = self.folder.with_extension("copy");
        copy_all(&self.folder, &copy)?;
        let disk = RealDisk::open(&copy).map_err(|error| io::Error::other(error.to_string()))?;
        let opened = Journal::open(Arc::new(disk), self.options.clone(), &mut |record| {
            scan.sectors(record.payload);
            Ok(())
        });
        opened.map_err(|error| io::Error::other(error.to_string()))?;
        std::fs::remove_dir_all(&copy)?;
        Ok(scan.end())
    }

    /// Replay begins at a checkpoint.
    fn has_wrapped(&self) -> bool {
        self.journal.statistics().checkpoints > 0
    }
}

/// The owner still has the lock: a copy is read.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Journals of cells that wanted other segments.
fn remove_others(folder: &Path, ours: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("journal-") && !name.starts_with(ours) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::plan::{Commit, FileKind, SyncCall, Way};
    use crate::log::record::Template;

    fn cell(per_sync: u64, writers: u64, commit: Commit) -> Cell {
        let (file, way, sync) = (FileKind::Recycled, Way::Journal, SyncCall::Fdatasync);
        Cell { record_bytes: 1024, per_sync, file, way, sync, writers, commit }
    }

    #[test]
    fn journals_share_the_room_of_a_line_and_a_batch_always_fits() {
        const MIB: u64 = 1 << 20;
        assert_eq!(Size::of(&cell(1, 1, Commit::Alone), 128 * MIB).segment_bytes, SEGMENT_BYTES);
        let many = cell(1, 100, Commit::Alone);
        assert!(100 * Size::of(&many, 128 * MIB).bytes() <= 129 * MIB, "{:?}", Size::of(&many, 128 * MIB));
        for cell in [cell(1000, 1, Commit::Alone), cell(1000, 1000, Commit::Grouped), cell(1, 50, Commit::Paced)] {
            let size = Size::of(&cell, MIB);
            assert!(size.segment_bytes >= 2 * size.batch_bytes_max, "{size:?}");
            assert!(
                size.batch_bytes_max > cell.lots_max().min(cell.writers) * cell.lot_bytes() || !cell.commit.is_shared()
            );
        }
    }

    #[test]
    fn records_of_a_journal_are_found_again_and_syncs_are_timed() {
        let folder = tempfile::tempdir().unwrap();
        for epoch in [1, 2] {
            let mut log =
                JournalLog::open(folder.path(), 0, 1024, &Size::of(&cell(4, 1, Commit::Alone), 64 << 20)).unwrap();
            let mut template = Template::new(1024, epoch, 5);
            for number in 1..=40 {
                assert!(log.has_room(1024));
                log.append(template.stamped(number)).unwrap();
                if number % 4 == 0 {
                    log.commit().unwrap();
                }
            }
            let found = log.found(1024, epoch).unwrap();
            assert_eq!((found.records, found.newest.get(&5)), (40, Some(&40)));
        }
    }
}
