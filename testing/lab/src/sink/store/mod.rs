//! Where a sink keeps messages: one file each, or our journal. Shows the cost of each.
//!
//! Promise: [`StoreCompletion::outcome`] is `Ok` only once the message is as durable as the [`Sync`] asked for; only
//! then does the sink reply 250. `files` writes and syncs in the calling thread; the journal has its own committer
//! thread, which commits the waiting messages as one batch, with one sync.
//!
//! Failure answers: no space is 452, anything else 451, and `files` leaves nothing of the message behind. After a
//! failed journal commit nothing is repeated; the journal continues in another segment.

mod files;
mod journal;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use stentor_records::histogram::Fine as Histogram;

pub use journal::{MESSAGE_RECORD, read_journal};

/// One file a message in one directory, in hashed directories, or our journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StoreAs {
    /// A file each, all in one directory.
    #[value(alias = "files")]
    Flat,
    /// A file each in 16 directories of 16 directories each, by hash of the file's name.
    Hashed,
    /// Our journal: one write and one sync for all messages that wait.
    Journal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Sync {
    /// Left to the kernel: a power cut loses it.
    None,
    /// `fsync` of the file (`fdatasync` of the journal's segment).
    File,
    /// And `fsync` of its directory, as strict POSIX wants it for a new name. The same as `file` for the journal.
    #[value(name = "file+dir")]
    FileAndDirectory,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    pub directory: PathBuf,
    pub as_: StoreAs,
    pub sync: Sync,
}

/// What is stored, and what comes back for use again.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// The message's octets, without dot stuffing.
    pub body: Vec<u8>,
    /// The sender and each recipient, each ended by a line feed.
    pub envelope: Vec<u8>,
}

pub(crate) struct StoreCompletion {
    pub outcome: Result<(), StoreError>,
    pub job: Job,
}

/// Why a message is not stored.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(pub io::Error);

impl StoreError {
    pub fn is_full(&self) -> bool {
        matches!(self.0.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
    }
}

/// Where the outcome goes: called by the thread that stored it.
pub(crate) type Done = Box<dyn FnOnce(StoreCompletion) + Send>;

/// What was stored, and how long each took.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub stored: AtomicU64,
    pub bytes: AtomicU64,
    pub failed: AtomicU64,
    /// Calls of fsync and fdatasync.
    pub syncs: AtomicU64,
    /// Batches of the journal.
    pub batches: AtomicU64,
    first_failure: Mutex<Option<String>>,
    times_us: Mutex<Histogram>,
}

impl Meter {
    fn count(&self, begun: Instant, bytes: usize, outcome: &Result<(), StoreError>) {
        match outcome {
            Ok(()) => {
                self.stored.fetch_add(1, Relaxed);
                self.bytes.fetch_add(bytes as u64, Relaxed);
                self.times_us.lock().add(begun.elapsed().as_micros() as u64);
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                self.first_failure.lock().get_or_insert_with(|| error.to_string());
            }
        }
    }

    pub fn times_us(&self) -> Histogram {
        self.times_us.lock().clone()
    }

    pub fn first_failure(&self) -> Option<String> {
        self.first_failure.lock().clone()
    }
}

/// A store that is open.
pub(crate) struct Store {
    way: Way,
    pub meter: Arc<Meter>,
}

enum Way {
    Files(files::Files),
    Journal(journal::Committer),
}

impl Store {
    /// Makes the directory if need be.
    pub fn open(options: &StoreOptions) -> io::Result<Store> {
        let meter = Arc::new(Meter::default());
        let way = match options.as_ {
            StoreAs::Flat | StoreAs::Hashed => Way::Files(files::Files::open(options)?),
            StoreAs::Journal => Way::Journal(journal::Committer::open(options, Arc::clone(&meter))?),
        };
        Ok(Store { way, meter })
    }

    /// Longest message that it takes.
    pub fn bytes_max(&self) -> usize {
        match &self.way {
            Way::Files(_) => files::MESSAGE_BYTES_MAX,
            Way::Journal(_) => journal::MESSAGE_BYTES_MAX,
        }
    }

    /// Whether [`Store::put`] blocks on the disk in the thread that calls it, so that an event loop wants it elsewhere.
    pub fn blocks(&self) -> bool {
        matches!(self.way, Way::Files(_))
    }

    /// Stores, and calls `done` with the outcome: before it returns where it blocks, else from another thread.
    pub fn put(&self, job: Job, done: Done) {
        let begun = Instant::now();
        match &self.way {
            Way::Files(files) => {
                let outcome = files.store(&job.body, &self.meter).map_err(StoreError);
                self.meter.count(begun, job.body.len(), &outcome);
                done(StoreCompletion { outcome, job });
            }
            Way::Journal(committer) => committer.submit(journal::Submitted { job, begun, done }),
        }
    }

    /// [`Store::put`], waiting for the outcome.
    pub fn put_and_wait(&self, job: Job) -> StoreCompletion {
        let cell = Arc::new((Mutex::new(None), Condvar::new()));
        let to = Arc::clone(&cell);
        self.put(
            job,
            Box::new(move |completion| {
                *to.0.lock() = Some(completion);
                to.1.notify_one();
            }),
        );
        let mut slot = cell.0.lock();
        loop {
            if let Some(completion) = slot.take() {
                return completion;
            }
            cell.1.wait(&mut slot);
        }
    }
}
