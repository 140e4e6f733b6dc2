//! The collectors, what each sees, and whether it works here.

use clap::ValueEnum;
use stentor_measure::{Cell, Column, MeasureError, Table};

use crate::collect::kernel::{Circumstances, Tracefs};
use crate::collect::{function_graph, trace_cmd};

/// Which collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CollectorChoice {
    /// The first of the others that this kernel allows.
    Auto,
    /// Tracepoints, through tracefs.
    Tracefs,
    /// Every kernel function of the chosen threads, through tracefs.
    FunctionGraph,
    /// The same, through `trace-cmd record`.
    TraceCmd,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Collector {
    pub chosen: CollectorChoice,
    pub name: &'static str,
    pub sees: &'static str,
    /// Else why not, with what to do.
    pub works: Result<(), String>,
}

/// All, the best for layers first.
pub fn collectors() -> Vec<Collector> {
    let tracefs = Circumstances::look().tracefs();
    let with = |check: fn(&Tracefs) -> Result<(), String>| tracefs.as_ref().map_err(Clone::clone).and_then(check);
    vec![
        Collector {
            chosen: CollectorChoice::Tracefs,
            name: "tracefs",
            sees: "system calls, file system, journal, write-back, page cache, scheduler, block layer and device, by \
                   tracepoints; not functions between them",
            works: with(|_| Ok(())),
        },
        Collector {
            chosen: CollectorChoice::FunctionGraph,
            name: "function-graph",
            sees: "every kernel function of the traced threads, with an overhead that affects the measurement; no \
                device requests",
            works: with(function_graph::available),
        },
        Collector {
            chosen: CollectorChoice::TraceCmd,
            name: "trace-cmd",
            sees: "the same, recorded by trace-cmd",
            works: with(trace_cmd::works),
        },
    ]
}

pub fn table() -> Table {
    let columns = vec![
        Column::new("collector", "--collector"),
        Column::new("works", "works here"),
        Column::new("sees", "sees"),
        Column::new("why_not", "why not"),
    ];
    let mut table = Table::new("collectors", "Collectors", columns);
    for collector in collectors() {
        table.push(vec![
            Cell::text(collector.name),
            Cell::text(if collector.works.is_ok() { "yes" } else { "no" }),
            Cell::text(collector.sees),
            Cell::text(collector.works.err().unwrap_or_default()),
        ]);
    }
    table.push(vec![
        Cell::text("(--read FILE)"),
        Cell::text("yes"),
        Cell::text("summary of `trace-cmd report` or ftrace `trace` output: functions, events, losses"),
        Cell::text(""),
    ]);
    table
}

/// The one that was asked for, or the first that works.
pub fn choose(asked: CollectorChoice) -> Result<CollectorChoice, MeasureError> {
    let mut refusals = Vec::new();
    for collector in collectors() {
        if asked != CollectorChoice::Auto && asked != collector.chosen {
            continue;
        }
        match collector.works {
            Ok(()) => return Ok(collector.chosen),
            Err(reason) => refusals.push((collector.name, reason)),
        }
    }
    let what =
        if asked == CollectorChoice::Auto { "no collector works here" } else { "this collector does not work here" };
    // What all of them lack is said once.
    let said = match common(&refusals) {
        Some(reason) => reason.to_owned(),
        None => refusals.iter().map(|(name, reason)| format!("{name}: {reason}")).collect::<Vec<_>>().join("; "),
    };
    Err(MeasureError::Refused(format!("{what}; {said}")))
}

/// The reason, if it is the same one for all.
fn common<'a>(refusals: &'a [(&str, String)]) -> Option<&'a str> {
    let (_, first) = refusals.first()?;
    refusals.iter().all(|(_, reason)| reason == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_all_have_is_said_once() {
        let of = |reasons: [&str; 2]| reasons.map(|reason| ("name", reason.to_owned()));
        assert_eq!(common(&of(["not mounted", "not mounted"])), Some("not mounted"));
        assert_eq!(common(&of(["not mounted", "no tracer"])), None);
    }
}
