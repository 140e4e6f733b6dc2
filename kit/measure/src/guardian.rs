//! Cleans up even after `kill -9`: a shell that outlives us knows how to undo what we did. One per process guards all
//! scratch folders, file systems on loop devices, limits, control groups, trace instances and traced commands.
//!
//! Promise: whatever was registered ([`Guardian::guard`]) before it was done is undone when this process ends in any
//! way, newest first; what we undid ourselves is not undone twice. Ctrl-C on the terminal does not reach the guardian.
//!
//! It is a child, `sh`, that reads from a pipe whose other end only we hold: `+N COMMAND` to remember, `-N` to forget;
//! end of file means that we are gone. A line is written whole before [`Guardian::guard`] returns, so that even a kill
//! right after it finds the command there. Commands must be harmless when there is nothing to undo, since they are
//! registered first.
//!
//! It does not survive the end of everything at once (the machine, a container, a control group): the creators of
//! things named by process id sweep them at their next start.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// `sh` reads a line at a time; what it ran so far is in `c1`, `c2` ..., the newest first in `order`.
const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT
cd /
order=
while IFS= read -r line; do
  word=${line%% *}
  number=${word#?}
  case $line in
    +*) eval "c$number=\${line#* }"; order="$number $order" ;;
    -*) eval "c$number=" ;;
  esac
done
for number in $order; do
  eval "command=\$c$number"
  if [ -n "$command" ]; then eval "$command"; fi
done
"#;

/// The process's own, while anybody has it.
static SHARED: Mutex<Weak<Guardian>> = Mutex::new(Weak::new());

/// A child that cleans up after us. Dropped, it does what is left to do, and is waited for.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    pipe: Option<Mutex<Pipe>>,
}

#[derive(Debug)]
struct Pipe {
    end: ChildStdin,
    last: u64,
}

/// Something that will be undone at our end, unless this is dropped before: who drops it has undone it.
#[derive(Debug)]
pub struct Guarded {
    guardian: Option<Arc<Guardian>>,
    number: u64,
}

impl Guardian {
    pub fn start() -> io::Result<Arc<Guardian>> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT])
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of the terminal's foreground.
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take().map(|end| Mutex::new(Pipe { end, last: 0 }));
        Ok(Arc::new(Guardian { child, pipe }))
    }

    /// The one of this process: started for whoever asks first, gone with the last who has something to guard.
    pub fn shared() -> io::Result<Arc<Guardian>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guardian) = shared.upgrade() {
            return Ok(guardian);
        }
        let guardian = Guardian::start()?;
        *shared = Arc::downgrade(&guardian);
        Ok(guardian)
    }

    /// Entrusts a command of the shell, in one line ([`quoted`] for paths). Call it before doing what it undoes.
    pub fn guard(self: &Arc<Self>, command: &str) -> io::Result<Guarded> {
        if command.contains('\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name with a line end"));
        }
        let number = self.tell(|last| {
            *last += 1;
            (*last, format!("+{last} {command}\n"))
        })?;
        Ok(Guarded { guardian: Some(Arc::clone(self)), number })
    }

    fn tell(&self, line: impl FnOnce(&mut u64) -> (u64, String)) -> io::Result<u64> {
        let pipe = self.pipe.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, line) = line(&mut pipe.last);
        pipe.end.write_all(line.as_bytes())?;
        Ok(number)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // The pipe ends, then the shell does.
        self.pipe = None;
        let _ = self.child.wait();
    }
}

impl Guarded {
    /// We did not undo it; the guardian will.
    pub fn leave(mut self) {
        self.guardian = None;
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let number = self.number;
        if let Some(guardian) = self.guardian.take() {
            // One that is gone has nothing left to forget.
            let _ = guardian.tell(|_| (number, format!("-{number}\n")));
        }
    }
}

/// Where programs of administrators are searched for too.
pub(crate) fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned()))
}

/// A path as a word of the shell.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_undone_is_undone_at_the_end_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("it's a log");
        let say = |word: &str| format!("echo {word} >> {}", quoted(&log));
        let guardian = Guardian::start().unwrap();
        guardian.guard(&say("first")).unwrap().leave();
        drop(guardian.guard(&say("undone")).unwrap());
        let last = guardian.guard(&say("last")).unwrap();
        assert!(guardian.guard("a\nb").is_err());
        last.leave();
        assert!(!log.exists());
        drop(guardian);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "last\nfirst\n");
    }

    #[test]
    fn a_process_has_one_while_it_is_needed() {
        let first = Guardian::shared().unwrap();
        assert!(Arc::ptr_eq(&first, &Guardian::shared().unwrap()));
        let guarded = first.guard("true").unwrap();
        drop(first);
        // Who has something to guard keeps it.
        let kept = guarded.guardian.as_ref().map(Arc::downgrade).unwrap();
        assert!(kept.upgrade().is_some());
    }

    /// The owner is killed: a shell that starts this test's binary again would be more than is needed, since all that
    /// the guardian sees is the end of its pipe.
    #[test]
    fn signals_of_a_terminal_do_not_reach_it() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let guardian = Guardian::start().unwrap();
        guardian.guard(&format!("touch {}", quoted(&mark))).unwrap().leave();
        let process = rustix::process::Pid::from_child(&guardian.child);
        // It has read a line, so that its trap is set.
        guardian.guard("true").unwrap().leave();
        let own = rustix::process::getpgrp();
        assert_ne!(rustix::process::getpgid(Some(process)).unwrap(), own);
        drop(guardian);
        assert!(mark.exists());
    }
}
