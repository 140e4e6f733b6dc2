//! Whether others can change a file whose contents we act on as root.
//!
//! Promise: [`check`] accepts a path only if the file and every folder above it belong to root (or to the user that this process
//! runs as) and no one else may write to them. A folder in which others may create files is accepted if its sticky bit keeps
//! them from replacing this one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
}

/// The path without symbolic links, if nobody but root can change what is there.
pub fn check(path: &Path) -> Result<PathBuf, Unguarded> {
    let real = fs::canonicalize(path).map_err(|error| Unguarded::Io { path: path.into(), error })?;
    let own = rustix::process::geteuid().as_raw();
    for part in real.ancestors() {
        let data = fs::metadata(part).map_err(|error| Unguarded::Io { path: part.into(), error })?;
        if data.uid() != 0 && data.uid() != own {
            return Err(Unguarded::Owner { path: part.into(), uid: data.uid() });
        }
        let is_sticky = data.is_dir() && data.mode() & STICKY != 0;
        if data.mode() & OTHERS_WRITE != 0 && !is_sticky {
            return Err(Unguarded::Writable { path: part.into(), mode: data.mode() & 0o7777 });
        }
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
