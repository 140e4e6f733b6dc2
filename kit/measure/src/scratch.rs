//! A temporary folder for a measurement, removed however the measurement ends.
//!
//! Promise: `DIR/stentor-probe-PID-N` is removed with everything in it when dropped, and by the [`Guardian`] after
//! `kill -9`; if both were killed at once (the machine, a container), it is removed when the next folder is made beside
//! it. A folder whose owner still runs is never removed: the owner holds a lock on it, which the kernel releases and no
//! reused process id can fake. Where directories cannot be locked, nothing is swept.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::guardian::{Guarded, Guardian, quoted};
use crate::output::MeasureError;

const PREFIX: &str = "stentor-probe-";
/// Folders of one process in one directory.
const FOLDERS_MAX: u32 = 1000;

/// A folder of its own under a directory that is to be measured, removed with all that is in it when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Says that we live. None where directories cannot be locked.
    _lock: Option<File>,
    /// None where there is no shell: then only `kill -9` leaves something.
    guarded: Option<Guarded>,
}

impl Scratch {
    /// The directory must exist: a mistyped one is not to be measured on another disk.
    pub fn make(directory: &Path) -> Result<Scratch, MeasureError> {
        if !directory.is_dir() {
            return Err(MeasureError::Refused(format!("{} is not a directory; create it first", directory.display())));
        }
        // The guardian is not where we are.
        let directory = directory.canonicalize().map_err(MeasureError::file(directory))?;
        sweep(&directory);
        for number in 0..FOLDERS_MAX {
            let path = directory.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(source) => return Err(MeasureError::File { path, source }),
            }
            // A sweep in another container may be quicker than the lock: then it removes this one, or has.
            let lock = match locked(&path) {
                Err(Errno::WOULDBLOCK) => continue,
                lock => lock.ok().flatten(),
            };
            if !path.is_dir() {
                continue;
            }
            // Only what is ours by now: an entrusted name that another had would be removed with our end.
            let guarded = path.to_str().and_then(|_| {
                let guardian = Guardian::shared().ok()?;
                let path = quoted(&path);
                // Twice: processes of ours may still be ending.
                guardian.guard(&format!("rm -rf -- {path} || {{ sleep 1; rm -rf -- {path}; }}")).ok()
            });
            return Ok(Scratch { path, _lock: lock, guarded });
        }
        Err(MeasureError::Refused(format!(
            "{} has too many leftovers of earlier runs; remove {PREFIX}*",
            directory.display()
        )))
    }

    /// The same; what keeps it from being made is explained.
    pub fn make_or_explain(directory: &Path) -> Result<Scratch, MeasureError> {
        Scratch::make(directory).map_err(|error| match error {
            MeasureError::File { source, .. } => explain(directory, source),
            other => other,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if fs::remove_dir_all(&self.path).is_err()
            && let Some(guarded) = self.guarded.take()
        {
            // Perhaps someone still writes there: the guardian tries once more, when we have ended.
            guarded.leave();
        }
    }
}

/// An error in a file below `directory` that is measured, with the remedy.
pub fn explain(directory: &Path, source: io::Error) -> MeasureError {
    let at = directory.display();
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => MeasureError::Refused(format!(
            "{at} ran out of space while measuring ({source}); temporary files were removed. Free some space, choose \
             another directory, or measure less (--file-mib, --files, --records)"
        )),
        ErrorKind::ReadOnlyFilesystem => MeasureError::Refused(format!(
            "{at} is on a read-only file system; choose another directory, or remount it: mount -o remount,rw"
        )),
        ErrorKind::PermissionDenied => MeasureError::Refused(format!(
            "this user cannot write to {at}; run as its owner, or choose another directory"
        )),
        _ => MeasureError::File { path: directory.to_owned(), source },
    }
}

/// The folder, locked for as long as it is open; none if it is no more, `WOULDBLOCK` if somebody else has it, another
/// error if folders cannot be locked there.
fn locked(folder: &Path) -> rustix::io::Result<Option<File>> {
    let Ok(file) = File::open(folder) else { return Ok(None) };
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(file))
}

/// The process that made a folder, by its name.
fn owner(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Removes what processes left that are no more.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(owner) else { continue };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // Who runs beside us has its number here; who runs in another container has the lock.
        if is_folder
            && !Path::new(&format!("/proc/{pid}")).exists()
            && let Ok(Some(_lock)) = locked(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let said = |code| explain(Path::new("/mnt/x"), io::Error::from_raw_os_error(code)).to_string();
        assert!(said(28).contains("/mnt/x ran out of space") && said(28).contains("--file-mib"), "{}", said(28));
        assert!(said(30).contains("read-only"), "{}", said(30));
        assert!(said(13).contains("run as its owner"), "{}", said(13));
        assert!(said(5).starts_with("/mnt/x: "), "{}", said(5));
    }

    fn dead_pid() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn it_goes_with_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(directory.path()).unwrap();
        let other = Scratch::make(directory.path()).unwrap();
        assert_ne!(scratch.path(), other.path());
        fs::write(scratch.path().join("file"), "x").unwrap();
        drop((scratch, other));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert!(Scratch::make(&directory.path().join("missing")).unwrap_err().to_string().contains("create it first"));
    }

    #[test]
    fn leftovers_of_the_dead_are_swept_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
            path
        };
        let dead = dead_pid();
        let left = make(&format!("{PREFIX}{dead}-0"));
        let locked_one = make(&format!("{PREFIX}{dead}-1"));
        let lock = locked(&locked_one).unwrap().unwrap();
        let alive = make(&format!("{PREFIX}{}-77", std::process::id()));
        let others = [make("stentor-probe-x-0"), make("mine"), make(&format!("{PREFIX}{dead}"))];
        drop(Scratch::make(directory.path()).unwrap());
        assert!(!left.exists());
        // In another container its number means nothing here, but its lock does.
        assert!(locked_one.exists() && alive.exists() && others.iter().all(|path| path.exists()));
        // Unlocked, not only closed: a child that another test has forked just now holds a copy of the descriptor until
        // its exec.
        flock(&lock, FlockOperation::Unlock).unwrap();
        drop(Scratch::make(directory.path()).unwrap());
        assert!(!locked_one.exists() && alive.exists());
    }
}
