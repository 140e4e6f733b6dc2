//! The users file on disk: read when it has changed, changed as a whole.
//!
//! Reading: a file with another size, time, inode, mode or owner is read whole at the next [`UsersFile::refresh`]; one that is broken or gone leaves
//! the version before in force. Only the owner may write it and nobody else may read it, or it is not used.
//!
//! Changing ([`change`]): the file is locked, so that two commands do not undo each other; the new text is checked, written beside it
//! with mode 0600 (0640 where its group may read it), given to the same owner, synced and renamed, and the folder is synced. At any
//! crash either the old or the new file is there, whole. Root changes the local settings for users of Dovecot as the user whom their folder
//! belongs to, and follows no link that leads nowhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Gid, OFlags, Uid, flock};
use rustix::process::geteuid;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::document::{Document, DocumentError};
use crate::text::{FILE_BYTES_MAX, Fault, FileKind, parse, parse_octets};
use crate::user::Users;

/// Tries to lock the file that is there, while others replace it.
const LOCK_TRIES_MAX: u32 = 100;
/// Who may do what with the file at most: all but its owner's writing and its group's reading is too much.
const MODE_FORBIDDEN: u32 = 0o027;

/// Why a file cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
    #[error("{path} has mode {mode:o}: others could read or change it; run `chmod 600 {path}`")]
    Mode { path: String, mode: u32 },
    #[error("{}", lines(.path, .faults))]
    Faults { path: String, faults: Vec<Fault> },
    #[error("{0}")]
    Change(#[from] DocumentError),
    #[error("{path} is being replaced all the time; try again")]
    Busy { path: String },
}

fn lines(path: &str, faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{path}:{fault}")).collect::<Vec<_>>().join("\n")
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    octets: (u64, u64, i64, i64),
    /// `chmod`, which the refusal of an open file asks for, changes nothing else.
    rights: (u32, u32, u32, i64, i64),
}

fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some(Stamp {
        octets: (data.ino(), data.len(), data.mtime(), data.mtime_nsec()),
        rights: (data.mode(), data.uid(), data.gid(), data.ctime(), data.ctime_nsec()),
    })
}

/// What a look at the file led to.
#[derive(Debug)]
pub enum Refreshed {
    Same,
    /// The next version is there.
    Replaced(Arc<Users>),
    /// The next version cannot be used: said once for each version.
    Kept(FileError),
}

/// A users file and the version of it that is in force. Blocks; the caller chooses the thread.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    kind: FileKind,
    users: Arc<Users>,
    seen: Option<Stamp>,
}

impl UsersFile {
    /// Local settings for users of Dovecot need not be there.
    pub fn open(kind: FileKind, path: &Path) -> Result<UsersFile, FileError> {
        // Before it is read: what changes meanwhile is seen the next time.
        let seen = stamp(path);
        let users = match read(kind, path) {
            Err(FileError::Io { error, .. })
                if kind == FileKind::DovecotOverrides && error.kind() == ErrorKind::NotFound =>
            {
                Arc::default()
            }
            read => read?,
        };
        Ok(UsersFile { path: path.to_owned(), kind, users, seen })
    }

    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file if it is not the one that was read.
    pub fn refresh(&mut self) -> Refreshed {
        let now = stamp(&self.path);
        if now == self.seen {
            return Refreshed::Same;
        }
        self.seen = now;
        match read(self.kind, &self.path) {
            Ok(users) => {
                self.users = users;
                Refreshed::Replaced(self.users.clone())
            }
            Err(error) => Refreshed::Kept(error),
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
    // One more than may be there, so that it is seen.
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut octets).map_err(|error| at(path, error))?;
    Ok(octets)
}

/// The file that is there, locked; made if there is none.
fn lock(path: &Path) -> Result<File, FileError> {
    for _ in 0..LOCK_TRIES_MAX {
        let mut options = OpenOptions::new();
        // Where links lead was found out before; one that has come since leads nowhere.
        options.read(true).append(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path).map_err(|error| at(path, error))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| at(path, error.into()))?;
        // While we waited, another command may have put its file in the place of this one.
        let own = file.metadata().map_err(|error| at(path, error))?;
        if fs::metadata(path).is_ok_and(|there| there.ino() == own.ino() && there.dev() == own.dev()) {
            return Ok(file);
        }
    }
    Err(FileError::Busy { path: path.display().to_string() })
}

/// Does the work as the user whom the folder of the file belongs to, if root is to do it: that user, who may put anything there, links too,
/// must not have root do what the user may not do. What is made belongs to that user then. Blocks.
fn as_folders_owner<T: Send>(path: &Path, work: impl FnOnce() -> Result<T, FileError> + Send) -> Result<T, FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owner = fs::metadata(folder).map_err(|error| at(folder, error))?;
    if !geteuid().is_root() || owner.uid() == 0 {
        return work();
    }
    let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
    // These are of a thread alone (setresuid(2), "C library/kernel differences"), which ends with them.
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
    done.unwrap_or_else(|_| Err(at(path, io::Error::other("the change was given up"))))
}

/// Changes the file, which is made if it is not there. Nothing is written where `change` fails, or where the result could not
/// be used; what was wrong in the file before has to be put right first.
pub fn change<T: Send>(
    kind: FileKind,
    path: &Path,
    change: impl FnOnce(&mut Document) -> Result<T, DocumentError> + Send,
) -> Result<T, FileError> {
    match kind {
        FileKind::Own => change_as_we_are(kind, path, change),
        // In the data directory, which is the server's, and so are its files, whoever runs the command.
        FileKind::DovecotOverrides => as_folders_owner(path, || change_as_we_are(kind, path, change)),
    }
}

fn change_as_we_are<T>(
    kind: FileKind,
    path: &Path,
    change: impl FnOnce(&mut Document) -> Result<T, DocumentError>,
) -> Result<T, FileError> {
    // A link stays a link.
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

/// Puts the octets in the place of the file that is `held`, which is locked, whole and durably: with its owner, and this mode. Blocks.
///
/// # Errors
/// The old one stays, or the new one is there and may not outlive a power cut.
pub fn replace(path: &Path, octets: &[u8], held: &File, mode: u32) -> io::Result<()> {
    let old = held.metadata()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // What an attempt before has left. Nobody else is at it: the file is locked.
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
