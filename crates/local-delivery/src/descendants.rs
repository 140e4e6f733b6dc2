//! Finds and ends the descendants of this process.
//!
//! A subreaper becomes the parent of all orphaned descendants, whatever their session or group. Promise: [`end`]
//! returns when there is no such process any more, or after [`PATIENCE`] if one cannot be killed (such as one that
//! waits for a disk).

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait, waitpid};

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// Makes this process the parent of orphaned descendants.
pub fn adopt() -> io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

/// Whether there are any; those that have ended are reaped.
pub fn are_there() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(_) => return false,
            Ok(Some(_)) => {}
            Ok(None) => return true,
        }
    }
}

/// Kills all descendants and waits for their end. Returns whether none is left.
pub fn end() -> bool {
    let begun = Instant::now();
    loop {
        match wait(WaitOptions::NOHANG) {
            // There is no child, so there are no descendants.
            Err(_) => return true,
            Ok(Some(_)) => continue,
            Ok(None) => {}
        }
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        thread::sleep(PAUSE);
    }
}

/// Kills and reaps children of this process for which `is_own` returns false: orphans of a dead worker.
pub fn end_orphans(is_own: impl Fn(Pid) -> bool) {
    let begun = Instant::now();
    loop {
        let orphans: Vec<Pid> = children().into_iter().filter(|child| !is_own(*child)).collect();
        if orphans.is_empty() || begun.elapsed() >= PATIENCE {
            return;
        }
        for child in orphans {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::NOHANG);
        }
        thread::sleep(PAUSE);
    }
}

/// The children of this process, found by the parent of each process in /proc.
fn children() -> Vec<Pid> {
    let own = getpid();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    pids.filter(|pid| parent(*pid) == Some(own)).collect()
}

/// Parses `pid (name) state parent ...`; a name may contain any character, even `)`.
fn parent(pid: Pid) -> Option<Pid> {
    let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let behind = text.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&text[behind..]).ok()?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}
