//! Tables made of files: read, watched by their stamps, replaced whole.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_tables::{FILE_BYTES_MAX, Loaded, Reference, Report, Slot, Table};

/// How often a file that changes while it is read is read again.
const READS_MAX: usize = 3;

/// What tells one state of a file from another. None where there is no file.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp(metadata: &Metadata) -> (u64, u64, i64, i64) {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

fn stamp_of(path: &Path) -> Stamp {
    std::fs::metadata(path).ok().as_ref().map(stamp)
}

/// Files and their state before they were read.
type Seen = Vec<(PathBuf, Stamp)>;

/// Makes a table of the files as they are now. Blocks.
pub fn load(reference: &Reference) -> Result<Loaded, Report> {
    load_seen(reference).0
}

/// The same, with all files that were read for it.
fn load_seen(reference: &Reference) -> (Result<Loaded, Report>, Seen) {
    let mut seen = Vec::new();
    let loaded = stentor_tables::load(reference, &mut |path| {
        // Before it is read: what changes meanwhile is seen the next time.
        seen.push((path.to_owned(), stamp_of(path)));
        read(path).map_err(|error| error.to_string())
    });
    (loaded, seen)
}

/// The content of a file that does not change meanwhile. LMDB is written in place: half of one version and half of the
/// next would look whole.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    for _ in 0..READS_MAX {
        // Opening a pipe would wait for a writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        let before = file.metadata()?;
        let mut bytes = Vec::with_capacity(before.len().min(FILE_BYTES_MAX as u64) as usize + 1);
        (&file).take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        if stamp(&before) == stamp(&file.metadata()?) {
            return Ok(bytes);
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::ResourceBusy, "changes while it is read"))
}

/// What a look at the files led to.
#[derive(Debug)]
pub enum Refreshed {
    /// Nothing has changed since they were looked at.
    Same,
    /// The next version is in force; lines were skipped if the report has warnings.
    Replaced(Report),
    /// The next version is broken; the one before stays in force.
    Kept(Report),
}

/// What looks at the files have found.
#[derive(Debug)]
struct Looks {
    /// As of the last read, whether what was found could be used or not.
    read: Seen,
    /// As of the last look. A file that is written in place is read when nobody has written between two looks: half of it would
    /// look whole, and those in the other half would be refused.
    last: Seen,
}

/// Whether what has changed are files in the place of others, as a rename puts them there.
fn are_others(before: &Seen, now: &Seen) -> bool {
    before.iter().zip(now).all(|((_, before), (_, now))| match (before, now) {
        (Some(before), Some(now)) => before == now || before.0 != now.0,
        (before, now) => before == now,
    })
}

/// A table and the files that it was made of.
#[derive(Debug)]
pub struct FileTable {
    reference: Reference,
    slot: Slot,
    /// Held while files are read: one reader at a time.
    looks: Mutex<Looks>,
}

impl FileTable {
    /// Blocks. With errors there is no table.
    pub fn open(reference: Reference) -> Result<(Self, Report), Report> {
        let (loaded, seen) = load_seen(&reference);
        let Loaded { table, report } = loaded?;
        Ok((
            Self { reference, slot: Slot::new(table), looks: Mutex::new(Looks { last: seen.clone(), read: seen }) },
            report,
        ))
    }

    /// The version in force.
    pub fn table(&self) -> Arc<Table> {
        self.slot.get()
    }

    /// Looks whether the files have been replaced, and reads them if so. Blocks.
    pub fn refresh(&self) -> Refreshed {
        let mut looks = self.looks.lock();
        let now: Seen = looks.read.iter().map(|(path, _)| (path.clone(), stamp_of(path))).collect();
        let is_still = looks.last == now;
        looks.last.clone_from(&now);
        if looks.read == now || !is_still && !are_others(&looks.read, &now) {
            return Refreshed::Same;
        }
        match load_seen(&self.reference) {
            (Ok(Loaded { table, report }), read) => {
                looks.last.clone_from(&read);
                looks.read = read;
                self.slot.replace(table);
                Refreshed::Replaced(report)
            }
            (Err(report), _) => {
                looks.read = now;
                Refreshed::Kept(report)
            }
        }
    }
}
