//! How many events are lost, by buffer size, scope and CPUs: a known load, traced like a program, and not read before
//! its end, so that whatever does not fit is lost. All sizes trace the same load at the same time, each in instances of
//! its own, so that they differ in size alone.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stentor_measure::chart::{Kind, Line};
use stentor_measure::{Cell, Chart, Column, MeasureError, Place, Report, Scratch, Stop, Table, repeat};

use crate::collect::kernel::Tracefs;
use crate::collect::tracer::{Threads, deadline};
use crate::collect::{Scope, TraceRequest, Tracer};
use crate::devices::StorageStack;
use crate::options::IotraceArgs;
use crate::program::{self, Held};

const BUFFERS_KIB: [u32; 3] = [64, 512, 4096];
/// Writes of the load, by each of its writers.
const WRITES: u32 = 50;
const WRITE_BYTES: u32 = 16 << 10;
/// No load takes longer, so that all of it stays within two minutes on a slow disk too; what it has done by then is
/// counted.
const SECONDS_MAX: f64 = 2.0;

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct LossSample {
    kept: u64,
    lost: u64,
}

impl LossSample {
    fn percent(self) -> f64 {
        100.0 * self.lost as f64 / (self.kept + self.lost).max(1) as f64
    }
}

pub fn run(options: &IotraceArgs, stop: &Stop) -> Result<(), MeasureError> {
    let directory = match options.directories.as_slice() {
        [] => PathBuf::from("."),
        [directory] => directory.clone(),
        _ => return Err(MeasureError::Refused("--loss needs exactly one directory".to_owned())),
    };
    let scratch = Scratch::make_or_explain(&directory)?;
    let place = Place::of(&directory).map_err(MeasureError::file(&directory))?;
    let tracefs = Tracefs::find()?;
    let stack = StorageStack::of(&place);
    let mut report = Report::new("iotrace-loss", "Events lost, by buffer, scope and CPUs");
    report.places.push(place);
    report.parameter("writes_per_writer", WRITES);
    report.parameter("write_bytes", WRITE_BYTES);
    report.parameter("runs", options.output.runs);
    let mut progress = options.output.progress();
    let mut table = head();
    let mut lines = Vec::new();
    let all: Vec<u32> = cpus();
    let mut choices = vec![1];
    choices.extend((all.len() > 1).then_some(all.len()));
    let steps: Vec<(usize, Scope)> =
        choices.iter().flat_map(|count| Scope::EVERY.map(|scope| (*count, scope))).collect();
    for (number, (count, scope)) in steps.iter().copied().enumerate() {
        let of = if count == 1 { "1 CPU".to_owned() } else { format!("{count} CPUs") };
        progress.part(&format!("{} of {}: {of}, scope {}", number + 1, steps.len(), scope.name()));
        let runs =
            repeat(options.output.runs, stop, |_| once(&tracefs, &stack, scope, &all[..count], scratch.path(), stop))?;
        if stop.is_set() {
            return Err(MeasureError::Stopped);
        }
        let mut points = Vec::new();
        for (at, buffer_kib) in BUFFERS_KIB.into_iter().enumerate() {
            let found: Vec<LossSample> = runs.iter().map(|found| found[at]).collect();
            let spread = |of: fn(&LossSample) -> f64, decimals| Cell::spread(found.iter().map(of), decimals);
            table.push(vec![
                Cell::Count(count as u64),
                Cell::text(scope.name()),
                Cell::Count(u64::from(buffer_kib)),
                spread(|found| (found.kept + found.lost) as f64, 0),
                spread(|found| found.lost as f64, 0),
                spread(|found| found.percent(), 1),
            ]);
            let mean = found.iter().map(|found| found.percent()).sum::<f64>() / found.len().max(1) as f64;
            points.push((f64::from(buffer_kib), mean));
        }
        lines.push(Line { name: format!("{} on {of}", scope.name()), points });
    }
    progress.clear();
    report.tables.push(table);
    report.charts.push(Chart {
        name: "loss".to_owned(),
        title: "Events lost".to_owned(),
        kind: Kind::Lines {
            x_unit: "KiB for each CPU".to_owned(),
            y_unit: "%".to_owned(),
            log_x: true,
            log_y: false,
            lines,
        },
    });
    report.notes.push(format!(
        "Load: one writer per CPU, each writing {WRITES} times {WRITE_BYTES} octets with a sync after each. Its trace \
         is read only at the end. iotrace itself reads between operations, or while a program runs, and so loses less."
    ));
    options.output.finish(&report)
}

fn head() -> Table {
    let columns = vec![
        Column::new("cpus", "CPUs"),
        Column::new("scope", "scope"),
        Column::new("buffer_kib", "KiB a CPU"),
        Column::new("events", "events"),
        Column::new("lost", "lost"),
        Column::new("lost_percent", "lost %"),
    ];
    Table::new("loss", "Events lost", columns)
}

/// Starts the load held back, traces all of it with each size, and counts.
fn once(
    tracefs: &Tracefs,
    stack: &StorageStack,
    scope: Scope,
    cpus: &[u32],
    folder: &Path,
    stop: &Stop,
) -> Result<[LossSample; BUFFERS_KIB.len()], MeasureError> {
    let mut held = Some(Held::start(&load(folder, cpus))?);
    let roots: Vec<i32> = held.iter().map(Held::pid).collect();
    let mut tracers = Vec::new();
    for buffer_kib in BUFFERS_KIB {
        let wanted = TraceRequest {
            scope,
            file_systems: stack.file_systems.clone(),
            devices: stack.devices.clone(),
            threads: Threads::Tree(roots.clone()),
            buffer_kib,
            // The buffers bound it.
            memory_bytes_max: usize::MAX,
        };
        tracers.push(Tracer::start(tracefs, &wanted)?);
    }
    for tracer in &tracers {
        tracer.switch(true)?;
    }
    program::wait(&mut held, &roots, deadline(SECONDS_MAX), stop);
    for tracer in &tracers {
        tracer.switch(false)?;
    }
    drop(held);
    let mut found = [LossSample::default(); BUFFERS_KIB.len()];
    for (tracer, found) in tracers.iter_mut().zip(&mut found) {
        let trace = tracer.finish()?;
        *found = LossSample { kept: trace.events.len() as u64, lost: trace.lost_in_all() };
    }
    Ok(found)
}

/// `dd` in a shell: a writer on each of the CPUs, pinned to it where `taskset` is there to pin.
fn load(folder: &Path, cpus: &[u32]) -> Vec<OsString> {
    let pins = Command::new("taskset").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let mut script = String::new();
    for cpu in cpus {
        let pin = if pins { format!("taskset -c {cpu} ") } else { String::new() };
        // Writing to a String cannot fail.
        let _ = write!(
            script,
            "{pin}dd if=/dev/zero of=\"$0/loss-{cpu}\" bs={WRITE_BYTES} count={WRITES} oflag=dsync status=none & "
        );
    }
    vec!["sh".into(), "-c".into(), (script + "wait").into(), folder.as_os_str().to_owned()]
}

/// That this process may use, by number.
fn cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0").trim();
    let ranges = list.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}
