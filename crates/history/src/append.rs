//! The side of those who append.
//!
//! Each thread has a buffer that few others share; a record is encoded straight into it, under a lock that is held for
//! some hundred nanoseconds by whoever encodes and for a swap by the writer. Nothing is allocated once the buffers have
//! grown. A buffer that is full drops records and counts them: whoever appends never waits.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use stentor_stats::record::{Attempt, Ms, Record};

use crate::codec::{TO_MAX, push_plain};
use crate::files::{Files, Limits};
use crate::writer::Writer;

/// Buffers; a thread keeps to one.
pub const SHARDS: usize = 8;
/// What one buffer takes; a second of 60,000 records.
pub const SHARD_BYTES_MAX: usize = 4 * 1024 * 1024;

pub struct Config {
    /// Made if it is not there.
    pub dir: PathBuf,
    /// Records older than this go.
    pub keep_ms: Ms,
    /// All files together.
    pub size_bytes_max: u64,
    /// What must stay free on the file system; below it nothing is kept.
    pub free_bytes_min: u64,
    /// How often the medium is made to keep what was written.
    pub sync_ms: Ms,
    /// The time, for what the history says of itself.
    pub now: Box<dyn Fn() -> Ms + Send>,
    /// Told once for each series of failures, and when they are over.
    pub complain: Box<dyn Fn(&str) + Send>,
}

/// What the store holds and how it fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Since the start.
    pub appended: u64,
    pub dropped: u64,
    pub files: u64,
    pub bytes: u64,
    /// Nothing can be written now.
    pub is_failing: bool,
}

/// Appends to the history; cheap to clone. With the last clone the writer thread ends, all written and synced.
#[derive(Clone)]
pub struct History(Option<Arc<Handle>>);

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub struct Shared {
    shards: [Mutex<Vec<u8>>; SHARDS],
    pub appended: AtomicU64,
    pub dropped: AtomicU64,
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    pub is_failing: AtomicBool,
    pub asked: Mutex<Asked>,
    pub wake: Condvar,
    pub done: Condvar,
}

/// What the writer is asked for.
#[derive(Default)]
pub struct Asked {
    pub is_urged: bool,
    pub sync: bool,
    pub stop: bool,
    /// Rounds begun and finished; a flush waits until one that began after it has finished.
    pub begun: u64,
    pub finished: u64,
}

/// Gives each thread its buffer, in turn.
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

impl History {
    /// Opens the directory and starts the writer.
    ///
    /// # Errors
    /// The directory cannot be made or read, or the thread not be started.
    pub fn start(config: Config) -> io::Result<History> {
        let limits =
            Limits { bytes_max: config.size_bytes_max, keep_ms: config.keep_ms, free_bytes_min: config.free_bytes_min };
        let files = Files::open(&config.dir, limits, (config.now)())?;
        let shared = Arc::new(Shared {
            shards: Default::default(),
            appended: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            files: AtomicU64::new(files.count() as u64),
            bytes: AtomicU64::new(files.bytes()),
            is_failing: AtomicBool::new(false),
            asked: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let writer = Writer::new(shared.clone(), files, config);
        let thread = std::thread::Builder::new().name("history".to_owned()).spawn(move || writer.run())?;
        Ok(History(Some(Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) }))))
    }

    /// A history that keeps nothing.
    pub fn off() -> History {
        History(None)
    }

    /// Whether records are wanted; saves the caller the gathering of their fields.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps a record. An attempt of more than [`TO_MAX`] recipients becomes several.
    pub fn append(&self, record: &Record<'_>) {
        let Some(handle) = &self.0 else { return };
        match record {
            Record::Attempt(attempt) if attempt.to.len() > TO_MAX => {
                for to in attempt.to.chunks(TO_MAX) {
                    handle.shared.append(&Record::Attempt(Attempt { to: to.into(), ..attempt.clone() }));
                }
            }
            _ => handle.shared.append(record),
        }
    }

    /// Blocks until everything so far is in the file, or lost and counted. Not for hot paths.
    pub fn flush(&self) {
        if let Some(handle) = &self.0 {
            handle.shared.wait(false);
        }
    }

    /// The same, until the medium keeps it.
    pub fn sync(&self) {
        if let Some(handle) = &self.0 {
            handle.shared.wait(true);
        }
    }

    pub fn status(&self) -> Status {
        let Some(handle) = &self.0 else { return Status::default() };
        let shared = &handle.shared;
        Status {
            appended: shared.appended.load(Ordering::Relaxed),
            dropped: shared.dropped.load(Ordering::Relaxed),
            files: shared.files.load(Ordering::Relaxed),
            bytes: shared.bytes.load(Ordering::Relaxed),
            is_failing: shared.is_failing.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn append(&self, record: &Record<'_>) {
        let mut buffer = self.shards[SHARD.with(|shard| *shard)].lock();
        let before = buffer.len();
        if before >= SHARD_BYTES_MAX {
            drop(buffer);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        push_plain(&mut buffer, record);
        let is_half_full = before < SHARD_BYTES_MAX / 2 && buffer.len() >= SHARD_BYTES_MAX / 2;
        drop(buffer);
        if is_half_full {
            self.asked.lock().is_urged = true;
            self.wake.notify_one();
        }
    }

    /// Gives the buffers' contents for empty ones.
    pub fn swap(&self, taken: &mut [Vec<u8>; SHARDS]) {
        for (shard, empty) in self.shards.iter().zip(taken) {
            std::mem::swap(&mut *shard.lock(), empty);
        }
    }

    fn wait(&self, sync: bool) {
        let mut asked = self.asked.lock();
        let target = asked.begun + 1;
        asked.is_urged = true;
        asked.sync |= sync;
        self.wake.notify_one();
        while asked.finished < target && !asked.stop {
            self.done.wait(&mut asked);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.asked.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}
