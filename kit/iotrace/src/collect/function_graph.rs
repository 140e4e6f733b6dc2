//! The function graph: every kernel function of chosen threads, as text for [`crate::text`].
//!
//! Where: in an instance of our own, if the kernel lets an instance have this tracer (6.11 and later); else in the top
//! buffer, if nobody uses that. What functions and how deep (`set_graph_function`, `max_graph_depth`) there is once for
//! all users, so that we refuse where somebody else uses the tracer, and put all of it back at the end ([`Setting`]).
//! Threads are chosen by `set_ftrace_pid`; with `function-fork` their children are in it too.
//!
//! Its cost is a thousand times that of tracepoints, which is why functions, depth and threads are limited.

use std::fs::{self, File};
use std::io::BufReader;
use std::sync::Arc;

use stentor_measure::{Guardian, MeasureError};

use crate::collect::instance::{Folder, Instance, sweep};
use crate::collect::kernel::Tracefs;
use crate::collect::setting::{Setting, value_of};
use crate::collect::switch::Switch;
use crate::text::{self, Totals};

pub const TRACER: &str = "function_graph";
/// Columns that the reader needs, and what would change the meaning of durations.
const OPTIONS: [&str; 7] = [
    "funcgraph-tail",
    "funcgraph-abstime",
    "funcgraph-proc",
    "funcgraph-duration",
    "funcgraph-cpu",
    "funcgraph-irqs",
    "sleep-time",
];

/// What is followed.
#[derive(Clone, Debug)]
pub struct FunctionGraphOptions {
    pub threads: Vec<i32>,
    /// Only what these call; empty: everything.
    pub functions: Vec<String>,
    /// 0: any.
    pub depth_max: u32,
    /// Per CPU.
    pub buffer_kib: u32,
}

/// Why the kernel does not do it, or not now; the refusal says what to do.
pub fn available(tracefs: &Tracefs) -> Result<(), String> {
    let tracers = tracefs.tracers();
    if tracers.iter().any(|tracer| tracer == TRACER) {
        return unused(tracefs);
    }
    Err(format!(
        "this kernel has no {TRACER} tracer (it has: {}); it needs CONFIG_FUNCTION_GRAPH_TRACER. Use --collector \
         tracefs, or --read FILE with a trace from another machine",
        if tracers.is_empty() { "none".to_owned() } else { tracers.join(", ") }
    ))
}

/// The tracer and its filters: there is one set of these for all instances.
fn unused(tracefs: &Tracefs) -> Result<(), String> {
    let top = top(tracefs);
    let instances = fs::read_dir(tracefs.root.join("instances")).into_iter().flatten().flatten();
    let others = instances.map(|entry| Folder { path: entry.path() });
    for folder in std::iter::once(top.clone()).chain(others) {
        if folder.read("current_tracer").is_ok_and(|tracer| tracer.trim() == TRACER) {
            return Err(in_use(&folder, "current_tracer", TRACER, "echo nop"));
        }
    }
    let functions = top.read("set_graph_function").unwrap_or_default();
    // Empty it says `#### all functions enabled ####`.
    match functions.lines().find(|line| !line.starts_with('#')) {
        Some(function) => Err(in_use(&top, "set_graph_function", function, "echo")),
        None => Ok(()),
    }
}

/// The top buffer, for kernels that have the tracer in no other.
pub fn top_unused(tracefs: &Tracefs) -> Result<(), String> {
    let top = top(tracefs);
    for (name, idle, undo) in
        [("current_tracer", "nop", "echo nop"), ("events/enable", "0", "echo 0"), ("set_ftrace_pid", "no pid", "echo")]
    {
        let state = top.read(name).unwrap_or_else(|_| idle.to_owned());
        if state.trim() != idle {
            return Err(in_use(&top, name, state.lines().next().unwrap_or_default(), undo));
        }
    }
    Ok(())
}

fn in_use(folder: &Folder, name: &str, state: &str, undo: &str) -> String {
    let path = folder.path.join(name);
    format!(
        "another process is tracing: {} contains `{state}`; wait for it to end (find it with `fuser -v` on its \
         folder), or switch off a leftover trace: {undo} > {}",
        path.display(),
        path.display()
    )
}

fn top(tracefs: &Tracefs) -> Folder {
    Folder { path: tracefs.root.clone() }
}

/// The tracer, on threads; all is as it was before with the end of the value.
#[derive(Debug)]
pub struct Graph {
    /// Of the instance, or the top one.
    folder: Folder,
    /// In the order in which they were changed.
    settings: Vec<Setting>,
    guardian: Arc<Guardian>,
    // After the settings, some of which are in it.
    _instance: Option<Instance>,
}

impl Graph {
    pub fn start(tracefs: &Tracefs, options: &FunctionGraphOptions) -> Result<Graph, MeasureError> {
        sweep(tracefs);
        available(tracefs).map_err(MeasureError::Refused)?;
        let guardian = Guardian::shared().map_err(MeasureError::file("sh"))?;
        // Before an instance is made: Linux 6.1 then takes the top buffer for one that has been given its size, too.
        let top_size = top(tracefs).read("buffer_size_kb")?;
        let instance = Instance::make(tracefs, &guardian, options.buffer_kib)?;
        let tracers = instance.folder.read("available_tracers")?;
        let mut graph = if tracers.split_whitespace().any(|tracer| tracer == TRACER) {
            let folder = instance.folder.clone();
            Graph { folder, settings: Vec::new(), guardian, _instance: Some(instance) }
        } else {
            drop(instance);
            top_unused(tracefs).map_err(MeasureError::Refused)?;
            let mut graph = Graph { folder: top(tracefs), settings: Vec::new(), guardian, _instance: None };
            graph.replace("tracing_on", "0")?;
            // Sizes that differ by CPU are somebody's choice.
            if !top_size.starts_with('X') {
                let (size, old) = (options.buffer_kib.to_string(), value_of(&top_size));
                graph.settings.push(Setting::change(&graph.guardian, &graph.folder, "buffer_size_kb", &size, &old)?);
            }
            graph
        };
        graph.choose(&top(tracefs), options)?;
        Ok(graph)
    }

    fn replace(&mut self, name: &str, value: &str) -> Result<(), MeasureError> {
        self.settings.push(Setting::replace(&self.guardian, &self.folder, name, value)?);
        Ok(())
    }

    /// Threads, functions, depth and columns; the tracer itself last.
    fn choose(&mut self, top: &Folder, options: &FunctionGraphOptions) -> Result<(), MeasureError> {
        self.replace("options/function-fork", "1")?;
        let threads: Vec<String> = options.threads.iter().map(i32::to_string).collect();
        self.settings.push(Setting::change(&self.guardian, &self.folder, "set_ftrace_pid", &threads.join("\n"), "")?);
        if !options.functions.is_empty() {
            self.settings.push(Setting::change(&self.guardian, top, "set_graph_function", "", "")?);
            for function in &options.functions {
                // A name is complete, and refused if it is not one, with its line end.
                top.append("set_graph_function", &format!("{function}\n")).map_err(|error| match error {
                    MeasureError::Refused(why) => MeasureError::Refused(format!("--functions {function}: {why}")),
                    other => other,
                })?;
            }
        }
        if options.depth_max > 0 {
            self.settings.push(Setting::replace(
                &self.guardian,
                top,
                "max_graph_depth",
                &options.depth_max.to_string(),
            )?);
        }
        for option in OPTIONS {
            let name = format!("options/{option}");
            // Not every kernel has all.
            if self.folder.read(&name).is_ok() {
                self.replace(&name, "1")?;
            }
        }
        self.replace("current_tracer", TRACER)
    }

    /// What has been traced, with tracing off.
    pub fn finish(&self) -> Result<Totals, MeasureError> {
        let path = self.folder.path.join("trace");
        let file = File::open(&path).map_err(MeasureError::file(&path))?;
        let mut totals = text::read(BufReader::new(file)).map_err(MeasureError::file(&path))?;
        for cpu in self.folder.cpus() {
            let lost = self.folder.stats(cpu).lost;
            if lost > 0 {
                totals.lost.insert(u32::from(cpu), lost);
            }
        }
        Ok(totals)
    }
}

impl Switch for Graph {
    fn clear(&mut self) -> Result<(), MeasureError> {
        self.folder.clear()
    }

    fn switch(&self, on: bool) -> Result<(), MeasureError> {
        self.folder.write("tracing_on", if on { "1" } else { "0" })
    }

    /// It stays in the buffer to the end: reading text costs too much in between.
    fn drain(&mut self) -> Result<usize, MeasureError> {
        Ok(0)
    }

    fn is_full(&self) -> bool {
        false
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.switch(false);
        while let Some(setting) = self.settings.pop() {
            drop(setting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a tracefs.
    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Tracefs) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = folder.path().to_owned();
        (folder, Tracefs { root })
    }

    const IDLE: [(&str, &str); 5] = [
        ("available_tracers", "blk function_graph function nop\n"),
        ("current_tracer", "nop\n"),
        ("set_graph_function", "#### all functions enabled ####\n"),
        ("set_ftrace_pid", "no pid\n"),
        ("events/enable", "0\n"),
    ];

    #[test]
    fn a_kernel_without_the_tracer_is_told() {
        let (_folder, tracefs) = fake(&[("available_tracers", "blk nop\n")]);
        let reason = available(&tracefs).unwrap_err();
        assert!(reason.contains("it has: blk, nop") && reason.contains("CONFIG_FUNCTION_GRAPH_TRACER"), "{reason}");
        let (_folder, tracefs) = fake(&IDLE);
        assert_eq!((available(&tracefs), top_unused(&tracefs)), (Ok(()), Ok(())));
    }

    #[test]
    fn what_somebody_else_uses_is_not_touched() {
        for (name, text, hint) in [
            ("current_tracer", "function_graph\n", "echo nop > "),
            ("instances/theirs/current_tracer", "function_graph\n", "instances/theirs/current_tracer"),
            ("set_graph_function", "vfs_write\n", "contains `vfs_write`"),
        ] {
            let (_folder, tracefs) = fake(&[&IDLE[..], &[(name, text)]].concat());
            let reason = available(&tracefs).unwrap_err();
            assert!(reason.contains(hint) && reason.contains("another process is tracing"), "{reason}");
        }
        for (name, text) in [("current_tracer", "function\n"), ("events/enable", "X\n"), ("set_ftrace_pid", "12\n")] {
            let (_folder, tracefs) = fake(&[&IDLE[..], &[(name, text)]].concat());
            assert_eq!(available(&tracefs), Ok(()), "an instance of our own does");
            assert!(top_unused(&tracefs).unwrap_err().contains(name));
        }
    }
}
