//! `stentor-kit probe fs`, `kv` and `suite`: all requested results are in the JSON, the page is complete, nothing is
//! left behind after the end, a signal or `kill -9`, and bad options are refused with what to do.

use std::fs;
use std::io::{BufRead, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_harness::{Kind, LoopFs, skipped, stentor_kit, wait_until};
use tempfile::TempDir;

fn probe(words: &[&str]) -> Command {
    let mut command = Command::new(stentor_kit());
    command.arg("probe").args(words);
    command
}

#[track_caller]
fn json(words: &[&str]) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--json", "--quiet"]).collect();
    let output = probe(&words).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON is printed")
}

#[track_caller]
fn refused(words: &[&str]) -> String {
    let output: Output = probe(words).output().expect("the binary runs");
    assert!(!output.status.success() && output.stdout.is_empty(), "{words:?} is taken");
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

fn rows<'a>(report: &'a Value, table: &str) -> &'a Vec<Value> {
    report["tables"][table].as_array().unwrap_or_else(|| panic!("no table {table} in {report}"))
}

#[track_caller]
fn positive(row: &Value, name: &str) {
    assert!(row[name]["median"].as_f64().is_some_and(|value| value > 0.0), "{name} in {row}");
}

#[test]
fn queue_files_live_in_all_ways_that_were_asked_for() {
    let (folder, path) = folder();
    let out = tempfile::tempdir().unwrap();
    let words = ["fs", &path, "--files", "6", "--seconds", "60", "--size", "700", "--processes", "1,3"];
    let more = ["--hash-depth", "0,1", "--names", "new,reused", "--sync", "none,both,every", "--runs", "2"];
    let written = ["--queued", "5", "--out", out.path().to_str().unwrap(), "--plot"];
    let report = json(&[&words[..], &more, &written].concat());
    is_empty(folder.path());
    let cycles = rows(&report, "cycles");
    assert_eq!(cycles.len(), 2 * 2 * 2 * 3);
    for row in cycles {
        for name in ["cycles_per_s", "cycle_p50_us", "cycle_p99_us"] {
            positive(row, name);
        }
        assert_eq!(row["cycles_per_s"]["runs"], 2);
    }
    // Steps are those of the way: what is not synced has no sync.
    let steps = rows(&report, "steps");
    let of = |case: &str| -> Vec<&str> {
        let own = steps.iter().filter(|row| row["case"] == case);
        own.map(|row| row["step"].as_str().unwrap()).collect()
    };
    let plain = ["create", "write", "close", "rename to active", "rename to deferred", "remove"];
    assert_eq!(of("new, flat, 700, 1 process, sync none"), plain);
    let both = of("reused, hashed 1, 700, 3 processes, sync both");
    assert!(both.contains(&"sync file") && both.contains(&"sync directory") && both.contains(&"give back"), "{both:?}");
    for ending in [".json", "-cycles.csv", "-steps.csv", "-cycles.svg", "-steps.svg"] {
        let file = out.path().join(format!("probe-fs{ending}"));
        assert!(file.metadata().is_ok_and(|data| data.len() > 0), "{ending}");
    }
    assert!(!report["notes"].as_array().unwrap().is_empty());
}

#[test]
fn every_engine_that_is_built_in_is_measured_and_the_others_are_listed() {
    let (folder, path) = folder();
    let report = json(&[
        "kv",
        &path,
        "--records",
        "40",
        "--seconds",
        "60",
        "--record-bytes",
        "512,5000",
        "--per-transaction",
        "1,20",
        "--runs",
        "1",
    ]);
    is_empty(folder.path());
    let engines = rows(&report, "engines");
    let here: Vec<&str> = engines
        .iter()
        .filter(|row| row["is_built_in"] == "built in")
        .map(|row| row["engine"].as_str().unwrap())
        .collect();
    assert_eq!(here, ["journal", "redb", "fjall", "SQLite", "LMDB"]);
    for engine in here {
        let own: Vec<&Value> = rows(&report, "kv").iter().filter(|row| row["engine"] == engine).collect();
        assert_eq!(own.len(), 2 * 2 * 3, "{engine}");
        for row in own {
            positive(row, "records_per_s");
        }
        let spaces = rows(&report, "space").iter().filter(|row| row["engine"] == engine);
        for row in spaces {
            assert_eq!((&row["records"], &row["deleted"]), (&Value::from(40), &Value::from(40)), "{row}");
            assert!(row["after_inserts_mib"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let (folder, path) = folder();
    for (words, wanted) in [
        (&["fs", "/nowhere/at/all"][..], "create it first"),
        (&["fs", &path, "--seconds", "0"], "--seconds"),
        (&["fs", &path, "--size", "2G"], "1 GiB"),
        (&["fs", &path, "--sync", "maybe"], "possible values"),
        (&["kv", &path, "--record-bytes", "3"], "16 octets"),
        (&["kv", &path, "--records", "100000000", "--record-bytes", "1M"], "MiB free"),
        (&["suite", "/nowhere/at/all"], "create it first"),
        (&["suite", &path, "--throttle", "100"], "--loop"),
        (&["suite", &path, "--page", "/nowhere/page.html"], "create it first"),
        // Said before it is measured, which would take long.
        (&["suite", &path, "--page", "/proc/page.html", "--runs", "1000"], "cannot write to /proc"),
        (&["fs", &path, "--out", "/proc/self", "--runs", "1000"], "cannot write to /proc/self"),
        (&["kv", &path, "--out", "/dev/null/x", "--runs", "1000"], "/dev/null/x"),
        (&["suite", "--loop", "--loop-mib", "10"], "320"),
    ] {
        let said = refused(words);
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
    is_empty(folder.path());
}

/// Once it has said this on standard error.
fn until(child: &mut Child, word: &str) {
    let stderr = child.stderr.take().expect("it is piped");
    let mut lines = std::io::BufReader::new(stderr).lines();
    let seen = lines.by_ref().any(|line| line.expect("it is text").contains(word));
    assert!(seen, "it ended without {word}");
    // The rest is read, so that it never waits for us.
    std::thread::spawn(move || lines.for_each(drop));
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is there");
}

/// A long measurement that has files in its folder, and takes little room: a disk may be nearly full.
fn at_work(command: &str, folder: &Path) -> Child {
    let mut words = vec![command, folder.to_str().expect("a plain path"), "--quiet", "--seconds", "3000"];
    words.extend(match command {
        // Nothing synced: quick to stop, and as many files as anybody could leave.
        "fs" => ["--files", "100000", "--processes", "2", "--sync", "none"].as_slice(),
        _ => ["--records", "100000", "--record-bytes", "512"].as_slice(),
    });
    let mut child = probe(&words).stderr(Stdio::piped()).spawn().expect("it runs");
    wait_until("it works", || {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            let mut complaint = String::new();
            child.stderr.take().expect("it is piped").read_to_string(&mut complaint).expect("it is text");
            panic!("{words:?} ended with {status}: {complaint}");
        }
        let within = |entry: fs::DirEntry| fs::read_dir(entry.path()).into_iter().flatten().count() > 0;
        fs::read_dir(folder).into_iter().flatten().flatten().any(within)
    });
    child
}

/// Processes that have this folder among their arguments.
fn processes_of(folder: &Path) -> usize {
    let name = folder.to_str().expect("a plain path");
    let entries = fs::read_dir("/proc").expect("it is there").flatten();
    let of = |entry: &fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    entries.filter(|entry| String::from_utf8_lossy(&of(entry)).contains(name)).count()
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    for command in ["fs", "kv"] {
        let (folder, _) = folder();
        let mut child = at_work(command, folder.path());
        signal(&child, Signal::INT);
        let status = child.wait().expect("it ends");
        assert!(!status.success());
        is_empty(folder.path());
        assert_eq!(processes_of(folder.path()), 0);
    }
}

#[test]
fn a_kill_leaves_neither_files_nor_processes() {
    for command in ["fs", "kv"] {
        let (folder, _) = folder();
        let mut child = at_work(command, folder.path());
        signal(&child, Signal::KILL);
        child.wait().expect("it ends");
        wait_until("its processes have ended and its folder is gone", || {
            let left = fs::read_dir(folder.path()).into_iter().flatten().count();
            processes_of(folder.path()) == 0 && left == 0
        });
    }
}

#[test]
fn the_suite_of_a_directory_makes_a_page_that_is_whole() {
    let (folder, path) = folder();
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("page.html");
    let report =
        json(&["suite", &path, "--runs", "1", "--out", out.path().to_str().unwrap(), "--page", page.to_str().unwrap()]);
    is_empty(folder.path());
    assert_eq!(rows(&report, "log").len(), 1);
    positive(&rows(&report, "log")[0], "journal_per_s");
    positive(&rows(&report, "files")[0], "both_per_s");
    assert!(rows(&report, "engines").iter().all(|row| row["single_per_s"]["median"].as_f64().is_some()));
    let html = fs::read_to_string(&page).expect("the page is there");
    for word in ["<!DOCTYPE html>", "Side by side", "records/s", path.as_str(), "single run", "probe suite"] {
        assert!(html.contains(word), "{word} is not in the page");
    }
    assert!(html.matches("<svg").count() >= 10 && !html.contains("NaN"), "its pictures are in it");
    // Each part beside it, as its own command would have written it.
    let place =
        fs::read_dir(out.path()).unwrap().flatten().find(|entry| entry.path().is_dir()).expect("a place's folder");
    for part in ["log", "journal", "fs", "kv", "raw"] {
        let written = fs::read(place.path().join(format!("probe-{part}.json"))).unwrap_or_else(|_| panic!("no {part}"));
        let written: Value = serde_json::from_slice(&written).expect("it is JSON");
        for table in written["tables"].as_object().expect("it has tables").keys() {
            let csv = fs::read_to_string(place.path().join(format!("probe-{part}-{table}.csv"))).expect("each table");
            assert_eq!(csv.lines().count(), rows(&written, table).len() + 1, "{part} {table}");
        }
    }
    assert!(out.path().join("probe-ipc.json").exists() && out.path().join("probe-suite-log.csv").exists());
    // Nothing is fetched from anywhere.
    for word in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(word), "{word}");
    }
}

/// 256 MiB are room for all parts but `kv`.
#[test]
fn a_part_that_fails_is_left_out_and_said() {
    let Some(small) = LoopFs::make_with(Kind::Ext4, 256 << 20, &[]) else { return };
    let out = tempfile::tempdir().unwrap();
    let words = ["suite", small.path().to_str().unwrap(), "--runs", "1", "--json", "--quiet", "--out"];
    let output = probe(&words).arg(out.path()).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 of the parts could not be measured") && said.contains("kv on"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report of the others");
    assert!(report["notes"][0].as_str().unwrap().contains("Not measured: kv on"), "{}", report["notes"]);
    positive(&rows(&report, "log")[0], "journal_per_s");
    assert!(rows(&report, "engines").iter().all(|row| row["single_per_s"].is_null()));
    let html = fs::read_to_string(out.path().join("probe-suite.html")).expect("the page is there");
    assert!(html.contains("Not measured: kv on") && html.contains("MiB free"), "the page says it");
}

/// Takes all the room that there is now.
fn fill(path: &Path) {
    use std::io::Write;
    let filler = fs::OpenOptions::new().create(true).append(true).open(path.join("filler"));
    let mut filler = filler.expect("a file can be made");
    for bytes in [1 << 16, 512] {
        while filler.write_all(&vec![1; bytes]).is_ok() {}
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_stays() {
    let Some(small) = LoopFs::make_with(Kind::Ext4, 512 << 20, &[]) else { return };
    let path = small.path().to_str().unwrap();
    // Before it begins.
    for words in [
        vec!["fs", path, "--size", "10M", "--queued", "100"],
        vec!["kv", path, "--records", "100000"],
        vec!["raw", path, "--file-mib", "1000"],
        vec!["log", path, "--file-mib", "1000"],
        vec!["log", path, "--way", "journal", "--per-sync", "1000", "--record-bytes", "64K", "--writers", "0"],
    ] {
        let said = refused(&[&words[..], &["--quiet"]].concat());
        assert!(said.contains("MiB free") && said.contains("choose less with --"), "{words:?}: {said}");
    }
    // When it is under way: somebody else takes the room.
    for words in [
        vec!["fs", path, "--files", "10000000", "--seconds", "3000", "--size", "1M", "--processes", "3"],
        vec!["kv", path, "--records", "10000", "--seconds", "3000", "--record-bytes", "2000", "--engines", "journal"],
        vec!["kv", path, "--records", "10000", "--seconds", "3000", "--record-bytes", "2000", "--engines", "redb"],
        vec!["kv", path, "--records", "10000", "--seconds", "3000", "--record-bytes", "2000", "--engines", "sqlite"],
        vec!["raw", path, "--file", "new", "--runs", "1000", "--file-mib", "64", "--block-bytes", "4K"],
        // Two sizes of segments, of which one makes way for the other.
        vec!["log", path, "--way=journal", "--runs=1000", "--record-bytes=16K", "--per-sync=1,1000", "--writers=0"],
    ] {
        let mut child = probe(&words).arg("--quiet").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("it has begun", || {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            let within = |entry: fs::DirEntry| fs::read_dir(entry.path()).into_iter().flatten().count() > 0;
            let ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("stentor-probe-");
            fs::read_dir(small.path()).into_iter().flatten().flatten().filter(ours).any(within)
        });
        wait_until("it finds the file system full", || {
            fill(small.path());
            child.try_wait().unwrap().is_some()
        });
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("ran out of space while measuring"), "{words:?}: {said}");
        fs::remove_file(small.path().join("filler")).unwrap();
        let left = fs::read_dir(small.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(left.filter(|name| name != "lost+found").count(), 0, "{words:?}");
    }
}

/// Loop devices and mounts whose file is below a folder.
fn held(folder: &Path) -> Vec<String> {
    let name = folder.to_str().expect("a plain path");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it can be read");
    let mut held: Vec<String> = mounts.lines().filter(|line| line.contains(name)).map(str::to_owned).collect();
    for entry in fs::read_dir("/sys/block").expect("it can be read").flatten() {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if file.contains(name) {
            held.push(format!("{}: {file}", entry.file_name().display()));
        }
    }
    held
}

/// A suite on loop devices that is at work; none where that cannot be.
fn on_loops(folder: &Path) -> Option<Child> {
    if !rustix::process::geteuid().is_root() {
        skipped("loop devices and mounts need root");
        return None;
    }
    let path = folder.to_str().expect("a plain path");
    let words = ["suite", "--loop", "--file-systems", "ext4,tmpfs", "--loop-dir", path, "--loop-mib", "320"];
    let page = folder.join("page.html");
    let mut child = probe(&words)
        .args(["--page", page.to_str().expect("a plain path")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    until(&mut child, "log on ext4");
    assert!(held(folder).len() >= 3, "{:?}", held(folder));
    // Making the file system left no holes: else first writes would be allocations in the file system below.
    let images = fs::read_dir(folder).expect("it can be read").flatten().map(|entry| entry.path().join("image"));
    let images: Vec<fs::Metadata> = images.filter_map(|image| fs::metadata(image).ok()).collect();
    assert!(!images.is_empty() && images.iter().all(|image| image.blocks() * 512 >= image.len()), "{images:?}");
    Some(child)
}

#[test]
fn file_systems_on_loops_are_gone_after_a_signal() {
    let (folder, _) = folder();
    let Some(mut child) = on_loops(folder.path()) else { return };
    signal(&child, Signal::INT);
    assert!(!child.wait().expect("it ends").success());
    assert_eq!(held(folder.path()), Vec::<String>::new());
    is_empty(folder.path());
}

#[test]
fn file_systems_on_loops_are_gone_after_kill_nine_too() {
    let (folder, _) = folder();
    let Some(mut child) = on_loops(folder.path()) else { return };
    signal(&child, Signal::KILL);
    child.wait().expect("it ends");
    wait_until("the guardian has cleaned up", || {
        held(folder.path()).is_empty() && fs::read_dir(folder.path()).into_iter().flatten().count() == 0
    });
}
