//! The tracefs collector: one instance, or two where a program's threads are not known beforehand.
//!
//! A filter by thread for a whole instance would hide the kernel's own threads (journal, write-back, workers), in which
//! most of a write happens. So threads are filtered where they mean the program: in its system calls. With known
//! threads that is a filter on each of these events; for a program and the children that it will have it is a second
//! instance on the same clock, whose threads the kernel follows through forks (`set_event_pid`, `event-fork`).
//!
//! Promise: what is switched on goes off and away with the value, by the guardian if we are killed. Nothing is read
//! while the generator's operations run; a program's trace is read while it runs, into memory alone and into no more
//! than it may take.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_measure::{Guardian, MeasureError};

use crate::collect::choice::{self, Choice, FileSystem, Scope};
use crate::collect::decode::{self, Decoder, Stream};
use crate::collect::format::page_layout;
use crate::collect::instance::{Instance, Pages, sweep};
use crate::collect::kernel::Tracefs;
use crate::event::Trace;

/// Fields that hold addresses of kernel functions.
const FUNCTION_FIELDS: &[&str] = &["function", "func"];
/// How often a program's trace is read.
const STREAM_EVERY: Duration = Duration::from_millis(20);

/// Whose system calls are traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Threads {
    /// These.
    Of(Vec<i32>),
    /// These and all that they will start.
    Tree(Vec<i32>),
    Everyone,
}

/// What is to be traced, and how.
#[derive(Clone, Debug)]
pub struct TraceRequest {
    pub scope: Scope,
    pub file_systems: Vec<FileSystem>,
    /// Only their events, unless the scope is everything or this is empty.
    pub devices: Vec<u32>,
    pub threads: Threads,
    /// Per CPU.
    pub buffer_kib: u32,
    /// Memory that all of the trace may take, with the events made of it and their analysis.
    pub memory_bytes_max: usize,
}

/// What an octet of the kernel's pages takes in the end: itself, the event made of it and what the analysis makes of
/// that. Measured: 8 (docs/kit/measuring-iotrace.md).
const MEMORY_PER_RAW: usize = 10;

/// Switches tracing on and off, and reads what there is.
#[derive(Debug)]
pub struct Tracer {
    recorders: Vec<Recorder>,
    /// `system/name` that this kernel does not have, or does not switch on.
    pub missing: Vec<String>,
    raw_bytes_max: usize,
    /// Of a CPU.
    buffer_bytes: usize,
}

#[derive(Debug)]
struct Recorder {
    // Open files keep an instance busy: they go first.
    pages: Vec<Pages>,
    instance: Instance,
    streams: Vec<Stream>,
    decoder: Decoder,
}

impl Tracer {
    pub fn start(tracefs: &Tracefs, request: &TraceRequest) -> Result<Tracer, MeasureError> {
        sweep(tracefs);
        check_memory(request.buffer_kib)?;
        let guardian = Guardian::shared().map_err(MeasureError::file("sh"))?;
        let mut missing = Vec::new();
        let mut recorders = Vec::new();
        let system = Recorder::make(tracefs, &guardian, request.buffer_kib)?;
        recorders.push(system);
        let events = choice::events(request.scope, &request.file_systems);
        let devices: &[u32] = if request.scope == Scope::All { &[] } else { &request.devices };
        let is_anonymous = request.file_systems.contains(&FileSystem::Btrfs);
        let by_device = |system: &str, fields: &[String]| choice::device_filter(system, fields, devices, is_anonymous);
        recorders[0].enable(tracefs, &events, by_device, &mut missing)?;
        match &request.threads {
            Threads::Of(tids) if request.scope != Scope::All => {
                let filter = choice::thread_filter(tids);
                recorders[0].enable(tracefs, &choice::calls(), |_, _| filter.clone(), &mut missing)?;
            }
            Threads::Tree(tids) if request.scope != Scope::All => {
                let mut tree = Recorder::make(tracefs, &guardian, request.buffer_kib)?;
                let all: Vec<String> = tids.iter().map(i32::to_string).collect();
                tree.instance.folder.write("options/event-fork", "1")?;
                tree.instance.folder.write("set_event_pid", &all.join("\n"))?;
                // Our own reading is not to make events that are to be read.
                let _ = tree.instance.folder.write("set_event_notrace_pid", &own_thread().to_string());
                let mut calls = choice::calls();
                // Tells of threads that do nothing else.
                calls.events.push("sched/sched_process_fork".to_owned());
                tree.enable(tracefs, &calls, |_, _| None, &mut missing)?;
                recorders.push(tree);
            }
            _ => recorders[0].enable(tracefs, &choice::calls(), |_, _| None, &mut missing)?,
        }
        missing.sort_unstable();
        missing.dedup();
        let buffer_bytes = request.buffer_kib as usize * 1024;
        let raw_bytes_max = request.memory_bytes_max / MEMORY_PER_RAW;
        Ok(Tracer { recorders, missing, raw_bytes_max, buffer_bytes })
    }

    pub fn switch(&self, on: bool) -> Result<(), MeasureError> {
        self.recorders.iter().try_for_each(|recorder| recorder.instance.switch(on))
    }

    /// Forgets all that has been traced.
    pub fn clear(&mut self) -> Result<(), MeasureError> {
        for recorder in &mut self.recorders {
            recorder.instance.folder.clear()?;
            for stream in &mut recorder.streams {
                stream.clear();
            }
        }
        Ok(())
    }

    /// Reads all that is in the buffers, with tracing off; how many octets.
    pub fn drain(&mut self) -> Result<usize, MeasureError> {
        self.read(false)
    }

    fn read(&mut self, is_on: bool) -> Result<usize, MeasureError> {
        let mut bytes = 0;
        for recorder in &mut self.recorders {
            let layout = recorder.decoder.layout;
            let pages_max = if is_on { self.buffer_bytes.div_ceil(layout.page_bytes()) + 1 } else { usize::MAX };
            for (pages, stream) in recorder.pages.iter_mut().zip(&mut recorder.streams) {
                bytes += pages.drain(&layout, pages_max, is_on, stream)?;
            }
        }
        Ok(bytes)
    }

    /// Threads that joined the tree before it was followed.
    pub fn follow(&self, tids: &[i32]) -> Result<(), MeasureError> {
        let Some(tree) = self.recorders.get(1) else { return Ok(()) };
        tids.iter().try_for_each(|tid| tree.instance.folder.append("set_event_pid", &format!("{tid}\n")))
    }

    /// Threads of the followed tree: the kernel adds those that are started and takes those out that end; not those
    /// that had ended before it was told of them. None if no tree is followed.
    pub fn followed(&self) -> Option<Vec<i32>> {
        let tree = self.recorders.get(1)?;
        let text = tree.instance.folder.read("set_event_pid").ok()?;
        Some(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }

    /// As much is kept as may be.
    pub fn is_full(&self) -> bool {
        let streams = self.recorders.iter().flat_map(|recorder| &recorder.streams);
        streams.map(|stream| stream.bytes.len()).sum::<usize>() >= self.raw_bytes_max
    }

    /// Reads while something runs, until `is_over` says so or memory is full; whether it was not full. Called with
    /// tracing on.
    pub fn stream(&mut self, mut is_over: impl FnMut(&Tracer) -> bool) -> Result<bool, MeasureError> {
        while !is_over(self) {
            self.read(true)?;
            if self.is_full() {
                return Ok(false);
            }
            std::thread::sleep(STREAM_EVERY);
        }
        Ok(true)
    }

    /// What has been traced since the last [`clear`](Tracer::clear). Called with tracing off.
    pub fn finish(&mut self) -> Result<Trace, MeasureError> {
        self.drain()?;
        let mut traces = Vec::new();
        for recorder in &mut self.recorders {
            // The pages go as soon as there are events of them.
            let empty = recorder.streams.iter().map(|stream| Stream { cpu: stream.cpu, ..Stream::default() }).collect();
            let mut streams = std::mem::replace(&mut recorder.streams, empty);
            for stream in &mut streams {
                stream.lost = recorder.instance.folder.stats(stream.cpu).lost;
            }
            traces.push(recorder.decoder.decode(&streams));
        }
        self.clear()?;
        let mut trace = if traces.len() == 1 { traces.remove(0) } else { decode::join(traces) };
        let addresses = decode::addresses(&trace, FUNCTION_FIELDS);
        if !addresses.is_empty() {
            decode::name_functions(&mut trace, FUNCTION_FIELDS, &symbols(&addresses));
        }
        name_processes(&mut trace);
        Ok(trace)
    }

    /// Threads that made system calls in the followed tree, or were started in it. Of the trace that
    /// [`finish`](Tracer::finish) gave; empty if no tree was followed.
    pub fn tree_of(&self, trace: &Trace, roots: &[i32]) -> BTreeSet<i32> {
        let is_call: Vec<bool> = trace.kinds.iter().map(|kind| kind.starts_with("syscalls/")).collect();
        let (child, fork) = (trace.field("child_pid"), trace.kind("sched/sched_process_fork"));
        let mut tree: BTreeSet<i32> = roots.iter().copied().collect();
        // Only followed threads' calls are there; forks of all, in order of time.
        for event in &trace.events {
            if self.recorders.len() > 1 && is_call[usize::from(event.kind)] {
                tree.insert(event.tid);
            } else if Some(event.kind) == fork && tree.contains(&event.tid) {
                tree.extend(child.and_then(|field| event.number(field)).map(|tid| tid as i32));
            }
        }
        tree
    }
}

impl Recorder {
    fn make(tracefs: &Tracefs, guardian: &Arc<Guardian>, buffer_kib: u32) -> Result<Recorder, MeasureError> {
        let instance = Instance::make(tracefs, guardian, buffer_kib)?;
        let head = fs::read_to_string(tracefs.root.join("events/header_page")).unwrap_or_default();
        let layout = page_layout(&head).unwrap_or_default();
        let cpus = instance.folder.cpus();
        let pages = cpus.iter().map(|cpu| instance.pages(*cpu)).collect::<Result<_, _>>()?;
        let streams = cpus.iter().map(|cpu| Stream { cpu: *cpu, ..Stream::default() }).collect();
        Ok(Recorder { pages, instance, streams, decoder: Decoder::new(layout, &choice::fields()) })
    }

    fn enable(
        &mut self,
        tracefs: &Tracefs,
        choice: &Choice,
        filter: impl Fn(&str, &[String]) -> Option<String>,
        missing: &mut Vec<String>,
    ) -> Result<(), MeasureError> {
        let (there, gone) = tracefs.events(choice);
        missing.extend(gone);
        let mut on = 0;
        for (event, format) in there {
            let fields: Vec<String> = format.fields.iter().map(|field| field.name.clone()).collect();
            let system = event.split('/').next().unwrap_or_default();
            let filter = filter(system, &fields);
            // A kernel that does not take the filter gives all of the event.
            let enabled =
                self.instance.enable(&event, filter.as_deref()).or_else(|_| self.instance.enable(&event, None));
            if enabled.is_err() {
                missing.push(event);
                continue;
            }
            self.decoder.add(&event, &format);
            on += 1;
        }
        if on == 0 {
            return Err(MeasureError::Refused(format!(
                "tracefs: this kernel has none of the needed events ({}); it was built without them \
                 (CONFIG_FTRACE_SYSCALLS, CONFIG_BLK_DEV_IO_TRACE)",
                choice.events.join(", ")
            )));
        }
        Ok(())
    }
}

/// The buffers of all CPUs are not to take more than an eighth of the memory.
fn check_memory(buffer_kib: u32) -> Result<(), MeasureError> {
    let machine = stentor_measure::Machine::read();
    let cpus = fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    let last = cpus.as_deref().and_then(|text| text.trim().rsplit(['-', ',']).next()?.parse::<u64>().ok());
    let cpus = last.map_or(machine.processors as u64, |last| last + 1);
    let wanted_mib = u64::from(buffer_kib) * cpus / 1024;
    let most_mib = machine.memory_mib / 8;
    if wanted_mib > most_mib && most_mib > 0 {
        return Err(MeasureError::Refused(format!(
            "--buffer-kib {buffer_kib} for {cpus} CPUs is {wanted_mib} MiB, more than an eighth of the memory; choose \
             at most {}",
            most_mib * 1024 / cpus
        )));
    }
    Ok(())
}

/// Names from `/proc/kallsyms`, which shows addresses to root alone.
fn symbols(addresses: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| addresses.contains(address))?;
        Some((address, words.nth(1)?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Processes of the threads that ran, and names of those that no event named, from procfs: of those that are left.
fn name_processes(trace: &mut Trace) {
    let mut tids: BTreeSet<i32> = trace.events.iter().map(|event| event.tid).collect();
    tids.extend(trace.threads.keys());
    for tid in tids.into_iter().filter(|tid| *tid > 0) {
        let Ok(status) = fs::read_to_string(format!("/proc/{tid}/status")) else { continue };
        let key = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        if let Some(process) = key("Tgid:").and_then(|text| text.parse().ok()) {
            trace.processes.insert(tid, process);
        }
        if let Some(name) = key("Name:") {
            trace.threads.entry(tid).or_insert_with(|| name.to_owned());
        }
    }
    trace.threads.insert(0, "idle".to_owned());
}

/// The thread that asks.
pub fn own_thread() -> i32 {
    let link = fs::read_link("/proc/thread-self").ok();
    let tid = link.as_deref().and_then(|path| path.file_name()?.to_str()?.parse().ok());
    tid.unwrap_or_else(|| std::process::id().cast_signed())
}

/// For a timer of a trace that has no other end.
pub fn deadline(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn own_writes_are_seen_and_nothing_is_left() {
        let Ok(tracefs) = Tracefs::find() else {
            assert!(std::env::var_os("STENTOR_NO_SKIP").is_none(), "tracefs needs root");
            // Past the capture of output, so that nobody overlooks it.
            let _ =
                writeln!(std::io::stderr(), "\n*** SKIPPED own_writes_are_seen_and_nothing_is_left: no tracefs ***");
            return;
        };
        let request = TraceRequest {
            scope: Scope::Device,
            file_systems: Vec::new(),
            devices: Vec::new(),
            threads: Threads::Of(vec![own_thread()]),
            buffer_kib: 256,
            memory_bytes_max: 1 << 28,
        };
        let mut tracer = Tracer::start(&tracefs, &request).unwrap();
        let path = tracer.recorders[0].instance.folder.path.clone();
        let file = tempfile::NamedTempFile::new().unwrap();
        for round in 0..2 {
            tracer.switch(true).unwrap();
            std::io::Write::write_all(&mut file.as_file(), &[round; 100]).unwrap();
            tracer.switch(false).unwrap();
            let trace = tracer.finish().unwrap();
            let (kind, count) = (trace.kind("syscalls/sys_enter_write").unwrap(), trace.field("count").unwrap());
            let written: Vec<_> = trace.events.iter().filter(|event| event.kind == kind).collect();
            assert!(written.iter().all(|event| event.tid == own_thread()));
            assert!(written.iter().any(|event| event.number(count) == Some(100)), "{written:?}");
            assert_eq!(trace.lost_in_all(), 0);
            assert_eq!(trace.processes[&own_thread()], std::process::id().cast_signed());
        }
        drop(tracer);
        assert!(!path.exists());
    }
}
