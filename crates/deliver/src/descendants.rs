//! Processes below this one, and their end.
//!
//! A process that is a subreaper gets as children all that its descendants leave behind, whatever session or group they have put
//! themselves into. Promise: [`end`] returns when there is no such process any more, or after [`PATIENCE`] if the kernel does
//! not let one go (one that waits for a disk).

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait, waitpid};

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// Makes this process the parent of whatever its descendants leave behind.
pub fn adopt() -> io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

/// Whether there are any; those that have ended are taken away.
pub fn are_there() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(_) => return false,
            Ok(Some(_)) => {}
            Ok(None) => return true,
        }
    }
}

/// Kills all descendants and waits for their end. Whether none is left.
pub fn end() -> bool {
    let begun = Instant::now();
    loop {
        match wait(WaitOptions::NOHANG) {
            // No child at all: nobody below.
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

/// Kills and takes away the children of this process that `is_own` does not know: what a dead worker left to it.
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

/// The children of this process, by the parent that /proc names for each process.
fn children() -> Vec<Pid> {
    let own = getpid();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    pids.filter(|pid| parent(*pid) == Some(own)).collect()
}

/// `pid (name) state parent ...`: a name may hold anything, `)` too.
fn parent(pid: Pid) -> Option<Pid> {
    let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let behind = text.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&text[behind..]).ok()?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}
