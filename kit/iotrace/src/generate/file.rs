//! The file of a run, in the required state before its first operation.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, OFlags};
use stentor_measure::MeasureError;

use crate::generate::block::Block;
use crate::operation::{Access, FileState, Order, Path as Way, Sync, Work};

/// The file or files of a run.
#[derive(Debug)]
pub struct Target {
    folder: PathBuf,
    work: Work,
    key: u64,
    /// Slot of each operation.
    slots: Vec<u64>,
    /// The file of all operations; none where each has its own.
    file: Option<File>,
}

impl Target {
    /// Prepares it, and syncs that, so that it is no part of what is traced.
    pub fn prepare(folder: &Path, work: Work, count: u32, key: u64) -> Result<Target, MeasureError> {
        let mut slots: Vec<u64> = (0..u64::from(count)).collect();
        if work.order == Order::Random {
            fastrand::Rng::with_seed(key).shuffle(&mut slots);
        }
        let mut target = Target { folder: folder.to_owned(), work, key, slots, file: None };
        let is_written_before = work.access == Access::Read || work.file == FileState::Recycled;
        if work.access == Access::Write && work.file == FileState::New {
            return Ok(target);
        }
        let path = target.path(0);
        let plain = File::create(&path).map_err(MeasureError::file(&path))?;
        let bytes = u64::from(work.size) * u64::from(count);
        if is_written_before {
            let mut block = Block::new(work.size as usize);
            for slot in 0..u64::from(count) {
                // For reads what is to be found; for writes something else.
                block.fill(if work.access == Access::Read { key } else { !key }, slot);
                plain.write_all_at(block.bytes(), slot * u64::from(work.size)).map_err(MeasureError::file(&path))?;
            }
        } else if work.file == FileState::Preallocated {
            rustix::fs::fallocate(&plain, FallocateFlags::empty(), 0, bytes).map_err(|error| {
                MeasureError::Refused(format!(
                    "{}: this file system cannot reserve blocks ({error}); omit `preallocated` from --file",
                    path.display()
                ))
            })?;
        }
        plain.sync_all().map_err(MeasureError::file(&path))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(MeasureError::file(folder))?;
        if work.access == Access::Read {
            // So that the device is asked. Advice: a file system may keep it.
            let _ = rustix::fs::fadvise(&plain, 0, None, Advice::DontNeed);
        }
        target.file = Some(target.open(0)?);
        Ok(target)
    }

    fn path(&self, operation: usize) -> PathBuf {
        let is_own = self.work.file == FileState::New && self.work.access == Access::Write;
        self.folder.join(if is_own { format!("file-{operation}") } else { "file".to_owned() })
    }

    fn open(&self, operation: usize) -> Result<File, MeasureError> {
        let path = self.path(operation);
        let mut flags = OFlags::empty();
        if self.work.path == Way::Direct {
            flags |= OFlags::DIRECT;
        }
        if self.work.sync == Sync::Dsync && self.work.access == Access::Write {
            flags |= OFlags::DSYNC;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags.bits().cast_signed());
        options.open(&path).map_err(|source| {
            if source.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) && self.work.path == Way::Direct {
                return MeasureError::Refused(format!(
                    "{}: this file system has no direct I/O; omit `direct` from --path",
                    path.display()
                ));
            }
            MeasureError::File { path, source }
        })
    }

    /// The file of an operation, opened before tracing goes on.
    pub fn opened(&mut self, operation: usize) -> Result<&File, MeasureError> {
        let is_own = self.work.file == FileState::New && self.work.access == Access::Write;
        let file = match self.file.take() {
            Some(file) if !is_own => file,
            _ => self.open(operation)?,
        };
        Ok(self.file.insert(file))
    }

    pub fn path_of(&self, operation: usize) -> PathBuf {
        self.path(operation)
    }

    /// Where in its file an operation is.
    pub fn offset(&self, operation: usize) -> u64 {
        if self.work.file == FileState::New && self.work.access == Access::Write {
            0
        } else {
            self.slots[operation] * u64::from(self.work.size)
        }
    }

    /// What a block that is read at an operation's place must have.
    pub fn sequence(&self, operation: usize) -> u64 {
        if self.work.access == Access::Read { self.slots[operation] } else { operation as u64 }
    }

    /// Reads what was written: every block must have its key and number.
    pub fn verify(&mut self, operations: usize) -> Result<(), MeasureError> {
        self.file = None;
        if self.work.access == Access::Read {
            return Ok(());
        }
        let mut block = Block::new(self.work.size as usize);
        for operation in 0..operations {
            let path = self.path(operation);
            let file = File::open(&path).map_err(MeasureError::file(&path))?;
            file.read_exact_at(block.bytes_mut(), self.offset(operation)).map_err(MeasureError::file(&path))?;
            block.check(self.key, operation as u64).map_err(|what| wrong(&path, &what))?;
        }
        Ok(())
    }

    /// Removes the files.
    pub fn remove(self) {
        for operation in 0..self.slots.len() {
            if fs::remove_file(self.path(operation)).is_err() {
                break;
            }
        }
    }
}

/// What was read is not what was written.
pub fn wrong(path: &Path, what: &str) -> MeasureError {
    MeasureError::Refused(format!(
        "{}: {what}: the storage returned other data than was written; do not trust it, check the kernel log",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_prepared_and_lost_writes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for file in [FileState::New, FileState::Growing, FileState::Preallocated, FileState::Recycled] {
            for order in [Order::Sequential, Order::Random] {
                let work =
                    Work { access: Access::Write, order, path: Way::Buffered, sync: Sync::None, file, size: 600 };
                let mut target = Target::prepare(folder.path(), work, 5, 42).unwrap();
                let mut block = Block::new(600);
                for operation in 0..5 {
                    let offset = target.offset(operation);
                    block.fill(42, target.sequence(operation));
                    target.opened(operation).unwrap().write_all_at(block.bytes(), offset).unwrap();
                }
                target.verify(5).unwrap();
                block.fill(42, 99);
                let offset = target.offset(3);
                target.opened(3).unwrap().write_all_at(block.bytes(), offset).unwrap();
                let error = target.verify(5).unwrap_err().to_string();
                assert!(error.contains("found key 2a, block 99"), "{error}");
                target.remove();
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn what_is_to_be_read_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work {
            access: Access::Read,
            order: Order::Random,
            path: Way::Buffered,
            sync: Sync::None,
            file: FileState::Recycled,
            size: 512,
        };
        let mut target = Target::prepare(folder.path(), work, 8, 7).unwrap();
        let mut block = Block::new(512);
        for operation in 0..8 {
            let (offset, sequence) = (target.offset(operation), target.sequence(operation));
            target.opened(operation).unwrap().read_exact_at(block.bytes_mut(), offset).unwrap();
            block.check(7, sequence).unwrap();
        }
    }
}
