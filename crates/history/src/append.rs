//! The appending side.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use stentor_records::record::{Attempt, Record};

use crate::codec::TO_MAX;
use crate::files::{Files, Limits};
use crate::shared::{Config, Shared};
use crate::writer::Writer;

/// Contents and state of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStatus {
    /// Records appended since the start.
    pub appended: u64,
    pub dropped: u64,
    pub files: u64,
    pub bytes: u64,
    /// Whether writing is impossible at the moment.
    pub is_failing: bool,
}

/// Appends to the history; cheap to clone. Dropping the last clone writes and syncs everything and stops the writer
/// thread.
#[derive(Clone)]
pub struct History(Option<Arc<Handle>>);

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl History {
    /// Opens the directory and starts the writer.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or read, or the thread cannot be started.
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
            requests: Mutex::default(),
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

    /// Whether records are kept; if not, the caller need not gather their fields.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Appends a record. An attempt with more than [`TO_MAX`] recipients becomes several records.
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

    /// Blocks until every record so far is in the file, or lost and counted. Not for hot paths.
    pub fn flush(&self) {
        if let Some(handle) = &self.0 {
            handle.shared.wait(false);
        }
    }

    /// Blocks until every record so far is synced, or lost and counted.
    pub fn sync(&self) {
        if let Some(handle) = &self.0 {
            handle.shared.wait(true);
        }
    }

    pub fn status(&self) -> StoreStatus {
        let Some(handle) = &self.0 else { return StoreStatus::default() };
        let shared = &handle.shared;
        StoreStatus {
            appended: shared.appended.load(Ordering::Relaxed),
            dropped: shared.dropped.load(Ordering::Relaxed),
            files: shared.files.load(Ordering::Relaxed),
            bytes: shared.bytes.load(Ordering::Relaxed),
            is_failing: shared.is_failing.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.requests.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // If the thread panicked, it has reported that itself.
            let _ = thread.join();
        }
    }
}
