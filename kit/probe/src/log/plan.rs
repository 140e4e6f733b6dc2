//! The plan: a cell is one row of the table, a combination of the options' values.

use std::fmt;

use clap::ValueEnum;

/// Records that wait for the committer take no more memory than this; who hands in more waits.
const PENDING_BYTES_MAX: u64 = 64 << 20;

/// In which state a log's file is when it is appended to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum FileKind {
    /// Empty: each commit makes it longer, so that its size must be made durable too.
    Growing,
    /// Its room reserved (fallocate) and never written: each commit turns a part of it into written.
    Preallocated,
    /// Written through with zeros and synced before: a commit changes no metadata but times.
    Zeroed,
    /// Records of before are overwritten, from the start again at its end, as a ring.
    Recycled,
}

/// How records get into the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Way {
    /// One write(2) a record at the file's position, then a sync.
    Write,
    /// One pwrite(2) a record, then a sync.
    Pwrite,
    /// One pwrite(2) a commit, then a sync.
    Gathered,
    /// One pwrite(2) a commit on a file opened with `O_DSYNC`.
    Dsync,
    /// One pwrite(2) a commit with `O_DIRECT`, padded to the device's blocks, then a sync.
    Direct,
    /// One pwrite(2) a commit with `O_DIRECT` and `O_DSYNC`, padded.
    DirectDsync,
    /// A write linked with a sync in one submission to `io_uring`, a commit.
    Uring,
    /// One write with `RWF_DSYNC` by `io_uring`, a commit.
    UringDsync,
    /// Stentor's own journal: batches with checksums in zero-filled, then recycled segments.
    Journal,
}

impl Way {
    /// No sync call of its own: the write itself is what makes it durable.
    pub fn is_dsync(self) -> bool {
        matches!(self, Way::Dsync | Way::DirectDsync | Way::UringDsync)
    }

    pub fn is_direct(self) -> bool {
        matches!(self, Way::Direct | Way::DirectDsync)
    }

    pub fn is_uring(self) -> bool {
        matches!(self, Way::Uring | Way::UringDsync)
    }

    /// The records of a commit are brought together and written by one call.
    pub fn is_gathered(self) -> bool {
        !matches!(self, Way::Write | Way::Pwrite | Way::Journal)
    }

    /// What is timed as sync latency has the write in it.
    pub fn sync_has_write(self) -> bool {
        self.is_dsync() || self.is_uring()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum SyncCall {
    Fdatasync,
    Fsync,
}

/// Who syncs where there are several writers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Commit {
    /// Each writer has a file of its own and syncs it.
    Alone,
    /// One file: writers hand records to one committer, which writes and syncs for all that came while it was busy.
    Grouped,
    /// The same, and where syncs are slow it waits for as many as came the last times, by the rule of Stentor's own.
    Paced,
}

impl Commit {
    /// All writers have one file.
    pub fn is_shared(self) -> bool {
        self != Commit::Alone
    }
}

/// A line of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    pub record_bytes: u64,
    /// Records of a writer until it wants them durable: C.
    pub per_sync: u64,
    pub file: FileKind,
    pub way: Way,
    pub sync: SyncCall,
    pub writers: u64,
    pub commit: Commit,
}

/// The word of the command line.
pub fn word(value: impl ValueEnum + Copy) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Cell {
    /// Files that are written to at the same time.
    pub fn files(&self) -> u64 {
        if self.commit.is_shared() { 1 } else { self.writers }
    }

    /// Octets that a writer hands in at a time.
    pub fn lot_bytes(&self) -> u64 {
        self.record_bytes * self.per_sync
    }

    /// Most lots in a commit of a group.
    pub fn lots_max(&self) -> u64 {
        (PENDING_BYTES_MAX / self.lot_bytes()).clamp(1, self.writers)
    }

    /// `segments`: the journal makes its own files.
    pub fn file_word(&self) -> String {
        if self.way == Way::Journal { "segments".to_owned() } else { word(self.file) }
    }

    /// `-`: the write itself does it.
    pub fn sync_word(&self) -> String {
        if self.way.is_dsync() { "-".to_owned() } else { word(self.sync) }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, way) = (self.file_word(), word(self.way));
        write!(f, "{way} of {} octets, {} a sync, {file}", self.record_bytes, self.per_sync)?;
        if self.writers > 1 {
            write!(f, ", {} writers {}", self.writers, word(self.commit))?;
        }
        Ok(())
    }
}

/// All combinations that differ: where the journal or `O_DSYNC` decides, an option makes no second cell.
pub fn distinct(cells: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
    let mut kept: Vec<Cell> = Vec::new();
    for mut cell in cells {
        if cell.way == Way::Journal {
            (cell.file, cell.sync) = (FileKind::Recycled, SyncCall::Fdatasync);
        }
        if cell.way.is_dsync() {
            cell.sync = SyncCall::Fdatasync;
        }
        if !kept.contains(&cell) {
            kept.push(cell);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_difference_make_no_cell() {
        let mut cells = Vec::new();
        for way in [Way::Pwrite, Way::Dsync, Way::Journal] {
            for file in [FileKind::Growing, FileKind::Recycled] {
                for sync in [SyncCall::Fdatasync, SyncCall::Fsync] {
                    let (writers, commit) = (1, Commit::Alone);
                    cells.push(Cell { record_bytes: 512, per_sync: 1, file, way, sync, writers, commit });
                }
            }
        }
        let kept = distinct(cells);
        let count = |way| kept.iter().filter(|cell| cell.way == way).count();
        assert_eq!((count(Way::Pwrite), count(Way::Dsync), count(Way::Journal)), (4, 2, 1));
        assert_eq!(kept[0].to_string(), "pwrite of 512 octets, 1 a sync, growing");
    }
}
