//! `mailbox.lock` beside a mailbox, as other programs of this system make and honour it (liblockfile, Debian Policy 11.6).
//!
//! Promise: while a [`Dotlock`] lives nobody else has one on the same mailbox; its end removes the file. The lock comes to be by
//! link(2), which is atomic over NFS as well. One that was left behind is removed: if its owner is named and lives no more, or if
//! no owner is named and it is older than [`STALE`]. Users may put anything in its place: only the beginning of a plain file is read, links
//! are not followed, and nothing is waited for.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

const STALE: Duration = Duration::from_mins(5);
/// Octets of a lock that may name its owner.
const OWNER_BYTES_MAX: u64 = 32;

/// A lock that is held.
#[derive(Debug)]
pub struct Dotlock {
    path: PathBuf,
}

impl Dotlock {
    /// Locks the mailbox; `None` if somebody else has it.
    pub fn try_lock(mailbox: &Path, now: SystemTime) -> io::Result<Option<Dotlock>> {
        let path = beside(mailbox, ".lock");
        let draft = beside(mailbox, &format!(".lock.{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&draft)?;
        let linked = writeln!(file, "{}", std::process::id()).and_then(|()| link(&draft, &path, now));
        let removed = fs::remove_file(&draft);
        let is_locked = linked?;
        let lock = is_locked.then(|| Dotlock { path });
        removed?;
        Ok(lock)
    }
}

impl Drop for Dotlock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn link(draft: &Path, path: &Path, now: SystemTime) -> io::Result<bool> {
    match fs::hard_link(draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !remove_stale(path, now)? {
                return Ok(false);
            }
            match fs::hard_link(draft, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                linked => linked.map(|()| true),
            }
        }
        linked => linked.map(|()| true),
    }
}

/// Removes a lock that was left behind; whether there is none any more.
fn remove_stale(path: &Path, now: SystemTime) -> io::Result<bool> {
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(true) } else { Err(error) };
    let before = match fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) => return gone(error),
    };
    if !is_stale(path, &before, now) {
        return Ok(false);
    }
    // Somebody else may have removed it meanwhile, and made a new one.
    match fs::symlink_metadata(path) {
        Ok(data) if (data.ino(), data.ctime_nsec()) != (before.ino(), before.ctime_nsec()) => Ok(false),
        Ok(_) => fs::remove_file(path).map(|()| true).or_else(gone),
        Err(error) => gone(error),
    }
}

fn is_stale(path: &Path, data: &Metadata, now: SystemTime) -> bool {
    match owner(path) {
        Some(pid) if pid.as_raw_nonzero().get() > 0 => matches!(test_kill_process(pid), Err(Errno::SRCH)),
        _ => data.modified().is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > STALE)),
    }
}

/// The process that a lock names.
fn owner(path: &Path) -> Option<Pid> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(OWNER_BYTES_MAX).read_to_string(&mut text).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

fn beside(mailbox: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(mailbox);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        let now = SystemTime::now();
        let lock = Dotlock::try_lock(&mailbox, now).unwrap().expect("free");
        assert_eq!(fs::read_to_string(beside(&mailbox, ".lock")).unwrap(), format!("{}\n", std::process::id()));
        assert!(Dotlock::try_lock(&mailbox, now).unwrap().is_none());
        drop(lock);
        assert!(Dotlock::try_lock(&mailbox, now).unwrap().is_some());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_lock_without_an_owner_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        let now = SystemTime::now();
        let is_free = |owner: &str, now| {
            fs::write(beside(&mailbox, ".lock"), owner).unwrap();
            Dotlock::try_lock(&mailbox, now).unwrap().is_some()
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_free(&format!("{}\n", child.id()), now), "its owner has ended");
        assert!(!is_free("1\n", now), "its owner lives");
        assert!(!is_free("1\n", now + 2 * STALE), "its owner lives, however old it is");
        assert!(!is_free("", now), "it names nobody, but is young");
        assert!(is_free("", now + 2 * STALE));
        assert!(is_free("0", now + 2 * STALE), "procmail's");
    }

    #[test]
    fn whatever_else_is_in_its_place_names_no_owner() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        let place = beside(&mailbox, ".lock");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let now = SystemTime::now();
        let is_only_old = |what: &str| {
            assert!(Dotlock::try_lock(&mailbox, now).unwrap().is_none(), "{what}");
            assert!(Dotlock::try_lock(&mailbox, now + 2 * STALE).unwrap().is_some(), "{what}");
        };
        mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        is_only_old("a pipe that nobody writes to");
        let other = folder.path().join("other");
        fs::write(&other, format!("{}\n", child.id())).unwrap();
        symlink(&other, &place).unwrap();
        is_only_old("a link to a file that names one");
        fs::write(&place, format!("{}{}\n", " ".repeat(OWNER_BYTES_MAX as usize), child.id())).unwrap();
        is_only_old("a name behind what is read");
        fs::remove_file(&other).unwrap();
        symlink("/dev/zero", &place).unwrap();
        is_only_old("a device without an end");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        assert!(Dotlock::try_lock(Path::new("/proc/bob"), SystemTime::now()).is_err());
    }
}
