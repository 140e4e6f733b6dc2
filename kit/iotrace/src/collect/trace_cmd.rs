//! The function graph through `trace-cmd record` and `trace-cmd report`, for a command.
//!
//! trace-cmd uses the top buffer and puts back what it changed when it is interrupted, the switch and the size of that
//! buffer apart, which we put back. So it is ended by SIGINT, also by the guardian if we are killed; only one that does
//! not end is killed, and then `trace-cmd reset` switches off what it left. It is not started where somebody else uses
//! the top buffer.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use stentor_measure::guardian::Guarded;
use stentor_measure::output::own_error_output;
use stentor_measure::{Guardian, MeasureError, Stop};

use crate::collect::function_graph::{FunctionGraphOptions, TRACER, available, top_unused};
use crate::collect::instance::Folder;
use crate::collect::kernel::Tracefs;
use crate::collect::setting::Setting;
use crate::text::{self, Totals};

/// How long it has to put everything back after a signal.
const END_WAIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What `trace-cmd record -p function_graph` lacks here.
pub fn works(tracefs: &Tracefs) -> Result<(), String> {
    let has = Command::new("trace-cmd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has.is_err() {
        return Err("trace-cmd is not installed (package trace-cmd); or use --collector tracefs".to_owned());
    }
    available(tracefs)?;
    top_unused(tracefs)
}

/// Until the command's end, `end` or a stop.
pub fn record(
    tracefs: &Tracefs,
    graph_options: &FunctionGraphOptions,
    program: &[OsString],
    folder: &Path,
    end: Instant,
    stop: &Stop,
) -> Result<Totals, MeasureError> {
    let data = folder.join("trace.dat");
    let mut command = Command::new("trace-cmd");
    command.arg("record").args(["-q", "-F", "-c", "-o"]).arg(&data).args(["-b", &graph_options.buffer_kib.to_string()]);
    for function in &graph_options.functions {
        command.args(["-g", function]);
    }
    if graph_options.depth_max > 0 {
        command.args(["--max-graph-depth", &graph_options.depth_max.to_string()]);
    }
    command.args(["-p", TRACER]).args(program);
    let guardian = Guardian::shared().map_err(MeasureError::file("sh"))?;
    let top = Folder { path: tracefs.root.clone() };
    let _switch = Setting::keep(&guardian, &top, "tracing_on")?;
    // Sizes that differ by CPU are somebody's choice.
    let has_one_size = !top.read("buffer_size_kb")?.starts_with('X');
    let _size = if has_one_size { Some(Setting::keep(&guardian, &top, "buffer_size_kb")?) } else { None };
    let mut recording = Recording::start(command, &guardian)?;
    while recording.is_on()? && Instant::now() < end && !stop.is_set() {
        std::thread::sleep(LOOK_EVERY);
    }
    recording.end()?;
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    report(&data)
}

/// The text, read as it comes.
fn report(data: &Path) -> Result<Totals, MeasureError> {
    let mut child = Command::new("trace-cmd")
        .args(["report", "-i"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(MeasureError::file("trace-cmd"))?;
    let totals = child.stdout.take().map(|out| text::read(BufReader::new(out)));
    let status = child.wait().map_err(MeasureError::file("trace-cmd"))?;
    match totals {
        Some(totals) if status.success() => totals.map_err(MeasureError::file(data)),
        _ => Err(MeasureError::Refused(format!(
            "trace-cmd report ended with {status}: possibly the time ended before anything was traced; increase \
             --seconds"
        ))),
    }
}

/// A `trace-cmd record` in a process group of its own, with what it traces.
struct Recording {
    child: Child,
    group: Pid,
    _guarded: Guarded,
}

impl Recording {
    fn start(mut command: Command, guardian: &Arc<Guardian>) -> Result<Recording, MeasureError> {
        command.process_group(0).stdout(own_error_output()?);
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                MeasureError::Refused("trace-cmd is not installed (package trace-cmd)".to_owned())
            }
            _ => MeasureError::File { path: "trace-cmd".into(), source },
        })?;
        let group = Pid::from_child(&child);
        match guardian.guard(&undo(group.as_raw_nonzero().get())) {
            Ok(guarded) => Ok(Recording { child, group, _guarded: guarded }),
            Err(error) => {
                let _ = child.kill();
                Err(MeasureError::file("sh")(error))
            }
        }
    }

    fn is_on(&mut self) -> Result<bool, MeasureError> {
        Ok(self.child.try_wait().map_err(MeasureError::file("trace-cmd"))?.is_none())
    }

    /// Interrupts it if it is still on; an error if it had failed by itself.
    fn end(&mut self) -> Result<(), MeasureError> {
        let had_ended = !self.is_on()?;
        self.interrupt();
        let status = self.child.wait().map_err(MeasureError::file("trace-cmd"))?;
        if status.success() || !had_ended {
            return Ok(());
        }
        Err(MeasureError::Refused(format!("trace-cmd record ended with {status}; see its output above")))
    }

    fn interrupt(&mut self) {
        for signal in [Signal::INT, Signal::TERM] {
            if matches!(self.child.try_wait(), Ok(None)) {
                let _ = kill_process_group(self.group, signal);
            }
            let begun = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END_WAIT {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = Command::new("trace-cmd").arg("reset").stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.interrupt();
        let _ = self.child.wait();
    }
}

/// The guardian's way: the same.
fn undo(group: i32) -> String {
    format!(
        "for s in INT TERM; do kill -s $s -- -{group}; for t in 1 2 3 4 5 6 7 8 9 10; do kill -s 0 -- -{group} || break; \
         sleep 1; done; done; if kill -s KILL -- -{group}; then trace-cmd reset; fi"
    )
}
