//! Tables in files: loading, change detection and replacement.
//!
//! Promise: a file that is replaced, or gets other rights, is read whole at the next [`FileTable::refresh`], and put in
//! force at once; one that is broken leaves the version before in force, if there is one, and its report says file and
//! line. A file that could not be read is read again without any change to it: its cause may be gone. Of several such
//! files each is used as soon as it can be read; no such attempt takes away a file that could be read before. What a
//! user can choose to be read is read as they could read it (`read.rs`).
//!
//! States of a table: idle -> being checked -> (after [`SLOW_MS`]) slow -> idle. Only one check runs at a time; other
//! callers return immediately. A file system that hangs blocks one thread, and the version in force stays.

mod path;
mod read;

use std::collections::HashSet;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stentor_tables::{FileContent, FileRequest, LoadReport, LoadedTable, ReadError, Reference, Slot, Table};

/// Duration after which a check is reported as slow.
pub const SLOW_MS: u64 = 5_000;

/// How soon files are read again that could not be read, and the longest pause between two attempts: each reads all of
/// a table.
const RETRY_MS_MIN: u64 = 5_000;
const RETRY_MS_MAX: u64 = 300_000;

/// A state of a file. Its change time (ctime) is part of it: corrected rights change nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileState {
    inode: u64,
    octets: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// `None`: there is no file.
type Stamp = Option<FileState>;

fn stamp(metadata: &Metadata) -> FileState {
    FileState {
        inode: metadata.ino(),
        octets: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn stamp_of(path: &Path) -> Stamp {
    std::fs::metadata(path).ok().as_ref().map(stamp)
}

/// Files, and their state before they were read.
type FileStamps = Vec<(PathBuf, Stamp)>;

/// A file, and the user on whose behalf it is read.
type FileId = (PathBuf, Option<u32>);

/// Reads files.
type FileReader = Box<dyn Fn(FileRequest<'_>) -> Result<FileContent, ReadError> + Send + Sync>;

/// Loads a table from the files as they are now. Blocks.
pub fn load(reference: &Reference) -> Result<LoadedTable, LoadReport> {
    load_seen(reference, &read::read).loaded
}

/// One reading of all files of a table.
struct Reading {
    loaded: Result<LoadedTable, LoadReport>,
    files: FileStamps,
    attempts: Attempts,
}

/// Which files a reading could read, those included by others too.
#[derive(Debug, Default, PartialEq, Eq)]
struct Attempts {
    read: HashSet<FileId>,
    failed: HashSet<FileId>,
}

impl Attempts {
    /// Whether other files can be read than before, and none is lost.
    fn are_better_than(&self, before: &Attempts) -> bool {
        self != before && self.failed.is_disjoint(&before.read)
    }
}

fn load_seen(reference: &Reference, read: &dyn Fn(FileRequest<'_>) -> Result<FileContent, ReadError>) -> Reading {
    let (mut files, mut attempts) = (Vec::new(), Attempts::default());
    let loaded = stentor_tables::load(reference, &mut |wanted| {
        // Before it is read: what changes meanwhile is seen the next time.
        files.push((wanted.path.to_owned(), stamp_of(wanted.path)));
        let content = read(wanted);
        let has_failed = matches!(content, Err(ReadError::Failed(_)));
        let those = if has_failed { &mut attempts.failed } else { &mut attempts.read };
        those.insert((wanted.path.to_owned(), wanted.reader));
        content
    });
    Reading { loaded, files, attempts }
}

/// Result of a check of the files.
#[derive(Debug)]
pub enum TableRefresh {
    /// Nothing has changed since the last check.
    Same,
    /// A new version is in force; lines were skipped if the report has warnings.
    Replaced(LoadReport),
    /// The new version is broken; the old one, if there is one, stays in force.
    Kept(LoadReport),
    /// Another check is running.
    Busy,
    /// Another check has been running for more than [`SLOW_MS`]; returned once.
    Slow,
}

/// File states seen by checks.
#[derive(Debug)]
struct Looks {
    /// State at the last read, successful or not.
    read: FileStamps,
    /// State at the last check. A file written in place is only read if it did not change between two checks: half of
    /// it would look complete, and mail for the other half would be refused.
    last: FileStamps,
    /// Those of the last reading that was used or reported.
    attempts: Attempts,
    /// Where a file could not be read.
    retry: Option<Retry>,
}

/// When files are read again that could not be read.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at_ms: u64,
    pause_ms: u64,
}

impl Retry {
    /// After an attempt now; `last`: the one before, if nothing has changed since.
    fn after(last: Option<Retry>, now: u64) -> Retry {
        let pause_ms = last.map_or(RETRY_MS_MIN, |last| (2 * last.pause_ms).clamp(RETRY_MS_MIN, RETRY_MS_MAX));
        Retry { at_ms: now + pause_ms, pause_ms }
    }
}

/// Whether all changed files are new ones, as after a rename.
fn are_others(before: &FileStamps, now: &FileStamps) -> bool {
    before.iter().zip(now).all(|((_, before), (_, now))| match (before, now) {
        (Some(before), Some(now)) => before == now || before.inode != now.inode,
        (before, now) => before == now,
    })
}

/// A table and its files.
pub struct FileTable {
    reference: Reference,
    read: FileReader,
    /// Table in force; empty until the files can be used.
    slot: OnceLock<Slot>,
    /// Locked during a check.
    looks: Mutex<Looks>,
    /// Start of the current check; [`u64::MAX`] if there is none.
    begun: AtomicU64,
    is_slow: AtomicBool,
}

impl fmt::Debug for FileTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FileTable").field("reference", &self.reference).finish_non_exhaustive()
    }
}

impl FileTable {
    /// Opens a table. Blocks. With errors there is no version until a refresh finds usable files.
    pub fn open(reference: Reference) -> (Self, LoadReport) {
        Self::open_by(reference, Box::new(read::read))
    }

    /// As [`Self::open`], reading files through `read`.
    pub fn open_by(reference: Reference, read: FileReader) -> (Self, LoadReport) {
        let Reading { loaded, files, attempts } = load_seen(&reference, &read);
        let (slot, report) = match loaded {
            Ok(LoadedTable { table, report }) => (OnceLock::from(Slot::new(table)), report),
            Err(report) => (OnceLock::new(), report),
        };
        let table = Self {
            reference,
            read,
            slot,
            looks: Mutex::new(Looks {
                last: files.clone(),
                read: files,
                retry: (!attempts.failed.is_empty()).then_some(Retry { at_ms: 0, pause_ms: 0 }),
                attempts,
            }),
            begun: AtomicU64::new(u64::MAX),
            is_slow: AtomicBool::new(false),
        };
        (table, report)
    }

    /// The version in force; `None`: its files could not be used yet.
    pub fn table(&self) -> Option<Arc<Table>> {
        self.slot.get().map(Slot::get)
    }

    /// Whether a check has been running for more than [`SLOW_MS`], as seen by the last [`FileTable::refresh`].
    pub fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Checks whether the files have been replaced, and reads them if so. Blocks, unless another check is running.
    /// `now`: milliseconds of a monotonic clock.
    pub fn refresh(&self, now: u64) -> TableRefresh {
        let Some(mut looks) = self.looks.try_lock() else {
            let is_slow = now.saturating_sub(self.begun.load(Ordering::Relaxed)) > SLOW_MS;
            let is_told = is_slow && self.is_slow.swap(true, Ordering::Relaxed);
            return if is_slow && !is_told { TableRefresh::Slow } else { TableRefresh::Busy };
        };
        self.begun.store(now, Ordering::Relaxed);
        let refreshed = self.look(&mut looks, now);
        self.begun.store(u64::MAX, Ordering::Relaxed);
        self.is_slow.store(false, Ordering::Relaxed);
        refreshed
    }

    fn look(&self, looks: &mut Looks, now_ms: u64) -> TableRefresh {
        let now: FileStamps = looks.read.iter().map(|(path, _)| (path.clone(), stamp_of(path))).collect();
        let is_still = looks.last == now;
        looks.last.clone_from(&now);
        let has_changed = looks.read != now;
        let is_due = has_changed || looks.retry.is_some_and(|retry| retry.at_ms <= now_ms);
        if !is_due || !is_still && !are_others(&looks.read, &now) {
            return TableRefresh::Same;
        }
        let Reading { loaded, files, attempts } = load_seen(&self.reference, &self.read);
        let has_failed = !attempts.failed.is_empty();
        looks.retry = has_failed.then(|| Retry::after(looks.retry.filter(|_| !has_changed), now_ms));
        if has_failed && !has_changed && !attempts.are_better_than(&looks.attempts) {
            // It has been reported, or what is in force has more.
            return TableRefresh::Same;
        }
        looks.attempts = attempts;
        match loaded {
            Ok(LoadedTable { table, report }) => {
                looks.last.clone_from(&files);
                looks.read = files;
                match self.slot.get() {
                    Some(slot) => slot.replace(table),
                    // No other check is running.
                    None => _ = self.slot.set(Slot::new(table)),
                }
                TableRefresh::Replaced(report)
            }
            Err(report) => {
                looks.read = now;
                TableRefresh::Kept(report)
            }
        }
    }
}
