//! Each kind of chart with ordinary and with extreme values.

use super::*;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn series(name: &str, values: &[f64]) -> Series {
    Series { name: name.to_owned(), values: values.to_vec() }
}

fn chart(name: &str, title: &str, kind: Kind) -> Chart {
    Chart { name: name.to_owned(), title: title.to_owned(), kind }
}

fn span(label: &str, group: &str, depth: u32, start: f64, end: f64) -> Span {
    Span { label: label.to_owned(), group: group.to_owned(), depth, start, end }
}

fn shares() -> Chart {
    let groups = names(&["ext4, 4 KiB", "xfs, 4 KiB", "btrfs, 4 KiB", "ext4, 1 MiB"]);
    let layers = [
        ("application", [1.0, 1.0, 1.5, 3.0]),
        ("system call, VFS", [3.0, 2.5, 3.0, 10.0]),
        ("file system", [5.0, 9.0, 20.0, 40.0]),
        ("journal", [70.0, 60.0, 0.0, 80.0]),
        ("writeback", [8.0, 6.0, 30.0, 200.0]),
        ("block layer", [4.0, 4.0, 6.0, 30.0]),
        ("device", [110.0, 100.0, 140.0, 600.0]),
    ];
    let series = layers.iter().map(|(name, values)| series(name, values)).collect();
    let kind = Kind::Stacked { unit: "time of a write".to_owned(), groups, series, is_share: true };
    chart("share", "Where a synced write spends its time", kind)
}

fn bar_examples() -> Vec<Chart> {
    let ways = ["flat, synced", "flat, no sync", "hashed, synced", "hashed, no sync"];
    let cycles = [("ext4", [2310.0, 9100.0, 2250.0, 8800.0]), ("xfs", [1800.0, 8200.0, 1750.0, 8000.0])];
    let engines = ["journal (ours)", "redb", "fjall", "SQLite (WAL, synchronous=FULL)", "LMDB"];
    let sizes = names(&["4 KiB", "8 KiB", "1 MiB"]);
    vec![
        chart(
            "bars",
            "Whole cycles of a queue file",
            Kind::Bars {
                unit: "cycles/s".to_owned(),
                groups: names(&ways),
                series: cycles.iter().map(|(name, values)| series(name, values)).collect(),
            },
        ),
        chart(
            "bars-lying",
            "Durable transactions of 10 records of 4 KiB",
            Kind::Bars {
                unit: "records/s".to_owned(),
                groups: names(&engines),
                series: vec![
                    series("insert", &[52_000.0, 9_100.0, 12_300.0, 14_000.0, 0.02]),
                    series("look-up", &[610_000.0, 402_000.0, 300_100.0, 120_000.0, f64::NAN]),
                    series("delete", &[51_000.0, 9_000.0, 11_000.0, 900.0, 7.0]),
                ],
            },
        ),
        shares(),
        chart(
            "stacked",
            "Calls per write",
            Kind::Stacked {
                unit: "microseconds".to_owned(),
                groups: sizes.clone(),
                series: vec![series("data", &[100.0, 140.0, 900.0]), series("commit", &[80.0, 80.0, 85.0])],
                is_share: false,
            },
        ),
    ]
}

fn line_examples() -> Vec<Chart> {
    let lines = [("ext4", 1.0), ("xfs", 0.8), ("btrfs", 0.4), ("tmpfs", 40.0)].map(|(name, factor)| Line {
        name: name.to_owned(),
        points: [1.0, 3.0, 10.0, 100.0, 1000.0].map(|c| (c, 9000.0 * factor * c / (1.0 + c / 40.0))).to_vec(),
    });
    vec![
        chart(
            "lines",
            "Benefit of group commit: records of 4 KiB",
            Kind::Lines {
                x_unit: "records per sync".to_owned(),
                y_unit: "records/s".to_owned(),
                log_x: true,
                log_y: true,
                lines: lines.to_vec(),
            },
        ),
        chart(
            "lines-linear",
            "Rate over time",
            Kind::Lines {
                x_unit: "s".to_owned(),
                y_unit: "msg/s".to_owned(),
                log_x: false,
                log_y: false,
                lines: vec![Line {
                    name: "accepted".to_owned(),
                    points: (0..60).map(|s| (f64::from(s), f64::from(s % 7) * 310.0)).collect(),
                }],
            },
        ),
    ]
}

fn heat_examples() -> Vec<Chart> {
    let columns: Vec<String> = (0..40).map(|second| format!("{second} s")).collect();
    let rows: Vec<String> = (0..12).rev().map(|power| format!("{} us", 16 << power)).collect();
    let field = |row: usize, at: usize| (row + at % 5 > 4).then(|| (row * 7 + at * at % 90) as f64);
    let values = (0..12).map(|row| (0..40).map(|at| field(row, at)).collect()).collect();
    vec![
        chart(
            "heat",
            "Latency of syncs",
            Kind::Heat {
                unit: "syncs".to_owned(),
                x_unit: "time".to_owned(),
                y_unit: "us".to_owned(),
                columns,
                rows,
                values,
            },
        ),
        chart(
            "heat-few",
            "Cycles/s by file system and processes",
            Kind::Heat {
                unit: "cycles/s".to_owned(),
                x_unit: "processes".to_owned(),
                y_unit: String::new(),
                columns: names(&["1", "2", "4", "8"]),
                rows: names(&["ext4", "xfs", "btrfs", "tmpfs, which is not durable"]),
                values: vec![
                    vec![Some(2300.0), Some(3100.0), Some(3900.0), None],
                    vec![Some(1800.0), Some(2100.0), Some(2500.0), Some(2600.0)],
                    vec![Some(600.0), Some(720.0), Some(900.0), Some(10.5)],
                    vec![Some(60_300.0), Some(98_000.0), Some(0.0), Some(f64::NAN)],
                ],
            },
        ),
        chart(
            "waterfall",
            "One median write of 4 KiB with fdatasync, ext4",
            Kind::Waterfall {
                unit: "microseconds".to_owned(),
                groups: names(&["system call, VFS", "writeback", "file system", "journal", "block layer", "device"]),
                spans: vec![
                    span("pwrite64", "system call, VFS", 0, 0.0, 12.0),
                    span("ext4_da_write_begin ... end", "file system", 1, 2.0, 10.0),
                    span("fdatasync", "system call, VFS", 0, 13.0, 412.0),
                    span("ext4_writepages", "writeback", 1, 15.0, 41.0),
                    span("block_rq_issue to complete (254:0 sector 81,920, 8 sectors)", "device", 2, 44.0, 190.0),
                    span("jbd2 commit", "journal", 1, 195.0, 405.0),
                    span("flush", "device", 2, 300.0, 400.0),
                ],
            },
        ),
    ]
}

fn examples() -> Vec<Chart> {
    [bar_examples(), line_examples(), heat_examples()].concat()
}

fn svg(chart: &Chart, width: u32) -> String {
    String::from_utf8(chart.render_to(width, Format::Svg).unwrap()).unwrap()
}

#[test]
fn labels_and_units_are_in_the_picture_at_any_width() {
    for (chart, wanted) in examples().iter().zip([
        &["flat, synced", "cycles/s", "ext4", "xfs", "9,100"][..],
        &["journal (ours)", "look-up", "610k", "records/s"],
        &["journal", "device", "share of time of a write in %"],
        &["microseconds", "commit", "4 KiB"],
        &["records per sync", "btrfs", "1,000"],
        &["accepted, msg/s"],
        &["16 us", "time"],
        &["60.3k", "btrfs", "processes"],
        &["fdatasync", "journal", "microseconds"],
    ]) {
        let text = svg(chart, 960);
        for label in wanted {
            assert!(text.contains(label), "{} has no {label}", chart.name);
        }
        assert!(svg(chart, 380).contains(wanted[0]), "{} narrow", chart.name);
    }
}

/// Every text with its place and how wide it is: (x from, x to, y).
fn texts(svg: &str) -> Vec<(String, i32, i32, i32)> {
    let mut found = Vec::new();
    for part in svg.split("<text ").skip(1) {
        let value = |name: &str| {
            let (_, rest) = part.split_once(&format!("{name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let text = part.split_once('>').unwrap().1.split_once("</text>").unwrap().0.trim().to_owned();
        let size: f64 = value("font-size").parse().unwrap();
        // The backend writes the size in points of a display of its own.
        let width = stentor_plot::canvas::text_width(&text, (size * 1.24).round() as i32, false);
        let x: i32 = value("x").parse().unwrap();
        let from = match value("text-anchor").as_str() {
            "start" => x,
            "middle" => x - width / 2,
            _ => x - width,
        };
        found.push((text, from, from + width, value("y").parse().unwrap()));
    }
    found
}

#[test]
fn texts_do_not_overlap_and_stay_inside() {
    for chart in examples() {
        for width in [960, 640, 380] {
            let all = texts(&svg(&chart, width));
            assert!(!all.is_empty());
            for (at, (text, from, to, y)) in all.iter().enumerate() {
                assert!(*from >= -2 && *to <= width.cast_signed() + 2, "{} {width}: {text} {from}-{to}", chart.name);
                for (other, other_from, other_to, other_y) in &all[at + 1..] {
                    let apart = to <= other_from || other_to <= from || (y - other_y).abs() >= 11;
                    assert!(apart, "{} {width}: '{text}' and '{other}'", chart.name);
                }
            }
        }
    }
}

#[test]
fn nothing_that_is_drawn_can_make_it_fail() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e-300, 1e300, f64::MAX];
    let long = "very long label ".repeat(40);
    let groups: Vec<String> = (0..odd.len()).map(|at| format!("{long}{at}")).collect();
    let many: Vec<String> = (0..5000).map(|at| at.to_string()).collect();
    let points = odd.iter().flat_map(|x| odd.iter().map(|y| (*x, *y))).collect::<Vec<_>>();
    let lines =
        || vec![Line { name: long.clone(), points: points.clone() }, Line { name: String::new(), points: Vec::new() }];
    let spans = odd.iter().flat_map(|a| odd.iter().map(|b| span(&long, &long, 77, *a, *b)));
    let spans: Vec<Span> = spans.cycle().take(900).collect();
    let all = || vec![series(&long, &odd), series("short", &[1.0])];
    let unit = || long.clone();
    let mut kinds = vec![
        Kind::Bars { unit: unit(), groups: groups.clone(), series: all() },
        Kind::Bars { unit: unit(), groups: many.clone(), series: all() },
        Kind::Bars { unit: unit(), groups: groups.clone(), series: Vec::new() },
        Kind::Bars { unit: unit(), groups: Vec::new(), series: all() },
        Kind::Heat {
            unit: unit(),
            x_unit: unit(),
            y_unit: unit(),
            columns: many.clone(),
            rows: many.clone(),
            values: vec![odd.map(Some).to_vec()],
        },
        Kind::Heat {
            unit: unit(),
            x_unit: unit(),
            y_unit: String::new(),
            columns: groups.clone(),
            rows: groups.clone(),
            values: vec![odd.map(Some).to_vec(); 9],
        },
        Kind::Heat {
            unit: unit(),
            x_unit: unit(),
            y_unit: unit(),
            columns: Vec::new(),
            rows: many.clone(),
            values: Vec::new(),
        },
        Kind::Waterfall { unit: unit(), groups: vec![long.clone(), "x".to_owned()], spans },
        Kind::Waterfall { unit: unit(), groups: vec![long.clone(), "x".to_owned()], spans: Vec::new() },
    ];
    for is_share in [false, true] {
        kinds.push(Kind::Stacked { unit: unit(), groups: groups.clone(), series: all(), is_share });
        kinds.push(Kind::Stacked { unit: unit(), groups: many.clone(), series: Vec::new(), is_share });
        for log in [false, true] {
            kinds.push(Kind::Lines { x_unit: unit(), y_unit: unit(), log_x: is_share, log_y: log, lines: lines() });
            kinds.push(Kind::Lines { x_unit: unit(), y_unit: unit(), log_x: is_share, log_y: log, lines: Vec::new() });
        }
    }
    for kind in kinds {
        let chart = chart("odd", &long, kind);
        for width in [0, 380, 960, u32::MAX] {
            assert!(chart.render_to(width, Format::Svg).is_ok(), "{chart:?}");
        }
        assert!(chart.render(Format::Png { scale: 1 }).is_ok());
    }
    let empty =
        chart("none", "Nothing measured", Kind::Bars { unit: String::new(), groups: Vec::new(), series: Vec::new() });
    assert!(svg(&empty, 960).contains("no data"));
}

/// The colour of the entry of a legend, as the picture has it: the field drawn just before its text.
fn legend_colour(svg: &str, name: &str) -> String {
    let (before, _) = svg.split_once(&format!("{name}\n")).unwrap_or_else(|| panic!("no {name}"));
    let (_, fill) = before.rsplit_once("<rect ").unwrap().1.split_once("fill=\"").unwrap();
    fill[..7].to_owned()
}

/// A layer is told by its colour in all pictures of a report, whichever layers a picture has.
#[test]
fn a_group_has_one_colour_in_bars_and_in_spans() {
    let layers = names(&["system call", "file system", "journal", "device"]);
    let bars = layers.iter().map(|layer| series(layer, &[1.0]));
    let groups = names(&["here"]);
    let bars = Kind::Stacked { unit: "%".to_owned(), groups, series: bars.collect(), is_share: true };
    let spans = vec![span("flush", "device", 1, 2.0, 9.0), span("commit", "journal", 0, 0.0, 10.0)];
    let spans = Kind::Waterfall { unit: "us".to_owned(), groups: layers, spans };
    let (bars, spans) = (svg(&chart("a", "a", bars), 960), svg(&chart("b", "b", spans), 960));
    for layer in ["journal", "device"] {
        assert_eq!(legend_colour(&bars, layer), legend_colour(&spans, layer));
    }
    assert!(!spans.contains("file system"), "a legend has what the picture has");
}

#[test]
fn columns_of_a_heat_map_have_their_whole_names_and_units_are_said() {
    let columns: Vec<String> = (0..12).map(|at| format!("btrfs on loop{at}, {}\u{a0}KiB", 4 << (at % 3))).collect();
    let kind = Kind::Heat {
        unit: "calls".to_owned(),
        x_unit: String::new(),
        y_unit: "us".to_owned(),
        columns,
        rows: names(&["flush", "write"]),
        values: vec![vec![Some(2.0); 12], vec![None; 12]],
    };
    let text = svg(&chart("h", "Calls", kind), 960);
    for wanted in ["loop11,", "16\u{a0}KiB", "2 calls", "us"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains('…'), "{text}");
}

/// `STENTOR_CHARTS=DIR cargo test -p stentor-measure charts_to_look_at` writes the examples for the eye.
#[test]
fn charts_to_look_at() {
    let Some(folder) = std::env::var_os("STENTOR_CHARTS") else { return };
    for chart in examples() {
        for width in [960, 380] {
            let path = std::path::Path::new(&folder).join(format!("{}-{width}.png", chart.name));
            std::fs::write(path, chart.render_to(width, Format::Png { scale: 1 }).unwrap()).unwrap();
        }
    }
}
