//! Reads one file, which may have been replaced by anything before it is opened.
//!
//! Promise: only a regular file is read, without blocking; it is checked again after it is opened. Everyone who can
//! choose the file could also read it, by the modes of the file and its folders, since this process may have more
//! rights. These are all who can change where the path leads (`path.rs`), and the user who named the file
//! ([`FileRequest::reader`]); for the latter the file must belong to them or to root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use stentor_tables::{FileContent, FileRequest, ReadError};

use crate::path::ResolvedPath;
use crate::stamp;

/// Maximum attempts to read a file that changed while it was read.
const READS_MAX: usize = 3;

/// Reads a file that does not change meanwhile. LMDB files are written in place, and a mixture of two versions would
/// look complete.
pub(crate) fn read(request: FileRequest<'_>) -> Result<FileContent, ReadError> {
    let failed = |error: io::Error| ReadError::Failed(error.to_string());
    for _ in 0..READS_MAX {
        let way = ResolvedPath::of(request.path, request.reader).map_err(ReadError::Failed)?;
        let file = open(request.path).map_err(failed)?;
        let before = file.metadata().map_err(failed)?;
        if !before.is_file() {
            return Err(failed(not_regular()));
        }
        if !way.leads_to(|| fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))).map_err(failed)? {
            continue;
        }
        if let Some(user) = request.reader.filter(|user| before.uid() != 0 && before.uid() != *user) {
            return Err(ReadError::Failed(format!(
                "belongs to user {}; a file included by user {user}'s file must belong to that user or to root",
                before.uid()
            )));
        }
        way.may_read(&before).map_err(ReadError::Failed)?;
        if before.len() > request.bytes_max as u64 {
            return Err(ReadError::TooLarge);
        }
        let mut bytes = Vec::with_capacity(before.len() as usize + 1);
        (&file).take(request.bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > request.bytes_max {
            return Err(ReadError::TooLarge);
        }
        if stamp(&before) == stamp(&file.metadata().map_err(failed)?) {
            return Ok(FileContent { bytes, owner: way.owner(&before) });
        }
    }
    Err(ReadError::Failed(io::Error::new(io::ErrorKind::ResourceBusy, "changed while it was read").to_string()))
}

/// Opens a file without blocking, even if it was replaced by a pipe without a writer. A device is not opened at all,
/// unless it has just been put there.
fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    open_at_once(path)
}

fn open_at_once(path: &Path) -> io::Result<File> {
    // The standard library adds CLOEXEC.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use rustix::process::geteuid;
    use stentor_tables::{Format, Reference};

    use super::*;

    const USER: u32 = 12_345;

    fn read_for(path: &Path, reader: Option<u32>) -> Result<Vec<u8>, String> {
        match read(FileRequest { path, bytes_max: 8, reader }) {
            Ok(content) => Ok(content.bytes),
            Err(ReadError::TooLarge) => Err("too large".to_owned()),
            Err(ReadError::Failed(why)) => Err(why),
        }
    }

    #[test]
    fn only_a_regular_file_of_its_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345678").unwrap();
        assert_eq!(read_for(&file, None).unwrap(), b"12345678");
        fs::write(&file, "123456789").unwrap();
        assert_eq!(read_for(&file, None).unwrap_err(), "too large");
        assert_eq!(read_for(folder.path(), None).unwrap_err(), "not a regular file");
    }

    /// Tests a pipe that replaces a file which was just checked.
    #[test]
    fn a_pipe_is_opened_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read_for(&pipe, None).unwrap_err(), "not a regular file");
        assert!(!open_at_once(&pipe).unwrap().metadata().unwrap().is_file());
    }

    #[test]
    fn what_a_user_names_is_what_the_user_could_read() {
        if !geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode: u32, owner: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            chown(path, Some(owner), Some(owner)).unwrap();
        };
        set(folder.path(), 0o755, 0);
        let file = |name: &str, mode: u32, owner: u32| -> PathBuf {
            let path = folder.path().join(name);
            fs::write(&path, "x").unwrap();
            set(&path, mode, owner);
            path
        };
        let own = file("own", 0o600, USER);
        assert!(read_for(&own, Some(USER)).is_ok() && read_for(&own, None).is_ok());
        assert!(read_for(&file("roots", 0o644, 0), Some(USER)).is_ok());
        for (name, mode, owner, why) in [
            ("secret", 0o600, 0, "user 12345, whose file includes it, may not read it (mode 0600)"),
            ("group", 0o640, 0, "user 12345, whose file includes it, may not read it (mode 0640)"),
            ("write", 0o200, USER, "user 12345, whose file includes it, may not read it (mode 0200)"),
            (
                "other",
                0o644,
                7,
                "belongs to user 7; a file included by user 12345's file must belong to that user or \
                to root",
            ),
        ] {
            let path = file(name, mode, owner);
            assert_eq!(read_for(&path, Some(USER)).unwrap_err(), why);
            assert!(read_for(&path, None).is_ok(), "{name}");
            let link = folder.path().join(format!("{name}.link"));
            symlink(&path, &link).unwrap();
            assert_eq!(read_for(&link, Some(USER)).unwrap_err(), why, "by a link");
        }
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).unwrap();
        let inner = closed.join("inner");
        fs::write(&inner, "x").unwrap();
        set(&inner, 0o644, 0);
        set(&closed, 0o700, 0);
        assert!(read_for(&inner, Some(USER)).unwrap_err().contains("may not enter "));
        set(&closed, 0o711, 0);
        assert!(read_for(&inner, Some(USER)).is_ok());
    }

    /// Tests a list that root's aliases include from a user's folder, replaced by a link to a file that only the
    /// server can read.
    #[test]
    fn a_link_in_a_users_folder_opens_nothing() {
        if !geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, mode, owner) in [("", 0o755, 0), ("private", 0o700, 0), ("home", 0o700, USER)] {
            let _ = fs::create_dir(path(name));
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
            chown(path(name), Some(owner), Some(owner)).unwrap();
        }
        fs::write(path("private/secret"), "root:hash\n").unwrap();
        let list = path("home/list");
        fs::write(path("aliases"), format!("team: :include:{}, boss@x.test\n", list.display())).unwrap();
        let included = || {
            let reference = Reference::File { format: Format::Aliases, path: path("aliases") };
            let table = crate::load(&reference).unwrap().table;
            let file = table.included(list.to_str().unwrap(), None).expect("the alias includes it");
            file.map(|file| (file.targets.len(), file.user)).map_err(|why| why.to_string())
        };
        fs::write(&list, "ann@x.test\n").unwrap();
        chown(&list, Some(USER), None).unwrap();
        assert_eq!(included(), Ok((1, Some(USER))));
        fs::remove_file(&list).unwrap();
        symlink(path("private/secret"), &list).unwrap();
        let why = included().unwrap_err();
        assert!(why.contains("user 12345, who can change the path to it, may not enter "), "{why}");
    }
}
