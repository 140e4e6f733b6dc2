//! The load report.

use stentor_measure::chart::{Kind, Line, Series};
use stentor_measure::{Cell, Chart, Column, Histogram, Report, Table};

use super::options::SourceArgs;
use super::plan::Plan;
use super::tally::{FailureKind, Step, Tally};
use super::wire::Tls;

const US: f64 = 1000.0;
const MS: f64 = 1e6;

/// Of the counted runs.
pub fn report(plan: &Plan, tallies: &[Tally], options: &SourceArgs) -> Report {
    let mut report = Report::new("lab-source", "Load");
    parameters(&mut report, plan, options);
    report.tables.push(totals(tallies, plan.arrivals.rate().is_some()));
    report.tables.push(steps(tallies));
    if tallies.iter().any(|tally| !tally.errors.is_empty()) {
        report.tables.push(errors(tallies));
    }
    report.details.push(seconds(tallies));
    report.charts.extend(charts(tallies));
    for (number, tally) in tallies.iter().enumerate() {
        let (overall, peak) = tally.rates();
        report.notes.push(format!(
            "run {}: elapsed {:.3} s, overall {overall:.3} msg/s, peak {peak:.3} msg/s",
            number + 1,
            tally.elapsed_s
        ));
    }
    if let Some(rate) = plan.arrivals.rate() {
        behind(&mut report, rate, tallies);
    }
    report
}

fn parameters(report: &mut Report, plan: &Plan, options: &SourceArgs) {
    report.parameter("targets", options.target.join(" "));
    report.parameter("connections", plan.connections);
    report.parameter("threads", plan.threads);
    let session = plan.messages_per_session.map_or("kept".to_owned(), |messages| messages.to_string());
    report.parameter("messages_per_session", session);
    if plan.messages != u64::MAX {
        report.parameter("messages", plan.messages);
    }
    if let Some(seconds) = options.seconds {
        report.parameter("seconds", seconds);
    }
    if options.warm_up > 0.0 {
        report.parameter("warm_up_s", options.warm_up);
    }
    let is_made = options.message.is_empty();
    report.parameter("size", if is_made { options.size.clone() } else { "files".to_owned() });
    report.parameter("recipients_per_message", &options.recipients_per_message);
    report.parameter("pipelining", format!("{:?}", plan.pipelining).to_lowercase());
    if plan.tls != Tls::Off {
        report.parameter("tls", format!("{:?}", plan.tls).to_lowercase());
        report.parameter("tls_resumed", plan.tls_resumes);
    }
    report.parameter("data", if plan.chunking { "BDAT" } else { "DATA" });
    match plan.arrivals.rate() {
        None => report.parameter("arrivals", "closed loop"),
        Some(rate) => {
            report.parameter("arrivals", if options.poisson { "Poisson" } else { "constant" });
            report.parameter("rate_per_s", rate);
        }
    }
    report.parameter("seed", plan.seed);
}

fn spread(tallies: &[Tally], of: impl Fn(&Tally) -> f64, decimals: u8) -> Cell {
    Cell::spread(tallies.iter().map(of), decimals)
}

/// With `is_open`, those of a schedule too.
fn totals(tallies: &[Tally], is_open: bool) -> Table {
    let columns = vec![
        Column::new("accepted", "accepted"),
        Column::new("recipients", "recipients"),
        Column::new("failed", "failed"),
        Column::new("sessions", "sessions"),
        Column::new("elapsed_s", "elapsed s"),
        Column::new("overall_per_s", "msg/s"),
        Column::new("peak_per_s", "peak msg/s"),
        Column::new("mib_per_s", "MiB/s"),
        Column::new("octets", "octets"),
        Column::new("source_cpu_us", "source CPU us/msg"),
        Column::new("due", "due"),
        Column::new("never_begun", "never begun"),
        Column::new("unfinished", "unfinished"),
    ];
    let mut table = Table::new("load", "Load", columns);
    table.push(vec![
        spread(tallies, |t| t.accepted as f64, 0),
        spread(tallies, |t| t.recipients as f64, 0),
        spread(tallies, |t| t.failed as f64, 0),
        spread(tallies, |t| t.sessions as f64, 0),
        spread(tallies, |t| t.elapsed_s, 3),
        spread(tallies, |t| t.rates().0, 3),
        spread(tallies, |t| t.rates().1, 3),
        spread(tallies, |t| t.octets as f64 / t.elapsed_s.max(1e-9) / 1_048_576.0, 2),
        spread(tallies, |t| t.octets as f64, 0),
        spread(tallies, |t| t.cpu_s * 1e6 / (t.accepted + t.failed).max(1) as f64, 1),
        if is_open { spread(tallies, |t| t.due as f64, 0) } else { Cell::Missing },
        if is_open { spread(tallies, |t| t.never_begun as f64, 0) } else { Cell::Missing },
        spread(tallies, |t| t.unfinished as f64, 0),
    ]);
    table
}

fn steps(tallies: &[Tally]) -> Table {
    let columns = vec![
        Column::new("step", "step"),
        Column::new("count", "count"),
        Column::new("p50_us", "p50 us"),
        Column::new("p95_us", "p95 us"),
        Column::new("p99_us", "p99 us"),
        Column::new("p999_us", "p99.9 us"),
        Column::new("max_us", "max us"),
    ];
    let mut table = Table::new("steps", "Time from each command to its reply, and of whole messages", columns);
    let mut row = |name: &str, of: &dyn Fn(&Tally) -> &Histogram| {
        if tallies.iter().all(|tally| of(tally).count() == 0) {
            return;
        }
        let share = |share: f64| spread(tallies, |t| of(t).percentile(share) as f64 / US, 0);
        let count = spread(tallies, |t| of(t).count() as f64, 0);
        let max = spread(tallies, |t| of(t).greatest() as f64 / US, 0);
        table.push(vec![Cell::text(name), count, share(0.5), share(0.95), share(0.99), share(0.999), max]);
    };
    for step in Step::ALL {
        row(step.name(), &|tally| &tally.steps[step as usize]);
    }
    row("transaction", &|tally| &tally.transaction);
    row("service", &|tally| &tally.service);
    row("response", &|tally| &tally.response);
    row("behind", &|tally| &tally.behind);
    table
}

fn errors(tallies: &[Tally]) -> Table {
    let columns = vec![
        Column::new("step", "step"),
        Column::new("code", "code"),
        Column::new("count", "count"),
        Column::new("example", "for example"),
    ];
    let mut table = Table::new("errors", "Errors, all runs", columns);
    let mut all = Tally::default();
    for tally in tallies {
        all.merge(tally);
    }
    for (failure, failed) in &all.errors {
        let what = match &failure.what {
            FailureKind::Code(code) => code.to_string(),
            FailureKind::Connection(text) => text.clone(),
        };
        let cells = [Cell::text(failure.step.name()), Cell::text(what)];
        let rest = [Cell::Count(failed.count), Cell::text(failed.example.clone())];
        table.push(cells.into_iter().chain(rest).collect());
    }
    table
}

fn seconds(tallies: &[Tally]) -> Table {
    let columns = vec![
        Column::new("run", "run"),
        Column::new("second", "second"),
        Column::new("begun", "begun"),
        Column::new("accepted", "accepted"),
        Column::new("failed", "failed"),
        Column::new("octets", "octets"),
        Column::new("service_mean_ms", "service mean ms"),
        Column::new("service_max_ms", "service max ms"),
        Column::new("response_mean_ms", "response mean ms"),
        Column::new("response_max_ms", "response max ms"),
        Column::new("backlog", "backlog"),
    ];
    let mut table = Table::new("seconds", "Each second", columns);
    for (run, tally) in tallies.iter().enumerate() {
        let has_response = tally.response.count() > 0;
        for (number, second) in tally.seconds.iter().enumerate() {
            let mean = |sum: u64| Cell::Number(sum as f64 / second.accepted.max(1) as f64 / MS, 3);
            let response = |cell: Cell| if has_response { cell } else { Cell::Missing };
            table.push(vec![
                Cell::Count(run as u64 + 1),
                Cell::Count(number as u64),
                Cell::Count(second.begun),
                Cell::Count(second.accepted),
                Cell::Count(second.failed),
                Cell::Count(second.octets),
                mean(second.service_ns),
                Cell::Number(second.service_max_ns as f64 / MS, 3),
                response(mean(second.response_ns)),
                response(Cell::Number(second.response_max_ns as f64 / MS, 3)),
                response(Cell::Count(second.backlog)),
            ]);
        }
    }
    table
}

/// How well the schedule was kept, in words.
fn behind(report: &mut Report, rate: f64, tallies: &[Tally]) {
    for (number, tally) in tallies.iter().enumerate() {
        let worst = tally.seconds.iter().map(|second| second.backlog).max().unwrap_or(0);
        report.notes.push(format!(
            "run {}: {rate} msg/s requested; {} due, {} accepted, {} failed, {} never begun; at most {worst} behind, \
             the latest begun {:.3} s late. Response is measured from the scheduled arrival, service from the start \
             of sending.",
            number + 1,
            tally.due,
            tally.accepted,
            tally.failed,
            tally.never_begun,
            tally.behind.greatest() as f64 / 1e9,
        ));
        if tally.never_begun > 0 {
            report.warnings.push(format!(
                "run {}: the target is slower than the rate: {} messages were never begun. Response and behind \
                 include their waiting time so far, so the percentiles are lower bounds",
                number + 1,
                tally.never_begun
            ));
        }
    }
}

fn charts(tallies: &[Tally]) -> Vec<Chart> {
    let Some(tally) = tallies.last() else { return Vec::new() };
    let line = |name: &str, of: &dyn Fn(&super::tally::Second) -> f64| Line {
        name: name.to_owned(),
        points: tally.seconds.iter().enumerate().map(|(at, second)| (at as f64, of(second))).collect(),
    };
    let mut rates = vec![line("accepted", &|second| second.accepted as f64)];
    if tally.failed > 0 {
        rates.push(line("failed", &|second| second.failed as f64));
    }
    if tally.response.count() > 0 {
        rates.push(line("backlog", &|second| second.backlog as f64));
    }
    let lines = |rates| Kind::Lines {
        x_unit: "s".to_owned(),
        y_unit: "messages".to_owned(),
        log_x: false,
        log_y: false,
        lines: rates,
    };
    let used: Vec<Step> = Step::ALL.into_iter().filter(|step| tally.steps[*step as usize].count() > 0).collect();
    let series = |name: &str, share: f64| Series {
        name: name.to_owned(),
        values: used.iter().map(|step| tally.steps[*step as usize].percentile(share) as f64 / US).collect(),
    };
    vec![
        Chart { name: "seconds".to_owned(), title: "Messages in each second".to_owned(), kind: lines(rates) },
        Chart {
            name: "steps".to_owned(),
            title: "Time from command to reply".to_owned(),
            kind: Kind::Bars {
                unit: "us".to_owned(),
                groups: used.iter().map(|step| step.name().to_owned()).collect(),
                series: vec![series("median", 0.5), series("p99", 0.99)],
            },
        },
    ]
}
