//! A directory of a real file system, locked against a second process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags};

use super::handles::{Handle, Handles};
use super::{Disk, DiskFile};
use crate::error::JournalError;

const LOCK_NAME: &str = "lock";
/// With fewer free inodes than this the disk counts as full.
const INODES_MIN: u64 = 4;
/// Mail is private: only the owner reads segments.
const FILE_MODE: u32 = 0o600;

/// A directory that only this process may use, for as long as the value lives.
pub struct RealDisk {
    directory: PathBuf,
    handle: File,
    handles: Arc<Handles>,
    /// The lock, unless the disk is read-only.
    lock: Option<File>,
}

impl RealDisk {
    /// Creates the directory if needed, and locks it.
    ///
    /// Errors: [`JournalError::InUse`] if another process has it, [`JournalError::Io`] otherwise.
    pub fn open(directory: &Path) -> Result<RealDisk, JournalError> {
        let shown = directory.display().to_string();
        create_durably(directory).map_err(JournalError::io(&shown))?;
        let lock = take_lock(&directory.join(LOCK_NAME))?;
        let handle = File::open(directory).map_err(JournalError::io(&shown))?;
        Ok(RealDisk { directory: directory.to_owned(), handle, handles: Arc::default(), lock: Some(lock) })
    }

    /// Opens without a lock, for reading only: nothing can be created or written. For programs that inspect a stopped
    /// store.
    pub fn open_unlocked(directory: &Path) -> Result<RealDisk, JournalError> {
        let shown = directory.display().to_string();
        let handle = File::open(directory).map_err(JournalError::io(&shown))?;
        Ok(RealDisk { directory: directory.to_owned(), handle, handles: Arc::default(), lock: None })
    }

    /// Whether another process holds the store's lock, and its pid if the lock file names one. Changes nothing.
    pub fn holder(directory: &Path) -> io::Result<Option<Option<u32>>> {
        let mut file = match File::open(directory.join(LOCK_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // A shared lock is enough to find out, and is released at once with the file.
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(read_pid(&mut file))),
            Err(TryLockError::Error(source)) => Err(source),
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the store was opened for reading only"))
    }
}

/// Creates a directory and its missing parents, and makes all their names durable: otherwise a power cut could lose the
/// whole store. A killed start may have just created an existing directory, so its name is synced in any case.
fn create_durably(directory: &Path) -> io::Result<()> {
    let made = directory.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).count();
    fs::create_dir_all(directory)?;
    for path in directory.ancestors().take(made.max(1)) {
        let Some(parent) = path.parent() else { break };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn take_lock(path: &Path) -> Result<File, JournalError> {
    let shown = path.display().to_string();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path)
        .map_err(JournalError::io(&shown))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(JournalError::InUse { pid: read_pid(&mut file) });
        }
        Err(TryLockError::Error(source)) => return Err(JournalError::Io { file: shown, source }),
    }
    // The pid is only for people; a failure to write it (a full disk) must not stop the start.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    text.trim().parse().ok()
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        // A child forked a moment ago has a copy of the descriptor until its exec: closing ours would leave it locked.
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let handle = self.handles.open(&self.directory.join(name), self.lock.is_none())?;
        Ok(Arc::new(RealFile { handle, handles: Arc::clone(&self.handles) }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.check_writable()?;
        let path = self.directory.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        let handle = self.handles.adopt(&path, file);
        Ok(Arc::new(RealFile { handle, handles: Arc::clone(&self.handles) }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::remove_file(self.directory.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let figures = rustix::fs::fstatvfs(&self.handle)?;
        // Without inodes no new file can use the room. (A file system without a fixed number of inodes reports 0 of 0.)
        if figures.f_files > 0 && figures.f_favail < INODES_MIN {
            return Ok(0);
        }
        Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
    }
}

struct RealFile {
    handle: Arc<Handle>,
    handles: Arc<Handles>,
}

impl RealFile {
    fn reading(&self) -> io::Result<Arc<File>> {
        self.handles.file(&self.handle, false)
    }

    fn writing(&self) -> io::Result<Arc<File>> {
        self.handles.file(&self.handle, true)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.reading()?;
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writing()?.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let outcome = self.reading()?.sync_data();
        // After a failure the file is abandoned, so it need not stay open.
        self.handle.synced();
        outcome
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.reading()?.metadata()?.len())
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let file = self.writing()?;
        match rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, len) {
            // The file system cannot reserve space: the zero-fill that follows allocates it.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(len),
            other => Ok(other?),
        }
    }

    fn sync_and_drop_cache(&self) -> io::Result<()> {
        self.sync_data()?;
        // Only advice: if it is not followed, reads return what the kernel believes to be on the medium.
        let _ = rustix::fs::fadvise(&*self.reading()?, 0, None, Advice::DontNeed);
        Ok(())
    }
}
