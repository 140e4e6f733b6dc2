//! The journal's interface to a disk: one flat directory of files. Tests inject faults by implementing it
//! ([`sim::SimDisk`]).
//!
//! Contract of an implementation: after `sync_data` returns `Ok`, everything written to the file before survives a
//! power cut; after `sync_dir` returns `Ok`, so do the names created, renamed and removed before. Nothing else is
//! promised.

mod handles;
pub mod real;
pub mod sim;

use std::io;
use std::sync::Arc;

/// A flat directory of files, used by one journal at a time. All calls may come from any thread.
pub trait Disk: Send + Sync {
    /// Names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file for reading and writing. The name must stay for as long as the file is used: an
    /// implementation may open it again.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a file that must not exist yet.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Removes the name of a file that is not in use.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes all names durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Bytes that may still be allocated in new files.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// Reads into `buffer` from `offset`; fewer bytes than requested only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`, or fails, possibly after writing a part of it.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything written so far durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Size of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reserves `len` bytes and extends the file to them.
    fn preallocate(&self, len: u64) -> io::Result<()>;
    /// Makes the next reads return the data on the medium: syncs, and drops caches where possible.
    fn sync_and_drop_cache(&self) -> io::Result<()> {
        self.sync_data()
    }
}
