//! The modes that show functions and not layers: reading a text (`--read`), and the function-graph collectors.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use stentor_measure::{MeasureError, Place, Report, Scratch, Stop};

use crate::collect::function_graph::{FunctionGraphOptions, Graph};
use crate::collect::kernel::Tracefs;
use crate::collect::list::CollectorChoice;
use crate::collect::switch::Switch as _;
use crate::collect::tracer::{deadline, own_thread};
use crate::collect::{list, trace_cmd};
use crate::generate::{self, Run};
use crate::options::IotraceArgs;
use crate::program::{self, Held};
use crate::text::{self, Totals, report as tables};

/// What was asked for instead of layers, if anything: done.
pub fn instead(options: &IotraceArgs) -> Option<Result<(), MeasureError>> {
    if options.collectors {
        return Some(collectors(options));
    }
    if let Some(path) = &options.read {
        return Some(read(options, path));
    }
    match list::choose(options.collector) {
        Ok(CollectorChoice::FunctionGraph) => Some(graph(options)),
        Ok(CollectorChoice::TraceCmd) => Some(through_trace_cmd(options)),
        Ok(_) => None,
        // Directories and processes that do not exist are said first: that is the nearer mistake.
        Err(refusal) => Some(early(options).and(Err(refusal))),
    }
}

fn early(options: &IotraceArgs) -> Result<(), MeasureError> {
    options.works()?;
    for directory in &options.directories {
        Place::of(directory).map_err(MeasureError::file(directory))?;
    }
    options.pid.map_or(Ok(()), |pid| program::tree(pid).map(drop))
}

fn collectors(options: &IotraceArgs) -> Result<(), MeasureError> {
    let mut report = Report::new("iotrace-collectors", "Available collectors");
    report.tables.push(list::table());
    options.output.finish(&report)
}

/// `--read FILE`
fn read(options: &IotraceArgs, path: &Path) -> Result<(), MeasureError> {
    let totals = if path == Path::new("-") {
        text::read(io::stdin().lock())
    } else {
        File::open(path).and_then(|file| text::read(BufReader::new(file)))
    };
    let totals = totals.map_err(MeasureError::file(path))?;
    finish(options, &totals, &path.display().to_string(), &[])
}

fn finish(options: &IotraceArgs, totals: &Totals, what: &str, places: &[Place]) -> Result<(), MeasureError> {
    let mut report = Report::new("iotrace-functions", format!("Functions: {what}"));
    report.places.extend_from_slice(places);
    tables::fill(&mut report, totals).map_err(|reason| MeasureError::Refused(format!("{what}: {reason}")))?;
    options.output.finish(&report)
}

fn graph_options(options: &IotraceArgs, threads: Vec<i32>) -> FunctionGraphOptions {
    let functions = options.functions.iter().filter(|name| !name.is_empty()).cloned().collect();
    FunctionGraphOptions { threads, functions, depth_max: options.depth, buffer_kib: options.buffer_kib }
}

/// Directly, of a program, or of the first kind of work in the first directory.
fn graph(options: &IotraceArgs) -> Result<(), MeasureError> {
    let stop = Stop::on_signals().map_err(MeasureError::file("signals"))?;
    let tracefs = Tracefs::find()?;
    if options.command || options.pid.is_some() {
        let mut held = if options.command { Some(Held::start(&options.program)?) } else { None };
        let roots = match (&held, options.pid) {
            (Some(held), _) => vec![held.pid()],
            (None, pid) => program::tree(pid.unwrap_or(0))?,
        };
        let graph = Graph::start(&tracefs, &graph_options(options, roots.clone()))?;
        graph.switch(true)?;
        program::wait(&mut held, &roots, deadline(options.seconds), &stop);
        graph.switch(false)?;
        drop(held);
        if stop.is_set() {
            return Err(MeasureError::Stopped);
        }
        return finish(options, &graph.finish()?, "a program", &[]);
    }
    let directory = options.directories.first().cloned().unwrap_or_else(|| PathBuf::from("."));
    let scratch = Scratch::make_or_explain(&directory)?;
    let place = Place::of(&directory).map_err(MeasureError::file(&directory))?;
    let works = options.works()?;
    let Some(work) = works.first() else {
        return Err(MeasureError::Refused("nothing to do; set --size".to_owned()));
    };
    let mut graph = Graph::start(&tracefs, &graph_options(options, vec![own_thread()]))?;
    let run = Run { work: *work, count: options.count, key: 1, buffer_kib: options.buffer_kib };
    generate::operate(scratch.path(), &run, &mut graph, &stop)?;
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    finish(options, &graph.finish()?, &format!("{} operations of {} octets", options.count, work.size), &[place])
}

fn through_trace_cmd(options: &IotraceArgs) -> Result<(), MeasureError> {
    if !options.command {
        return Err(MeasureError::Refused("trace-cmd can only trace a command: use --command -- PROGRAM".to_owned()));
    }
    let stop = Stop::on_signals().map_err(MeasureError::file("signals"))?;
    let scratch = Scratch::make_or_explain(&std::env::temp_dir())?;
    let graph_options = graph_options(options, Vec::new());
    let tracefs = Tracefs::find()?;
    let totals = trace_cmd::record(
        &tracefs,
        &graph_options,
        &options.program,
        scratch.path(),
        deadline(options.seconds),
        &stop,
    )?;
    finish(options, &totals, "a command, through trace-cmd", &[])
}
