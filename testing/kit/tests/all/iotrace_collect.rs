//! `stentor-kit iotrace`, the collecting half: what a run sees, that nothing stays enabled however it ends, and that
//! refusals say what to do. Kernels without tracefs, and users who are not root, skip what traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_harness::{Kind, LoopFs, stentor_kit, tracefs, wait_until};

const INSTANCES: &str = "/sys/kernel/tracing/instances";
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kit/iotrace/src/text/fixtures");

fn can_trace() -> bool {
    tracefs().is_some()
}

fn iotrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(stentor_kit());
    command.args(["iotrace", "--quiet"]).args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    iotrace(arguments).output().expect("stentor runs")
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &[]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many events of a kind there were in the run.
#[track_caller]
fn events(report: &Value, kind: &str) -> u64 {
    let rows = report["tables"]["events"].as_array().unwrap_or_else(|| panic!("no events: {report}"));
    let row = rows.iter().find(|row| row["event"] == kind);
    row.map_or(0, |row| row["events_per_run"]["median"].as_f64().unwrap_or_else(|| panic!("{row}")) as u64)
}

fn losses(report: &Value) -> Vec<&str> {
    let warnings = report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    warnings.filter(|warning| warning.contains("events lost")).collect()
}

/// The instances of a process.
fn instances(pid: u32) -> Vec<PathBuf> {
    let all = fs::read_dir(INSTANCES).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = format!("stentor-{pid}-");
    all.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&ours))).collect()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

#[test]
fn a_run_sees_calls_file_system_journal_and_requests_and_leaves_nothing() {
    if !can_trace() {
        return;
    }
    let Some(fs) = LoopFs::make(Kind::Ext4) else { return };
    let folder = fs.path().to_str().unwrap();
    let child =
        iotrace(&[folder, "--json", "--runs", "1", "--count", "7", "--size", "4K"]).stdout(Stdio::piped()).spawn();
    let child = child.expect("stentor runs");
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["parameters"]["collector"], "tracefs");
    assert_eq!(report["places"][0]["file_system"], "ext4");
    for call in ["syscalls/sys_enter_pwrite64", "syscalls/sys_exit_pwrite64", "syscalls/sys_enter_fsync"] {
        assert_eq!(events(&report, call), 7, "{call}");
    }
    for kind in ["ext4/ext4_sync_file_enter", "jbd2/jbd2_end_commit", "block/block_rq_issue", "block/block_rq_complete"]
    {
        assert!(events(&report, kind) > 0, "{kind}");
    }
    assert_eq!(losses(&report), Vec::<&str>::new());
    assert_eq!(instances(pid), Vec::<PathBuf>::new());
    let left: Vec<_> = fs::read_dir(fs.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "lost+found"), "{left:?}");
}

#[test]
fn nothing_stays_switched_on_after_a_kill_or_an_interrupt() {
    if !can_trace() {
        return;
    }
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut child = iotrace(&[path, "--count", "1000000", "--size", "512"])
            .stderr(Stdio::null())
            .spawn()
            .expect("stentor runs");
        let pid = child.id();
        wait_until("the instance is there", || !instances(pid).is_empty());
        kill_process(pid_of(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        wait_until("the instance is gone", || instances(pid).is_empty());
        wait_until("its folder is gone", || fs::read_dir(&folder).unwrap().count() == 0);
    }
}

#[test]
fn a_traced_command_ends_with_who_traces_it() {
    if !can_trace() {
        return;
    }
    for signal in [Signal::KILL, Signal::INT] {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let script =
            format!("trap '' HUP; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1; done", mark.display());
        let mut child = iotrace(&["--seconds", "3000", "--command", "--", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .expect("stentor runs");
        wait_until("the command runs", || mark.exists());
        let pid: i32 = fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
        kill_process(pid_of(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        // What nobody has waited for yet has no memory any more.
        let lives = || fs::read_to_string(format!("/proc/{pid}/statm")).is_ok_and(|text| !text.starts_with("0 "));
        wait_until("the command is gone", || !lives());
        wait_until("the instances are gone", || instances(child.id()).is_empty());
    }
}

#[test]
fn what_a_command_leaves_in_the_background_is_traced_to_its_end() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let script = format!(
        "echo said; (sleep 1; setsid dd if=/dev/zero of={} bs=4k count=5 conv=fsync status=none) > /dev/null 2>&1 &",
        file.display()
    );
    let report = json(&["--json", "--runs", "1", "--seconds", "3000", "--command", "--", "sh", "-c", &script]);
    assert_eq!(events(&report, "syscalls/sys_enter_fsync"), 1);
    // And the shell's own.
    assert_eq!(events(&report, "syscalls/sys_enter_write"), 6);
    assert_eq!(fs::metadata(&file).unwrap().len(), 5 * 4096);
}

#[test]
fn a_process_that_ends_ends_its_trace() {
    if !can_trace() {
        return;
    }
    // It is killed once it is traced, or about to be.
    let traced = |runs: &str| {
        let mut sleeper = Command::new("sleep").arg("3000").spawn().unwrap();
        let pid = sleeper.id().to_string();
        let words = ["--json", "--runs", runs, "--seconds", "3000", "--scope", "device", "--pid", &pid];
        let child = iotrace(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("stentor runs");
        wait_until("it is traced", || !instances(child.id()).is_empty());
        sleeper.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        (output, sleeper)
    };
    let (output, mut sleeper) = traced("1");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Nobody has waited for it yet.
    let pid = sleeper.id().to_string();
    assert!(refusal(&["--pid", &pid]).contains(&format!("no process {pid}")));
    sleeper.wait().unwrap();
    let (output, mut sleeper) = traced("3");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("use --runs 1"), "{said}");
    sleeper.wait().unwrap();
}

#[test]
fn two_at_a_time_see_their_own() {
    if !can_trace() {
        return;
    }
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let counts = ["5", "9"];
    let start = |at: usize| {
        let path = folders[at].path().to_str().unwrap().to_owned();
        let words = [path.as_str(), "--json", "--runs", "1", "--count", counts[at], "--size", "4K"];
        iotrace(&words).stdout(Stdio::piped()).spawn().expect("stentor runs")
    };
    let children = [start(0), start(1)];
    for (child, count) in children.into_iter().zip([5, 9]) {
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(events(&report, "syscalls/sys_enter_fsync"), count);
    }
}

#[test]
fn memory_is_bounded_and_the_trace_ends_when_it_is_full() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let words = [folder.path().to_str().unwrap(), "--json", "--runs", "1", "--memory-mib", "8", "--sync", "none"];
    let report = json(&[&words[..], &["--count", "100000", "--size", "512"]].concat());
    let writes = events(&report, "syscalls/sys_enter_pwrite64");
    assert!((1..100_000).contains(&writes), "{writes}");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains(&format!("full after {writes} of 100000 operations")), "{warnings}");
    assert!(warnings.contains("increase --memory-mib"), "{warnings}");
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=400000000", "status=none"];
    let words = ["--json", "--runs", "1", "--memory-mib", "8", "--seconds", "3000", "--command", "--"];
    let report = json(&[&words[..], &dd].concat());
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("of 3000 s, and the trace ended there"), "{warnings}");
    assert!(refusal(&["--memory-mib", "1048576"]).contains("more than is free"));
}

#[test]
fn losses_by_buffer_scope_and_processors() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = json(&["--loss", folder.path().to_str().unwrap(), "--json", "--runs", "1"]);
    let rows = report["tables"]["loss"].as_array().unwrap();
    // One CPU, and all of them if there are more.
    assert!(rows.len() == 12 || rows.len() == 24, "{report}");
    let of = |row: &Value, name: &str| row[name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
    for sizes in rows.chunks(3) {
        // One load, three buffers: the smallest has lost at least as much as the greatest.
        assert_eq!([64, 512, 4096].map(Value::from), [0, 1, 2].map(|at| sizes[at]["buffer_kib"].clone()));
        assert!(of(&sizes[0], "lost") >= of(&sizes[2], "lost"), "{sizes:?}");
        assert!(of(&sizes[2], "events") > 0.0, "{sizes:?}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn what_a_dead_process_left_is_removed_at_the_next_start() {
    if !can_trace() {
        return;
    }
    let mut gone = Command::new("true").spawn().unwrap();
    let dead = gone.id();
    gone.wait().unwrap();
    let left = Path::new(INSTANCES).join(format!("stentor-{dead}-0"));
    let others = Path::new(INSTANCES).join(format!("other-{dead}-0"));
    for path in [&left, &others] {
        fs::create_dir(path).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let report = json(&[folder.path().to_str().unwrap(), "--json", "--runs", "1", "--count", "1", "--size", "4K"]);
    let are_left = (left.exists(), others.exists());
    fs::remove_dir(&others).unwrap();
    assert_eq!(are_left, (false, true));
    assert_eq!(events(&report, "syscalls/sys_enter_fsync"), 1);
}

#[test]
fn a_command_is_traced_from_its_first_call_to_its_end() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = format!("of={}", folder.path().join("file").display());
    let words = ["--json", "--runs", "1", "--seconds", "80", "--command", "--"];
    let dd = ["dd", "if=/dev/zero", &file, "bs=8k", "count=23", "conv=fsync", "status=none"];
    let report = json(&[&words[..], &dd].concat());
    // dd writes nothing else, as it says nothing.
    assert_eq!(events(&report, "syscalls/sys_enter_write"), 23);
    assert_eq!(events(&report, "syscalls/sys_enter_fsync"), 1);
    assert!(events(&report, "sched/sched_switch") > 0);
    assert_eq!(fs::metadata(folder.path().join("file")).unwrap().len(), 23 * 8192);

    // A buffer that is far too small: marked, with what to do.
    let dd = ["dd", "if=/dev/zero", &file, "bs=512", "count=40000", "status=none"];
    let words = ["--json", "--runs", "1", "--seconds", "80", "--buffer-kib", "16", "--scope", "all", "--command", "--"];
    let report = json(&[&words[..], &dd].concat());
    let losses = losses(&report);
    assert!(losses.len() == 1 && losses[0].contains("--buffer-kib 64 or --scope fs"), "{losses:?}");

    let report = json(&["--json", "--runs", "1", "--command", "--", "/nowhere/no-such-program"]);
    assert!(report["warnings"].to_string().contains("not found"), "{report}");
}

#[test]
fn texts_of_others_are_summed() {
    let manual = format!("{FIXTURES}/trace-cmd-record.1.txt");
    let report = json(&["--json", "--read", &manual]);
    let function = &report["tables"]["functions"][0];
    assert_eq!((&function["function"], &function["calls"]), (&Value::from("do_IRQ"), &Value::from(5)));
    assert_eq!((&function["inclusive_us"], &function["exclusive_us"]), (&Value::from(146.755), &Value::from(146.755)));
    assert_eq!(report["tables"]["events"][0]["count"], 5);
    assert_eq!(report["tables"]["processes"][0]["process"], "<idle>-0");
    let report = json(&["--json", "--read", &format!("{FIXTURES}/switches.txt")]);
    assert!(losses(&report)[0].contains("7 events lost (CPU 1: 7)"), "{report}");
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    let text = format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
    for (arguments, words) in [
        (&["/nowhere/at/all"][..], "/nowhere/at/all"),
        (&["--pid", "2147483647"], "no process 2147483647"),
        (&["--read", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["--read", &text], "trace-cmd report -i"),
        (&[here, "--path", "direct", "--size", "700"], "multiples of 512"),
        (&[here, "--size", "64M", "--count", "1000000"], "reduce --count or --size"),
        (&[here, "--size", "4G"], "use K or M"),
        (&["--command"], "--"),
        (&["--pid", "1", "--loss"], "--loss"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let list = json(&["--collectors", "--json"]);
    let graph = &list["tables"]["collectors"][1];
    assert_eq!(graph["collector"], "function-graph");
    if graph["works"] == "no" {
        let said = refusal(&[here, "--collector", "function-graph"]);
        assert!(said.contains(graph["why_not"].as_str().unwrap()), "{said}");
    }
    if can_trace() {
        let said = refusal(&[here, "--buffer-kib", "4194304"]);
        assert!(said.contains("more than an eighth of the memory; choose at most"), "{said}");
    } else {
        let said = refusal(&[here]);
        assert!(said.contains("root") || said.contains("mount"), "{said}");
    }
}
