//! The group of a setgid program: dropped at the start, raised for single calls.
//!
//! The effective user is set to the real one, so that files belong to the caller, and the program cannot be run with
//! another effective user. The saved group remains that of the folder until [`Privileges::give_up`] or the end, so
//! that its user can never trace the process (ptrace(2): all three group IDs must be the tracer's).

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, close, getegid, getgid, getuid, setresgid, setresuid};
use stentor_sendmail::exit::ExitError;

/// Lower descriptors are standard input, output and error, which Rust's startup code opens if they are closed.
const FIRST_OTHER: i32 = 3;

pub struct Privileges {
    real: Gid,
    folder: Gid,
}

impl Privileges {
    /// Continues with the rights of the caller.
    pub fn lowered() -> Result<Privileges, ExitError> {
        let failed = |error| ExitError::later(format!("cannot lower privileges: {error}"));
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

    /// Runs a function with the folder's group.
    pub fn raised<T>(&self, what: impl FnOnce() -> T) -> Result<T, ExitError> {
        let failed = |error| ExitError::later(format!("cannot change the group: {error}"));
        setresgid(self.real, self.folder, self.folder).map_err(failed)?;
        let done = what();
        setresgid(self.real, self.real, self.folder).map_err(failed)?;
        Ok(done)
    }

    /// Gives up the folder's group permanently.
    pub fn give_up(self) -> Result<(), ExitError> {
        let failed = |error| ExitError::later(format!("cannot give up the group: {error}"));
        setresgid(self.real, self.real, self.real).map_err(failed)
    }
}

/// Closes inherited descriptors: an open end of a pipe would keep its reader waiting. Nothing here depends on them.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // All are collected, and the folder is closed, before the first is closed.
    let open: Vec<i32> = names.filter(|fd| *fd >= FIRST_OTHER).collect();
    for fd in open {
        let _ = close(fd);
    }
}
