//! Reads certificates again when their files are replaced, and renews the one that the server makes.
//!
//! Promise: what is in force is whole. Who replaces a chain and then its key is waited for: files are read when they have been
//! the same for two looks, and again when they change once more; what does not fit together is reported, once, and changes
//! nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::file::IdentityError;
use super::{Files, Identities};

/// Between looks at the end of the server's own certificate.
const OWN_PAUSE_S: i64 = 3_600;

/// What tells a file from the one before: inode, length, time of change and of modification. Nothing if it is missing.
type Stamp = Option<(u64, u64, i64, i64, i64)>;

/// Where certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Files(Vec<Files>),
    /// Made by the server in this folder for its host name.
    Own {
        folder: PathBuf,
        host: String,
    },
}

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
}

impl Watch {
    /// What was read before belongs to the stamps of now, or older ones: begin before reading.
    pub fn new(source: Source, now: i64) -> Watch {
        let stamps = source.stamps();
        Watch { source, read: stamps.clone(), seen: stamps, looked_s: now }
    }

    /// Looks; blocks. To be called about once a second; `now` in seconds since 1970.
    pub fn look(&mut self, now: i64) -> Look {
        let files = match &self.source {
            Source::Files(files) => files,
            Source::Own { folder, host } => {
                if now - self.looked_s < OWN_PAUSE_S {
                    return Look::Same;
                }
                self.looked_s = now;
                return renew(folder, host, now);
            }
        };
        let stamps = self.source.stamps();
        let is_settled = stamps == self.seen;
        if stamps == self.read || !is_settled {
            self.seen = stamps;
            return Look::Same;
        }
        let loaded = Identities::load(files, now);
        self.read = stamps;
        match loaded {
            Ok(identities) => Look::Replaced(identities),
            Err(errors) => Look::Broken(errors),
        }
    }
}

fn renew(folder: &Path, host: &str, now: i64) -> Look {
    Look::Replaced(match Identities::self_signed(folder, host, now) {
        Ok(identities) => identities,
        Err(_) => return Look::Same,
    })
}

impl Source {
    fn stamps(&self) -> Vec<Stamp> {
        match self {
            Source::Files(files) => files.iter().flat_map(|files| [stamp(&files.chain), stamp(&files.key)]).collect(),
            Source::Own { .. } => Vec::new(),
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let of = |metadata: fs::Metadata| {
        (metadata.ino(), metadata.len(), metadata.ctime(), metadata.mtime(), metadata.mtime_nsec())
    };
    let found: io::Result<fs::Metadata> = fs::metadata(path);
    found.ok().map(of)
}
