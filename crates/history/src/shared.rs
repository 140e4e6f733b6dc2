//! State shared by callers that append and the writer: the buffers, and requests to the writer.
//!
//! A caller holds a buffer's lock for some hundred nanoseconds while it encodes a record, and the writer for a swap. A
//! full buffer drops records and counts them: appending never waits.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use stentor_records::record::{Ms, Record};

use crate::codec::push_plain;

/// Number of buffers; a thread stays with one.
pub const SHARDS: usize = 8;
/// Capacity of one buffer: a second of 60,000 records.
pub const SHARD_BYTES_MAX: usize = 4 * 1024 * 1024;

pub struct Config {
    /// The directory, created if missing.
    pub dir: PathBuf,
    /// Older records are deleted.
    pub keep_ms: Ms,
    /// Limit for the size of all files together.
    pub size_bytes_max: u64,
    /// Free space to leave on the file system; with less, nothing is written.
    pub free_bytes_min: u64,
    /// Interval of syncs.
    pub sync_ms: Ms,
    /// The clock, for notes about the history itself.
    pub now: Box<dyn Fn() -> Ms + Send>,
    /// Called once per series of failures, and again when it is over.
    pub complain: Box<dyn Fn(&str) + Send>,
}

pub struct Shared {
    pub shards: [Mutex<Vec<u8>>; SHARDS],
    pub appended: AtomicU64,
    pub dropped: AtomicU64,
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    pub is_failing: AtomicBool,
    pub requests: Mutex<WriterRequests>,
    pub wake: Condvar,
    pub done: Condvar,
}

/// Requests to the writer.
#[derive(Default)]
pub struct WriterRequests {
    pub is_urged: bool,
    pub sync: bool,
    pub stop: bool,
    /// Numbers of rounds begun and finished; a flush waits until a round that began after it has finished.
    pub begun: u64,
    pub finished: u64,
}

/// Assigns each thread its buffer, in turn.
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

impl Shared {
    pub fn append(&self, record: &Record<'_>) {
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
            self.requests.lock().is_urged = true;
            self.wake.notify_one();
        }
    }

    /// Swaps the buffers for empty ones.
    pub fn swap(&self, taken: &mut [Vec<u8>; SHARDS]) {
        for (shard, empty) in self.shards.iter().zip(taken) {
            std::mem::swap(&mut *shard.lock(), empty);
        }
    }

    pub fn wait(&self, sync: bool) {
        let mut requests = self.requests.lock();
        let target = requests.begun + 1;
        requests.is_urged = true;
        requests.sync |= sync;
        self.wake.notify_one();
        while requests.finished < target && !requests.stop {
            self.done.wait(&mut requests);
        }
    }
}
