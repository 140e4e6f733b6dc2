//! The function graph: every kernel function of chosen threads, as text for [`crate::iotrace::text`]. Directly through tracefs, in
//! an instance of our own, or through `trace-cmd record` and `trace-cmd report`.
//!
//! Its cost is a thousand times that of tracepoints, which is why functions, depth and threads are limited.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use stentor_measure::MeasureError;

use crate::iotrace::collect::guard::{self, Guard};
use crate::iotrace::collect::instance::Instance;
use crate::iotrace::collect::kernel::Tracefs;
use crate::iotrace::generate::Switch;
use crate::iotrace::text::{self, Totals};

const TRACER: &str = "function_graph";

/// What is followed.
#[derive(Clone, Debug)]
pub struct Wished {
    pub threads: Vec<i32>,
    /// Only what these call; empty: everything.
    pub functions: Vec<String>,
    /// 0: any.
    pub depth_max: u32,
    /// Per CPU.
    pub buffer_kib: u32,
}

/// Why the kernel does not do it; the refusal says what to do.
pub fn available(tracefs: &Tracefs) -> Result<(), String> {
    let tracers = tracefs.tracers();
    if tracers.iter().any(|tracer| tracer == TRACER) {
        return Ok(());
    }
    Err(format!(
        "this kernel has no {TRACER} tracer (it has: {}); it is built with CONFIG_FUNCTION_GRAPH_TRACER. Use --collector \
         tracefs here, or --read FILE with the text of another machine",
        if tracers.is_empty() { "none".to_owned() } else { tracers.join(", ") }
    ))
}

/// What `trace-cmd record -p function_graph` lacks here.
pub fn trace_cmd_available(tracefs: &Tracefs) -> Result<(), String> {
    let has = Command::new("trace-cmd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has.is_err() {
        return Err("trace-cmd is not installed (package trace-cmd); or use --collector tracefs".to_owned());
    }
    available(tracefs)
}

/// The tracer in an instance of our own; off and away with the value.
#[derive(Debug)]
pub struct Graph {
    // Before the guard, so that it finds nothing to do.
    instance: Instance,
    _guard: Guard,
}

impl Graph {
    pub fn start(tracefs: &Tracefs, wished: &Wished) -> Result<Graph, MeasureError> {
        available(tracefs).map_err(MeasureError::Refused)?;
        guard::sweep(&tracefs.root);
        let mut guard = Guard::start().map_err(MeasureError::file("/bin/sh"))?;
        let instance = Instance::make(tracefs, &mut guard, wished.buffer_kib)?;
        let threads: Vec<String> = wished.threads.iter().map(i32::to_string).collect();
        instance.write("options/function-fork", "1")?;
        instance.write("set_ftrace_pid", &threads.join("\n"))?;
        if !wished.functions.is_empty() {
            instance.write("set_graph_function", &wished.functions.join("\n"))?;
        }
        // Only kernels from 6.12 on have it in an instance.
        let _ = instance.write("max_graph_depth", &wished.depth_max.to_string());
        instance.write("current_tracer", TRACER)?;
        for option in ["funcgraph-tail", "funcgraph-abstime", "funcgraph-proc", "funcgraph-duration", "funcgraph-cpu"] {
            let _ = instance.write(&format!("options/{option}"), "1");
        }
        Ok(Graph { instance, _guard: guard })
    }

    /// What has been traced, with tracing off.
    pub fn finish(&self) -> Result<Totals, MeasureError> {
        let path = self.instance.path().join("trace");
        let file = File::open(&path).map_err(MeasureError::file(&path))?;
        let mut totals = text::read(BufReader::new(file)).map_err(MeasureError::file(&path))?;
        for cpu in self.instance.cpus() {
            let lost = self.instance.stats(cpu).lost;
            if lost > 0 {
                totals.lost.insert(u32::from(cpu), lost);
            }
        }
        Ok(totals)
    }
}

impl Switch for Graph {
    fn clear(&mut self) -> Result<(), MeasureError> {
        self.instance.clear()
    }

    fn switch(&self, on: bool) -> Result<(), MeasureError> {
        self.instance.switch(on)
    }

    /// It stays in the buffer to the end: reading text costs too much in between.
    fn drain(&mut self) -> Result<usize, MeasureError> {
        Ok(0)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.instance.switch(false);
        let _ = self.instance.write("current_tracer", "nop");
    }
}

/// Through trace-cmd, in an instance of its own too (`-B`), for a command.
pub fn record_with_trace_cmd(
    tracefs: &Tracefs,
    wished: &Wished,
    program: &[std::ffi::OsString],
    folder: &Path,
) -> Result<Totals, MeasureError> {
    trace_cmd_available(tracefs).map_err(MeasureError::Refused)?;
    let data = folder.join("trace.dat");
    let report = folder.join("report.txt");
    let mut record = Command::new("trace-cmd");
    record.arg("record").args(["-q", "-F", "-c", "-o"]).arg(&data).args(["-b", &wished.buffer_kib.to_string()]);
    for function in &wished.functions {
        record.args(["-g", function]);
    }
    if wished.depth_max > 0 {
        record.args(["--max-graph-depth", &wished.depth_max.to_string()]);
    }
    record.args(["-p", TRACER]).args(program);
    run(&mut record)?;
    let out = File::create(&report).map_err(MeasureError::file(&report))?;
    run(Command::new("trace-cmd").args(["report", "-i"]).arg(&data).stdout(out))?;
    let totals = File::open(&report).and_then(|file| text::read(BufReader::new(file)));
    let _ = fs::remove_file(&data);
    totals.map_err(MeasureError::file(&report))
}

fn run(command: &mut Command) -> Result<(), MeasureError> {
    let output = command.stderr(Stdio::piped()).spawn().and_then(std::process::Child::wait_with_output);
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(MeasureError::Refused(format!(
            "trace-cmd ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(MeasureError::Refused("trace-cmd is not installed (package trace-cmd)".to_owned()))
        }
        Err(source) => Err(MeasureError::File { path: "trace-cmd".into(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a tracefs with these tracers.
    fn fake(tracers: &str) -> (tempfile::TempDir, Tracefs) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("available_tracers"), tracers).unwrap();
        let root = folder.path().to_owned();
        (folder, Tracefs { root })
    }

    #[test]
    fn a_kernel_without_the_tracer_is_told() {
        let (_folder, tracefs) = fake("blk nop\n");
        let reason = available(&tracefs).unwrap_err();
        assert!(reason.contains("it has: blk, nop") && reason.contains("CONFIG_FUNCTION_GRAPH_TRACER"), "{reason}");
        let (_folder, tracefs) = fake("blk function_graph function nop\n");
        assert_eq!(available(&tracefs), Ok(()));
    }
}
