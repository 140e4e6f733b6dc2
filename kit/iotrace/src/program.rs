//! Traces any program: a running process (`--pid`) or a command, with all their children.
//!
//! A command is started stopped (`kill -STOP` of its own shell), so that nothing of it is missed, in a process group of
//! its own, so that all of it can be ended, by the guardian if we are killed. What it prints goes to our standard
//! error: standard output is the report's. The trace is read while it runs, by this thread, into memory alone.
//!
//! A trace ends when no process of the tree is alive, according to the kernel, which follows the tree: a command that
//! goes to the background is still traced.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use stentor_measure::guardian::Guarded;
use stentor_measure::output::own_error_output;
use stentor_measure::{Guardian, MeasureError, Stop};

use crate::collect::Tracer;
use crate::collect::tracer::{deadline, own_thread};
use crate::event::Trace;
use crate::generate::now_ns;

/// How long a command has to end after SIGTERM.
const END_WAIT: Duration = Duration::from_secs(5);

/// What a program's trace gave.
#[derive(Clone, Debug)]
pub struct ProgramTrace {
    pub trace: Trace,
    pub threads: BTreeSet<i32>,
    pub tracer: BTreeSet<i32>,
    pub traced_ns: u64,
    /// What is to be said of it.
    pub warnings: Vec<String>,
}

/// Threads of a process and of all that it has started, ourselves and what we have started apart; a refusal if there is
/// no such process.
pub fn tree(pid: i32) -> Result<Vec<i32>, MeasureError> {
    if pid <= 0 || !is_there(pid) {
        return Err(MeasureError::Refused(format!("no process {pid}; list processes with `ps -e`")));
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
    // Where it is our ancestor: we are no part of it, nor is our guardian.
    let own = std::process::id().cast_signed();
    let all: Vec<(i32, i32)> = all.into_iter().filter(|(child, _)| *child != own).collect();
    let mut at = 0;
    while let Some(&known) = processes.get(at) {
        processes.extend(all.iter().filter(|(_, parent)| *parent == known).map(|(pid, _)| *pid));
        at += 1;
    }
    processes.retain(|pid| *pid != own);
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
    /// None where there is no shell for the guardian.
    _guarded: Option<Guarded>,
}

/// The guardian's way to end a group.
fn undo(group: i32) -> String {
    format!(
        "kill -s TERM -- -{group}; kill -s CONT -- -{group}; \
         for t in 1 2 3 4 5; do kill -s 0 -- -{group} || break; sleep 1; done; kill -s KILL -- -{group}"
    )
}

impl Held {
    pub fn start(program: &[OsString]) -> Result<Held, MeasureError> {
        let name = program.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let child = Command::new("/bin/sh")
            .args(["-c", "kill -STOP $$; exec \"$@\"", "stentor-iotrace"])
            .args(program)
            .process_group(0)
            .stdout(own_error_output()?)
            .spawn()
            .map_err(MeasureError::file("/bin/sh"))?;
        let pid = Pid::from_child(&child);
        let guardian = Guardian::shared().ok();
        let guarded = guardian.and_then(|guardian| guardian.guard(&undo(pid.as_raw_nonzero().get())).ok());
        let held = Held { child, pid, _guarded: guarded };
        match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => Ok(held),
            _ => Err(MeasureError::Refused(format!("`{name}` could not be stopped before its start"))),
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
            Some(127) => Some("the command was not found (status 127): use its full path".to_owned()),
            Some(126) => Some("the command is not executable (status 126)".to_owned()),
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
    while !is_over(held, roots, None, end, stop) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `tree_lives`: of what the kernel follows, if it does; else the command or the process stands for all of it.
fn is_over(held: &mut Option<Held>, roots: &[i32], tree_lives: Option<bool>, end: Instant, stop: &Stop) -> bool {
    let has_ended = match held {
        Some(held) => held.has_ended() && tree_lives != Some(true),
        None => !tree_lives.unwrap_or_else(|| roots.first().is_some_and(|pid| is_there(*pid))),
    };
    has_ended || Instant::now() >= end || stop.is_set()
}

/// Whether it runs: one that has ended and that nobody has waited for does not.
pub fn is_there(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // Its first thread may have ended before the others.
    !has_ended(&stat) || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
}

/// By its state: a zombie, or dead.
fn has_ended(stat: &str) -> bool {
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Threads that a running process has got since it was looked at, until there are no more: those started while it was
/// looked at are followed too.
pub fn catch_up(tracer: &Tracer, pid: i32, roots: &mut Vec<i32>) -> Result<(), MeasureError> {
    const TRIES: u32 = 10;
    for _ in 0..TRIES {
        // One that has ended meanwhile is the trace's end, no error.
        let all = if is_there(pid) { tree(pid).unwrap_or_default() } else { Vec::new() };
        let fresh: Vec<i32> = all.into_iter().filter(|tid| !roots.contains(tid)).collect();
        if fresh.is_empty() {
            break;
        }
        tracer.follow(&fresh)?;
        roots.extend(fresh);
    }
    Ok(())
}

/// Traces until it ends, for `seconds` at most. `held`: the command, else the process runs already.
pub fn follow(
    tracer: &mut Tracer,
    roots: &[i32],
    mut held: Option<Held>,
    seconds: f64,
    stop: &Stop,
) -> Result<ProgramTrace, MeasureError> {
    tracer.clear()?;
    let before = now_ns();
    tracer.switch(true)?;
    if let Some(held) = &held {
        held.release();
    }
    let end = deadline(seconds);
    let tree_lives = |tracer: &Tracer| Some(tracer.followed()?.into_iter().any(is_there));
    let streamed = tracer.stream(|tracer| is_over(&mut held, roots, tree_lives(tracer), end, stop));
    tracer.switch(false)?;
    let traced_ns = now_ns() - before;
    let mut warnings = Vec::new();
    if !streamed? {
        warnings.push(format!(
            "the memory for events was full after {:.1} of {seconds} s, and the trace ended there; increase \
             --memory-mib, or reduce --seconds or --scope",
            traced_ns as f64 / 1e9
        ));
    }
    warnings.extend(held.as_mut().and_then(Held::exit_warning));
    drop(held);
    let trace = tracer.finish()?;
    let threads = tracer.tree_of(&trace, roots);
    Ok(ProgramTrace { trace, threads, tracer: BTreeSet::from([own_thread()]), traced_ns, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_children_and_a_missing_process_is_refused() {
        assert_eq!(parent("12 (a b) c) S 7 12 12"), Some(7));
        assert_eq!(parent("nothing"), None);
        assert!(has_ended("12 (a) S b) Z 7") && !has_ended("12 (a) Z b) S 7") && has_ended(""));
        let held = Held::start(&[OsString::from("true")]).unwrap();
        let threads = tree(std::process::id().cast_signed()).unwrap();
        // What traces is no part of what is traced.
        assert!(threads.contains(&held.pid()) && !threads.contains(&own_thread()), "{threads:?}");
        assert_eq!(tree(held.pid()).unwrap(), [held.pid()]);
        let group = held.pid;
        drop(held);
        assert!(rustix::process::test_kill_process_group(group).is_err());
        assert!(tree(0).is_err());
        let error = tree(i32::MAX).unwrap_err().to_string();
        assert!(error.contains("no process 2147483647"), "{error}");
    }
}
