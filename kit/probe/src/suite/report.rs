//! Tables and charts over all places.

use stentor_measure::chart::{Chart, Kind, Line, Series};
use stentor_measure::{Cell, Column, Report, Spread, Table};

use super::caveats::caveats;
use super::figures::Figures;
use super::{PlaceMeasurement, Suite, SuiteArgs};

pub fn begin(args: &SuiteArgs) -> Report {
    let mut report = Report::new("probe-suite", "File systems and settings for a mail queue, side by side");
    report.parameter("runs", args.output.runs);
    report.parameter("selection", if args.thorough { "thorough" } else { "short" });
    if args.on_loop {
        report.parameter("loop_mib", args.loop_mib);
    }
    if let Some(limit) = args.throttle {
        report.parameter("throttle_writes_per_s", limit);
    }
    report
}

pub fn fill(report: &mut Report, suite: &Suite) {
    report.places = suite.places.iter().map(|measured| measured.place.clone()).collect();
    report.tables.push(log_table(&suite.figures));
    report.tables.push(files_table(&suite.figures));
    report.tables.push(engines_table(&suite.figures));
    report.charts = charts(suite);
    let busy = crate::trouble::busy(&report.machine);
    report.notes = suite.failures.iter().map(|why| format!("Not measured: {why}")).collect();
    report.notes.extend(caveats(&suite.figures, suite.on_loop, busy.is_some()));
    report.warnings.extend(busy);
    report.warnings.extend(own_warnings(suite));
}

/// Of the parts, with their place; those of too few operations together.
fn own_warnings(suite: &Suite) -> Vec<String> {
    let (mut said, mut few) = (Vec::new(), Vec::new());
    for measured in &suite.places {
        for part in measured.parts.all() {
            for text in &part.warnings {
                let name = format!("{} ({})", measured.name, part.name);
                if !text.contains("fewer than") {
                    said.push(format!("{name}: {text}"));
                } else if !few.contains(&name) {
                    few.push(name);
                }
            }
        }
    }
    if !few.is_empty() {
        let all = few.join(", ");
        said.push(format!("few operations in a run, so percentiles mean little: {all}. Use --thorough."));
    }
    said
}

/// All tables of all parts under names of their own: what is written besides.
pub fn details(suite: &Suite) -> Vec<(&PlaceMeasurement, &Report)> {
    suite.places.iter().flat_map(|measured| measured.parts.all().map(move |part| (measured, part))).collect()
}

fn cell(spread: Option<Spread>, decimals: u8) -> Cell {
    spread.map_or(Cell::Missing, |spread| Cell::Spread(spread, decimals))
}

type FigureGetter = fn(&Figures) -> Option<Spread>;
type Figure = (&'static str, &'static str, FigureGetter, u8);

fn by_place(name: &str, title: &str, all: &[Figures], columns: &[Figure]) -> Table {
    let mut heads = vec![Column::new("place", "place"), Column::new("is_durable", "durable")];
    heads.extend(columns.iter().map(|(name, title, ..)| Column::new(*name, *title)));
    let mut table = Table::new(name, title, heads);
    for figures in all {
        let durable = if figures.is_durable { "yes" } else { "no: upper bound" };
        let mut row = vec![Cell::text(&figures.name), Cell::text(durable)];
        row.extend(columns.iter().map(|(_, _, of, decimals)| cell(of(figures), *decimals)));
        table.push(row);
    }
    table
}

fn log_table(all: &[Figures]) -> Table {
    by_place(
        "log",
        "One log: records of 4 KiB made durable, per second",
        all,
        &[
            ("growing_per_s", "growing file, sync each", |f| f.growing, 0),
            ("recycled_per_s", "recycled, sync each", |f| f.recycled, 0),
            ("journal_per_s", "Stentor's journal, sync each", |f| f.journal, 0),
            ("journal_100_per_s", "journal, 100 a sync", |f| f.journal_many, 0),
            ("alone_20_per_s", "20 writers alone", |f| f.alone, 0),
            ("grouped_20_per_s", "20 writers grouped", |f| f.grouped, 0),
            ("alone_writes_per_record", "device writes/record alone", |f| f.alone_writes, 2),
            ("grouped_writes_per_record", "grouped", |f| f.grouped_writes, 2),
            ("sync_p50_us", "sync p50 us", |f| f.sync_p50_us, 0),
            ("sync_p99_us", "p99 us", |f| f.sync_p99_us, 0),
            ("growing_writes_per_commit", "device writes growing", |f| f.growing_writes, 1),
            ("recycled_writes_per_commit", "recycled", |f| f.recycled_writes, 1),
        ],
    )
}

fn files_table(all: &[Figures]) -> Table {
    by_place(
        "files",
        "A file a message: create, write, (sync), rename twice, remove; cycles per second; and raw throughput",
        all,
        &[
            ("unsynced_per_s", "nothing synced", |f| f.files_unsynced, 0),
            ("file_per_s", "file synced", |f| f.files_file, 0),
            ("both_per_s", "file and directory", |f| f.files, 0),
            ("reused_per_s", "reused files", |f| f.files_reused, 0),
            ("hashed_per_s", "hashed", |f| f.files_hashed, 0),
            ("processes_20_per_s", "20 processes", |f| f.files_many, 0),
            ("device_writes_per_file", "device writes/file", |f| f.file_writes, 1),
            ("write_sync_mib_per_s", "write and sync MiB/s", |f| f.write_sync_mib, 0),
            ("read_mib_per_s", "read MiB/s", |f| f.read_mib, 0),
        ],
    )
}

fn engines_table(all: &[Figures]) -> Table {
    let mut table = Table::new(
        "engines",
        "Durable inserts of 4 KiB per second, by engine",
        vec![
            Column::new("place", "place"),
            Column::new("engine", "engine"),
            Column::new("single_per_s", "one a transaction"),
            Column::new("hundred_per_s", "100 a transaction"),
        ],
    );
    for figures in all {
        for (engine, one, many) in &figures.engines {
            table.push(vec![Cell::text(&figures.name), Cell::text(engine), cell(*one, 0), cell(*many, 0)]);
        }
    }
    table
}

fn middle(spread: Option<Spread>) -> f64 {
    spread.map_or(f64::NAN, |spread| spread.median)
}

/// What is in memory would make all others' bars too short to see; it is in the tables, and in lines on logarithmic
/// axes.
fn charts(suite: &Suite) -> Vec<Chart> {
    let durable: Vec<&Figures> = suite.figures.iter().filter(|figures| figures.is_durable).collect();
    let shown = if durable.is_empty() { suite.figures.iter().collect() } else { durable };
    let groups: Vec<String> = shown.iter().map(|figures| figures.name.clone()).collect();
    let bars = |name: &str, title: &str, unit: &str, series: &[(&str, FigureGetter)]| {
        let series = series.iter().map(|(name, of)| Series {
            name: (*name).to_owned(),
            values: shown.iter().map(|figures| middle(of(figures))).collect(),
        });
        let kind = Kind::Bars { unit: unit.to_owned(), groups: groups.clone(), series: series.collect() };
        Chart { name: name.to_owned(), title: title.to_owned(), kind }
    };
    let mut charts = vec![
        bars(
            "log",
            "One log: records of 4 KiB, a sync each",
            "records/s",
            &[("growing file", |f| f.growing), ("recycled file", |f| f.recycled), ("Stentor's journal", |f| f.journal)],
        ),
        bars(
            "files",
            "A file a message, synced",
            "cycles/s",
            &[
                ("file synced", |f| f.files_file),
                ("file and directory", |f| f.files),
                ("reused files", |f| f.files_reused),
                ("hashed directories", |f| f.files_hashed),
                ("20 processes", |f| f.files_many),
            ],
        ),
        bars(
            "writes",
            "Device writes",
            "writes",
            &[
                ("a commit to a growing file", |f| f.growing_writes),
                ("a commit to a recycled file", |f| f.recycled_writes),
                ("a queue file's life", |f| f.file_writes),
            ],
        ),
        engine_bars(&shown, &groups),
    ];
    charts.insert(1, group_lines(&suite.places));
    charts.extend(ipc(suite));
    charts
}

/// Records/s over the records of a sync, all places.
fn group_lines(places: &[PlaceMeasurement]) -> Chart {
    let mut lines = Vec::new();
    for measured in places {
        let cost = measured.parts.journal.as_ref().and_then(|log| log.tables.iter().find(|table| table.name == "cost"));
        let point = |lot: &str| {
            let keys = [("per_sync", lot), ("record_bytes", "4096"), ("way", "journal")];
            let rate = cost?.figure(&keys, "syncs_per_s")?.median;
            let records: f64 = lot.parse().ok()?;
            Some((records, rate * records))
        };
        let points = ["1", "10", "100"].into_iter().filter_map(point).collect();
        lines.push(Line { name: measured.name.clone(), points });
    }
    Chart {
        name: "group".to_owned(),
        title: "Benefit of group commit: Stentor's journal".to_owned(),
        kind: Kind::Lines {
            x_unit: "records of 4 KiB a sync".to_owned(),
            y_unit: "records/s".to_owned(),
            log_x: true,
            log_y: true,
            lines,
        },
    }
}

fn engine_bars(shown: &[&Figures], groups: &[String]) -> Chart {
    let engines = shown.first().map(|figures| figures.engines.as_slice()).unwrap_or_default();
    let series = engines.iter().map(|(engine, ..)| Series {
        name: engine.clone(),
        values: shown
            .iter()
            .map(|figures| {
                let own = figures.engines.iter().find(|(name, ..)| name == engine);
                own.map_or(f64::NAN, |(_, one, _)| middle(*one))
            })
            .collect(),
    });
    Chart {
        name: "engines".to_owned(),
        title: "Durable inserts of 4 KiB, one a transaction".to_owned(),
        kind: Kind::Bars { unit: "records/s".to_owned(), groups: groups.to_vec(), series: series.collect() },
    }
}

fn ipc(suite: &Suite) -> Option<Chart> {
    let table = suite.ipc.as_ref()?.tables.iter().find(|table| table.name == "round-trips")?;
    let line = |transport: &str| {
        let point = |bytes: &str| {
            let rate = table.figure(&[("bytes", bytes), ("transport", transport)], "round_trips_per_s")?;
            Some((bytes.parse().ok()?, rate.median))
        };
        let points = ["32", "512", "4096", "16384", "65536"].into_iter().filter_map(point).collect();
        Line { name: transport.to_owned(), points }
    };
    Some(Chart {
        name: "ipc".to_owned(),
        title: "Request and answer between processes".to_owned(),
        kind: Kind::Lines {
            x_unit: "octets each way".to_owned(),
            y_unit: "round trips/s".to_owned(),
            log_x: true,
            log_y: true,
            lines: ["tcp", "unix", "pipe"].map(line).to_vec(),
        },
    })
}
