//! Users of this machine, and acting as one of them.
//!
//! Promise: [`PasswdEntry::act`] runs a function with the account's effective user and group and no other groups, and
//! then restores those of this process; if that fails the process exits, since it would continue with unintended
//! rights. Lookups distinguish "no such user" from "could not be looked up".
//!
//! It must only be used in a process with one thread, because credentials belong to threads.

use std::io;
use std::path::PathBuf;

use nix::unistd::{Group, User};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user in passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswdEntry {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    pub shell: PathBuf,
}

impl From<User> for PasswdEntry {
    fn from(user: User) -> PasswdEntry {
        let User { name, uid, gid, dir, shell, .. } = user;
        PasswdEntry { name, uid: uid.as_raw(), gid: gid.as_raw(), home: dir, shell }
    }
}

impl PasswdEntry {
    /// Finds the user by name; `None` if the system has no such user.
    pub fn find(name: &str) -> io::Result<Option<PasswdEntry>> {
        Ok(User::from_name(name).map_err(io::Error::from)?.map(PasswdEntry::from))
    }

    /// Finds the user by number.
    pub fn of(uid: u32) -> io::Result<Option<PasswdEntry>> {
        Ok(User::from_uid(uid.into()).map_err(io::Error::from)?.map(PasswdEntry::from))
    }

    /// Whether the user may start programs: the login shell is in the contents of /etc/shells (shells(5)).
    pub fn has_shell(&self, shells: &str) -> bool {
        let own = self.shell.to_str().unwrap_or_default();
        !own.is_empty() && shells.lines().map(str::trim).any(|shell| shell == own)
    }

    /// Runs a function as this user, with `gid` as the only group.
    pub fn act<T>(&self, gid: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let own = Credentials { uid: geteuid(), gid: getegid(), groups: getgroups()? };
        if own.uid.as_raw() == self.uid && !own.uid.is_root() {
            return work();
        }
        if let Err(error) = assume(Uid::from_raw(self.uid), Gid::from_raw(gid), &[Gid::from_raw(gid)]) {
            restore(&own);
            return Err(io::Error::new(error.kind(), format!("cannot act as user {}: {error}", self.name)));
        }
        let result = work();
        restore(&own);
        result
    }
}

/// The number of a group, given by name or number.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    let found = Group::from_name(name).map_err(io::Error::from)?;
    Ok(found.map(|group| group.gid.as_raw()))
}

fn assume(uid: Uid, gid: Gid, groups: &[Gid]) -> io::Result<()> {
    set_thread_groups(groups)?;
    set_thread_res_gid(None, gid, None)?;
    set_thread_res_uid(None, uid, None)?;
    Ok(())
}

/// The user and groups of a thread.
struct Credentials {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// Restores the user first: only root may set groups.
fn restore(Credentials { uid, gid, groups }: &Credentials) {
    let restored = set_thread_res_uid(None, *uid, None)
        .and_then(|()| set_thread_res_gid(None, *gid, None))
        .and_then(|()| if uid.is_root() { set_thread_groups(groups) } else { Ok(()) });
    if restored.is_err() {
        crate::log::error("cannot switch back to the previous user; exiting");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn users_are_found_or_not() {
        let root = PasswdEntry::find("root").unwrap().unwrap();
        assert_eq!((root.uid, root.name.as_str()), (0, "root"));
        assert_eq!(PasswdEntry::of(0).unwrap().as_ref(), Some(&root));
        assert!(root.has_shell(&format!("# shells\n/bin/x\n{} \n", root.shell.display())));
        assert!(!root.has_shell("/bin/x\n"));
        assert_eq!(PasswdEntry::find("no-such-user-here").unwrap(), None);
        assert_eq!(group("no-such-group-here").unwrap(), None);
    }

    #[test]
    fn work_is_done_as_the_user_and_the_former_one_restored() {
        if !geteuid().is_root() {
            eprintln!("*** SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(12_345), Some(54_321)).unwrap();
        let account = PasswdEntry {
            name: "x".to_owned(),
            uid: 12_345,
            gid: 54_321,
            home: folder.path().into(),
            shell: PathBuf::new(),
        };
        let file = folder.path().join("file");
        let groups = account.act(54_321, || {
            fs::write(&file, "")?;
            assert!(fs::read("/etc/shadow").is_err(), "no right of root is left");
            Ok(getgroups()?)
        });
        assert_eq!(groups.unwrap(), [Gid::from_raw(54_321)]);
        let data = fs::metadata(&file).unwrap();
        assert_eq!((data.uid(), data.gid()), (12_345, 54_321));
        assert!(geteuid().is_root());
        assert!(fs::read("/etc/shadow").is_ok());
        let failed = account.act(54_321, || Err::<(), _>(io::Error::other("x")));
        assert!(failed.is_err() && geteuid().is_root());
    }
}
