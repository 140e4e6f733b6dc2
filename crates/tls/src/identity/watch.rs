//! Reads certificates again when their files are replaced, and renews the one that the server makes.
//!
//! Promise: what is in force is whole. Who replaces a chain and then its key is waited for: files are read when they have been
//! the same for two looks, and again when they change once more; what does not fit together is reported, once, and changes
//! nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Identities;
use super::file::IdentityError;
use super::source::{Source, SourceError};

/// Between looks at the end of the server's own certificate.
const OWN_PAUSE_S: i64 = 3_600;
/// How soon files that could not be used are read again without any change to them.
const BROKEN_PAUSE_S: i64 = 60;

/// What tells a file from the one before: inode, length, time of change and of modification. Nothing if it is missing.
type Stamp = Option<(u64, u64, i64, i64, i64)>;

/// What a look found.
#[derive(Debug)]
pub enum Look {
    Same,
    /// To be put in force.
    Replaced(Identities),
    /// The ones in force stay.
    Broken(Vec<IdentityError>),
}

/// Looks at the files now and then.
#[derive(Debug)]
pub struct Watch {
    source: Source,
    /// Of the files as they were read.
    read: Vec<Stamp>,
    /// Of the look before.
    seen: Vec<Stamp>,
    looked_s: i64,
    /// The last files could not be used.
    is_broken: bool,
}

impl Watch {
    /// What was read before belongs to the stamps of now, or older ones: begin before reading.
    pub fn new(source: Source, now: i64) -> Watch {
        let stamps = stamps(&source);
        Watch { source, read: stamps.clone(), seen: stamps, looked_s: now, is_broken: false }
    }

    /// Looks; blocks. To be called about once a second; `now` in seconds since 1970.
    pub fn look(&mut self, now: i64) -> Look {
        let stamps = stamps(&self.source);
        let (is_same, is_settled) = (stamps == self.read, stamps == self.seen);
        // The server's own has an end as well.
        let is_own_due = self.source.files.is_empty() && now - self.looked_s >= OWN_PAUSE_S;
        // They may have been unreadable for a reason that is gone.
        let is_retried = self.is_broken && now - self.looked_s >= BROKEN_PAUSE_S;
        if !is_settled || is_same && !is_own_due && !is_retried {
            self.seen = stamps;
            return Look::Same;
        }
        (self.read, self.looked_s) = (stamps, now);
        let loaded = self.source.load(now);
        self.is_broken = matches!(loaded, Err(SourceError::Files(_)));
        match loaded {
            Ok(identities) => Look::Replaced(identities),
            Err(SourceError::Files(_)) if is_same => Look::Same,
            Err(SourceError::Files(errors)) => Look::Broken(errors),
            Err(SourceError::Own(_)) => Look::Same,
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
