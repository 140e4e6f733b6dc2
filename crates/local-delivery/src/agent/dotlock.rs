//! Lock files `mailbox.lock`, as created and respected by other programs of this system (liblockfile, Debian Policy
//! 11.6).
//!
//! Promise: while a [`Dotlock`] exists, no other process has one on the same mailbox; dropping it removes the file.
//! The lock is created by link(2), which is atomic even over NFS. A stale lock is removed if the process that it
//! names has ended, or if it names none and is older than [`STALE`]. Only locks are removed: regular files that are
//! empty or contain only the owner. Mail is never removed: no mailbox has the name of a lock ([`crate::lock_name`]),
//! and a mailbox that another program created under such a name is not a lock. Users may put anything in its place:
//! links are not followed, and nothing blocks.
//!
//! Failure: an old file under the lock's name that is not a lock is an error that names it.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::lock_name::SUFFIX;

const STALE: Duration = Duration::from_mins(5);
/// Maximum size of a lock: the owner's process ID, in Dovecot's locks followed by the host name (RFC 1035: 255
/// octets).
const LOCK_BYTES_MAX: u64 = 300;

/// A lock on a mailbox.
#[derive(Debug)]
pub struct Dotlock {
    path: PathBuf,
}

impl Dotlock {
    /// Locks the mailbox; `None` if another process has locked it.
    pub fn try_lock(mailbox: &Path, now: SystemTime) -> io::Result<Option<Dotlock>> {
        let path = beside(mailbox, SUFFIX);
        let draft = beside(mailbox, &format!("{SUFFIX}.{}", std::process::id()));
        remove_draft(&draft)?;
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

/// Removes a draft left behind by a process with our ID.
fn remove_draft(draft: &Path) -> io::Result<()> {
    match fs::symlink_metadata(draft) {
        Ok(data) if content(draft, &data).is_some() => fs::remove_file(draft),
        Ok(_) => Err(in_the_way(draft)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn in_the_way(path: &Path) -> io::Error {
    io::Error::other(format!("{} is not a lock file but has a lock's name; move it away", path.display()))
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

/// Removes a stale lock; returns whether there is none any more.
fn remove_stale(path: &Path, now: SystemTime) -> io::Result<bool> {
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(true) } else { Err(error) };
    let before = match fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) => return gone(error),
    };
    let is_old = before.modified().is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > STALE));
    let is_stale = match content(path, &before) {
        Some(Content { owner: Some(pid) }) => matches!(test_kill_process(pid), Err(Errno::SRCH)),
        Some(Content { owner: None }) => is_old,
        // Another program may be about to write its name.
        None if is_old => return Err(in_the_way(path)),
        None => false,
    };
    if !is_stale {
        return Ok(false);
    }
    // Another process may have removed it meanwhile, and created a new one.
    match fs::symlink_metadata(path) {
        Ok(data) if (data.ino(), data.ctime_nsec()) != (before.ino(), before.ctime_nsec()) => Ok(false),
        Ok(_) => fs::remove_file(path).map(|()| true).or_else(gone),
        Err(error) => gone(error),
    }
}

/// Content of a lock.
struct Content {
    owner: Option<Pid>,
}

/// The content of the lock at this path; `None`: it is not a lock, or cannot be read.
fn content(path: &Path, data: &Metadata) -> Option<Content> {
    if !data.is_file() || data.len() > LOCK_BYTES_MAX {
        return None;
    }
    if data.len() == 0 {
        return Some(Content { owner: None });
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LOCK_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    owner(&text)
}

/// Parses the owner in a lock: `PID`, or Dovecot's `PID:HOST`; whether a process of another host is running is
/// unknown. Procmail writes 0.
fn owner(text: &str) -> Option<Content> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if rest.is_empty() {
        let pid = if number.is_empty() { 0 } else { number.parse().ok()? };
        return Some(Content { owner: Pid::from_raw(pid) });
    }
    let host = rest.strip_prefix([':', ' ']).filter(|_| !number.is_empty())?;
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_host.then_some(Content { owner: None })
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
    fn only_a_lock_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        let place = beside(&mailbox, SUFFIX);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let now = SystemTime::now();
        let stays = |what: &str| {
            assert!(Dotlock::try_lock(&mailbox, now).unwrap().is_none(), "{what}: it is young");
            let error = Dotlock::try_lock(&mailbox, now + 2 * STALE).unwrap_err().to_string();
            assert!(error.contains("bob.lock is not a lock file but has a lock's name"), "{what}: {error}");
            assert!(fs::symlink_metadata(&place).is_ok(), "{what}");
            fs::remove_file(&place).unwrap();
        };
        mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        stays("a pipe that nobody writes to");
        let other = folder.path().join("other");
        fs::write(&other, format!("{}\n", child.id())).unwrap();
        symlink(&other, &place).unwrap();
        stays("a link to a file that names one");
        symlink("/dev/zero", &place).unwrap();
        stays("a device without an end");
        for (text, what) in [
            ("From a@b Mon Nov 23 06:00:00 2026\nX: y\n\nbody\n\n", "a message"),
            ("x\n", "one line of text"),
            ("12 a\n\nb\n", "more than an owner"),
            ("12:a/b", "not a host"),
            ("-1", "not a process"),
            ("99999999999999999999", "a number that no process has"),
        ] {
            fs::write(&place, text).unwrap();
            stays(what);
        }
        fs::write(&place, format!("{}{}\n", " ".repeat(LOCK_BYTES_MAX as usize), child.id())).unwrap();
        stays("longer than a lock");
        for (text, what) in [("", "empty"), ("0", "procmail's"), ("1:mx.example", "Dovecot's"), ("1 mx", "with a host")]
        {
            fs::write(&place, text).unwrap();
            assert!(Dotlock::try_lock(&mailbox, now).unwrap().is_none(), "{what}");
            assert!(Dotlock::try_lock(&mailbox, now + 2 * STALE).unwrap().is_some(), "{what}");
        }
    }

    #[test]
    fn mail_in_the_place_of_a_draft_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        let draft = beside(&mailbox, &format!("{SUFFIX}.{}", std::process::id()));
        let now = SystemTime::now();
        fs::write(&draft, "From a@b Mon Nov 23 06:00:00 2026\n\nbody\n\n").unwrap();
        assert!(Dotlock::try_lock(&mailbox, now).is_err());
        assert!(fs::read_to_string(&draft).unwrap().contains("body"));
        fs::write(&draft, "77\n").unwrap();
        assert!(Dotlock::try_lock(&mailbox, now).unwrap().is_some(), "one that was left behind");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        assert!(Dotlock::try_lock(Path::new("/proc/bob"), SystemTime::now()).is_err());
    }
}
