//! Tracing of any program: a running process (`--pid`) or a command, with all that they start.
//!
//! A command is started stopped (`kill -STOP` of its own shell), so that nothing of it is missed, in a process group of its own,
//! so that all of it can be ended. The trace is read while it runs, by this thread, into memory alone.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use stentor_measure::{MeasureError, Stop};

use crate::iotrace::collect::Tracer;
use crate::iotrace::collect::tracer::{deadline, own_thread};
use crate::iotrace::event::Trace;
use crate::iotrace::generate::now_ns;

/// How long a command has to end after SIGTERM.
const END_WAIT: Duration = Duration::from_secs(5);

/// What a program's trace gave.
#[derive(Clone, Debug)]
pub struct Followed {
    pub trace: Trace,
    pub threads: BTreeSet<i32>,
    pub tracer: BTreeSet<i32>,
    pub traced_ns: u64,
    /// What is to be said of it.
    pub warnings: Vec<String>,
}

/// Threads of a process and of all that it has started; a refusal if there is no such process.
pub fn tree(pid: i32) -> Result<Vec<i32>, MeasureError> {
    if pid <= 0 || !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(MeasureError::Refused(format!("no process {pid}; see `ps -e` for those that there are")));
    }
    let mut processes = vec![pid];
    let all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    let mut at = 0;
    while let Some(&known) = processes.get(at) {
        processes.extend(all.iter().filter(|(_, parent)| *parent == known).map(|(pid, _)| *pid));
        at += 1;
    }
    let tasks = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = processes.iter().flat_map(|pid| tasks(*pid));
    Ok(threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Of `/proc/PID/stat`; the name, in parentheses, may hold anything.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A command that waits to be let go.
#[derive(Debug)]
pub struct Held {
    child: Child,
    pid: Pid,
}

impl Held {
    pub fn start(program: &[OsString]) -> Result<Held, MeasureError> {
        let name = program.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let child = Command::new("/bin/sh")
            .args(["-c", "kill -STOP $$; exec \"$@\"", "stentor-iotrace"])
            .args(program)
            .process_group(0)
            .spawn()
            .map_err(MeasureError::file("/bin/sh"))?;
        let pid = Pid::from_child(&child);
        let held = Held { child, pid };
        match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => Ok(held),
            _ => Err(MeasureError::Refused(format!("`{name}` could not be held back before its start"))),
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn release(&self) {
        let _ = kill_process(self.pid, Signal::CONT);
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn exit_warning(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        match status.code() {
            Some(0) => None,
            Some(127) => Some("the command was not found (status 127): give its path".to_owned()),
            Some(126) => Some("the command is no program that may be run (status 126)".to_owned()),
            _ => Some(format!("the command ended with {status}")),
        }
    }
}

impl Drop for Held {
    /// Ends all of its group that is left.
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = kill_process_group(self.pid, Signal::TERM);
            self.release();
            let begun = Instant::now();
            while !self.has_ended() && begun.elapsed() < END_WAIT {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Lets a held command go, and waits until it or the process ends, for the deadline or a stop.
pub fn wait(held: &mut Option<Held>, roots: &[i32], end: Instant, stop: &Stop) {
    if let Some(held) = held {
        held.release();
    }
    while !is_over(held, roots, end, stop) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_over(held: &mut Option<Held>, roots: &[i32], end: Instant, stop: &Stop) -> bool {
    let has_ended = match held {
        Some(held) => held.has_ended(),
        None => roots.first().is_none_or(|pid| !Path::new(&format!("/proc/{pid}")).exists()),
    };
    has_ended || Instant::now() >= end || stop.is_set()
}

/// Traces until it ends, for `seconds` at most. `held`: the command, else the process runs already.
pub fn follow(
    tracer: &mut Tracer,
    roots: &[i32],
    mut held: Option<Held>,
    seconds: f64,
    stop: &Stop,
) -> Result<Followed, MeasureError> {
    tracer.clear()?;
    let before = now_ns();
    tracer.switch(true)?;
    if let Some(held) = &held {
        held.release();
    }
    let end = deadline(seconds);
    let streamed = tracer.stream(|| is_over(&mut held, roots, end, stop));
    tracer.switch(false)?;
    let traced_ns = now_ns() - before;
    let mut warnings = Vec::new();
    if !streamed? {
        warnings.push(format!(
            "the memory for events was full after {:.1} s; give more --memory-mib, fewer --seconds or a smaller --scope",
            traced_ns as f64 / 1e9
        ));
    }
    warnings.extend(held.as_mut().and_then(Held::exit_warning));
    drop(held);
    let trace = tracer.finish()?;
    let threads = tracer.tree_of(&trace, roots);
    Ok(Followed { trace, threads, tracer: BTreeSet::from([own_thread()]), traced_ns, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_children_and_a_missing_process_is_refused() {
        assert_eq!(parent("12 (a b) c) S 7 12 12"), Some(7));
        assert_eq!(parent("nothing"), None);
        let held = Held::start(&[OsString::from("true")]).unwrap();
        let threads = tree(std::process::id().cast_signed()).unwrap();
        assert!(threads.contains(&held.pid()) && threads.contains(&own_thread()), "{threads:?}");
        let group = held.pid;
        drop(held);
        assert!(rustix::process::test_kill_process_group(group).is_err());
        assert!(tree(0).is_err());
        let error = tree(i32::MAX).unwrap_err().to_string();
        assert!(error.contains("no process 2147483647"), "{error}");
    }
}
