//! Follows a path and determines who can change where it leads.
//!
//! Promise: [`ResolvedPath::of`] finds all who can, except root and the user of this process: owners of folders and
//! links on the path, and others who may write to one of the folders. As they can choose the file, each of them must
//! have access to every folder that follows. In a folder with the sticky bit only the owner of a link can replace it.
//! Group membership is unknown: a group counts separately, and a user has the rights of the owner or of others.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum symbolic links in a path, as in Linux.
const LINKS_MAX: usize = 40;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Mode bits: read a file, enter a folder.
const READ: u32 = 0o4;
const SEARCH: u32 = 0o1;
/// User that owns files not chosen by any particular user.
const NOBODY: u32 = 65_534;

/// A user or group that can choose the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chooser {
    /// The user who named the path in a file.
    Reader(u32),
    User(u32),
    Group(u32),
    Everybody,
}

impl Chooser {
    /// Whether the mode grants them this right.
    fn may(self, bit: u32, data: &Metadata) -> bool {
        let digit = match self {
            Chooser::Reader(user) | Chooser::User(user) if user == data.uid() => 6,
            Chooser::Group(group) if group == data.gid() => 3,
            _ => 0,
        };
        data.mode() >> digit & bit != 0
    }

    /// Whether they own a file.
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

/// Whether the user is neither root nor that of this process.
fn is_other(user: u32) -> bool {
    user != 0 && user != geteuid().as_raw()
}

/// A path that was followed to its end.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// Path without symbolic links.
    real: PathBuf,
    choosers: Vec<Chooser>,
}

impl ResolvedPath {
    /// Follows a path. `reader`: the user who named it.
    pub fn of(path: &Path, reader: Option<u32>) -> Result<ResolvedPath, String> {
        let failed = |error: io::Error| error.to_string();
        let choosers = reader.filter(|user| is_other(*user)).map(Chooser::Reader).into_iter().collect();
        let mut way = ResolvedPath { real: PathBuf::from("/"), choosers };
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

    /// Enters the folder that has been reached.
    fn enter(&mut self) -> Result<(), String> {
        let data = fs::metadata(&self.real).map_err(|error| error.to_string())?;
        if let Some(who) = self.choosers.iter().find(|who| !who.may(SEARCH, &data)) {
            return Err(format!("{who} may not enter {}", self.real.display()));
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
            // Group of root.
            Chooser::Group(group) => group == 0,
            Chooser::Reader(_) | Chooser::Everybody => false,
        };
        if !is_known && !self.choosers.contains(&who) {
            self.choosers.push(who);
        }
    }

    /// Whether the opened file is the one at the end of this path: a folder or link may have been replaced meanwhile.
    /// `place` returns the file's path.
    pub fn leads_to(&self, place: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<bool> {
        Ok(self.choosers.is_empty() || place()? == self.real)
    }

    /// Whether all who can choose the file could read it.
    pub fn may_read(&self, data: &Metadata) -> Result<(), String> {
        match self.choosers.iter().find(|who| !who.may(READ, data)) {
            Some(who) => Err(format!("{who} may not read it (mode {:04o})", data.mode() & 0o7777)),
            None => Ok(()),
        }
    }

    /// The user to whom the file is attributed: its owner, unless others can choose it.
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

/// The components of a path, in reverse order.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32, user: u32, group: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        chown(path, Some(user), Some(group)).unwrap();
    }

    /// Reads a file with this mode and owner at the end of a path.
    fn read(path: &Path) -> Result<u32, String> {
        let way = ResolvedPath::of(path, None)?;
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
        set(root.path(), 0o755, 0, 0);
        let [private, home] = ["private", "home"].map(|name| root.path().join(name));
        for folder in [&private, &home] {
            fs::create_dir(folder).unwrap();
        }
        let [secret, named] = [private.join("secret"), home.join("list")];
        fs::write(&secret, "x").unwrap();
        symlink(&secret, &named).unwrap();
        let refused = |why: &str| assert!(read(&named).unwrap_err().starts_with(why), "{:?}", read(&named));
        // Root's folder: root may link to anything.
        set(&private, 0o700, 0, 0);
        set(&secret, 0o600, 0, 0);
        set(&home, 0o755, 0, 0);
        assert_eq!(read(&named), Ok(0));
        // The folder is a user's although root made the link, or the link is a user's although the folder is root's.
        set(&home, 0o755, 7, 7);
        refused("user 7, who can change the path to it, may not enter ");
        set(&private, 0o711, 0, 0);
        refused("user 7, who can change the path to it, may not read it (mode 0600)");
        set(&home, 0o1777, 0, 0);
        assert_eq!(read(&named), Ok(0), "the sticky bit");
        lchown(&named, Some(8), None).unwrap();
        refused("user 8, who can change the path to it, may not read it (mode 0600)");
        lchown(&named, Some(0), None).unwrap();
        set(&home, 0o2775, 0, 9);
        refused("group 9, which can change the path to it, may not read it (mode 0600)");
        set(&home, 0o777, 0, 9);
        refused("group 9,");
        set(&secret, 0o640, 0, 9);
        refused("everybody can change the path to it, and may not read it (mode 0640)");
        // A file that they could read is read, but no longer attributed to root.
        set(&secret, 0o644, 0, 0);
        assert_eq!(read(&named), Ok(NOBODY));
        set(&home, 0o755, 7, 7);
        assert_eq!(read(&named), Ok(7));
        set(&secret, 0o644, 6, 6);
        assert_eq!(read(&named), Ok(7), "nor that of another user");
    }

    /// Folders of list users, below folders that only root and the server can enter.
    #[test]
    fn lists_of_their_user_are_read() {
        if !geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        set(root.path(), 0o700, 0, 0);
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
            set(&folder, folder_mode, folder_owner.0, folder_owner.1);
            set(&file, mode, owner.0, owner.1);
            assert_eq!(read(&file), Ok(7), "{folder_mode:o}");
        }
        let link = root.path().join("link");
        symlink("mailman/../mailman/./aliases", &link).unwrap();
        assert_eq!(ResolvedPath::of(&link, None).unwrap().real, file.canonicalize().unwrap());
    }

    #[test]
    fn a_link_to_itself_has_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("round");
        symlink("round", &link).unwrap();
        assert!(ResolvedPath::of(&link, None).unwrap_err().contains("symbolic links"));
    }

    #[test]
    fn another_file_than_the_one_at_the_end_is_seen() {
        let way = ResolvedPath { real: PathBuf::from("/home/u/list"), choosers: vec![Chooser::User(7)] };
        assert!(way.leads_to(|| Ok("/home/u/list".into())).unwrap());
        assert!(!way.leads_to(|| Ok("/private/secret".into())).unwrap());
        let roots = ResolvedPath { choosers: Vec::new(), ..way };
        assert!(roots.leads_to(|| unreachable!("nobody could replace it")).unwrap());
    }
}
