//! The submission folder: its settings, and new submissions.
//!
//! A [`Draft`] is written under a name that the server ignores. [`Draft::finish`] writes the head, syncs, renames and
//! syncs again: when it returns, file and name are on the disk. The folder cannot be opened for reading (0730), so it
//! cannot be synced itself; on ext4 and XFS the sync of a renamed file commits its new name, elsewhere the whole file
//! system is synced. If a draft is dropped before that, its file is removed; if the program is killed, the server
//! removes it later.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, syncfs, unlinkat};
use stentor_sendmail::exit::{EX_CONFIG, EX_UNAVAILABLE, ExitError};
use stentor_sendmail::format::{Check, ENVELOPE_BYTES_MAX, HEAD_BYTES, SubmissionEnvelope};
use stentor_sendmail::settings::Settings;
use stentor_sendmail::{COMPLETE, DEFERRED, SETTINGS, UNFINISHED, WAITING};

use super::privileges::Privileges;

/// Maximum size of the settings file.
const SETTINGS_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Minimum free space; with less, nothing is accepted.
const FREE_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// Maximum names tried for a file, each derived from the current time.
const NAMES_MAX: u32 = 100;
/// Readable for the server under any user; the folder excludes everybody else. Not writable, because the user owns
/// the file.
const MODE: u32 = 0o444;
const BUFFER_BYTES: usize = 64 * 1024;

/// Contents of the folder that were read before the group was given up.
pub struct Published {
    pub origin: String,
    pub control: Option<String>,
    /// Number of messages in the queue, and its time.
    pub waiting: Option<(u64, u64)>,
    /// Path of the folder.
    pub path: PathBuf,
}

impl Published {
    /// Number of submissions in the folder; `None`: the caller may not read it.
    pub fn submissions(&self) -> Option<u64> {
        let names = std::fs::read_dir(&self.path).ok()?.flatten().map(|entry| entry.file_name());
        let is_one = |name: &std::ffi::OsString| {
            name.to_str().is_some_and(|name| name.starts_with(COMPLETE) || name.starts_with(DEFERRED))
        };
        Some(names.filter(is_one).count() as u64)
    }
}

pub struct Folder {
    dir: OwnedFd,
    path: PathBuf,
    pub settings: Settings,
}

impl Folder {
    pub fn open(path: &Path, privileges: &Privileges) -> Result<Folder, ExitError> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = privileges.raised(|| open(path, flags, Mode::empty()))?.map_err(|errno| unusable(path, errno))?;
        let stat = fstat(&dir).map_err(|errno| unusable(path, errno))?;
        if stat.st_mode & 0o002 != 0 {
            let text = format!("{}: every user can write to it; run chmod 1730", path.display());
            return Err(ExitError::new(EX_CONFIG, text));
        }
        let text = privileges.raised(|| servers_file(&dir, &stat, SETTINGS))?;
        let settings = text.as_deref().and_then(Settings::parse).unwrap_or_else(|| {
            let name = nix::sys::utsname::uname().ok().map(|uname| uname.nodename().to_string_lossy().into_owned());
            Settings::unknown(name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned()))
        });
        Ok(Folder { dir, path: path.to_owned(), settings })
    }

    /// Reads the data for `mailq`, before the group is given up.
    pub fn published(&self, privileges: &Privileges) -> Result<Published, ExitError> {
        let stat = fstat(&self.dir).map_err(|errno| unusable(&self.path, errno))?;
        let text = privileges.raised(|| servers_file(&self.dir, &stat, WAITING))?.unwrap_or_default();
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let waiting = match (numbers.next(), numbers.next()) {
            (Some(Ok(messages)), Some(Ok(at))) => Some((messages, at)),
            _ => None,
        };
        let Settings { origin, control, .. } = self.settings.clone();
        Ok(Published { origin, control, waiting, path: self.path.clone() })
    }

    /// Begins a submission.
    pub fn draft<'a>(&'a self, privileges: &'a Privileges) -> Result<Draft<'a>, ExitError> {
        let free = fstatvfs(&self.dir).map_err(|errno| unusable(&self.path, errno))?;
        if free.blocks_available().saturating_mul(free.fragment_size()) < FREE_BYTES_MIN {
            return Err(ExitError::later(format!("{}: the disk is nearly full; try again later", self.path.display())));
        }
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        for n in 0..NAMES_MAX {
            let stem = format!("{moment:014x}-{:x}", u64::from(std::process::id()) << 8 | u64::from(n));
            let name = format!("{UNFINISHED}{stem}");
            match privileges.raised(|| openat(&self.dir, &*name, flags, Mode::from_bits_truncate(0o600)))? {
                Ok(file) => {
                    let mut draft = Draft {
                        folder: self,
                        privileges,
                        file: File::from(file),
                        name,
                        moment,
                        check: Check::default(),
                        lines: 0,
                        buffer: Vec::with_capacity(BUFFER_BYTES),
                    };
                    // The head is written last; until then its place is empty.
                    draft.buffer.extend_from_slice(&[0; HEAD_BYTES]);
                    return Ok(draft);
                }
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(unusable(&self.path, errno)),
            }
        }
        Err(ExitError::later(format!("{}: no free name for a submission", self.path.display())))
    }
}

/// Reads a file written by the owner of the folder, or by root, under whom a server may run; other owners' files are
/// ignored.
fn servers_file(dir: &OwnedFd, folder: &FileStat, name: &str) -> Option<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    if ![folder.st_uid, 0].contains(&stat.st_uid)
        || SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG
    {
        return None;
    }
    let mut text = String::new();
    File::from(file).take(SETTINGS_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The failure and remedy for a folder that cannot be used.
fn unusable(path: &Path, errno: Errno) -> ExitError {
    let what = match errno {
        Errno::ENOENT | Errno::ENOTDIR => {
            "; create it, or set its path in /etc/stentor/sendmail.conf (see docs/operate/sendmail.md)"
        }
        Errno::EACCES | Errno::EPERM => {
            "; this program must be setgid to the folder's group: chgrp stentor-drop, chmod 2755"
        }
        Errno::ENOSPC | Errno::EDQUOT => "; try again later",
        _ => "",
    };
    ExitError::later(format!("{}: {}{what}", path.display(), errno.desc()))
}

/// An incomplete submission.
pub struct Draft<'a> {
    folder: &'a Folder,
    privileges: &'a Privileges,
    file: File,
    /// Current name; empty once it has its final name.
    name: String,
    moment: u128,
    check: Check,
    lines: u64,
    buffer: Vec<u8>,
}

impl Draft<'_> {
    /// Appends to the message, whose lines end with LF.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ExitError> {
        self.check.push(bytes);
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        let max = self.folder.settings.message_bytes_max;
        // The size as counted in SMTP.
        if self.check.bytes() + self.lines > max {
            let text = format!("the message is larger than {max} octets (message_size_bytes_max)");
            return Err(ExitError::new(EX_UNAVAILABLE, text));
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExitError> {
        self.file.write_all(&self.buffer).map_err(|error| self.failed(&error))?;
        self.buffer.clear();
        Ok(())
    }

    /// Makes it durable.
    pub fn finish(mut self, envelope: &SubmissionEnvelope) -> Result<(), ExitError> {
        let envelope = envelope.encode();
        if envelope.len() > ENVELOPE_BYTES_MAX as usize {
            return Err(ExitError::new(EX_UNAVAILABLE, "too many recipients"));
        }
        self.buffer.extend_from_slice(&envelope);
        self.flush()?;
        let head = std::mem::take(&mut self.check).head(&envelope);
        self.store(&head).map_err(|error| self.failed(&error))
    }

    fn store(&mut self, head: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(head)?;
        fchmod(&self.file, Mode::from_bits_truncate(MODE))?;
        self.file.sync_all()?;
        // Inode numbers are unique among existing files, so that nothing is replaced.
        let last = format!("{COMPLETE}{:014x}-{:x}", self.moment, fstat(&self.file)?.st_ino);
        let dir = &self.folder.dir;
        let renamed = self.privileges.raised(|| renameat(dir, &*self.name, dir, &*last));
        renamed.map_err(|failure| io::Error::other(failure.text))??;
        // From here on it belongs to the server: a later failure is reported, but nothing is undone.
        self.name.clear();
        self.file.sync_all()?;
        let kind = fstatfs(&self.file)?.filesystem_type();
        if ![EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC].contains(&kind) {
            syncfs(&self.file)?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> ExitError {
        let what = "nothing was submitted, try again later";
        ExitError::later(format!("{}: {error}; {what}", self.folder.path.display()))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let dir = &self.folder.dir;
            // A file that remains is removed by the server.
            let _ = self.privileges.raised(|| unlinkat(dir, &*self.name, UnlinkatFlags::NoRemoveDir));
        }
    }
}
