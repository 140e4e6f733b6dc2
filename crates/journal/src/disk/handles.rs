//! Open files, bounded: a store with thousands of live segments needs only a few descriptors.
//!
//! A [`Handle`] opens its file when used, and may be closed between uses if more than [`DESCRIPTORS_MAX`] are open. A
//! handle with unsynced writes is never closed: the kernel reports a failed write-back only to descriptors that were
//! open then (and at most once to a later one), so the sync must go through the descriptor of the write. A read in
//! progress keeps its descriptor until it is done.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Number of descriptors that a store keeps for segments; those in use at the moment may exceed it.
pub(crate) const DESCRIPTORS_MAX: usize = 64;

/// Open files, in the order of the clock hand.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<VecDeque<Weak<Handle>>>,
}

pub(crate) struct Handle {
    path: PathBuf,
    read_only: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<Arc<File>>,
    /// Written but not synced: stays open.
    dirty: bool,
    /// Used since the clock hand last passed.
    used: bool,
}

impl Handles {
    /// Opens an existing file, for reading only if requested or if the medium became read-only.
    pub fn open(&self, path: &Path, read_only: bool) -> io::Result<Arc<Handle>> {
        let handle = Arc::new(Handle { path: path.to_owned(), read_only, state: Mutex::default() });
        self.file(&handle, false)?;
        Ok(handle)
    }

    /// Takes over a file that is already open.
    pub fn adopt(&self, path: &Path, file: File) -> Arc<Handle> {
        let state = State { file: Some(Arc::new(file)), dirty: false, used: true };
        let handle = Arc::new(Handle { path: path.to_owned(), read_only: false, state: Mutex::new(state) });
        self.admit(&handle);
        handle
    }

    /// The handle's file, reopened if needed. `writing`: it stays open until [`Handle::synced`].
    pub fn file(&self, handle: &Arc<Handle>, writing: bool) -> io::Result<Arc<File>> {
        let (file, is_new) = {
            let mut state = handle.state.lock();
            let is_new = state.file.is_none();
            let file = match &state.file {
                Some(file) => Arc::clone(file),
                None => Arc::new(open(&handle.path, handle.read_only)?),
            };
            state.dirty |= writing;
            state.used = true;
            state.file = Some(Arc::clone(&file));
            (file, is_new)
        };
        if is_new {
            self.admit(handle);
        }
        Ok(file)
    }

    /// Counts a newly opened file, and closes those that have been unused longest.
    fn admit(&self, handle: &Arc<Handle>) {
        let mut open = self.open.lock();
        // Twice around: the first pass clears the marks of use.
        let mut steps = 2 * open.len();
        while open.len() >= DESCRIPTORS_MAX && steps > 0 {
            steps -= 1;
            let Some(weak) = open.pop_front() else { break };
            let Some(other) = weak.upgrade() else { continue };
            if !other.close_if_idle() {
                open.push_back(weak);
            }
        }
        open.push_back(Arc::downgrade(handle));
    }
}

impl Handle {
    /// Called when all writes are synced, or abandoned.
    pub fn synced(&self) {
        self.state.lock().dirty = false;
    }

    fn close_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = !state.dirty && !std::mem::take(&mut state.used);
        if idle {
            state.file = None;
        }
        idle
    }
}

fn open(path: &Path, read_only: bool) -> io::Result<File> {
    if read_only {
        return File::open(path);
    }
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => File::open(path),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn is_open(handle: &Handle) -> bool {
        handle.state.lock().file.is_some()
    }

    #[test]
    fn what_is_unsynced_stays_open_and_the_rest_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let handles = Handles::default();
        let all: Vec<Arc<Handle>> = (0..4 * DESCRIPTORS_MAX)
            .map(|number| {
                let path = directory.path().join(number.to_string());
                fs::write(&path, [0]).unwrap();
                let handle = handles.open(&path, false).unwrap();
                if number < 3 {
                    handles.file(&handle, true).unwrap();
                }
                handle
            })
            .collect();
        assert!(all[..3].iter().all(|handle| is_open(handle)), "written and not synced");
        assert!(all.iter().filter(|handle| is_open(handle)).count() <= DESCRIPTORS_MAX);
        for handle in &all {
            handle.synced();
        }
        for _ in 0..2 {
            for handle in &all {
                handles.file(handle, false).unwrap();
                assert!(all.iter().filter(|handle| is_open(handle)).count() <= DESCRIPTORS_MAX);
            }
        }
        assert!(!is_open(&all[0]));
    }

    #[test]
    fn a_file_that_is_gone_is_said_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Handles::default().open(&directory.path().join("none"), true);
        assert_eq!(missing.err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
