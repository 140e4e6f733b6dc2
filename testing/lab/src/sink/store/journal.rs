//! The journal as a store: one thread commits the waiting messages as one batch, with one write and one sync, and then
//! answers all.
//!
//! Bytes: each message is a content of the journal and one record behind it: [`MESSAGE_RECORD`], the content's number
//! (8 octets, little-endian), then the sender and each recipient, each ended by a line feed. Nothing is ever dropped.
//!
//! States: open → dropped by the owner: waiting messages are committed and answered, then the thread ends. With nothing
//! waiting the thread sleeps, at most [`PREPARE_EVERY`], and has segments prepared for the next batches by another
//! thread.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use stentor_journal::{Batch, CommitError, Disk, DiskFile, Journal, Options, RealDisk};

use super::{Done, Job, Meter, StoreCompletion, StoreError, StoreOptions, Sync};

/// What a record of a stored message begins with.
pub const MESSAGE_RECORD: &[u8; 4] = b"lab\x01";
pub(super) const MESSAGE_BYTES_MAX: usize = 8 << 20;
const SEGMENT_BYTES: u64 = 32 << 20;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// A batch is closed at this size, so that a message always finds room.
const BATCH_BYTES_ENOUGH: usize = 4 << 20;
/// How often the preparer looks whether segments are wanted.
const PREPARE_EVERY: Duration = Duration::from_millis(20);
/// Segments kept ready.
const READY_MIN: usize = 2;

pub(super) struct Submitted {
    pub job: Job,
    pub begun: Instant,
    pub done: Done,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<(VecDeque<Submitted>, bool)>,
    came: Condvar,
}

pub(super) struct Committer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    preparer: Option<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

fn as_io(error: impl std::error::Error + Send + std::marker::Sync + 'static) -> io::Error {
    io::Error::other(error)
}

impl Committer {
    pub fn open(options: &StoreOptions, meter: Arc<Meter>) -> io::Result<Committer> {
        let disk = RealDisk::open(&options.directory).map_err(as_io)?;
        let disk: Arc<dyn Disk> =
            if options.sync == Sync::None { Arc::new(Lazy(Arc::new(disk))) } else { Arc::new(disk) };
        let settings = Options {
            segment_bytes: SEGMENT_BYTES,
            batch_bytes_max: BATCH_BYTES_MAX,
            pool_ready_min: READY_MIN,
            seed: fastrand::u64(..),
            ..Options::default()
        };
        let (mut journal, _) = Journal::open(disk, settings, &mut |_| Ok(())).map_err(as_io)?;
        journal.retain_contents(&mut |_| true).map_err(as_io)?;
        let segments = journal.preparer();
        while segments.prepare()? {}
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let prepare = move || {
            while !over.load(Relaxed) {
                // A disk that fails here fails the commits too, where it is told.
                if !segments.prepare().unwrap_or(false) {
                    std::thread::park_timeout(PREPARE_EVERY);
                }
            }
        };
        let preparer = std::thread::Builder::new().name("segments".to_owned()).spawn(prepare)?;
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        let run = move || commit_all(&own, &mut journal, &meter);
        let thread = std::thread::Builder::new().name("committer".to_owned()).spawn(run)?;
        Ok(Committer { queue, thread: Some(thread), preparer: Some(preparer), ended })
    }

    pub fn submit(&self, submitted: Submitted) {
        self.queue.waiting.lock().0.push_back(submitted);
        self.queue.came.notify_one();
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        self.queue.waiting.lock().1 = true;
        self.queue.came.notify_one();
        for thread in [self.thread.take(), self.preparer.take()].into_iter().flatten() {
            thread.thread().unpark();
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

fn commit_all(queue: &Queue, journal: &mut Journal, meter: &Meter) {
    let mut batch = Batch::new();
    let mut taken: Vec<Submitted> = Vec::new();
    loop {
        {
            let mut waiting = queue.waiting.lock();
            while waiting.0.is_empty() {
                if waiting.1 {
                    return;
                }
                queue.came.wait(&mut waiting);
            }
            let mut bytes = 0;
            while let Some(first) = waiting.0.front() {
                if bytes >= BATCH_BYTES_ENOUGH {
                    break;
                }
                bytes += first.job.body.len() + first.job.envelope.len();
                taken.extend(waiting.0.pop_front());
            }
        }
        let outcome = commit(journal, &mut batch, &taken, meter);
        for Submitted { job, begun, done } in taken.drain(..) {
            let outcome = match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(StoreError(again(error))),
            };
            meter.count(begun, job.body.len(), &outcome);
            done(StoreCompletion { outcome, job });
        }
    }
}

fn commit(journal: &mut Journal, batch: &mut Batch, taken: &[Submitted], meter: &Meter) -> io::Result<()> {
    batch.clear();
    for Submitted { job, .. } in taken {
        let id = journal.next_content_id();
        batch.content(id, true, &job.body);
        batch.record_with(|buffer| {
            buffer.extend_from_slice(MESSAGE_RECORD);
            buffer.extend_from_slice(&id.to_le_bytes());
            buffer.extend_from_slice(&job.envelope);
        });
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let syncs = journal.statistics().syncs;
    let result = journal.commit(batch, since.as_millis() as u64);
    meter.syncs.fetch_add(journal.statistics().syncs - syncs, Relaxed);
    meter.batches.fetch_add(u64::from(result.is_ok()), Relaxed);
    match result {
        Ok(_) => Ok(()),
        Err(error) => {
            batch.clear();
            Err(as_commit_error(&error))
        }
    }
}

fn as_commit_error(error: &CommitError) -> io::Error {
    let kind = if error.is_full() { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
    io::Error::new(kind, error.to_string())
}

fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// Every message of a journal that nobody has open, in the order of their commits: sender and recipients, and the
/// octets.
pub fn read_journal(directory: &Path, mut message: impl FnMut(&[u8], Vec<u8>)) -> io::Result<()> {
    let disk = RealDisk::open(directory).map_err(as_io)?;
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    let options = Options { segment_bytes: SEGMENT_BYTES, batch_bytes_max: BATCH_BYTES_MAX, ..Options::default() };
    let (journal, _) = Journal::open(Arc::new(disk), options, &mut |record| {
        if let Some((id, envelope)) = record.payload.strip_prefix(MESSAGE_RECORD).and_then(|r| r.split_first_chunk()) {
            found.push((u64::from_le_bytes(*id), envelope.to_vec()));
        }
        Ok(())
    })
    .map_err(as_io)?;
    let reader = journal.reader();
    for (id, envelope) in found {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("content {id} is missing"));
        let mut body = vec![0; reader.len(id).ok_or_else(missing)? as usize];
        let mut at = 0;
        while at < body.len() {
            match reader.read_at(id, at as u64, &mut body[at..])? {
                0 => return Err(missing()),
                count => at += count,
            }
        }
        message(&envelope, body);
    }
    Ok(())
}

/// A disk that syncs nothing: to show what syncs cost, and never to be trusted.
struct Lazy(Arc<dyn Disk>);

struct LazyFile(Arc<dyn DiskFile>);

impl Disk for Lazy {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(LazyFile(self.0.open(name)?)))
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(LazyFile(self.0.create(name)?)))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

impl DiskFile for LazyFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.0.preallocate(len)
    }
}
