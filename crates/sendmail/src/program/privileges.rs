//! The group of a setgid program: lowered at once, raised for single calls.
//!
//! Real and effective user are made one, so that a file belongs to whoever called, and nobody may run this with another's
//! effective user. The saved group stays that of the folder until [`Privileges::give_up`] or the end, so that the process
//! is never one that its user may trace (ptrace(2): all three group ids must be the tracer's).

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, close, getegid, getgid, getuid, setresgid, setresuid};
use stentor_sendmail::exit::Failure;

/// Descriptors below are standard input, output and error, which Rust's start opens if they are closed.
const FIRST_OTHER: i32 = 3;

pub struct Privileges {
    real: Gid,
    folder: Gid,
}

impl Privileges {
    /// Goes on with the rights of whoever called.
    pub fn lowered() -> Result<Privileges, Failure> {
        let failed = |error| Failure::later(format!("cannot lower privileges: {error}"));
        let (uid, real, folder) = (getuid(), getgid(), getegid());
        setresuid(uid, uid, uid).map_err(failed)?;
        setresgid(real, real, folder).map_err(failed)?;
        umask(Mode::from_bits_truncate(0o077));
        close_inherited();
        Ok(Privileges { real, folder })
    }

    pub fn is_elevated(&self) -> bool {
        self.real != self.folder
    }

    /// Does one thing with the folder's group.
    pub fn raised<T>(&self, what: impl FnOnce() -> T) -> Result<T, Failure> {
        let failed = |error| Failure::later(format!("cannot change the group: {error}"));
        setresgid(self.real, self.folder, self.folder).map_err(failed)?;
        let done = what();
        setresgid(self.real, self.real, self.folder).map_err(failed)?;
        Ok(done)
    }

    /// Gives the folder's group up for good.
    pub fn give_up(self) -> Result<(), Failure> {
        let failed = |error| Failure::later(format!("cannot give up the group: {error}"));
        setresgid(self.real, self.real, self.real).map_err(failed)
    }
}

/// Closes what the caller left open: a pipe's end that stays open keeps its reader waiting. Nothing here depends on it.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // All are gathered, and the folder closed, before the first is closed.
    let open: Vec<i32> = names.filter(|fd| *fd >= FIRST_OTHER).collect();
    for fd in open {
        let _ = close(fd);
    }
}
