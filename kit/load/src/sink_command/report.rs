//! The sink's report.

use std::fmt::Write as _;

use clap::ValueEnum;
use stentor_lab::StoreAs;
use stentor_lab::recorder::{NAMES_MAX, Stats, Tallied};
use stentor_lab::{EngineCounters, Model};
use stentor_measure::chart::{Chart, Kind, Line};
use stentor_measure::{Cell, Column, Place, Report, Table};

use super::{Samples, SinkArgs, SinkProgress, Total};

const MIB: f64 = 1_048_576.0;

/// All of it.
pub(super) fn report(args: &SinkArgs, addresses: usize, total: &Total, samples: &Samples) -> Report {
    let SinkProgress { stats, met, .. } = &total.seen;
    let mut report = Report::new("lab-sink", "A mail sink");
    let model = match (args.model, args.threads) {
        (Model::Event, None | Some(1)) => "event, one loop".to_owned(),
        (Model::Event, Some(loops)) => format!("event, {loops} loops"),
        (Model::Pool, threads) => format!("pool of {}", threads.unwrap_or(16)),
        (Model::Thread, _) => "one thread per connection".to_owned(),
    };
    report.parameter("model", model);
    report.parameter("addresses", addresses);
    if total.processes > 1 {
        report.parameter("processes", total.processes);
    }
    if let Some(most) = args.connections {
        report.parameter("connections_max", most);
    }
    if !args.behaviour.is_empty() {
        report.parameter("behaviour", &args.behaviour);
    }
    report.tables.push(load_table(&total.seen));
    report.tables.push(connection_table(&total.seen, total.processes));
    report.tables.push(refusal_table(stats));
    if let Some(directory) = &args.store {
        report.places.extend(Place::of(directory).ok());
        report.tables.push(store_table(args, met));
    }
    let top = &total.top;
    for (name, title, list, seen, beyond) in [
        ("recipients", "Recipients with the most copies", &top.recipients, top.recipients_seen, top.recipients_beyond),
        ("domains", "Domains with the most copies", &top.domains, top.domains_seen, top.domains_beyond),
    ] {
        if beyond.copies > 0 {
            report.warnings.push(format!(
                "{name}: only the first {NAMES_MAX} are counted individually; {} copies for others are counted \
                 together",
                beyond.copies
            ));
        }
        if !list.is_empty() {
            report.tables.push(top_table(name, &format!("{title}, of {seen}"), list));
        }
    }
    report.warnings.extend(warnings(stats, met));
    report.warnings.extend(total.warnings.iter().cloned());
    let seconds = seconds_table(samples);
    let points = seconds.rows.iter().filter_map(|row| match row.as_slice() {
        [Cell::Number(at_s, _), _, Cell::Number(rate, _)] => Some((*at_s, *rate)),
        _ => None,
    });
    let lines = vec![Line { name: "taken".to_owned(), points: points.collect() }];
    report.details.push(seconds);
    let [x_unit, y_unit] = ["seconds", "messages/s"].map(str::to_owned);
    let kind = Kind::Lines { x_unit, y_unit, log_x: false, log_y: false, lines };
    report.charts.push(Chart { name: "rate".to_owned(), title: "Messages accepted".to_owned(), kind });
    report
}

/// Messages of each second, or of each two, four and so on of a very long run. Not printed.
fn seconds_table(samples: &Samples) -> Table {
    let columns = vec![
        Column::new("until_s", "until, s"),
        Column::new("messages", "messages"),
        Column::new("messages_per_s", "messages/s"),
    ];
    let mut table = Table::new("seconds", "Messages accepted per second", columns);
    for pair in samples.seen.windows(2) {
        let [(from_s, before), (until_s, after)] = [pair[0], pair[1]];
        if until_s > from_s {
            let count = after.saturating_sub(before);
            let rate = Cell::Number(count as f64 / (until_s - from_s), 1);
            table.push(vec![Cell::Number(until_s, 3), Cell::Count(count), rate]);
        }
    }
    table
}

fn load_table(seen: &SinkProgress) -> Table {
    let stats = &seen.stats;
    let columns = vec![
        Column::new("messages", "messages"),
        Column::new("copies", "copies"),
        Column::new("mib", "MiB"),
        Column::new("seconds", "first to last, s"),
        Column::new("messages_per_s", "messages/s"),
        Column::new("mib_per_s", "MiB/s"),
        Column::new("user_us_per_message", "user us each"),
        Column::new("system_us_per_message", "system us each"),
    ];
    let mut table = Table::new("load", "Mail accepted, and CPU time of the sink per message", columns);
    let seconds = seen.span_us.map(|(first, last)| last.saturating_sub(first) as f64 / 1e6);
    let per_s = |count: f64| match seconds {
        Some(seconds) if seconds > 0.0 => Cell::Number(count / seconds, 1),
        _ => Cell::Missing,
    };
    let each = |seconds: f64| {
        if stats.transactions == 0 { Cell::Missing } else { Cell::Number(seconds * 1e6 / stats.transactions as f64, 1) }
    };
    table.push(vec![
        Cell::Count(stats.transactions),
        Cell::Count(stats.recipients),
        Cell::Number(stats.bytes as f64 / MIB, 1),
        seconds.map_or(Cell::Missing, |seconds| Cell::Number(seconds, 3)),
        // The first message begins the time and is not in it.
        per_s(stats.transactions.saturating_sub(1) as f64),
        per_s(stats.bytes as f64 / MIB),
        each(seen.used.user_s),
        each(seen.used.system_s),
    ]);
    table
}

fn connection_table(SinkProgress { stats, met, used, .. }: &SinkProgress, processes: usize) -> Table {
    let columns = vec![
        Column::new("connections", "connections"),
        Column::new("open_max", "most at once"),
        Column::new("open", "open at the end"),
        Column::new("waiting_max", "most waiting"),
        Column::new("threads_refused", "without a thread"),
        Column::new("accept_failures", "failed accepts"),
        Column::new("threads", "threads"),
        Column::new("resident_mib", "memory, MiB"),
        Column::new("resident_peak_mib", "at most"),
    ];
    let title = match processes {
        1 => "Connections, and memory of the process".to_owned(),
        more => format!("Connections, and memory of {more} processes"),
    };
    let mut table = Table::new("connections", title, columns);
    table.push(vec![
        Cell::Count(stats.connections),
        Cell::Count(stats.open_max),
        Cell::Count(stats.open),
        Cell::Count(met.waiting_max),
        Cell::Count(met.threads_refused),
        Cell::Count(met.accept_failures),
        Cell::Count(used.threads),
        Cell::Number(used.resident_bytes as f64 / MIB, 1),
        Cell::Number(used.resident_peak_bytes as f64 / MIB, 1),
    ]);
    table
}

fn refusal_table(stats: &Stats) -> Table {
    let columns = vec![
        Column::new("mail_4xx", "messages 4xx"),
        Column::new("mail_5xx", "5xx"),
        Column::new("rcpt_4xx", "recipients 4xx"),
        Column::new("rcpt_5xx", "5xx"),
        Column::new("unanswered", "250 not written"),
        Column::new("duplicates", "second copies"),
        Column::new("damaged", "damaged"),
        Column::new("violations", "protocol violations"),
    ];
    let mut table = Table::new("refusals", "Refusals by the behaviour, and errors of clients", columns);
    let counts = [stats.mail_4xx, stats.mail_5xx, stats.rcpt_4xx, stats.rcpt_5xx, stats.unanswered, stats.duplicates];
    table.push(counts.into_iter().chain([stats.damaged, stats.violations]).map(Cell::Count).collect());
    table
}

fn store_table(args: &SinkArgs, met: &EngineCounters) -> Table {
    let columns = vec![
        Column::new("store", "store"),
        Column::new("sync", "sync"),
        Column::new("stored", "stored"),
        Column::new("failed", "failed"),
        Column::new("mib", "MiB"),
        Column::new("p50_us", "p50 us"),
        Column::new("p99_us", "p99 us"),
        Column::new("max_us", "max us"),
        Column::new("syncs", "syncs"),
        Column::new("batches", "batches"),
    ];
    let mut table = Table::new("store", "Time to store a message before the 250, from the end of data", columns);
    let value = |text: Option<clap::builder::PossibleValue>| text.map_or(String::new(), |v| v.get_name().to_owned());
    let [p50, p99, longest] = met.store_us;
    table.push(vec![
        Cell::text(value(args.store_as.to_possible_value())),
        Cell::text(value(args.sync.to_possible_value())),
        Cell::Count(met.stored),
        Cell::Count(met.store_failures),
        Cell::Number(met.stored_bytes as f64 / MIB, 1),
        Cell::Count(p50),
        Cell::Count(p99),
        Cell::Count(longest),
        Cell::Count(met.store_syncs),
        if args.store_as == StoreAs::Journal { Cell::Count(met.store_batches) } else { Cell::Missing },
    ]);
    table
}

fn top_table(name: &'static str, title: &str, list: &[(String, Tallied)]) -> Table {
    let columns = vec![Column::new("name", name), Column::new("copies", "copies"), Column::new("mib", "MiB")];
    let mut table = Table::new(name, title, columns);
    for (who, tallied) in list {
        // What a client said is shown on a terminal here.
        let who = who.escape_debug().to_string();
        table.push(vec![Cell::text(who), Cell::Count(tallied.copies), Cell::Number(tallied.bytes as f64 / MIB, 1)]);
    }
    table
}

fn warnings(stats: &Stats, met: &EngineCounters) -> Vec<String> {
    let mut all = Vec::new();
    if met.threads_refused > 0 {
        let mut text = format!("{} connections got no thread", met.threads_refused);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            " ({}): see threads-max, pid_max, max_map_count, pids.max",
            shown(met.thread_refusal.as_ref())
        );
        all.push(text);
    }
    if met.accept_failures > 0 {
        all.push(format!("accepting a connection failed {} times: raise the descriptor limit", met.accept_failures));
    }
    if met.store_failures > 0 {
        all.push(format!("{} messages were not stored: {}", met.store_failures, shown(met.store_failure.as_ref())));
    }
    if stats.violations > 0 {
        all.push(format!("clients violated the protocol {} times", stats.violations));
    }
    all
}

fn shown(text: Option<&String>) -> &str {
    text.map_or("unknown", String::as_str)
}
