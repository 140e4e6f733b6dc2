//! The users file on disk: read when it has changed, replaced as a whole.
//!
//! Reading: a file with another size, time, inode, mode or owner is read again at the next [`UsersFile::refresh`]; if
//! it is invalid or missing, the previous version stays in force. A file is refused unless only its owner can write it
//! and, except for its group, nobody else can read it.
//!
//! Changing ([`change`]): the file is locked, so that two commands do not overwrite each other's changes. The new text
//! is checked, written beside the file with mode 0600 (0640 if its group may read it), given to the same owner, synced
//! and renamed, and the folder is synced. After a crash at any time, either the old or the new file is there, complete.
//! Root changes the local settings of Dovecot users as the owner of their folder, and follows no dangling link.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Gid, OFlags, Uid, flock};
use rustix::process::geteuid;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::document::{Document, DocumentError};
use crate::text::{FILE_BYTES_MAX, FileKind, UsersFileError, parse, parse_octets};
use crate::user::Users;

/// Maximum attempts to lock the current file while others replace it.
const LOCK_TRIES_MAX: u32 = 100;
/// Mode bits that must be clear: only the owner's access and reading by the group are permitted.
const MODE_FORBIDDEN: u32 = 0o027;

/// Why a file cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
    #[error("{path} has mode {mode:o}: others could read or change it; run `chmod 600 {path}`")]
    Mode { path: String, mode: u32 },
    #[error("{}", lines(.path, .faults))]
    Faults { path: String, faults: Vec<UsersFileError> },
    #[error("{0}")]
    Change(#[from] DocumentError),
    #[error("{path} keeps being replaced; try again")]
    Busy { path: String },
}

fn lines(path: &str, faults: &[UsersFileError]) -> String {
    faults.iter().map(|fault| format!("{path}:{fault}")).collect::<Vec<_>>().join("\n")
}

/// Distinguishes states of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    octets: (u64, u64, i64, i64),
    /// The mode, owner and times changed by `chmod`, which is what the refusal of an open file asks for.
    rights: (u32, u32, u32, i64, i64),
}

fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some(Stamp {
        octets: (data.ino(), data.len(), data.mtime(), data.mtime_nsec()),
        rights: (data.mode(), data.uid(), data.gid(), data.ctime(), data.ctime_nsec()),
    })
}

/// The result of checking the file.
#[derive(Debug)]
pub enum UsersRefresh {
    Same,
    /// A new version is in force.
    Replaced(Arc<Users>),
    /// The new version cannot be used; reported once for each version.
    Kept(FileError),
}

/// A users file and its version in force. Blocks; the caller chooses the thread.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    kind: FileKind,
    users: Arc<Users>,
    seen: Option<Stamp>,
    /// The last attempt to read it failed: it is read again without any change to it.
    is_unread: bool,
}

impl UsersFile {
    /// Opens the file. Local settings of Dovecot users may be missing.
    pub fn open(kind: FileKind, path: &Path) -> Result<UsersFile, FileError> {
        // Taken before reading, so that changes meanwhile are seen the next time.
        let seen = stamp(path);
        let users = match read(kind, path) {
            Err(FileError::Io { error, .. })
                if kind == FileKind::DovecotOverrides && error.kind() == ErrorKind::NotFound =>
            {
                Arc::default()
            }
            read => read?,
        };
        Ok(UsersFile { path: path.to_owned(), kind, users, seen, is_unread: false })
    }

    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file if it has changed.
    pub fn refresh(&mut self) -> UsersRefresh {
        let now = stamp(&self.path);
        let has_changed = now != self.seen;
        if !has_changed && !self.is_unread {
            return UsersRefresh::Same;
        }
        self.seen = now;
        let users = read(self.kind, &self.path);
        self.is_unread = matches!(users, Err(FileError::Io { .. }));
        match users {
            Ok(users) => {
                self.users = users;
                UsersRefresh::Replaced(self.users.clone())
            }
            Err(error) if has_changed => UsersRefresh::Kept(error),
            Err(_) => UsersRefresh::Same,
        }
    }
}

fn at(path: &Path, error: io::Error) -> FileError {
    FileError::Io { path: path.display().to_string(), error }
}

fn read(kind: FileKind, path: &Path) -> Result<Arc<Users>, FileError> {
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(|error| at(path, error))?.is_file() {
        return Err(at(path, io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let file = File::open(path).map_err(|error| at(path, error))?;
    let octets = read_open(path, &file)?;
    let faults = |faults| FileError::Faults { path: path.display().to_string(), faults };
    parse_octets(kind, &octets).map(Arc::new).map_err(faults)
}

fn read_open(path: &Path, file: &File) -> Result<Vec<u8>, FileError> {
    let data = file.metadata().map_err(|error| at(path, error))?;
    let mode = data.permissions().mode() & 0o777;
    if mode & MODE_FORBIDDEN != 0 {
        return Err(FileError::Mode { path: path.display().to_string(), mode });
    }
    let mut octets = Vec::with_capacity((data.len() as usize).min(FILE_BYTES_MAX + 1));
    // Read one octet more than permitted, to detect a larger file.
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut octets).map_err(|error| at(path, error))?;
    Ok(octets)
}

/// Locks the file, creating it if missing.
fn lock(path: &Path) -> Result<File, FileError> {
    for _ in 0..LOCK_TRIES_MAX {
        let mut options = OpenOptions::new();
        // Links were resolved before; one created since is not followed.
        options.read(true).append(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path).map_err(|error| at(path, error))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| at(path, error.into()))?;
        // Another command may have replaced this file while we waited.
        let own = file.metadata().map_err(|error| at(path, error))?;
        if fs::metadata(path).is_ok_and(|there| there.ino() == own.ino() && there.dev() == own.dev()) {
            return Ok(file);
        }
    }
    Err(FileError::Busy { path: path.display().to_string() })
}

/// Does the work as the owner of the file's folder, if run by root. That user can put anything there, including links,
/// and must not make root do what the user may not do. Created files belong to that user. Blocks.
fn as_folders_owner<T: Send>(path: &Path, work: impl FnOnce() -> Result<T, FileError> + Send) -> Result<T, FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owner = fs::metadata(folder).map_err(|error| at(folder, error))?;
    if !geteuid().is_root() || owner.uid() == 0 {
        return work();
    }
    let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
    // These ids apply to one thread (setresuid(2), "C library/kernel differences"), which ends with them.
    let become_owner = || {
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)
    };
    let done = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_owner().map_err(|error| at(folder, error.into()))?;
            work()
        });
        thread.join()
    });
    done.unwrap_or_else(|_| Err(at(path, io::Error::other("the change was abandoned"))))
}

/// Changes the file, creating it if missing. Nothing is written if `change` fails or the result would be invalid;
/// existing errors in the file must be fixed first.
pub fn change<T: Send>(
    kind: FileKind,
    path: &Path,
    change: impl FnOnce(&mut Document) -> Result<T, DocumentError> + Send,
) -> Result<T, FileError> {
    match kind {
        FileKind::Own => change_as_we_are(kind, path, change),
        // The file in the data directory must belong to the server's user, whoever runs the command.
        FileKind::DovecotOverrides => as_folders_owner(path, || change_as_we_are(kind, path, change)),
    }
}

fn change_as_we_are<T>(
    kind: FileKind,
    path: &Path,
    change: impl FnOnce(&mut Document) -> Result<T, DocumentError>,
) -> Result<T, FileError> {
    // Keep a symbolic link.
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(at(path, error)),
    };
    let held = lock(&path)?;
    let octets = read_open(&path, &held)?;
    let faults = |faults| FileError::Faults { path: path.display().to_string(), faults };
    parse_octets(kind, &octets).map_err(faults)?;
    let text = String::from_utf8_lossy(&octets);
    let mut document = if text.is_empty() { Document::beginning(kind) } else { Document::new(&text) };
    let result = change(&mut document)?;
    let text = document.text();
    parse(kind, &text).map_err(faults)?;
    let mode = held.metadata().map_err(|error| at(&path, error))?.mode();
    replace(&path, text.as_bytes(), &held, 0o600 | (mode & 0o040)).map_err(|error| at(&path, error))?;
    Ok(result)
}

/// Replaces the locked file `held` atomically and durably, keeping its owner, with this mode. Blocks.
///
/// # Errors
/// The old file is still there, or the new one may not survive a power failure.
pub fn replace(path: &Path, octets: &[u8], held: &File, mode: u32) -> io::Result<()> {
    let old = held.metadata()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // Left by an earlier attempt. Nobody else uses it: the file is locked.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write(&new, octets, &old, mode).and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

fn write(path: &Path, octets: &[u8], old: &fs::Metadata, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(octets)?;
    file.sync_all()
}
