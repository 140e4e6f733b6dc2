//! Processes that run cycles side by side: this program again, once per process, synchronized by pipes.
//!
//! A worker fills its part of the queue, prints `ready`, waits for an octet, works, prints its result as one line of
//! JSON, and ends. It stops early when its standard input ends, as it does when we are killed, so no worker outlives us
//! by more than a cycle. Times are from the monotonic clock, which is machine-wide: the run lasts from the first begin
//! to the last end.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use stentor_measure::scratch::explain;
use stentor_measure::{Device, DeviceCounters, MeasureError, Stop};

use super::case::{self, Case};
use super::work::{Times, Worker, lay_out};
use super::{FsArgs, time_max};

const READY: &str = "ready";
/// How soon a signal is seen while workers work.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub cycles: u64,
    pub elapsed: Duration,
    pub times: Times,
    /// Of the whole device, whoever used it. None without a device.
    pub device: Option<DeviceCounters>,
}

/// What a worker says at its end.
#[derive(Serialize, Deserialize)]
enum WorkerReport {
    Done {
        began_ns: u64,
        ended_ns: u64,
        times: Box<Times>,
    },
    /// An error of the file system, by its number.
    Failed(i32),
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One run in a new folder.
pub fn run(
    case: &Case,
    args: &FsArgs,
    folder: &Path,
    device: Option<&Device>,
    stop: &Stop,
) -> Result<Outcome, MeasureError> {
    let failed = |error: io::Error| explain(&args.directory, error);
    let root = lay_out(case, folder).map_err(failed)?;
    let mut crew: Vec<Member> = Vec::new();
    for number in 0..case.processes {
        crew.push(Member::start(case, args, folder, number).map_err(MeasureError::Process)?);
    }
    for member in &mut crew {
        match member.line(stop)?.as_str() {
            READY => {}
            other => return Err(failed(error_of(&parsed(other)?))),
        }
    }
    // What was prepared is not to be written while it is measured.
    rustix::fs::syncfs(&root).map_err(|error| failed(error.into()))?;
    let before = device.and_then(|device| DeviceCounters::read(&device.number));
    for member in &mut crew {
        member.go().map_err(MeasureError::Process)?;
    }
    let mut outcome = Outcome::default();
    let mut span: Option<(u64, u64)> = None;
    for member in &mut crew {
        match parsed(&member.line(stop)?)? {
            WorkerReport::Done { began_ns, ended_ns, times } => {
                let (first, last) = span.unwrap_or((began_ns, ended_ns));
                span = Some((first.min(began_ns), last.max(ended_ns)));
                outcome.cycles += times.cycle.count();
                outcome.times.merge(&times);
            }
            failure @ WorkerReport::Failed(_) => return Err(failed(error_of(&failure))),
        }
    }
    let after = device.and_then(|device| DeviceCounters::read(&device.number));
    outcome.device = after.zip(before).map(|(after, before)| after - before);
    outcome.elapsed = span.map_or(Duration::ZERO, |(first, last)| Duration::from_nanos(last - first));
    Ok(outcome)
}

fn parsed(line: &str) -> Result<WorkerReport, MeasureError> {
    serde_json::from_str(line).map_err(|error| MeasureError::Process(io::Error::other(format!("{error}: {line:.80}"))))
}

fn error_of(report: &WorkerReport) -> io::Error {
    match report {
        WorkerReport::Failed(number) => io::Error::from_raw_os_error(*number),
        WorkerReport::Done { .. } => io::Error::other("a process was done before it began"),
    }
}

/// The part of `all` that one of `parts` has.
fn part(all: u32, parts: u32, number: u32) -> u32 {
    all / parts + u32::from(number < all % parts)
}

/// Another process, which ends with us.
struct Member {
    child: Child,
    /// None: it was told to stop.
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Of its output, what no line end has come for.
    rest: Vec<u8>,
}

impl Member {
    fn start(case: &Case, args: &FsArgs, folder: &Path, number: u32) -> io::Result<Member> {
        let mut command = crate::rerun::command("fs");
        command.args(["--worker", &number.to_string(), "--files", &args.files.to_string()]);
        command.args(["--seconds", &args.seconds.to_string(), "--processes", &case.processes.to_string()]);
        command.args(["--queued", &part(args.queued, case.processes, number).to_string()]);
        command.args(["--names", case.names.name(), "--sync", case.sync.name(), "--size", &case.size.to_string()]);
        command.args(["--hash-depth", &case.hash_depth.to_string(), "--"]).arg(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes to a process"));
        };
        Ok(Member { child, input: Some(input), output, rest: Vec::new() })
    }

    fn go(&mut self) -> io::Result<()> {
        // One that was told to stop is not told to begin.
        self.input.as_mut().map_or(Ok(()), |input| input.write_all(b"g"))
    }

    /// Its next line. A signal to us makes it stop; it says its line all the same.
    fn line(&mut self, stop: &Stop) -> Result<String, MeasureError> {
        let mut bytes = vec![0; 1 << 16];
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if stop.is_set() {
                return Err(MeasureError::Stopped);
            }
            let mut fds = [PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(MeasureError::Process(error.into())),
            }
            match self.output.read(&mut bytes) {
                Ok(0) => {
                    let status = self.child.wait().map_err(MeasureError::Process)?;
                    return Err(MeasureError::Process(io::Error::other(format!("it ended early: {status}"))));
                }
                Ok(more) => self.rest.extend_from_slice(&bytes[..more]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(MeasureError::Process(error)),
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Its sign to stop, if it is not done anyway. It is waited for, so that the folder can be removed.
        self.input = None;
        // What it still says would not fit into the pipe.
        let _ = io::copy(&mut self.output, &mut io::sink());
        let _ = self.child.wait();
    }
}

/// The other side: `--worker NUMBER` with the options of one case.
pub fn work(args: &FsArgs, number: u32) -> io::Result<()> {
    let [case] = case::chosen(args)[..] else { return Err(io::Error::other("a worker has one case")) };
    let report = match as_worker(args, &case, number) {
        Ok(report) => report,
        Err(error) => WorkerReport::Failed(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
    };
    let line = serde_json::to_string(&report)? + "\n";
    io::stdout().lock().write_all(line.as_bytes())
}

fn as_worker(args: &FsArgs, case: &Case, number: u32) -> io::Result<WorkerReport> {
    let stop = Stop::never();
    let begin = on_standard_input(&stop);
    let root = std::fs::File::open(&args.directory)?;
    let mut worker = Worker::new(case, root.into(), number);
    worker.fill(args.queued, &stop)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{READY}").and_then(|()| out.flush())?;
    drop(out);
    begin.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
    let began_ns = now_ns();
    worker.work(args.files, time_max(args), &stop)?;
    Ok(WorkerReport::Done { began_ns, ended_ns: now_ns(), times: Box::new(std::mem::take(&mut worker.times)) })
}

/// An octet there is the sign to begin, which is passed on; its end is the sign to stop, at any time.
fn on_standard_input(stop: &Stop) -> Receiver<()> {
    let (sender, begin) = channel();
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut octet = [0];
        while io::stdin().read(&mut octet).is_ok_and(|count| count > 0) {
            // Who has failed does not wait for it any more.
            let _ = sender.send(());
        }
        stop.set();
    });
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_queued_is_shared_to_the_last_file() {
        for (all, parts) in [(0, 3), (5, 3), (6, 3), (2, 7), (1000, 1)] {
            let sum: u32 = (0..parts).map(|number| part(all, parts, number)).sum();
            assert_eq!(sum, all);
        }
    }

    #[test]
    fn what_a_process_says_is_understood() {
        let mut times = Times::default();
        times.cycle.add(7);
        let line =
            serde_json::to_string(&WorkerReport::Done { began_ns: 1, ended_ns: u64::MAX, times: Box::new(times) })
                .unwrap();
        let WorkerReport::Done { began_ns: 1, ended_ns: u64::MAX, times } = parsed(&line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!(times.cycle.count(), 1);
        let full = serde_json::to_string(&WorkerReport::Failed(28)).unwrap();
        assert_eq!(error_of(&parsed(&full).unwrap()).kind(), io::ErrorKind::StorageFull);
        assert!(parsed("half a li").is_err());
    }
}
