//! Where a path leads, and who can change that.
//!
//! Promise: [`Followed::of`] names everybody but root and the user of this process who can: the owners of folders and links on the path,
//! and whoever else may put something into one of the folders. Each of them must be able to look into every folder that follows: they
//! choose what is read, and could not have chosen that. In a folder with the sticky bit only the owner of a link can replace it.
//! A user's groups are unknown: a group is somebody of its own, and a user's rights are those of the owner or of everybody.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

/// Symbolic links of a path, as many as Linux follows.
const LINKS_MAX: usize = 40;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Bits of one digit of a mode: read a file, look into a folder.
const READ: u32 = 0o4;
const SEARCH: u32 = 0o1;
/// Owns what nobody in particular has chosen.
const NOBODY: u32 = 65_534;

/// Somebody who chooses what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chooser {
    /// Has named the path in a file.
    Reader(u32),
    User(u32),
    Group(u32),
    Everybody,
}

impl Chooser {
    /// Whether a mode has this bit for them.
    fn may(self, bit: u32, data: &Metadata) -> bool {
        let digit = match self {
            Chooser::Reader(user) | Chooser::User(user) if user == data.uid() => 6,
            Chooser::Group(group) if group == data.gid() => 3,
            _ => 0,
        };
        data.mode() >> digit & bit != 0
    }

    /// Whether a file of this user is theirs.
    fn owns(self, data: &Metadata) -> bool {
        match self {
            Chooser::Reader(user) | Chooser::User(user) => user == data.uid(),
            Chooser::Group(group) => group == data.gid() && is_other(data.uid()),
            Chooser::Everybody => false,
        }
    }
}

impl fmt::Display for Chooser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chooser::Reader(user) => write!(out, "user {user}, whose file includes it,"),
            Chooser::User(user) => write!(out, "user {user}, who can change the path to it,"),
            Chooser::Group(group) => write!(out, "group {group}, which can change the path to it,"),
            Chooser::Everybody => out.write_str("everybody can change the path to it, and"),
        }
    }
}

/// A user other than root and that of this process.
fn is_other(user: u32) -> bool {
    user != 0 && user != geteuid().as_raw()
}

/// A path that was followed to its end.
#[derive(Debug)]
pub(crate) struct Followed {
    /// Without symbolic links.
    real: PathBuf,
    choosers: Vec<Chooser>,
}

impl Followed {
    /// `reader`: the user who has named it.
    pub fn of(path: &Path, reader: Option<u32>) -> Result<Followed, String> {
        let failed = |error: io::Error| error.to_string();
        let choosers = reader.filter(|user| is_other(*user)).map(Chooser::Reader).into_iter().collect();
        let mut way = Followed { real: PathBuf::from("/"), choosers };
        let (mut ahead, mut links) = (parts(&std::path::absolute(path).map_err(failed)?), 0);
        while let Some(part) = ahead.pop() {
            match part.to_str() {
                Some("/") => way.real = PathBuf::from("/"),
                Some(".") => {}
                Some("..") => {
                    way.real.pop();
                }
                _ => {
                    way.enter()?;
                    let next = way.real.join(part);
                    let data = fs::symlink_metadata(&next).map_err(failed)?;
                    if !data.is_symlink() {
                        way.real = next;
                        continue;
                    }
                    way.add(Chooser::User(data.uid()));
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(failed(Errno::LOOP.into()));
                    }
                    ahead.extend(parts(&fs::read_link(&next).map_err(failed)?));
                }
            }
        }
        Ok(way)
    }

    /// Looks into the folder that has been reached.
    fn enter(&mut self) -> Result<(), String> {
        let data = fs::metadata(&self.real).map_err(|error| error.to_string())?;
        if let Some(who) = self.choosers.iter().find(|who| !who.may(SEARCH, &data)) {
            return Err(format!("{who} may not look into {}", self.real.display()));
        }
        self.add(Chooser::User(data.uid()));
        let mode = data.mode();
        if mode & STICKY == 0 && mode & GROUP_WRITES != 0 {
            self.add(Chooser::Group(data.gid()));
        }
        if mode & STICKY == 0 && mode & OTHERS_WRITE != 0 {
            self.add(Chooser::Everybody);
        }
        Ok(())
    }

    fn add(&mut self, who: Chooser) {
        let is_known = match who {
            Chooser::User(user) => !is_other(user) || self.choosers.contains(&Chooser::Reader(user)),
            // Root's.
            Chooser::Group(group) => group == 0,
            Chooser::Reader(_) | Chooser::Everybody => false,
        };
        if !is_known && !self.choosers.contains(&who) {
            self.choosers.push(who);
        }
    }

    /// Whether the file that was opened at this path is at its end: somebody may have replaced a folder or a link meanwhile.
    /// `place`: where it is.
    pub fn leads_to(&self, place: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<bool> {
        Ok(self.choosers.is_empty() || place()? == self.real)
    }

    /// Whether everybody who chooses what is read could read this file.
    pub fn may_read(&self, data: &Metadata) -> Result<(), String> {
        match self.choosers.iter().find(|who| !who.may(READ, data)) {
            Some(who) => Err(format!("{who} may not read it (mode {:04o})", data.mode() & 0o7777)),
            None => Ok(()),
        }
    }

    /// Whose file it counts as: its owner's, unless others have chosen it.
    pub fn owner(&self, data: &Metadata) -> u32 {
        if self.choosers.is_empty() || self.choosers.iter().any(|who| who.owns(data)) {
            return data.uid();
        }
        let user = self.choosers.iter().find_map(|who| match who {
            Chooser::Reader(user) | Chooser::User(user) => Some(*user),
            Chooser::Group(_) | Chooser::Everybody => None,
        });
        user.unwrap_or(NOBODY)
    }
}

/// The parts of a path, the first last.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32, (user, group): (u32, u32)) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        chown(path, Some(user), Some(group)).unwrap();
    }

    /// What happens to a file of this mode and owner at the end of a path.
    fn read(path: &Path) -> Result<u32, String> {
        let way = Followed::of(path, None)?;
        let data = fs::metadata(path).unwrap();
        way.may_read(&data).map(|()| way.owner(&data))
    }

    #[test]
    fn who_can_put_a_link_there_chooses() {
        if !geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        set(root.path(), 0o755, (0, 0));
        let [private, home] = ["private", "home"].map(|name| root.path().join(name));
        for folder in [&private, &home] {
            fs::create_dir(folder).unwrap();
        }
        let [secret, named] = [private.join("secret"), home.join("list")];
        fs::write(&secret, "x").unwrap();
        symlink(&secret, &named).unwrap();
        let refused = |why: &str| assert!(read(&named).unwrap_err().starts_with(why), "{:?}", read(&named));
        // Root's folder: whatever root links to is meant.
        set(&private, 0o700, (0, 0));
        set(&secret, 0o600, (0, 0));
        set(&home, 0o755, (0, 0));
        assert_eq!(read(&named), Ok(0));
        // A user's, though root has made the link; of a user's link, though the folder is root's.
        set(&home, 0o755, (7, 7));
        refused("user 7, who can change the path to it, may not look into ");
        set(&private, 0o711, (0, 0));
        refused("user 7, who can change the path to it, may not read it (mode 0600)");
        set(&home, 0o1777, (0, 0));
        assert_eq!(read(&named), Ok(0), "the sticky bit");
        lchown(&named, Some(8), None).unwrap();
        refused("user 8, who can change the path to it, may not read it (mode 0600)");
        lchown(&named, Some(0), None).unwrap();
        set(&home, 0o2775, (0, 9));
        refused("group 9, which can change the path to it, may not read it (mode 0600)");
        set(&home, 0o777, (0, 9));
        refused("group 9,");
        set(&secret, 0o640, (0, 9));
        refused("everybody can change the path to it, and may not read it (mode 0640)");
        // What they could read is read, and is not root's any more.
        set(&secret, 0o644, (0, 0));
        assert_eq!(read(&named), Ok(NOBODY));
        set(&home, 0o755, (7, 7));
        assert_eq!(read(&named), Ok(7));
        set(&secret, 0o644, (6, 6));
        assert_eq!(read(&named), Ok(7), "nor that of another user");
    }

    /// Folders of a user of lists, below folders that only root and the server look into.
    #[test]
    fn lists_of_their_user_are_read() {
        if !geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        set(root.path(), 0o700, (0, 0));
        let folder = root.path().join("mailman");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("aliases");
        fs::write(&file, "x").unwrap();
        for (folder_mode, folder_owner, mode, owner) in [
            (0o750, (7, 9), 0o600, (7, 9)),
            (0o2775, (0, 9), 0o660, (7, 9)),
            (0o2775, (7, 9), 0o644, (7, 9)),
            (0o2770, (7, 9), 0o640, (7, 9)),
        ] {
            set(&folder, folder_mode, folder_owner);
            set(&file, mode, owner);
            assert_eq!(read(&file), Ok(7), "{folder_mode:o}");
        }
        let link = root.path().join("link");
        symlink("mailman/../mailman/./aliases", &link).unwrap();
        assert_eq!(Followed::of(&link, None).unwrap().real, file.canonicalize().unwrap());
    }

    #[test]
    fn a_link_to_itself_has_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("round");
        symlink("round", &link).unwrap();
        assert!(Followed::of(&link, None).unwrap_err().contains("symbolic links"));
    }

    #[test]
    fn another_file_than_the_one_at_the_end_is_seen() {
        let way = Followed { real: PathBuf::from("/home/u/list"), choosers: vec![Chooser::User(7)] };
        assert!(way.leads_to(|| Ok("/home/u/list".into())).unwrap());
        assert!(!way.leads_to(|| Ok("/private/secret".into())).unwrap());
        let roots = Followed { choosers: Vec::new(), ..way };
        assert!(roots.leads_to(|| unreachable!("nobody could replace it")).unwrap());
    }
}
