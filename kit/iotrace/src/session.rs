//! Runs the command from options to report: selects what is traced and the collector, repeats, and warns of doubtful
//! results.

use std::collections::BTreeSet;
use std::path::PathBuf;

use stentor_measure::machine::memory_free_mib;
use stentor_measure::runs::run_of;
use stentor_measure::{MeasureError, Place, Progress, Report, Scratch, Stop, repeat};

use crate::analyse::{self, Analysis};
use crate::collect::kernel::Tracefs;
use crate::collect::tracer::{Threads, own_thread};
use crate::collect::{FileSystem, Scope, TraceRequest, Tracer};
use crate::devices::StorageStack;
use crate::functions;
use crate::generate::{self, Run};
use crate::loss;
use crate::operation::{Traced, Work};
use crate::options::IotraceArgs;
use crate::program::{self, Held};

/// The generator's runs may not take more than this of what is free.
const FREE_SHARE: u64 = 2;

pub fn run(options: &IotraceArgs) -> Result<(), MeasureError> {
    if let Some(done) = functions::instead(options) {
        return done;
    }
    let stop = Stop::on_signals().map_err(MeasureError::file("signals"))?;
    if options.loss {
        return loss::run(options, &stop);
    }
    let mut report = Report::new("iotrace", "Time of a write, by layer");
    let mut progress = options.output.progress();
    let analyses = if options.pid.is_some() || options.command {
        programs(options, &mut report, &stop, &mut progress)?
    } else {
        generated(options, &mut report, &stop, &mut progress)?
    };
    progress.clear();
    if stop.is_set() {
        return Err(MeasureError::Stopped);
    }
    analyse::present(&analyses, &mut report);
    doubts(&mut report, &analyses);
    options.output.finish(&report)
}

/// What is kept of a run: not its events, of which no second run's may be in memory.
fn told(traced: &Traced, progress: &mut Progress) -> Analysis {
    progress.part(&format!("{}: making sense of {} events", traced.name, traced.trace.events.len()));
    Analysis::of(traced)
}

/// One run of the generator for each directory, kind of work and repetition.
fn generated(
    options: &IotraceArgs,
    report: &mut Report,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Vec<Analysis>, MeasureError> {
    let works = options.works()?;
    let here = [PathBuf::from(".")];
    let directories = if options.directories.is_empty() { &here[..] } else { &options.directories };
    report.parameter("count", options.count);
    parameters(report, options);
    let mut all = Vec::new();
    // Each directory is looked at before the first is written to.
    let mut scratches = Vec::new();
    for directory in directories {
        let scratch = Scratch::make_or_explain(directory)?;
        let place = Place::of(directory).map_err(MeasureError::file(directory))?;
        check_room(options, &place, &works)?;
        scratches.push((scratch, place));
    }
    let tracefs = Tracefs::find()?;
    for (scratch, place) in &scratches {
        report.places.push(place.clone());
        let stack = StorageStack::of(place);
        let request = trace_request(options, &stack, Threads::Of(vec![own_thread()]))?;
        let mut tracer = Tracer::start(&tracefs, &request)?;
        let name = name_of(place);
        for work in &works {
            let runs = repeat(options.output.runs, stop, |number| {
                progress.step(|| format!("{name}: {} octets, {}", work.size, run_of(number, options.output.runs)));
                let key = u64::from(std::process::id()) << 32 | u64::from(number) << 8 | 1;
                let run = Run { work: *work, count: options.count, key, buffer_kib: options.buffer_kib };
                let made = generate::run(scratch.path(), &run, &mut tracer, stop)?;
                if is_dropped(options, number) || stop.is_set() {
                    return Ok(None);
                }
                if made.operations.len() < options.count as usize {
                    report.warnings.push(format!(
                        "{name}, {} octets, run {}: the memory for events was full after {} of {} operations; the \
                         figures cover these; increase --memory-mib, or reduce --count or --scope",
                        work.size,
                        number.max(1),
                        made.operations.len(),
                        options.count
                    ));
                }
                let traced = Traced {
                    name: name.clone(),
                    place: Some(place.clone()),
                    work: Some(*work),
                    run: number.max(1),
                    trace: made.trace,
                    operations: made.operations,
                    generator: BTreeSet::from([own_thread()]),
                    tracer: BTreeSet::new(),
                    devices: stack.devices.clone(),
                    traced_ns: made.traced_ns,
                    scope: options.scope.name().to_owned(),
                    buffer_kib: options.buffer_kib,
                    missing: tracer.missing.clone(),
                };
                Ok::<_, MeasureError>(Some(told(&traced, progress)))
            })?;
            all.extend(runs.into_iter().flatten());
        }
    }
    Ok(all)
}

/// The first of several: it warms up.
fn is_dropped(options: &IotraceArgs, number: u32) -> bool {
    number == 0 && options.output.runs > 1
}

/// The trace of a process or of a command.
fn programs(
    options: &IotraceArgs,
    report: &mut Report,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Vec<Analysis>, MeasureError> {
    let place = match options.directories.as_slice() {
        [] => None,
        [directory] => Some(Place::of(directory).map_err(MeasureError::file(directory))?),
        _ => {
            return Err(MeasureError::Refused(
                "a program is traced on the file system of one directory; give only one".to_owned(),
            ));
        }
    };
    if let Some(pid) = options.pid {
        program::tree(pid)?;
    }
    let tracefs = Tracefs::find()?;
    report.parameter("seconds", options.seconds);
    parameters(report, options);
    let stack = match &place {
        Some(place) => StorageStack::of(place),
        None => StorageStack { devices: Vec::new(), file_systems: FileSystem::EVERY.to_vec() },
    };
    report.places.extend(place.clone());
    let name = options.pid.map_or_else(
        || options.program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
        |pid| format!("process {pid}"),
    );
    let mut gone = None;
    let runs = repeat(options.output.runs, stop, |number| {
        // A process that has ended ends the runs; those before it count.
        if gone.is_some() || options.pid.is_some_and(|pid| !program::is_there(pid)) {
            gone.get_or_insert(number);
            return Ok(None);
        }
        progress.part(&format!("{name}: {}", run_of(number, options.output.runs)));
        let traced = program(options, &tracefs, &stack, &name, number, stop, &mut report.warnings)?;
        if is_dropped(options, number) || stop.is_set() {
            return Ok(None);
        }
        Ok::<_, MeasureError>(Some(told(&Traced { place: place.clone(), ..traced }, progress)))
    })?;
    let all: Vec<_> = runs.into_iter().flatten().collect();
    match gone {
        Some(number) if all.is_empty() => Err(MeasureError::Refused(format!(
            "{name} ended after {number} run(s), of which the first is dropped as warm-up; use --runs 1 to keep it"
        ))),
        Some(number) => {
            report.warnings.push(format!("{name} ended: only {} of {} runs", number - 1, options.output.runs));
            Ok(all)
        }
        None => Ok(all),
    }
}

/// One run of it.
fn program(
    options: &IotraceArgs,
    tracefs: &Tracefs,
    stack: &StorageStack,
    name: &str,
    number: u32,
    stop: &Stop,
    warnings: &mut Vec<String>,
) -> Result<Traced, MeasureError> {
    let held = if options.command { Some(Held::start(&options.program)?) } else { None };
    let mut roots = match (&held, options.pid) {
        (Some(held), _) => vec![held.pid()],
        (None, Some(pid)) => program::tree(pid)?,
        (None, None) => Vec::new(),
    };
    let mut tracer = Tracer::start(tracefs, &trace_request(options, stack, Threads::Tree(roots.clone()))?)?;
    if let Some(pid) = options.pid {
        program::catch_up(&tracer, pid, &mut roots)?;
    }
    let followed = program::follow(&mut tracer, &roots, held, options.seconds, stop)?;
    if !is_dropped(options, number) {
        warnings.extend(followed.warnings.into_iter().map(|warning| format!("run {}: {warning}", number.max(1))));
    }
    Ok(Traced {
        name: name.to_owned(),
        place: None,
        work: None,
        run: number.max(1),
        trace: followed.trace,
        operations: Vec::new(),
        generator: followed.threads,
        tracer: followed.tracer,
        devices: stack.devices.clone(),
        traced_ns: followed.traced_ns,
        scope: options.scope.name().to_owned(),
        buffer_kib: options.buffer_kib,
        missing: tracer.missing.clone(),
    })
}

fn trace_request(options: &IotraceArgs, stack: &StorageStack, threads: Threads) -> Result<TraceRequest, MeasureError> {
    Ok(TraceRequest {
        scope: options.scope,
        file_systems: stack.file_systems.clone(),
        devices: stack.devices.clone(),
        threads,
        buffer_kib: options.buffer_kib,
        memory_bytes_max: options.memory_bytes_max(memory_free_mib())?,
    })
}

fn parameters(report: &mut Report, options: &IotraceArgs) {
    report.parameter("collector", "tracefs");
    report.parameter("scope", options.scope.name());
    report.parameter("buffer_kib", options.buffer_kib);
    report.parameter("runs", options.output.runs);
}

/// `/srv ext4 on vda`.
fn name_of(place: &Place) -> String {
    let device = place.device.as_ref().map_or_else(String::new, |device| format!(" on {}", device.name));
    format!("{} {}{device}", place.directory.display(), place.file_system)
}

fn check_room(options: &IotraceArgs, place: &Place, works: &[Work]) -> Result<(), MeasureError> {
    let greatest = works.iter().map(|work| u64::from(work.size)).max().unwrap_or(0);
    let wanted_mib = (greatest * u64::from(options.count)) >> 20;
    if wanted_mib > place.free_mib / FREE_SHARE {
        return Err(MeasureError::Refused(format!(
            "{}: {} operations of {greatest} octets need {wanted_mib} MiB, but {} MiB are free; reduce --count or \
             --size",
            place.directory.display(),
            options.count,
            place.free_mib
        )));
    }
    Ok(())
}

/// What makes the figures doubtful, with what to do.
fn doubts(report: &mut Report, analyses: &[Analysis]) {
    let lost: u64 = analyses.iter().map(Analysis::lost_in_all).sum();
    let marked = analyses.iter().filter(|one| one.lost_in_all() > 0).count();
    if lost > 0 {
        let kept: u64 = analyses.iter().map(Analysis::events).sum();
        let buffer_kib = analyses.iter().map(|one| one.buffer_kib).max().unwrap_or(0);
        let scope = analyses.first().map_or("", |one| one.scope.as_str());
        let at = Scope::EVERY.iter().position(|one| one.name() == scope).unwrap_or(1);
        let narrower = Scope::EVERY[at.saturating_sub(1)].name();
        report.warnings.push(format!(
            "{lost} events lost ({:.1} %), in {marked} of {} runs: their figures are too low; use --buffer-kib {} or \
             --scope {narrower}",
            100.0 * lost as f64 / (lost + kept) as f64,
            analyses.len(),
            buffer_kib.saturating_mul(4)
        ));
    }
    let missing: BTreeSet<&str> = analyses.iter().flat_map(|one| one.missing.iter().map(String::as_str)).collect();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.into_iter().collect();
        report.warnings.push(format!("not traced, because this kernel does not have it: {}", names.join(", ")));
    }
}
