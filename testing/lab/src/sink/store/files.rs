//! One file per message, in one directory or in hashed ones.
//!
//! A file is created under an unused name, written, synced and closed; after a failure it is removed. A crash may leave
//! files that were never acknowledged, whole or in part. Names are unique in a directory across restarts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use super::{Meter, StoreAs, StoreOptions, Sync};

pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Directories in the store, and in each of those.
const BRANCHES: u64 = 16;

pub(super) struct Files {
    directory: PathBuf,
    /// For syncs of the names in it.
    handle: File,
    hashed: bool,
    sync: Sync,
    /// Of this start, in the names.
    start: String,
    next: AtomicU64,
}

impl Files {
    /// Hashed directories are made at once, so that no message pays for them.
    pub fn open(options: &StoreOptions) -> io::Result<Files> {
        let directory = options.directory.clone();
        fs::create_dir_all(&directory)?;
        let hashed = options.as_ == StoreAs::Hashed;
        if hashed {
            for branch in 0..BRANCHES {
                let branch = directory.join(format!("{branch:x}"));
                for twig in 0..BRANCHES {
                    fs::create_dir_all(branch.join(format!("{twig:x}")))?;
                }
                if options.sync == Sync::FileAndDirectory {
                    File::open(&branch)?.sync_all()?;
                }
            }
        }
        let handle = File::open(&directory)?;
        if options.sync == Sync::FileAndDirectory {
            handle.sync_all()?;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = format!("{:x}-{:x}", since.as_millis(), std::process::id());
        Ok(Files { directory, handle, hashed, sync: options.sync, start, next: AtomicU64::new(0) })
    }

    pub fn store(&self, body: &[u8], meter: &Meter) -> io::Result<()> {
        let name = format!("{}-{:08x}.eml", self.start, self.next.fetch_add(1, Relaxed));
        let folder = if self.hashed {
            let hash = xxh3_64(name.as_bytes());
            self.directory.join(format!("{:x}/{:x}", hash / BRANCHES % BRANCHES, hash % BRANCHES))
        } else {
            self.directory.clone()
        };
        let path = folder.join(name);
        let written = self.write(&path, &folder, body, meter);
        if written.is_err() {
            // Refused, so it must not be found; if it cannot be removed either, that is the same disk's failure.
            let _ = fs::remove_file(&path);
        }
        written
    }

    fn write(&self, path: &Path, folder: &Path, body: &[u8], meter: &Meter) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(body)?;
        if self.sync == Sync::None {
            return Ok(());
        }
        file.sync_all()?;
        meter.syncs.fetch_add(1, Relaxed);
        if self.sync == Sync::FileAndDirectory {
            if self.hashed { File::open(folder)?.sync_all() } else { self.handle.sync_all() }?;
            meter.syncs.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}
