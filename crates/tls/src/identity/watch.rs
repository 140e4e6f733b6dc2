//! Reloads certificates when their files are replaced, and renews the self-signed one.
//!
//! Promise: the set in force is always complete. A chain and its key may be replaced one after the other: files are
//! read when two consecutive checks find them unchanged, and again after any further change. A mismatch is reported
//! once and changes nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Identities;
use super::file::IdentityError;
use super::source::{Source, SourceError};

/// Interval of checks for the expiry of the self-signed certificate.
const OWN_PAUSE_S: i64 = 3_600;
/// How soon files that could not be used are read again without any change to them.
const BROKEN_PAUSE_S: i64 = 60;

/// Identifies a version of a file: inode, length, times of change and modification. `None` if the file is missing.
type Stamp = Option<(u64, u64, i64, i64, i64)>;

/// Result of a check.
#[derive(Debug)]
pub enum WatchOutcome {
    Same,
    /// New certificates to put in force.
    Replaced(Identities),
    /// The certificates in force are kept.
    Broken(Vec<IdentityError>),
}

/// Checks the files periodically.
#[derive(Debug)]
pub struct IdentityWatch {
    source: Source,
    /// Stamps of the files as they were read.
    read: Vec<Stamp>,
    /// Stamps of the previous check.
    seen: Vec<Stamp>,
    looked_s: i64,
    /// The last files could not be used.
    is_broken: bool,
}

impl IdentityWatch {
    /// The certificates read before must belong to the present stamps or older ones, so call this before reading.
    pub fn new(source: Source, now: i64) -> IdentityWatch {
        let stamps = stamps(&source);
        IdentityWatch { source, read: stamps.clone(), seen: stamps, looked_s: now, is_broken: false }
    }

    /// Checks the files; blocks. Should be called about once a second; `now` in seconds since 1970.
    pub fn look(&mut self, now: i64) -> WatchOutcome {
        let stamps = stamps(&self.source);
        let (is_same, is_settled) = (stamps == self.read, stamps == self.seen);
        // The self-signed certificate expires, too.
        let is_own_due = self.source.files.is_empty() && now - self.looked_s >= OWN_PAUSE_S;
        // They may have been unreadable for a reason that is gone.
        let is_retried = self.is_broken && now - self.looked_s >= BROKEN_PAUSE_S;
        if !is_settled || is_same && !is_own_due && !is_retried {
            self.seen = stamps;
            return WatchOutcome::Same;
        }
        (self.read, self.looked_s) = (stamps, now);
        let loaded = self.source.load(now);
        self.is_broken = matches!(loaded, Err(SourceError::Files(_)));
        match loaded {
            Ok(identities) => WatchOutcome::Replaced(identities),
            Err(SourceError::Files(_)) if is_same => WatchOutcome::Same,
            Err(SourceError::Files(errors)) => WatchOutcome::Broken(errors),
            Err(SourceError::Own(_)) => WatchOutcome::Same,
        }
    }
}

fn stamps(source: &Source) -> Vec<Stamp> {
    let files = source.files.iter().flat_map(|files| [&files.chain, &files.key]);
    files.chain(&source.obtained).map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Stamp {
    let of = |metadata: fs::Metadata| {
        (metadata.ino(), metadata.len(), metadata.ctime(), metadata.mtime(), metadata.mtime_nsec())
    };
    let found: io::Result<fs::Metadata> = fs::metadata(path);
    found.ok().map(of)
}
