//! Whether others can change a file whose contents we act on as root.
//!
//! Promise: [`check`] accepts a path only if the file and every folder above it belong to root (or to the user that this process
//! runs as) and no one else may write to them. A folder in which others may create files is accepted if its sticky bit keeps
//! them from replacing this one. [`read`] accepts a file of any one user, whom it names, if nobody else but root can change it; it is read with
//! this user's rights.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::account::Account;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why a file is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Unguarded {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: belongs to user {uid}; it must belong to root", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("{}: others may write to it (mode {mode:04o}); run chmod go-w", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{}: belongs to user {uid}, who does not exist", path.display())]
    NoUser { path: PathBuf, uid: u32 },
    #[error("{}: not a plain file, or replaced while it was read", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: larger than {FILE_BYTES_MAX} octets", path.display())]
    TooLarge { path: PathBuf },
}

/// Octets of a file that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The path without symbolic links, if nobody but root can change what is there.
pub fn check(path: &Path) -> Result<PathBuf, Unguarded> {
    let real = fs::canonicalize(path).map_err(|error| Unguarded::Io { path: path.into(), error })?;
    only(&real, rustix::process::geteuid().as_raw())?;
    Ok(real)
}

/// The content of a file that nobody but root and its owner can change, and the owner.
pub fn read(path: &Path) -> Result<(Vec<u8>, Account), Unguarded> {
    let wrong = |error| Unguarded::Io { path: path.into(), error };
    let real = fs::canonicalize(path).map_err(wrong)?;
    let uid = fs::metadata(&real).map_err(wrong)?.uid();
    only(&real, uid)?;
    let owner = Account::of(uid).map_err(wrong)?.ok_or_else(|| Unguarded::NoUser { path: path.into(), uid })?;
    // Its folders may be the owner's, who may put something else there meanwhile: a link, a file of others, a pipe that never ends.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let open = || {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&real)?;
        let data = file.metadata()?;
        Ok((file, data))
    };
    let (file, data): (File, Metadata) = owner.act(owner.gid, open).map_err(wrong)?;
    if !data.is_file() || data.uid() != uid || data.mode() & OTHERS_WRITE != 0 {
        return Err(Unguarded::NotAFile { path: path.into() });
    }
    let mut content = Vec::new();
    let count = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(wrong)?;
    if count as u64 > FILE_BYTES_MAX {
        return Err(Unguarded::TooLarge { path: path.into() });
    }
    Ok((content, owner))
}

/// A path without symbolic links: only root and this user can change what is there.
fn only(real: &Path, user: u32) -> Result<(), Unguarded> {
    for part in real.ancestors() {
        let data = fs::metadata(part).map_err(|error| Unguarded::Io { path: part.into(), error })?;
        if data.uid() != 0 && data.uid() != user {
            return Err(Unguarded::Owner { path: part.into(), uid: data.uid() });
        }
        let is_sticky = data.is_dir() && data.mode() & STICKY != 0;
        if data.mode() & OTHERS_WRITE != 0 && !is_sticky {
            return Err(Unguarded::Writable { path: part.into(), mode: data.mode() & 0o7777 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_read_is_of_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("aliases");
        fs::write(&file, "a: b\n").unwrap();
        mode(&file, 0o644);
        let own = rustix::process::geteuid().as_raw();
        let (content, owner) = read(&file).unwrap();
        assert_eq!((&content[..], owner.uid), (&b"a: b\n"[..], own));
        mode(&file, 0o664);
        assert!(matches!(read(&file), Err(Unguarded::Writable { .. })));
        assert!(matches!(read(folder.path()), Err(Unguarded::NotAFile { .. })));
        assert!(matches!(read(Path::new("/dev/null")), Err(Unguarded::Writable { .. } | Unguarded::NotAFile { .. })));
        if own != 0 {
            eprintln!("*** SKIPPED: the rest needs root");
            return;
        }
        let games = Account::find("games").unwrap().expect("of every Debian");
        mode(&file, 0o600);
        std::os::unix::fs::chown(&file, Some(games.uid), None).unwrap();
        mode(folder.path(), 0o755);
        assert_eq!(read(&file).unwrap().1, games);
        // A folder of somebody else, who could replace the file.
        std::os::unix::fs::chown(folder.path(), Some(games.uid + 1), None).unwrap();
        assert!(matches!(read(&file), Err(Unguarded::Owner { uid, .. }) if uid == games.uid + 1));
        std::os::unix::fs::chown(folder.path(), Some(games.uid), None).unwrap();
        assert_eq!(read(&file).unwrap().1, games);
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        assert!(read(&file).is_err(), "root's file in a folder of a user");
        std::os::unix::fs::chown(&file, Some(54_321), None).unwrap();
        std::os::unix::fs::chown(folder.path(), Some(0), None).unwrap();
        assert!(matches!(read(&file), Err(Unguarded::NoUser { uid: 54_321, .. })));
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
            assert!(matches!(check(&file), Err(Unguarded::Writable { mode, .. }) if mode == bad));
        }
        mode(&file, 0o600);
        mode(folder.path(), 0o777);
        assert!(
            matches!(check(&file), Err(Unguarded::Writable { path, .. }) if path.ends_with(folder.path().file_name().unwrap()))
        );
        mode(folder.path(), 0o1777);
        assert!(check(&file).is_ok(), "the sticky bit keeps others from replacing it");
        assert!(matches!(check(&folder.path().join("none")), Err(Unguarded::Io { .. })));
    }

    #[test]
    fn a_link_is_judged_by_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        mode(&file, 0o666);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches!(check(&link), Err(Unguarded::Writable { .. })));
    }
}
