//! `stentor-kit probe log`, `raw` and `ipc`: every requested row is in the JSON, records are where they are said to be,
//! nothing is left behind after the end, a signal or a full disk, and bad options are refused with what to do.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_harness::{Kind, LoopFs, skipped, stentor_kit, wait_until};
use tempfile::TempDir;

fn probe(words: &[&str]) -> Command {
    let mut command = Command::new(stentor_kit());
    command.arg("probe").args(words).arg("--quiet");
    command
}

fn run(words: &[&str]) -> Output {
    probe(words).output().expect("the binary runs")
}

#[track_caller]
fn json(words: &[&str]) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let output = run(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON is printed")
}

#[track_caller]
fn refused(words: &[&str]) -> String {
    let output = run(words);
    assert!(!output.status.success(), "{words:?} is taken");
    assert!(output.stdout.is_empty(), "nothing is printed as a result");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn folder() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().to_str().expect("a plain path").to_owned();
    (folder, path)
}

#[track_caller]
fn is_empty(path: &Path) {
    let left: Vec<_> = fs::read_dir(path).expect("it can be read").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// A figure's median.
#[track_caller]
fn median(row: &Value, name: &str) -> f64 {
    let cell = &row[name];
    cell["median"].as_f64().or(cell.as_f64()).unwrap_or_else(|| panic!("{name} in {row}"))
}

fn rows<'a>(report: &'a Value, table: &str) -> &'a Vec<Value> {
    report["tables"][table].as_array().unwrap_or_else(|| panic!("no table {table} in {report}"))
}

#[test]
fn every_line_that_was_asked_for_is_measured_and_its_records_are_there() {
    let (folder, path) = folder();
    let out = tempfile::tempdir().unwrap();
    let ways = "write,pwrite,gathered,dsync,direct,direct-dsync,uring,uring-dsync,journal";
    let mut words = vec!["log", &path, "--record-bytes", "512,4K", "--per-sync", "1,10", "--file", "growing,recycled"];
    words.extend([
        "--way",
        ways,
        "--sync",
        "fdatasync,fsync",
        "--writers",
        "1,3",
        "--records",
        "30",
        "--seconds",
        "60",
    ]);
    // --verify reads the records back and fails where one that was acknowledged is missing.
    words.extend(["--file-mib", "1", "--runs", "1", "--verify", "--out", out.path().to_str().unwrap(), "--plot"]);
    let report = json(&words);
    is_empty(folder.path());

    let log = rows(&report, "log");
    for way in ways.split(',') {
        let of_way: Vec<&Value> = log.iter().filter(|row| row["way"] == way).collect();
        let (files, syncs) = match way {
            "journal" => (1, 1),
            "dsync" | "direct-dsync" | "uring-dsync" => (2, 1),
            _ => (2, 2),
        };
        assert_eq!(of_way.len(), 4 * files * syncs, "{way}");
        for row in of_way {
            if row["records"].is_null() {
                let remark = row["remark"].as_str().unwrap();
                assert!(remark.contains("O_DIRECT") || remark.contains("io_uring"), "{row}");
                continue;
            }
            assert_eq!(median(row, "records") as u64, 30, "{row}");
            assert!(
                median(row, "kib_per_s") > 0.0 && median(row, "sync_p99_us") >= median(row, "sync_p50_us"),
                "{row}"
            );
        }
    }
    // A record of each way at least was written: these are everywhere.
    let measured = |way: &str| log.iter().any(|row| row["way"] == way && row["records"] == 30.0);
    assert!(["write", "pwrite", "gathered", "dsync", "journal"].into_iter().all(measured));
    let group = rows(&report, "group");
    assert_eq!(group.iter().filter(|row| row["way"] == "pwrite").count(), 2 * 2 * 2);
    for row in group.iter().filter(|row| row["way"] == "pwrite") {
        let most = row["writers"].as_f64().unwrap();
        assert!((1.0..=most).contains(&median(row, "records_per_commit")), "{row}");
        assert!(median(row, "gain") > 0.0);
    }
    let named = |ending: &str| out.path().join(format!("probe-log{ending}"));
    for ending in [".json", "-log.csv", "-cost.csv", "-group.csv", "-rate.svg", "-sync.svg", "-group.svg"] {
        assert!(named(ending).metadata().is_ok_and(|data| data.len() > 0), "{ending}");
    }
    let written: Value = serde_json::from_slice(&fs::read(named(".json")).unwrap()).unwrap();
    assert_eq!(written["tables"], report["tables"]);
    assert_eq!(fs::read_to_string(named("-log.csv")).unwrap().lines().count(), log.len() + 1);
    assert_eq!(report["places"][0]["directory"], folder.path().canonicalize().unwrap().to_str().unwrap());
}

#[test]
fn the_table_is_readable_and_says_what_was_timed() {
    let (folder, path) = folder();
    let output = run(&["log", &path, "--per-sync", "1,5", "--records", "10", "--runs", "2", "--writers", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for word in ["sync mean us", "KB/s", "file growing", "Benefit of group commit", "Timed: sync ="] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    is_empty(folder.path());
}

/// Waits until the scratch folder has files, so that there is something to clean up.
fn started(words: &[&str], path: &Path) -> Child {
    let mut child = probe(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    wait_until("it is at work", || {
        if let Ok(Some(status)) = child.try_wait() {
            panic!("it ended at once: {status}");
        }
        let folders = fs::read_dir(path).into_iter().flatten().flatten();
        let is_probe = |name: &str| name.starts_with("stentor-probe-");
        let mut ours = folders.filter(|entry| entry.file_name().to_str().is_some_and(is_probe));
        ours.any(|entry| fs::read_dir(entry.path()).into_iter().flatten().count() > 0)
    });
    child
}

#[test]
fn a_signal_ends_it_and_removes_what_was_made() {
    for (command, signal) in [("log", Signal::INT), ("log", Signal::TERM), ("raw", Signal::INT)] {
        let (folder, path) = folder();
        let mut words = vec![command, &path, "--seconds", "3000", "--file-mib", "64"];
        if command == "log" {
            // Overwritten again and again, so that it does not end before the signal.
            words.extend(["--file", "recycled"]);
        } else {
            words.extend(["--runs", "1000"]);
        }
        let child = started(&words, folder.path());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{command} {signal:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by a signal"), "{output:?}");
        assert!(output.stdout.is_empty(), "half a result is none");
        is_empty(folder.path());
    }
}

#[test]
fn bad_wishes_are_refused_with_what_to_do() {
    let (folder, path) = folder();
    for (words, said) in [
        (vec!["--record-bytes", "500"], "multiples of 512"),
        (vec!["--record-bytes", "128K"], "512 to 65536"),
        (vec!["--per-sync", "0"], "1..=1000"),
        (vec!["--per-sync", "1001"], "1..=1000"),
        (vec!["--way", "paper"], "possible values"),
        (vec!["--seconds", "0"], "--seconds"),
        (vec!["--seconds", "nan"], "--seconds"),
        (vec!["--group-only", "--writers", "0"], "--writers"),
        (vec!["--per-sync", "1000", "--file-mib", "8"], "--file-mib 8: give at least 63"),
        (vec!["--file-mib", "1000000"], "choose less with --file-mib"),
    ] {
        let words: Vec<&str> = ["log", &path].into_iter().chain(words).collect();
        let why = refused(&words);
        assert!(why.contains(said), "{words:?}: {why}");
    }
    assert!(refused(&["log", "/nowhere/at/all"]).contains("create it first"));
    assert!(refused(&["raw", &path, "--block-bytes", "2M", "--file-mib", "1"]).contains("--file-mib 1"));
    assert!(refused(&["ipc", "--bytes", "0"]).contains("1 octet"));
    is_empty(folder.path());
}

#[test]
fn a_file_system_that_fills_up_or_is_read_only_is_said() {
    let Some(fs_of_test) = LoopFs::make_with(Kind::Ext4, 32 << 20, &[]) else { return };
    let path = fs_of_test.path().to_str().unwrap();
    assert!(refused(&["log", path]).contains("MiB free, but this measurement needs up to 128 MiB"));

    // Somebody else takes the room while it is measured.
    let words = ["log", path, "--file-mib=4", "--runs=1000", "--record-bytes=64K", "--per-sync=10", "--writers=0"];
    let mut child = started(&words, fs_of_test.path());
    let mut filler = fs::File::create(fs_of_test.path().join("filler")).unwrap();
    wait_until("it finds the file system full", || {
        // Until nothing more fits: it gives room back between its files.
        let _ = (0..1000).try_for_each(|_| filler.write_all(&[1; 4096]));
        child.try_wait().unwrap().is_some()
    });
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("ran out of space while measuring") && why.contains("--file-mib"), "{why}");
    drop(filler);
    fs::remove_file(fs_of_test.path().join("filler")).unwrap();
    fs::remove_dir(fs_of_test.path().join("lost+found")).unwrap();
    is_empty(fs_of_test.path());

    let status = Command::new("mount").args(["-o", "remount,ro", path]).status();
    if !status.is_ok_and(|status| status.success()) {
        return skipped("a loop device cannot be mounted read-only here");
    }
    for words in [vec!["log", path, "--per-sync", "1"], vec!["raw", path]] {
        let why = refused(&words.iter().copied().chain(["--file-mib", "4"]).collect::<Vec<_>>());
        assert!(why.contains("read-only") && why.contains("choose another directory"), "{why}");
    }
}

#[test]
fn memory_has_no_device() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return skipped("no tmpfs at /dev/shm") };
    let path = folder.path().to_str().unwrap();
    let report = json(&["log", path, "--record-bytes", "512", "--per-sync", "1", "--records", "5", "--writers", "2"]);
    if report["places"][0]["file_system"] != "tmpfs" {
        return skipped("/dev/shm is no tmpfs");
    }
    assert!(report["places"][0]["device"].is_null());
    assert!(rows(&report, "cost")[0]["device_writes_per_commit"].is_null());
    assert!(rows(&report, "group")[0]["alone_device_writes_per_record"].is_null());
    assert_eq!(median(&rows(&report, "log")[0], "records") as u64, 5);
    assert!(report["notes"].to_string().contains("no block device"));
    is_empty(folder.path());
}

#[test]
fn raw_has_every_mode_and_size() {
    let (folder, path) = folder();
    let report = json(&["raw", &path, "--block-bytes", "4K,64K", "--file-mib", "1", "--runs", "2", "--seconds", "60"]);
    is_empty(folder.path());
    assert_eq!(rows(&report, "rates").len(), 2);
    let calls = rows(&report, "calls");
    assert_eq!(calls.len(), 10);
    for row in calls {
        if row["mib"].is_null() {
            assert!(row["remark"].as_str().unwrap().contains("direct"), "{row}");
        } else {
            assert!(median(row, "mib") as u64 == 1 && median(row, "mib_per_s") > 0.0, "{row}");
        }
    }
}

#[test]
fn ipc_talks_between_processes_and_between_threads() {
    for between in ["processes", "threads"] {
        let report = json(&["ipc", "--bytes", "32,64K", "--seconds", "0.001", "--runs", "1", "--between", between]);
        for table in ["round-trips", "one-way"] {
            let lines = rows(&report, table);
            let of: Vec<&str> = lines.iter().filter_map(|row| row["transport"].as_str()).collect();
            assert_eq!(of, ["tcp", "unix", "pipe", "tcp", "unix", "pipe"], "{table}");
        }
        assert!(rows(&report, "round-trips").iter().all(|row| median(row, "round_trips_per_s") > 0.0));
        assert_eq!(report["parameters"]["between"], format!("two {between}"));
    }
}

#[test]
fn kill_nine_leaves_nothing_either() {
    let (folder, path) = folder();
    let words = ["log", &path, "--seconds", "3000", "--file-mib", "64", "--file", "recycled"];
    let mut child = started(&words, folder.path());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    wait_until("the guardian has cleaned up", || fs::read_dir(folder.path()).into_iter().flatten().count() == 0);
}
