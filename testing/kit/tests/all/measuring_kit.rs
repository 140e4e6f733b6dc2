//! Common promises of all measuring commands: a table that names the machine, JSON and CSV with the same figures,
//! charts, repeated runs; no result lost to a bad folder, no failure because a reader stopped early, and nothing left
//! behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, pipe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_harness::{stentor_kit, tracefs, wait_until};
use tempfile::TempDir;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// `stentor-kit lab sink`, for those that send.
struct Sink(Child, String);

impl Sink {
    fn start() -> Sink {
        let mut command = Command::new(stentor_kit());
        command.args(["lab", "sink", "127.0.0.1:0", "--record", "counters"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Sink(child, address)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the kit: how it is called for a moment's work.
struct Kit {
    name: &'static str,
    words: Vec<String>,
    /// It measures the directory, and says what that is on.
    has_place: bool,
}

/// All that can run here, on this directory and against this sink: for a moment, or (with `--runs 1000`) far too long.
fn kit(directory: &Path, sink: &str, is_long: bool) -> Vec<Kit> {
    let (files, records, mib, count) = if is_long { (5000, 5000, 64, 1000) } else { (4, 20, 1, 3) };
    let directory = directory.to_str().expect("a plain path");
    let kit = |line: String, has_place| {
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        let name = ["source", "hold", "limit", "compare", "fs", "log", "kv", "raw", "ipc", "suite", "iotrace"];
        let name = name.into_iter().find(|name| words.iter().take(2).any(|word| word == name)).expect("one of them");
        Kit { name, words, has_place }
    };
    let given = format!("name=given,target={sink},queue={directory}");
    let mut all = vec![
        kit(format!("lab source {sink} --messages 20 --connections 2"), false),
        kit(format!("lab hold {sink} --connections 3 --messages 4"), false),
        kit(format!("lab limit --seconds 0.02 --connections 2 --queue {directory}"), true),
        kit(format!("lab compare --contestant {given} --no-delivery --messages 20 --connections 2"), false),
        kit(format!("probe fs {directory} --files {files} --sync both --seconds 60"), true),
        kit(
            format!(
                "probe log {directory} --record-bytes 512 --per-sync 10 --records {records} --writers 2 --seconds 60"
            ),
            true,
        ),
        kit(
            format!("probe kv {directory} --records {records} --per-transaction 10 --engines journal --seconds 60"),
            true,
        ),
        kit(format!("probe raw {directory} --block-bytes 64K --mode write,read --file-mib {mib} --seconds 60"), true),
        kit("probe ipc --transport unix --bytes 32 --seconds 0.02".to_owned(), false),
    ];
    if tracefs().is_some() {
        all.push(kit(format!("iotrace {directory} --size 4K --count {count}"), true));
    }
    all
}

impl Kit {
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(stentor_kit());
        command.args(&self.words).args(more).stdin(Stdio::null());
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().expect("it runs")
    }

    /// Of its files.
    fn report_name(&self) -> String {
        if self.words[0] == self.name { self.name.to_owned() } else { format!("{}-{}", self.words[0], self.name) }
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

#[track_caller]
fn is_empty(path: &Path, who: &str) {
    let left: Vec<_> = fs::read_dir(path).expect("it can be read").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{who} left {left:?}");
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Whether any figure is of so many runs.
fn has_runs(value: &Value, runs: u64) -> bool {
    match value {
        Value::Object(map) => {
            map.get("median").is_some() && map["runs"] == runs || map.values().any(|value| has_runs(value, runs))
        }
        Value::Array(all) => all.iter().any(|value| has_runs(value, runs)),
        _ => false,
    }
}

/// The cells of a line of CSV without line ends in its cells.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            _ => cells.last_mut().expect("one at least").push(c),
        }
    }
    assert!(!is_quoted, "a quote is open: {line}");
    cells
}

/// Each table of the JSON is a CSV file with as many rows and the same columns, and stands in docs/kit/measuring.md.
#[track_caller]
fn same_figures(report: &Value, out: &Path, name: &str) {
    let tables = report["tables"].as_object().expect("tables");
    assert!(!tables.is_empty(), "{name}");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kit/measuring.md"))
        .expect("the page");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).expect("it is in the page");
    for (table, rows) in tables {
        assert!(
            row.contains(&format!("`{table}`")),
            "{name} has a table {table} that docs/kit/measuring.md does not name"
        );
        let path = out.join(format!("{name}-{table}.csv"));
        let csv = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut lines = csv.lines();
        let head = cells(lines.next().expect("a head"));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(head.iter().all(|column| column.chars().all(plain)), "{}: {head:?}", path.display());
        assert_eq!(head.iter().collect::<BTreeSet<_>>().len(), head.len(), "{}: a name twice", path.display());
        let rows = rows.as_array().expect("rows");
        assert_eq!(lines.clone().count(), rows.len(), "{}", path.display());
        for (line, row) in lines.zip(rows) {
            assert_eq!(cells(line).len(), head.len(), "{}: {line}", path.display());
            for column in row.as_object().expect("an object").keys() {
                assert!(head.contains(column), "{}: no {column}", path.display());
            }
        }
    }
}

fn pictures(out: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(out).expect("it is there").flatten().map(|entry| entry.path());
    all.filter(|path| path.extension().is_some_and(|of_it| of_it == ending)).collect()
}

#[test]
fn each_prints_writes_and_draws_what_it_measured_and_where() {
    let (sink, directory) = (Sink::start(), folder());
    for one in kit(directory.path(), &sink.1, false) {
        let (name, out) = (one.report_name(), folder());
        let to = out.path().to_str().expect("a plain path");
        let output = one.run(&["--runs", "2", "--out", to, "--plot"]);
        let (shown, progress) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{name}: {progress}");
        assert!(!shown.contains('\x1b') && !progress.contains('\x1b'), "{name}: colours in a pipe");
        assert!(progress.contains("written: ") && progress.lines().count() > 1, "{name}: no progress: {progress}");
        let json = fs::read(out.path().join(format!("{name}.json"))).unwrap_or_else(|_| panic!("{name}.json"));
        let report: Value = serde_json::from_slice(&json).expect("JSON");
        for key in ["format", "version", "command", "began_at", "notes", "warnings"] {
            assert!(!report[key].is_null(), "{name}: no {key}");
        }
        let kernel = report["machine"]["kernel"].as_str().expect("a kernel");
        assert!(
            shown.contains(kernel) && shown.contains(report["began_at"].as_str().unwrap_or("?")),
            "{name}: {shown}"
        );
        if one.has_place {
            let place = &report["places"][0];
            for key in ["file_system", "mount_options"] {
                assert!(shown.contains(place[key].as_str().expect("text")), "{name}: no {key}: {shown}");
            }
            assert!(
                place["device"].is_null() || shown.contains(place["device"]["name"].as_str().unwrap_or("?")),
                "{shown}"
            );
        }
        assert_eq!(report["parameters"]["runs"], "2", "{name}");
        assert!(has_runs(&report, 2), "{name}: no figure is of two runs");
        same_figures(&report, out.path(), &name);
        let drawn = pictures(out.path(), "svg");
        assert!(!drawn.is_empty(), "{name}: no picture");
        for picture in drawn {
            let svg = fs::read_to_string(&picture).expect("text");
            assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"), "{}", picture.display());
        }
        is_empty(directory.path(), &name);
    }
}

#[test]
fn each_gives_json_and_png_too_and_is_quiet_when_told() {
    let (sink, directory) = (Sink::start(), folder());
    for one in kit(directory.path(), &sink.1, false) {
        let (name, out) = (one.report_name(), folder());
        let to = out.path().to_str().expect("a plain path");
        let output = one.run(&["--runs", "1", "--out", to, "--plot", "png", "--json", "--quiet"]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{name}");
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!has_runs(&printed, 2), "{name}: a single run is not repeated");
        let written: Value =
            serde_json::from_slice(&fs::read(out.path().join(format!("{name}.json"))).expect("it is there")).unwrap();
        assert_eq!(printed, written, "{name}");
        let drawn = pictures(out.path(), "png");
        assert!(!drawn.is_empty() && drawn.iter().all(|path| fs::read(path).unwrap().starts_with(PNG)), "{name}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure_and_a_folder_that_cannot_be_made_is_told_before_the_work() {
    let (sink, directory, out) = (Sink::start(), folder(), folder());
    let file = out.path().join("file");
    fs::write(&file, "").expect("it can be written");
    for one in kit(directory.path(), &sink.1, false) {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let mut command = one.command(&["--runs", "1", "--quiet"]);
        let output = command.stdout(writer).stderr(Stdio::piped()).spawn().and_then(Child::wait_with_output);
        let output = output.expect("it runs");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{}", one.name);
        let output = one.run(&["--out", file.to_str().expect("a plain path")]);
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}: {why}", one.name);
        assert!(output.stdout.is_empty() && why.lines().count() == 1 && why.contains("file"), "{}: {why}", one.name);
        is_empty(directory.path(), one.name);
    }
}

#[test]
fn each_ends_with_130_when_interrupted_and_leaves_nothing() {
    let (sink, directory) = (Sink::start(), folder());
    for one in kit(directory.path(), &sink.1, true) {
        // A load that is cut short is reported as such.
        if ["source", "hold"].contains(&one.name) {
            continue;
        }
        let mut child =
            one.command(&["--runs", "1000"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut progress = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        progress.read_line(&mut line).expect("it says that it works");
        kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
        wait_until("it ends", || child.try_wait().expect("it can be asked").is_some());
        let output = child.wait_with_output().expect("it has ended");
        assert_eq!(output.status.code(), Some(130), "{} after {line:?}", one.name);
        assert!(output.stdout.is_empty(), "{}: nothing is reported as a result", one.name);
        is_empty(directory.path(), one.name);
    }
}
