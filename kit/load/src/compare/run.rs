//! The order of the runs.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use stentor_measure::usage::SyncCount;
use stentor_measure::{MeasureError, Progress, Scratch, Stop};

use super::bout::Bout;
use super::definition::{BUILT_IN, Definition, Values};
use super::options::{CompareArgs, SessionChoice, SyncChoice};
use super::report;
use super::row::Row;
use super::running::{Running, Surroundings};
use crate::limit::{FloorSink, Keep};
use crate::load::{self, Content, Count, People, Pipelining, Plan, Sizes};

/// Measures and reports.
pub fn run_compare(options: &CompareArgs) -> Result<(), MeasureError> {
    let refuse = MeasureError::Refused;
    let wait = load::seconds(options.wait, "--wait").map_err(refuse)?;
    let sizes = Sizes::parse(&options.size).map_err(refuse)?;
    let stentor = program(options.stentor.as_ref());
    let definitions = definitions(options, &stentor).map_err(refuse)?;
    let stop = Stop::on_signals().map_err(MeasureError::Output)?;
    options.output.ready()?;
    let address = options.sink.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
    let sink = FloorSink::start(address, &Keep::Nothing)
        .map_err(|error| refuse(format!("the sink cannot listen at {address}: {error}")))?;
    let mut report = report::begin(options);
    let counts_syncs = SyncCount::is_possible();
    let around = Surroundings { sink: sink.address, stentor, counts_syncs, stop: &stop };
    if !around.counts_syncs {
        report
            .notes
            .push("syncs are not counted: counting needs perf and root (apt-get install linux-perf)".to_owned());
    }
    let mut queues = options.queue.clone();
    if queues.is_empty() {
        queues.push(std::env::temp_dir());
    }
    let mut plan = plan(options, sizes);
    plan.check().map_err(refuse)?;
    let mut progress = options.output.progress();
    let mut rows = Vec::new();
    for queue in &queues {
        for with_sync in [true, false] {
            if (with_sync && options.sync == SyncChoice::Off) || (!with_sync && options.sync == SyncChoice::On) {
                continue;
            }
            let scratch = Scratch::make(queue)?;
            let mut cell = Cell { options, around: &around, sink: &sink, wait, progress: &mut progress };
            cell.run(&definitions, &scratch, with_sync, &mut plan, &mut rows)?;
        }
    }
    progress.clear();
    report::fill(&mut report, &rows);
    options.output.finish(&report)
}

/// The server that is given, or the one beside this program, or the one in `PATH`.
fn program(given: Option<&PathBuf>) -> String {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("stentor")).filter(|path| path.is_file());
    let path = given.cloned().or(beside).unwrap_or_else(|| PathBuf::from("stentor"));
    // Contestants run in folders of their own.
    let absolute = if path.components().count() > 1 { path.canonicalize().unwrap_or(path) } else { path };
    absolute.display().to_string()
}

fn definitions(options: &CompareArgs, stentor: &str) -> Result<Vec<Definition>, String> {
    let values = Values { stentor: stentor.to_owned(), ..Values::default() };
    let mut all = Vec::new();
    for name in &options.contestants {
        all.push(Definition::load(name)?);
    }
    for text in &options.contestant {
        all.push(Definition::from_option(text)?);
    }
    let is_given = !all.is_empty();
    if !is_given {
        for (name, _) in BUILT_IN {
            all.push(Definition::load(name)?);
        }
    }
    let obstacles: Vec<String> = all.iter().filter_map(|definition| definition.obstacle(&values)).collect();
    if is_given && !obstacles.is_empty() {
        return Err(obstacles.join("; "));
    }
    all.retain(|definition| definition.obstacle(&values).is_none());
    if all.is_empty() {
        return Err(format!("no contestant can run here: {}", obstacles.join("; ")));
    }
    for (at, definition) in all.iter().enumerate() {
        if all[..at].iter().any(|other| other.name == definition.name) {
            return Err(format!("two contestants are named {}", definition.name));
        }
    }
    Ok(all)
}

fn plan(options: &CompareArgs, sizes: Sizes) -> Plan {
    let mut plan = Plan::new(vec![(Ipv4Addr::LOCALHOST, 25).into()]);
    plan.connections = options.connections;
    plan.messages = options.messages;
    plan.pipelining = if options.pipelining { Pipelining::Offered } else { Pipelining::Off };
    plan.recipients_per_message = Count::exactly(options.recipients_per_message);
    plan.people = if options.recipients_per_message > 1 {
        People::Random { recipients: 100_000, domains: 1 }
    } else {
        People::List(vec!["reader@sink.example".to_owned()])
    };
    "sender@source.example".clone_into(&mut plan.sender);
    plan.content = Content::made(sizes, &plan.sender, "compare");
    plan
}

/// All contestants on one directory, with syncs or without.
struct Cell<'a> {
    options: &'a CompareArgs,
    around: &'a Surroundings<'a>,
    sink: &'a FloorSink,
    wait: Duration,
    progress: &'a mut Progress,
}

impl Cell<'_> {
    fn run(
        &mut self,
        definitions: &[Definition],
        scratch: &Scratch,
        with_sync: bool,
        plan: &mut Plan,
        rows: &mut Vec<Row>,
    ) -> Result<(), MeasureError> {
        let mut running = Vec::new();
        for definition in definitions {
            let is_given = definition.start.is_empty();
            if !with_sync && definition.nosync.is_none() {
                continue;
            }
            self.progress.part(&format!("{}: {} begins", scratch.path().display(), definition.name));
            let folder = scratch.path().join(&definition.name);
            let contestant = Running::start(definition, &folder, with_sync, self.around)?;
            running.push((contestant, (!is_given).then_some(with_sync)));
        }
        for session_each in [true, false] {
            let is_left_out = if session_each { SessionChoice::Kept } else { SessionChoice::Each };
            if self.options.sessions == is_left_out {
                continue;
            }
            plan.messages_per_session = session_each.then_some(1);
            let first = rows.len();
            rows.extend(running.iter().map(|(contestant, with_sync)| Row {
                contestant: contestant.name.clone(),
                place: contestant.place.clone(),
                directory: match with_sync {
                    Some(_) => scratch.path().parent().map(PathBuf::from),
                    None => contestant.place.as_ref().map(|place| place.directory.clone()),
                },
                with_sync: *with_sync,
                session_each,
                runs: Vec::new(),
            }));
            self.rounds(&running, plan, &mut rows[first..])?;
        }
        for (mut contestant, _) in running {
            contestant.end();
        }
        Ok(())
    }

    /// By turns; who begins changes each time.
    fn rounds(
        &mut self,
        running: &[(Running, Option<bool>)],
        plan: &Plan,
        rows: &mut [Row],
    ) -> Result<(), MeasureError> {
        let wait = (!self.options.no_delivery).then_some(self.wait);
        let bout = Bout { plan, sink: self.sink, wait, stop: self.around.stop };
        let total = if self.options.output.runs == 1 { 1 } else { self.options.output.runs + 1 };
        for number in 0..total {
            let mut order: Vec<usize> = (0..running.len()).collect();
            if number % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let contestant = &running[at].0;
                self.progress.part(&format!("round {} of {total}: {}", number + 1, contestant.name));
                let figures = bout.run(contestant)?;
                if self.around.stop.is_set() {
                    return Err(MeasureError::Stopped);
                }
                if number > 0 || total == 1 {
                    rows[at].runs.push(figures);
                }
            }
        }
        Ok(())
    }
}
