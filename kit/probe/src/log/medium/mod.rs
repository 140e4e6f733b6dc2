//! The target of records: files in a given state, written in a given way; and which of these are unavailable here.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};

use super::plan::{Cell, FileKind, SyncCall, Way};
pub use crate::trouble::Trouble;

use super::record::{EpochRecords, Scan};
use super::uring::{Durable, Ring};

const FILL_BYTES: usize = 1 << 20;
/// Addresses of buffers for `O_DIRECT` are multiples of this; no device wants more.
const ALIGN_BYTES: usize = 4096;

/// A log under measurement.
pub trait Log: Send {
    /// Whether so many octets more can be committed at once.
    fn has_room(&mut self, bytes: u64) -> bool;
    /// One record or several, in one piece; durable after the next commit.
    fn append(&mut self, records: &[u8]) -> io::Result<()>;
    /// Makes all durable; the nanoseconds of the call that did it.
    fn commit(&mut self) -> io::Result<u64>;
    /// What is in it, when the measurement is over. Only what can still be there: a ring has lost its oldest.
    fn found(&mut self, record_bytes: usize, epoch: u32) -> io::Result<EpochRecords>;
    /// Older records have been overwritten.
    fn has_wrapped(&self) -> bool;
}

/// Octets whose address suits `O_DIRECT`.
struct Gather {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Gather {
    fn new() -> Gather {
        Gather { bytes: Vec::new(), begin: 0, len: 0 }
    }

    fn append(&mut self, bytes: &[u8]) {
        let needed = self.len + bytes.len();
        if self.begin + needed > self.bytes.len() {
            let mut grown = vec![0; needed.next_power_of_two().max(1 << 16) + ALIGN_BYTES];
            let begin = grown.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
            grown[begin..begin + self.len].copy_from_slice(&self.bytes[self.begin..self.begin + self.len]);
            (self.bytes, self.begin) = (grown, begin);
        }
        let at = self.begin + self.len;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len = needed;
    }

    /// All of it, with zeros up to a multiple of `block`.
    fn padded(&mut self, block: usize) -> &[u8] {
        let missing = self.len.next_multiple_of(block) - self.len;
        if missing > 0 {
            self.append(&[0; ALIGN_BYTES][..missing]);
        }
        &self.bytes[self.begin..self.begin + self.len]
    }
}

/// A file.
pub struct FileLog {
    path: PathBuf,
    file: File,
    way: Way,
    sync: SyncCall,
    gather: Gather,
    ring: Option<Ring>,
    /// Commits begin at multiples of this.
    block: usize,
    offset: u64,
    /// No write goes beyond.
    end: u64,
    /// At the end it begins again.
    is_ring: bool,
    has_wrapped: bool,
}

impl FileLog {
    /// Makes the file as the cell wants it. Nothing of that is left to be written back afterwards. With `reuse` a file
    /// of the same name and length is taken as it is. `block`: the device's logical block.
    pub fn open(
        folder: &Path,
        writer: u64,
        bytes: u64,
        cell: &Cell,
        reuse: bool,
        block: usize,
    ) -> Result<FileLog, Trouble> {
        let kind = cell.file;
        let path = folder.join(format!("{}-{writer}.log", super::plan::word(kind)));
        let is_there = path.metadata().is_ok_and(|data| data.len() == bytes);
        let keep = is_there && (kind == FileKind::Recycled || (reuse && kind != FileKind::Growing));
        if !keep {
            if !reuse && path.exists() {
                std::fs::remove_file(&path)?;
            }
            make(&path, kind, bytes)?;
        }
        let mut flags = OFlags::empty();
        if cell.way.is_direct() {
            flags |= OFlags::DIRECT;
            // A direct write to a page in the cache has to throw it out first.
            fadvise(&File::open(&path)?, 0, None, Advice::DontNeed).map_err(io::Error::from)?;
        }
        if cell.way.is_dsync() && !cell.way.is_uring() {
            flags |= OFlags::DSYNC;
        }
        let file = OpenOptions::new()
            .read(!cell.way.is_direct())
            .write(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput if cell.way.is_direct() => {
                Trouble::NotHere("this file system has no O_DIRECT".to_owned())
            }
            _ => Trouble::Io(error),
        })?;
        let ring = if cell.way.is_uring() { Some(Ring::new().map_err(|error| no_ring(&error))?) } else { None };
        let block = if cell.way.is_direct() { block.clamp(512, ALIGN_BYTES) } else { 1 };
        let is_ring = kind == FileKind::Recycled;
        let (way, sync, gather) = (cell.way, cell.sync, Gather::new());
        Ok(FileLog { path, file, way, sync, gather, ring, block, offset: 0, end: bytes, is_ring, has_wrapped: false })
    }

    fn sync(&self) -> io::Result<()> {
        match self.sync {
            SyncCall::Fdatasync => self.file.sync_data(),
            SyncCall::Fsync => self.file.sync_all(),
        }
    }

    /// One write of what was gathered, and the sync; nanoseconds of the sync, or of both where they are one.
    fn write_gathered(&mut self) -> io::Result<u64> {
        let bytes = self.gather.padded(self.block);
        let offset = self.offset;
        let begin = Instant::now();
        match self.ring.as_mut() {
            Some(ring) => {
                let durable = if self.way.is_dsync() { Durable::Dsync } else { Durable::Linked(self.sync) };
                ring.write(&self.file, bytes, offset, durable)?;
            }
            None => self.file.write_all_at(bytes, offset)?,
        }
        self.offset += bytes.len() as u64;
        self.gather.len = 0;
        if self.way.sync_has_write() {
            return Ok(nanos_since(begin));
        }
        let begin = Instant::now();
        self.sync()?;
        Ok(nanos_since(begin))
    }
}

impl Log for FileLog {
    fn has_room(&mut self, bytes: u64) -> bool {
        let bytes = bytes.next_multiple_of(self.block as u64);
        if self.offset + bytes <= self.end {
            return true;
        }
        if !self.is_ring || bytes > self.end {
            return false;
        }
        self.offset = 0;
        self.has_wrapped = true;
        // Of write(2). It cannot fail on a regular file.
        self.way != Way::Write || self.file.seek(SeekFrom::Start(0)).is_ok()
    }

    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        match self.way {
            Way::Write => self.file.write_all(records)?,
            Way::Pwrite => self.file.write_all_at(records, self.offset)?,
            _ => {
                self.gather.append(records);
                return Ok(());
            }
        }
        self.offset += records.len() as u64;
        Ok(())
    }

    fn commit(&mut self) -> io::Result<u64> {
        if self.way.is_gathered() {
            return self.write_gathered();
        }
        let begin = Instant::now();
        self.sync()?;
        Ok(nanos_since(begin))
    }

    fn found(&mut self, record_bytes: usize, epoch: u32) -> io::Result<EpochRecords> {
        let file = File::open(&self.path)?;
        // All is durable, so that the cache can go: what is read next is what the device has.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        let mut scan = Scan::new(record_bytes, epoch);
        scan.read_all(&mut file.take(self.end))?;
        Ok(scan.end())
    }

    fn has_wrapped(&self) -> bool {
        self.has_wrapped
    }
}

pub fn nanos_since(begin: Instant) -> u64 {
    begin.elapsed().as_nanos() as u64
}

fn no_ring(error: &io::Error) -> Trouble {
    Trouble::NotHere(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or seccomp)".to_owned()
        }
        io::ErrorKind::Unsupported => "this kernel has no io_uring, or seccomp hides it".to_owned(),
        _ => format!("io_uring cannot be set up: {error}"),
    })
}

/// The file in its state, and durable with its name.
fn make(path: &Path, kind: FileKind, bytes: u64) -> Result<(), Trouble> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    match kind {
        FileKind::Growing => {}
        FileKind::Preallocated => {
            fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(|error| match error {
                rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS => {
                    Trouble::NotHere("this file system cannot preallocate (fallocate)".to_owned())
                }
                error => Trouble::Io(error.into()),
            })?;
        }
        FileKind::Zeroed | FileKind::Recycled => {
            // What is to be recycled has been written with octets that no file system keeps apart (holes, compression).
            let mut fill = vec![0; FILL_BYTES];
            if kind == FileKind::Recycled {
                fastrand::Rng::with_seed(bytes).fill(&mut fill);
            }
            let mut left = bytes;
            while left > 0 {
                let len = left.min(FILL_BYTES as u64);
                file.write_all(&fill[..len as usize])?;
                left -= len;
            }
        }
    }
    file.sync_all()?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
