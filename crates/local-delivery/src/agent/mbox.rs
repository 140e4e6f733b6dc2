//! Delivery to an mbox: locks, appends and syncs it; truncates it to its old size if anything fails.
//!
//! Promise: a message is appended only while all configured locks are held, in the order of the configuration. It
//! begins with a `From ` line and ends with an empty line, and `From ` at the start of other lines becomes `>From `.
//! A mailbox that is a link, not a file, or belongs to another user is not changed. After a loss of power the mailbox
//! may end in a part of a message that was not acknowledged.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock, flock};

use super::dotlock::Dotlock;
use super::open_folder;
use crate::account::PasswdEntry;
use crate::config::Lock;
use crate::guarded;
use crate::spool::Spool;

/// Pause between two attempts to lock.
const PAUSE: Duration = Duration::from_millis(200);
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// The content to append.
pub struct MboxMessage<'a> {
    pub from_line: &'a str,
    pub fields: &'a str,
    pub spool: &'a mut Spool,
}

/// The group of a delivery to this mailbox. Locks are created in its folder; so if that belongs to root and is
/// writable for its group, as /var/mail for group `mail`, it is that group, otherwise the user's. All parents must
/// belong to root, too, since anyone who can create a link there chooses the folder. Unless root named the mailbox,
/// it must exist and belong to the user: naming one must not give write access that the user does not have.
pub fn group(mailbox: &Path, is_named_by_root: bool, account: &PasswdEntry) -> u32 {
    let folder = mailbox.parent().and_then(|folder| guarded::resolve(folder, 0).ok());
    let is_own = |data: Metadata| data.is_file() && data.nlink() == 1 && data.uid() == account.uid;
    if !is_named_by_root && !fs::symlink_metadata(mailbox).is_ok_and(is_own) {
        return account.gid;
    }
    match folder.and_then(|folder| fs::metadata(folder).ok()) {
        Some(data) if data.uid() == 0 && data.mode() & (GROUP_WRITES | OTHERS_WRITE) == GROUP_WRITES => data.gid(),
        _ => account.gid,
    }
}

/// How a mailbox is locked.
#[derive(Clone, Copy)]
pub struct Locking<'a> {
    /// The locks to take, in this order.
    pub locks: &'a [Lock],
    /// Longest wait for a mailbox that others have locked.
    pub timeout: Duration,
}

/// Delivers one message. `WouldBlock` if the mailbox stayed locked for too long.
pub fn deliver(path: &Path, owner: u32, locking: Locking<'_>, content: &mut MboxMessage<'_>) -> io::Result<()> {
    let deadline = Instant::now() + locking.timeout;
    loop {
        let mut file = open(path, owner)?;
        let held = lock(path, &file, locking.locks)?;
        if let Some(held) = held {
            // It may have been replaced before it was locked.
            let is_same =
                fs::symlink_metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
            if is_same {
                let appended = append(&mut file, content);
                drop(held);
                return appended;
            }
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        thread::sleep(PAUSE);
    }
}

fn open(path: &Path, owner: u32) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let is_new = !path.exists();
    let file = OpenOptions::new().read(true).write(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() || data.nlink() != 1 || data.uid() != owner {
        let what = if data.uid() == owner { "it is not a regular file" } else { "it belongs to another user" };
        return Err(io::Error::other(what));
    }
    if is_new && let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    Ok(file)
}

/// If the user cannot read the spool folder, the user cannot sync a name in it either.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match open_folder(folder) {
        Ok(folder) => folder.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// Acquires all locks in order, or none. Kernel locks end with the file.
fn lock(path: &Path, file: &File, locks: &[Lock]) -> io::Result<Option<Vec<Dotlock>>> {
    let mut held = Vec::new();
    for lock in locks {
        let taken = match lock {
            Lock::Fcntl => fcntl_lock(file, FlockOperation::NonBlockingLockExclusive),
            Lock::Flock => flock(file, FlockOperation::NonBlockingLockExclusive),
            Lock::Dotlock => match Dotlock::try_lock(path, SystemTime::now())? {
                Some(lock) => {
                    held.push(lock);
                    continue;
                }
                None => return Ok(None),
            },
        };
        match taken.map_err(io::Error::from) {
            Ok(()) => {}
            // POSIX permits fcntl to return either.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(held))
}

/// Appends the message; if that fails, the mailbox is unchanged.
fn append(file: &mut File, content: &mut MboxMessage<'_>) -> io::Result<()> {
    let end = file.seek(SeekFrom::End(0))?;
    let written = write(file, end, content).and_then(|()| file.sync_all());
    if written.is_err() {
        file.set_len(end)?;
        file.sync_all()?;
    }
    written
}

fn write(file: &mut File, end: u64, content: &mut MboxMessage<'_>) -> io::Result<()> {
    let gap = gap(file, end)?;
    file.seek(SeekFrom::Start(end))?;
    let mut out = BufWriter::new(&mut *file);
    out.write_all(gap)?;
    out.write_all(content.from_line.as_bytes())?;
    out.write_all(content.fields.as_bytes())?;
    let mut reader = BufReader::new(content.spool.reader()?);
    let mut line = Vec::new();
    let mut is_ended = true;
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.starts_with(b"From ") {
            out.write_all(b">")?;
        }
        out.write_all(&line)?;
        is_ended = line.ends_with(b"\n");
        line.clear();
    }
    out.write_all(if is_ended { b"\n" } else { b"\n\n" })?;
    out.flush()
}

/// The separator needed before a message: another program may not have written an empty line after the last one.
fn gap(file: &mut File, end: u64) -> io::Result<&'static [u8]> {
    let mut last = [b'\n'; 2];
    let known = end.min(2);
    file.seek(SeekFrom::Start(end - known))?;
    file.read_exact(&mut last[2 - known as usize..])?;
    Ok(match last {
        [b'\n', b'\n'] => b"",
        [_, b'\n'] if end > 0 => b"\n",
        _ if end == 0 => b"",
        _ => b"\n\n",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKING: Locking<'_> = Locking { locks: &[Lock::Fcntl, Lock::Dotlock], timeout: Duration::ZERO };

    fn put(mailbox: &Path, body: &str, locking: Locking<'_>) -> io::Result<()> {
        let mut spool = Spool::default();
        spool.push(body.as_bytes()).unwrap();
        spool.finish().unwrap();
        let mut content =
            MboxMessage { from_line: "From a@b Mon Nov 23 06:00:00 2026\n", fields: "X: y\n", spool: &mut spool };
        let own = rustix::process::geteuid().as_raw();
        deliver(mailbox, own, locking, &mut content)
    }

    #[test]
    fn messages_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        put(&mailbox, "S: 1\r\n\r\nFrom here\r\n>From there\r\n From\r\n", LOCKING).unwrap();
        put(&mailbox, "S: 2\r\n\r\nno line end", LOCKING).unwrap();
        let from = "From a@b Mon Nov 23 06:00:00 2026\nX: y\n";
        let wanted = format!("{from}S: 1\n\n>From here\n>From there\n From\n\n{from}S: 2\n\nno line end\n\n");
        assert_eq!(fs::read_to_string(&mailbox).unwrap(), wanted);
        assert_eq!(fs::metadata(&mailbox).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no lock is left");
    }

    #[test]
    fn what_others_left_without_an_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        for (before, gap) in [("", ""), ("x", "\n\n"), ("x\n", "\n"), ("x\n\n", ""), ("\n", "")] {
            fs::write(&mailbox, before).unwrap();
            put(&mailbox, "\r\n", LOCKING).unwrap();
            let text = fs::read_to_string(&mailbox).unwrap();
            assert!(text.starts_with(&format!("{before}{gap}From a@b ")), "{before:?}: {text:?}");
        }
    }

    #[test]
    fn a_locked_mailbox_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = folder.path().join("bob");
        let is_locked = |locks: &[Lock]| match put(&mailbox, "\r\n", Locking { locks, timeout: Duration::ZERO }) {
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(()) => false,
        };
        let dotlock = Dotlock::try_lock(&mailbox, SystemTime::now()).unwrap();
        assert!(is_locked(&[Lock::Fcntl, Lock::Dotlock]) && is_locked(&[Lock::Dotlock]));
        assert!(!is_locked(&[Lock::Fcntl]));
        drop(dotlock);
        let other = File::open(&mailbox).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        assert!(is_locked(&[Lock::Dotlock, Lock::Flock]));
        assert!(!is_locked(&[Lock::Dotlock]), "the lock beside it was given back");
    }

    #[test]
    fn only_a_plain_file_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(put(&link, "\r\n", LOCKING).is_err());
        fs::hard_link(&real, folder.path().join("second")).unwrap();
        assert!(put(&real, "\r\n", LOCKING).is_err());
        assert_eq!(fs::read(&real).unwrap(), b"");
        let own = rustix::process::geteuid().as_raw();
        fs::remove_file(folder.path().join("second")).unwrap();
        assert!(open(&real, own + 1).is_err());
        assert!(open(Path::new("/dev/null"), own).is_err());
    }

    #[test]
    fn a_failure_cuts_back() {
        // A device that is always full, to test failing writes with the same code.
        let mut full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let mut spool = Spool::default();
        spool.push(b"x\r\n").unwrap();
        let mut content = MboxMessage { from_line: "From a\n", fields: "", spool: &mut spool };
        assert!(write(&mut full, 0, &mut content).is_err());
    }

    #[test]
    fn a_spool_folder_lends_its_group() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let account =
            PasswdEntry { name: "x".to_owned(), uid: 12_345, gid: 7, home: "/".into(), shell: "/bin/sh".into() };
        let mailbox = folder.path().join("bob");
        let chosen = |mode: u32, uid: u32| {
            std::os::unix::fs::chown(folder.path(), Some(uid), Some(8)).unwrap();
            fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            group(&mailbox, true, &account)
        };
        assert_eq!(chosen(0o2775, 0), 8);
        assert_eq!(chosen(0o1777, 0), 7);
        assert_eq!(chosen(0o2755, 0), 7);
        assert_eq!(chosen(0o2775, 12_345), 7, "users choose the groups of their own folders");
        assert_eq!(chosen(0o2775, 0), 8);
        let users = tempfile::tempdir().unwrap();
        let link = users.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        std::os::unix::fs::chown(users.path(), Some(12_345), None).unwrap();
        assert_eq!(group(&link.join("bob"), true, &account), 7, "and where their links lead");
        assert_eq!(group(&mailbox, false, &account), 7, "a user has named it");
        fs::write(&mailbox, "").unwrap();
        assert_eq!(group(&mailbox, false, &account), 7, "root's");
        std::os::unix::fs::chown(&mailbox, Some(12_345), None).unwrap();
        assert_eq!(group(&mailbox, false, &account), 8, "their mailbox");
        assert_eq!(group(&link.join("bob"), false, &account), 7);
    }
}
