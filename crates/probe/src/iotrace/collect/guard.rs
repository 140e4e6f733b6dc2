//! What takes a trace down if we cannot: a shell that waits for our end of a pipe to close, and a look at the start for
//! what others left behind.
//!
//! The guard is in a process group of its own and ignores the signals of a terminal, so that it outlives Ctrl-C and
//! `kill -9` of us. It does nothing but switch the named instances off and remove them. If it is killed as well (by the end of a
//! control group), the kernel still stops the tracing, as `free_buffer` is closed with `disable_on_free` set
//! ([`Instance`](super::instance::Instance)), and the next run sweeps the folder away.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Instances of ours: `stentor-PID-N`.
pub const PREFIX: &str = "stentor-";

/// Reads paths until the pipe closes; then each that still is there is switched off and removed. Readers that the kernel
/// is still closing keep it busy for a moment.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM
cd /
all=
while IFS= read -r path; do all="$all $path"; done
for path in $all; do
  [ -d "$path" ] || continue
  echo 0 > "$path/tracing_on"
  echo 0 > "$path/events/enable"
  echo nop > "$path/current_tracer"
  for try in 1 2 3 4 5 6 7 8 9 10; do rmdir "$path" && break; sleep 0.2; done
done
"#;

/// The guard process; it ends when this is dropped, after the instances.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    pub fn start() -> io::Result<Guard> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "stentor-iotrace-guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Guard { child, pipe })
    }

    /// Called before the instance is made. The path is ours: without blanks.
    pub fn watch(&mut self, instance: &Path) -> io::Result<()> {
        let pipe = self.pipe.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        writeln!(pipe, "{}", instance.display())
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// The process that made an instance, by its name.
fn owner(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Removes instances of ours whose process is gone. Those that were removed.
pub fn sweep(tracefs: &Path) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(tracefs.join("instances")).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(owner) else { continue };
        if Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        let path = entry.path();
        // Who still has a file of it open (in another PID namespace) keeps it: then this fails, and changes nothing.
        if fs::remove_dir(&path).is_ok() {
            removed.push(path);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_swept() {
        assert_eq!(owner("stentor-12-0"), Some(12));
        for name in ["stentor-12", "stentor-a-0", "stentor-12-x", "other-12-0", "stentor-test-collect"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn the_guard_cleans_what_is_left_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("stentor-1-0");
        let kept = folder.path().join("kept");
        let mut guard = Guard::start().unwrap();
        guard.watch(&made).unwrap();
        guard.watch(&folder.path().join("never-made")).unwrap();
        // An empty folder: the guard's `echo` makes a file in it on an ordinary file system, and `rmdir` then fails, so
        // what is checked here is that it has been written to and that nothing else was.
        fs::create_dir(&made).unwrap();
        fs::create_dir(&kept).unwrap();
        drop(guard);
        assert_eq!(fs::read_to_string(made.join("tracing_on")).unwrap(), "0\n");
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
    }
}
