//! Checks whether other users can change a file that we act on as root.
//!
//! Promise: [`check`] accepts a path only if the file and every folder above it belong to root (or to the user of
//! this process) and nobody else may write to them; the same applies to each symbolic link and the folders above it.
//! A folder in which others may create files is accepted if its sticky bit prevents them from replacing this one.
//! [`read`] accepts a file of any user, which it returns, if only root and that user can change it; it is read with
//! the rights of this user, or of the user who named it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::account::PasswdEntry;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why a file is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: belongs to user {uid}; it must belong to root", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("{}: others can write to it (mode {mode:04o}); run chmod go-w", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{}: belongs to user {uid}, who does not exist", path.display())]
    NoUser { path: PathBuf, uid: u32 },
    #[error("{}: not a regular file, or replaced while being read", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: larger than {bytes_max} octets", path.display())]
    TooLarge { path: PathBuf, bytes_max: usize },
}

/// Maximum symbolic links in a path, as in Linux.
const LINKS_MAX: usize = 40;

/// The path without symbolic links, if only root can change the file.
pub fn check(path: &Path) -> Result<PathBuf, GuardError> {
    let own = rustix::process::geteuid().as_raw();
    let real = resolve(path, own)?;
    judge(&real, own)?;
    Ok(real)
}

/// The content of a file that only root and its owner can change, and the owner.
///
/// If `reader`, the user who named the file, is given, it is looked up and read with their rights, and only root and
/// they may be able to change it; otherwise it is read with its owner's. A file of more than `bytes_max` octets is
/// not read.
pub fn read(path: &Path, reader: Option<&PasswdEntry>, bytes_max: usize) -> Result<(Vec<u8>, PasswdEntry), GuardError> {
    let wrong = |error| GuardError::Io { path: path.into(), error };
    let Some(reader) = reader else {
        let uid = fs::metadata(path).map_err(wrong)?.uid();
        let real = place(path, uid)?.0;
        return open(path, &real, &account(path, uid)?, uid, bytes_max);
    };
    let (real, uid) = reader.act(reader.gid, || Ok(place(path, reader.uid))).map_err(wrong)??;
    open(path, &real, reader, uid, bytes_max)
}

/// The real path and the owner of the file, if only root and this user can change them.
fn place(path: &Path, user: u32) -> Result<(PathBuf, u32), GuardError> {
    let real = resolve(path, user)?;
    judge(&real, user)?;
    let uid = fs::metadata(&real).map_err(|error| GuardError::Io { path: path.into(), error })?.uid();
    Ok((real, uid))
}

/// Reads the file of user `uid` with the rights of `reader`.
fn open(
    path: &Path,
    real: &Path,
    reader: &PasswdEntry,
    uid: u32,
    bytes_max: usize,
) -> Result<(Vec<u8>, PasswdEntry), GuardError> {
    let wrong = |error| GuardError::Io { path: path.into(), error };
    // Its folders may belong to the user, who may replace it meanwhile by a link, a file of others, or an endless
    // pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let open = || {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(real)?;
        let data = file.metadata()?;
        Ok((file, data))
    };
    let (file, data): (File, Metadata) = reader.act(reader.gid, open).map_err(wrong)?;
    if !data.is_file() || data.uid() != uid || data.mode() & OTHERS_WRITE != 0 {
        return Err(GuardError::NotAFile { path: path.into() });
    }
    let too_large = || GuardError::TooLarge { path: path.into(), bytes_max };
    if data.len() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut content = Vec::new();
    let count = file.take(bytes_max as u64 + 1).read_to_end(&mut content).map_err(wrong)?;
    if count > bytes_max {
        return Err(too_large());
    }
    Ok((content, account(path, uid)?))
}

/// The account of a file's owner.
fn account(path: &Path, uid: u32) -> Result<PasswdEntry, GuardError> {
    let found = PasswdEntry::of(uid).map_err(|error| GuardError::Io { path: path.into(), error })?;
    found.ok_or_else(|| GuardError::NoUser { path: path.into(), uid })
}

/// The path without symbolic links, if only root and this user can change where it leads: every folder and link on it
/// is theirs. The final file is not checked.
pub fn resolve(path: &Path, user: u32) -> Result<PathBuf, GuardError> {
    let wrong = |error| GuardError::Io { path: path.into(), error };
    let parts =
        |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>();
    let mut ahead = parts(&std::path::absolute(path).map_err(wrong)?);
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = ahead.pop() {
        judge(&here, user)?;
        match part.to_str() {
            Some("/") => here = PathBuf::from("/"),
            Some("..") => {
                here.pop();
            }
            Some(".") => {}
            _ => {
                let next = here.join(part);
                let data = fs::symlink_metadata(&next).map_err(wrong)?;
                if !data.is_symlink() {
                    here = next;
                    continue;
                }
                if data.uid() != 0 && data.uid() != user {
                    return Err(GuardError::Owner { path: next, uid: data.uid() });
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(wrong(Errno::LOOP.into()));
                }
                ahead.extend(parts(&fs::read_link(&next).map_err(wrong)?));
            }
        }
    }
    Ok(here)
}

/// Checks that only root and this user can change a file, or the content of a folder.
fn judge(path: &Path, user: u32) -> Result<(), GuardError> {
    let data = fs::metadata(path).map_err(|error| GuardError::Io { path: path.into(), error })?;
    if data.uid() != 0 && data.uid() != user {
        return Err(GuardError::Owner { path: path.into(), uid: data.uid() });
    }
    let is_sticky = data.is_dir() && data.mode() & STICKY != 0;
    if data.mode() & OTHERS_WRITE != 0 && !is_sticky {
        return Err(GuardError::Writable { path: path.into(), mode: data.mode() & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MAX: usize = 1 << 10;

    #[test]
    fn what_is_read_is_of_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("aliases");
        fs::write(&file, "a: b\n").unwrap();
        mode(&file, 0o644);
        let own = rustix::process::geteuid().as_raw();
        let (content, owner) = read(&file, None, MAX).unwrap();
        assert_eq!((&content[..], owner.uid), (&b"a: b\n"[..], own));
        mode(&file, 0o664);
        assert!(matches!(read(&file, None, MAX), Err(GuardError::Writable { .. })));
        assert!(matches!(read(folder.path(), None, MAX), Err(GuardError::NotAFile { .. })));
        assert!(matches!(
            read(Path::new("/dev/null"), None, MAX),
            Err(GuardError::Writable { .. } | GuardError::NotAFile { .. })
        ));
        if own != 0 {
            eprintln!("*** SKIPPED: the rest needs root");
            return;
        }
        let games = PasswdEntry::find("games").unwrap().expect("of every Debian");
        mode(&file, 0o600);
        std::os::unix::fs::chown(&file, Some(games.uid), None).unwrap();
        mode(folder.path(), 0o755);
        assert_eq!(read(&file, None, MAX).unwrap().1, games);
        // A folder of another user, who could replace the file.
        std::os::unix::fs::chown(folder.path(), Some(games.uid + 1), None).unwrap();
        assert!(matches!(read(&file, None, MAX), Err(GuardError::Owner { uid, .. }) if uid == games.uid + 1));
        std::os::unix::fs::chown(folder.path(), Some(games.uid), None).unwrap();
        assert_eq!(read(&file, None, MAX).unwrap().1, games);
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        assert!(read(&file, None, MAX).is_err(), "root's file in a folder of a user");
        std::os::unix::fs::chown(&file, Some(54_321), None).unwrap();
        std::os::unix::fs::chown(folder.path(), Some(0), None).unwrap();
        assert!(matches!(read(&file, None, MAX), Err(GuardError::NoUser { uid: 54_321, .. })));
    }

    #[test]
    fn who_names_a_file_reads_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let [games, other] = ["games", "news"].map(|name| PasswdEntry::find(name).unwrap().expect("of every Debian"));
        let root = tempfile::tempdir().unwrap();
        mode(root.path(), 0o755);
        let home = |account: &PasswdEntry, folder_mode: u32, file_mode: u32| {
            let folder = root.path().join(&account.name);
            fs::create_dir(&folder).unwrap();
            let file = folder.join("list");
            fs::write(&file, "a\n").unwrap();
            mode(&file, file_mode);
            mode(&folder, folder_mode);
            for path in [&folder, &file] {
                std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid)).unwrap();
            }
            file
        };
        let (own, private) = (home(&games, 0o700, 0o600), home(&other, 0o755, 0o600));
        assert_eq!(read(&own, Some(&games), MAX).unwrap().1, games);
        assert_eq!(read(&private, None, MAX).unwrap().1, other, "root's file names it");
        assert!(matches!(read(&private, Some(&games), MAX), Err(GuardError::Owner { uid, .. }) if uid == other.uid));
        assert!(matches!(read(&own, Some(&other), MAX), Err(GuardError::Owner { uid, .. }) if uid == games.uid));
        // A link in a folder of one user to the file of another, whoever names it.
        let link = own.with_file_name("link");
        std::os::unix::fs::symlink(&private, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(games.uid), None).unwrap();
        for reader in [None, Some(&games), Some(&other)] {
            assert!(matches!(read(&link, reader, MAX), Err(GuardError::Owner { .. })), "{reader:?}");
        }
        // Root's files, if the user may read them.
        let roots = root.path().join("list");
        fs::write(&roots, "").unwrap();
        mode(&roots, 0o644);
        assert_eq!(read(&roots, Some(&games), MAX).unwrap().1.uid, 0);
        mode(&roots, 0o600);
        assert!(matches!(read(&roots, Some(&games), MAX), Err(GuardError::Io { .. })));
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deliver.toml");
        fs::write(&file, "").unwrap();
        mode(&file, 0o640);
        assert!(check(&file).is_ok());
        for bad in [0o660, 0o602] {
            mode(&file, bad);
            assert!(matches!(check(&file), Err(GuardError::Writable { mode, .. }) if mode == bad));
        }
        mode(&file, 0o600);
        mode(folder.path(), 0o777);
        assert!(
            matches!(check(&file), Err(GuardError::Writable { path, .. }) if path.ends_with(folder.path().file_name().unwrap()))
        );
        mode(folder.path(), 0o1777);
        assert!(check(&file).is_ok(), "the sticky bit keeps others from replacing it");
        assert!(matches!(check(&folder.path().join("none")), Err(GuardError::Io { .. })));
    }

    #[test]
    fn a_link_is_judged_by_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        mode(&file, 0o666);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches!(check(&link), Err(GuardError::Writable { .. })));
    }

    #[test]
    fn a_link_counts_if_nobody_else_can_replace_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, inner) = (folder.path().join("real"), folder.path().join("inner"));
        fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        mode(folder.path(), 0o755);
        fs::create_dir(&inner).unwrap();
        mode(&inner, 0o755);
        let link = inner.join("link");
        std::os::unix::fs::symlink("../inner/../real", &link).unwrap();
        assert_eq!(check(&link).unwrap(), file.canonicalize().unwrap());
        std::os::unix::fs::chown(&inner, Some(12_345), None).unwrap();
        assert!(matches!(check(&link), Err(GuardError::Owner { uid: 12_345, path }) if path == inner));
        // A folder in which everybody may create links: the owner of this one counts.
        std::os::unix::fs::chown(&inner, Some(0), None).unwrap();
        mode(&inner, 0o1777);
        assert!(check(&link).is_ok());
        std::os::unix::fs::lchown(&link, Some(12_345), None).unwrap();
        assert!(matches!(check(&link), Err(GuardError::Owner { uid: 12_345, path }) if path == link));
        let round = inner.join("round");
        std::os::unix::fs::symlink("round", &round).unwrap();
        assert!(matches!(check(&round), Err(GuardError::Io { .. })));
    }
}
