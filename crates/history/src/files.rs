//! The writer's view of the directory: its files, the one being written, and the ones to delete.
//!
//! The first record after a start begins a new file, after all others: file numbers only grow, so that a position
//! always refers to the same records. The oldest files are deleted first, by size ([`Limits::bytes_max`]) and by age. A
//! failed write is undone as far as the file system allows, that file is closed, and nothing is tried for [`RETRY_MS`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_records::record::Ms;

use crate::file::{FILE_HEADER_BYTES, FileHeader, Walk, list, path_of};

/// Pause after an I/O error.
pub const RETRY_MS: Ms = 5_000;
/// A file is closed after this time at the latest, so that old files can be deleted day by day.
const FILE_MS_MAX: Ms = 24 * 3_600_000;
/// One part in this many of the total size is the limit for one file, so that deleting the oldest loses little.
const FILE_SHARE: u64 = 16;
const FILE_BYTES: std::ops::RangeInclusive<u64> = 256 * 1024..=64 * 1024 * 1024;
/// Largest number of files kept; many restarts make many small ones.
const FILES_MAX: usize = 2_048;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes_max: u64,
    pub keep_ms: Ms,
    /// Free space to leave on the file system.
    pub free_bytes_min: u64,
}

struct ClosedFile {
    file: u64,
    bytes: u64,
    /// When it was last written.
    last_ms: Ms,
}

struct Open {
    handle: File,
    file: u64,
    bytes: u64,
    created_ms: Ms,
    last_ms: Ms,
}

pub struct Files {
    dir: PathBuf,
    limits: Limits,
    /// Closed files, oldest first.
    closed: Vec<ClosedFile>,
    open: Option<Open>,
    /// Number of the next record.
    pub next_record: u64,
    next_file: u64,
    is_dirty: bool,
}

impl Files {
    /// Creates the directory if needed, and cuts the torn tail of the newest file.
    pub fn open(dir: &Path, limits: Limits, now: Ms) -> io::Result<Files> {
        fs::create_dir_all(dir)?;
        let mut files = Files {
            dir: dir.to_owned(),
            limits,
            closed: Vec::new(),
            open: None,
            next_record: 0,
            // File numbers must grow even after the directory was emptied.
            next_file: now / 1_000 + 1,
            is_dirty: false,
        };
        let numbers = list(dir)?;
        for file in &numbers {
            let metadata = match path_of(dir, *file).metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
            files.closed.push(ClosedFile { file: *file, bytes: metadata.len(), last_ms: ms_of(modified) });
            files.next_file = files.next_file.max(file + 1);
        }
        for closed in files.closed.iter_mut().rev() {
            let (end, first) = cut_tail(&path_of(dir, closed.file))?;
            closed.bytes = end;
            if let Some(first) = first {
                files.next_record = first;
                break;
            }
        }
        files.prune(now, 0);
        Ok(files)
    }

    pub fn bytes(&self) -> u64 {
        self.closed.iter().map(|closed| closed.bytes).sum::<u64>() + self.open.as_ref().map_or(0, |open| open.bytes)
    }

    pub fn count(&self) -> usize {
        self.closed.len() + usize::from(self.open.is_some())
    }

    /// Whether the file system has room for `bytes` besides the space that must stay free.
    pub fn has_room(&self, bytes: u64) -> io::Result<bool> {
        let figures = rustix::fs::statvfs(&self.dir)?;
        let free = figures.f_bavail.saturating_mul(figures.f_frsize);
        Ok(free.saturating_sub(bytes) > self.limits.free_bytes_min)
    }

    /// Appends blocks that hold `records` from [`Files::next_record`] on.
    pub fn append(&mut self, bytes: &[u8], records: u64, now: Ms) -> io::Result<()> {
        let file_bytes_max = (self.limits.bytes_max / FILE_SHARE).clamp(*FILE_BYTES.start(), *FILE_BYTES.end());
        let is_over = |open: &Open| {
            open.bytes + bytes.len() as u64 > file_bytes_max || now.saturating_sub(open.created_ms) > FILE_MS_MAX
        };
        if self.open.as_ref().is_some_and(is_over) {
            self.close()?;
        }
        self.prune(now, bytes.len() as u64 + FILE_HEADER_BYTES as u64);
        if self.open.is_none() {
            self.open = Some(self.begin(now)?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if let Err(error) = open.handle.write_all(bytes) {
            // Cut what was written of it; if that fails too, a reader skips it.
            let _ = open.handle.set_len(open.bytes);
            self.abandon();
            return Err(error);
        }
        open.bytes += bytes.len() as u64;
        open.last_ms = now;
        self.next_record += records;
        self.is_dirty = true;
        Ok(())
    }

    fn begin(&mut self, now: Ms) -> io::Result<Open> {
        let file = self.next_file;
        let path = path_of(&self.dir, file);
        let mut handle = OpenOptions::new().append(true).create_new(true).mode(0o640).open(&path)?;
        self.next_file += 1;
        let header = FileHeader { file, first: self.next_record, created_ms: now };
        if let Err(error) = handle.write_all(&header.bytes()) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        // A consumer may store a position in it from the first record on: its name must not be reused after a power
        // cut.
        File::open(&self.dir)?.sync_all()?;
        Ok(Open { handle, file, bytes: FILE_HEADER_BYTES as u64, created_ms: now, last_ms: now })
    }

    /// Syncs appended octets.
    pub fn sync(&mut self) -> io::Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        self.is_dirty = false;
        if let Some(open) = &self.open
            && let Err(error) = open.handle.sync_data()
        {
            // Never sync a file again whose sync has failed.
            self.abandon();
            return Err(error);
        }
        Ok(())
    }

    /// Syncs and closes a file that is full or old.
    fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        self.abandon();
        Ok(())
    }

    fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            self.closed.push(ClosedFile { file: open.file, bytes: open.bytes, last_ms: open.last_ms });
        }
        self.is_dirty = false;
    }

    /// Deletes the oldest files until the rest is within all limits, with room for `more` octets.
    pub fn prune(&mut self, now: Ms, more: u64) {
        let too_old = now.saturating_sub(self.limits.keep_ms);
        while let Some(oldest) = self.closed.first() {
            let must_go = self.bytes() + more > self.limits.bytes_max
                || oldest.last_ms < too_old
                || self.closed.len() >= FILES_MAX;
            if !must_go {
                break;
            }
            if let Err(error) = fs::remove_file(path_of(&self.dir, oldest.file))
                && error.kind() != io::ErrorKind::NotFound
            {
                break;
            }
            self.closed.remove(0);
        }
    }
}

/// Cuts the octets after a file's last sound block. Returns the end of that block, and one past the number of its last
/// record; `None` if the file is not ours, or its header was torn.
fn cut_tail(path: &Path) -> io::Result<(u64, Option<u64>)> {
    let handle = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = handle.metadata()?.len();
    let mut header = [0; FILE_HEADER_BYTES];
    let read = crate::file::Source::read(&handle, 0, &mut header)?;
    let Some(header) = FileHeader::parse(&header[..read]) else { return Ok((bytes, None)) };
    let mut walk = Walk::new(handle.try_clone()?, FILE_HEADER_BYTES as u64)?;
    let (mut next, mut end) = (header.first, walk.at());
    let mut last = None;
    while let Some(found) = walk.next()? {
        next = found.header.end();
        end = walk.at();
        last = Some(found);
    }
    // A torn write may have left only the header of the block.
    if let Some(last) = last
        && !walk.records(&last, &mut Vec::new())?
    {
        (next, end) = (last.header.first, last.at);
    }
    if end < bytes {
        handle.set_len(end)?;
    }
    Ok((end, Some(next)))
}

fn ms_of(time: SystemTime) -> Ms {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as Ms)
}
