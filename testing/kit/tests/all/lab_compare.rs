//! `stentor-kit lab compare`: real servers are started, measured, stopped and cleaned up.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_harness::{skipped, stentor_kit, wait_until};

use crate::lab_source::{lab, sink};

const WORK: [&str; 8] = ["--messages", "40", "--connections", "4", "--runs", "1", "--json", "--quiet"];

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("is there").count() == 0
}

fn compared(arguments: &[&str]) -> Value {
    let output = lab(&[&["compare"], arguments, &WORK[..]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

#[test]
fn stentor_with_and_without_syncs() {
    let folder = tempfile::tempdir().expect("made");
    let queue = folder.path().display().to_string();
    let report = compared(&["stentor", "--queue", &queue, "--sync", "both", "--sessions", "both"]);
    let rows = report["tables"]["rates"].as_array().expect("a table");
    let kinds: Vec<_> = rows.iter().map(|row| (row["sync"].as_str(), row["sessions"].as_str())).collect();
    let expected = [("on", "each"), ("on", "kept"), ("off", "each"), ("off", "kept")];
    assert_eq!(kinds, expected.map(|(sync, sessions)| (Some(sync), Some(sessions))));
    for row in rows {
        for figure in ["accepted_per_s", "delivered_per_s", "cpu_ms", "final_p50_ms"] {
            assert!(row[figure]["median"].as_f64() > Some(0.0), "{figure}: {row}");
        }
        let syncs = row["syncs_per_message"]["median"].as_f64();
        // Only where perf can count them.
        if let Some(syncs) = syncs {
            assert_eq!(syncs > 0.0, row["sync"] == "on", "{row}");
        }
    }
    assert!(report["tables"]["costs"][0]["memory_peak_mib"]["median"].as_f64() > Some(1.0), "{report}");
    assert!(is_empty(folder.path()), "it leaves nothing");
}

#[test]
fn postfix_beside_stentor() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/sbin/postfix").exists() {
        return skipped("a private Postfix needs root, and Postfix");
    }
    // Its daemons must be able to enter the folder.
    let folder = tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir();
    let folder = folder.expect("made");
    let queue = folder.path().display().to_string();
    let report = compared(&["stentor", "postfix", "--queue", &queue]);
    let rows = report["tables"]["rates"].as_array().expect("a table");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["delivered_per_s"]["median"].as_f64() > Some(0.0), "{row}");
        assert!(row["cpu_ms"]["median"].as_f64() > Some(0.0), "{row}");
    }
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(is_empty(folder.path()), "it leaves nothing");
}

#[test]
fn servers_that_run_already() {
    let sink = sink("");
    let own = std::process::id();
    let folder = tempfile::tempdir().expect("made");
    let queue = folder.path().display().to_string();
    let spec = format!("name=given,target={},pid={own},queue={queue}", sink.address);
    let report = compared(&["--contestant", &spec, "--no-delivery"]);
    let row = &report["tables"]["rates"][0];
    assert_eq!((row["sync"].as_str(), row["contestant"].as_str()), (Some("as it runs"), Some("given")));
    assert!(row["accepted_per_s"]["median"].as_f64() > Some(0.0) && row["delivered_per_s"].is_null(), "{row}");
    assert!(row["cpu_ms"]["median"].is_number(), "{row}");
    assert_eq!(row["directory"], *queue);
    assert_eq!(sink.recorder.stats().transactions, 40);
}

/// A comparison without an end that has begun to deliver, on that queue.
fn delivering(queue: &std::path::Path) -> std::process::Child {
    let mut command = Command::new(stentor_kit());
    command.args(["lab", "compare", "stentor", "--messages", "100000000", "--queue"]).arg(queue).stdin(Stdio::null());
    let running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let scratch = || std::fs::read_dir(queue).expect("is there").flatten().next().map(|entry| entry.path());
    let log = |scratch: std::path::PathBuf| scratch.join("stentor").join("attempts.log");
    let has_delivered = || scratch().map(log).and_then(|log| log.metadata().ok()).is_some_and(|log| log.len() > 0);
    wait_until("mail delivered", has_delivered);
    running
}

#[test]
fn a_signal_stops_the_server_and_removes_its_folder() {
    let folder = tempfile::tempdir().expect("made");
    let mut running = delivering(folder.path());
    kill_process(Pid::from_child(&running), Signal::INT).expect("it runs");
    assert!(!running.wait().expect("ends").success());
    assert!(is_empty(folder.path()), "it leaves nothing");
}

#[test]
fn a_killed_comparison_leaves_no_server_and_no_folder() {
    let folder = tempfile::tempdir().expect("made");
    let mut running = delivering(folder.path());
    running.kill().expect("it runs");
    running.wait().expect("ends");
    wait_until("its folder is gone", || is_empty(folder.path()));
    // Whoever works on this queue has its folder on the command line.
    let queue = folder.path().display().to_string();
    let lives = || {
        let processes = std::fs::read_dir("/proc").expect("is there").flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(&queue))
    };
    wait_until("the server has ended", || !lives());
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("made");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let dies = file("dies.toml", "name = 'dies'\nstart = ['/bin/sh', '-c', 'echo out of cheese; exit 3']\n");
    let strange = file("strange.toml", "name = 'x'\nstart = ['y']\nspeed = 'high'\n");
    let needs = file("needs.toml", "name = 'x'\nneeds = ['no-such-program']\nstart = ['y']\n");
    for (arguments, why) in [
        (vec!["exchange"], "contestant file"),
        (vec![dies.as_str()], "out of cheese"),
        (vec![strange.as_str()], "speed"),
        (vec![needs.as_str()], "no-such-program"),
        (vec!["stentor", "stentor"], "two contestants"),
        (vec!["stentor", "--queue", "/nowhere"], "create it first"),
        (vec!["stentor", "--stentor", "/nowhere/stentor"], "--stentor"),
        (vec!["--contestant", "name=a,target=127.0.0.1:1,pid=x"], "process ID"),
    ] {
        let output = lab(&[&["compare"], &arguments[..], &["--quiet"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}
