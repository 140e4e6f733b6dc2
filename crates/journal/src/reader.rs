//! Reads content from any thread, while the committer goes on.
//!
//! Promise: the bytes are those of the requested content, or the result is `NotFound`. A reader gets the segment's file
//! from the shared map under the same short lock as the look-up of the content, and holds it while it reads. A segment
//! is recycled only after it was removed from that map and nobody holds it any more.

use std::io;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::disk::DiskFile;
use crate::table::{Extent, Table};

/// State shared by committer and readers.
#[derive(Default)]
pub(crate) struct Contents {
    pub table: Table,
    /// Files of all segments in use, by generation.
    pub files: HashMap<u32, Arc<dyn DiskFile>>,
}

pub(crate) type Shared = Arc<RwLock<Contents>>;

/// A run of bytes and the file that contains it.
type Part = (Option<Arc<dyn DiskFile>>, Extent);

/// Where content is read.
pub(crate) trait ContentSource: Send + Sync {
    fn len(&self, id: u64) -> Option<u64>;
    fn read(&self, id: u64, is_begun: bool, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Reads content by id; cheap to clone.
#[derive(Clone)]
pub struct ContentReader {
    source: Arc<dyn ContentSource>,
}

impl ContentReader {
    pub(crate) fn of(source: Arc<dyn ContentSource>) -> ContentReader {
        ContentReader { source }
    }

    /// Length of a complete content in bytes; `None` if it is unknown, incomplete or dropped.
    pub fn len(&self, id: u64) -> Option<u64> {
        self.source.len(id)
    }

    /// Reads from `offset` into `buffer`, as far as both go; 0 at the end.
    ///
    /// Errors: `NotFound` if the content is unknown, incomplete or dropped; otherwise the disk's error.
    pub fn read_at(&self, id: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(id, false, offset, buffer)
    }

    /// Reads like [`ContentReader::read_at`], but also from a content whose last piece has not been written: the bytes
    /// synced so far.
    ///
    /// Errors: as [`ContentReader::read_at`], except that the content may be incomplete.
    pub fn read_begun(&self, id: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(id, true, offset, buffer)
    }
}

impl ContentSource for RwLock<Contents> {
    fn len(&self, id: u64) -> Option<u64> {
        RwLock::read(self).table.progress(id).filter(|progress| progress.complete).map(|progress| progress.len)
    }

    fn read(&self, id: u64, is_begun: bool, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut parts: SmallVec<[Part; 2]> = SmallVec::new();
        {
            let contents = RwLock::read(self);
            contents
                .table
                .locate(id, is_begun, offset, buffer.len() as u64, |extent| {
                    parts.push((contents.files.get(&extent.generation).cloned(), extent));
                })
                .ok_or(io::ErrorKind::NotFound)?;
        }
        let mut done = 0;
        for (file, extent) in parts {
            let file = file.ok_or(io::ErrorKind::NotFound)?;
            let part = &mut buffer[done..done + extent.len as usize];
            if file.read_at(extent.offset.into(), part)? != part.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += part.len();
        }
        Ok(done)
    }
}
