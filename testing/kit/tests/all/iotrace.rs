//! `stentor-kit iotrace` on real file systems: each nanosecond of an operation is attributed to one layer, little of it
//! to none, no event is lost, and nothing stays enabled.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stentor_harness::{Kind, LoopFs, stentor_kit, tracefs};

/// The layers' sum may differ so much from the time that the generator measured itself.
const SUM_WITHIN_PERCENT: f64 = 5.0;
/// A quiet machine has less than a tenth of it.
const UNATTRIBUTED_PERCENT_MAX: f64 = 20.0;

fn iotrace(words: &[&str]) -> Output {
    Command::new(stentor_kit()).args(["iotrace"]).args(words).output().expect("the binary runs")
}

/// Runs it to its end, up to three times: who has the processor between two probes is seen by none, and a reader that
/// has none is late.
#[track_caller]
fn traced(instances: &Path, words: &[&str]) -> Value {
    let is_quiet = |report: &Value| {
        let mut operations = rows(report, "operations").iter();
        operations.all(|row| row["lost"] == 0 && figure(row, "unattributed_percent") <= UNATTRIBUTED_PERCENT_MAX)
    };
    let report = traced_once(instances, words);
    if is_quiet(&report) {
        return report;
    }
    let again = traced_once(instances, words);
    if is_quiet(&again) { again } else { traced_once(instances, words) }
}

/// Its report, and none of its instances is left.
#[track_caller]
fn traced_once(instances: &Path, words: &[&str]) -> Value {
    let mut command = Command::new(stentor_kit());
    command.args(["iotrace", "--json", "--quiet"]).args(words);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let child = child.expect("the binary runs");
    let pid = child.id().to_string();
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> =
        fs::read_dir(instances).expect("it can be read").flatten().map(|entry| entry.file_name()).collect();
    let ours = left.iter().find(|name| name.to_string_lossy().split(['-', '.', '_']).any(|part| part == pid));
    assert!(ours.is_none(), "left switched on: {ours:?}");
    serde_json::from_slice(&output.stdout).expect("JSON is printed")
}

fn rows<'a>(report: &'a Value, table: &str) -> &'a [Value] {
    report["tables"][table].as_array().unwrap_or_else(|| panic!("no table {table}"))
}

fn figure(row: &Value, name: &str) -> f64 {
    row[name]["median"].as_f64().or(row[name].as_f64()).unwrap_or_else(|| panic!("{name} of {row}"))
}

fn steps(report: &Value) -> BTreeSet<&str> {
    rows(report, "every-step").iter().filter_map(|row| row["step"].as_str()).collect()
}

/// What holds for every traced operation, on whatever file system.
#[track_caller]
fn is_explained(report: &Value, works: usize, has_file_system: bool) {
    let operations = rows(report, "operations");
    assert_eq!(operations.len(), works);
    for row in operations {
        assert_eq!(row["lost"], 0, "{row}");
        let (sum, unknown) = (figure(row, "sum_percent"), figure(row, "unattributed_percent"));
        assert!((sum - 100.0).abs() <= SUM_WITHIN_PERCENT, "{row}");
        assert!(unknown <= UNATTRIBUTED_PERCENT_MAX, "{row}");
    }
    for row in rows(report, "layers-us") {
        let all = ["application", "system_call", "page_cache", "file_system", "journal", "block_layer", "device"];
        let rest = ["scheduler", "interrupt", "unattributed"];
        let sum: f64 = all.iter().chain(&rest).map(|layer| figure(row, layer)).sum();
        assert!((sum - figure(row, "sum")).abs() <= 0.001 * sum + 0.001, "{row}");
        assert!(figure(row, "device") > 0.0, "{row}");
        assert_eq!(figure(row, "file_system") > 0.0, has_file_system, "{row}");
    }
    for row in rows(report, "interference") {
        assert!(figure(row, "generator_percent") > 0.0, "{row}");
        assert!(figure(row, "interference_percent") <= 100.0, "{row}");
    }
}

/// Requests of a kind an operation, and what all of them took on the device together.
#[track_caller]
fn requests(report: &Value, kind: &str) -> (f64, f64) {
    let found = rows(report, "requests").iter().find(|row| row["request"] == kind);
    let row = found.unwrap_or_else(|| panic!("no {kind} in {:?}", rows(report, "requests")));
    (figure(row, "requests_per_operation"), figure(row, "device_total_ms"))
}

/// Tables that are made in different ways say the same.
#[track_caller]
fn is_consistent(report: &Value) {
    // One that was under way before an operation began is waited for and not counted.
    if let Some(flushes) = rows(report, "every-step").iter().find(|row| row["step"] == "flush") {
        let (count, _) = requests(report, "flush");
        assert!(figure(flushes, "calls_per_operation") <= count + 0.5, "{flushes} of {count}");
    }
    let (count, total) = requests(report, "write");
    assert!(count >= 1.0 && total > 0.0, "{count} writes, {total} ms");
    let events: f64 = rows(report, "events").iter().map(|row| figure(row, "events_per_run")).sum();
    let all: f64 = rows(report, "operations").iter().map(|row| figure(row, "events")).sum();
    assert!((events - all).abs() < 0.5, "{events} events by kind, {all} in all");
}

fn on(kind: Kind, expected: &[&str]) {
    let Some(instances) = tracefs() else { return };
    let Some(fs) = LoopFs::make(kind) else { return };
    let place = fs.path().to_str().expect("a plain path");
    let words =
        [place, "--size", "4K,1M", "--count", "10", "--runs", "1", "--sync", "fdatasync", "--buffer-kib", "16384"];
    let report = traced(&instances, &words);
    is_explained(&report, 2, true);
    is_consistent(&report);
    let steps = steps(&report);
    for step in expected {
        assert!(steps.contains(step), "{step} of {steps:?}");
    }
    let left: Vec<_> = fs::read_dir(fs.path()).expect("it can be read").flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("stentor-probe")), "{left:?}");
}

#[test]
fn a_write_and_sync_on_ext4_is_explained_down_to_the_device() {
    on(Kind::Ext4, &["pwrite64", "fdatasync", "sync the file", "commit", "commit: write the log", "write", "flush"]);
}

#[test]
fn a_write_and_sync_on_xfs_is_explained_down_to_the_device() {
    on(Kind::Xfs, &["pwrite64", "fdatasync", "sync the file", "force the log", "write"]);
}

#[test]
fn a_write_and_sync_on_btrfs_is_explained_down_to_the_device() {
    on(Kind::Btrfs, &["pwrite64", "fdatasync", "sync the file", "log the file", "write", "flush"]);
}

/// Without knowing who waits, the device is told from the rest all the same; past the page cache nothing is the
/// cache's.
#[test]
fn the_least_scope_has_the_device_and_direct_io_no_page_cache() {
    let Some(instances) = tracefs() else { return };
    let Some(fs) = LoopFs::make(Kind::Ext4) else { return };
    let place = fs.path().to_str().expect("a plain path");
    let words = [place, "--size", "4K", "--count", "10", "--runs", "1"];
    let report = traced(&instances, &[&words[..], &["--scope", "device"]].concat());
    is_explained(&report, 1, false);
    assert!(requests(&report, "flush").0 >= 1.0);
    let direct = ["--path", "direct", "--sync", "none", "--file", "recycled"];
    let report = traced(&instances, &[&words[..], &direct[..]].concat());
    let copied = rows(&report, "every-step").iter().find(|row| row["step"] == "get the page and copy");
    assert!(copied.is_none(), "{copied:?}");
    assert!(requests(&report, "write").0 >= 1.0);
}

#[test]
fn a_program_is_explained_call_by_call_and_drawn() {
    let Some(instances) = tracefs() else { return };
    let Some(fs) = LoopFs::make(Kind::Ext4) else { return };
    let place = fs.path().to_str().expect("a plain path");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let out = folder.path().to_str().expect("a plain path");
    let file = format!("of={place}/file");
    let program = ["dd", "if=/dev/zero", &file, "bs=4096", "count=8", "oflag=sync", "conv=fsync", "status=none"];
    let words = [place, "--runs", "1", "--out", out, "--plot", "svg", "--command", "--"];
    let report = traced(&instances, &[&words[..], &program[..]].concat());
    let calls: BTreeSet<&str> = rows(&report, "operations").iter().filter_map(|row| row["work"].as_str()).collect();
    // Also those that took no time to speak of.
    assert!(["openat", "write", "fsync", "close"].iter().all(|call| calls.contains(call)), "{calls:?}");
    let interference: Vec<_> = report["warnings"].as_array().expect("an array").iter().collect();
    assert!(interference.len() <= 1, "one of the trace, not of each call: {interference:?}");
    for row in rows(&report, "operations") {
        assert_eq!(row["lost"], 0, "{row}");
        assert!((figure(row, "sum_percent") - 100.0).abs() <= SUM_WITHIN_PERCENT, "{row}");
    }
    // With O_SYNC each write waits for the device.
    let write = rows(&report, "layers-us").iter().find(|row| row["work"] == "write").expect("a row");
    assert!(figure(write, "device") > 0.0, "{write}");
    for name in ["layers", "calls", "interference", "waterfall-1", "heat-1"] {
        let path = folder.path().join(format!("iotrace-{name}.svg"));
        assert!(fs::read_to_string(&path).is_ok_and(|text| text.contains("<svg")), "{}", path.display());
    }
    assert!(folder.path().join("iotrace-steps.csv").exists());
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let output = iotrace(&["/nowhere/at/all", "--quiet"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/nowhere/at/all"), "{said}");
}
