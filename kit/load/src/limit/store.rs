//! The minimum for durability: one preallocated file, and a sync for each message or for all that arrived together.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Written with zeroes at the start, then over and over: no block is allocated while it is measured.
const FILE_BYTES: usize = 64 << 20;
const ZEROES_BYTES: usize = 1 << 20;

/// What is done with a message before its 250.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keep {
    Nothing,
    /// Written and synced, each by itself; the file is made in this folder.
    Each(PathBuf),
    /// Written and synced together with all others that have come until then.
    Group(PathBuf),
}

/// The file; removed when dropped.
#[derive(Debug)]
pub(super) struct Store {
    file: File,
    path: PathBuf,
    at: usize,
    pub batch: Vec<u8>,
    pub syncs: u64,
}

impl Store {
    pub fn make(folder: &Path) -> io::Result<Store> {
        let path = folder.join("messages");
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let store = Store { file, path, at: 0, batch: Vec::new(), syncs: 0 };
        let zeroes = vec![0; ZEROES_BYTES];
        for at in (0..FILE_BYTES).step_by(ZEROES_BYTES) {
            store.file.write_all_at(&zeroes, at as u64)?;
        }
        store.file.sync_all()?;
        Ok(store)
    }

    /// Makes the batch durable.
    pub fn commit(&mut self) -> io::Result<()> {
        for part in self.batch.chunks(FILE_BYTES) {
            if self.at + part.len() > FILE_BYTES {
                self.at = 0;
            }
            self.file.write_all_at(part, self.at as u64)?;
            self.at += part.len();
        }
        self.file.sync_data()?;
        self.syncs += 1;
        self.batch.clear();
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
