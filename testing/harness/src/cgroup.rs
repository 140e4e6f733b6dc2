//! A control group with a memory limit; removed when dropped, after its processes have gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::skipped;

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub struct MemoryCap {
    folder: PathBuf,
    is_v1: bool,
}

impl MemoryCap {
    /// Version 1 where its memory controller is mounted, else version 2; `None` after having said why there is none.
    pub fn make(bytes: u64) -> Option<MemoryCap> {
        if !rustix::process::geteuid().is_root() {
            skipped("control groups need root");
            return None;
        }
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let is_v1 = v1.join("memory.limit_in_bytes").is_file();
        let root = if is_v1 { v1 } else { Path::new("/sys/fs/cgroup") };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = root.join(format!("stentor-test-{}-{number}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            skipped(&format!("no control group can be made: {error}"));
            return None;
        }
        let cap = MemoryCap { folder, is_v1 };
        let limit = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        if let Err(error) = fs::write(cap.folder.join(limit), bytes.to_string()) {
            skipped(&format!("no memory limit can be set: {error}"));
            return None;
        }
        // The kernel would use swap before it kills; where there is none, there is nothing to forbid.
        let _ = fs::write(cap.folder.join("memory.swap.max"), "0");
        let _ = fs::write(cap.folder.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        Some(cap)
    }

    /// A command that runs within it.
    pub fn around(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        let enter = format!("echo $$ > '{}' && exec \"$0\" \"$@\"", self.folder.join("cgroup.procs").display());
        inside.arg("-c").arg(enter).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(key, value);
            }
        }
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        inside
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
        inside
    }

    /// Processes that the kernel killed for want of memory.
    pub fn killed(&self) -> u64 {
        let file = if self.is_v1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.folder.join(file)).expect("the group is there");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.parse().ok()).expect("the kernel counts kills")
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        // A process that was just killed may hold it for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
